//! Configured thresholds of backends: which ones are reached, and when capacity is available again.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ledger::{DAY_MS, HOUR_MS};
use super::settings::BackendThresholds;
use super::state::BackendState;
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::quantity::Usd;

/// Share of a threshold that must be free before a backend that reached it is used again. Without it, a loop would switch back
/// for a single call.
const ROOM: f64 = 0.25;

/// Configured threshold of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// `max_requests_per_window`
    Requests,
    /// `max_cost_per_hour`
    CostPerHour,
    /// `max_cost_per_day`
    CostPerDay,
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "max_requests_per_window",
            Self::CostPerHour => "max_cost_per_hour",
            Self::CostPerDay => "max_cost_per_day",
        })
    }
}

/// Returns the threshold that is reached, and the time at which a quarter of it is free again. If several are reached, returns
/// the limit that resets last; `None` if none is.
pub(super) fn reached(
    backend: &BackendState,
    of: &BackendThresholds,
    now: Timestamp,
) -> Option<(Threshold, Timestamp)> {
    let window = of.window.as_millis();
    let room = |most: i64| most - (most as f64 * ROOM).ceil() as i64;
    let requests =
        of.max_requests_per_window.filter(|most| backend.ledger.requests(window, now) >= *most).map(|most| {
            let target = u32::try_from(room(i64::from(most))).unwrap_or(0);
            (Threshold::Requests, backend.ledger.requests_fall_to(target, window, now))
        });
    let cost = |most: Option<Usd>, window: i64, threshold: Threshold| {
        let most = most.map(|usd| usd.0).filter(|most| backend.ledger.cost(window, now) >= *most)?;
        Some((threshold, backend.ledger.cost_falls_to(Money(room(most.0)), window, now)))
    };
    let hour = cost(of.max_cost_per_hour, HOUR_MS, Threshold::CostPerHour);
    let day = cost(of.max_cost_per_day, DAY_MS, Threshold::CostPerDay);
    [requests, hour, day].into_iter().flatten().filter(|(_, until)| *until > now).max_by_key(|(_, until)| *until)
}

/// Returns the threshold that one more call of `likely` cost would exceed, and the time at which the call fits. If several would
/// be exceeded, returns the limit that resets last. Calls in flight count with their likely cost. If nothing was spent, a call of
/// any cost fits, because a call that costs more than the threshold would otherwise wait forever.
pub(super) fn crossed(
    backend: &BackendState,
    of: &BackendThresholds,
    likely: Money,
    now: Timestamp,
) -> Option<(Threshold, Timestamp)> {
    let window = of.window.as_millis();
    let requests = of.max_requests_per_window.map(|most| most.max(1)).and_then(|most| {
        let used = backend.ledger.requests(window, now);
        let free = || backend.ledger.requests_fall_to(most - 1, window, now);
        (used >= most).then(|| (Threshold::Requests, free()))
    });
    let reserved = backend.reserved();
    let cost = |most: Option<Usd>, window: i64, threshold: Threshold| {
        let (most, spent) = (most?.0, backend.ledger.cost(window, now));
        let used = spent.plus(reserved);
        let over = used > Money(0) && used.plus(likely.max(Money(0))) > most;
        let affordable = Money(most.0.saturating_sub(likely.0.max(0)).saturating_sub(reserved.0).max(0));
        // The cost of calls in flight leaves the ledger at most an hour, or a day, after it was spent.
        let free = if spent > affordable {
            backend.ledger.cost_falls_to(affordable, window, now)
        } else {
            now.plus_ms(60_000)
        };
        over.then_some((threshold, free))
    };
    let hour = cost(of.max_cost_per_hour, HOUR_MS, Threshold::CostPerHour);
    let day = cost(of.max_cost_per_day, DAY_MS, Threshold::CostPerDay);
    [requests, hour, day].into_iter().flatten().max_by_key(|(_, until)| *until)
}
