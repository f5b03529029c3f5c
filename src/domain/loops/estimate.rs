//! Iterations, time and money that a task of its type usually takes.

use serde::{Deserialize, Serialize};

use crate::domain::model::dispersion::Dispersion;

/// Weight of the limit, in loops: as long as fewer loops are known, the limit dominates the estimate.
const PRIOR_SAMPLES: f64 = 5.0;
/// Standard deviations between the mean and the usual maximum.
const SPREAD: f64 = 2.0;

/// What loops of a type took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean of their iterations.
    pub mean: f64,
    /// Standard deviation of their iterations, from 0.
    pub deviation: f64,
    /// How many loops.
    pub samples: u32,
    /// Minutes that hardly any of them took more of; 0 where that is not known.
    #[serde(default)]
    pub minutes: f64,
    /// US dollars that hardly any of them cost more of; 0 where that is not known.
    #[serde(default)]
    pub dollars: f64,
}

impl Estimate {
    /// Estimate from the dispersion of what finished loops took.
    pub fn of(iterations: Dispersion, minutes: Dispersion, dollars: Dispersion) -> Self {
        let most = |spread: Dispersion| spread.mean + SPREAD * spread.deviation();
        Self {
            mean: iterations.mean,
            deviation: iterations.deviation(),
            samples: u32::try_from(iterations.samples).unwrap_or(u32::MAX),
            minutes: most(minutes),
            dollars: most(dollars),
        }
    }

    /// Iterations that such a task usually takes at most, where it may take `limit`.
    pub fn usual_runs(&self, limit: f64) -> f64 {
        self.usual_use(limit, self.mean + SPREAD * self.deviation)
    }

    /// Minutes that such a task usually takes at most, where it may take `limit`.
    pub fn usual_minutes(&self, limit: f64) -> f64 {
        self.usual_use(limit, self.minutes)
    }

    /// US dollars that such a task usually costs at most, where it may cost `limit`.
    pub fn usual_dollars(&self, limit: f64) -> f64 {
        self.usual_use(limit, self.dollars)
    }

    /// The limit counts as five loops that used all of it: as long as little else is known, it is the estimate.
    fn usual_use(&self, limit: f64, seen: f64) -> f64 {
        if !(seen.is_finite() && seen > 0.0) {
            return limit;
        }
        let samples = f64::from(self.samples);
        (PRIOR_SAMPLES * limit + samples * seen.min(limit)) / (PRIOR_SAMPLES + samples)
    }
}
