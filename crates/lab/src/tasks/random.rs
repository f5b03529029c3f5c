//! Seeded random numbers. The numbers of an iteration depend only on the task's seed and the iteration, so all policies get
//! the same numbers.

use std::f64::consts::TAU;

/// Random numbers of one task and purpose.
#[derive(Debug, Clone)]
pub(super) struct RandomStream(fastrand::Rng);

impl RandomStream {
    /// Creates the stream of a seed; different values of `purpose` give independent streams.
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        // SplitMix64 gives unrelated streams for neighboring seeds.
        let mut z = seed.wrapping_add(purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(fastrand::Rng::with_seed(z ^ (z >> 31)))
    }

    /// Returns a uniform number in 0..1.
    pub(super) fn unit(&mut self) -> f64 {
        self.0.f64()
    }

    /// Returns a uniform number between two bounds.
    pub(super) fn uniform(&mut self, (lowest, highest): (f64, f64)) -> f64 {
        lowest + (highest - lowest) * self.unit()
    }

    /// Returns a normally distributed number with mean 0 and standard deviation 1.
    pub(super) fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.unit(), self.unit());
        (-2.0 * a.ln()).sqrt() * (TAU * b).cos()
    }

    /// Returns a log-normally distributed factor with mean 1.
    pub(super) fn log_normal(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal() - sigma * sigma / 2.0).exp()
    }

    /// Returns a uniform number below `n`; 0 if `n` is 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n.max(1))
    }

    /// Returns one of several items, by weight; `None` if no weight is above 0.
    pub(super) fn weighted<T: Copy>(&mut self, items: impl Iterator<Item = (T, f64)> + Clone) -> Option<T> {
        let total: f64 = items.clone().map(|(_, weight)| weight).sum();
        let mut remaining = self.unit() * total;
        let mut last = None;
        for (item, weight) in items {
            if weight > 0.0 {
                last = Some(item);
                if remaining < weight {
                    break;
                }
            }
            remaining -= weight;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_have_the_documented_distributions() {
        let mut again = RandomStream::new(7, 1);
        let (mut sum, mut squares, mut factors, count) = (0.0, 0.0, 0.0, 20_000);
        let mut stream = RandomStream::new(7, 1);
        for _ in 0..count {
            let normal = stream.normal();
            assert_eq!(normal, again.normal());
            (sum, squares, factors) = (sum + normal, squares + normal * normal, factors + (0.4 * normal - 0.08).exp());
        }
        let count = f64::from(count);
        assert!(
            (sum / count).abs() < 0.03 && (squares / count - 1.0).abs() < 0.04 && (factors / count - 1.0).abs() < 0.02
        );
        assert_ne!(RandomStream::new(7, 1).unit(), RandomStream::new(7, 2).unit());
        assert_ne!(RandomStream::new(7, 1).unit(), RandomStream::new(8, 1).unit());
        let picked = RandomStream::new(1, 1).weighted([("a", 0.0), ("b", 2.0), ("c", 0.0)].into_iter());
        assert_eq!(picked, Some("b"));
    }
}
