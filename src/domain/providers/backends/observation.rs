//! Observations of backends and their consequences, as values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::settings::BackendRole;
use super::state::{Backends, DisabledFor, ParkedFor};
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::limit::Limit;

/// A call of a backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendCall {
    /// The caller's name for it, unique among the calls under way: a loop's id, with a purpose where it makes several.
    pub key: String,
    /// Purpose of the call.
    pub role: BackendRole,
    /// Name of the backend.
    pub backend: String,
    /// Requested model, if any.
    pub model: Option<String>,
    /// The sort of task that it works on.
    pub task_type: TaskType,
    /// Whether it goes on with an earlier session.
    pub resumed: bool,
    /// The backend of the same loop's call before.
    pub previous: Option<String>,
}

/// Something that was seen. Seeds are for jitter; any number that differs from call to call will do.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendObservation {
    /// A call begins; in the same transaction as the choice.
    CallStarted { call: BackendCall, likely_cost: Option<Money> },
    /// The model's first words came: the provider serves us, whatever becomes of the call. Without it, a backend that came
    /// back gets one call a minute until the first one ended well.
    CallAnswered { call: BackendCall },
    /// A call reached its end. `cost` is `None` where nobody knows it; `progress` is the completion gained, 0..1, where that
    /// is known already (else [`BackendObservation::Judged`] follows).
    CallSucceeded { call: BackendCall, tokens: u64, cost: Option<Money>, progress: Option<f64> },
    /// A call failed, and not for a limit.
    CallFailed { call: BackendCall, cost: Option<Money>, error: String, seed: u64 },
    /// A call met a limit.
    CallLimited { call: BackendCall, cost: Option<Money>, limit: Limit, seed: u64 },
    /// A call was ended by us, or its process died with the service; says nothing about the backend. A call of which nothing
    /// is heard frees its place after 12 hours.
    CallAbandoned { call: BackendCall, cost: Option<Money> },
    /// Result of a successful call: the gained completion, 0..1 (negative counts as 0), and its cost again.
    Judged { backend: String, task_type: TaskType, progress: f64, cost: Option<Money> },
    /// A person wants it used again, now.
    Enabled { backend: String },
    /// A person wants it left alone.
    Disabled { backend: String, reason: String },
    /// The configuration was read, at the start or again: for each backend a text that changes when its settings, its
    /// program or its key do.
    Configured { fingerprints: BTreeMap<String, String> },
    /// Time passed.
    Elapsed,
}

/// A change that people want to know of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum BackendChange {
    /// It is left alone until then; also where a park got another end.
    Parked { backend: String, kind: ParkedFor, until: Timestamp, reason: String },
    /// Its park is over; `probation` says whether one call has to try it first.
    Reactivated { backend: String, probation: bool },
    /// It answered well after a park; all use it again.
    Proven { backend: String },
    /// It waits for a person or another configuration.
    Disabled { backend: String, kind: DisabledFor, reason: String },
    /// A person or the configuration brought it back.
    Enabled { backend: String },
    /// A loop went from one backend to another.
    Rotated { key: String, from: String, to: String },
}

/// Advice to the caller where waiting does not help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "advice", rename_all = "snake_case")]
pub enum CallAdvice {
    /// The session is too long: call again, without it.
    FreshSession,
    /// Even a fresh prompt is too long for it: shorten the prompt, or exclude this backend for it. The same call again
    /// would fail the same way.
    ShorterPrompt { backend: String },
    /// It does not have this model: ask for another one, or exclude this backend.
    OtherModel { backend: String, model: Option<String> },
}

/// The state after an observation, and what to tell.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendTransition {
    /// State after the observation.
    pub state: Backends,
    /// Changes, in order.
    pub changes: Vec<BackendChange>,
    /// Advice about this call.
    pub advice: Option<CallAdvice>,
}
