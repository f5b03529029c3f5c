//! Runs checks and reads test counts.

pub mod counts;
mod coverage;
mod reports;
mod run;

pub use run::{CheckRunner, ChecksError};
