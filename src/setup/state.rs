//! State of the setup server: the request, the report, and the trial.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ralph_types::failure::Failure;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::access::{SetupAccess, SetupBrowser};
use super::complete::DELIVERY_TIMEOUT;
use super::delivery_routes::DeliveryRoutes;
use super::github::{AppRequest, CreatedForge};
use super::trial::{self, TrialRepository};
use super::{OperatorFileLocation, SetupReport};
use crate::clock::Clock;
use crate::config::ForgeConfig;
use crate::domain::trust::setup_state::{SetupStates, StateRefusal};

/// Maximum number of shown lines of a trial.
const MAX_LINES: usize = 200;

/// Purpose of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetupMode {
    /// Complete setup of a service without a forge.
    Service,
    /// Creation of one App, as requested on the command line.
    CreateApp(AppRequest),
}

/// Trial that is running or has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct TrialJob {
    pub(super) running: bool,
    pub(super) lines: Vec<String>,
    pub(super) error: Option<String>,
    pub(super) pull: Option<String>,
}

/// State of the server.
pub(super) struct SetupState {
    pub(super) place: OperatorFileLocation,
    pub(super) mode: SetupMode,
    pub(super) clock: Clock,
    pub(super) patience: Duration,
    pub(super) access: SetupAccess,
    pub(super) deliveries: DeliveryRoutes,
    /// Canceled when the configured service can start.
    pub(super) finished: CancellationToken,
    address: SocketAddr,
    states: Mutex<SetupStates<AppRequest>>,
    /// Origin at which each browser reaches the server, by browser.
    origins: Mutex<HashMap<String, String>>,
    created: Mutex<Option<CreatedForge>>,
    failure: Mutex<Option<String>>,
    changed: Notify,
    report: Mutex<SetupReport>,
    job: Arc<Mutex<TrialJob>>,
}

/// Locks a value of the state. Code under the locks only assigns values, so they are valid even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SetupState {
    /// Creates the state of a server at `address`.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub(super) fn new(
        place: OperatorFileLocation,
        mode: SetupMode,
        clock: Clock,
        address: SocketAddr,
    ) -> std::io::Result<Self> {
        Ok(Self {
            place,
            mode,
            clock,
            patience: DELIVERY_TIMEOUT,
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
        })
    }

    /// Waits until an App was created. `failed` is called with the reason of each failed attempt.
    pub(super) async fn until_created(&self, failed: impl Fn(&str)) -> CreatedForge {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(created) = self.created() {
                return created;
            }
            if let Some(why) = lock(&self.failure).take() {
                failed(&why);
            }
            changed.await;
        }
    }

    pub(super) fn give(&self, value: String, browser: &str, request: AppRequest) {
        lock(&self.states).give(value, browser, request, self.clock.now());
    }

    pub(super) fn take(&self, value: &str, browser: &str) -> Result<AppRequest, StateRefusal> {
        lock(&self.states).take(value, browser, self.clock.now())
    }

    pub(super) fn remember_origin(&self, browser: &SetupBrowser, origin: String) {
        lock(&self.origins).insert(browser.name(), origin);
    }

    /// Returns the origin at which a browser reaches the server.
    pub(super) fn origin(&self, browser: &SetupBrowser) -> String {
        lock(&self.origins).get(&browser.name()).cloned().unwrap_or_else(|| format!("http://{}", self.address))
    }

    pub(super) fn created(&self) -> Option<CreatedForge> {
        lock(&self.created).clone()
    }

    pub(super) fn was_created(&self, done: CreatedForge) {
        tracing::info!(forge = %done.name, "an App was created and configured");
        *lock(&self.report) = done.report.clone();
        *lock(&self.created) = Some(done);
        self.changed.notify_waiters();
    }

    pub(super) fn has_failed(&self, why: &str) {
        *lock(&self.failure) = Some(why.to_owned());
        self.changed.notify_waiters();
    }

    pub(super) fn report(&self) -> SetupReport {
        lock(&self.report).clone()
    }

    pub(super) fn set_report(&self, report: SetupReport) {
        *lock(&self.report) = report;
    }

    pub(super) fn job(&self) -> TrialJob {
        lock(&self.job).clone()
    }

    pub(super) fn cleaned_up(&self, lines: Vec<String>) {
        *lock(&self.job) = TrialJob { lines, ..TrialJob::default() };
    }

    /// Starts a trial in the background.
    pub(super) fn begin_trial(self: &Arc<Self>, forge: ForgeConfig, wanted: TrialRepository) -> Result<(), Failure> {
        let mut job = lock(&self.job);
        if job.running {
            return Err("a trial runs already".into());
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
                Err(error) => job.error = Some(format!("{:#}", Failure::of(error))),
            }
        });
        Ok(())
    }
}
