//! The database: SQLite or PostgreSQL.

pub mod store;

use ralph_core::domain;
#[cfg(test)]
use ralph_core::property_cases;
use ralph_host::{net, process};
use ralph_types::clock;
