//! Result of supervision for one iteration, as it is kept with the loop and shown to people.

use serde::{Deserialize, Serialize};

use crate::domain::model::signature::{first_error, normalise};
use crate::domain::model::task::CheckReport;
use crate::domain::supervision::control::{Trend, Urgency};
use crate::domain::supervision::oversight::{Health, Kind, Level, Severity};
use crate::domain::supervision::strategy::Approach;

/// What supervision made of an iteration, as far as people are shown it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationJudgement {
    /// Error now, 0..1.
    pub p: f64,
    /// Error that stays, -1..5.
    pub i: f64,
    /// Change of the error, -1..1; above 0 is getting worse.
    pub d: f64,
    /// Control signal, 0..1.
    pub signal: f64,
    /// Its band.
    pub urgency: Urgency,
    /// Where the loop is going.
    pub trend: Trend,
    /// Profile that the gains move to.
    pub profile: String,
    /// Iterations still needed; `None` where there is no telling.
    pub forecast: Option<u64>,
    /// How the loop is.
    pub health: Health,
    /// What was found, the most severe first.
    pub found: Vec<JudgedDetection>,
    /// How the next iteration goes at the task.
    pub approach: Approach,
    /// Name of the way chosen; empty where it goes on as before.
    pub way: String,
    /// Why.
    pub reasoning: String,
    /// Actuators that moved, a sentence each, with the cause.
    pub moved: Vec<String>,
    /// Why the loop stops, where it does.
    pub stops: Option<String>,
}

impl IterationJudgement {
    /// What the most was done about; of several the most severe.
    pub fn worst(&self) -> Option<&JudgedDetection> {
        self.found.iter().max_by_key(|found| (found.level, found.severity))
    }
}

/// A detection and what was done about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedDetection {
    /// What.
    pub kind: Kind,
    /// How bad.
    pub severity: Severity,
    /// What was done about it.
    pub level: Level,
    /// Whether that is new.
    pub fresh: bool,
    /// What shows it.
    pub evidence: String,
    /// What could be done.
    pub recommendations: Vec<String>,
}

/// Signature of the first error of the first check that fails; of the last line it printed where that has no error.
pub fn error_signature(checks: &CheckReport) -> Option<String> {
    // That a check failed is no error by which two failures are the same; its last word is the least that is.
    let failing = checks.outcomes.iter().find(|outcome| !outcome.holds)?;
    let last = || failing.output.lines().rev().find(|line| !line.trim().is_empty());
    first_error(&failing.output).or_else(|| last().map(normalise))
}
