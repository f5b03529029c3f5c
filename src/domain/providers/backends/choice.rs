//! A call that needs a backend, and the decision about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::proactive::Threshold;
use super::settings::BackendRole;
use super::state::{CooldownReason, DisabledFor};
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::{Money, Timestamp};

/// A call that needs a backend.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRequest {
    /// Loop that makes the call.
    pub loop_id: String,
    /// Purpose of the call.
    pub role: BackendRole,
    /// Type of task that the call works on.
    pub task_type: TaskType,
    /// Backends that must not be used for the call.
    pub exclude: Vec<String>,
    /// Backends to use only if no other is available.
    pub avoid: Vec<String>,
    /// Likely cost, if known.
    pub likely_cost: Option<Money>,
    /// Backend of the loop's previous call.
    pub previous: Option<String>,
    /// Session of the previous call, if it can be resumed.
    pub session: Option<PreviousSession>,
}

/// Session of an earlier call.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviousSession {
    /// Backend of the session.
    pub backend: String,
    /// Model of the session; `None` for the backend's default.
    pub model: Option<String>,
    /// Used share of the context window, in percent; `None` if unknown.
    pub context_pct: Option<f64>,
}

/// Decision about a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "choice", rename_all = "snake_case")]
pub enum BackendChoice {
    /// Make the call, with this backend.
    Use {
        /// Name of the backend.
        backend: String,
        /// Reason for this backend.
        why: ChoiceReason,
        /// Use of the previous session.
        session: SessionUse,
    },
    /// Wait until `until`, or until an outcome of another call is reported, which may make a backend available
    /// earlier.
    Wait {
        /// Earliest time at which a backend may be available.
        until: Timestamp,
        /// Obstacle of each backend.
        reasons: Vec<Blocked>,
    },
    /// Waiting does not help: a person has to act, or the call has to change.
    Never {
        /// Obstacle of each backend; empty if none is configured for the role.
        reasons: Vec<Blocked>,
    },
}

/// Reason for the choice of a backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChoiceReason {
    /// It is the first one in the order.
    InOrder,
    /// It is its turn (`round_robin`).
    Turn,
    /// It is its time slice (`time_sliced`).
    Slice,
    /// Most expected progress per cost.
    Adaptive,
    /// Trial after a cooldown.
    Trial,
    /// Replacement of the preferred backend, which cannot be used now.
    InsteadOf(String),
}

/// Use of the session of the previous call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionUse {
    /// Resume the session, if the model is the same too.
    Resume,
    /// Begin a new session.
    Fresh,
}

/// Backend that cannot be used now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// Name of the backend.
    pub backend: String,
    /// Reason.
    pub by: BlockedBy,
    /// Time at which the obstacle ends; `None` if waiting does not help.
    pub until: Option<Timestamp>,
}

/// Reason why a backend cannot be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedBy {
    /// Cooldown, with its reason.
    Parked(CooldownReason, String),
    /// Disabled until a person acts or the configuration changes, with the reason.
    Disabled(DisabledFor, String),
    /// `enabled: false` in the configuration.
    NotEnabled,
    /// The caller excluded it.
    Excluded,
    /// The call would exceed a configured threshold.
    Threshold(Threshold),
    /// The backend is on probation after a cooldown, and other calls are trying it.
    OnTrial,
}

impl fmt::Display for BlockedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parked(kind, words) if words.is_empty() => write!(f, "{kind}"),
            Self::Parked(kind, words) => write!(f, "{kind} ({words})"),
            Self::Disabled(kind, words) if words.is_empty() => write!(f, "{kind}"),
            Self::Disabled(kind, words) => write!(f, "{kind} ({words})"),
            Self::NotEnabled => f.write_str("`enabled` is false in the configuration"),
            Self::Excluded => f.write_str("not allowed in this loop"),
            Self::Threshold(threshold) => write!(f, "`{threshold}` would be exceeded"),
            Self::OnTrial => f.write_str("is being tried after a cool-down"),
        }
    }
}
