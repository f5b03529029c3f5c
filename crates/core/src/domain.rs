//! Functional core, which makes all decisions. No async, no I/O, no clock, no randomness; imports nothing from other layers.
//!
//! Each folder may use only the folders before it; `tests/tidy/layers.rs` has the table.

pub mod model;

pub mod checks;

pub mod supervision;

pub mod providers;

pub mod trust;

pub mod loops;

pub mod report;

pub mod knowledge;

pub mod lifecycle;
