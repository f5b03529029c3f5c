//! Ledger of calls and cost over the last day. Older entries are merged.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Timestamp};

/// An hour, in milliseconds.
pub(super) const HOUR_MS: i64 = 3_600_000;
/// A day, in milliseconds.
pub(super) const DAY_MS: i64 = 24 * HOUR_MS;

/// Calls and cost by time, in ascending order. A merged entry counts until its newest call leaves the window. A limit is
/// therefore always observed, and capacity is released late by at most the width of one entry (1/30 of the window of calls, a
/// minute within an hour, 15 minutes within a day).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsageLedger(Vec<UsageEntry>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct UsageEntry {
    /// Time of the newest call in the entry.
    at: Timestamp,
    #[serde(default)]
    requests: u32,
    #[serde(default)]
    cost: Money,
}

impl UsageLedger {
    /// Adds calls and cost at `now`. Negative costs count as 0.
    pub(super) fn add(&mut self, requests: u32, cost: Money, now: Timestamp) {
        let cost = cost.max(Money(0));
        match self.0.last_mut() {
            Some(last) if last.at == now => {
                last.requests = last.requests.saturating_add(requests);
                last.cost = last.cost.plus(cost);
            }
            _ => self.0.push(UsageEntry { at: now, requests, cost }),
        }
    }

    /// Removes entries older than a day and merges old ones. Clamps timestamps in the future, which result from setting the clock
    /// back, to now.
    pub(super) fn settle(&mut self, window_ms: i64, now: Timestamp) {
        let mut merged: Vec<UsageEntry> = Vec::with_capacity(self.0.len());
        let mut last = None;
        for mut entry in self.0.drain(..) {
            entry.at = entry.at.min(now);
            let age = now.since(entry.at);
            if age >= DAY_MS.max(window_ms) {
                continue;
            }
            let width = match age {
                age if age < window_ms && window_ms < HOUR_MS => (window_ms / 30).max(1),
                age if age < HOUR_MS => 60_000,
                _ => 15 * 60_000,
            };
            let place = (width, entry.at.0.div_euclid(width));
            match merged.last_mut().filter(|_| last == Some(place)) {
                Some(into) => {
                    into.at = into.at.max(entry.at);
                    into.requests = into.requests.saturating_add(entry.requests);
                    into.cost = into.cost.plus(entry.cost);
                }
                None => merged.push(entry),
            }
            last = Some(place);
        }
        self.0 = merged;
    }

    fn within(&self, window_ms: i64, now: Timestamp) -> impl Iterator<Item = &UsageEntry> {
        self.0.iter().filter(move |entry| now.since(entry.at) < window_ms)
    }

    /// Returns the number of calls within the last `window_ms`.
    pub fn requests(&self, window_ms: i64, now: Timestamp) -> u32 {
        self.within(window_ms, now).fold(0, |sum, entry| sum.saturating_add(entry.requests))
    }

    /// Returns the cost within the last `window_ms`.
    pub fn cost(&self, window_ms: i64, now: Timestamp) -> Money {
        self.within(window_ms, now).fold(Money(0), |sum, entry| sum.plus(entry.cost))
    }

    /// Returns the earliest time at which at most `most` calls are within the last `window_ms`, provided that no call is added
    /// before.
    pub(super) fn requests_fall_to(&self, most: u32, window_ms: i64, now: Timestamp) -> Timestamp {
        let amount = |entry: &UsageEntry| i64::from(entry.requests);
        self.falls_to(i64::from(most), amount, window_ms, now)
    }

    /// Returns the earliest time at which at most `most` is the cost within the last `window_ms`, provided that no cost is added
    /// before.
    pub(super) fn cost_falls_to(&self, most: Money, window_ms: i64, now: Timestamp) -> Timestamp {
        self.falls_to(most.0, |entry| entry.cost.0, window_ms, now)
    }

    fn falls_to(&self, most: i64, amount: impl Fn(&UsageEntry) -> i64, window_ms: i64, now: Timestamp) -> Timestamp {
        let mut remaining = self.within(window_ms, now).fold(0_i64, |sum, entry| sum.saturating_add(amount(entry)));
        let mut free = now;
        for entry in self.within(window_ms, now) {
            if remaining <= most.max(0) {
                break;
            }
            remaining = remaining.saturating_sub(amount(entry));
            free = entry.at.min(now).plus_ms(window_ms);
        }
        free
    }

    /// Whether there was no call within the last day.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.0.len()
    }
}
