//! Measured rate of progress of a loop: its steps forward, and the length of the current standstill.
//!
//! A loop is compared with its history. Its share of iterations without a step determines the unusual length of a
//! standstill. The size of its steps determines the minimum size of a step. If nothing is counted, a new error is a step.

use crate::domain::model::record::{Record, SeenErrors};

/// Weight of the general expectation about loops relative to the loop's figures, in iterations.
pub const PRIOR: f64 = 5.0;
/// Maximum number of consecutive iterations without a step within the normal rate. A longer run is a standstill.
const PAUSE: u32 = 2;
/// Maximum number of consecutive iterations without a gain within the rate. In a longer run, the loop was blocked.
const HELD_UP: u32 = 6;

/// Thresholds for counting a step, and for judging iterations without a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepThreshold {
    /// Minimum gain of completion for a step, 0..1.
    pub least: f64,
    /// Minimum size of a step as a share of the loop's mean step, 0..1.
    pub part: f64,
    /// Expected share of iterations without a step, 0..1, for a loop without records.
    pub idle: f64,
    /// Weight of `idle` relative to the loop's share, in iterations; above 0.
    pub weight: f64,
    /// Number of iterations without a step that equal one blocker named by the agent during the standstill.
    pub blocker: f64,
}

/// Rate of progress after a number of iterations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProgressRate {
    /// Number of iterations since the last step.
    pub still: u32,
    /// Probability of a standstill of this length at the loop's rate, 0..1; 1 without a standstill. Iterations with a new
    /// error do not extend the standstill, because something changes.
    pub chance: f64,
    /// Number of steps after the first iteration.
    pub steps: u32,
    /// Number of iterations after the first, excluding standstills of more than two iterations.
    pub moving: u32,
    /// Higher completion of the last two iterations, 0..1. A single flaky test is therefore not a loss.
    pub level: f64,
    /// Completion gained after the first iteration, 0..1.
    pub gain: f64,
    /// Sum of the squared gains of completion per iteration.
    pub squares: f64,
    /// Number of iterations up to the last step.
    pub seen: u32,
    /// Number of iterations among `seen` without a step.
    pub idle: u32,
    /// Number of iterations after the first one.
    pub later: u32,
    /// Number of iterations among `later` used to measure the rate of progress: iterations up to the last gain, except runs
    /// of more than six iterations without a gain. Iterations after the last gain may be a standstill, so they are not
    /// counted yet.
    pub paced: u32,
}

impl ProgressRate {
    /// Computes the rate of progress after `history`, oldest first, without records of weakened checks
    /// ([`Record::measured`]).
    pub fn of(history: &[Record], threshold: StepThreshold) -> Self {
        let mut scan = ProgressScan::new(threshold, Record::is_all_or_nothing(history));
        history.iter().for_each(|record| scan.take(record));
        scan.pace
    }

    /// Returns the mean and variance of the gain of completion per iteration over `iterations` iterations. The standard
    /// deviation is at least half the mean.
    pub fn gained(&self, iterations: u32) -> (f64, f64) {
        let iterations = f64::from(iterations.max(1));
        let mean = self.gain / iterations;
        (mean, (self.squares / iterations - mean * mean).max(mean * mean / 4.0))
    }
}

/// State of one pass over a history.
struct ProgressScan<'a> {
    threshold: StepThreshold,
    pace: ProgressRate,
    completion: StepTracker,
    passing: StepTracker,
    /// Lowest number of errors so far; NaN before the first iteration.
    errors: f64,
    /// Completion of the last two iterations, oldest first.
    last: [f64; 2],
    best: f64,
    /// Errors that occurred so far.
    seen_errors: SeenErrors<'a>,
    /// Whether completion changes only by whole checks ([`Record::is_all_or_nothing`]).
    all_or_nothing: bool,
    /// Length of the current standstill, in iterations with weighted blockers, and whether a blocker was named during it.
    run: (f64, bool),
    /// Number of iterations since the last gain.
    flat: u32,
}

impl<'a> ProgressScan<'a> {
    fn new(threshold: StepThreshold, all_or_nothing: bool) -> Self {
        Self {
            threshold,
            pace: ProgressRate { chance: 1.0, ..ProgressRate::default() },
            completion: StepTracker::new(threshold.least, threshold.part, 0.0),
            passing: StepTracker::new(0.0, threshold.part, f64::NAN),
            errors: f64::NAN,
            last: [f64::NAN; 2],
            best: 0.0,
            seen_errors: SeenErrors::default(),
            all_or_nothing,
            run: (0.0, false),
            flat: 0,
        }
    }

    fn take(&mut self, record: &'a Record) {
        let first = self.errors.is_nan();
        let steps = [
            self.completion.rises(record.completion.get()),
            record.tests_failing.is_some_and(|failing| self.passing.rises(-failing)),
            record.errors < self.errors,
            self.climbs(record.completion.get()),
        ];
        self.errors = self.errors.min(record.errors);
        self.last = [self.last[1], record.completion.get()];
        self.pace.level = self.last[0].max(self.last[1]);
        if !first {
            self.pace.moving += 1;
            self.gains((record.completion.get() - self.best).max(0.0));
        }
        self.best = self.best.max(record.completion.get());
        let new = self.seen_errors.is_new(record);
        match steps.contains(&true) || self.all_or_nothing && new {
            true => self.step(first),
            false => self.stand(new, !record.blockers.is_empty()),
        }
    }

    /// Adds the gain of an iteration; not called for the first one.
    fn gains(&mut self, gain: f64) {
        let pace = &mut self.pace;
        (pace.later, pace.gain, pace.squares) = (pace.later + 1, pace.gain + gain, pace.squares + gain * gain);
        if gain > 0.0 {
            pace.paced += 1 + if self.flat <= HELD_UP { self.flat } else { 0 };
            self.flat = 0;
        } else {
            self.flat += 1;
        }
    }

    /// Whether completion rose in two consecutive iterations by a step in total, even below its maximum.
    fn climbs(&self, now: f64) -> bool {
        let [first, second] = self.last;
        first < second && second < now && now <= self.best && now - first > self.completion.least_step()
    }

    fn step(&mut self, first: bool) {
        let still = std::mem::take(&mut self.pace.still);
        self.pace.steps += u32::from(!first);
        if still > PAUSE {
            self.pace.moving = self.pace.moving.saturating_sub(still);
        }
        self.pace.seen += still + 1;
        self.pace.idle += still;
        (self.run, self.pace.chance) = ((0.0, false), 1.0);
    }

    fn stand(&mut self, new: bool, blocked: bool) {
        self.pace.still += 1;
        self.run.0 += f64::from(u8::from(!new));
        if blocked && !self.run.1 {
            self.run = (self.run.0 + self.threshold.blocker, true);
        }
        let (seen, idle) = (f64::from(self.pace.seen), f64::from(self.pace.idle));
        let StepThreshold { idle: expected, weight, .. } = self.threshold;
        self.pace.chance = ((idle + weight * expected) / (seen + weight)).powf(self.run.0);
    }
}

/// Tracks the steps of a figure that should rise.
struct StepTracker {
    /// Minimum size of a step.
    least: f64,
    /// Minimum size of a step as a share of the mean step.
    part: f64,
    /// Value after the last step; NaN before the first value.
    at: f64,
    /// Sum of all steps, and their number.
    steps: (f64, f64),
}

impl StepTracker {
    fn new(least: f64, part: f64, at: f64) -> Self {
        Self { least, part, at, steps: (0.0, 0.0) }
    }

    fn least_step(&self) -> f64 {
        let usual = if self.steps.1 > 0.0 { self.steps.0 / self.steps.1 } else { 0.0 };
        self.least.max(self.part * usual)
    }

    /// Adds a value. Returns whether it is a step up.
    fn rises(&mut self, value: f64) -> bool {
        if self.at.is_nan() {
            self.at = value;
            return false;
        }
        let step = value - self.at;
        let rises = step > self.least && step >= self.least_step();
        if rises {
            self.at = value;
            self.steps = (self.steps.0 + step, self.steps.1 + 1.0);
        }
        rises
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::Ratio;
    use crate::domain::model::record::CheckFact;

    const THRESHOLD: StepThreshold = StepThreshold { least: 0.01, part: 0.4, idle: 0.25, weight: PRIOR, blocker: 2.0 };

    fn records(completions: &[f64], change: impl Fn(usize, &mut Record)) -> Vec<Record> {
        let record = |(at, completion): (usize, &f64)| {
            let mut record = Record { completion: Ratio::new(*completion), ..Record::default() };
            record.error_signature = Some("the same".to_owned());
            change(at, &mut record);
            record
        };
        completions.iter().enumerate().map(record).collect()
    }

    fn pace(completions: &[f64]) -> ProgressRate {
        ProgressRate::of(&records(completions, |_, _| ()), THRESHOLD)
    }

    #[test]
    fn standstill_is_less_likely_after_few_pauses() {
        assert_eq!(pace(&[]), ProgressRate { chance: 1.0, ..ProgressRate::default() });
        let steady = pace(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5, 0.5]);
        let halting = pace(&[0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.3, 0.3]);
        assert_eq!((steady.still, halting.still), (3, 3));
        assert!(steady.chance < 0.01 && halting.chance > 3.0 * steady.chance, "{} {}", steady.chance, halting.chance);
        assert_eq!((steady.steps, steady.moving), (4, 7));
        assert!((steady.gain - 0.4).abs() < 1e-12 && (steady.squares - 0.04).abs() < 1e-12);
    }

    #[test]
    fn small_gain_is_not_a_step_after_large_steps() {
        assert_eq!(pace(&[0.2, 0.4, 0.6, 0.62]).still, 1);
        assert_eq!(pace(&[0.02, 0.04, 0.06, 0.08]).still, 0);
        // Small gains add up to a step.
        assert_eq!(pace(&[0.2, 0.4, 0.6, 0.64, 0.68]).still, 0);
    }

    #[test]
    fn climb_below_best_is_a_step_and_oscillation_is_not() {
        assert_eq!(pace(&[0.2, 0.4, 0.6, 0.3, 0.4]).still, 2);
        assert_eq!(pace(&[0.2, 0.4, 0.6, 0.3, 0.4, 0.5]).still, 0);
        assert_eq!(pace(&[0.2, 0.4, 0.6, 0.4, 0.6, 0.4, 0.6]).still, 4);
    }

    #[test]
    fn new_or_fewer_errors_count_as_progress() {
        let flat = [0.3; 5];
        let same = ProgressRate::of(&records(&flat, |_, _| ()), THRESHOLD);
        let other = |at: usize, record: &mut Record| record.error_signature = Some(format!("error {at}"));
        assert_eq!((ProgressRate::of(&records(&flat, other), THRESHOLD).chance, same.still), (1.0, 4));
        let blocked = |at: usize, record: &mut Record| {
            if at > 2 {
                record.blockers.push("no network".to_owned());
            }
        };
        let blocked = ProgressRate::of(&records(&flat, blocked), THRESHOLD);
        assert!((blocked.chance - same.chance.powf(1.5)).abs() < 1e-9, "two more, once, beside four");
        let fewer = |at: usize, record: &mut Record| record.errors = 9.0 - at as f64;
        assert_eq!(ProgressRate::of(&records(&flat, fewer), THRESHOLD).still, 0);
        let failing = |at: usize, record: &mut Record| record.tests_failing = Some(40.0 - at as f64);
        assert_eq!(ProgressRate::of(&records(&flat, failing), THRESHOLD).still, 0);
    }

    #[test]
    fn different_error_is_a_step_without_counts() {
        let errors = |errors: &[&str]| {
            let failing = |at: usize, record: &mut Record| {
                record.checks = vec![CheckFact { name: "all".into(), passed: false, baseline: Some(false) }];
                record.error_signature = Some(errors[at].to_owned());
            };
            ProgressRate::of(&records(&vec![0.0; errors.len()], failing), THRESHOLD)
        };
        let moving = errors(&["a", "b", "b", "c", "c", "d"]);
        assert_eq!((moving.still, moving.chance, moving.gain), (0, 1.0, 0.0));
        let stuck = errors(&["a", "b", "c", "c", "a", "c", "c", "c"]);
        assert!(stuck.still == 5 && stuck.chance < 0.003, "{stuck:?}");
    }

    #[test]
    fn long_standstills_are_excluded_from_rate() {
        let run = pace(&[0.1, 0.2, 0.2, 0.2, 0.3]);
        assert_eq!((run.steps, run.moving), (2, 4));
        let longer = pace(&[0.1, 0.2, 0.2, 0.2, 0.2, 0.3]);
        assert_eq!((longer.steps, longer.moving), (2, 2));
        assert_eq!(pace(&[0.1, 0.4, 0.38]).level, 0.4);
    }
}
