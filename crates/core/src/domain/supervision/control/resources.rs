//! Resources of a loop (iterations, time and money): the used amounts, and whether the rest suffices.

use crate::domain::supervision::TaskFacts;

/// Seconds per minute.
const MINUTE_S: f64 = 60.0;
/// Share of the budget during which a loop is early.
const EARLY: f64 = 0.2;
/// Largest plausible limit. A larger value means no limit.
const LARGEST_LIMIT: f64 = 1e12;

/// Use and limit of one resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resource {
    /// Amount used, 0 or more.
    pub(super) used: f64,
    /// Limit; `None` if unlimited.
    pub(super) limit: Option<f64>,
    /// Average use per iteration.
    pub(super) each: f64,
}

/// Resources of a loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resources {
    pub(super) iterations: Resource,
    pub(super) seconds: Resource,
    pub(super) usd: Resource,
}

impl Resource {
    /// Returns the remaining amount, 0 or more; `None` if unlimited.
    pub(super) fn remaining(&self) -> Option<f64> {
        self.limit.map(|limit| (limit - self.used).max(0.0))
    }

    /// Returns the used share of the limit, 0..; 0 without a limit.
    pub(super) fn part(&self) -> f64 {
        self.limit.map_or(0.0, |limit| self.used / limit)
    }

    /// Whether the remaining amount suffices for `more` iterations at the average use.
    pub(super) fn fits(&self, more: f64) -> bool {
        more * self.each <= self.remaining().unwrap_or(f64::INFINITY)
    }
}

impl Resources {
    /// Whether the loop has used little of its iterations or, if they are unlimited, of its time and money. False without any
    /// limit.
    pub(super) fn is_early(&self) -> bool {
        let within = |resource: &Resource| resource.limit.map(|limit| resource.used <= EARLY * limit);
        let of_budget = [&self.seconds, &self.usd].into_iter().filter_map(within).reduce(|all, one| all && one);
        within(&self.iterations).or(of_budget).unwrap_or(false)
    }

    /// Returns a loop's resources. `rounds` is the number of iterations that used `seconds` and `usd` in total.
    pub(super) fn of(facts: &TaskFacts, iteration: u64, rounds: u64, seconds: f64, usd: f64) -> Self {
        let mean = |sum: f64| sum / rounds.max(1) as f64;
        let minutes = facts.timeout_minutes.and_then(limit);
        Self {
            iterations: Resource { used: iteration as f64, limit: limit(facts.max_iterations), each: 1.0 },
            seconds: Resource { used: seconds, limit: minutes.map(|m| m * MINUTE_S), each: mean(seconds) },
            usd: Resource { used: usd, limit: facts.max_cost_usd.and_then(limit), each: mean(usd) },
        }
    }
}

/// Returns `value` as a limit; `None` if it is not above 0 or is implausibly large.
fn limit(value: f64) -> Option<f64> {
    (value > 0.0 && value <= LARGEST_LIMIT).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_amount_is_compared_with_need() {
        let facts = TaskFacts { max_iterations: 10.0, timeout_minutes: Some(10.0), ..TaskFacts::default() };
        let resources = Resources::of(&facts, 8, 4, 480.0, 3.0);
        assert_eq!(resources.iterations.part(), 0.8);
        assert!(resources.iterations.fits(2.0) && !resources.iterations.fits(3.0));
        assert!(resources.seconds.fits(1.0) && !resources.seconds.fits(2.0));
        assert!(resources.usd.fits(1e9) && !resources.seconds.fits(f64::INFINITY));
        assert_eq!((resources.usd.part(), resources.usd.remaining()), (0.0, None));
    }

    #[test]
    fn phase_of_an_unlimited_loop_follows_its_budget() {
        let early = |max_iterations: f64, dollars: f64| {
            let (timeout_minutes, max_cost_usd) = (Some(100.0), Some(10.0));
            let facts = TaskFacts { max_iterations, timeout_minutes, max_cost_usd, ..TaskFacts::default() };
            Resources::of(&facts, 3, 3, 600.0, dollars).is_early()
        };
        assert_eq!([early(10.0, 0.1), early(20.0, 9.0)], [false, true], "a limit of iterations decides");
        assert_eq!([early(f64::INFINITY, 1.0), early(f64::INFINITY, 3.0)], [true, false]);
        let nothing = TaskFacts { max_iterations: f64::INFINITY, ..TaskFacts::default() };
        assert!(!Resources::of(&nothing, 1, 1, 1.0, 1.0).is_early());
    }

    #[test]
    fn implausible_limits_are_ignored() {
        for wrong in [f64::NAN, f64::INFINITY, 1e300, 0.0, -1.0] {
            let facts = TaskFacts { max_iterations: wrong, max_cost_usd: Some(wrong), ..TaskFacts::default() };
            let resources = Resources::of(&facts, 8, 8, 1.0, 1.0);
            assert_eq!((resources.iterations.part(), resources.usd.remaining()), (0.0, None));
        }
    }
}
