//! Alarms: raised when their condition holds, updated while it does, cleared when it no longer does.

mod conditions;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(super) use conditions::{AlarmFacts, check};

/// Kind of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmKind {
    /// Nothing changes, and it is not done.
    StuckLoop,
    /// It goes back and forth.
    Oscillation,
    /// It gets worse, at once or slowly.
    Regression,
    /// The remaining resources will not suffice.
    ResourceBurn,
    /// Quality falls.
    QualityDegradation,
    /// Trouble adds up without progress.
    IntegralWindup,
    /// P jumped.
    DerivativeSpike,
}

/// Severity of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmSeverity {
    /// Worth knowing.
    Info,
    /// Something should be done otherwise.
    Warning,
    /// A person should look.
    Critical,
    /// It should end.
    Emergency,
}

/// A condition that holds now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AlarmFinding {
    pub(super) kind: AlarmKind,
    pub(super) severity: AlarmSeverity,
    /// One sentence, in figures.
    pub(super) message: String,
    pub(super) context: BTreeMap<String, f64>,
}

/// An alarm that stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// Its type and the iteration that raised it; the same while it stands.
    pub id: String,
    /// Kind of the alarm.
    #[serde(rename = "type")]
    pub kind: AlarmKind,
    /// Current severity.
    pub severity: AlarmSeverity,
    /// Message of one sentence.
    pub message: String,
    /// The figures that it was judged by.
    pub context: BTreeMap<String, f64>,
    /// Possible interventions, mildest first.
    pub interventions: Vec<String>,
    /// Iteration that raised it.
    pub raised: u64,
    /// Iteration that last found it.
    pub updated: u64,
    /// Whether somebody has seen it at this severity; then it no longer asks for a pause or an end.
    pub acknowledged: bool,
}

/// Changes of the alarms in an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AlarmChanges {
    pub(super) raised: Vec<AlarmKind>,
    pub(super) cleared: Vec<AlarmKind>,
}

/// Raises, updates and clears the standing alarms by what was found. One that got worse wants to be seen again.
pub(super) fn settle(standing: &mut Vec<Alarm>, findings: Vec<AlarmFinding>, iteration: u64) -> AlarmChanges {
    let mut settled = AlarmChanges::default();
    standing.retain(|alarm| {
        let holds = findings.iter().any(|finding| finding.kind == alarm.kind);
        if !holds {
            settled.cleared.push(alarm.kind);
        }
        holds
    });
    for finding in findings {
        let AlarmFinding { kind, severity, message, context } = finding;
        if let Some(alarm) = standing.iter_mut().find(|alarm| alarm.kind == kind) {
            alarm.acknowledged &= severity <= alarm.severity;
            (alarm.severity, alarm.message, alarm.context, alarm.updated) = (severity, message, context, iteration);
            continue;
        }
        settled.raised.push(kind);
        standing.push(Alarm {
            id: format!("{}-{iteration}", kind.name()),
            kind,
            severity,
            message,
            context,
            interventions: kind.interventions().iter().map(|what| (*what).to_owned()).collect(),
            raised: iteration,
            updated: iteration,
            acknowledged: false,
        });
    }
    standing.sort_by_key(|alarm| (std::cmp::Reverse(alarm.severity), alarm.kind));
    settled
}

impl AlarmKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::StuckLoop,
        Self::Oscillation,
        Self::Regression,
        Self::ResourceBurn,
        Self::QualityDegradation,
        Self::IntegralWindup,
        Self::DerivativeSpike,
    ];

    /// Its name in traces and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::StuckLoop => "stuck_loop",
            Self::Oscillation => "oscillation",
            Self::Regression => "regression",
            Self::ResourceBurn => "resource_burn",
            Self::QualityDegradation => "quality_degradation",
            Self::IntegralWindup => "integral_windup",
            Self::DerivativeSpike => "derivative_spike",
        }
    }

    fn interventions(self) -> &'static [&'static str] {
        match self {
            Self::StuckLoop => &["Take another approach", "Split the task", "Ask a person"],
            Self::Oscillation => &["Take smaller steps", "Settle which of the two states is wanted"],
            Self::Regression => &["Look at the last change", "Go back to the best iteration"],
            Self::ResourceBurn => &["Raise the limit", "Narrow the task", "End the loop and keep the work"],
            Self::QualityDegradation => &["Look at the last changes", "Mend lint and type errors first"],
            Self::IntegralWindup => &["Remove the blockers that recur", "Take another approach"],
            Self::DerivativeSpike => &["Look at what the last iteration changed"],
        }
    }

    /// Returns advice for the agent, one sentence.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::StuckLoop => "What was tried in the last iterations changed nothing: try something else.",
            Self::Oscillation => "The last iterations undid each other: take a small step and keep what works.",
            Self::Regression => "The work got worse: find the change that broke it before going on.",
            Self::ResourceBurn => "Little is left for this task: finish what matters most and leave the rest.",
            Self::QualityDegradation => "Quality fell: mend the lint and type errors that came in.",
            Self::IntegralWindup => "The same trouble keeps adding up: remove its cause first.",
            Self::DerivativeSpike => "The last iteration made much worse at once: look at its change first.",
        }
    }
}

impl AlarmSeverity {
    /// Returns the name as people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Emergency => "emergency",
        }
    }
}

#[cfg(test)]
mod tests;
