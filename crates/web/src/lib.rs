//! Dashboard, API, webhooks, health and metrics over HTTP.

pub mod http;
pub mod web;

use ralph_config::config;
use ralph_core::domain;
use ralph_engine::engine;
use ralph_engine::render;
use ralph_engine::telemetry;
use ralph_forges::forge;
use ralph_host::net;
use ralph_store::store;
use ralph_types::clock;
