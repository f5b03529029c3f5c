//! Mean and standard deviation of samples, updated one sample at a time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Count, mean and squared deviations of samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Dispersion {
    /// Number of samples.
    pub samples: u64,
    /// Mean; 0 without samples.
    pub mean: f64,
    /// Sum of the squared distances from the mean.
    pub squares: f64,
}

impl Dispersion {
    /// Returns the dispersion of a single sample. If `value` is not finite, the result has no samples.
    pub fn of(value: f64) -> Self {
        Self::default().with(value)
    }

    /// Returns the dispersion with one more sample (Welford's update). A value that is not finite is ignored.
    #[must_use]
    pub fn with(self, value: f64) -> Self {
        if value.is_finite() { self.plus(Self { samples: 1, mean: value, squares: 0.0 }) } else { self }
    }

    /// Returns the dispersion of both sets together (Chan, Golub and LeVeque's update for two sets).
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let samples = self.samples.saturating_add(other.samples);
        if samples == 0 {
            return Self::default();
        }
        let (left, right, total) = (self.samples as f64, other.samples as f64, samples as f64);
        let difference = other.mean - self.mean;
        Self {
            samples,
            mean: self.mean + difference * right / total,
            squares: self.squares + other.squares + difference * difference * left * right / total,
        }
    }

    /// Returns the standard deviation of the samples; 0 with fewer than two samples.
    pub fn deviation(self) -> f64 {
        if self.samples < 2 { 0.0 } else { (self.squares.max(0.0) / (self.samples - 1) as f64).sqrt() }
    }
}
