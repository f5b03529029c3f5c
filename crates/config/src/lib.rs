//! The operator's file and the repository's file.

pub mod config;

use ralph_agents::agent;
use ralph_core::domain;
#[cfg(test)]
use ralph_core::property_cases;
