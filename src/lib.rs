//! ralph-bot: turns a labeled issue into a supervised loop of coding-agent runs and a verified pull request.
//!
//! `domain` makes all decisions without I/O; the other modules perform I/O and make no decisions. ARCHITECTURE.md
//! contains a map.

pub mod agent;
pub mod app;
pub mod channels;
pub mod checks;
pub mod cli;
pub mod config;
pub mod domain;
pub mod embed;
pub mod engine;
pub mod forge;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod http;
pub mod mcp;
pub mod net;
pub mod process;
#[cfg(test)]
mod property_cases;
pub mod provider;
pub mod render;
pub mod setup;
pub mod store;
pub mod telemetry;
pub mod web;
pub mod workspace;

pub use ralph_types::clock;
