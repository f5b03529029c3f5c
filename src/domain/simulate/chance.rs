//! Luck from a seed. What happens in an iteration depends on the task's seed and the iteration alone, so that all
//! policies meet the same luck.

use std::f64::consts::TAU;

/// Numbers of one task and purpose.
#[derive(Debug, Clone)]
pub(super) struct Chance(fastrand::Rng);

impl Chance {
    /// `purpose` keeps streams of the same seed apart.
    pub(super) fn of(seed: u64, purpose: u64) -> Self {
        // Neighbouring seeds are made unlike each other.
        let mut z = seed.wrapping_add(purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(fastrand::Rng::with_seed(z ^ (z >> 31)))
    }

    /// 0..1.
    pub(super) fn part(&mut self) -> f64 {
        self.0.f64()
    }

    /// Between the two.
    pub(super) fn between(&mut self, (least, most): (f64, f64)) -> f64 {
        least + (most - least) * self.part()
    }

    /// Normally distributed, with mean 0 and deviation 1.
    pub(super) fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.part(), self.part());
        (-2.0 * a.ln()).sqrt() * (TAU * b).cos()
    }

    /// Log-normal with mean 1.
    pub(super) fn factor(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal() - sigma * sigma / 2.0).exp()
    }

    /// Below `n`, which is above 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n.max(1))
    }

    /// One of several, by weight; the last where weights are of no use.
    pub(super) fn weighed<T: Copy>(&mut self, of: impl Iterator<Item = (T, f64)> + Clone) -> Option<T> {
        let total: f64 = of.clone().map(|(_, weight)| weight).sum();
        let mut left = self.part() * total;
        let mut last = None;
        for (item, weight) in of {
            if weight > 0.0 {
                last = Some(item);
                if left < weight {
                    break;
                }
            }
            left -= weight;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luck_repeats_and_is_spread_as_it_should_be() {
        let mut again = Chance::of(7, 1);
        let (mut sum, mut squares, mut factors, count) = (0.0, 0.0, 0.0, 20_000);
        let mut chance = Chance::of(7, 1);
        for _ in 0..count {
            let normal = chance.normal();
            assert_eq!(normal, again.normal());
            (sum, squares, factors) = (sum + normal, squares + normal * normal, factors + (0.4 * normal - 0.08).exp());
        }
        let count = f64::from(count);
        assert!(
            (sum / count).abs() < 0.03 && (squares / count - 1.0).abs() < 0.04 && (factors / count - 1.0).abs() < 0.02
        );
        assert_ne!(Chance::of(7, 1).part(), Chance::of(7, 2).part());
        assert_ne!(Chance::of(7, 1).part(), Chance::of(8, 1).part());
        let picked = Chance::of(1, 1).weighed([("a", 0.0), ("b", 2.0), ("c", 0.0)].into_iter());
        assert_eq!(picked, Some("b"));
    }
}
