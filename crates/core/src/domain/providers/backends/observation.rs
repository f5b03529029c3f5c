//! Observations of backends, and the changes that follow from them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::settings::BackendRole;
use super::state::{Backends, CooldownReason, DisabledFor};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::limit::Limit;

/// Call to a backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendCall {
    /// Key of the call, unique among those in flight: the loop's id, with a purpose if the loop makes several
    /// calls.
    pub key: String,
    /// Loop that makes the call; empty in records of earlier versions.
    #[serde(default)]
    pub loop_id: String,
    /// Purpose of the call.
    pub role: BackendRole,
    /// Name of the backend.
    pub backend: String,
    /// Requested model; `None` for the backend's default.
    pub model: Option<String>,
    /// Whether the call resumes an earlier session.
    pub resumed: bool,
    /// Backend of the loop's previous call.
    pub previous: Option<String>,
}

/// Observation of a backend. Seeds are used for jitter, and should differ between calls.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendObservation {
    /// A call starts. Reported in the same transaction as the choice of the backend.
    CallStarted { call: BackendCall, likely_cost: Option<Money> },
    /// The model started to answer, which shows that the provider accepts calls. If this is never reported, a backend on probation
    /// gets one call per minute until one succeeds.
    CallAnswered { call: BackendCall },
    /// A call succeeded. `cost` is `None` if unknown.
    CallSucceeded { call: BackendCall, tokens: u64, cost: Option<Money> },
    /// A call failed for a reason other than a limit.
    CallFailed { call: BackendCall, cost: Option<Money>, error: String, seed: u64 },
    /// A call met a limit, which the service observed itself.
    CallLimited { call: BackendCall, cost: Option<Money>, limit: Limit, seed: u64 },
    /// A run reported that its call met a limit, which the service did not observe.
    LimitClaimed { call: BackendCall, cost: Option<Money>, limit: Limit, seed: u64 },
    /// The service ended the call, or the process of the call died with the service. This is not evidence about the backend. A
    /// call without events for 12 hours also counts as abandoned.
    CallAbandoned { call: BackendCall, cost: Option<Money> },
    /// A person enabled the backend.
    Enabled { backend: String },
    /// A person disabled the backend.
    Disabled { backend: String, reason: String },
    /// The configuration was read. Each fingerprint is a text that changes with the settings, the program or the key of the
    /// backend.
    Configured { fingerprints: BTreeMap<String, String> },
    /// Time passed without another event.
    Elapsed,
}

/// Change of a backend that is reported to people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum BackendChange {
    /// The backend is in a cooldown until `until`. Also reported if the end of a cooldown changes.
    Parked { backend: String, kind: CooldownReason, until: Timestamp, reason: String },
    /// A run reported a refusal. It blocks the backend for the run's loop until `until`, or, with `None`, until a person acts.
    Claimed { backend: String, loop_id: String, until: Option<Timestamp>, reason: String },
    /// The cooldown is over. `probation` is true if one call has to test the backend before others use it.
    Reactivated { backend: String, probation: bool },
    /// The backend answered calls after its cooldown; all loops use it again.
    Proven { backend: String },
    /// The backend is disabled until a person acts or the configuration changes.
    Disabled { backend: String, kind: DisabledFor, reason: String },
    /// A person or the configuration enabled the backend.
    Enabled { backend: String },
    /// A loop changed its backend.
    Rotated { key: String, from: String, to: String },
}

/// Advice to the caller of a failed call for which waiting does not help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "advice", rename_all = "snake_case")]
pub enum CallAdvice {
    /// The session is too long: repeat the call in a new session.
    FreshSession,
    /// Even the prompt of a new session is too long: shorten the prompt, or exclude this backend. The same call
    /// would fail again.
    ShorterPrompt { backend: String },
    /// The backend does not have this model: request another model, or exclude the backend.
    OtherModel { backend: String, model: Option<String> },
    /// The backend declined this call, and would decline it again: exclude the backend. It stays available for other calls.
    OtherBackend { backend: String },
}

/// Result of an observation.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendTransition {
    /// State after the observation.
    pub state: Backends,
    /// Changes, in order.
    pub changes: Vec<BackendChange>,
    /// Advice about the observed call; `None` if waiting is enough.
    pub advice: Option<CallAdvice>,
}
