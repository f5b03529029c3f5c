//! Configuration files of the operator and of repositories.

pub mod config;

use ralph_agents::agent;
use ralph_core::domain;
