//! The only reader of the system's clock; everything else takes time as a value.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::domain::ids::Timestamp;

/// Where "now" comes from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A clock that moves only when told to (tests, simulation).
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `start` until it is moved.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.0)))
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        match self {
            #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
            Self::System => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Self::Manual(ms) => Timestamp(ms.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock on by `ms` milliseconds; the system's clock is left alone.
    pub fn advance_ms(&self, ms: i64) {
        if let Self::Manual(now) = self {
            now.fetch_add(ms, Ordering::SeqCst);
        }
    }
}

/// A stretch of monotonic time, for durations that are only reported.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}
