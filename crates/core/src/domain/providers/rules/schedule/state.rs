//! State of a schedule between two evaluations.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::RuleFacts;
use crate::domain::model::ids::Timestamp;

/// Maximum amount by which the clock may be set back, in milliseconds. After a larger change the state is discarded, because its
/// times are wrong.
const CLOCK_SLACK_MS: i64 = 24 * 3_600_000;

/// Maximum length of a stored error, in characters.
const ERROR_MAX: usize = 200;

/// State of a schedule at its last evaluation. The default is the state before the first evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduleState {
    /// Time of the last evaluation.
    looked_at: Option<Timestamp>,
    /// Last iteration that had ended by then.
    iteration: Option<u32>,
    /// Error of that iteration, or of a run that was refused after it; shortened.
    error: Option<String>,
    /// Keys of the conditions that were true.
    held: BTreeSet<String>,
    /// Time of the loop's timer for the next cron pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<Timestamp>,
}

/// Changes since the last evaluation.
#[derive(Debug)]
pub(super) struct ElapsedSinceLook {
    /// Time of the last evaluation. Cron patterns must match a later time to fire.
    pub(super) moment: Timestamp,
    /// Current time.
    pub(super) now: Timestamp,
    /// Last iteration that had ended at the last evaluation.
    pub(super) iteration: u32,
    /// Whether the last error differs from the error at the last evaluation.
    pub(super) new_error: bool,
}

impl ScheduleState {
    /// Creates the state for a new loop, in which cron patterns match only times after `at`.
    pub fn begun(at: Timestamp) -> Self {
        Self { looked_at: Some(at), iteration: Some(0), ..Self::default() }
    }

    /// Returns the changes since the last evaluation, and makes this evaluation the last one.
    pub(super) fn advance(&mut self, facts: &RuleFacts, now: Timestamp) -> ElapsedSinceLook {
        let moment = self.advance_time(now);
        // A loop that was not looked at before, or started anew, comes from the iteration before this one.
        let last = self.iteration.filter(|last| *last <= facts.iteration);
        let iteration = last.unwrap_or(facts.iteration.saturating_sub(1));
        let another = self.iteration != Some(facts.iteration);
        let new_error = self.meets(facts.error_text().as_deref()) || (another && self.error.is_some());
        self.iteration = Some(facts.iteration);
        ElapsedSinceLook { moment, now, iteration, new_error }
    }

    /// Returns the time of the last evaluation, and makes `now` the last one.
    pub(super) fn advance_time(&mut self, now: Timestamp) -> Timestamp {
        let moment = self.moment(now);
        self.looked_at = Some(moment.max(now));
        moment
    }

    /// Returns the time of the last evaluation; `now` if the clock was set back by more than a day since.
    pub(super) fn moment(&self, now: Timestamp) -> Timestamp {
        self.looked_at.filter(|at| at.0 <= now.0.saturating_add(CLOCK_SLACK_MS)).unwrap_or(now)
    }

    /// Records the time of the loop's timer; returns whether it differs from the recorded one.
    pub fn set_timer(&mut self, at: Option<Timestamp>) -> bool {
        std::mem::replace(&mut self.timer, at) != at
    }

    /// Whether there is an error that differs from the stored one. A different error is stored.
    pub(super) fn meets(&mut self, error: Option<&str>) -> bool {
        let error = error.map(|error| error.chars().take(ERROR_MAX).collect::<String>());
        let before = std::mem::replace(&mut self.error, error);
        self.error.is_some() && self.error != before
    }

    /// Whether a condition was true at the last evaluation.
    pub(super) fn holds(&self, key: &str) -> bool {
        self.held.contains(key)
    }

    /// Stores the keys of the conditions that are true now.
    pub(super) fn remember(&mut self, held: Vec<String>) {
        self.held = held.into_iter().collect();
    }
}
