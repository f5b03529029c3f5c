//! Page of backends for operators: their state, errors and calls, and the hosts that run them.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::data::{self, DayRow};
use super::layout::{
    self, PageDef, PageError, PageNav, PageRights, opened, page_template, require_operator, require_token,
};
use crate::domain::model::host::ListedHost;
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::backends::{BackendState, BackendStatus};
use crate::store::{calls, hosts};
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/backends",
    template: page_template!("backends.html"),
    title: "Backends",
    nav: PageNav::Entry("Backends"),
    rights: PageRights::Operator,
    show: |page| opened(page, show),
};

/// Number of days with calls on the page.
const DAYS: i64 = 14;
/// Number of errors of a backend on the page.
const ERRORS_SHOWN: usize = 5;

/// Data of the page.
#[derive(Debug, Serialize)]
struct BackendsView<'a> {
    backends: Vec<BackendLine<'a>>,
    hosts: Vec<HostLine>,
    /// Highest number of calls on one day.
    most: i64,
    days: i64,
}

/// Host that executes work.
#[derive(Debug, Serialize)]
struct HostLine {
    name: String,
    version: String,
    /// State in words.
    state: &'static str,
    /// Time of the last heartbeat in milliseconds; `None` if the host was stopped.
    seen_at: Option<i64>,
    running: u64,
    slots: u32,
    labels: String,
}

/// Time without a heartbeat after which a host is shown as silent, in milliseconds; twice the time after which its work is free.
const SILENT_AFTER_MS: i64 = 60_000;

impl HostLine {
    fn of(listed: ListedHost, now: Timestamp) -> Self {
        let state = match listed.silent_ms {
            None => "stopped",
            Some(silent) if silent > SILENT_AFTER_MS => "silent",
            Some(_) if listed.is_draining => "draining",
            Some(_) => "active",
        };
        Self {
            name: listed.host.name,
            version: listed.host.version,
            state,
            seen_at: listed.silent_ms.map(|silent| now.0 - silent),
            running: listed.running,
            slots: listed.host.slots,
            labels: listed.host.labels.join(" "),
        }
    }
}

/// Backend that is configured or was used. Times are in milliseconds, and costs in millionths of a dollar.
#[derive(Debug, Serialize)]
struct BackendLine<'a> {
    name: &'a str,
    configured: bool,
    state: &'static str,
    /// End of the cool-down.
    until: Option<i64>,
    reason: &'a str,
    /// Whether the backend cools down or is disabled.
    stopped: bool,
    in_flight: usize,
    succeeded: u64,
    failed: u64,
    tokens: u64,
    cost: i64,
    errors: Vec<ErrorLine<'a>>,
    days: Vec<&'a DayRow>,
}

/// Recent error of a backend.
#[derive(Debug, Serialize)]
struct ErrorLine<'a> {
    at: i64,
    text: &'a str,
}

/// Returns the page.
async fn show(state: Arc<WebState>, viewer: Viewer, (): ()) -> Result<Response, PageError> {
    let now = state.engine.clock.now();
    let since = now.plus_ms(-DAYS * 24 * 3_600_000);
    let has_hosts = state.engine.store.is_server();
    let read = state.engine.store.read(move |c| {
        let hosts = if has_hosts { hosts::all(c, now)? } else { Vec::new() };
        Ok((calls::state(c)?, data::calls_by_day(c, since)?, hosts))
    });
    let (known, days, hosts) = read.await?;
    let configured = &state.engine.calls.settings.backends.backends;
    let unused = BackendState::default();
    let names: BTreeSet<&String> = configured.keys().chain(known.backends.keys()).collect();
    let backends = names.into_iter().map(|name| BackendLine {
        configured: configured.contains_key(name),
        days: days.iter().filter(|day| day.backend == *name).collect(),
        ..line_of(name, known.backends.get(name).unwrap_or(&unused), now)
    });
    let view = BackendsView {
        backends: backends.collect(),
        hosts: hosts.into_iter().map(|host| HostLine::of(host, now)).collect(),
        most: days.iter().map(|day| day.calls).max().unwrap_or(1),
        days: DAYS,
    };
    Ok(layout::page(&state, &viewer, &PAGE, &view))
}

/// Returns the line of a backend that is not configured, without its days.
fn line_of<'a>(name: &'a str, backend: &'a BackendState, now: Timestamp) -> BackendLine<'a> {
    let (until, reason) = match &backend.status {
        BackendStatus::Parked(park) if park.until > now => (Some(park.until.0), park.reason.as_str()),
        BackendStatus::Disabled { reason, .. } => (None, reason.as_str()),
        _ => (None, ""),
    };
    let errors = backend.recent_errors.iter().rev().take(ERRORS_SHOWN);
    BackendLine {
        name,
        configured: false,
        state: backend.status.word(now),
        until,
        reason,
        stopped: until.is_some() || matches!(backend.status, BackendStatus::Disabled { .. }),
        in_flight: backend.in_flight.len(),
        succeeded: backend.succeeded,
        failed: backend.failed,
        tokens: backend.tokens,
        cost: backend.cost.0,
        errors: errors.map(|error| ErrorLine { at: error.at.0, text: &error.text }).collect(),
        days: Vec::new(),
    }
}

/// Form that changes a backend.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct BackendForm {
    csrf: String,
    /// Page with the form: `home` or the backends page.
    from: String,
}

/// Enables a backend that cools down or is disabled.
pub(super) async fn enable(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path(name): Path<String>,
    Form(form): Form<BackendForm>,
) -> Response {
    let enabled = async {
        require_token(&viewer, &form.csrf)?;
        require_operator(&viewer)?;
        let changed = state.engine.calls.enable_backend(&name).await?.ok_or(PageError::NotFound)?;
        tracing::info!(backend = ?name, changed, by = %viewer, "a person enabled a backend again in the dashboard");
        let page = if form.from == "home" { "/" } else { "/backends" };
        Ok((StatusCode::SEE_OTHER, [(LOCATION, page)]).into_response())
    };
    let enabled: Result<Response, PageError> = enabled.await;
    enabled.unwrap_or_else(|error| error.page_with(&state, &viewer, &[("/backends", "Backends"), ("/", "All loops")]))
}
