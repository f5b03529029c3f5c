//! ralph-bot: turns a labeled issue into a supervised loop of coding-agent runs and a verified pull request.
//!
//! `domain` makes all decisions without I/O; the other modules perform I/O and make no decisions. ARCHITECTURE.md
//! contains a map. Most modules are crates of `crates/`.

pub mod app;
pub mod cli;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod setup;

pub use ralph_agents::{agent, provider};
pub use ralph_config::config;
pub use ralph_core::domain;
pub use ralph_engine::{channels, embed, engine, mcp, render, telemetry};
pub use ralph_forges::forge;
pub use ralph_host::{net, process};
pub use ralph_store::store;
pub use ralph_types::clock;
pub use ralph_web::{http, web};
pub use ralph_workspace::{checks, workspace};
