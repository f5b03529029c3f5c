//! Observations of backends and their consequences, as values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::settings::BackendRole;
use super::state::{Backends, CooldownReason, DisabledFor};
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::limit::Limit;

/// A call of a backend.
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
    /// Requested model, if any.
    pub model: Option<String>,
    /// Type of task that the call works on.
    pub task_type: TaskType,
    /// Whether the call resumes an earlier session.
    pub resumed: bool,
    /// Backend of the loop's previous call.
    pub previous: Option<String>,
}

/// Observation of a backend. Seeds are used for jitter and should differ between calls.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendObservation {
    /// A call starts; reported in the transaction of the choice.
    CallStarted { call: BackendCall, likely_cost: Option<Money> },
    /// The model began to answer, which shows that the provider accepts calls. Without this observation, a backend
    /// on probation gets one call a minute until the first one succeeds.
    CallAnswered { call: BackendCall },
    /// A call succeeded. `cost` is `None` if unknown; `progress` is the gained completion, 0..1, if already known
    /// (otherwise [`BackendObservation::Judged`] follows).
    CallSucceeded { call: BackendCall, tokens: u64, cost: Option<Money>, progress: Option<f64> },
    /// A call failed for another reason than a limit.
    CallFailed { call: BackendCall, cost: Option<Money>, error: String, seed: u64 },
    /// A call met a limit, as the service saw itself.
    CallLimited { call: BackendCall, cost: Option<Money>, limit: Limit, seed: u64 },
    /// A run reported that its call met a limit. Nobody else saw it.
    LimitClaimed { call: BackendCall, cost: Option<Money>, limit: Limit, seed: u64 },
    /// The service ended a call, or the call's process died with the service; this says nothing about the backend.
    /// A call without events is abandoned after 12 hours.
    CallAbandoned { call: BackendCall, cost: Option<Money> },
    /// Result of a successful call: the gained completion, 0..1 (negative counts as 0), and its cost again.
    Judged { backend: String, task_type: TaskType, progress: f64, cost: Option<Money> },
    /// A person enabled the backend.
    Enabled { backend: String },
    /// A person disabled the backend.
    Disabled { backend: String, reason: String },
    /// The configuration was read: a text per backend that changes with its settings, program or key.
    Configured { fingerprints: BTreeMap<String, String> },
    /// Time passed.
    Elapsed,
}

/// Change that is reported to people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum BackendChange {
    /// The backend cools down until `until`; also reported if the end of a cooldown changes.
    Parked { backend: String, kind: CooldownReason, until: Timestamp, reason: String },
    /// A run reported a refusal, which keeps the backend from its loop until `until`, or until a person acts.
    Claimed { backend: String, loop_id: String, until: Option<Timestamp>, reason: String },
    /// The cooldown is over; `probation` states whether one call has to try the backend first.
    Reactivated { backend: String, probation: bool },
    /// The backend answered after a cooldown and is used by all loops again.
    Proven { backend: String },
    /// The backend is disabled until a person acts or the configuration changes.
    Disabled { backend: String, kind: DisabledFor, reason: String },
    /// A person or the configuration enabled the backend.
    Enabled { backend: String },
    /// A loop changed its backend.
    Rotated { key: String, from: String, to: String },
}

/// Advice to the caller where waiting does not help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "advice", rename_all = "snake_case")]
pub enum CallAdvice {
    /// The session is too long: repeat the call in a new session.
    FreshSession,
    /// Even the prompt of a new session is too long: shorten the prompt, or exclude this backend. The same call
    /// would fail again.
    ShorterPrompt { backend: String },
    /// The backend does not have this model: request another one, or exclude the backend.
    OtherModel { backend: String, model: Option<String> },
}

/// State after an observation, with the changes to report.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendTransition {
    /// State after the observation.
    pub state: Backends,
    /// Changes, in order.
    pub changes: Vec<BackendChange>,
    /// Advice about this call.
    pub advice: Option<CallAdvice>,
}
