//! Pages for operators: backends, deliveries, and the audit log of changes.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::data;
use super::layout::{self, PageError, PageFrame, require_operator, require_token, segment};
use crate::domain::providers::backends::{BackendState, BackendStatus};
use crate::store::{access_audit, calls, inbox};
use crate::web::{Viewer, WebState};

/// Number of days with calls on the backends page.
const DAYS: i64 = 14;
/// Number of deliveries on a page.
const DELIVERIES_SHOWN: usize = 40;
/// Number of changes per page of the audit log.
const CHANGES_SHOWN: usize = 50;

/// Returns a page, or the page for its error.
fn answer(state: &WebState, viewer: &Viewer, found: Result<Response, PageError>) -> Response {
    found.unwrap_or_else(|error| error.page(state, viewer))
}

/// Returns the page of backends.
pub(super) async fn backends(State(state): State<Arc<WebState>>, viewer: Viewer) -> Response {
    answer(&state, &viewer, backends_page(&state, &viewer).await)
}

async fn backends_page(state: &WebState, viewer: &Viewer) -> Result<Response, PageError> {
    require_operator(viewer)?;
    let now = state.engine.clock.now();
    let since = now.plus_ms(-DAYS * 24 * 3_600_000);
    let read = state.engine.store.read(move |c| Ok((calls::state(c)?, data::calls_by_day(c, since)?)));
    let (known, days) = read.await?;
    let configured = &state.engine.settings.backends.backends;
    let mut names: Vec<&String> = configured.keys().chain(known.backends.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let rows: Vec<Json> = names
        .into_iter()
        .map(|name| {
            let unknown = BackendState::default();
            let backend = known.backends.get(name).unwrap_or(&unknown);
            let (until, reason) = match &backend.status {
                BackendStatus::Parked(park) if park.until > now => (Some(park.until.0), park.reason.clone()),
                BackendStatus::Disabled { reason, .. } => (None, reason.clone()),
                _ => (None, String::new()),
            };
            json!({
                "name": name,
                "configured": configured.contains_key(name),
                "state": backend.status.word(now),
                "until": until,
                "reason": reason,
                "stopped": until.is_some() || matches!(backend.status, BackendStatus::Disabled { .. }),
                "in_flight": backend.in_flight.len(),
                "succeeded": backend.succeeded,
                "failed": backend.failed,
                "tokens": backend.tokens,
                "cost": backend.cost.0,
                "errors": backend.recent_errors.iter().rev().take(5).map(|error| json!({ "at": error.at.0, "text": error.text })).collect::<Vec<_>>(),
                "days": days.iter().filter(|day| day.backend == **name).collect::<Vec<_>>(),
            })
        })
        .collect();
    let most = days.iter().map(|day| day.calls).max().unwrap_or(1);
    let context = json!({ "backends": rows, "most": most, "days": DAYS });
    Ok(layout::page(state, viewer, "backends.html", &PageFrame::still("Backends", "backends"), context, Vec::new()))
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
        let changed = state.engine.enable_backend(&name).await?.ok_or(PageError::NotFound)?;
        tracing::info!(backend = ?name, changed, by = %viewer, "a backend is used again, as asked in the dashboard");
        let page = if form.from == "home" { "/" } else { "/backends" };
        Ok((StatusCode::SEE_OTHER, [(LOCATION, page)]).into_response())
    };
    let enabled: Result<Response, PageError> = enabled.await;
    enabled.unwrap_or_else(|error| error.page_with(&state, &viewer, &[("/backends", "Backends"), ("/", "All loops")]))
}

/// Query of the audit log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuditQuery {
    /// Position before which rows are shown; `None` for the newest rows.
    before: Option<i64>,
}

/// Returns the audit log page: the person, the change and the client address.
pub(super) async fn audit(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Query(query): Query<AuditQuery>,
) -> Response {
    answer(&state, &viewer, audit_page(&state, &viewer, query.before).await)
}

async fn audit_page(state: &WebState, viewer: &Viewer, before: Option<i64>) -> Result<Response, PageError> {
    require_operator(viewer)?;
    let mut rows = state.engine.store.read(move |c| access_audit::newest(c, before, CHANGES_SHOWN + 1)).await?;
    let more = rows.len() > CHANGES_SHOWN;
    rows.truncate(CHANGES_SHOWN);
    let older = rows.last().filter(|_| more).map(|row| format!("/audit?before={}", row.id));
    let context = json!({ "rows": rows, "older": older.unwrap_or_default(), "newer": before.map(|_| "/audit").unwrap_or_default() });
    Ok(layout::page(state, viewer, "audit.html", &PageFrame::still("Audit", "audit"), context, Vec::new()))
}

/// Query of the deliveries.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeliveriesQuery {
    state: String,
    forge: String,
    /// Position before which rows are shown; `None` for the newest rows.
    before: Option<i64>,
}

/// Form with only the CSRF token.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct CsrfForm {
    csrf: String,
}

/// States of deliveries.
const STATES: [&str; 5] = ["new", "done", "ignored", "refused", "dead"];

/// Returns the page of deliveries.
pub(super) async fn deliveries(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Query(query): Query<DeliveriesQuery>,
) -> Response {
    answer(&state, &viewer, deliveries_page(&state, &viewer, &query).await)
}

async fn deliveries_page(state: &WebState, viewer: &Viewer, query: &DeliveriesQuery) -> Result<Response, PageError> {
    require_operator(viewer)?;
    let wanted = STATES.into_iter().find(|known| *known == query.state);
    let mut names: Vec<String> = state.engine.forges.keys().map(ToString::to_string).collect();
    names.sort();
    let forge = names.iter().find(|name| **name == query.forge).cloned();
    let (before, of) = (query.before, forge.clone());
    let read = state.engine.store.read(move |c| {
        Ok((data::deliveries(c, (wanted, of.as_deref()), before, DELIVERIES_SHOWN + 1)?, inbox::counts(c)?))
    });
    let (mut rows, counts) = read.await?;
    let more = rows.len() > DELIVERIES_SHOWN;
    rows.truncate(DELIVERIES_SHOWN);
    let forge = forge.unwrap_or_default();
    let newest = format!("/deliveries?state={}&forge={}", wanted.unwrap_or_default(), segment(&forge));
    let older = rows.last().filter(|_| more).map(|row| format!("{newest}&before={}", row.id));
    let context = json!({
        "rows": rows,
        "counts": counts,
        "states": STATES,
        "forges": names,
        "state": wanted.unwrap_or_default(),
        "forge": forge,
        "older": older.unwrap_or_default(),
        "newer": before.map(|_| newest).unwrap_or_default(),
    });
    Ok(layout::page(
        state,
        viewer,
        "deliveries.html",
        &PageFrame::still("Deliveries", "deliveries"),
        context,
        Vec::new(),
    ))
}

/// Processes a waiting or abandoned delivery again.
pub(super) async fn retry(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path(id): Path<i64>,
    Form(form): Form<CsrfForm>,
) -> Response {
    let retried = async {
        require_token(&viewer, &form.csrf)?;
        require_operator(&viewer)?;
        if !state.engine.store.write(move |c| inbox::try_again(c, id)).await? {
            return Err(PageError::Invalid("This delivery is processed already, or its content is gone.".to_owned()));
        }
        tracing::info!(delivery = id, by = %viewer, "a delivery is processed again, as asked in the dashboard");
        state.engine.wake.intake.notify_one();
        Ok((StatusCode::SEE_OTHER, [(LOCATION, "/deliveries")]).into_response())
    };
    let retried: Result<Response, PageError> = retried.await;
    retried
        .unwrap_or_else(|error| error.page_with(&state, &viewer, &[("/deliveries", "Deliveries"), ("/", "All loops")]))
}
