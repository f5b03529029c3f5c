//! The functional core: what decides. No async, no I/O, no clock, no randomness; imports nothing of the other layers.
//!
//! Eight folders with one direction between them (`tests/tidy.rs` has the table): each may use only those before it in the
//! list below.

pub mod model;

pub mod checks;
pub mod supervision;

pub mod providers;
pub mod trust;

pub mod knowledge;
pub mod report;

pub mod lifecycle;

pub mod simulate;
