//! Coding agents, the broker of their keys, and models over HTTP.

pub mod agent;
pub mod provider;

use ralph_core::domain;
use ralph_host::net;
use ralph_host::process;
use ralph_types::clock;
