//! Loops, their iterations, their audit records, and their events.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Deserialize;

use super::extract::{ApiQuery, ApiViewer};
use super::figures::ApiSupervision;
use super::ok;
use super::openapi::{ApiRoute, Operation};
use super::problem::{ApiProblem, ApiResult};
use super::types::{
    ApiActivity, ApiAudit, ApiCheck, ApiIteration, ApiIterationDetail, ApiIterationList, ApiLoop, ApiLoopActivity,
    ApiLoopDetail, ApiLoopOutput, ApiLoopPage, ApiStep, ApiTurn, time,
};
use super::visibility::{needs_write, visible_loop};
use crate::domain::loops::{Loop, LoopState};
use crate::domain::model::ids::LoopId;
use crate::domain::report::loop_report::LoopReport;
use crate::domain::trust::viewer::ViewRight;
use crate::store::feed::FeedKind;
use crate::store::listing::{self, LoopFilter};
use crate::store::{audit, calls, loops, outbox, session};
use crate::web::live::{self, ListenError, LiveItem};
use crate::web::visible::visible;
use crate::web::{Viewer, WebState};

/// Default and maximum number of loops per page.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;
/// Maximum number of activities per iteration.
const MAX_ACTIVITIES: usize = 1_000;
/// Maximum length of a search text, in characters.
pub(super) const MAX_WORDS: usize = 500;

/// Query of the list of loops.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LoopsQuery {
    /// Only loops of this forge.
    forge: Option<String>,
    /// Only loops of this repository: `owner/name`.
    repository: Option<String>,
    /// Only loops in one of these states, separated by commas.
    state: Option<String>,
    /// Only loops requested by this person, by login.
    person: Option<String>,
    /// Only open loops, or only finished ones.
    open: Option<bool>,
    /// Only loops that wait for a person, or only the others.
    waits: Option<bool>,
    /// Words in the title, reason, repository, branch or issue number.
    q: Option<String>,
    /// `next` of the previous page.
    cursor: Option<String>,
    /// Maximum number of loops, 1 to 200.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<usize>,
}

/// Returns the routes of loops.
pub(super) fn routes() -> Vec<ApiRoute> {
    let list = Operation::get("/loops", "listLoops", "Lists loops, newest first");
    let one = Operation::get("/loops/{id}", "getLoop", "Returns a loop");
    let iterations = Operation::get("/loops/{id}/iterations", "listIterations", "Lists the iterations of a loop");
    let iteration = Operation::get(
        "/loops/{id}/iterations/{number}",
        "getIteration",
        "Returns an iteration with its prompts, answers, outputs and activities",
    );
    let report = Operation::get(
        "/loops/{id}/report",
        "getReport",
        "Returns a report on the supervision of a loop: its course, detections, interventions and their effect",
    );
    let record = Operation::get("/loops/{id}/audit", "getAudit", "Returns all records of a loop");
    let of_loop = Operation::get("/loops/{id}/events", "followLoop", "Streams the events of a loop");
    let all = Operation::get("/events", "follow", "Streams the events of all loops that the viewer may see");
    vec![
        ApiRoute::new(list.query::<LoopsQuery>().answers::<ApiLoopPage>(), get(self::list)),
        ApiRoute::new(one.answers::<ApiLoopDetail>(), get(self::one)),
        ApiRoute::new(iterations.answers::<ApiIterationList>(), get(self::iterations)),
        ApiRoute::new(iteration.answers::<ApiIterationDetail>(), get(self::iteration)),
        ApiRoute::new(report.answers::<LoopReport>(), get(self::report)),
        ApiRoute::new(record.answers::<ApiAudit>(), get(self::record)),
        ApiRoute::new(followed(of_loop), get(follow_loop)),
        ApiRoute::new(followed(all), get(follow)),
    ]
}

fn followed(stream: Operation) -> Operation {
    stream.event::<ApiStep>("step").event::<ApiLoopActivity>("activity").event::<ApiLoopOutput>("output")
}

async fn list(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    ApiQuery(query): ApiQuery<LoopsQuery>,
) -> ApiResult {
    let limit = limited(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let before = query.cursor.as_deref().map(cursor).transpose()?;
    let filter = LoopFilter {
        forge: query.forge,
        repository: query.repository.as_deref().map(repository).transpose()?,
        states: states(query.state.as_deref().unwrap_or_default())?,
        person: query.person,
        open: query.open,
        waits: query.waits,
        text: query.q.map(words).transpose()?,
        ..LoopFilter::of(visible(&state, &viewer).await?.read)
    };
    let page = state.engine.store.read(move |c| listing::page(c, &filter, before, limit)).await?;
    let next = page.next.map(|next| next.to_string());
    ok(&state, &ApiLoopPage { loops: page.rows.into_iter().map(ApiLoop::from).collect(), next })
}

/// Returns the limit, or its default; fails if it is out of range.
pub(super) fn limited(limit: Option<usize>, default: usize, most: usize) -> Result<usize, ApiProblem> {
    match limit.unwrap_or(default) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        limit => Err(ApiProblem::invalid(format!("limit is {limit}"), format!("send a limit from 1 to {most}"))),
    }
}

fn cursor(text: &str) -> Result<i64, ApiProblem> {
    text.parse().ok().filter(|row| *row > 0).ok_or_else(bad_cursor)
}

/// Returns the error of an invalid cursor.
pub(super) fn bad_cursor() -> ApiProblem {
    ApiProblem::invalid(
        "the cursor is invalid",
        "send the value of `next` of the page before, or none for the first page",
    )
}

/// Parses `owner/name`.
pub(super) fn repository(text: &str) -> Result<(String, String), ApiProblem> {
    let parts = text.split_once('/').filter(|(owner, name)| !owner.is_empty() && !name.is_empty());
    let parts = parts.map(|(owner, name)| (owner.to_owned(), name.to_owned()));
    parts.ok_or_else(|| ApiProblem::invalid("repository is not of the form owner/name", "send repository=owner/name"))
}

/// Returns the search text.
///
/// # Errors
/// The text is longer than [`MAX_WORDS`] characters.
pub(super) fn words(text: String) -> Result<String, ApiProblem> {
    if text.chars().count() > MAX_WORDS {
        return Err(ApiProblem::invalid(format!("q is longer than {MAX_WORDS} characters"), "search for fewer words"));
    }
    Ok(text)
}

/// Parses comma-separated names of states.
pub(super) fn states(text: &str) -> Result<Vec<LoopState>, ApiProblem> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| {
            LoopState::parse(name).ok_or_else(|| {
                let known = LoopState::ALL.map(LoopState::as_str).join(", ");
                ApiProblem::invalid("state has an unknown name", format!("send some of {known}, separated by commas"))
            })
        })
        .collect()
}

/// Reads the complete state of a loop.
async fn stored(state: &WebState, id: &LoopId) -> Result<Loop, ApiProblem> {
    let wanted = id.clone();
    let found = state.engine.store.read(move |c| loops::get(c, &wanted)).await?;
    found.ok_or_else(|| ApiProblem::unknown("loop", id.as_str()))
}

async fn one(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(id): Path<String>,
) -> ApiResult {
    let (row, right) = visible_loop(&state, &viewer, &id, false).await?;
    let current = stored(&state, &row.id).await?;
    let checks = current.latest_checks().into_iter().flat_map(|report| &report.outcomes);
    let guidance = current.requests.guidance.iter().map(|guidance| guidance.text.clone()).collect();
    let detail = ApiLoopDetail {
        summary: row.into(),
        right,
        authority: current.people.authority.login.clone(),
        base_branch: current.branch.base_branch.clone(),
        head: current.branch.head.as_ref().map(ToString::to_string),
        running_s: current.spent.time_at(state.engine.clock.now()) / 1000,
        time_limit_s: current.limits.time_ms / 1000,
        checks: checks.map(|outcome| ApiCheck::of(outcome, right)).collect(),
        guidance: (right >= ViewRight::Write).then_some(guidance),
        supervision: ApiSupervision::of(&current),
    };
    ok(&state, &detail)
}

async fn iterations(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(id): Path<String>,
) -> ApiResult {
    let (row, _) = visible_loop(&state, &viewer, &id, false).await?;
    let current = stored(&state, &row.id).await?;
    ok(&state, &ApiIterationList { iterations: current.iterations.iter().map(ApiIteration::from).collect() })
}

async fn iteration(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path((id, number)): Path<(String, String)>,
) -> ApiResult {
    let (row, right) = visible_loop(&state, &viewer, &id, false).await?;
    let current = stored(&state, &row.id).await?;
    let found = number.parse().ok().and_then(|number: u32| current.iterations.iter().find(|one| one.number == number));
    let found = found.ok_or_else(|| ApiProblem::unknown("iteration", &number))?;
    let (turns, activities) = if right >= ViewRight::Write {
        let (of, at) = (row.id.clone(), found.number);
        let read = state.engine.store.read(move |c| session::of_iteration(c, &of, at));
        let (turns, mut events, running) = read.await?;
        events.truncate(MAX_ACTIVITIES);
        (
            Some(turns.into_iter().map(ApiTurn::from).chain(running.map(ApiTurn::from)).collect()),
            Some(events.into_iter().map(ApiActivity::from).collect()),
        )
    } else {
        (None, None)
    };
    let checks = found.checks.outcomes.iter().map(|outcome| ApiCheck::of(outcome, right)).collect();
    ok(&state, &ApiIterationDetail { iteration: found.into(), checks, turns, activities })
}

async fn report(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(id): Path<String>,
) -> ApiResult {
    let (row, _) = visible_loop(&state, &viewer, &id, false).await?;
    let current = stored(&state, &row.id).await?;
    ok(&state, &LoopReport::of(&current, state.engine.clock.now()))
}

async fn record(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(id): Path<String>,
) -> ApiResult {
    let (row, right) = visible_loop(&state, &viewer, &id, false).await?;
    needs_write(right, &row.repo)?;
    let of = row.id.clone();
    let read = state.engine.store.read(move |c| {
        let Some(current) = loops::get(c, &of)? else { return Ok(None) };
        Ok(Some(ApiAudit {
            version: env!("CARGO_PKG_VERSION").into(),
            state: serde_json::to_value(current)?,
            calls: serde_json::to_value(calls::of_loop(c, &of)?)?,
            decisions: serde_json::to_value(audit::trail(c, &of)?)?,
            events: serde_json::to_value(loops::history(c, &of)?)?,
            effects: serde_json::to_value(outbox::of_subject(c, of.as_str())?)?,
        }))
    });
    let record = read.await?.ok_or_else(|| ApiProblem::unknown("loop", &id))?;
    ok(&state, &record)
}

async fn follow_loop(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let (row, _) = visible_loop(&state, &viewer, &id, false).await?;
    listen(state, viewer, Some(row.id), &headers).await
}

async fn follow(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    headers: HeaderMap,
) -> ApiResult {
    listen(state, viewer, None, &headers).await
}

async fn listen(
    state: Arc<WebState>,
    viewer: Viewer,
    of: Option<LoopId>,
    headers: &HeaderMap,
) -> Result<Response, ApiProblem> {
    let after = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("-"));
    let listener = state.live.listen(&state, viewer, of, after).await.map_err(|error| match error {
        ListenError::Full => {
            ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), "try again in a minute").retry_after(60)
        }
        ListenError::BadPosition => {
            ApiProblem::invalid(error.to_string(), "send the id of an event, or no Last-Event-ID")
        }
        ListenError::Store(error) => error.into(),
    })?;
    Ok(live::stream(listener, move |item| {
        let (name, value) = described(item)?;
        Some((name, state.engine.outbound.json(value).into_value().to_string()))
    }))
}

/// Returns the name and data of a stream event; `None` for items that are not sent.
fn described(item: &LiveItem) -> Option<(&'static str, serde_json::Value)> {
    let LiveItem::Event { event, .. } = item else { return Some(("reset", serde_json::json!({}))) };
    let loop_id = event.loop_id.to_string();
    match &event.what {
        FeedKind::Step { seq, input, reasons, now } => {
            let step = ApiStep {
                loop_id,
                seq: *seq,
                at: time(event.at),
                input: input.clone(),
                reasons: reasons.clone(),
                state: now.state,
                iteration: now.iteration,
                completion: now.completion.get(),
                cost_usd: now.cost.usd(),
                reason: now.reason.clone(),
            };
            Some(("step", serde_json::to_value(step).ok()?))
        }
        FeedKind::Activity(activity) => {
            let data = ApiLoopActivity { loop_id, activity: activity.clone().into() };
            Some(("activity", serde_json::to_value(data).ok()?))
        }
        FeedKind::Output { iteration, text } => {
            let output = ApiLoopOutput { loop_id, iteration: *iteration, at: time(event.at), text: text.clone() };
            Some(("output", serde_json::to_value(output).ok()?))
        }
    }
}
