//! Call that needs a backend, and the decision about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::proactive::Threshold;
use super::settings::BackendRole;
use super::state::{CooldownReason, DisabledFor};
use crate::domain::model::ids::{Money, Timestamp};

/// Call that needs a backend.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRequest {
    /// Loop that makes the call.
    pub loop_id: String,
    /// Purpose of the call.
    pub role: BackendRole,
    /// Backends that must not be used for the call.
    pub exclude: Vec<String>,
    /// Backends to use only if no other is available.
    pub avoid: Vec<String>,
    /// Likely cost; `None` if unknown.
    pub likely_cost: Option<Money>,
    /// Backend of the loop's previous call; `None` for the first call.
    pub previous: Option<String>,
    /// Session of the previous call; `None` if it cannot be resumed.
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

/// Decision which backend a call uses, or how long it waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "choice", rename_all = "snake_case")]
pub enum BackendChoice {
    /// The call uses this backend.
    Use {
        /// Name of the backend.
        backend: String,
        /// Use of the previous session.
        session: SessionUse,
    },
    /// The call waits until `until`. It is decided again earlier if another call reports an outcome, because that may make a
    /// backend available.
    Wait {
        /// Earliest time at which a backend may be available.
        until: Timestamp,
        /// Reason why each backend is unavailable now.
        reasons: Vec<Blocked>,
    },
    /// The call cannot be made by waiting: a person has to act, or the call has to change.
    Never {
        /// Reason why each backend is unavailable; empty if no backend has the role.
        reasons: Vec<Blocked>,
    },
}

/// Use of the previous call's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionUse {
    /// Resume the session, provided that the model is the same too.
    Resume,
    /// Start a new session.
    Fresh,
}

/// Backend that is unavailable now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// Name of the backend.
    pub backend: String,
    /// Reason why it is unavailable.
    pub by: BlockedBy,
    /// Time at which the obstacle ends; `None` if waiting does not help.
    pub until: Option<Timestamp>,
}

/// Reason why a backend is unavailable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedBy {
    /// The backend is in a cooldown; with kind and text of the reason.
    Parked(CooldownReason, String),
    /// The backend is disabled until a person acts or the configuration changes; with kind and text of the reason.
    Disabled(DisabledFor, String),
    /// The configuration has `enabled: false`.
    NotEnabled,
    /// The caller excluded the backend from the call.
    Excluded,
    /// The call would exceed a configured threshold.
    Threshold(Threshold),
    /// The backend is on probation after a cooldown, and enough calls are trying it.
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
