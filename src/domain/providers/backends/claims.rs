//! Refusals that only a run reported, for example a command with a login of its own. They keep the backend from the loop of the
//! run alone, because a run can be made to say anything; another loop's report of the same confirms them for all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::reasons::{CooldownReason, DisabledFor};
use crate::domain::model::ids::Timestamp;

/// Maximum number of loops whose reports are kept per backend.
const MAX_LOOPS: usize = 200;
/// Maximum number of missing models kept per loop.
const MAX_MODELS: usize = 8;
/// Time after the end of a cooldown during which the next one is longer, in milliseconds.
const FLAPPING_MS: i64 = 2 * 3_600_000;

/// State of a backend for the loop that reported a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", content = "kind", rename_all = "snake_case")]
pub enum ClaimedState {
    /// A cooldown.
    Parked(CooldownReason),
    /// Disabled until a person acts.
    Disabled(DisabledFor),
}

impl ClaimedState {
    /// Whether one of the two confirms the other.
    fn confirms(self, other: Self) -> bool {
        matches!((self, other), (Self::Parked(_), Self::Parked(_)) | (Self::Disabled(_), Self::Disabled(_)))
    }
}

/// Report of a loop's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusalClaim {
    /// Time of the report.
    pub since: Timestamp,
    /// End; `None` until a person acts.
    pub until: Option<Timestamp>,
    /// Kind.
    pub state: ClaimedState,
    /// Number of reports before it without a success between them.
    #[serde(default)]
    pub step: u32,
    /// Text of the reason, at most 300 characters.
    #[serde(default)]
    pub reason: String,
}

impl RefusalClaim {
    /// Whether the report keeps the backend from its loop.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

/// Reports about one backend, by loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Claims {
    /// Refusals.
    pub refusals: BTreeMap<String, RefusalClaim>,
    /// Models reported as missing, with the time of the report.
    pub missing_models: BTreeMap<String, BTreeMap<String, Timestamp>>,
}

impl Claims {
    /// Returns the report that keeps the backend from a loop.
    pub fn of(&self, loop_id: &str, now: Timestamp) -> Option<&RefusalClaim> {
        self.refusals.get(loop_id).filter(|claim| claim.holds(now))
    }

    /// Returns another loop's report that confirms one of this kind.
    pub(super) fn confirmed(&self, loop_id: &str, state: ClaimedState, now: Timestamp) -> Option<&RefusalClaim> {
        let others = self.refusals.iter().filter(|(other, _)| other.as_str() != loop_id).map(|(_, claim)| claim);
        others.filter(|claim| claim.holds(now) && claim.state.confirms(state)).max_by_key(|claim| claim.since)
    }

    /// Returns the number of the loop's reports without a success between them.
    pub(super) fn step(&self, loop_id: &str) -> u32 {
        self.refusals.get(loop_id).map_or(0, |claim| claim.step.saturating_add(1))
    }

    /// Adds a report; the oldest one of another loop gives way.
    pub(super) fn add(&mut self, loop_id: &str, claim: RefusalClaim) {
        if self.refusals.len() >= MAX_LOOPS && !self.refusals.contains_key(loop_id) {
            let oldest = self.refusals.iter().min_by_key(|(_, claim)| claim.since).map(|(other, _)| other.clone());
            oldest.map(|other| self.refusals.remove(&other));
        }
        self.refusals.insert(loop_id.to_owned(), claim);
    }

    /// Adds a model that a loop's run reported as missing.
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

    /// Removes the reports of a loop whose run the backend served.
    pub(super) fn served(&mut self, loop_id: &str) {
        self.refusals.remove(loop_id);
    }

    /// Removes reports that ended long ago, and moves those from the future to now.
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
