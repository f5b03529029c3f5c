//! What a learning is worth: what came of the loops that had it, and how long nobody needed it.

use serde::{Deserialize, Serialize};

use super::learning::{Kind, Learning, State};
use super::settings::MemorySettings;
use crate::domain::model::ids::Timestamp;
use crate::domain::model::similarity::similarity;

/// Most evidence that is kept; with more of it, old evidence counts less, so that what stopped being true can be found out.
const MAX_EVIDENCE: f64 = 10.0;
/// Share of the way to certainty that a success goes.
const GAIN: f64 = 0.15;
/// Share of the confidence that a failure takes.
const LOSS: f64 = 0.2;
/// Similarity of an approach and what an iteration did, from which on it did that.
const FOLLOWED: f64 = 0.5;
/// Completion that an iteration gains at least where it helped.
pub(super) const MIN_GAIN: f64 = 0.05;
/// What an iteration says about a warning that it heeded. Nobody tries what is warned of, so that only what else was tried
/// can tell a warning that is wrong.
const HEEDED: f64 = 0.25;
const DAY_MS: i64 = 86_400_000;

/// Successes and failures, in loops; parts of one count for iterations.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// What went well.
    pub successes: f64,
    /// What did not.
    pub failures: f64,
}

impl Evidence {
    /// Mean of the Beta posterior over a uniform prior: 0.5 without evidence, 0..1.
    pub fn rate(self) -> f64 {
        (self.successes + 1.0) / (self.successes + self.failures + 2.0)
    }

    /// Both together, within what is kept.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = Self { successes: self.successes + other.successes, failures: self.failures + other.failures };
        let total = sum.successes + sum.failures;
        let scale = if total > MAX_EVIDENCE { MAX_EVIDENCE / total } else { 1.0 };
        Self { successes: sum.successes * scale, failures: sum.failures * scale }
    }

    /// Whether both are numbers of 0 or more.
    pub fn is_sound(self) -> bool {
        [self.successes, self.failures].iter().all(|count| count.is_finite() && *count >= 0.0)
    }
}

/// What came of a loop or an iteration whose prompt carried a learning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credit {
    /// The loop's result was taken: merged, or verified where nothing is merged.
    LoopSucceeded,
    /// The loop came to nothing.
    LoopFailed,
    /// The iteration bore the learning out: what it proposes gained something, what it warns of did not.
    IterationHelped,
    /// The iteration disproved it.
    IterationFailed,
    /// The iteration heeded a warning, did something else, and gained something.
    HeededWell,
    /// The iteration heeded a warning, did something else, and gained nothing: what is warned of may be what works.
    HeededInVain,
}

impl Credit {
    /// Whether it went well, and how much it counts. A loop ends well for many reasons, so what the iterations that
    /// followed a learning came to says as much as the loop's end.
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

/// Gives a learning the outcome of a loop or an iteration whose prompt carried it; archives it where too little is left.
pub fn credit(learning: &mut Learning, outcome: Credit, settings: &MemorySettings, now: Timestamp) {
    let (good, weight) = outcome.weight();
    let before = learning.confidence_at(now, settings);
    learning.confidence = if good { before + GAIN * weight * (1.0 - before) } else { before * (1.0 - LOSS * weight) };
    let (successes, failures) = if good { (weight, 0.0) } else { (0.0, weight) };
    learning.evidence = learning.evidence.plus(Evidence { successes, failures });
    learning.updated_at = now;
    learning.last_used_at = Some(now);
    if learning.confidence < settings.archive_below {
        learning.state = State::Archived;
    }
}

/// What an iteration says about a learning that its prompt carried, by what it did and whether that gained anything.
/// `None` where it says nothing. A warning that was not heeded is right where nothing was gained.
pub fn credit_of_iteration(learning: &Learning, approach: &str, gained: bool) -> Option<Credit> {
    let followed = similarity(learning.content.gist(), approach) >= FOLLOWED;
    match (learning.kind(), followed) {
        (Kind::Strategy, true) => Some(if gained { Credit::IterationHelped } else { Credit::IterationFailed }),
        (Kind::Antipattern, true) => Some(if gained { Credit::IterationFailed } else { Credit::IterationHelped }),
        (Kind::Antipattern, false) => Some(if gained { Credit::HeededWell } else { Credit::HeededInVain }),
        (Kind::Strategy, false) | (Kind::Estimate | Kind::Convention, _) => None,
    }
}

impl Learning {
    /// Confidence at a moment: it halves with each half-life since it was last used or changed.
    pub fn confidence_at(&self, now: Timestamp, settings: &MemorySettings) -> f64 {
        let idle = now.since(self.last_used_at.unwrap_or(self.created_at).max(self.updated_at));
        let halvings = idle / (i64::from(settings.half_life_days.max(1)) * DAY_MS);
        self.confidence * 0.5f64.powi(i32::try_from(halvings).unwrap_or(i32::MAX))
    }

    /// Share of the loops and iterations that went well with it, 0..1.
    pub fn success_rate(&self) -> f64 {
        self.evidence.rate()
    }

    /// Whether a prompt may carry it.
    pub fn is_worth_telling(&self, settings: &MemorySettings, now: Timestamp) -> bool {
        self.state == State::Active
            && self.confidence_at(now, settings) >= settings.min_confidence
            && (self.kind() == Kind::Estimate || self.success_rate() >= settings.min_success_rate)
    }

    /// Whether so little is left of it that it belongs into the archive.
    pub fn is_spent(&self, settings: &MemorySettings, now: Timestamp) -> bool {
        self.state != State::Archived && self.confidence_at(now, settings) < settings.archive_below
    }
}
