//! Mean and spread of samples that come one by one.

use serde::{Deserialize, Serialize};

/// Samples summed up: how many, their mean, and the squared distances from it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// How many samples there were.
    pub samples: u64,
    /// Their mean; 0 without samples.
    pub mean: f64,
    /// Sum of the squared distances from the mean.
    pub squares: f64,
}

impl Spread {
    /// Of a single sample; of none where it is not a finite number.
    pub fn of(value: f64) -> Self {
        Self::default().with(value)
    }

    /// These and one sample more (Welford's update). What is not a finite number is left out.
    #[must_use]
    pub fn with(self, value: f64) -> Self {
        if value.is_finite() { self.plus(Self { samples: 1, mean: value, squares: 0.0 }) } else { self }
    }

    /// Both together (Chan, Golub and LeVeque's update for two sets).
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let samples = self.samples.saturating_add(other.samples);
        if samples == 0 {
            return Self::default();
        }
        let (here, there, all) = (self.samples as f64, other.samples as f64, samples as f64);
        let apart = other.mean - self.mean;
        Self {
            samples,
            mean: self.mean + apart * there / all,
            squares: self.squares + other.squares + apart * apart * here * there / all,
        }
    }

    /// Standard deviation of the samples; 0 with fewer than two.
    pub fn deviation(self) -> f64 {
        if self.samples < 2 { 0.0 } else { (self.squares.max(0.0) / (self.samples - 1) as f64).sqrt() }
    }
}
