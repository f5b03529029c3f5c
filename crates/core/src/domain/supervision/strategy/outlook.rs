//! Outlook: estimates whether the remaining work is worth its likely cost, from the loop's measured rate of progress and the
//! rates of earlier loops.

use serde::{Deserialize, Serialize};

use super::OutlookSettings;
use crate::domain::supervision::experience::{EarlierLoop, Experience};
use crate::domain::supervision::progress_rate::ProgressRate;

/// Prior weight of the assumption that the loop resembles no earlier loop, in loops.
const UNKNOWN_LOOPS: f64 = 3.0;
/// Maximum assumed rate of progress of a loop that resembles no earlier one, in completion per iteration. All rates from 0
/// to this value are equally likely.
const UNKNOWN_PACE: f64 = 0.3;
/// Assumed rate of progress of such a loop before it has made progress, in completion per iteration.
const USUAL_PACE: f64 = 0.1;
/// Minimum standard deviation of the completion gained in an iteration, 0..1. It corresponds to the effect of a flaky test.
const LEAST_DEVIATION: f64 = 0.005;
/// Maximum estimated number of iterations for the remaining work.
const MOST_NEEDED: f64 = 1000.0;

/// Expected outcome of continuing a loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    /// Probability that the work is done within the remaining iterations, 0..1.
    pub chance: f64,
    /// Number of iterations for the remaining work at the current rate.
    pub needs: f64,
    /// Number of remaining iterations.
    pub left: f64,
    /// Expected value of continuing, in typical iterations; negative if the cost exceeds the benefit.
    #[serde(alias = "worth")]
    pub expected_gain: f64,
    /// Number of considered earlier loops.
    #[serde(default)]
    pub earlier: u32,
}

impl Outlook {
    /// Estimates the outlook of a loop with this rate of progress and `left` remaining iterations. `experience` has the
    /// repository's earlier loops. `None` if the rate is still unknown and there are no earlier loops.
    pub fn of(rate: &ProgressRate, left: f64, experience: &Experience, settings: &OutlookSettings) -> Option<Self> {
        let alone = Self::alone(rate, left, settings);
        let learns = settings.learned_after_iterations > 0 && rate.later >= settings.learned_after_iterations;
        if !learns || experience.paces().next().is_none() {
            return alone;
        }
        Some(Self::among(experience, rate, left, alone, settings))
    }

    /// Estimates the outlook from the loop's rate alone.
    fn alone(rate: &ProgressRate, left: f64, settings: &OutlookSettings) -> Option<Self> {
        if rate.steps < settings.steps || rate.gain <= 0.0 {
            return None;
        }
        let rest = (1.0 - rate.level).max(0.0);
        let (mean, variance) = rate.gained(rate.moving);
        let chance = chance(rest, left, (mean, variance), f64::from(rate.moving.max(1)), settings.benefit);
        let needs = rest / mean;
        Some(Self { chance, needs, left, expected_gain: chance * settings.task_value - needs.min(left), earlier: 0 })
    }

    /// Estimates the outlook by Bayes' rule. The loop resembles one of the earlier loops, or none of them; each possibility
    /// is weighted by how well it explains the progress so far. The next iterations show which one is true, and the loop can
    /// then be stopped. Continuing therefore costs at most these iterations (option value).
    fn among(
        experience: &Experience,
        rate: &ProgressRate,
        left: f64,
        alone: Option<Self>,
        settings: &OutlookSettings,
    ) -> Self {
        let (rest, paced) = ((1.0 - rate.level).max(0.0), f64::from(rate.paced));
        // Without a gain so far, the loop does not distinguish between earlier loops.
        let weight_of = |likely: f64| if paced > 0.0 { likely } else { 1.0 };
        let mut all = Mixture { settings, left, loops: 0, weight: 0.0, chance: 0.0, needs: 0.0, expected_gain: 0.0 };
        for earlier in experience.paces() {
            let EarlierLoop { mean, variance, .. } = *earlier;
            let known = f64::from(earlier.paced);
            let likely = likelihood(rate.gain - paced * mean, paced * variance + paced * paced * variance / known);
            all.add(weight_of(likely), chance(rest, left, (mean, variance), known + paced, 0.0), rest / mean);
        }
        let earlier = all.loops;
        let (chance, needs) = alone.map_or((1.0, rest / USUAL_PACE), |alone| (alone.chance, alone.needs));
        all.add(UNKNOWN_LOOPS * weight_of(1.0 / (paced * UNKNOWN_PACE)), chance, needs);
        let Mixture { weight, chance, needs, expected_gain, .. } = all;
        Self { chance: chance / weight, needs: needs / weight, left, expected_gain: expected_gain / weight, earlier }
    }

    /// Whether the remaining work fits into the remaining iterations at this rate.
    pub fn fits(&self) -> bool {
        self.needs <= self.left
    }

    /// Describes the outlook for people, without a full stop.
    pub fn text(&self) -> String {
        let Self { chance, needs, left, earlier, .. } = self;
        let rates = match earlier {
            0 => "at its rate".to_owned(),
            1 => "at its rate and the rate of an earlier loop".to_owned(),
            earlier => format!("at its rate and the rates of {earlier} earlier loops"),
        };
        format!(
            "{rates} the rest takes {needs:.0} iterations, {left:.0} are left, and the chance is {:.0} %",
            chance * 100.0
        )
    }
}

/// Weighted sums over the earlier loops that this loop may resemble.
struct Mixture<'a> {
    settings: &'a OutlookSettings,
    left: f64,
    loops: u32,
    weight: f64,
    chance: f64,
    needs: f64,
    expected_gain: f64,
}

impl Mixture<'_> {
    fn add(&mut self, weight: f64, chance: f64, needs: f64) {
        let expected_gain = chance * self.settings.task_value - needs.min(self.left);
        self.loops += 1;
        self.weight += weight;
        self.chance += weight * chance;
        self.needs += weight * needs.min(MOST_NEEDED);
        self.expected_gain += weight * expected_gain.max(-f64::from(self.settings.trial_iterations));
    }
}

/// Returns the density of a normal distribution with this variance at this distance from its mean, up to a constant factor.
fn likelihood(distance: f64, variance: f64) -> f64 {
    let deviation = variance.sqrt().max(LEAST_DEVIATION);
    (-(distance / deviation).powi(2) / 2.0).exp() / deviation
}

/// Returns the probability that the remaining work `rest` is done in `left` iterations. The rate of progress has this mean and
/// variance, measured over `known` iterations. The result includes the variance of future iterations and the uncertainty of the
/// rate.
fn chance(rest: f64, left: f64, (mean, variance): (f64, f64), known: f64, benefit: f64) -> f64 {
    let deviation = (left * variance + left * left * variance / known).sqrt().max(f64::MIN_POSITIVE);
    share_below((left * mean - rest) / deviation + benefit)
}

/// Returns the share of a normal distribution below `z`, approximated by a logistic function.
fn share_below(z: f64) -> f64 {
    1.0 / (1.0 + (-1.702 * z).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(steps: u32, gain: f64, level: f64) -> ProgressRate {
        let each = gain / f64::from(steps);
        let squares = f64::from(steps) * each * each;
        ProgressRate {
            steps,
            moving: steps,
            later: steps,
            paced: steps,
            gain,
            level,
            squares,
            ..ProgressRate::default()
        }
    }

    fn outlook(steps: u32, gain: f64, level: f64, left: f64) -> Option<Outlook> {
        Outlook::of(&pace(steps, gain, level), left, &Experience::default(), &OutlookSettings::default())
    }

    #[test]
    fn unknown_rate_gives_no_outlook() {
        assert_eq!(outlook(1, 0.1, 0.2, 20.0), None);
        let idle = ProgressRate { steps: 9, moving: 9, ..ProgressRate::default() };
        assert_eq!(Outlook::of(&idle, 20.0, &Experience::default(), &OutlookSettings::default()), None);
    }

    #[test]
    fn outlook_depends_on_whether_the_remaining_work_fits() {
        let good = outlook(5, 0.5, 0.6, 15.0).unwrap();
        assert!(
            good.chance > 0.95 && good.expected_gain > 30.0 && good.fits() && (good.needs - 4.0).abs() < 1e-9,
            "{good:?}"
        );
        let bad = outlook(5, 0.05, 0.15, 15.0).unwrap();
        assert!(bad.chance < 0.05 && bad.expected_gain < -10.0 && !bad.fits(), "{bad:?}");
        assert_eq!(bad.text(), "at its rate the rest takes 85 iterations, 15 are left, and the chance is 0 %");
    }

    /// Returns earlier loops that gained this much in each of eight iterations.
    fn loops(paces: &[f64]) -> Experience {
        let each =
            |mean: &f64| EarlierLoop { mean: *mean, variance: mean * mean / 4.0, paced: 8, ..EarlierLoop::default() };
        Experience::of(paces.iter().map(each))
    }

    #[test]
    fn earlier_loops_give_outlook_without_own_rate() {
        let settings = OutlookSettings::default();
        let among = |paces: &[f64], of: ProgressRate| Outlook::of(&of, 18.0, &loops(paces), &settings);
        let standing = ProgressRate { later: 5, still: 5, level: 0.05, ..ProgressRate::default() };
        assert_eq!(among(&[], standing), None);
        let (slow, fast) = (among(&[0.01; 50], standing).unwrap(), among(&[0.2; 50], standing).unwrap());
        assert!(slow.expected_gain < 0.0 && fast.expected_gain > 30.0 && slow.earlier == 50, "{slow:?} {fast:?}");
        assert!(slow.text().starts_with("at its rate and the rates of 50 earlier loops the rest takes "));
        // A few slow loops do not determine the result: the chance of a good loop is worth some more iterations.
        assert!(among(&[0.01; 5], standing).unwrap().expected_gain > 0.0);
        assert!(among(&[0.01, 0.2, 0.01, 0.2], standing).unwrap().expected_gain > 0.0);
        // The loop's measured progress outweighs the earlier loops.
        let going = pace(5, 0.5, 0.6);
        assert!(among(&[0.01; 40], going).unwrap().expected_gain > 0.0);
        let crawling = pace(12, 0.12, 0.13);
        assert!(among(&[0.2; 40], crawling).unwrap().expected_gain < 0.0);
    }

    #[test]
    fn earlier_loops_are_ignored_early_or_if_disabled() {
        let (young, old) = (
            ProgressRate { later: 3, ..ProgressRate::default() },
            ProgressRate { later: 4, ..ProgressRate::default() },
        );
        let of = |pace: &ProgressRate, learned_after_iterations| {
            let settings = OutlookSettings { learned_after_iterations, ..OutlookSettings::default() };
            Outlook::of(pace, 18.0, &loops(&[0.01; 50]), &settings)
        };
        assert!(of(&young, 4).is_none() && of(&old, 4).is_some() && of(&old, 0).is_none());
        // Impossible figures are ignored.
        let wrong = loops(&[f64::NAN, -1.0, f64::INFINITY]);
        assert_eq!(Outlook::of(&old, 18.0, &wrong, &OutlookSettings::default()), None);
        for (left, gain) in [(0.0, 0.0), (1e300, 0.9), (18.0, 1e-300)] {
            let odd = ProgressRate { later: 9, paced: 9, gain, ..ProgressRate::default() };
            let found = Outlook::of(&odd, left, &loops(&[1e-9, 1.0]), &OutlookSettings::default()).unwrap();
            assert!(found.expected_gain.is_finite() && (0.0..=1.0).contains(&found.chance), "{found:?}");
        }
    }

    #[test]
    fn task_value_and_benefit_decide_borderline_cases() {
        let with = |task_value, benefit| {
            let settings = OutlookSettings { task_value, benefit, ..OutlookSettings::default() };
            Outlook::of(&pace(5, 0.25, 0.3), 12.0, &Experience::default(), &settings).unwrap()
        };
        assert!(with(100.0, 0.0).expected_gain > 0.0 && with(20.0, 0.0).expected_gain < 0.0);
        assert!(with(40.0, 1.0).chance > with(40.0, 0.0).chance);
        for (left, benefit) in [(0.0, 0.0), (1e300, 0.0), (0.0, 100.0)] {
            let settings = OutlookSettings { benefit, ..OutlookSettings::default() };
            let found = Outlook::of(&pace(5, 0.25, 0.3), left, &Experience::default(), &settings).unwrap();
            assert!(found.expected_gain.is_finite() && (0.0..=1.0).contains(&found.chance), "{found:?}");
        }
    }
}
