//! Places at which the service can be told to die, so that tests with the real binary see it die exactly there.
//!
//! A test seam that is a value: `RALPH_KILL=K24:2` in the environment of a start makes the process kill itself the second
//! time it comes past the point K24. Unarmed, which is always outside tests, a point costs one relaxed load. The names
//! are those of the catalogue of kill points.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::{Signal, getpid, kill_process};

/// Variable that arms a point: its name, or its name, a colon and which pass (from 1) is the last.
pub const VARIABLE: &str = "RALPH_KILL";

static ARMED: AtomicBool = AtomicBool::new(false);
static POINT: OnceLock<Point> = OnceLock::new();

#[derive(Debug)]
struct Point {
    name: String,
    /// Passes that are still survived, plus one.
    left: AtomicU32,
}

impl Point {
    /// Reads `NAME` or `NAME:PASS`.
    fn parse(text: &str) -> Option<Self> {
        let (name, pass) = text.split_once(':').unwrap_or((text, "1"));
        let pass: u32 = pass.parse().ok().filter(|pass| *pass > 0)?;
        (!name.is_empty()).then(|| Self { name: name.to_owned(), left: AtomicU32::new(pass) })
    }

    /// Whether this pass is the last.
    fn passes(&self, name: &str) -> bool {
        // Below zero it would wrap, but nobody lives to see that.
        self.name == name && self.left.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

/// Arms the point that the variable names; the first call decides. Errors when its text names none.
pub fn arm(text: &str) -> Result<(), String> {
    let point = Point::parse(text)
        .ok_or_else(|| format!("{VARIABLE}: expected the name of a kill point, as K24 or K24:2, not `{text}`"))?;
    tracing::warn!(?point, "this process is told to kill itself: a test");
    let _ = POINT.set(point);
    ARMED.store(true, Ordering::SeqCst);
    Ok(())
}

/// Dies here by SIGKILL, if so armed.
#[inline]
pub fn kill_point(name: &'static str) {
    if ARMED.load(Ordering::Relaxed) && POINT.get().is_some_and(|point| point.passes(name)) {
        let _ = kill_process(getpid(), Signal::KILL);
        // The signal may reach another thread first; nothing must happen here meanwhile.
        loop {
            std::thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_named_with_the_pass_that_is_the_last() {
        let passes = |text: &str, names: &[&str]| {
            let point = Point::parse(text).expect("a point");
            names.iter().map(|name| point.passes(name)).collect::<Vec<_>>()
        };
        assert_eq!(passes("K24", &["K23", "K24"]), [false, true]);
        assert_eq!(passes("K24:2", &["K24", "K2", "K24"]), [false, false, true]);
        for wrong in ["", ":1", "K24:", "K24:0", "K24:x", "K24:-1"] {
            assert!(Point::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn nothing_dies_unarmed() {
        kill_point("K24");
    }
}
