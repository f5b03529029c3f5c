//! Many tasks in figures, with 95 % intervals: means by the normal distribution, ratios by bootstrap over the tasks.

use serde::{Deserialize, Serialize};

use super::chance::Chance;
use super::mix::Mix;
use super::play::Played;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 400;
/// Deviations of a normal distribution that 95 % lie within.
const Z: f64 = 1.96;

/// A figure and the interval that it lies in, with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Figure {
    /// Its estimate.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

/// What a policy comes to over many tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Its name.
    pub policy: String,
    /// Part of the tasks that were done, 0..1.
    pub done: Figure,
    /// Part of the tasks that were called done and were not, 0..1.
    pub false_done: Figure,
    /// Iterations of all tasks, for each one done.
    pub iterations_each: Figure,
    /// Cost of all tasks in usual iterations, for each one done.
    pub cost_each: Figure,
    /// Iterations for each hopeless task.
    pub hopeless: Figure,
    /// Iterations of tasks that were not done, for each task.
    pub wasted: Figure,
    /// Part of the healthy loops that were disturbed, 0..1; those that would be done in time if left alone.
    pub disturbed: Figure,
    /// The same of all loops whose agent nothing held up, also of those that would not be done in time, 0..1.
    pub disturbed_of_all: Figure,
    /// Times that a person was asked, for each task.
    pub asked: Figure,
    /// What a task was worth, in usual iterations.
    pub worth: Figure,
    /// Part of the gap in worth between a limit of ten iterations and the oracle that it closes.
    pub gap: Figure,
}

/// The figures of a policy, whose tasks are those of `ten` and `oracle` in the same order.
pub fn figures(policy: &str, played: &[Played], ten: &[Played], oracle: &[Played], mix: &Mix) -> Figures {
    let part = |holds: fn(&Played) -> bool| mean(played.iter().map(|p| f64::from(u8::from(holds(p)))));
    let of =
        |which: fn(&Played) -> bool, figure: fn(&Played) -> f64| mean(played.iter().filter(|p| which(p)).map(figure));
    let worth = |played: &[Played]| -> Vec<f64> { played.iter().map(|p| p.worth(mix)).collect() };
    let (own, low, high) = (worth(played), worth(ten), worth(oracle));
    let done: Vec<f64> = played.iter().map(|p| f64::from(u8::from(p.done))).collect();
    let iterations: Vec<f64> = played.iter().map(|p| f64::from(p.iterations)).collect();
    let cost: Vec<f64> = played.iter().map(|p| p.cost).collect();
    let sum = |values: &[f64], at: &[usize]| at.iter().map(|at| values[*at]).sum::<f64>();
    let each = |values: &[f64]| bootstrap(played.len(), |at| sum(values, at) / sum(&done, at));
    Figures {
        policy: policy.to_owned(),
        done: part(|p| p.done),
        false_done: part(|p| p.false_done),
        iterations_each: each(&iterations),
        cost_each: each(&cost),
        hopeless: of(Played::is_hopeless, |p| f64::from(p.iterations)),
        wasted: mean(played.iter().map(|p| if p.done { 0.0 } else { f64::from(p.iterations) })),
        disturbed: of(|p| p.healthy, |p| f64::from(u8::from(p.disturbed))),
        disturbed_of_all: of(|p| p.regime.is_healthy(), |p| f64::from(u8::from(p.disturbed))),
        asked: mean(played.iter().map(|p| f64::from(p.asked))),
        worth: mean(own.iter().copied()),
        gap: bootstrap(played.len(), |at| (sum(&own, at) - sum(&low, at)) / (sum(&high, at) - sum(&low, at))),
    }
}

/// What a task is worth less, in usual iterations, under `without` than under `whole`, task by task.
pub fn lost(whole: &[Played], without: &[Played], mix: &Mix) -> Figure {
    mean(whole.iter().zip(without).map(|(whole, without)| whole.worth(mix) - without.worth(mix)))
}

/// A mean with its interval.
fn mean(values: impl Iterator<Item = f64>) -> Figure {
    let (mut count, mut sum, mut squares) = (0.0_f64, 0.0, 0.0);
    for value in values {
        (count, sum, squares) = (count + 1.0, sum + value, squares + value * value);
    }
    if count == 0.0 {
        return Figure::default();
    }
    let value = sum / count;
    let variance = (squares / count - value * value).max(0.0) / (count - 1.0).max(1.0);
    Figure { value, low: value - Z * variance.sqrt(), high: value + Z * variance.sqrt() }
}

/// A figure of so many tasks with its interval; `of` gets the tasks to take, some of them repeatedly. What is no number
/// is 0.
fn bootstrap(tasks: usize, of: impl Fn(&[usize]) -> f64) -> Figure {
    let sound = |value: f64| if value.is_finite() { value } else { 0.0 };
    let mut at: Vec<usize> = (0..tasks).collect();
    let value = sound(of(&at));
    let mut chance = Chance::of(tasks as u64, 0);
    let mut values: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            at.iter_mut().for_each(|at| *at = chance.below(tasks));
            sound(of(&at))
        })
        .collect();
    values.sort_by(f64::total_cmp);
    let tail = RESAMPLES / 40;
    Figure { value, low: values[tail], high: values[RESAMPLES - 1 - tail] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_the_truth_about_as_often_as_they_say() {
        let (mut means, mut ratios) = (0, 0);
        for seed in 0..200 {
            let mut chance = Chance::of(seed, 3);
            let values: Vec<f64> = (0..200).map(|_| chance.part()).collect();
            let mean = mean(values.iter().copied());
            let ratio =
                bootstrap(values.len(), |at| at.iter().map(|at| values[*at] * 2.0).sum::<f64>() / at.len() as f64);
            means += u32::from(mean.low <= 0.5 && 0.5 <= mean.high);
            ratios += u32::from(ratio.low <= 1.0 && 1.0 <= ratio.high);
        }
        assert!((180..=199).contains(&means) && (178..=199).contains(&ratios), "{means} and {ratios} of 200");
        assert_eq!(mean(std::iter::empty()), Figure::default());
        assert_eq!(bootstrap(3, |_| f64::NAN).value, 0.0);
    }
}
