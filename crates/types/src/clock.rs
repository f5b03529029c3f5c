//! The only reader of the system's clock; everything else takes time as a value.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::ids::Timestamp;

/// Where "now" comes from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A clock that moves only when told to (tests, simulation).
    Manual(Arc<Manual>),
}

/// What a manual clock shows, milliseconds, and how much time has passed.
#[derive(Debug)]
pub struct Manual {
    shown: AtomicI64,
    passed: AtomicI64,
}

impl Clock {
    /// A clock that stands at `start` until it is moved.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(Manual { shown: AtomicI64::new(start.0), passed: AtomicI64::new(0) }))
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        match self {
            #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
            Self::System => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Self::Manual(manual) => Timestamp(manual.shown.load(Ordering::SeqCst)),
        }
    }

    /// Milliseconds that have passed since some moment of this process, whatever the clock was set to meanwhile.
    fn passed_ms(&self) -> i64 {
        static START: LazyLock<Stopwatch> = LazyLock::new(Stopwatch::start);
        match self {
            Self::System => i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX),
            Self::Manual(manual) => manual.passed.load(Ordering::SeqCst),
        }
    }

    /// Lets `ms` milliseconds pass on a manual clock; the system's clock is left alone.
    pub fn advance_ms(&self, ms: i64) {
        self.set_ahead_ms(ms);
        if let Self::Manual(manual) = self {
            manual.passed.fetch_add(ms, Ordering::SeqCst);
        }
    }

    /// Sets a manual clock ahead by `ms` milliseconds, or back, without any time passing; the system's is left alone.
    pub fn set_ahead_ms(&self, ms: i64) {
        if let Self::Manual(manual) = self {
            manual.shown.fetch_add(ms, Ordering::SeqCst);
        }
    }
}

/// Difference between what a clock shows and the time that passed from which on it was set anew, milliseconds.
const SET_ANEW_MS: i64 = 60_000;
/// By so much no clock is set that was right before, milliseconds.
const DOUBTFUL_MS: i64 = 24 * 3_600_000;

/// Notices that a clock was set anew: by hand, by a first answer of the time server, or as the machine woke up.
#[derive(Debug, Clone)]
pub struct ClockWatch {
    clock: Clock,
    /// What the clock showed when it was last looked at, and what had passed.
    seen: (Timestamp, i64),
    doubtful: bool,
    /// Whether this process tells the loops of it; a runner leaves that to whoever decides.
    pub tells: bool,
}

impl ClockWatch {
    /// Watches from now on.
    pub fn new(clock: Clock) -> Self {
        let seen = (clock.now(), clock.passed_ms());
        Self { clock, seen, doubtful: false, tells: true }
    }

    /// By how many milliseconds the clock was set ahead (or back, below 0) since this was last asked; `None` where it was
    /// left alone.
    pub fn set_by_ms(&mut self) -> Option<i64> {
        let (now, passed) = (self.clock.now(), self.clock.passed_ms());
        let (then, had_passed) = std::mem::replace(&mut self.seen, (now, passed));
        let by = now.0.saturating_sub(then.0).saturating_sub(passed - had_passed);
        self.doubtful |= by.saturating_abs() >= DOUBTFUL_MS;
        (by.saturating_abs() >= SET_ANEW_MS).then_some(by)
    }

    /// Whether it was set by days while this watched: what is old by such a clock may not be.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_anew_is_noticed_once() {
        let clock = Clock::manual(Timestamp(1_000));
        let mut watch = ClockWatch::new(clock.clone());
        clock.advance_ms(10 * DOUBTFUL_MS);
        assert_eq!(watch.set_by_ms(), None, "time passed");
        clock.set_ahead_ms(SET_ANEW_MS - 1);
        assert_eq!(watch.set_by_ms(), None, "a small correction");
        clock.advance_ms(500);
        clock.set_ahead_ms(-SET_ANEW_MS);
        assert_eq!((watch.set_by_ms(), watch.set_by_ms()), (Some(-SET_ANEW_MS), None));
        assert!(!watch.is_doubtful());
        clock.set_ahead_ms(DOUBTFUL_MS);
        assert_eq!(watch.set_by_ms(), Some(DOUBTFUL_MS));
        assert!(watch.is_doubtful());
        assert_eq!(ClockWatch::new(Clock::System).set_by_ms(), None);
    }
}
