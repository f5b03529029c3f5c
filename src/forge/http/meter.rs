//! Counts of requests to a forge, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use ::http::StatusCode;

/// Classes of answers.
const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "none"];
/// Value of a budget that is unknown.
const UNKNOWN: i64 = -1;

/// Requests to a forge since the start, by class of answers, and the remaining budget.
#[derive(Debug)]
pub struct CallMeter {
    requests: [AtomicU64; CLASSES.len()],
    remaining: AtomicI64,
}

impl Default for CallMeter {
    fn default() -> Self {
        Self { requests: Default::default(), remaining: AtomicI64::new(UNKNOWN) }
    }
}

impl CallMeter {
    /// Counts a request; `None` if there was no answer.
    pub fn count(&self, status: Option<StatusCode>) {
        let class = match status.map(|status| status.as_u16() / 100) {
            Some(0..=2) => 0,
            Some(3) => 1,
            Some(4) => 2,
            Some(_) => 3,
            None => 4,
        };
        self.requests[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Stores the remaining request quota, if the response stated it.
    pub fn note_remaining(&self, remaining: Option<u32>) {
        if let Some(remaining) = remaining {
            self.remaining.store(i64::from(remaining), Ordering::Relaxed);
        }
    }

    /// Returns the number of requests by class of answers.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.iter().zip(&self.requests).map(|(class, requests)| (*class, requests.load(Ordering::Relaxed)))
    }

    /// Returns the number of requests that the forge still takes; `None` if it never said it.
    pub fn remaining(&self) -> Option<u32> {
        u32::try_from(self.remaining.load(Ordering::Relaxed)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_class() {
        let meter = CallMeter::default();
        assert_eq!(meter.remaining(), None);
        for status in [Some(200), Some(201), Some(304), Some(429), Some(503), None] {
            meter.count(status.map(|status| StatusCode::from_u16(status).expect("a status")));
        }
        meter.note_remaining(Some(17));
        meter.note_remaining(None);
        let counted: Vec<_> = meter.requests().collect();
        assert_eq!(counted, [("2xx", 2), ("3xx", 1), ("4xx", 1), ("5xx", 1), ("none", 1)]);
        assert_eq!(meter.remaining(), Some(17));
    }
}
