//! Stored state of each backend.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::claims::Claims;
use super::ledger::UsageLedger;
pub use super::reasons::{CooldownReason, DisabledFor};
use super::settings::BackendRole;
use crate::domain::model::ids::{Money, Timestamp};

/// Maximum number of errors stored per backend.
pub(super) const MAX_ERRORS: usize = 10;
/// Maximum number of cooldowns stored per backend.
pub(super) const MAX_COOLDOWNS: usize = 10;
/// Maximum number of missing models stored per backend.
pub(super) const MAX_MISSING: usize = 16;
/// Time during which a missing model is not requested again, in milliseconds.
const MISSING_MS: i64 = 24 * 3_600_000;

/// State of all backends. A part that is missing in the stored state is read as the state of a new backend.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Backends {
    /// State by name of the backend. A backend without an entry is active.
    pub backends: BTreeMap<String, BackendState>,
    /// State of the rotation.
    pub rotation: RotationState,
}

/// State of the rotation: the last backend used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RotationState {
    /// Last backend called, by role.
    pub last: BTreeMap<BackendRole, String>,
}

/// State of one backend.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendState {
    /// Status, which decides whether the backend may be called.
    pub status: BackendStatus,
    /// Number of consecutive errors, counting only calls that started since the backend became active.
    pub consecutive_errors: u32,
    /// Number of consecutive cooldowns without a successful call. It is the exponent of the next wait whose length is unknown.
    pub backoff_step: u32,
    /// Times of the last cooldowns that were caused by a limit or by errors.
    pub parks: Vec<Timestamp>,
    /// Calls in flight, by their keys.
    pub in_flight: BTreeMap<String, InFlight>,
    /// Calls and cost of the last day.
    pub ledger: UsageLedger,
    /// Last error since the last successful call; `None` if there was none.
    pub last_error: Option<LastError>,
    /// Last errors and limits, oldest first, at most `MAX_ERRORS`.
    pub recent_errors: Vec<LastError>,
    /// Models reported as missing, with the time of the report.
    pub missing_models: BTreeMap<String, Timestamp>,
    /// Refusals that only runs reported.
    pub claims: Claims,
    /// Loops whose calls caused the consecutive errors.
    pub error_loops: BTreeSet<String>,
    /// Fingerprint of the backend's configuration when it was last read.
    pub fingerprint: Option<String>,
    /// Total number of calls that succeeded.
    pub succeeded: u64,
    /// Total number of calls that failed or met a limit.
    pub failed: u64,
    /// Total number of tokens.
    pub tokens: u64,
    /// Total known cost.
    pub cost: Money,
}

/// Status of a backend, which decides whether it may be called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum BackendStatus {
    /// The backend may be called.
    Active {
        /// Start of the status; `None` if the backend was always active.
        #[serde(default)]
        since: Option<Timestamp>,
        /// Probation after a cooldown; `None` if the backend is not on probation.
        #[serde(default)]
        probation: Option<Probation>,
    },
    /// The backend may not be called until its cooldown ends.
    Parked(Cooldown),
    /// The backend is disabled until a person acts or its configuration changes.
    Disabled {
        /// Start of the status.
        since: Timestamp,
        /// Reason of the deactivation.
        kind: DisabledFor,
        /// Text of the reason, at most 300 characters.
        #[serde(default)]
        reason: String,
    },
}

impl BackendStatus {
    /// Names of all statuses.
    pub const WORDS: [&'static str; 3] = ["active", "parked", "disabled"];

    /// Returns the name of the status at `now`. A cooldown that is over counts as ended even if no observation has ended it yet.
    pub fn word(&self, now: Timestamp) -> &'static str {
        match self {
            Self::Parked(park) if park.until > now => "parked",
            Self::Active { .. } | Self::Parked(_) => "active",
            Self::Disabled { .. } => "disabled",
        }
    }
}

impl Default for BackendStatus {
    fn default() -> Self {
        Self::Active { since: None, probation: None }
    }
}

/// Probation after a cooldown. At first only one call may use the backend; later, as many calls may be unanswered as were
/// answered. This keeps all loops from calling a recovering provider at once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Probation {
    /// Number of answered calls since the cooldown.
    pub answered: u32,
}

/// Cooldown of a backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cooldown {
    /// Start of the cool-down.
    pub since: Timestamp,
    /// End of the cool-down.
    pub until: Timestamp,
    /// Reason of the cool-down.
    pub kind: CooldownReason,
    /// Whether the provider reported the end. If false, the end is an estimate.
    #[serde(default)]
    pub known: bool,
    /// Text of the reason, at most 300 characters.
    #[serde(default)]
    pub reason: String,
}

impl Cooldown {
    /// Returns the end as seen at `now`, at most `longest_ms` after `now`. If the clock was set back to a time before the start,
    /// the cooldown does not last longer than originally planned.
    pub fn ends(&self, longest_ms: i64, now: Timestamp) -> Timestamp {
        let length = self.until.since(self.since).min(longest_ms);
        self.since.min(now).plus_ms(length)
    }
}

/// Call in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// Start of the call.
    pub since: Timestamp,
    /// Likely cost.
    #[serde(default)]
    pub likely_cost: Money,
    /// Whether the model has started to answer.
    #[serde(default)]
    pub answered: bool,
}

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastError {
    /// Time of the error.
    pub at: Timestamp,
    /// Text of the error, at most 300 characters.
    pub text: String,
}

impl BackendState {
    /// Whether the status is active, regardless of thresholds.
    pub fn is_active(&self) -> bool {
        matches!(self.status, BackendStatus::Active { .. })
    }

    /// Whether the backend reported within the last day that it does not have this model.
    pub fn lacks_model(&self, model: &str, now: Timestamp) -> bool {
        self.missing_models.get(model).is_some_and(|seen| now.since(*seen) < MISSING_MS)
    }

    /// Whether the backend, or a run of this loop, reported within the last day that it does not have this model.
    pub fn lacks_model_for(&self, loop_id: &str, model: &str, now: Timestamp) -> bool {
        let claimed = self.claims.missing_models.get(loop_id).and_then(|models| models.get(model));
        self.lacks_model(model, now) || claimed.is_some_and(|seen| now.since(*seen) < MISSING_MS)
    }

    /// Resets the count of consecutive errors.
    pub(super) fn clear_errors(&mut self) {
        self.consecutive_errors = 0;
        self.error_loops.clear();
    }

    /// Returns the total likely cost of the calls in flight.
    pub fn reserved(&self) -> Money {
        self.in_flight.values().fold(Money(0), |sum, call| sum.plus(call.likely_cost.max(Money(0))))
    }

    pub(super) fn note_error(&mut self, text: &str, now: Timestamp) {
        let error = LastError { at: now, text: super::shortened(text) };
        self.recent_errors.push(error.clone());
        let excess = self.recent_errors.len().saturating_sub(MAX_ERRORS);
        self.recent_errors.drain(..excess);
        self.last_error = Some(error);
        self.failed = self.failed.saturating_add(1);
    }

    pub(super) fn note_park(&mut self, now: Timestamp) {
        self.parks.push(now);
        let excess = self.parks.len().saturating_sub(MAX_COOLDOWNS);
        self.parks.drain(..excess);
    }
}
