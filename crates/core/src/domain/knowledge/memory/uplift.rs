//! Uplift of a learning: success of loops with it, compared with loops without it.

use serde::Serialize;

/// 97.5 % quantile of the normal distribution, for a 95 % interval.
const Z: f64 = 1.959_964;

/// Number of loops, and of successful loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Number of successful loops.
    pub succeeded: u64,
    /// Number of loops.
    pub loops: u64,
}

impl Tally {
    /// Returns the success rate, 0..1; 0 without loops.
    pub fn rate(self) -> f64 {
        if self.loops == 0 { 0.0 } else { self.succeeded.min(self.loops) as f64 / self.loops as f64 }
    }

    /// Returns the 95 % Wilson score interval of the success rate; 0 to 1 without loops.
    pub fn interval(self) -> (f64, f64) {
        if self.loops == 0 {
            return (0.0, 1.0);
        }
        let (rate, n) = (self.rate(), self.loops as f64);
        let middle = (rate + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let half = Z / (1.0 + Z * Z / n) * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt();
        ((middle - half).max(0.0), (middle + half).min(1.0))
    }
}

/// Success of loops with a learning in a prompt, and of similar loops without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Uplift {
    /// Loops with the learning.
    pub with: Tally,
    /// Loops without the learning.
    pub without: Tally,
}

impl Uplift {
    /// Returns the difference of the success rates, -1..1; positive if the learning helps. `None` if either side has no loops.
    pub fn difference(self) -> Option<f64> {
        (self.with.loops > 0 && self.without.loops > 0).then(|| self.with.rate() - self.without.rate())
    }

    /// Returns the 95 % interval of the difference (Newcombe's hybrid of two score intervals). `None` if either side has no
    /// loops.
    pub fn interval(self) -> Option<(f64, f64)> {
        let difference = self.difference()?;
        let ((low, high), (other_low, other_high)) = (self.with.interval(), self.without.interval());
        let (with, without) = (self.with.rate(), self.without.rate());
        let below = ((with - low).powi(2) + (other_high - without).powi(2)).sqrt();
        let above = ((high - with).powi(2) + (without - other_low).powi(2)).sqrt();
        Some(((difference - below).max(-1.0), (difference + above).min(1.0)))
    }

    /// Describes the uplift in one sentence for people; `None` if no loop with the learning has ended.
    pub fn sentence(self) -> Option<String> {
        (self.with.loops > 0).then(|| self.words())
    }

    /// Formats the uplift for a table cell: `+12 points (-3 to +25)`, or the numbers of loops if they are too small for a
    /// conclusion.
    pub fn words(self) -> String {
        match (self.difference(), self.interval()) {
            (Some(by), Some((low, high))) => {
                format!("{:+.0} points ({:+.0} to {:+.0})", by * 100.0, low * 100.0, high * 100.0)
            }
            _ => format!("{} with, {} without", self.with.loops, self.without.loops),
        }
    }
}
