//! Limits that a loop has reached.

use super::aggregate::Loop;
use super::escalation::LoopLimit;
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::quantity::IterationLimit;

/// Returns a clause, in lower case, which states that all iterations of `limit` were used.
pub fn iterations_used(limit: IterationLimit) -> String {
    match limit.count() {
        Some(1) => "the only iteration is used".into(),
        _ => format!("all {limit} iterations are used"),
    }
}

impl Loop {
    /// Returns the limit that the loop has reached; `None` if work can continue.
    pub fn exhausted_limit(&self, now: Timestamp) -> Option<LoopLimit> {
        let (spent, limits) = (&self.spent, &self.limits);
        if limits.iterations.is_reached(spent.iterations) {
            Some(LoopLimit::Iterations)
        } else if spent.time_at(now) >= limits.time_ms {
            Some(LoopLimit::Time)
        } else if limits.cost > Money(0) && spent.cost >= limits.cost {
            Some(LoopLimit::Money)
        } else {
            None
        }
    }

    /// Returns the used part of the budget in percent, 0..=100: the larger share of the cost limit and the time limit.
    pub fn budget_percent(&self, now: Timestamp) -> u8 {
        let part = |used: i64, limit: i64| if limit > 0 { used.saturating_mul(100) / limit } else { 0 };
        let cost = part(self.spent.cost.0, self.limits.cost.0);
        let time = part(self.spent.time_at(now), self.limits.time_ms);
        u8::try_from(cost.max(time).clamp(0, 100)).unwrap_or(100)
    }

    /// Returns a sentence about the limit that the loop has reached, with the command that raises it. `None` if no limit is
    /// reached.
    pub fn exhausted_limit_hint(&self, now: Timestamp) -> Option<String> {
        let limits = &self.limits;
        Some(match self.exhausted_limit(now)? {
            LoopLimit::Iterations => {
                let (used, more) = (iterations_used(limits.iterations), limits.iterations.plus(5));
                let (first, rest) = used.split_at(1);
                format!("{}{rest}: `/ralph resume --max-iterations {more}`.", first.to_uppercase())
            }
            LoopLimit::Time => {
                let minutes = limits.time_ms / 60_000;
                format!("All {minutes} minutes are used: `/ralph resume --timeout {}m`.", minutes + 60)
            }
            LoopLimit::Money | LoopLimit::Outlook => {
                let more = Money(limits.cost.0.saturating_mul(2)).usd();
                format!("All of {} is used: `/ralph resume --budget {more:.2}`.", limits.cost)
            }
        })
    }
}
