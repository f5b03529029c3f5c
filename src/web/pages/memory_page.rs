//! Memory: learnings, which are searched and forgotten, and proposals of conventions, which are answered.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::layout::{self, PageError, PageFrame, require_token, segment};
use crate::domain::knowledge::memory::{Learning, Proposal, ProposalState, correct};
use crate::domain::model::ids::RepoRef;
use crate::domain::trust::viewer::ViewRight;
use crate::store::StoreResult;
use crate::store::listing::RepoScope;
use crate::store::memory::{self, StepMemory, proposals};
use crate::web::visible::visible;
use crate::web::{ChangeRight, Viewer, WebState};

/// Number of learnings on the page.
const LEARNINGS_SHOWN: usize = 50;
/// Number of learnings that are read at once.
const LEARNINGS_READ: usize = 200;
/// Number of proposals on the page.
const PROPOSALS_SHOWN: usize = 10;

/// Query of the page.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct MemoryPageQuery {
    /// Words.
    q: String,
    /// Id of the last learning of the page before.
    after: String,
}

/// Form that forgets a learning.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ForgetForm {
    csrf: String,
    id: String,
    q: String,
}

/// Form that answers a proposal.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProposalForm {
    csrf: String,
    /// `accept` or `decline`.
    answer: String,
    /// Text of the convention; the remark itself if it is empty.
    text: String,
}

/// Whether a viewer sees the learnings of a repository. They quote what agents saw, as transcripts do.
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

/// Shows the page.
pub(super) async fn show(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Query(query): Query<MemoryPageQuery>,
) -> Response {
    match content(&state, &viewer, &query).await {
        Ok(context) => {
            let frame = PageFrame::still("Memory", "memory");
            layout::page(&state, &viewer, "memory.html", &frame, context, Vec::new())
        }
        Err(error) => error.page(&state, &viewer),
    }
}

async fn content(state: &WebState, viewer: &Viewer, query: &MemoryPageQuery) -> Result<Json, PageError> {
    let (words, after) = (query.q.trim().to_owned(), query.after.clone());
    let scope = visible(state, viewer).await?.write;
    let read = state.engine.store.read(move |c| {
        let found = match words.is_empty() {
            true => listed(c, &after, &scope)?,
            false => memory::search(c, &correct(&words), None, LEARNINGS_READ)?.0,
        };
        let found = found.into_iter().filter(|one| scope.contains(&one.repository)).take(LEARNINGS_SHOWN + 1);
        let rows = found.map(|one| memory::uplift(c, &one).map(|uplift| (one, uplift.sentence())));
        let mut open = proposals::proposals(c, false)?;
        open.retain(|proposal| scope.contains(&proposal.repository));
        open.truncate(PROPOSALS_SHOWN);
        Ok((rows.collect::<StoreResult<Vec<_>>>()?, open))
    });
    let (learnings, open) = read.await?;
    let now = state.engine.clock.now();
    let settings = &state.engine.settings.memory;
    let (mut rows, mut last) = (Vec::new(), String::new());
    let mut more = false;
    for (learning, uplift) in &learnings {
        if !sees(state, viewer, &learning.repository).await {
            continue;
        }
        if rows.len() == LEARNINGS_SHOWN {
            more = true;
            break;
        }
        last.clone_from(&learning.id);
        let row = learning_row(learning, learning.confidence_at(now, settings), uplift.as_deref());
        rows.push((learning.repository.clone(), row));
    }
    let mut asked = Vec::new();
    for proposal in &open {
        if sees(state, viewer, &proposal.repository).await {
            asked.push((proposal.repository.clone(), proposal_row(proposal)));
        }
    }
    let places: Vec<RepoRef> = rows.iter().chain(&asked).map(|(repo, _)| RepoRef::clone(repo)).collect();
    let presses = state.access.may_press(&state.engine, viewer, &places).await;
    let with_buttons = |((_, mut row), presses): ((RepoRef, Json), &bool)| {
        row["presses"] = json!(presses);
        row
    };
    let (of_rows, of_asked) = presses.split_at(rows.len());
    let rows: Vec<Json> = rows.into_iter().zip(of_rows).map(with_buttons).collect();
    let asked: Vec<Json> = asked.into_iter().zip(of_asked).map(with_buttons).collect();
    let next = if more && query.q.trim().is_empty() && !last.is_empty() {
        format!("/memory?after={}", segment(&last))
    } else {
        String::new()
    };
    Ok(json!({ "q": query.q, "learnings": rows, "proposals": asked, "next": next }))
}

/// Returns the learnings of some repositories by id, after `after`: one more than the page shows, if there are so many.
fn listed(c: &Connection, after: &str, scope: &RepoScope) -> StoreResult<Vec<Learning>> {
    let (mut found, mut after) = (Vec::new(), after.to_owned());
    while found.len() <= LEARNINGS_SHOWN {
        let (mut part, _) = memory::list(c, &after, LEARNINGS_READ)?;
        let Some(last) = part.last().map(|one| one.id.clone()) else { break };
        after = last;
        part.retain(|one| scope.contains(&one.repository));
        found.extend(part);
    }
    Ok(found)
}

fn learning_row(learning: &Learning, confidence: f64, uplift: Option<&str>) -> Json {
    json!({
        "id": learning.id,
        "kind": learning.kind().as_str(),
        "state": learning.state.as_str(),
        "repository": learning.repository.to_string(),
        "text": learning.line(),
        "confidence": format!("{confidence:.2}"),
        "seen": learning.seen,
        "uses": learning.uses,
        "uplift": uplift,
        "sources": learning.sources.iter().map(|source| source.loop_id.as_str()).collect::<Vec<_>>(),
    })
}

fn proposal_row(proposal: &Proposal) -> Json {
    json!({
        "number": proposal.number,
        "repository": proposal.repository.to_string(),
        "text": proposal.text,
        "loops": proposal.loops,
        "loop_id": proposal.loop_id,
    })
}

/// Forgets a learning.
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
        tracing::info!(learning = form.id, by = by(&viewer), "a learning was forgotten, as asked in the dashboard");
        let address = format!("/memory?q={}", segment(&form.q));
        Ok::<_, PageError>((StatusCode::SEE_OTHER, [(LOCATION, address)]).into_response())
    };
    let forgotten = forgotten.await;
    forgotten.unwrap_or_else(|error| error.page(&state, &viewer))
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
    if accepted && !state.engine.settings.memory.learns() {
        return Err(PageError::Invalid("Loops here do not learn from each other, so there are no rules.".to_owned()));
    }
    let text: String = form.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = if text.is_empty() { found.text.clone() } else { text };
    let memory =
        StepMemory { settings: state.engine.settings.memory.clone(), masker: state.engine.checks.masker.clone() };
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

/// Returns the person in the record of an answer.
fn by(viewer: &Viewer) -> String {
    match &viewer.account {
        Some((_, user)) => format!("{} in the dashboard", user.login),
        None => "the operator in the dashboard".to_owned(),
    }
}
