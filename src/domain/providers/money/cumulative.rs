//! Figures that a CLI sums up over a session, split by run.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::Money;
use crate::domain::providers::prices::TokenUsage;

/// Tokens and cost of a session, as its CLI reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cumulative {
    /// Tokens.
    pub usage: TokenUsage,
    /// Cost, if the CLI reports one.
    pub cost: Option<Money>,
}

impl Cumulative {
    /// Returns the usage of one run that resumed a session with the figures `before`; `self` has the figures after the run.
    ///
    /// Some CLIs (and only some versions of them) start counting again with each run. The figures are those of the whole
    /// session if they contain the earlier figures and, in addition, the tokens that the run itself was `seen` to use.
    /// Otherwise they are those of the run. No field is negative or above these figures.
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
        // A sum of money that is lower than before was begun anew, whatever the tokens say.
        let cost = self.cost.map(|now| match before.cost.unwrap_or_default() {
            then if now < then => now,
            then => Money(now.0.saturating_sub(then.0)),
        });
        Self { usage, cost }
    }
}
