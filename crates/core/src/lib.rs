//! The functional core of ralph-bot: all of its decisions. No async, no I/O, no clock, no randomness.

pub mod domain;
#[cfg(any(test, feature = "testing"))]
pub mod property_cases;
