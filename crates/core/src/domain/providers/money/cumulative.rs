//! Cumulative usage: CLIs report totals of a session, from which the usage of a single run is computed.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::Money;
use crate::domain::providers::prices::TokenUsage;

/// Tokens and cost of a session, as reported by its CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cumulative {
    /// Used tokens.
    pub usage: TokenUsage,
    /// Cost; `None` if the CLI reports none.
    pub cost: Option<Money>,
}

impl Cumulative {
    /// Returns the usage of one run that resumed a session. `before` has the figures before the run, `self` those after it.
    ///
    /// Some versions of some CLIs restart their totals with each run. The figures are totals of the session if they are at least
    /// the earlier figures plus the tokens that the run was `seen` to use. Otherwise they are the figures of the run alone. No
    /// field of the result is negative or exceeds `self`.
    pub fn since(self, before: &Self, seen: u64) -> Self {
        let (then, now) = (&before.usage, &self.usage);
        if now.total() < then.total().saturating_add(seen) {
            return self;
        }
        let usage = TokenUsage {
            input: now.input.saturating_sub(then.input),
            output: now.output.saturating_sub(then.output),
            cache_read: now.cache_read.saturating_sub(then.cache_read),
            cache_write: now.cache_write.saturating_sub(then.cache_write),
        };
        // A sum of money that is lower than before was reset, independently of the tokens.
        let cost = self.cost.map(|now| match before.cost.unwrap_or_default() {
            then if now < then => now,
            then => Money(now.0.saturating_sub(then.0)),
        });
        Self { usage, cost }
    }
}
