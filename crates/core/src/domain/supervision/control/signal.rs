//! Control signal: the sum of the three terms, and its urgency.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metrics::ControlMetrics;
use super::profile::Gains;

/// Terms of the control signal, not clamped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Terms {
    /// Proportional term: `kp P`.
    pub p: f64,
    /// Integral term: `ki I`.
    pub i: f64,
    /// Derivative term: `kd D`.
    pub d: f64,
}

impl Terms {
    /// Multiplies each figure by its gain.
    pub fn of(gains: Gains, metrics: &ControlMetrics) -> Self {
        Self { p: gains.kp * metrics.p, i: gains.ki * metrics.i, d: gains.kd * metrics.d }
    }

    /// Returns `u = clamp(kp P + ki I + kd D, 0, 1)`.
    pub fn signal(self) -> f64 {
        (self.p + self.i + self.d).clamp(0.0, 1.0)
    }
}

/// Urgency of an intervention, derived from the control signal u.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// u is at most 0.3.
    Normal,
    /// u is above 0.3.
    Elevated,
    /// u is above 0.5.
    High,
    /// u is above 0.8.
    Critical,
}

impl Urgency {
    /// Returns the urgency for a control signal, 0..1.
    pub fn of(signal: f64) -> Self {
        if signal > 0.8 {
            Self::Critical
        } else if signal > 0.5 {
            Self::High
        } else if signal > 0.3 {
            Self::Elevated
        } else {
            Self::Normal
        }
    }

    /// Returns the display name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Elevated => "elevated",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn band_includes_its_upper_bound() {
        let words: Vec<_> = [0.3, 0.31, 0.5, 0.51, 0.8, 0.81].map(|u| Urgency::of(u).word()).to_vec();
        assert_eq!(words, ["normal", "elevated", "elevated", "high", "high", "critical"]);
    }

    #[test]
    fn signal_is_clamped_sum_of_terms() {
        let terms = Terms { p: 0.225, i: 0.18, d: -0.02 };
        assert!((terms.signal() - 0.385).abs() < 1e-12);
        assert_eq!(Terms { p: 1.0, i: 2.0, d: 0.0 }.signal(), 1.0);
        assert_eq!(Terms { p: 0.0, i: -0.4, d: 0.0 }.signal(), 0.0);
    }
}
