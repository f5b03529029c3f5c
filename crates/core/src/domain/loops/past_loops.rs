//! Resources that earlier finished loops of a repository used: iterations, time and money.

use serde::{Deserialize, Serialize};

use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::Money;

/// Minimum number of loops of the same task type. If there are as many, loops of other types are ignored.
const ENOUGH: usize = 3;

/// Resources that a finished loop used, which did its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedLoop {
    /// Type of the loop's task.
    pub task_type: TaskType,
    /// Number of iterations, at least 1.
    pub iterations: u32,
    /// Running time, in milliseconds.
    pub time_ms: i64,
    /// Cost; 0 if it is unknown.
    pub cost: Money,
}

/// Median and 90th percentile of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median.
    pub median: i64,
    /// 90th percentile.
    pub most: i64,
}

impl Quantiles {
    /// Returns the usual amount. Twice of it exceeds both twice the median and the 90th percentile.
    pub fn usual(self) -> f64 {
        (self.median as f64).max(self.most as f64 / 2.0)
    }

    /// Computes the quantiles by the nearest-rank method; `None` without values.
    fn of(mut values: Vec<i64>) -> Option<Self> {
        values.sort_unstable();
        let rank = |percent: usize| values.get((values.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Self { median: rank(50)?, most: rank(90)? })
    }
}

/// Summary of the resources that earlier loops of a repository used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PastLoops {
    /// Number of loops in the summary.
    pub loops: u32,
    /// Task type of all loops in the summary; `None` if there were too few loops of the same type, so that all types are
    /// included.
    pub task_type: Option<TaskType>,
    /// Number of iterations; `None` without loops.
    pub iterations: Option<Quantiles>,
    /// Running time, in milliseconds; `None` without loops.
    pub time_ms: Option<Quantiles>,
    /// Cost in millionths of a dollar, of the loops whose cost is known; `None` without such loops.
    pub cost: Option<Quantiles>,
}

impl PastLoops {
    /// Returns the usual amount of a resource for tasks of the type; `None` with too few loops of the type.
    pub fn usual(&self, resource: fn(&Self) -> Option<Quantiles>) -> Option<f64> {
        self.task_type.and_then(|_| resource(self)).map(Quantiles::usual)
    }

    /// Summarizes the ended loops of a task type. If there are fewer than three of this type, summarizes all loops.
    pub fn of(ended: &[EndedLoop], task_type: TaskType) -> Self {
        let same: Vec<&EndedLoop> = ended.iter().filter(|one| one.task_type == task_type).collect();
        let enough = same.len() >= ENOUGH;
        let considered: Vec<&EndedLoop> = if enough { same } else { ended.iter().collect() };
        let known = considered.iter().map(|one| one.cost.0).filter(|cost| *cost > 0);
        Self {
            loops: u32::try_from(considered.len()).unwrap_or(u32::MAX),
            task_type: enough.then_some(task_type),
            iterations: Quantiles::of(considered.iter().map(|one| i64::from(one.iterations)).collect()),
            time_ms: Quantiles::of(considered.iter().map(|one| one.time_ms).collect()),
            cost: Quantiles::of(known.collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(task_type: TaskType, iterations: u32, dollars: f64) -> EndedLoop {
        let time_ms = i64::from(iterations) * 60_000;
        EndedLoop { task_type, iterations, time_ms, cost: Money::from_usd(dollars) }
    }

    #[test]
    fn loops_of_the_same_type_are_summarized() {
        let mut loops: Vec<EndedLoop> = (1..=10).map(|n| ended(TaskType::Feature, n, 0.1 * f64::from(n))).collect();
        loops.extend([ended(TaskType::Docs, 40, 9.0), ended(TaskType::Docs, 50, 9.0)]);
        let past = PastLoops::of(&loops, TaskType::Feature);
        assert_eq!((past.loops, past.task_type), (10, Some(TaskType::Feature)));
        assert_eq!(past.iterations, Some(Quantiles { median: 5, most: 9 }));
        assert_eq!(past.time_ms, Some(Quantiles { median: 300_000, most: 540_000 }));
        assert_eq!(past.cost, Some(Quantiles { median: 500_000, most: 900_000 }));
    }

    #[test]
    fn few_loops_of_a_type_are_summarized_with_the_others() {
        let loops = [ended(TaskType::Docs, 2, 0.0), ended(TaskType::Docs, 4, 0.0), ended(TaskType::Feature, 9, 0.5)];
        let past = PastLoops::of(&loops, TaskType::Docs);
        assert_eq!((past.loops, past.task_type), (3, None));
        assert_eq!(past.iterations, Some(Quantiles { median: 4, most: 9 }));
        assert_eq!(past.cost, Some(Quantiles { median: 500_000, most: 500_000 }), "only known costs count");
    }

    #[test]
    fn repository_without_loops_has_no_figures() {
        assert_eq!(PastLoops::of(&[], TaskType::Docs), PastLoops::default());
    }
}
