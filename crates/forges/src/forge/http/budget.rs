//! Quota of mutating requests that the service sets itself, below the limit at which a forge refuses them.

use std::collections::VecDeque;

use crate::domain::model::ids::Timestamp;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;
/// Divisor of the quota: one part of this many is reserved for changes other than decorations.
const RESERVE_DIVISOR: usize = 5;

/// Pace of mutating requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutationPace {
    /// Minimum time between two requests, in milliseconds.
    pub interval_ms: i64,
    /// Maximum numbers of requests; `None` for no limit.
    pub budget: Option<MutationBudget>,
}

/// Maximum numbers of mutating requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutationBudget {
    /// Maximum number in any minute.
    pub per_minute: usize,
    /// Maximum number in any hour.
    pub per_hour: usize,
}

impl MutationPace {
    /// Pace for GitHub: one second between two requests, at most 80 per minute and 500 per hour.
    pub const GITHUB: Self =
        Self { interval_ms: 1_000, budget: Some(MutationBudget { per_minute: 80, per_hour: 500 }) };
    /// Pace without waits and limits; Gitea and Forgejo require none.
    pub const UNLIMITED: Self = Self { interval_ms: 0, budget: None };

    /// Returns the pace with the operator's interval. An interval of 0 also removes the quota.
    pub fn with_interval(self, interval_ms: Option<i64>) -> Self {
        match interval_ms {
            None => self,
            Some(0) => Self::UNLIMITED,
            Some(interval_ms) => Self { interval_ms, ..self },
        }
    }
}

/// Times of the mutating requests of the last hour, oldest first.
#[derive(Debug, Default)]
pub(super) struct MutationLog(VecDeque<Timestamp>);

impl MutationLog {
    /// Returns the time until the quota allows a request, in milliseconds. `None` if it is allowed now; the request is
    /// then recorded. Decorations may not use the last fifth of the quota.
    pub(super) fn admit(&mut self, budget: MutationBudget, decoration: bool, now: Timestamp) -> Option<i64> {
        // Later times were recorded before the clock was set back.
        self.0.retain(|at| *at <= now && now.since(*at) < HOUR_MS);
        let share = |all: usize| if decoration { all - all / RESERVE_DIVISOR } else { all };
        let wait = |all: usize, window: i64| {
            let newest = self.0.iter().rev();
            let oldest_counted = newest.take_while(|at| now.since(**at) < window).nth(share(all).saturating_sub(1));
            oldest_counted.map(|at| at.plus_ms(window).since(now))
        };
        let wait = wait(budget.per_minute, MINUTE_MS).max(wait(budget.per_hour, HOUR_MS));
        if wait.is_none() {
            self.0.push_back(now);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: MutationBudget = MutationBudget { per_minute: 5, per_hour: 8 };

    #[test]
    fn budget_counts_a_sliding_minute_and_hour() {
        let mut log = MutationLog::default();
        let sent: Vec<_> = (0..6).map(|n| log.admit(BUDGET, false, Timestamp(n * 1_000))).collect();
        assert_eq!(
            sent,
            [None, None, None, None, None, Some(55_000)],
            "the sixth waits for the first to be a minute old"
        );
        assert_eq!(log.admit(BUDGET, false, Timestamp(60_000)), None);
        let later = Timestamp(200_000);
        assert_eq!((log.admit(BUDGET, false, later), log.admit(BUDGET, false, later)), (None, None));
        assert_eq!(log.admit(BUDGET, false, later), Some(HOUR_MS - 200_000), "the hour's are used up");
        assert_eq!(log.admit(BUDGET, false, Timestamp(HOUR_MS)), None);
    }

    #[test]
    fn decorations_do_not_use_the_reserve() {
        let mut log = MutationLog::default();
        assert!((0..4).all(|_| log.admit(BUDGET, true, Timestamp(0)).is_none()));
        assert_eq!(log.admit(BUDGET, true, Timestamp(1)), Some(59_999));
        assert_eq!(log.admit(BUDGET, false, Timestamp(1)), None, "what people wait for is sent");
    }

    #[test]
    fn clock_set_back_does_not_use_the_budget() {
        let mut log = MutationLog::default();
        assert!((0..5).all(|_| log.admit(BUDGET, false, Timestamp(HOUR_MS)).is_none()));
        assert_eq!(log.admit(BUDGET, false, Timestamp(0)), None);
    }
}
