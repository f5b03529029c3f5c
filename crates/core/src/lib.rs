//! Functional core of ralph-bot, which makes all decisions. No async, no I/O, no clock, no randomness.

pub mod domain;
