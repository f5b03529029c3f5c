//! Estimate of the iterations, time and cost that a task of a given type usually takes.

use serde::{Deserialize, Serialize};

use crate::domain::model::dispersion::Dispersion;

/// Weight of the limit in the estimate, in number of loops.
const PRIOR_SAMPLES: f64 = 5.0;
/// Number of standard deviations between the mean and the usual maximum.
const SPREAD: f64 = 2.0;

/// Iterations, time and cost of finished loops of one task type.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean number of iterations.
    pub mean: f64,
    /// Standard deviation of the number of iterations, 0 or more.
    pub deviation: f64,
    /// Number of loops that the estimate is based on.
    pub samples: u32,
    /// Mean plus two standard deviations of the duration, in minutes; 0 if unknown.
    #[serde(default)]
    pub minutes: f64,
    /// Mean plus two standard deviations of the cost, in US dollars; 0 if unknown.
    #[serde(default)]
    pub dollars: f64,
}

impl Estimate {
    /// Creates an estimate from the statistics of finished loops.
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

    /// Returns the usual maximum number of iterations. `limit` is the loop's maximum number.
    pub fn usual_runs(&self, limit: f64) -> f64 {
        self.usual_use(limit, self.mean + SPREAD * self.deviation)
    }

    /// Returns the usual maximum duration, in minutes. `limit` is the loop's time limit, in minutes.
    pub fn usual_minutes(&self, limit: f64) -> f64 {
        self.usual_use(limit, self.minutes)
    }

    /// Returns the usual maximum cost, in US dollars. `limit` is the loop's cost limit.
    pub fn usual_dollars(&self, limit: f64) -> f64 {
        self.usual_use(limit, self.dollars)
    }

    /// Returns the weighted mean of `limit` and `seen`. The limit has the weight of [`PRIOR_SAMPLES`] loops.
    fn usual_use(&self, limit: f64, seen: f64) -> f64 {
        if !(seen.is_finite() && seen > 0.0) {
            return limit;
        }
        let samples = f64::from(self.samples);
        (PRIOR_SAMPLES * limit + samples * seen.min(limit)) / (PRIOR_SAMPLES + samples)
    }
}
