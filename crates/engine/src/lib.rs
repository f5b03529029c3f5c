//! Intake, executor, timer, reconciler and supervisor, with their output: comments, notices, metrics, traces.

pub mod channels;
pub mod embed;
pub mod engine;
pub mod mcp;
pub mod render;
pub mod telemetry;

use ralph_agents::agent;
use ralph_agents::provider;
use ralph_config::config;
use ralph_core::domain;
use ralph_forges::forge;
use ralph_host::net;
use ralph_host::process;
use ralph_store::store;
use ralph_types::clock;
use ralph_workspace::checks;
use ralph_workspace::workspace;
