//! Learnings and proposals of conventions. Reading them requires write access, because they are extracted from transcripts.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{ApiBody, ApiQuery, ApiViewer};
use super::loops::{limited, repository, words};
use super::ok;
use super::openapi::{ApiRoute, Operation};
use super::problem::{ApiProblem, ApiResult};
use super::types::{ApiNothing, time};
use super::visibility::{needs_write, visible_loop};
use crate::domain::knowledge::memory::{
    Learning, LearningFilter, Proposal, ProposalState, Reflection, ReflectionChange, ReflectionOutcome, correct,
};
use crate::domain::model::ids::RepoRef;
use crate::domain::trust::viewer::ViewRight;
use crate::store::listing::RepoScope;
use crate::store::memory::{self, ReflectionRef, proposals};
use crate::store::sql::Connection;
use crate::web::visible::visible;
use crate::web::{ChangeRight, Viewer, WebState};

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;
/// Number of learnings read per page before filters are applied.
const READ: usize = 500;
/// Maximum length of a convention, in characters.
const MAX_RULE: usize = 2_000;

/// Query of learnings.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MemoryQuery {
    /// Words to search for, best match first; by default, all learnings ordered by id.
    q: Option<String>,
    /// Only learnings of this repository: `owner/name`, or `forge:owner/name`.
    repository: Option<String>,
    /// Only learnings of this kind: `strategy`, `antipattern`, `estimate` or `convention`.
    kind: Option<String>,
    /// Only learnings about this type of task, such as `test-fix` or `feature`.
    task_type: Option<String>,
    /// Minimum current confidence, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    min_confidence: Option<f64>,
    /// Minimum success rate, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    min_success_rate: Option<f64>,
    /// `next` of the previous page; not allowed with `q`.
    cursor: Option<String>,
    /// Maximum number of learnings, 1 to 200.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<usize>,
}

/// Page of learnings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiLearningPage {
    /// Learnings.
    learnings: Vec<ApiLearning>,
    /// `cursor` for the next page; null on the last page.
    next: Option<String>,
}

/// A learning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiLearning {
    /// Id of the learning.
    id: String,
    /// `strategy`, `antipattern`, `estimate` or `convention`.
    kind: String,
    /// `candidate`, `active` or `archived`.
    state: String,
    /// `forge:owner/name`.
    repository: String,
    /// Type of task.
    task_type: String,
    /// Text on one line.
    says: String,
    /// Current confidence, 0 to 1.
    confidence: f64,
    /// Success rate of the loops and iterations with this learning in the prompt, 0 to 1.
    success_rate: f64,
    /// Number of prompts that contained the learning.
    uses: u64,
}

/// Reflections of a loop, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiReflections {
    /// Reflections on the newest iterations, at most 200. They are deleted when the service's retention period after the
    /// loop's end expires.
    reflections: Vec<ApiReflection>,
}

/// Reflection on an iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiReflection {
    /// 1-based iteration.
    iteration: u32,
    /// Approach of the reflection.
    approach: String,
    /// Failure; empty if there was none.
    failed: String,
    /// Cause of the failure.
    why: String,
    /// Next step.
    next: String,
    /// Outcome of the reflection.
    outcome: ReflectionOutcome,
    /// Person who edited the reflection; null if it is unedited.
    edited_by: Option<String>,
}

impl From<Reflection> for ApiReflection {
    fn from(reflection: Reflection) -> Self {
        let Reflection { iteration, approach, failed, why, next, outcome, edited_by } = reflection;
        Self { iteration, approach, failed, why, next, outcome, edited_by }
    }
}

/// Proposals of conventions, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiProposals {
    /// Proposals.
    proposals: Vec<ApiProposal>,
}

/// Proposal of a convention, based on recurring review comments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiProposal {
    /// Number of the proposal.
    number: u64,
    /// `forge:owner/name`.
    repository: String,
    /// Review comment.
    text: String,
    /// `open`, `accepted` or `rejected`.
    state: String,
    /// Number of loops with this comment.
    loops: u32,
    /// Person who answered the proposal.
    decided_by: Option<String>,
    /// Time of the proposal.
    #[schemars(extend("format" = "date-time"))]
    created_at: String,
}

/// Query of proposals.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProposalsQuery {
    /// Whether to include answered proposals.
    all: bool,
}

/// Acceptance of a proposal.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ApiAcceptance {
    /// Text of the convention; by default, the review comment.
    text: Option<String>,
}

/// Returns the routes of memory.
pub(super) fn routes() -> Vec<ApiRoute> {
    let list = Operation::get(
        "/memory",
        "listLearnings",
        "Lists or searches learnings of repositories where the viewer may write",
    );
    let reflections = Operation::get(
        "/loops/{id}/reflections",
        "listReflections",
        "Lists the reflections of a loop's iterations for later iterations",
    );
    let edit = Operation::post(
        "/loops/{id}/reflections/{number}",
        "editReflection",
        "Changes texts of the reflection on an iteration; omitted texts stay",
    );
    let remove = Operation::delete(
        "/loops/{id}/reflections/{number}",
        "removeReflection",
        "Removes the reflection on an iteration, so that no later prompt contains it",
    );
    let forget = Operation::delete("/memory/{id}", "forgetLearning", "Deletes a learning");
    let listed = Operation::get("/memory/proposals", "listProposals", "Lists proposals of conventions");
    let accept = Operation::post(
        "/memory/proposals/{number}/accept",
        "acceptProposal",
        "Makes a proposal a convention of its repository",
    );
    let decline = Operation::post(
        "/memory/proposals/{number}/decline",
        "declineProposal",
        "Declines a proposal, so that its remark is not proposed again",
    );
    vec![
        ApiRoute::new(list.query::<MemoryQuery>().answers::<ApiLearningPage>(), get(self::list)),
        ApiRoute::new(reflections.answers::<ApiReflections>(), get(self::reflections)),
        ApiRoute::new(edit.body::<ReflectionChange>().answers::<ApiReflection>(), post(edit_reflection)),
        ApiRoute::new(remove, delete(remove_reflection)),
        ApiRoute::new(forget, delete(self::forget)),
        ApiRoute::new(listed.query::<ProposalsQuery>().answers::<ApiProposals>(), get(list_proposals)),
        ApiRoute::new(accept.body::<ApiAcceptance>().answers::<ApiProposal>(), post(self::accept)),
        ApiRoute::new(decline.body::<ApiNothing>().answers::<ApiProposal>(), post(self::decline)),
    ]
}

/// Returns the repositories whose learnings a viewer may read. Does not query rights in repositories without loops, because
/// learnings can be older than all loops.
async fn readable(state: &Arc<WebState>, viewer: &Viewer) -> Result<RepoScope, ApiProblem> {
    Ok(visible(state, viewer).await?.write)
}

async fn list(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    ApiQuery(query): ApiQuery<MemoryQuery>,
) -> ApiResult {
    let limit = limited(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let filter = filter_of(&query)?;
    if query.q.is_some() && query.cursor.is_some() {
        return Err(ApiProblem::invalid("q and cursor exclude each other", "narrow the search instead of paging it"));
    }
    let scope = readable(&state, &viewer).await?;
    let (settings, now) = (state.engine.recall.settings.clone(), state.engine.clock.now());
    let shown = move |one: &Learning| scope.contains(&one.repository) && filter.accepts(one, &settings, now);
    let (learnings, next) = match query.q {
        Some(text) => {
            let asked = correct(&words(text)?);
            let (found, _) = state.engine.store.read(move |c| memory::search(c, &asked, None, READ)).await?;
            (found.into_iter().filter(|one| shown(one)).take(limit).collect(), None)
        }
        None => {
            let after = query.cursor.unwrap_or_default();
            state.engine.store.read(move |c| page(c, after, limit, &shown)).await?
        }
    };
    let (settings, now) = (&state.engine.recall.settings, state.engine.clock.now());
    let described = |one: Learning| ApiLearning {
        kind: one.kind().as_str().into(),
        state: one.state.as_str().into(),
        repository: one.repository.to_string(),
        task_type: one.task_type.as_str().into(),
        says: one.line(),
        confidence: one.confidence_at(now, settings),
        success_rate: one.success_rate(),
        uses: one.uses,
        id: one.id,
    };
    let learnings: Vec<Learning> = learnings;
    ok(&state, &ApiLearningPage { learnings: learnings.into_iter().map(described).collect(), next })
}

/// Returns the filter for learnings in a query.
fn filter_of(query: &MemoryQuery) -> Result<LearningFilter, ApiProblem> {
    let bad = |name: &str, expected: String| {
        ApiProblem::invalid(
            format!("{name} has an invalid value: {expected}"),
            format!("send an allowed {name}, or none"),
        )
    };
    query.repository.as_deref().map(repository).transpose()?;
    let share = |name: &str, value: Option<f64>| match value {
        Some(value) if !(0.0..=1.0).contains(&value) => Err(bad(name, "expected a number from 0 to 1".into())),
        value => Ok(value),
    };
    let kind = query.kind.as_deref().map(LearningFilter::parse_kind).transpose();
    let task_type = query.task_type.as_deref().map(LearningFilter::parse_task_type).transpose();
    Ok(LearningFilter {
        kind: kind.map_err(|expected| bad("kind", expected.to_string()))?,
        task_type: task_type.map_err(|expected| bad("task_type", expected.to_string()))?,
        repository: query.repository.clone(),
        min_confidence: share("min_confidence", query.min_confidence)?,
        min_success_rate: share("min_success_rate", query.min_success_rate)?,
    })
}

async fn reflections(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(id): Path<String>,
) -> ApiResult {
    let (row, right) = visible_loop(&state, &viewer, &id, false).await?;
    needs_write(right, &row.repo)?;
    let found = state.engine.store.read(move |c| memory::reflections(c, &row.id, MAX_LIMIT)).await?;
    ok(&state, &ApiReflections { reflections: found.into_iter().map(ApiReflection::from).collect() })
}

/// Returns the reflection of a path that the viewer may change, and the viewer's name for the audit log.
async fn changeable(
    state: &Arc<WebState>,
    viewer: &Viewer,
    id: &str,
    number: &str,
) -> Result<(ReflectionRef, String), ApiProblem> {
    let (row, _) = visible_loop(state, viewer, id, false).await?;
    may_change(state, viewer, &row.repo, ApiProblem::unknown("loop", id)).await?;
    let iteration = number.parse().map_err(|_| ApiProblem::unknown("reflection", number))?;
    let by = viewer.account.as_ref().map_or_else(|| "the operator".to_owned(), |(_, user)| user.login.clone());
    Ok((ReflectionRef { loop_id: row.id, iteration }, by))
}

async fn edit_reflection(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path((id, number)): Path<(String, String)>,
    ApiBody(change): ApiBody<ReflectionChange>,
) -> ApiResult {
    let (of, by) = changeable(&state, &viewer, &id, &number).await?;
    let masker = state.engine.executor.memory.masker.clone();
    let now = state.engine.clock.now();
    let edited = state.engine.store.write(move |c| memory::edit_reflection(c, &masker, &of, &change, &by, now)).await?;
    let edited = edited.ok_or_else(|| ApiProblem::unknown("reflection", &number))?;
    ok(&state, &ApiReflection::from(edited))
}

async fn remove_reflection(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path((id, number)): Path<(String, String)>,
) -> ApiResult {
    let (of, by) = changeable(&state, &viewer, &id, &number).await?;
    let now = state.engine.clock.now();
    match state.engine.store.write(move |c| memory::remove_reflection(c, &of, &by, now)).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(ApiProblem::unknown("reflection", &number)),
    }
}

/// Reads a page of the visible learnings; also returns the next page's cursor.
fn page(
    c: &Connection,
    mut after: String,
    limit: usize,
    shown: &dyn Fn(&Learning) -> bool,
) -> crate::store::StoreResult<(Vec<Learning>, Option<String>)> {
    let mut page = Vec::new();
    loop {
        let (learnings, damaged) = memory::list(c, &after, READ)?;
        let last = learnings.iter().map(|one| &one.id).chain(damaged.iter().map(|one| &one.id)).max().cloned();
        let Some(last) = last else { return Ok((page, None)) };
        for learning in learnings {
            if page.len() == limit {
                let next = page.last().map(|one: &Learning| one.id.clone());
                return Ok((page, next));
            }
            if shown(&learning) {
                page.push(learning);
            }
        }
        after = last;
    }
}

/// Fails unless the viewer currently has write access to the repository. Reports repositories without read access as
/// unknown.
async fn may_change(
    state: &Arc<WebState>,
    viewer: &Viewer,
    repo: &RepoRef,
    unknown: ApiProblem,
) -> Result<(), ApiProblem> {
    match state.access.may_change(&state.engine, viewer, repo, ViewRight::Write).await {
        ChangeRight::Granted => Ok(()),
        ChangeRight::Denied => needs_write(ViewRight::Read, repo),
        ChangeRight::Unseen => Err(unknown),
    }
}

async fn forget(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(id): Path<String>,
) -> ApiResult {
    let unknown = || ApiProblem::unknown("learning", &id);
    let (wanted, now) = (id.clone(), state.engine.clock.now());
    // In a write transaction, because it quarantines a damaged learning.
    let found = state.engine.store.write(move |c| memory::get(c, &wanted, now)).await?.ok_or_else(unknown)?;
    may_change(&state, &viewer, &found.repository, unknown()).await?;
    state.engine.store.write(move |c| memory::forget(c, &[found.id])).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn list_proposals(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    ApiQuery(query): ApiQuery<ProposalsQuery>,
) -> ApiResult {
    let scope = readable(&state, &viewer).await?;
    let found = state.engine.store.read(move |c| proposals::proposals(c, query.all)).await?;
    let shown = found.into_iter().filter(|proposal| scope.contains(&proposal.repository));
    ok(&state, &ApiProposals { proposals: shown.map(ApiProposal::from).collect() })
}

impl From<Proposal> for ApiProposal {
    fn from(proposal: Proposal) -> Self {
        Self {
            number: proposal.number,
            repository: proposal.repository.to_string(),
            text: proposal.text,
            state: proposal.state.as_str().into(),
            loops: proposal.loops,
            decided_by: proposal.decided_by,
            created_at: time(proposal.created_at),
        }
    }
}

/// Returns an open proposal that the viewer may answer, and the viewer's name for the audit log.
async fn answerable(state: &Arc<WebState>, viewer: &Viewer, number: &str) -> Result<(Proposal, String), ApiProblem> {
    let unknown = || ApiProblem::unknown("proposal", number);
    let wanted: u64 = number.parse().map_err(|_| unknown())?;
    let found = state.engine.store.read(move |c| proposals::proposal(c, wanted)).await?.ok_or_else(unknown)?;
    may_change(state, viewer, &found.repository, unknown()).await?;
    if found.state != ProposalState::Open {
        return Err(ApiProblem::new(
            StatusCode::CONFLICT,
            format!("the proposal {number} is {}", found.state.as_str()),
            "`ralph-bot memory forget p-NUMBER` lets the remark be proposed again",
        ));
    }
    let by = viewer.account.as_ref().map_or_else(|| "the operator".to_owned(), |(_, user)| user.login.clone());
    Ok((found, by))
}

async fn accept(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(number): Path<String>,
    ApiBody(acceptance): ApiBody<ApiAcceptance>,
) -> ApiResult {
    let text = acceptance.text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    if text.as_ref().is_some_and(|text| text.is_empty() || text.chars().count() > MAX_RULE) {
        return Err(ApiProblem::invalid(
            "text is empty or too long",
            format!("send 1 to {MAX_RULE} characters, or no text"),
        ));
    }
    let (proposal, by) = answerable(&state, &viewer, &number).await?;
    let memory = state.engine.executor.memory.clone();
    let now = state.engine.clock.now();
    let answered = state.engine.store.write(move |c| {
        let text = text.unwrap_or_else(|| proposal.text.clone());
        memory.keep_rule(c, &proposal.repository, &text, &proposal.loop_id, now)?;
        proposals::answer(c, proposal.number, ProposalState::Accepted, &by, now)?;
        proposals::proposal(c, proposal.number)
    });
    answered_with(&state, answered.await?, &number)
}

async fn decline(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(number): Path<String>,
    ApiBody(ApiNothing {}): ApiBody<ApiNothing>,
) -> ApiResult {
    let (proposal, by) = answerable(&state, &viewer, &number).await?;
    let now = state.engine.clock.now();
    let answered = state.engine.store.write(move |c| {
        proposals::answer(c, proposal.number, ProposalState::Rejected, &by, now)?;
        proposals::proposal(c, proposal.number)
    });
    answered_with(&state, answered.await?, &number)
}

fn answered_with(state: &WebState, found: Option<Proposal>, number: &str) -> ApiResult {
    let proposal = found.ok_or_else(|| ApiProblem::unknown("proposal", number))?;
    ok(state, &ApiProposal::from(proposal))
}
