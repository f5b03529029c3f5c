//! Counts of requests to a forge, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use ::http::StatusCode;

/// Status classes of responses.
const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "none"];
/// Value for an unknown quota.
const UNKNOWN: i64 = -1;

/// Number of requests to a forge since the start, by status class, and the remaining quota.
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
    /// Counts a request; `None` if there was no response.
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

    /// Stores the remaining request quota if the response reported it.
    pub fn note_remaining(&self, remaining: Option<u32>) {
        if let Some(remaining) = remaining {
            self.remaining.store(i64::from(remaining), Ordering::Relaxed);
        }
    }

    /// Returns the number of requests by status class.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.iter().zip(&self.requests).map(|(class, requests)| (*class, requests.load(Ordering::Relaxed)))
    }

    /// Returns the remaining request quota; `None` if the forge never reported it.
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
