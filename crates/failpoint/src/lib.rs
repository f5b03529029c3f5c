//! Kill points: places in the code where a test can make the service kill itself or fill the disk of its database; and the
//! duration of leases in tests.
//!
//! With `RALPH_KILL=K24:2` in the environment, the process kills itself when it passes the point K24 the second time. With
//! `RALPH_KILL=full:K07,K24:2`, the next commits of the database fail after each of these points, as on a full disk.
//! `docs/research/faults.md` lists the points. Only tests compile them: without the feature `kill-points`, which the root
//! package enables in its dev-dependencies, the functions are empty and do not read the variable.

#[cfg(feature = "kill-points")]
pub use armed::{InvalidKillPoint, LEASE_VARIABLE, VARIABLE, arm, disk_is_full, kill_point, lease};
#[cfg(not(feature = "kill-points"))]
pub use disarmed::{arm, disk_is_full, kill_point, lease};

#[cfg(not(feature = "kill-points"))]
mod disarmed {
    use std::convert::Infallible;
    use std::time::Duration;

    /// Does nothing. With the feature `kill-points` it arms the points that an environment variable names.
    ///
    /// # Errors
    /// None, which the type states: the compiler then leaves the error's text out of a release at every level of optimization.
    #[inline(always)]
    pub fn arm<'a>(_read: impl FnOnce(&str) -> Option<&'a str>) -> Result<(), Infallible> {
        Ok(())
    }

    /// Does nothing. With the feature `kill-points` it kills the process at an armed point.
    #[inline(always)]
    pub fn kill_point(_name: &'static str) {}

    /// Returns `false`. With the feature `kill-points` it returns whether a commit must fail as on a full disk.
    #[inline(always)]
    pub fn disk_is_full() -> bool {
        false
    }

    /// Returns `None`. With the feature `kill-points` it returns the duration of a lease.
    #[inline(always)]
    pub fn lease<'a>(_read: impl FnOnce(&str) -> Option<&'a str>) -> Option<Duration> {
        None
    }
}

#[cfg(feature = "kill-points")]
mod armed {
    use std::fmt;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    /// Environment variable with the duration of a lease in seconds, so that tests of lost hosts need not wait for long ones.
    pub const LEASE_VARIABLE: &str = "RALPH_LEASE_S";
    /// Environment variable that arms a point. Its value is the point's name, optionally followed by a colon and the 1-based
    /// number of the pass, or `full:` and a list of points.
    pub const VARIABLE: &str = "RALPH_KILL";

    /// Value of [`VARIABLE`] that is not a kill point.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct InvalidKillPoint(String);

    impl fmt::Display for InvalidKillPoint {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{VARIABLE}: expected the name of a kill point, such as K24 or K24:2, found `{}`", self.0)
        }
    }

    impl std::error::Error for InvalidKillPoint {}

    /// Number of commits that fail after a point fills the disk.
    const FAILED_COMMITS: u32 = 4;
    /// Prefix of a list of points that fill the disk.
    const FILLS: &str = "full:";

    static ARMED: OnceLock<ArmedPoints> = OnceLock::new();
    /// Number of commits that must still fail.
    static COMMITS: AtomicU32 = AtomicU32::new(0);

    #[derive(Debug)]
    enum ArmedPoints {
        Kill(ArmedPoint),
        Fill(Vec<ArmedPoint>),
    }

    impl ArmedPoints {
        /// Parses a point, or `full:` and a list of points.
        fn parse(text: &str) -> Option<Self> {
            match text.strip_prefix(FILLS) {
                Some(list) => list.split(',').map(ArmedPoint::parse).collect::<Option<_>>().map(Self::Fill),
                None => ArmedPoint::parse(text).map(Self::Kill),
            }
        }
    }

    #[derive(Debug)]
    struct ArmedPoint {
        name: String,
        /// Remaining passes, including the fatal one.
        passes: AtomicU32,
    }

    impl ArmedPoint {
        /// Parses `NAME` or `NAME:PASS`.
        fn parse(text: &str) -> Option<Self> {
            let (name, pass) = text.split_once(':').unwrap_or((text, "1"));
            let pass: u32 = pass.parse().ok().filter(|pass| *pass > 0)?;
            (!name.is_empty()).then(|| Self { name: name.to_owned(), passes: AtomicU32::new(pass) })
        }

        /// Counts a pass; returns `true` if this pass kills the process.
        fn is_reached(&self, name: &str) -> bool {
            let count = |passes: u32| passes.checked_sub(1);
            self.name == name && self.passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) == Ok(1)
        }
    }

    /// Arms the kill point in [`VARIABLE`]; `read` returns the value of an environment variable. Later calls have no effect.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn arm<'a>(read: impl FnOnce(&str) -> Option<&'a str>) -> Result<(), InvalidKillPoint> {
        let Some(text) = read(VARIABLE) else { return Ok(()) };
        let points = ArmedPoints::parse(text).ok_or_else(|| InvalidKillPoint(text.to_owned()))?;
        tracing::warn!(?points, "this process will kill itself or fail at a kill point; only tests do this");
        let _ = ARMED.set(points);
        Ok(())
    }

    /// Returns the duration of a lease in [`LEASE_VARIABLE`]; `None` if it is not set.
    pub fn lease<'a>(read: impl FnOnce(&str) -> Option<&'a str>) -> Option<Duration> {
        read(LEASE_VARIABLE)?.parse().ok().map(Duration::from_secs)
    }

    /// Whether a commit must fail as on a full disk.
    pub fn disk_is_full() -> bool {
        COMMITS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// Kills the process with SIGKILL, or fills the disk, if this point is armed and has reached its number of passes.
    #[inline]
    pub fn kill_point(name: &'static str) {
        match ARMED.get() {
            Some(ArmedPoints::Kill(point)) if point.is_reached(name) => {
                let _ = kill_process(getpid(), Signal::KILL);
                // The signal may reach another thread first, but this thread must not continue.
                loop {
                    std::thread::park();
                }
            }
            Some(ArmedPoints::Fill(points)) if points.iter().any(|point| point.is_reached(name)) => {
                tracing::warn!(name, "the disk is full for some commits; only tests do this");
                COMMITS.store(FAILED_COMMITS, Ordering::SeqCst);
            }
            _ => {}
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn points_are_parsed_with_the_pass_that_kills() {
            let reached = |text: &str, names: &[&str]| {
                let point = ArmedPoint::parse(text).expect("a point");
                names.iter().map(|name| point.is_reached(name)).collect::<Vec<_>>()
            };
            assert_eq!(reached("K24", &["K23", "K24"]), [false, true]);
            assert_eq!(reached("K24:2", &["K24", "K2", "K24"]), [false, false, true]);
            for invalid in ["", ":1", "K24:", "K24:0", "K24:x", "K24:-1"] {
                assert!(ArmedPoint::parse(invalid).is_none(), "{invalid}");
                assert!(ArmedPoints::parse(&format!("full:K01,{invalid}")).is_none(), "{invalid}");
            }
            assert!(
                matches!(ArmedPoints::parse("full:K01,K24:2"), Some(ArmedPoints::Fill(points)) if points.len() == 2)
            );
        }

        #[test]
        fn invalid_values_are_refused_and_missing_ones_ignored() {
            assert_eq!(arm(|_| None), Ok(()));
            let refused = arm(|variable| (variable == "RALPH_KILL").then_some("K24:0")).expect_err("refused");
            assert!(refused.to_string().contains("found `K24:0`"), "{refused}");
            kill_point("K24");
            assert!(!disk_is_full());
        }
    }
}

#[cfg(all(test, not(feature = "kill-points")))]
mod tests {
    #[test]
    fn variable_is_not_read_without_the_feature() {
        assert_eq!(super::arm(|_| panic!("the variable was read")), Ok(()));
        super::kill_point("K24");
        assert!(!super::disk_is_full());
    }
}
