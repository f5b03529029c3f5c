//! Experience: statistics of a repository's earlier loops. They help to judge a new loop until it has enough records.
//!
//! Two statistics are estimated by empirical Bayes. The share of iterations without progress determines how long a
//! standstill must last to be unusual. The rates of progress show early whether the remaining work probably fits the budget.
//! Only records of loops are used. A standstill that an intervention ended is not counted, because its natural length is
//! unknown. Without earlier loops, the settings apply.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::record::Record;
use crate::domain::supervision::progress_rate::{ProgressRate, StepThreshold};

/// Maximum number of loops to keep; the oldest are dropped.
pub const REMEMBERED: usize = 50;
/// Weight of the configured share of idle iterations relative to the share in earlier loops, in iterations.
const SETTINGS_WEIGHT: f64 = 10.0;
/// Maximum weight that earlier loops add to [`StepThreshold::weight`], in iterations.
const WEIGHT_GAINED: f64 = 20.0;
/// Number of earlier iterations that adds half of [`WEIGHT_GAINED`].
const HALF_GAINED: f64 = 50.0;
/// Minimum number of iterations for measuring a rate of progress.
const LEAST_PACED: u32 = 3;

/// Statistics of an earlier loop.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EarlierLoop {
    /// Mean gain of completion per iteration, 0..1.
    pub mean: f64,
    /// Variance of the gain of completion per iteration, 0 or more.
    pub variance: f64,
    /// Number of iterations used to measure the rate of progress; 0 if the rate is unknown.
    pub paced: u32,
    /// Number of iterations up to the last step before the first intervention.
    pub seen: u32,
    /// Number of iterations among `seen` without a step.
    pub idle: u32,
}

impl EarlierLoop {
    /// Computes a loop's statistics from its records, oldest first. `disturbed_after` is the number of iterations before the
    /// first intervention; `None` without an intervention.
    pub fn of(records: &[Record], disturbed_after: Option<usize>, threshold: StepThreshold) -> Self {
        let rate = ProgressRate::of(&Record::measured(records), threshold);
        let left_alone = &records[..disturbed_after.map_or(records.len(), |after| after.min(records.len()))];
        let alone = ProgressRate::of(&Record::measured(left_alone), threshold);
        let known = rate.paced >= LEAST_PACED && rate.gain > 0.0;
        let (mean, variance) = if known { rate.gained(rate.paced) } else { (0.0, 0.0) };
        Self { mean, variance, paced: if known { rate.paced } else { 0 }, seen: alone.seen, idle: alone.idle }
    }

    /// Whether the rate of progress is known and valid.
    fn has_pace(&self) -> bool {
        self.paced > 0 && self.mean > 0.0 && self.mean <= 1.0 && self.variance.is_finite() && self.variance >= 0.0
    }
}

/// Earlier loops of a repository, oldest first, at most [`REMEMBERED`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Experience(Vec<EarlierLoop>);

impl Experience {
    /// Builds the experience from loops in chronological order. Keeps the newest `REMEMBERED`.
    pub fn of(loops: impl IntoIterator<Item = EarlierLoop>) -> Self {
        let mut experience = Self::default();
        loops.into_iter().for_each(|earlier| experience.add(earlier));
        experience
    }

    /// Adds an ended loop as the newest one.
    pub fn add(&mut self, earlier: EarlierLoop) {
        if self.0.len() >= REMEMBERED {
            self.0.drain(..=self.0.len() - REMEMBERED);
        }
        self.0.push(earlier);
    }

    /// Whether there are no earlier loops.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the loops with a known rate of progress.
    pub fn paces(&self) -> impl Iterator<Item = &EarlierLoop> {
        self.0.iter().filter(|earlier| earlier.has_pace())
    }

    /// Returns the step threshold for this repository. The configured share of idle iterations is the mean of a beta
    /// distribution updated by earlier loops; their weight grows with their number. Without earlier loops, returns the
    /// configured threshold.
    pub fn step_threshold(&self, settings: StepThreshold) -> StepThreshold {
        let sum = |of: fn(&EarlierLoop) -> u32| self.0.iter().map(|earlier| f64::from(of(earlier))).sum::<f64>();
        let seen = sum(|earlier| earlier.seen);
        let idle = sum(|earlier| earlier.idle.min(earlier.seen));
        StepThreshold {
            idle: (SETTINGS_WEIGHT * settings.idle + idle) / (SETTINGS_WEIGHT + seen),
            weight: settings.weight + WEIGHT_GAINED * seen / (HALF_GAINED + seen),
            ..settings
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::Ratio;

    const THRESHOLD: StepThreshold = StepThreshold { least: 0.01, part: 0.4, idle: 0.25, weight: 5.0, blocker: 2.0 };

    fn records(completions: &[f64]) -> Vec<Record> {
        let record = |completion: &f64| Record {
            completion: Ratio::new(*completion),
            error_signature: Some("the same".to_owned()),
            ..Record::default()
        };
        completions.iter().map(record).collect()
    }

    fn earlier(seen: u32, idle: u32) -> EarlierLoop {
        EarlierLoop { seen, idle, ..EarlierLoop::default() }
    }

    #[test]
    fn settings_apply_without_earlier_loops() {
        assert_eq!(Experience::default().step_threshold(THRESHOLD), THRESHOLD);
        // Loops without information have no effect, either.
        let silent = Experience::of([
            EarlierLoop::of(&[], None, THRESHOLD),
            EarlierLoop::of(&records(&[0.0]), Some(9), THRESHOLD),
        ]);
        assert!(!silent.is_empty() && silent.paces().count() == 0);
        assert_eq!(silent.step_threshold(THRESHOLD).weight, THRESHOLD.weight);
    }

    #[test]
    fn earlier_loops_shift_and_weight_the_idle_share() {
        let (halting, steady) = (Experience::of([earlier(40, 20)]), Experience::of([earlier(40, 2)]));
        let [halting, steady] = [halting, steady].map(|experience| experience.step_threshold(THRESHOLD));
        assert!((halting.idle - 0.45).abs() < 1e-12 && (steady.idle - 0.09).abs() < 1e-12);
        assert!(halting.weight > 13.0 && halting.weight < 14.0);
        let still = records(&[0.1, 0.2, 0.3, 0.3, 0.3, 0.3]);
        let chance = |threshold| ProgressRate::of(&still, threshold).chance;
        assert!(chance(steady) < chance(THRESHOLD) / 4.0 && chance(halting) > chance(THRESHOLD) * 4.0);
        // The loop's iterations count regardless of the amount of experience.
        let much = Experience::of(vec![earlier(u32::MAX, u32::MAX); 60]).step_threshold(THRESHOLD);
        assert!(much.idle <= 1.0 && much.weight <= THRESHOLD.weight + WEIGHT_GAINED);
    }

    #[test]
    fn statistics_exclude_iterations_after_intervention() {
        let history = records(&[0.1, 0.2, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.6]);
        let known = EarlierLoop::of(&history, None, THRESHOLD);
        assert_eq!((known.seen, known.idle, known.paced), (9, 4, 8));
        assert!((known.mean - 0.0625).abs() < 1e-12 && known.variance >= known.mean * known.mean / 4.0);
        // An interrupted standstill is not counted.
        let disturbed = EarlierLoop::of(&history, Some(7), THRESHOLD);
        assert_eq!((disturbed.seen, disturbed.idle, disturbed.paced), (5, 1, 8));
        let stuck = EarlierLoop::of(&records(&[0.1, 0.2, 0.2, 0.2, 0.2]), Some(5), THRESHOLD);
        assert_eq!((stuck.paced, stuck.mean), (0, 0.0), "a single step is no pace");
    }

    #[test]
    fn newest_loops_are_kept_and_invalid_ones_skipped() {
        let many = Experience::of((0..80).map(|n| earlier(n, 0)));
        assert_eq!(many.0.len(), REMEMBERED);
        assert_eq!((many.0[0].seen, many.0[REMEMBERED - 1].seen), (30, 79));
        let of = |mean, variance, paced| EarlierLoop { mean, variance, paced, ..EarlierLoop::default() };
        let wrong =
            [of(f64::NAN, 0.1, 5), of(0.1, f64::INFINITY, 5), of(-0.1, 0.1, 5), of(9.0, 0.1, 5), of(0.1, -1.0, 5)];
        assert_eq!(Experience::of(wrong).paces().count(), 0);
        assert_eq!(Experience::of([of(0.1, 0.01, 5)]).paces().count(), 1);
        let text = serde_json::to_string(&many).unwrap();
        assert_eq!(serde_json::from_str::<Experience>(&text).unwrap(), many);
        assert_eq!(serde_json::from_str::<Experience>("[{}]").unwrap(), Experience::of([EarlierLoop::default()]));
    }
}
