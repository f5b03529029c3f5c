//! The functional core of ralph-bot: what decides. No async, no I/O, no clock, no randomness.

pub mod domain;
#[cfg(any(test, feature = "testing"))]
pub mod property_cases;
