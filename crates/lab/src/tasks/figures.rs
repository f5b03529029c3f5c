//! Statistics over many tasks with 95 % intervals: means use the normal distribution, ratios a bootstrap over the tasks.

use serde::Serialize;

use super::mix::Mix;
use super::play::TaskResult;
use super::random::RandomStream;

/// Number of bootstrap resamples.
const RESAMPLES: usize = 400;
/// Half the width of a 95 % interval of a normal distribution, in standard deviations.
const Z: f64 = 1.96;

/// Estimate with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct IntervalEstimate {
    /// Point estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Results of a policy over many tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyFigures {
    /// Name of the policy.
    pub policy: String,
    /// Share of finished tasks, 0..1.
    pub done: IntervalEstimate,
    /// Share of tasks that were accepted although they were unfinished, 0..1.
    pub false_done: IntervalEstimate,
    /// Iterations of all tasks, divided by the number of finished tasks.
    pub iterations_each: IntervalEstimate,
    /// Cost of all tasks in usual iterations, divided by the number of finished tasks.
    pub cost_each: IntervalEstimate,
    /// Iterations per hopeless task.
    pub hopeless: IntervalEstimate,
    /// Iterations of unfinished tasks, per task.
    pub wasted: IntervalEstimate,
    /// Share of healthy loops that were disturbed, 0..1.
    pub disturbed: IntervalEstimate,
    /// Share of disturbed loops among all loops without obstacles, including loops that would not finish in time, 0..1.
    pub disturbed_of_all: IntervalEstimate,
    /// Questions to people, per task.
    pub asked: IntervalEstimate,
    /// Value per task, in usual iterations.
    pub worth: IntervalEstimate,
    /// Share of the value gap between a limit of ten iterations and the oracle that the policy closes.
    pub gap: IntervalEstimate,
}

/// Returns the statistics of a policy. `results`, `ten` and `oracle` refer to the same tasks in the same order.
pub fn policy_figures(
    policy: &str,
    results: &[TaskResult],
    ten: &[TaskResult],
    oracle: &[TaskResult],
    mix: &Mix,
) -> PolicyFigures {
    let share = |condition: fn(&TaskResult) -> bool| mean(results.iter().map(|r| f64::from(u8::from(condition(r)))));
    let mean_of = |condition: fn(&TaskResult) -> bool, figure: fn(&TaskResult) -> f64| {
        mean(results.iter().filter(|r| condition(r)).map(figure))
    };
    let worth = |results: &[TaskResult]| -> Vec<f64> { results.iter().map(|r| r.worth(mix)).collect() };
    let (values, low, high) = (worth(results), worth(ten), worth(oracle));
    let done: Vec<f64> = results.iter().map(|r| f64::from(u8::from(r.done))).collect();
    let iterations: Vec<f64> = results.iter().map(|r| f64::from(r.iterations)).collect();
    let cost: Vec<f64> = results.iter().map(|r| r.cost).collect();
    let sum = |values: &[f64], at: &[usize]| at.iter().map(|at| values[*at]).sum::<f64>();
    let per_done = |values: &[f64]| bootstrap(results.len(), |at| sum(values, at) / sum(&done, at));
    PolicyFigures {
        policy: policy.to_owned(),
        done: share(|r| r.done),
        false_done: share(|r| r.false_done),
        iterations_each: per_done(&iterations),
        cost_each: per_done(&cost),
        hopeless: mean_of(TaskResult::is_hopeless, |r| f64::from(r.iterations)),
        wasted: mean(results.iter().map(|r| if r.done { 0.0 } else { f64::from(r.iterations) })),
        disturbed: mean_of(|r| r.healthy, |r| f64::from(u8::from(r.disturbed))),
        disturbed_of_all: mean_of(|r| r.kind.is_healthy(), |r| f64::from(u8::from(r.disturbed))),
        asked: mean(results.iter().map(|r| f64::from(r.asked))),
        worth: mean(values.iter().copied()),
        gap: bootstrap(results.len(), |at| (sum(&values, at) - sum(&low, at)) / (sum(&high, at) - sum(&low, at))),
    }
}

/// Returns the increase of a task's value from `without` to `with`, in usual iterations, paired by task.
pub fn worth_difference(with: &[TaskResult], without: &[TaskResult], mix: &Mix) -> IntervalEstimate {
    mean(with.iter().zip(without).map(|(with, without)| with.worth(mix) - without.worth(mix)))
}

/// Returns the mean of `values` with its interval; 0 for no values.
fn mean(values: impl Iterator<Item = f64>) -> IntervalEstimate {
    let (mut count, mut sum, mut squares) = (0.0_f64, 0.0, 0.0);
    for value in values {
        (count, sum, squares) = (count + 1.0, sum + value, squares + value * value);
    }
    if count == 0.0 {
        return IntervalEstimate::default();
    }
    let value = sum / count;
    let variance = (squares / count - value * value).max(0.0) / (count - 1.0).max(1.0);
    IntervalEstimate { value, low: value - Z * variance.sqrt(), high: value + Z * variance.sqrt() }
}

/// Returns a statistic over `tasks` tasks with its interval. `statistic` receives the indices of the sampled tasks, with
/// repetitions; non-finite results count as 0.
fn bootstrap(tasks: usize, statistic: impl Fn(&[usize]) -> f64) -> IntervalEstimate {
    let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
    let mut sample: Vec<usize> = (0..tasks).collect();
    let value = finite(statistic(&sample));
    let mut random = RandomStream::new(tasks as u64, 0);
    let mut values: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            sample.iter_mut().for_each(|at| *at = random.below(tasks));
            finite(statistic(&sample))
        })
        .collect();
    values.sort_by(f64::total_cmp);
    let tail = RESAMPLES / 40;
    IntervalEstimate { value, low: values[tail], high: values[RESAMPLES - 1 - tail] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_cover_the_true_value_at_about_their_nominal_rate() {
        let (mut means, mut ratios) = (0, 0);
        for seed in 0..200 {
            let mut random = RandomStream::new(seed, 3);
            let values: Vec<f64> = (0..200).map(|_| random.unit()).collect();
            let mean = mean(values.iter().copied());
            let ratio =
                bootstrap(values.len(), |at| at.iter().map(|at| values[*at] * 2.0).sum::<f64>() / at.len() as f64);
            means += u32::from(mean.low <= 0.5 && 0.5 <= mean.high);
            ratios += u32::from(ratio.low <= 1.0 && 1.0 <= ratio.high);
        }
        assert!((180..=199).contains(&means) && (178..=199).contains(&ratios), "{means} and {ratios} of 200");
        assert_eq!(mean(std::iter::empty()), IntervalEstimate::default());
        assert_eq!(bootstrap(3, |_| f64::NAN).value, 0.0);
    }
}
