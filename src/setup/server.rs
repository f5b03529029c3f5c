//! Server of the set-up: the page `/setup`, health, and deliveries for tests and trials.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Router, middleware};
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::access::{SetupAccess, SetupBrowser};
use super::github::{AppRequest, CreatedForge};
use super::pages::{self, lock};
use super::trial::{self, TrialRepository};
use super::{DeliveryRoutes, SetupPlace, SetupReport};
use crate::clock::Clock;
use crate::config::ForgeConfig;
use crate::domain::trust::setup_state::{SetupStates, StateRefusal};
use crate::net::serve::{ConnectionLimits, serve};
use crate::web::asset_routes;

/// Maximum size of a form, in bytes.
const MAX_FORM: usize = 64 * 1024;
/// Maximum number of lines of a trial that are shown.
const MAX_LINES: usize = 200;

/// What the server is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetupMode {
    /// The whole set-up of a service without a forge.
    Service,
    /// The creation of one App, which the command line asked for.
    CreateApp(AppRequest),
}

/// A trial that runs or ran.
#[derive(Debug, Clone, Default)]
pub(super) struct TrialJob {
    pub running: bool,
    pub lines: Vec<String>,
    pub error: Option<String>,
    pub pull: Option<String>,
}

/// State of the server.
pub(super) struct SetupState {
    pub place: SetupPlace,
    pub mode: SetupMode,
    pub clock: Clock,
    pub patience: Duration,
    pub access: SetupAccess,
    pub deliveries: DeliveryRoutes,
    /// Cancelled once the service can start.
    pub finished: CancellationToken,
    address: SocketAddr,
    states: Mutex<SetupStates<AppRequest>>,
    /// Origin at which each browser reaches the server.
    origins: Mutex<HashMap<String, String>>,
    created: Mutex<Option<CreatedForge>>,
    failure: Mutex<Option<String>>,
    changed: Notify,
    report: Mutex<SetupReport>,
    job: Arc<Mutex<TrialJob>>,
}

impl SetupState {
    pub fn give(&self, value: String, browser: &str, request: AppRequest) {
        lock(&self.states).give(value, browser, request, self.clock.now());
    }

    pub fn take(&self, value: &str, browser: &str) -> Result<AppRequest, StateRefusal> {
        lock(&self.states).take(value, browser, self.clock.now())
    }

    pub fn remember_origin(&self, browser: &SetupBrowser, origin: String) {
        lock(&self.origins).insert(browser.name(), origin);
    }

    /// Returns the origin at which a browser reaches the server.
    pub fn origin(&self, browser: &SetupBrowser) -> String {
        lock(&self.origins).get(&browser.name()).cloned().unwrap_or_else(|| format!("http://{}", self.address))
    }

    pub fn created(&self) -> Option<CreatedForge> {
        lock(&self.created).clone()
    }

    pub fn was_created(&self, done: CreatedForge) {
        tracing::info!(forge = %done.name, "an App was created and configured");
        *lock(&self.report) = done.report.clone();
        *lock(&self.created) = Some(done);
        self.changed.notify_waiters();
    }

    pub fn has_failed(&self, why: &str) {
        *lock(&self.failure) = Some(why.to_owned());
        self.changed.notify_waiters();
    }

    pub fn report(&self) -> SetupReport {
        lock(&self.report).clone()
    }

    pub fn set_report(&self, report: SetupReport) {
        *lock(&self.report) = report;
    }

    pub fn job(&self) -> TrialJob {
        lock(&self.job).clone()
    }

    pub fn cleaned_up(&self, lines: Vec<String>) {
        *lock(&self.job) = TrialJob { lines, ..TrialJob::default() };
    }

    /// Begins a trial beside the pages.
    pub fn begin_trial(self: &Arc<Self>, forge: ForgeConfig, wanted: TrialRepository) -> Result<(), String> {
        let mut job = lock(&self.job);
        if job.running {
            return Err("a trial runs already".to_owned());
        }
        *job = TrialJob { running: true, ..TrialJob::default() };
        let state = self.clone();
        #[expect(clippy::disallowed_methods, reason = "the trial outlives the request that begins it")]
        tokio::spawn(async move {
            let job = state.job.clone();
            let say = move |line: String| {
                let mut job = lock(&job);
                if job.lines.len() < MAX_LINES {
                    job.lines.push(line);
                }
            };
            let outcome = tokio::select! {
                outcome = trial::run(&state.place, &forge, &wanted, Some(&state.deliveries), &say) => outcome,
                () = state.finished.cancelled() => Err(anyhow::anyhow!("the set-up was stopped")),
            };
            let mut job = lock(&state.job);
            job.running = false;
            match outcome {
                Ok(done) => job.pull = Some(done.pull),
                Err(error) => job.error = Some(format!("{error:#}")),
            }
        });
        Ok(())
    }
}

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
    /// The address is occupied, or there are no random numbers.
    pub async fn start(place: SetupPlace, mode: SetupMode, listen: SocketAddr, clock: Clock) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(SetupState {
            place,
            mode,
            clock,
            patience: super::DELIVERY_TIMEOUT,
            access: SetupAccess::new()?,
            deliveries: DeliveryRoutes::default(),
            finished: CancellationToken::new(),
            address,
            states: Mutex::default(),
            origins: Mutex::default(),
            created: Mutex::default(),
            failure: Mutex::default(),
            changed: Notify::new(),
            report: Mutex::default(),
            job: Arc::default(),
        });
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let served = serve(listener, router(state.clone()), ConnectionLimits::of_this_process(), async move {
            stopped.cancelled().await;
        });
        #[expect(clippy::disallowed_methods, reason = "the root of the tasks of the set-up")]
        let task = tokio::spawn(served);
        Ok(Self { address, state, task, stop })
    }

    /// Returns the address for people to open. It has the token: it is printed once, and never logged.
    pub fn link(&self) -> SecretString {
        let base = self.state.place.base().ok().and_then(|config| config.server.public_url);
        let base = base.filter(|_| self.state.mode == SetupMode::Service && !self.address.ip().is_loopback());
        let base = base.map_or_else(|| format!("http://{}", self.address), |url| url.as_str().trim_end_matches('/').to_owned());
        SecretString::from(format!("{base}/setup?token={}", self.state.access.token().expose_secret()))
    }

    /// Waits until the service can start.
    pub async fn finished(&self) {
        self.state.finished.cancelled().await;
    }

    /// Waits until an App was created. `failed` gets the reason of each attempt that failed.
    pub async fn created(&self, failed: impl Fn(&str)) -> CreatedForge {
        loop {
            let changed = self.state.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(created) = self.state.created() {
                return created;
            }
            if let Some(why) = lock(&self.state.failure).take() {
                failed(&why);
            }
            changed.await;
        }
    }

    /// Stops listening, after the current requests are answered.
    pub async fn stop(self) {
        self.state.finished.cancel();
        self.stop.cancel();
        if let Ok(Err(error)) = self.task.await {
            tracing::warn!(%error, "the listener of the set-up ended badly");
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
    let why = format!("no forge is configured in {file}; open the address of the set-up that `ralph-bot serve` printed\n");
    (StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Sets the headers that every answer has.
async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    // With `no-referrer`, browsers would send changes with the origin `null`; other sites get none.
    let all = [("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin"), ("cache-control", "no-store"), ("x-frame-options", "DENY")];
    for (name, value) in all {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
