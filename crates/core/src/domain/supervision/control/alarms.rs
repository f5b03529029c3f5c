//! Alarms. An alarm is raised when its condition becomes true, updated while it is true, and cleared when it becomes false.

mod conditions;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use conditions::{AlarmFacts, check};

/// Kind of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlarmKind {
    /// The loop makes no progress although the work is not done.
    StuckLoop,
    /// The error rises and falls repeatedly.
    Oscillation,
    /// The error grows, suddenly or slowly.
    Regression,
    /// The remaining resources will not suffice.
    ResourceBurn,
    /// Quality falls.
    QualityDegradation,
    /// Errors accumulate without progress.
    IntegralWindup,
    /// P changed abruptly between two iterations.
    DerivativeSpike,
}

/// Severity of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlarmSeverity {
    /// Information: no action is needed.
    Info,
    /// Warning: the approach should change.
    Warning,
    /// A person should look at the loop.
    Critical,
    /// The loop should end.
    Emergency,
}

/// Alarm condition that is true in this iteration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AlarmFinding {
    pub(super) kind: AlarmKind,
    pub(super) severity: AlarmSeverity,
    /// Message of one sentence, with figures.
    pub(super) message: String,
    pub(super) context: BTreeMap<String, f64>,
}

/// Active alarm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// Identifier, made of the kind and the iteration that raised the alarm; constant while the alarm is active.
    pub id: String,
    /// Kind of the alarm.
    #[serde(rename = "type")]
    pub kind: AlarmKind,
    /// Current severity.
    pub severity: AlarmSeverity,
    /// Message of one sentence.
    pub message: String,
    /// Figures on which the alarm is based, by name.
    pub context: BTreeMap<String, f64>,
    /// Possible interventions, mildest first.
    pub interventions: Vec<String>,
    /// Iteration that raised the alarm.
    pub raised: u64,
    /// Last iteration in which the condition was true.
    pub updated: u64,
    /// Whether a person acknowledged the alarm at its current severity. An acknowledged alarm neither pauses nor ends the loop.
    pub acknowledged: bool,
}

/// Changes of the alarms in an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AlarmChanges {
    pub(super) raised: Vec<AlarmKind>,
    pub(super) cleared: Vec<AlarmKind>,
}

/// Raises, updates and clears active alarms according to `findings`. An acknowledged alarm that becomes more severe loses
/// its acknowledgement.
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
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::StuckLoop,
        Self::Oscillation,
        Self::Regression,
        Self::ResourceBurn,
        Self::QualityDegradation,
        Self::IntegralWindup,
        Self::DerivativeSpike,
    ];

    /// Returns the name used in traces and in the configuration.
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
            Self::Oscillation => &["Take smaller steps", "Decide which of the two states is wanted"],
            Self::Regression => &["Look at the last change", "Go back to the best iteration"],
            Self::ResourceBurn => &["Raise the limit", "Narrow the task", "End the loop and keep the work"],
            Self::QualityDegradation => &["Look at the last changes", "Fix lint and type errors first"],
            Self::IntegralWindup => &["Remove the recurring blockers", "Take another approach"],
            Self::DerivativeSpike => &["Look at the changes of the last iteration"],
        }
    }

    /// Returns the advice for the agent, one sentence.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::StuckLoop => "The attempts of the last iterations changed nothing: try something else.",
            Self::Oscillation => "The last iterations undid each other: take a small step and keep what works.",
            Self::Regression => "The work got worse: find the change that broke it before you continue.",
            Self::ResourceBurn => {
                "Little time or budget is left for this task: finish what matters most and leave the rest."
            }
            Self::QualityDegradation => "Quality fell: fix the new lint and type errors.",
            Self::IntegralWindup => "The same problems accumulate: remove their cause first.",
            Self::DerivativeSpike => "The last iteration made the work much worse: look at its change first.",
        }
    }
}

impl AlarmSeverity {
    /// Returns the display name.
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
