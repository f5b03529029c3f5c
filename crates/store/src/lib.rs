//! The database: SQLite or PostgreSQL.

pub mod store;

use ralph_core::domain;
use ralph_host::{net, process};
use ralph_types::clock;
