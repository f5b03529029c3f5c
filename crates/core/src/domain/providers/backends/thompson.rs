//! Expected progress per cost of each backend, by type of task, with its uncertainty.
//!
//! Chooses by Thompson sampling: a score is drawn for each backend, and the highest wins. The score is the progress of an
//! iteration, drawn from a Beta posterior, divided by the mean cost, as in "Thompson Sampling for Budgeted Multi-armed Bandits"
//! (Xia, Li, Qin, Yu, Liu 2015). Progress counts as a fraction of a success.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::Money;

/// Maximum weight of past iterations. Older ones lose weight, because models and tasks change.
const MEMORY: f64 = 200.0;
/// Weight of iterations on other types of task, in iterations.
const PRIOR: f64 = 4.0;
/// Minimum cost of an iteration, in dollars, to avoid a division by 0.
const LEAST_COST: f64 = 1e-4;

/// Statistics of the backends, by name and type of task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Posteriors(BTreeMap<String, BTreeMap<TaskType, Posterior>>);

/// Statistics of one backend on one type of task. Older iterations have less weight.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Posterior {
    /// Sum of the completion gained by the iterations.
    pub gained: f64,
    /// Sum of the completion that the iterations could have gained but did not.
    pub missed: f64,
    /// Sum of the known costs of the iterations, in dollars.
    pub cost: f64,
    /// Number of iterations with a known cost.
    pub priced: f64,
}

impl Posterior {
    fn plus(self, other: Self) -> Self {
        Self {
            gained: self.gained + other.gained,
            missed: self.missed + other.missed,
            cost: self.cost + other.cost,
            priced: self.priced + other.priced,
        }
    }

    /// Returns the statistics with implausible numbers, as a damaged store may contain, replaced.
    fn sound(self) -> Self {
        let sound = |value: f64| if value.is_finite() { value.clamp(0.0, 1e9) } else { 0.0 };
        Self {
            gained: sound(self.gained),
            missed: sound(self.missed),
            cost: sound(self.cost),
            priced: sound(self.priced),
        }
    }

    fn mean_cost(self) -> Option<f64> {
        (self.priced > 0.0).then(|| self.cost / self.priced)
    }
}

impl Posteriors {
    /// Adds an iteration. `progress` is the gained completion, clamped to 0..1; NaN counts as 0.
    pub(super) fn add(&mut self, backend: &str, task_type: TaskType, progress: f64, cost: Option<Money>) {
        let progress = if progress.is_nan() { 0.0 } else { progress.clamp(0.0, 1.0) };
        let posterior = self.0.entry(backend.to_owned()).or_default().entry(task_type).or_default();
        let one = Posterior {
            gained: progress,
            missed: 1.0 - progress,
            cost: cost.map_or(0.0, |cost| cost.usd().max(0.0)),
            priced: f64::from(u8::from(cost.is_some())),
        };
        let sum = posterior.sound().plus(one);
        let fade = (MEMORY / (sum.gained + sum.missed)).min(1.0);
        *posterior = Posterior {
            gained: sum.gained * fade,
            missed: sum.missed * fade,
            cost: sum.cost * fade,
            priced: sum.priced * fade,
        };
    }

    /// Returns the statistics of a backend for a type of task; those of a new backend if there are none.
    pub fn of(&self, backend: &str, task_type: TaskType) -> Posterior {
        self.0.get(backend).and_then(|by_type| by_type.get(&task_type)).copied().unwrap_or_default().sound()
    }

    fn overall(&self, backend: &str) -> Posterior {
        let all = self.0.get(backend).into_iter().flat_map(BTreeMap::values);
        all.fold(Posterior::default(), |sum, one| sum.plus(one.sound()))
    }

    /// Draws the progress per dollar of each of `backends`. A backend without a known cost gets the average cost of the others.
    /// `iteration_cost` is added to each cost.
    pub(super) fn draw(
        &self,
        backends: &[&str],
        task_type: TaskType,
        iteration_cost: Money,
        mut rng: impl FnMut(&str) -> Rng,
    ) -> Vec<f64> {
        let of_type = backends.iter().map(|name| self.of(name, task_type)).fold(Posterior::default(), Posterior::plus);
        let of_all = backends.iter().map(|name| self.overall(name)).fold(Posterior::default(), Posterior::plus);
        let usual = of_type.mean_cost().or(of_all.mean_cost()).unwrap_or(0.0);
        let draw = |name: &&str| {
            let (known, overall) = (self.of(name, task_type), self.overall(name));
            let mean = (overall.gained + 1.0) / (overall.gained + overall.missed + 2.0);
            let (a, b) = (PRIOR * mean + known.gained, PRIOR * (1.0 - mean) + known.missed);
            let guess = overall.mean_cost().unwrap_or(usual);
            let cost = (known.cost + guess) / (known.priced + 1.0) + iteration_cost.usd();
            beta(a, b, &mut rng(name)) / cost.max(LEAST_COST)
        };
        backends.iter().map(draw).collect()
    }
}

/// Draws from a Beta distribution, by two Gamma draws; both parameters must be above 0.
pub(super) fn beta(a: f64, b: f64, rng: &mut Rng) -> f64 {
    let (x, y) = (gamma(a, rng), gamma(b, rng));
    if x + y > 0.0 { x / (x + y) } else { a / (a + b) }
}

/// Draws from a Gamma distribution with scale 1, as in Marsaglia and Tsang, "A simple method for generating gamma variables"
/// (2000). Shapes below 1 follow section 6 of that paper.
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    if shape < 1.0 {
        let root = (1.0 - rng.f64()).powf(1.0 / shape.max(1e-6));
        return gamma(shape + 1.0, rng) * root;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - rng.f64()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Draws from the normal distribution with mean 0 and standard deviation 1 (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    let (a, b) = (1.0 - rng.f64(), rng.f64());
    (-2.0 * a.ln()).sqrt() * (TAU * b).cos()
}
