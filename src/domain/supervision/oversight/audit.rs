//! The trail of oversight: what was done, why, after which iteration. Only ever added to; whoever keeps it adds the time.

use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::intervention::InterventionLevel;

/// Kind of an audit entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditEvent {
    /// The overseer stepped in.
    Intervened,
    /// People are notified.
    Escalated,
    /// A regression recovered.
    Withdrawn,
    /// The best iteration is to be restored.
    Restored,
    /// Restoring it failed.
    RestoreFailed,
    /// A person let the loop go on.
    Resumed,
    /// A person said something else.
    Answered,
    /// A plan was proposed.
    Planned,
    /// Control took another gain profile.
    ProfileChanged,
    /// Control raised an alarm.
    AlarmRaised,
    /// The condition of an alarm holds no longer.
    AlarmCleared,
    /// Another model was asked for a second opinion.
    SecondOpinion,
    /// An image of the task was fetched, or is not used.
    ImageFound,
}

/// One line of the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// After which iteration.
    pub iteration: u32,
    /// Kind of the entry.
    pub event: AuditEvent,
    /// Level, for interventions.
    pub level: Option<InterventionLevel>,
    /// Because of which kind of detection.
    pub kind: Option<DetectionKind>,
    /// Because of which cause.
    pub cause: Option<String>,
    /// Reason, one sentence.
    pub reason: String,
}

impl AuditEntry {
    /// An entry about the loop as a whole.
    pub fn new(iteration: u32, event: AuditEvent, reason: String) -> Self {
        Self { iteration, event, level: None, kind: None, cause: None, reason }
    }
}
