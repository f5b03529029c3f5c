//! Memory page: search and delete learnings, edit and remove reflections, and answer proposals of conventions.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::layout::{
    self, PageDef, PageError, PageNav, PageRights, opened, page_template, require, require_token, segment,
};
use super::loop_page;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::{
    Learning, LearningFilter, LearningKind, Proposal, ProposalState, Reflection, ReflectionChange, correct,
};
use crate::domain::model::ids::{LoopId, RepoRef};
use crate::domain::trust::viewer::ViewRight;
use crate::store::StoreResult;
use crate::store::memory::{self, ReflectionRef, proposals};
use crate::store::sql::Connection;
use crate::web::visible::visible;
use crate::web::{ChangeRight, Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/memory",
    template: page_template!("memory.html"),
    title: "Memory",
    nav: PageNav::Entry("Memory"),
    rights: PageRights::Viewer,
    show: |page| opened(page, show),
};

/// Number of learnings on the page.
const LEARNINGS_SHOWN: usize = 50;
/// Number of learnings read per query.
const LEARNINGS_READ: usize = 200;
/// Number of proposals on the page.
const PROPOSALS_SHOWN: usize = 10;

/// Maximum number of reflections on the page; the page shows the newest ones.
const REFLECTIONS_SHOWN: usize = 50;

/// Search text and filters for learnings; an empty value disables its filter.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct LearningChoice {
    /// Search text.
    q: String,
    kind: String,
    task_type: String,
    /// `owner/name`.
    repository: String,
    min_confidence: String,
}

impl LearningChoice {
    fn filter(&self) -> Result<LearningFilter, PageError> {
        fn set<T, E: Display>(name: &str, text: &str, parse: fn(&str) -> Result<T, E>) -> Result<Option<T>, PageError> {
            let text = Some(text.trim()).filter(|text| !text.is_empty());
            let parsed = text.map(parse).transpose();
            parsed.map_err(|expected| PageError::Invalid(format!("The {name} is invalid: {expected}.")))
        }
        Ok(LearningFilter {
            kind: set("kind", &self.kind, LearningFilter::parse_kind)?,
            task_type: set("task type", &self.task_type, LearningFilter::parse_task_type)?,
            repository: set("repository", &self.repository, |name| Ok::<_, Infallible>(name.to_owned()))?,
            min_confidence: set("confidence", &self.min_confidence, LearningFilter::parse_share)?,
            min_success_rate: None,
        })
    }

    /// Returns the page's address with this choice; a non-empty `after` is the id of the previous page's last learning.
    fn address(&self, after: &str) -> String {
        let Self { q, kind, task_type, repository, min_confidence } = self;
        let all = [
            ("q", q.as_str()),
            ("kind", kind),
            ("task_type", task_type),
            ("repository", repository),
            ("min_confidence", min_confidence),
            ("after", after),
        ];
        let set = all.iter().filter(|(_, value)| !value.is_empty());
        let parts: Vec<String> = set.map(|(name, value)| format!("{name}={}", segment(value))).collect();
        if parts.is_empty() { "/memory".to_owned() } else { format!("/memory?{}", parts.join("&")) }
    }
}

/// Query of the page.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct MemoryPageQuery {
    #[serde(flatten)]
    choice: LearningChoice,
    /// Id of the previous page's last learning.
    after: String,
    /// Id of the loop whose reflections are shown.
    r#loop: String,
}

/// Form that deletes a learning.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ForgetForm {
    csrf: String,
    id: String,
    #[serde(flatten)]
    choice: LearningChoice,
}

/// Form that edits or removes a reflection.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReflectionForm {
    csrf: String,
    /// `save` or `remove`.
    answer: String,
    approach: String,
    failed: String,
    why: String,
    next: String,
}

/// Form that answers a proposal.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProposalForm {
    csrf: String,
    /// `accept` or `decline`.
    answer: String,
    /// Text of the convention; by default, the review comment.
    text: String,
}

/// Whether a viewer may see a repository's learnings. They require the same right as transcripts, because they quote them.
async fn sees(state: &WebState, viewer: &Viewer, repo: &RepoRef) -> bool {
    state.access.right(&state.engine, viewer, repo, false).await >= ViewRight::Write
}

async fn require_change(state: &WebState, viewer: &Viewer, repo: &RepoRef) -> Result<(), PageError> {
    match state.access.may_change(&state.engine, viewer, repo, ViewRight::Write).await {
        ChangeRight::Granted => Ok(()),
        ChangeRight::Denied => Err(PageError::Forbidden("This needs write access to the repository.")),
        ChangeRight::Unseen => Err(PageError::NotFound),
    }
}

/// Data of the page.
#[derive(Debug, Serialize)]
struct MemoryView<'a> {
    choice: &'a LearningChoice,
    kinds: [&'static str; LearningKind::ALL.len()],
    task_types: [&'static str; TaskType::ALL.len()],
    /// Loop whose reflections the page shows; empty for none.
    loop_id: &'a str,
    reflections: Vec<Reflection>,
    /// Whether the viewer may change the reflections.
    edits: bool,
    /// Numbers of learnings that are not archived, by kind.
    totals: Vec<KindTotal>,
    learnings: Vec<LearningLine>,
    proposals: Vec<ProposalLine>,
    /// Address of the next page; empty on the last page.
    next: String,
}

/// Number of learnings of a kind.
#[derive(Debug, Serialize)]
struct KindTotal {
    kind: &'static str,
    count: u64,
}

/// Learning of a repository.
#[derive(Debug, Serialize)]
struct LearningLine {
    id: String,
    kind: &'static str,
    task_type: &'static str,
    state: &'static str,
    repository: String,
    text: String,
    confidence: String,
    seen: u32,
    uses: u64,
    uplift: Option<String>,
    /// Loops that the learning comes from.
    sources: Vec<String>,
    /// Whether the viewer may delete it.
    presses: bool,
}

/// Proposal of a convention.
#[derive(Debug, Serialize)]
struct ProposalLine {
    number: u64,
    repository: String,
    text: String,
    loops: u32,
    loop_id: LoopId,
    /// Whether the viewer may answer it.
    presses: bool,
}

/// Returns the page.
async fn show(
    state: Arc<WebState>,
    viewer: Viewer,
    Query(query): Query<MemoryPageQuery>,
) -> Result<Response, PageError> {
    let view = content(&state, &viewer, &query).await?;
    Ok(layout::page(&state, &viewer, &PAGE, &view))
}

async fn content<'a>(
    state: &WebState,
    viewer: &Viewer,
    query: &'a MemoryPageQuery,
) -> Result<MemoryView<'a>, PageError> {
    let (words, after, filter) = (query.choice.q.trim().to_owned(), query.after.clone(), query.choice.filter()?);
    let (reflections, edits) = reflections_of(state, viewer, query.r#loop.trim()).await?;
    let (settings, now) = (state.engine.recall.settings.clone(), state.engine.clock.now());
    let scope = visible(state, viewer).await?.write;
    let read = state.engine.store.read(move |c| {
        let found = match words.is_empty() {
            true => listed(c, &after, &|one| scope.contains(&one.repository) && filter.accepts(one, &settings, now))?,
            false => memory::search(c, &correct(&words), None, LEARNINGS_READ)?.0,
        };
        let shown = |one: &Learning| scope.contains(&one.repository) && filter.accepts(one, &settings, now);
        let found = found.into_iter().filter(shown).take(LEARNINGS_SHOWN + 1);
        let rows = found.map(|one| memory::uplift(c, &one).map(|uplift| (one, uplift.sentence())));
        let mut open = proposals::proposals(c, false)?;
        open.retain(|proposal| scope.contains(&proposal.repository));
        open.truncate(PROPOSALS_SHOWN);
        Ok((rows.collect::<StoreResult<Vec<_>>>()?, open, memory::counts_by_kind(c, &scope)?))
    });
    let (learnings, open, counts) = read.await?;
    let totals = LearningKind::ALL.map(LearningKind::as_str).map(|kind| {
        let of_kind = counts.iter().filter(|(of, _, _)| of == kind);
        KindTotal { kind, count: of_kind.map(|(_, _, count)| count).sum() }
    });
    let settings = &state.engine.recall.settings;
    let mut seen: Vec<&(Learning, Option<String>)> = Vec::new();
    let mut more = false;
    for found in &learnings {
        if !sees(state, viewer, &found.0.repository).await {
            continue;
        }
        if seen.len() == LEARNINGS_SHOWN {
            more = true;
            break;
        }
        seen.push(found);
    }
    let mut asked: Vec<&Proposal> = Vec::new();
    for proposal in &open {
        if sees(state, viewer, &proposal.repository).await {
            asked.push(proposal);
        }
    }
    let of_seen = seen.iter().map(|(learning, _)| learning.repository.clone());
    let places: Vec<RepoRef> = of_seen.chain(asked.iter().map(|proposal| proposal.repository.clone())).collect();
    let presses = state.access.may_press(&state.engine, viewer, &places).await;
    let (of_learnings, of_proposals) = presses.split_at(seen.len());
    let last = seen.last().filter(|_| more && query.choice.q.trim().is_empty());
    let learnings = seen.iter().zip(of_learnings).map(|((learning, uplift), presses)| {
        learning_line(learning, learning.confidence_at(now, settings), uplift.clone(), *presses)
    });
    let proposals = asked.iter().zip(of_proposals).map(|(proposal, presses)| proposal_line(proposal, *presses));
    Ok(MemoryView {
        choice: &query.choice,
        kinds: LearningKind::ALL.map(LearningKind::as_str),
        task_types: TaskType::ALL.map(TaskType::as_str),
        loop_id: &query.r#loop,
        reflections,
        edits,
        totals: totals.into_iter().filter(|total| total.count > 0).collect(),
        next: last.map_or_else(String::new, |(learning, _)| query.choice.address(&learning.id)),
        learnings: learnings.collect(),
        proposals: proposals.collect(),
    })
}

/// Returns the newest reflections of a loop, oldest first, and whether the viewer may change them; empty if `id` is empty.
async fn reflections_of(state: &WebState, viewer: &Viewer, id: &str) -> Result<(Vec<Reflection>, bool), PageError> {
    if id.is_empty() {
        return Ok((Vec::new(), false));
    }
    let (current, right) = loop_page::seen(state, viewer, &LoopId::new(id), false).await?;
    require(right, ViewRight::Write)?;
    let edits =
        state.access.may_press(&state.engine, viewer, std::slice::from_ref(&current.issue.repo)).await == [true];
    let read = state.engine.store.read(move |c| memory::reflections(c, &current.id, REFLECTIONS_SHOWN));
    Ok((read.await?, edits))
}

/// Returns the learnings after the id `after` for which `shown` returns `true`, ordered by id: up to one more than the page
/// shows.
fn listed(c: &Connection, after: &str, shown: &dyn Fn(&Learning) -> bool) -> StoreResult<Vec<Learning>> {
    let (mut found, mut after) = (Vec::new(), after.to_owned());
    while found.len() <= LEARNINGS_SHOWN {
        let (mut part, _) = memory::list(c, &after, LEARNINGS_READ)?;
        let Some(last) = part.last().map(|one| one.id.clone()) else { break };
        after = last;
        part.retain(|one| shown(one));
        found.extend(part);
    }
    Ok(found)
}

fn learning_line(learning: &Learning, confidence: f64, uplift: Option<String>, presses: bool) -> LearningLine {
    LearningLine {
        id: learning.id.clone(),
        kind: learning.kind().as_str(),
        task_type: learning.task_type.as_str(),
        state: learning.state.as_str(),
        repository: learning.repository.to_string(),
        text: learning.line(),
        confidence: format!("{confidence:.2}"),
        seen: learning.seen,
        uses: learning.uses,
        uplift,
        sources: learning.sources.iter().map(|source| source.loop_id.to_string()).collect(),
        presses,
    }
}

fn proposal_line(proposal: &Proposal, presses: bool) -> ProposalLine {
    ProposalLine {
        number: proposal.number,
        repository: proposal.repository.to_string(),
        text: proposal.text.clone(),
        loops: proposal.loops,
        loop_id: proposal.loop_id.clone(),
        presses,
    }
}

/// Deletes a learning.
pub(super) async fn forget(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Form(form): Form<ForgetForm>,
) -> Response {
    let forgotten = async {
        require_token(&viewer, &form.csrf)?;
        let (id, now) = (form.id.clone(), state.engine.clock.now());
        let found = state.engine.store.write(move |c| memory::get(c, &id, now)).await?.ok_or(PageError::NotFound)?;
        require_change(&state, &viewer, &found.repository).await?;
        state.engine.store.write(move |c| memory::forget(c, &[found.id])).await?;
        tracing::info!(learning = form.id, by = by(&viewer), "a person deleted a learning in the dashboard");
        let address = form.choice.address("");
        Ok::<_, PageError>((StatusCode::SEE_OTHER, [(LOCATION, address)]).into_response())
    };
    let forgotten = forgotten.await;
    forgotten.unwrap_or_else(|error| error.page(&state, &viewer))
}

/// Edits or removes a reflection.
pub(super) async fn reflection(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path((id, iteration)): Path<(String, u32)>,
    Form(form): Form<ReflectionForm>,
) -> Response {
    let address = format!("/memory?loop={}", segment(&id));
    let of = ReflectionRef { loop_id: LoopId::new(id), iteration };
    match change_reflection(&state, &viewer, of, form).await {
        Ok(()) => (StatusCode::SEE_OTHER, [(LOCATION, address)]).into_response(),
        Err(error) => error.page(&state, &viewer),
    }
}

async fn change_reflection(
    state: &WebState,
    viewer: &Viewer,
    of: ReflectionRef,
    form: ReflectionForm,
) -> Result<(), PageError> {
    require_token(viewer, &form.csrf)?;
    let (current, _) = loop_page::seen(state, viewer, &of.loop_id, false).await?;
    require_change(state, viewer, &current.issue.repo).await?;
    let by = by(viewer);
    let masker = state.engine.executor.memory.masker.clone();
    let now = state.engine.clock.now();
    let ReflectionForm { answer, approach, failed, why, next, .. } = form;
    let change = ReflectionChange { approach: Some(approach), failed: Some(failed), why: Some(why), next: Some(next) };
    let store = &state.engine.store;
    let found = match answer.as_str() {
        "save" => {
            let edit = move |c: &Connection| memory::edit_reflection(c, &masker, &of, &change, &by, now);
            store.write(edit).await?.is_some()
        }
        "remove" => store.write(move |c| memory::remove_reflection(c, &of, &by, now)).await?,
        _ => return Err(PageError::Invalid("Save the reflection, or remove it.".to_owned())),
    };
    if found { Ok(()) } else { Err(PageError::NotFound) }
}

/// Answers a proposal.
pub(super) async fn answer(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path(number): Path<u64>,
    Form(form): Form<ProposalForm>,
) -> Response {
    match answered(&state, &viewer, number, &form).await {
        Ok(()) => (StatusCode::SEE_OTHER, [(LOCATION, "/memory")]).into_response(),
        Err(error) => error.page(&state, &viewer),
    }
}

async fn answered(state: &WebState, viewer: &Viewer, number: u64, form: &ProposalForm) -> Result<(), PageError> {
    require_token(viewer, &form.csrf)?;
    let found = state.engine.store.read(move |c| proposals::proposal(c, number)).await?.ok_or(PageError::NotFound)?;
    require_change(state, viewer, &found.repository).await?;
    let accepted = match form.answer.as_str() {
        "accept" => true,
        "decline" => false,
        _ => return Err(PageError::Invalid("Accept the proposal, or decline it.".to_owned())),
    };
    if accepted && !state.engine.recall.settings.learns() {
        return Err(PageError::Invalid("Loops here do not learn from each other, so there are no rules.".to_owned()));
    }
    let text: String = form.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = if text.is_empty() { found.text.clone() } else { text };
    let memory = state.engine.executor.memory.clone();
    let (who, now) = (by(viewer), state.engine.clock.now());
    let write = state.engine.store.write(move |c| {
        let answer = match accepted {
            true => {
                memory.keep_rule(c, &found.repository, &text, &found.loop_id, now)?;
                ProposalState::Accepted
            }
            false => ProposalState::Rejected,
        };
        proposals::answer(c, number, answer, &who, now)
    });
    write.await?;
    Ok(())
}

/// Returns the viewer's name for the record of an answer.
fn by(viewer: &Viewer) -> String {
    match &viewer.account {
        Some((_, user)) => format!("{} in the dashboard", user.login),
        None => "the operator in the dashboard".to_owned(),
    }
}
