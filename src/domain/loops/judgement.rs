//! Result of supervision for one iteration, as it is kept with the loop and shown to people.

use serde::{Deserialize, Serialize};

use crate::domain::model::signature::{first_error, normalise};
use crate::domain::model::task::CheckReport;
use crate::domain::supervision::control::{Trend, Urgency};
use crate::domain::supervision::oversight::{
    Basis, DetectionKind, DetectionSeverity, Health, InterventionLevel, cause_rank,
};
use crate::domain::supervision::strategy::Approach;

/// Result of supervision for one iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationJudgement {
    /// Proportional term: the current error, 0..1.
    pub p: f64,
    /// Integral term: the persistent error, -1..5.
    pub i: f64,
    /// Derivative term: change of the error, -1..1; positive if it grows.
    pub d: f64,
    /// Control signal, 0..1.
    pub signal: f64,
    /// Band of the control signal.
    pub urgency: Urgency,
    /// Trend of the loop.
    pub trend: Trend,
    /// Name of the gain profile that the loop moves to.
    pub profile: String,
    /// Estimated number of iterations to completion; `None` if it cannot be estimated.
    pub forecast: Option<u64>,
    /// Health of the loop.
    pub health: Health,
    /// Detections, in the order of their rank ([`cause_rank`]).
    pub found: Vec<JudgedDetection>,
    /// Approach of the next iteration.
    pub approach: Approach,
    /// Name of the chosen approach; empty if the loop continues as before.
    pub way: String,
    /// Reason of the choice.
    pub reasoning: String,
    /// Actuators that changed, one sentence each, with the cause.
    pub moved: Vec<String>,
    /// Reason to stop the loop, if it stops.
    pub stops: Option<String>,
}

impl IterationJudgement {
    /// Returns the cause that people are told first.
    pub fn headline(&self) -> Option<&JudgedDetection> {
        self.found.iter().min_by_key(|found| found.rank())
    }

    /// Returns the cause by which people are told of `found`: itself, or the headline if it rests on words alone.
    pub fn named<'a>(&'a self, found: &'a JudgedDetection) -> &'a JudgedDetection {
        match found.basis() {
            Basis::Measured | Basis::Derived => found,
            Basis::Words => self.headline().unwrap_or(found),
        }
    }

    /// Returns the strongest level of intervention.
    pub fn level(&self) -> Option<InterventionLevel> {
        self.found.iter().map(|found| found.level).max()
    }
}

/// Detection and its intervention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedDetection {
    /// Kind of the detection.
    pub kind: DetectionKind,
    /// Severity.
    pub severity: DetectionSeverity,
    /// Basis of its evidence; `None` if it was stored without it.
    #[serde(default)]
    pub basis: Option<Basis>,
    /// Level of the intervention.
    pub level: InterventionLevel,
    /// Whether the intervention is new in this iteration.
    pub fresh: bool,
    /// Evidence, for people.
    pub evidence: String,
    /// Recommended actions.
    pub recommendations: Vec<String>,
}

impl JudgedDetection {
    /// Returns the basis of its evidence, which is that of its kind where it was stored without it.
    pub fn basis(&self) -> Basis {
        self.basis.unwrap_or_else(|| self.kind.row().basis())
    }

    fn rank(&self) -> impl Ord + Copy + use<> {
        cause_rank(self.kind, self.basis(), self.severity, self.level)
    }
}

/// Signature of the first error of the first failing check, else of the last line that the check printed. `None` if
/// all checks passed.
pub fn error_signature(checks: &CheckReport) -> Option<String> {
    // The fact that a check failed does not identify the error; its last line is the least that does.
    let failing = checks.outcomes.iter().find(|outcome| !outcome.holds)?;
    let last = || failing.output.lines().rev().find(|line| !line.trim().is_empty());
    first_error(&failing.output).or_else(|| last().map(normalise))
}
