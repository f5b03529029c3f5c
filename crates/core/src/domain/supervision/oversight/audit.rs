//! Audit log of oversight: each action with its reason and iteration. It is append-only; the store adds the time.

use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::intervention::InterventionLevel;

/// Kind of an audit entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditEvent {
    /// The overseer intervened.
    Intervened,
    /// People were notified.
    Escalated,
    /// The tests or checks of a regression pass again, so the detection was withdrawn.
    Withdrawn,
    /// Restoring the state after the best iteration was requested.
    Restored,
    /// Restoring that state failed.
    RestoreFailed,
    /// A person resumed the loop.
    Resumed,
    /// A person answered without resuming the loop.
    Answered,
    /// A plan was proposed.
    Planned,
    /// The target gain profile of control changed.
    ProfileChanged,
    /// Control raised an alarm.
    AlarmRaised,
    /// The condition of an alarm became false, so the alarm was cleared.
    AlarmCleared,
    /// The service requested a second opinion from another model.
    SecondOpinion,
    /// An assistant gave no usable answer for the first time in the loop.
    AssistantFailed,
    /// An image of the task was fetched, or could not be used.
    ImageFound,
    /// A person edited or removed a reflection.
    ReflectionChanged,
}

/// Entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Iteration after which the event happened.
    pub iteration: u32,
    /// Kind of the entry.
    pub event: AuditEvent,
    /// Level of the intervention; `None` for other events.
    pub level: Option<InterventionLevel>,
    /// Kind of the detection that caused the event; `None` without a detection.
    pub kind: Option<DetectionKind>,
    /// Cause, as in `Detection::cause`; `None` without a detection.
    pub cause: Option<String>,
    /// Reason, in one sentence.
    pub reason: String,
}

impl AuditEntry {
    /// Creates an entry without a detection.
    pub fn new(iteration: u32, event: AuditEvent, reason: String) -> Self {
        Self { iteration, event, level: None, kind: None, cause: None, reason }
    }
}
