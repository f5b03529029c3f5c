//! HTTP server for webhooks, health and metrics. It only stores deliveries; the intake processes them later.

mod room;
mod webhook;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use secrecy::SecretString;
use tower_http::timeout::TimeoutLayer;

use self::room::BodyRoom;
use crate::clock::Clock;
use crate::domain::model::host::{ListedHost, LoopWithoutHost};
use crate::domain::model::ids::{ForgeName, RepoId, Timestamp};
use crate::domain::providers::backends::BackendStatus;
use crate::forge::signature::SignatureStyle;
use crate::store::memory::{self, LearningCounts};
use crate::store::sql::Connection;
use crate::store::{Store, calls, hosts, inbox, installation, loops, outbox};
use crate::telemetry::{Metrics, OPENMETRICS, PLAIN_TEXT};

/// Time limit of a request, including its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Webhook endpoint of a forge.
#[derive(Clone)]
pub struct Hook {
    /// Configured name of the forge.
    pub name: ForgeName,
    /// Kind of the forge, which determines the headers.
    pub style: SignatureStyle,
    /// Secrets for deliveries about repositories without a separate secret. There are several during a rotation.
    pub secrets: Vec<SecretString>,
    /// Secrets of single repositories. Each is valid only for deliveries about its repository.
    pub of_repositories: HashMap<RepoId, Vec<SecretString>>,
}

/// State shared by the handlers.
pub struct HttpState {
    /// Database for deliveries.
    pub store: Store,
    /// Source of the current time.
    pub clock: Clock,
    /// Endpoints, by the last path segment.
    pub hooks: HashMap<String, Hook>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Wakes the intake in this process.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// Function that returns a line for each unavailable forge.
    pub absent: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Function that updates the metrics measured on request.
    pub measure: Arc<dyn Fn(&Metrics) + Send + Sync>,
    /// Memory budget for the bodies of deliveries.
    room: BodyRoom,
}

impl HttpState {
    /// Creates the state. The path segments are the forges' names, and also a forge's kind if it is the only one of its
    /// kind.
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
        let (absent, measure) = (Arc::new(Vec::new), Arc::new(|_: &Metrics| {}));
        Self { store, clock, hooks: by_path, metrics, wake, absent, measure, room: BodyRoom::default() }
    }
}

/// Returns the routes.
pub fn router(edge: Arc<HttpState>) -> Router {
    routes(Router::new().route("/webhooks/{forge}", post(webhook::take)), edge)
}

/// Returns the routes for health and metrics, without the route for deliveries.
pub fn metrics_router(edge: Arc<HttpState>) -> Router {
    routes(Router::new(), edge)
}

fn routes(others: Router<Arc<HttpState>>, edge: Arc<HttpState>) -> Router {
    others
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_TIMEOUT))
        .with_state(edge)
}

/// Returns whether the service can accept deliveries, which does not depend on forges, the unavailable forges, the hosts, and the loops that no host may execute.
async fn ready(State(edge): State<Arc<HttpState>>) -> impl IntoResponse {
    if !edge.store.healthy() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the database failed\n".to_owned());
    }
    let now = edge.clock.now();
    let has_hosts = edge.store.is_server();
    let read = move |c: &Connection| {
        inbox::next_due(c)?;
        let hosts = if has_hosts { hosts::all(c, now)? } else { Vec::new() };
        Ok((hosts, hosts::loops_without_host(c, now)?))
    };
    match edge.store.read(read).await {
        Ok((hosts, waiting)) => {
            let hosts = hosts.iter().map(ListedHost::line).chain(waiting.iter().map(LoopWithoutHost::line));
            let lines: String = (edge.absent)().into_iter().chain(hosts).map(|line| format!("{line}\n")).collect();
            (StatusCode::OK, format!("ready\n{lines}"))
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

async fn metrics(State(edge): State<Arc<HttpState>>, headers: HeaderMap) -> impl IntoResponse {
    let (database, log) = edge.store.sizes().await;
    edge.metrics.stored(database, log);
    (edge.measure)(&edge.metrics);
    let now = edge.clock.now();
    let counted = edge.store.read(move |c| {
        let backup = installation::get(c, installation::BACKUP)?;
        Ok((loops::counts(c)?, outbox::queues(c, now)?, inbox::queue(c, now)?, backup))
    });
    if let Ok((loops, queues, (deliveries, oldest), backup)) = counted.await {
        let age = |since: Option<Timestamp>| since.map_or(0, |since| now.since(since));
        edge.metrics.queue("deliveries", deliveries, age(oldest));
        queues.into_iter().for_each(|(queue, length, oldest)| edge.metrics.queue(queue, length, age(oldest)));
        for state in crate::domain::loops::LoopState::ALL.iter().filter(|s| s.is_open()) {
            let count = loops.iter().find(|(name, _)| name == state.as_str()).map_or(0, |(_, n)| *n);
            edge.metrics.loops_in_state(state.as_str(), count);
        }
        if let Some(at) = backup.and_then(|at| at.parse().ok()) {
            edge.metrics.backup(at);
        }
    }
    if let Ok(counts) = edge.store.read(memory::counts).await {
        let LearningCounts { candidates, active, archived, quarantined } = counts;
        let states =
            [("candidate", candidates), ("active", active), ("archived", archived), ("quarantined", quarantined)];
        states.into_iter().for_each(|(state, count)| edge.metrics.learnings(state, count));
    }
    let read = move |c: &Connection| Ok((hosts::all(c, now)?, hosts::loops_without_host(c, now)?));
    if let Ok((hosts, waiting)) = edge.store.read(read).await {
        hosts.iter().for_each(|one| edge.metrics.host(one));
        edge.metrics.loops_without_host(waiting.len());
    }
    if let Ok(known) = edge.store.read(calls::state).await {
        for (name, backend) in &known.backends {
            edge.metrics.backend_state(name, &BackendStatus::WORDS, backend.status.word(edge.clock.now()));
        }
    }
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (kind, text) = if accepts.contains("application/openmetrics-text") {
        (OPENMETRICS, edge.metrics.encode())
    } else {
        (PLAIN_TEXT, edge.metrics.encode_plain())
    };
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text)
}
