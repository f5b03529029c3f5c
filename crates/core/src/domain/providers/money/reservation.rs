//! Reservation of money for one run, from its likely cost to its real cost.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Timestamp};

/// Likely cost of a run without similar earlier runs: $0.50.
pub const LIKELY_DEFAULT: Money = Money(500_000);

/// Maximum number of earlier runs that are considered, newest first.
const PAST_MAX: usize = 20;

/// Returns the likely cost of a run: mean plus one standard deviation of earlier runs of the same loop or model. `past` has their
/// costs, newest first, of which at most 20 are used. Returns [`LIKELY_DEFAULT`] if it is empty.
pub fn likely_cost(past: &[Money]) -> Money {
    let past = &past[..past.len().min(PAST_MAX)];
    if past.is_empty() {
        return LIKELY_DEFAULT;
    }
    let count = past.len() as f64;
    let costs = || past.iter().map(|money| money.usd().max(0.0));
    let mean = costs().sum::<f64>() / count;
    let variance = costs().map(|cost| (cost - mean).powi(2)).sum::<f64>() / count;
    Money::from_usd(mean + variance.sqrt())
}

/// End of a run, as far as its cost is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The run ended with this cost, reported or estimated.
    Cost(Money),
    /// The process or its end was lost.
    Lost {
        /// Minimum amount to book, because the reported cost may be incomplete; 0 if the run reported each request before it sent
        /// the request.
        at_least: Money,
    },
    /// The run never started.
    NeverRan,
}

/// Money that is reserved for a run until it is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Time of the reservation.
    pub at: Timestamp,
    /// Reserved amount.
    pub amount: Money,
    /// Cost that the event stream has reported so far; `None` before the first report.
    pub shown: Option<Money>,
}

impl Reservation {
    /// Creates the reservation for a run that starts.
    pub fn new(amount: Money, at: Timestamp) -> Self {
        Self { at, amount: Money(amount.0.max(0)), shown: None }
    }

    /// Returns the reservation updated with the cost that the stream reported. The reported cost never decreases.
    pub fn showing(self, cost: Money) -> Self {
        Self { shown: Some(self.shown.unwrap_or_default().max(cost)), ..self }
    }

    /// Returns the amount to hold back: the reserved amount, or the reported cost if that is higher.
    pub fn held(&self) -> Money {
        self.amount.max(self.shown.unwrap_or_default())
    }

    /// Returns the amount to book. For a lost run, this is the reported cost, or the reserved amount if there was no report, but
    /// at least the given minimum.
    pub fn settle(&self, ending: Ending) -> Money {
        let money = match ending {
            Ending::Cost(cost) => cost,
            Ending::Lost { at_least } => self.shown.unwrap_or(self.amount).max(at_least),
            Ending::NeverRan => Money(0),
        };
        Money(money.0.max(0))
    }
}
