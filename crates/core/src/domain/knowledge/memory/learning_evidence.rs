//! Evidence about a learning: successes and failures of the loops whose prompts contained it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum amount of evidence. Beyond it, older evidence loses weight, so that changes have an effect.
const MAX_EVIDENCE: f64 = 10.0;

/// Weighted number of successes and failures of loops and iterations. The weights are in `Credit`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LearningEvidence {
    /// Weighted number of successes.
    pub successes: f64,
    /// Weighted number of failures.
    pub failures: f64,
}

impl LearningEvidence {
    /// Returns the mean of the Beta posterior with a uniform prior, 0..1; 0.5 without evidence.
    pub fn rate(self) -> f64 {
        (self.successes + 1.0) / (self.successes + self.failures + 2.0)
    }

    /// Returns the sum, limited to the maximum amount of evidence.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = Self { successes: self.successes + other.successes, failures: self.failures + other.failures };
        let total = sum.successes + sum.failures;
        let scale = if total > MAX_EVIDENCE { MAX_EVIDENCE / total } else { 1.0 };
        Self { successes: sum.successes * scale, failures: sum.failures * scale }
    }

    /// Whether both numbers are finite and not negative.
    pub fn is_sound(self) -> bool {
        [self.successes, self.failures].iter().all(|count| count.is_finite() && *count >= 0.0)
    }
}
