//! Logging and metrics.
