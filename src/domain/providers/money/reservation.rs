//! Money of one run: from its likely cost to its real cost.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Timestamp};

/// Likely cost of a run if no similar run is known: $0.50.
pub const LIKELY_DEFAULT: Money = Money(500_000);

/// Maximum number of past runs that count, newest first.
const PAST_MAX: usize = 20;

/// Returns the likely cost of a run: mean plus one standard deviation of the newest runs of the same loop or model,
/// newest first (at most 20 are used); [`LIKELY_DEFAULT`] without any.
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

/// End of a run with regard to its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With a cost, reported or estimated.
    Cost(Money),
    /// The process or its end was lost, or it reported no cost.
    Lost,
    /// It never ran.
    NeverRan,
}

/// Money that is reserved for a run until it is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Time of the reservation.
    pub at: Timestamp,
    /// Reserved amount.
    pub amount: Money,
    /// Cost reported by the event stream so far; `None` before the first report.
    pub shown: Option<Money>,
}

impl Reservation {
    /// Creates the reservation of a run that begins.
    pub fn new(amount: Money, at: Timestamp) -> Self {
        Self { at, amount: Money(amount.0.max(0)), shown: None }
    }

    /// Returns this reservation after the stream reported the cost so far. The cost never decreases.
    pub fn showing(self, cost: Money) -> Self {
        Self { shown: Some(self.shown.unwrap_or_default().max(cost)), ..self }
    }

    /// Returns the held amount: the reserved amount, or the reported cost if it is higher.
    pub fn held(&self) -> Money {
        self.amount.max(self.shown.unwrap_or_default())
    }

    /// Returns the amount to book. A lost run costs what its stream reported, or the reserved amount if it reported
    /// nothing.
    pub fn settle(&self, ending: Ending) -> Money {
        let money = match ending {
            Ending::Cost(cost) => cost,
            Ending::Lost => self.shown.unwrap_or(self.amount),
            Ending::NeverRan => Money(0),
        };
        Money(money.0.max(0))
    }
}
