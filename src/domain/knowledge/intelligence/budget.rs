//! What a task usually takes: iterations by the design's figures for its type, time and money by the limits, all of them
//! moved by what loops took.

use serde::{Deserialize, Serialize};

use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::Spread;

/// Loops that the design's figures and the limits weigh as much as.
const PRIOR_SAMPLES: f64 = 5.0;
/// Standard deviations between the mean and either end.
const SPREAD: f64 = 2.0;
/// Iterations that are believed at most.
const MOST: f64 = 1000.0;

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
    /// Of what each of some loops took.
    pub fn of(iterations: Spread, minutes: Spread, dollars: Spread) -> Self {
        let most = |spread: Spread| spread.mean + SPREAD * spread.deviation();
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

/// Iterations that such a task usually takes, least and most. The type's range counts as five loops with its ends two
/// standard deviations from its middle; figures that cannot be are ignored.
pub fn usual(kind: TaskType, estimate: Option<&Estimate>) -> (u32, u32) {
    let (low, high) = kind.usual_iterations();
    let known = estimate.filter(|e| e.samples > 0 && e.mean.is_finite() && e.mean > 0.0 && e.deviation >= 0.0);
    let Some(estimate) = known else { return (low, high) };
    let (low, high) = (f64::from(low), f64::from(high));
    let (prior_mean, prior_deviation) = ((low + high) / 2.0, (high - low) / (2.0 * SPREAD));
    let (samples, seen) = (f64::from(estimate.samples), estimate.mean.min(MOST));
    let all = PRIOR_SAMPLES + samples;
    let mean = (PRIOR_SAMPLES * prior_mean + samples * seen) / all;
    // Of two groups together: what each varies, and how far each lies from the common mean.
    let varies = |deviation: f64, at: f64| deviation.min(MOST).powi(2) + (at - mean).powi(2);
    let variance =
        (PRIOR_SAMPLES * varies(prior_deviation, prior_mean) + samples * varies(estimate.deviation, seen)) / all;
    let spread = SPREAD * variance.sqrt();
    // A cast from a float saturates.
    let least = (mean - spread).round().max(1.0) as u32;
    (least, ((mean + spread).round() as u32).max(least))
}
