//! Clock of the service. No other code reads the system clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::ids::Timestamp;

/// Source of the current time.
#[derive(Debug, Clone)]
pub enum Clock {
    /// System clock.
    System,
    /// Clock of a server, which several hosts share, because the system clock of a host may be wrong.
    Shared(Arc<SharedClock>),
    /// Clock that tests and simulations advance explicitly.
    Manual(Arc<Manual>),
}

/// State of a shared clock: the server's time when the monotonic time of this process was 0, in milliseconds.
#[derive(Debug)]
pub struct SharedClock {
    origin: AtomicI64,
}

/// State of a manual clock: its time and the elapsed time, in milliseconds.
#[derive(Debug)]
pub struct Manual {
    shown: AtomicI64,
    passed: AtomicI64,
}

impl Clock {
    /// Creates a manual clock set to `start`.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(Manual { shown: AtomicI64::new(start.0), passed: AtomicI64::new(0) }))
    }

    /// Creates a clock that shows the time of a server.
    pub fn shared(server: Timestamp) -> Self {
        let clock = Self::Shared(Arc::new(SharedClock { origin: AtomicI64::new(0) }));
        clock.follow(server);
        clock
    }

    /// Sets a shared clock to the current time of its server; does nothing for other clocks.
    pub fn follow(&self, server: Timestamp) {
        if let Self::Shared(shared) = self {
            shared.origin.store(server.0.saturating_sub(monotonic_ms()), Ordering::SeqCst);
        }
    }

    /// Whether the clock shows the time of a server.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        match self {
            #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
            Self::System => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Self::Shared(shared) => Timestamp(shared.origin.load(Ordering::SeqCst).saturating_add(monotonic_ms())),
            Self::Manual(manual) => Timestamp(manual.shown.load(Ordering::SeqCst)),
        }
    }

    /// Returns a monotonic time, in milliseconds since a fixed point in this process. Changes of the system clock do not
    /// affect it.
    fn passed_ms(&self) -> i64 {
        match self {
            Self::System | Self::Shared(_) => monotonic_ms(),
            Self::Manual(manual) => manual.passed.load(Ordering::SeqCst),
        }
    }

    /// Advances a manual clock and its elapsed time by `ms` milliseconds; does nothing for the system clock.
    pub fn advance_ms(&self, ms: i64) {
        self.set_ahead_ms(ms);
        if let Self::Manual(manual) = self {
            manual.passed.fetch_add(ms, Ordering::SeqCst);
        }
    }

    /// Moves a manual clock forward or, if `ms` is negative, back by `ms` milliseconds. The elapsed time does not change, as
    /// when an administrator sets the clock. Does nothing for the system clock.
    pub fn set_ahead_ms(&self, ms: i64) {
        if let Self::Manual(manual) = self {
            manual.shown.fetch_add(ms, Ordering::SeqCst);
        }
    }
}

/// Returns the monotonic time since a fixed point in this process, in milliseconds.
fn monotonic_ms() -> i64 {
    static START: LazyLock<Stopwatch> = LazyLock::new(Stopwatch::start);
    i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// Minimum difference between clock time and elapsed time that counts as a clock change, in milliseconds. Smaller
/// differences are drift.
const SET_ANEW_MS: i64 = 60_000;
/// Minimum clock change that makes stored times unreliable, in milliseconds.
const DOUBTFUL_MS: i64 = 24 * 3_600_000;

/// Detects clock changes: manual changes, corrections by a time server, and suspends of the machine.
#[derive(Debug, Clone)]
pub struct ClockWatch {
    clock: Clock,
    /// Clock time and elapsed time at the last check.
    seen: (Timestamp, i64),
    doubtful: bool,
    /// Whether this process reports clock changes to the loops. False in runners, because the service reports them, and with a
    /// shared clock, whose time passed for all hosts.
    pub tells: bool,
}

impl ClockWatch {
    /// Creates a watch that starts at the current time.
    pub fn new(clock: Clock) -> Self {
        let seen = (clock.now(), clock.passed_ms());
        Self { clock, seen, doubtful: false, tells: true }
    }

    /// Returns the clock change since the last call, in milliseconds (negative if set back); `None` if the clock was not
    /// changed.
    pub fn set_by_ms(&mut self) -> Option<i64> {
        let (now, passed) = (self.clock.now(), self.clock.passed_ms());
        let (then, had_passed) = std::mem::replace(&mut self.seen, (now, passed));
        let by = now.0.saturating_sub(then.0).saturating_sub(passed - had_passed);
        self.doubtful |= by.saturating_abs() >= DOUBTFUL_MS;
        (by.saturating_abs() >= SET_ANEW_MS).then_some(by)
    }

    /// Whether the clock ever changed by a day or more, which makes stored times unreliable.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful
    }
}

/// Stopwatch that measures durations on a monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts a measurement.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_clock_shows_the_time_of_its_server() {
        let clock = Clock::shared(Timestamp(5_000_000));
        let copy = clock.clone();
        assert!((5_000_000..5_010_000).contains(&copy.now().0), "{:?}", copy.now());
        clock.follow(Timestamp(9_000_000));
        assert!((9_000_000..9_010_000).contains(&copy.now().0), "{:?}", copy.now());
        Clock::System.follow(Timestamp(0));
        assert!(Clock::System.now() > Timestamp(9_010_000), "a host without a server has its own clock");
    }

    #[test]
    fn clock_change_is_reported_once() {
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
