//! Runs checks and reads test counts.

pub mod counts;
