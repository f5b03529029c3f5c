//! Confidence of a learning. It depends on the outcomes of the loops whose prompts contained the learning, and decreases
//! without use.

use serde::{Deserialize, Serialize};

use super::learning::{Learning, LearningKind, LearningState};
use super::learning_evidence::LearningEvidence;
use super::settings::MemorySettings;
use crate::domain::model::ids::Timestamp;
use crate::domain::model::similarity::similarity;

/// Share of the distance to 1 that a success adds to the confidence.
const GAIN: f64 = 0.15;
/// Share of the confidence that a failure removes.
const LOSS: f64 = 0.2;
/// Minimum similarity between a learning's approach and an iteration's approach for the iteration to count as following the
/// learning.
const FOLLOWED: f64 = 0.5;
/// Minimum gain of completion for an iteration to count as a success.
pub(super) const MIN_GAIN: f64 = 0.05;
/// Weight of an iteration that followed a warning. Agents rarely try an approach after a warning, so only the alternatives
/// can show that the warning is wrong.
const HEEDED: f64 = 0.25;
const DAY_MS: i64 = 86_400_000;

/// Outcome of a loop or an iteration that is credited to a learning in its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credit {
    /// The loop's pull request was merged or, in repositories without merges, its work was verified.
    LoopSucceeded,
    /// The loop failed.
    LoopFailed,
    /// The iteration confirmed the learning: it followed a strategy and gained completion, or ignored a warning and gained
    /// nothing.
    IterationHelped,
    /// The iteration contradicted the learning.
    IterationFailed,
    /// The iteration followed a warning and gained completion.
    HeededWell,
    /// The iteration followed a warning and gained nothing, so the warning may be wrong.
    HeededInVain,
}

impl Credit {
    /// Returns whether the outcome is a success, and its weight. An iteration that followed or ignored a learning has twice
    /// the weight of a loop's end, because loops succeed for many reasons.
    fn weight(self) -> (bool, f64) {
        match self {
            Self::LoopSucceeded => (true, 0.5),
            Self::LoopFailed => (false, 0.5),
            Self::IterationHelped => (true, 1.0),
            Self::IterationFailed => (false, 1.0),
            Self::HeededWell => (true, HEEDED),
            Self::HeededInVain => (false, HEEDED),
        }
    }
}

/// Updates a learning with the outcome of a loop or an iteration whose prompt contained it. Archives the learning if its
/// confidence becomes too low.
pub fn credit(learning: &mut Learning, outcome: Credit, settings: &MemorySettings, now: Timestamp) {
    let (good, weight) = outcome.weight();
    let before = learning.confidence_at(now, settings);
    learning.confidence = if good { before + GAIN * weight * (1.0 - before) } else { before * (1.0 - LOSS * weight) };
    let (successes, failures) = if good { (weight, 0.0) } else { (0.0, weight) };
    learning.evidence = learning.evidence.plus(LearningEvidence { successes, failures });
    learning.updated_at = now;
    learning.last_used_at = Some(now);
    if learning.confidence < settings.archive_below {
        learning.state = LearningState::Archived;
    }
}

/// Returns an iteration's outcome for a learning in its prompt, given the iteration's approach and whether it gained
/// completion. `None` if there is no conclusion. A warning that was ignored is confirmed if there was no gain.
pub fn credit_of_iteration(learning: &Learning, approach: &str, gained: bool) -> Option<Credit> {
    let followed = similarity(learning.content.gist(), approach) >= FOLLOWED;
    match (learning.kind(), followed) {
        (LearningKind::Strategy, true) => Some(if gained { Credit::IterationHelped } else { Credit::IterationFailed }),
        (LearningKind::Antipattern, true) => {
            Some(if gained { Credit::IterationFailed } else { Credit::IterationHelped })
        }
        (LearningKind::Antipattern, false) => Some(if gained { Credit::HeededWell } else { Credit::HeededInVain }),
        (LearningKind::Strategy, false) | (LearningKind::Estimate | LearningKind::Convention, _) => None,
    }
}

impl Learning {
    /// Returns the confidence at a time. It halves with each half-life since the last use or change of the learning.
    pub fn confidence_at(&self, now: Timestamp, settings: &MemorySettings) -> f64 {
        let idle = now.since(self.last_used_at.unwrap_or(self.created_at).max(self.updated_at));
        let halvings = idle / (i64::from(settings.half_life_days.max(1)) * DAY_MS);
        self.confidence * 0.5f64.powi(i32::try_from(halvings).unwrap_or(i32::MAX))
    }

    /// Returns the success rate of loops and iterations whose prompts contained the learning, 0..1.
    pub fn success_rate(&self) -> f64 {
        self.evidence.rate()
    }

    /// Whether a prompt may contain the learning at `now`.
    pub fn is_worth_telling(&self, settings: &MemorySettings, now: Timestamp) -> bool {
        self.state == LearningState::Active
            && self.confidence_at(now, settings) >= settings.min_confidence
            && (self.kind() == LearningKind::Estimate || self.success_rate() >= settings.min_success_rate)
    }

    /// Whether the confidence is too low for the learning to stay active.
    pub fn is_spent(&self, settings: &MemorySettings, now: Timestamp) -> bool {
        self.state != LearningState::Archived && self.confidence_at(now, settings) < settings.archive_below
    }
}
