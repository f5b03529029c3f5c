//! Runs checks and reads test counts.
