//! Result of supervision for one iteration, as it is kept with the loop and shown to people.

use serde::{Deserialize, Serialize};

use crate::domain::model::signature::{first_error, normalise};
use crate::domain::model::task::CheckReport;
use crate::domain::supervision::control::{Trend, Urgency};
use crate::domain::supervision::oversight::{DetectionKind, DetectionSeverity, Health, InterventionLevel};
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
    /// Name of the gain profile that control approaches.
    pub profile: String,
    /// Estimated number of iterations to completion; `None` if it cannot be estimated.
    pub forecast: Option<u64>,
    /// Health of the loop.
    pub health: Health,
    /// Detections, most severe first.
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
    /// Returns the detection with the strongest intervention; of several, the most severe.
    pub fn worst(&self) -> Option<&JudgedDetection> {
        self.found.iter().max_by_key(|found| (found.level, found.severity))
    }
}

/// Detection and its intervention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedDetection {
    /// Kind of the detection.
    pub kind: DetectionKind,
    /// Severity.
    pub severity: DetectionSeverity,
    /// Level of the intervention.
    pub level: InterventionLevel,
    /// Whether the intervention is new in this iteration.
    pub fresh: bool,
    /// Evidence, for people.
    pub evidence: String,
    /// Recommended actions.
    pub recommendations: Vec<String>,
}

/// Signature of the first error of the first failing check, else of the last line that the check printed. `None` if
/// all checks passed.
pub fn error_signature(checks: &CheckReport) -> Option<String> {
    // The fact that a check failed does not identify the error; its last line is the least that does.
    let failing = checks.outcomes.iter().find(|outcome| !outcome.holds)?;
    let last = || failing.output.lines().rev().find(|line| !line.trim().is_empty());
    first_error(&failing.output).or_else(|| last().map(normalise))
}
