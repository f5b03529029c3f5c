//! Pages for operators: backends, repositories with the settings in force, deliveries.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::data;
use super::home::{next, previous};
use super::layout::{self, PageError, PageFrame, beginning, require_operator, require_token};
use crate::domain::model::ids::{ForgeName, RepoRef};
use crate::domain::providers::backends::{BackendState, BackendStatus};
use crate::domain::report;
use crate::domain::trust::policy::Policy;
use crate::store::{calls, forge_state, inbox, listing, loops};
use crate::web::{Viewer, WebState};

/// Days of calls on the page of backends.
const DAYS: i64 = 14;
/// Number of deliveries on a page.
const DELIVERIES_SHOWN: usize = 40;
/// Number of repositories on a page.
const REPOSITORIES_SHOWN: usize = 20;
/// Maximum size of a setting on the page, in bytes.
const SETTING_SHOWN: usize = 500;

/// Returns the page, or its error.
fn answer(state: &WebState, viewer: &Viewer, found: Result<Response, PageError>) -> Response {
    found.unwrap_or_else(|error| error.page(state, viewer))
}

/// Shows the backends.
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

/// Shows the repositories with the settings that are in force.
pub(super) async fn repositories(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Query(query): Query<RepositoriesQuery>,
) -> Response {
    answer(&state, &viewer, repositories_page(&state, &viewer, query.page.max(1)).await)
}

async fn repositories_page(state: &WebState, viewer: &Viewer, page: usize) -> Result<Response, PageError> {
    require_operator(viewer)?;
    let forges: Vec<ForgeName> =
        state.engine.settings.policies.keys().chain(state.engine.forges.keys()).cloned().collect();
    let read = state.engine.store.read(move |c| {
        let mut all = listing::repositories(c)?;
        for forge in forges {
            all.extend(forge_state::repositories(c, &forge)?);
        }
        all.sort_by(|a, b| (a.forge.as_str(), a.id.0).cmp(&(b.forge.as_str(), b.id.0)));
        all.dedup_by(|a, b| a.forge == b.forge && a.id == b.id);
        let count = all.len();
        let skipped = (page - 1).saturating_mul(REPOSITORIES_SHOWN);
        let shown: Vec<RepoRef> = all.into_iter().skip(skipped).take(REPOSITORIES_SHOWN).collect();
        let open = shown.iter().map(|repo| loops::newest_settings(c, repo));
        let open = open.collect::<crate::store::StoreResult<Vec<_>>>()?;
        Ok((shown, open, count))
    });
    let (shown, open, count) = read.await?;
    let rows: Vec<Json> = shown
        .iter()
        .zip(&open)
        .map(|(repo, newest)| {
            let operators = state.engine.settings.policy(&repo.forge);
            repository_row(repo, &operators, newest.as_ref(), state.engine.settings.watches(repo))
        })
        .collect();
    let address = |page: usize| format!("/repositories?page={page}");
    let context = json!({
        "repositories": rows,
        "count": count,
        "previous": previous(page, address),
        "next": next(page, REPOSITORIES_SHOWN, i64::try_from(count).unwrap_or(i64::MAX), address),
    });
    let frame = PageFrame::still("Repositories", "repositories");
    Ok(layout::page(state, viewer, "repositories.html", &frame, context, Vec::new()))
}

/// Returns the settings of a repository: those of its newest open loop, else the operator's, each with its source.
fn repository_row(repo: &RepoRef, operators: &Policy, newest: Option<&(Policy, Vec<String>)>, watched: bool) -> Json {
    let policy = newest.map_or(operators, |(policy, _)| policy);
    let (ours, theirs) = (settings(operators), settings(policy));
    let rows = theirs.iter().zip(&ours).map(|((name, value), (_, own))| {
        let source = if value == own { "operator's file or default" } else { "repository's file" };
        json!({ "name": name, "value": beginning(value, SETTING_SHOWN), "source": source })
    });
    json!({
        "name": repo.to_string(),
        "watched": watched,
        "known": newest.is_some(),
        "settings": rows.collect::<Vec<_>>(),
        "overruled": newest.map(|(_, overruled)| overruled.clone()).unwrap_or_default(),
    })
}

/// Returns the settings that people ask about, in words.
fn settings(policy: &Policy) -> Vec<(&'static str, String)> {
    let limits = &policy.limits;
    let listed = |values: &[String]| if values.is_empty() { "none".to_owned() } else { values.join(", ") };
    let commands: Vec<String> = policy.checks.iter().map(|check| check.command.clone()).collect();
    let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
    vec![
        ("Who may give commands", report::who_may(policy)),
        ("Label", policy.start_labels()[0].clone()),
        ("Checks", listed(&commands)),
        ("Checks are detected", yes(policy.detect_checks)),
        ("Set-up commands", listed(&policy.setup)),
        ("Maximum iterations", limits.iterations.to_string()),
        ("Maximum working time", format!("{} min", limits.timeout.as_seconds() / 60)),
        ("Maximum cost", limits.cost_usd.to_string()),
        ("Maximum concurrent loops", limits.loops.to_string()),
        ("Reviewers", listed(&policy.reviewers)),
        ("Base branch", policy.base.clone().unwrap_or_else(|| "default branch".to_owned())),
        ("Branch prefix", policy.branch_prefix.clone()),
        ("Branch is deleted at the end", yes(policy.delete_branch)),
    ]
}

/// Query of the repositories.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RepositoriesQuery {
    page: usize,
}

/// Query of the deliveries.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeliveriesQuery {
    state: String,
    page: usize,
}

/// Form with nothing but the token.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct CsrfForm {
    csrf: String,
}

/// States of deliveries.
const STATES: [&str; 5] = ["new", "done", "ignored", "refused", "dead"];

/// Shows the deliveries.
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
    let page = query.page.max(1);
    let read = state.engine.store.read(move |c| {
        let offset = (page - 1).saturating_mul(DELIVERIES_SHOWN);
        Ok((data::deliveries(c, wanted, DELIVERIES_SHOWN, offset)?, inbox::counts(c)?))
    });
    let (rows, counts) = read.await?;
    let total: u64 = counts.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name)).map(|(_, n)| n).sum();
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    let address = |page: usize| format!("/deliveries?state={}&page={page}", wanted.unwrap_or_default());
    let context = json!({
        "rows": rows,
        "counts": counts,
        "states": STATES,
        "state": wanted.unwrap_or_default(),
        "previous": previous(page, address),
        "next": next(page, DELIVERIES_SHOWN, total, address),
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

/// Processes a delivery again that waits or was given up.
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
        let who = viewer.account.as_ref().map_or("operator", |(_, user)| user.login.as_str());
        tracing::info!(delivery = id, by = who, "a delivery is processed again, as asked in the dashboard");
        state.engine.wake.intake.notify_one();
        Ok((StatusCode::SEE_OTHER, [(LOCATION, "/deliveries")]).into_response())
    };
    let retried = retried.await;
    answer(&state, &viewer, retried)
}
