//! Claims: refusals that only a run reported, for example a command with its own login. A run can be made to report anything. A
//! claim therefore blocks the backend only for the loop of the run. The same claim of another loop blocks it for all, but for at
//! most [`LONGEST_FOR_ALL_MS`]: then one call of another loop tests the backend.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::reasons::{CooldownReason, DisabledFor};
use crate::domain::model::ids::Timestamp;

/// Maximum time for which claims block a backend for all loops, in milliseconds. Only a refusal that the service observes lasts
/// longer.
pub(super) const LONGEST_FOR_ALL_MS: i64 = 3_600_000;
/// Maximum number of loops whose claims are stored per backend.
const MAX_LOOPS: usize = 200;
/// Maximum number of missing models stored per loop.
const MAX_MODELS: usize = 8;
/// Time after the end of a claim during which a new claim waits longer, in milliseconds.
const FLAPPING_MS: i64 = 2 * 3_600_000;

/// State that a refusal puts a backend into, for one loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", content = "kind", rename_all = "snake_case")]
pub enum ClaimedState {
    /// Cooldown, after which the backend is used again.
    Parked(CooldownReason),
    /// Disabled until a person acts.
    Disabled(DisabledFor),
}

impl ClaimedState {
    /// Whether one claim confirms another one.
    fn confirms(self, other: Self) -> bool {
        matches!((self, other), (Self::Parked(_), Self::Parked(_)) | (Self::Disabled(_), Self::Disabled(_)))
    }
}

/// Refusal that a loop's run reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusalClaim {
    /// Time of the report.
    pub since: Timestamp,
    /// End of the block; `None` until a person acts.
    pub until: Option<Timestamp>,
    /// State of the backend for the loop.
    pub state: ClaimedState,
    /// Number of earlier claims since the loop's last successful call.
    #[serde(default)]
    pub step: u32,
    /// Text of the reason, at most 300 characters.
    #[serde(default)]
    pub reason: String,
}

impl RefusalClaim {
    /// Returns kind and text of the reason.
    pub fn words(&self) -> String {
        let kind: &dyn std::fmt::Display = match &self.state {
            ClaimedState::Parked(kind) => kind,
            ClaimedState::Disabled(kind) => kind,
        };
        if self.reason.is_empty() { kind.to_string() } else { format!("{kind}: {}", self.reason) }
    }

    /// Whether the claim still blocks the backend for its loop.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

/// Claims about one backend, by loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Claims {
    /// Refusals, by loop.
    pub refusals: BTreeMap<String, RefusalClaim>,
    /// Models that runs reported as missing, by loop and model, with the time of the report.
    pub missing_models: BTreeMap<String, BTreeMap<String, Timestamp>>,
}

impl Claims {
    /// Returns the claim that blocks the backend for a loop; `None` if there is none.
    pub fn of(&self, loop_id: &str, now: Timestamp) -> Option<&RefusalClaim> {
        self.refusals.get(loop_id).filter(|claim| claim.holds(now))
    }

    /// Returns a claim of another loop that confirms a claim with this state; `None` if there is none.
    pub(super) fn confirmed(&self, loop_id: &str, state: ClaimedState, now: Timestamp) -> Option<&RefusalClaim> {
        let others = self.refusals.iter().filter(|(other, _)| other.as_str() != loop_id).map(|(_, claim)| claim);
        others.filter(|claim| claim.holds(now) && claim.state.confirms(state)).max_by_key(|claim| claim.since)
    }

    /// Returns the number of the loop's claims since its last successful call.
    pub(super) fn step(&self, loop_id: &str) -> u32 {
        self.refusals.get(loop_id).map_or(0, |claim| claim.step.saturating_add(1))
    }

    /// Adds a claim. If there are too many, removes the oldest one of another loop.
    pub(super) fn add(&mut self, loop_id: &str, claim: RefusalClaim) {
        if self.refusals.len() >= MAX_LOOPS && !self.refusals.contains_key(loop_id) {
            let oldest = self.refusals.iter().min_by_key(|(_, claim)| claim.since).map(|(other, _)| other.clone());
            oldest.map(|other| self.refusals.remove(&other));
        }
        self.refusals.insert(loop_id.to_owned(), claim);
    }

    /// Adds a model that a run of the loop reported as missing.
    pub(super) fn add_missing(&mut self, loop_id: &str, model: String, now: Timestamp) {
        if self.missing_models.len() >= MAX_LOOPS && !self.missing_models.contains_key(loop_id) {
            self.missing_models.pop_first();
        }
        let models = self.missing_models.entry(loop_id.to_owned()).or_default();
        if models.len() >= MAX_MODELS {
            models.pop_first();
        }
        models.insert(model, now);
    }

    /// Removes the claims of a loop after a successful call of the backend.
    pub(super) fn served(&mut self, loop_id: &str) {
        self.refusals.remove(loop_id);
    }

    /// Removes claims that ended long ago, and clamps future timestamps to now.
    pub(super) fn elapse(&mut self, now: Timestamp) {
        for claim in self.refusals.values_mut() {
            if claim.since > now {
                claim.until = claim.until.map(|until| now.plus_ms(until.since(claim.since).max(0)));
                claim.since = now;
            }
        }
        self.refusals.retain(|_, claim| claim.until.is_none_or(|until| now.since(until) < FLAPPING_MS));
    }
}
