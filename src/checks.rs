//! Runs checks and reads test counts.

pub mod counts;
mod reports;
mod run;

pub use run::{CheckRunner, ChecksError};
