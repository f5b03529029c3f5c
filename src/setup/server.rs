//! HTTP server of the setup: the page `/setup`, health, and deliveries for tests and trials.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Router, middleware};
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::OperatorFileLocation;
use super::github::CreatedForge;
use super::pages;
use super::state::{SetupMode, SetupState};
use crate::clock::Clock;
use crate::net::serve::{ConnectionLimits, serve};
use crate::web::asset_routes;

/// Maximum size of a form, in bytes.
const MAX_FORM: usize = 64 * 1024;

/// Running server of the set-up.
pub struct SetupServer {
    /// Listening address.
    pub address: SocketAddr,
    state: Arc<SetupState>,
    task: JoinHandle<std::io::Result<()>>,
    stop: CancellationToken,
}

impl SetupServer {
    /// Starts listening.
    ///
    /// # Errors
    /// The address is occupied, or could not read random numbers from the system.
    pub async fn start(
        place: OperatorFileLocation,
        mode: SetupMode,
        listen: SocketAddr,
        clock: Clock,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(SetupState::new(place, mode, clock, address)?);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let served = serve(listener, router(state.clone()), ConnectionLimits::of_this_process(), async move {
            stopped.cancelled().await;
        });
        #[expect(clippy::disallowed_methods, reason = "the root of the tasks of the set-up")]
        let task = tokio::spawn(served);
        Ok(Self { address, state, task, stop })
    }

    /// Returns the address for people to open. It contains the token, so it is printed once and never logged.
    pub fn link(&self) -> SecretString {
        let base = self.state.place.base().ok().and_then(|config| config.server.public_url);
        let base = base.filter(|_| self.state.mode == SetupMode::Service && !self.address.ip().is_loopback());
        let base = base
            .map_or_else(|| format!("http://{}", self.address), |url| url.as_str().trim_end_matches('/').to_owned());
        SecretString::from(format!("{base}/setup?token={}", self.state.access.token().expose_secret()))
    }

    /// Waits until the configured service can start.
    pub async fn finished(&self) {
        self.state.finished.cancelled().await;
    }

    /// Waits until an App was created. `failed` is called with the reason of each failed attempt.
    pub async fn created(&self, failed: impl Fn(&str)) -> CreatedForge {
        self.state.until_created(failed).await
    }

    /// Stops listening after the current requests are finished.
    pub async fn stop(self) {
        self.state.finished.cancel();
        self.stop.cancel();
        if let Ok(Err(error)) = self.task.await {
            tracing::warn!(%error, "the set-up listener failed");
        }
    }
}

fn router(state: Arc<SetupState>) -> Router {
    let deliveries = state.deliveries.router();
    Router::new()
        .merge(pages::routes())
        .route("/", get(|| async { Redirect::to("/setup") }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(asset_routes())
        .layer(DefaultBodyLimit::max(MAX_FORM))
        .layer(middleware::from_fn(with_headers))
        .with_state(state)
        .merge(deliveries)
}

async fn ready(State(state): State<Arc<SetupState>>) -> impl IntoResponse {
    let file = state.place.file.display().to_string();
    let why =
        format!("no forge is configured in {file}; open the address of the set-up that `ralph-bot serve` printed\n");
    (StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Sets the headers of all responses.
async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    // With `no-referrer`, browsers would send changes with the origin `null`; other sites get none.
    let all = [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("x-frame-options", "DENY"),
    ];
    for (name, value) in all {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
