//! Whether a learning helps: loops that had it against loops that did not.

use serde::Serialize;

/// 97.5 % quantile of the normal distribution, for an interval of 95 %.
const Z: f64 = 1.959_964;

/// Loops, and how many of them succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Loops that succeeded.
    pub succeeded: u64,
    /// All of them.
    pub loops: u64,
}

impl Tally {
    /// Share that succeeded, 0..1; 0 where there was none.
    pub fn rate(self) -> f64 {
        if self.loops == 0 { 0.0 } else { self.succeeded.min(self.loops) as f64 / self.loops as f64 }
    }

    /// Wilson's score interval of 95 %; 0 to 1 without loops.
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

/// Success of loops with a learning in a prompt, beside loops of the same sort without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Uplift {
    /// Loops that had it.
    pub with: Tally,
    /// Loops that did not.
    pub without: Tally,
}

impl Uplift {
    /// Difference of the shares, -1..1; above 0 it helps. `None` where one side has no loop.
    pub fn difference(self) -> Option<f64> {
        (self.with.loops > 0 && self.without.loops > 0).then(|| self.with.rate() - self.without.rate())
    }

    /// 95 % interval of the difference (Newcombe's hybrid of two score intervals). `None` where one side has no loop.
    pub fn interval(self) -> Option<(f64, f64)> {
        let difference = self.difference()?;
        let ((low, high), (other_low, other_high)) = (self.with.interval(), self.without.interval());
        let (with, without) = (self.with.rate(), self.without.rate());
        let below = ((with - low).powi(2) + (other_high - without).powi(2)).sqrt();
        let above = ((high - with).powi(2) + (without - other_low).powi(2)).sqrt();
        Some(((difference - below).max(-1.0), (difference + above).min(1.0)))
    }

    /// For people; `None` where no loop that ended had it.
    pub fn told(self) -> Option<String> {
        (self.with.loops > 0).then(|| self.words())
    }

    /// For a table: `+12 points (-3 to +25)`, or how many loops there are where that says nothing yet.
    pub fn words(self) -> String {
        match (self.difference(), self.interval()) {
            (Some(by), Some((low, high))) => {
                format!("{:+.0} points ({:+.0} to {:+.0})", by * 100.0, low * 100.0, high * 100.0)
            }
            _ => format!("{} with, {} without", self.with.loops, self.without.loops),
        }
    }
}
