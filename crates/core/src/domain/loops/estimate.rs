//! Estimate of the iterations that a task of a given type usually takes.

use serde::{Deserialize, Serialize};

use crate::domain::model::dispersion::Dispersion;

/// Iterations of finished loops of one task type.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean number of iterations.
    pub mean: f64,
    /// Standard deviation of the number of iterations, 0 or more.
    pub deviation: f64,
    /// Number of loops that the estimate is based on.
    pub samples: u32,
}

impl Estimate {
    /// Creates an estimate from the statistics of finished loops.
    pub fn of(iterations: Dispersion) -> Self {
        Self {
            mean: iterations.mean,
            deviation: iterations.deviation(),
            samples: u32::try_from(iterations.samples).unwrap_or(u32::MAX),
        }
    }
}
