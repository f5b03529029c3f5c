//! The HTTP side: webhooks in, health and metrics out. Takes deliveries and nothing else: what they mean is decided
//! elsewhere, later.

mod webhook;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tower_http::timeout::TimeoutLayer;

use crate::clock::Clock;
use crate::domain::model::ids::ForgeName;
use crate::domain::providers::backends::BackendStatus;
use crate::forge::signature::SignatureStyle;
use crate::store::{Store, calls, inbox, loops, outbox};
use crate::telemetry::Metrics;

/// Largest body that counts as a usual one, in bytes; most are a tenth of it.
const USUAL_BODY: usize = 256 * 1024;
/// What usual bodies take of the memory at the same time, in KiB.
const USUAL_BUDGET_KIB: usize = 32 * 1024;
/// What larger bodies take of the memory at the same time, in KiB: two of the largest.
const LARGE_BUDGET_KIB: usize = 52 * 1024;
/// Longest handling of a request, body included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A forge as its webhooks see it.
#[derive(Clone)]
pub struct Hook {
    /// Its configured name.
    pub name: ForgeName,
    /// Whose headers it sends.
    pub style: SignatureStyle,
    /// Any of these may have signed.
    pub secrets: Vec<SecretString>,
}

/// What the handlers share.
pub struct Edge {
    /// Where deliveries go.
    pub store: Store,
    /// When they came.
    pub clock: Clock,
    /// By the last part of the path.
    pub hooks: HashMap<String, Hook>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Tells intake in this process.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// Bounds what usual bodies take of the memory.
    usual: Semaphore,
    /// Bounds what larger ones take: those who announce much and send nothing hold up only their like.
    large: Semaphore,
}

impl Edge {
    /// The edge for some hooks. Paths are their names, and their kinds where there is only one of a kind.
    pub fn new(
        store: Store,
        clock: Clock,
        hooks: Vec<Hook>,
        metrics: Arc<Metrics>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        let mut by_path: HashMap<String, Hook> = hooks.iter().map(|h| (h.name.to_string(), h.clone())).collect();
        for style in [SignatureStyle::GitHub, SignatureStyle::Gitea] {
            let mut of_kind = hooks.iter().filter(|h| h.style == style);
            if let (Some(only), None) = (of_kind.next(), of_kind.next()) {
                let kinds: &[&str] = match style {
                    SignatureStyle::GitHub => &["github"],
                    SignatureStyle::Gitea => &["gitea", "forgejo"],
                };
                for kind in kinds {
                    by_path.entry((*kind).to_owned()).or_insert_with(|| only.clone());
                }
            }
        }
        let (usual, large) = (Semaphore::new(USUAL_BUDGET_KIB), Semaphore::new(LARGE_BUDGET_KIB));
        Self { store, clock, hooks: by_path, metrics, wake, usual, large }
    }
}

/// The routes.
pub fn router(edge: Arc<Edge>) -> Router {
    Router::new()
        .route("/webhooks/{forge}", post(webhook::take))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_TIMEOUT))
        .with_state(edge)
}

/// Whether deliveries can be taken.
async fn ready(State(edge): State<Arc<Edge>>) -> impl IntoResponse {
    if !edge.store.healthy() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the database failed\n".to_owned());
    }
    match edge.store.read(inbox::next_due).await {
        Ok(_) => (StatusCode::OK, "ready\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

async fn metrics(State(edge): State<Arc<Edge>>) -> impl IntoResponse {
    let (database, log) = edge.store.sizes();
    edge.metrics.stored(database, log);
    let counted = edge.store.read(|c| Ok((loops::counts(c)?, outbox::counts(c)?, inbox::counts(c)?))).await;
    if let Ok((loops, effects, deliveries)) = &counted {
        let due = deliveries.iter().filter(|(state, _)| !matches!(state.as_str(), "done" | "ignored"));
        edge.metrics.waiting("deliveries", due.map(|(_, n)| n).sum());
        edge.metrics.waiting("effects", effects.iter().map(|(_, n)| n).sum());
        for state in crate::domain::loops::LoopState::ALL.iter().filter(|s| s.is_open()) {
            let count = loops.iter().find(|(name, _)| name == state.as_str()).map_or(0, |(_, n)| *n);
            edge.metrics.loops_in_state(state.as_str(), i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
    if let Ok(known) = edge.store.read(calls::state).await {
        for (name, backend) in &known.backends {
            edge.metrics.backend_state(name, &BackendStatus::WORDS, backend.status.word(edge.clock.now()));
        }
    }
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], edge.metrics.encode())
}
