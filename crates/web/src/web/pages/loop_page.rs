//! Page of a loop: state, answers, timeline, charts, decisions, and a command form.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::answers::AnswerForm;
use super::data::StepRow;
use super::layout::{
    self, PageDef, PageError, PageFrame, PageNav, PageRights, beginning, opened, page_template, require, require_token,
    segment,
};
use super::{answers, charts, data, live};
use crate::domain::loops::{Iteration, KeptAlarm, Loop};
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::domain::report::view::{CommandReply, StatusView, View};
use crate::domain::report::{self, control_words};
use crate::domain::trust::viewer::ViewRight;
use crate::engine::{CommandPath, DashboardAuthor, DashboardCommandError, DashboardOutcome};
use crate::store::audit::AuditLine;
use crate::store::calls::CallRecord;
use crate::store::{audit, calls, loops};
use crate::web::markup::beside_tasks;
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/loops/{id}",
    template: page_template!("loop.html"),
    title: "Loop",
    nav: PageNav::Below("/"),
    rights: PageRights::Viewer,
    show: |page| opened(page, show),
};

/// Number of log steps on the page.
const STEPS_SHOWN: usize = 30;
/// Number of audit log entries on the page.
const AUDIT_SHOWN: usize = 40;
/// Maximum number of iterations in the timeline; the table has earlier ones.
const TIMELINE_SHOWN: usize = 8;
/// Number of iterations per page of the table.
const TABLE_SHOWN: usize = 25;
/// Number of backend calls on the page.
const CALLS_SHOWN: usize = 30;
/// Maximum size of a long text, and of a text in a list, in bytes.
const TEXT_SHOWN: usize = 8 * 1024;
const LINE_SHOWN: usize = 600;

/// Query of the page.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoopQuery {
    /// Position of the step that answered the command just sent.
    answer: Option<i64>,
    /// Newest iteration in the table; by default, the newest of all.
    until: Option<u32>,
}

/// Form that sends a command.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct CommandForm {
    csrf: String,
    /// Command, or its start.
    command: String,
    /// Text that is appended to the command.
    text: String,
    /// Whether the text is a single argument.
    quoted: bool,
}

/// Returns a loop and the viewer's right. Reports an invisible loop as missing.
pub(super) async fn seen(
    state: &WebState,
    viewer: &Viewer,
    id: &LoopId,
    fresh: bool,
) -> Result<(Loop, ViewRight), PageError> {
    let wanted = id.clone();
    let current = state.engine.store.read(move |c| loops::get(c, &wanted)).await?.ok_or(PageError::NotFound)?;
    let right = state.access.right(&state.engine, viewer, &current.issue.repo, fresh).await;
    require(right, ViewRight::Read)?;
    Ok((current, right))
}

/// Data of the page. Costs are in millionths of a dollar, and times in milliseconds.
#[derive(Debug, Serialize)]
struct LoopView<'a> {
    id: &'a LoopId,
    writes: bool,
    title: &'a str,
    repository: String,
    issue: u64,
    url: &'a str,
    state: &'a str,
    open: bool,
    /// Data of the status comment.
    status: Json,
    created_at: i64,
    updated_at: i64,
    person: &'a str,
    /// Login of the person whose rights the loop uses.
    authority: &'a str,
    cost: i64,
    cost_limit: i64,
    tokens_in: u64,
    tokens_out: u64,
    answers: Vec<AnswerForm>,
    /// Whether the viewer may give commands.
    presses: bool,
    who_may: String,
    /// Text of the command field.
    command: String,
    reply: Option<CommandReply>,
    checks: Vec<LoopCheckLine<'a>>,
    /// Number of iterations.
    count: usize,
    timeline: Vec<IterationLine<'a>>,
    iterations: Vec<IterationLine<'a>>,
    /// Newest iteration of the table's previous and next page.
    later: Option<u32>,
    earlier: Option<u32>,
    steps: Vec<StepRow>,
    step_count: i64,
    audit: Vec<AuditLine>,
    audit_count: usize,
    calls: Vec<CallRecord>,
    calls_count: usize,
    has_charts: bool,
    has_alarms: bool,
}

/// Result of a check.
#[derive(Debug, Serialize)]
struct LoopCheckLine<'a> {
    name: &'a str,
    command: String,
    holds: bool,
    why: String,
}

/// Iteration in the timeline and the table. People with read access may see it.
#[derive(Debug, Serialize)]
struct IterationLine<'a> {
    n: u32,
    approach: String,
    summary: String,
    problem: String,
    running: bool,
    started_at: i64,
    seconds: i64,
    percent: u8,
    held: usize,
    checks: usize,
    all_held: bool,
    files: usize,
    added: u64,
    removed: u64,
    cost: i64,
    backend: &'a str,
    model: Option<&'a str>,
    commit: Option<&'a str>,
    discarded: bool,
    signal: Option<String>,
    p: Option<String>,
    i: Option<String>,
    d: Option<String>,
    gains: Option<String>,
    profile: Option<String>,
    alarms: Vec<AlarmLine>,
    health: Option<&'static str>,
    /// Time of the judgement.
    ended_at: Option<i64>,
    found: Vec<FoundLine>,
    strategy: Option<&'a str>,
}

/// Active alarm of an iteration.
#[derive(Debug, Serialize)]
struct AlarmLine {
    text: String,
    /// Time when the alarm was raised; `None` if its iteration is unknown.
    raised_at: Option<i64>,
}

/// Detection in an iteration.
#[derive(Debug, Serialize)]
struct FoundLine {
    level: &'static str,
    title: &'static str,
    evidence: String,
}

/// Returns the page.
async fn show(
    state: Arc<WebState>,
    viewer: Viewer,
    (Path(id), Query(query)): (Path<String>, Query<LoopQuery>),
) -> Result<Response, PageError> {
    content(&state, &viewer, &LoopId::new(id), &query, None).await
}

/// Sends a command to the loop and shows the result on the page.
pub(super) async fn command(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path(id): Path<String>,
    Form(form): Form<CommandForm>,
) -> Response {
    let back = format!("/loops/{}", segment(&id));
    match given(&state, &viewer, &LoopId::new(id), &form).await {
        Ok(response) => response,
        Err(PageError::NotFound) => PageError::NotFound.page(&state, &viewer),
        Err(error) => error.page_with(&state, &viewer, &[(&back, "Back to the loop"), ("/", "All loops")]),
    }
}

async fn given(state: &WebState, viewer: &Viewer, id: &LoopId, form: &CommandForm) -> Result<Response, PageError> {
    require_token(viewer, &form.csrf)?;
    let (current, right) = seen(state, viewer, id, true).await?;
    require(right, ViewRight::Write)?;
    let author = match &viewer.account {
        None => DashboardAuthor::Operator,
        Some((forge, user)) if *forge == current.issue.repo.forge => DashboardAuthor::Account(user.clone()),
        Some((forge, _)) => {
            let problem = format!(
                "You are known to the forge {forge}; log in with {} to give commands.",
                current.issue.repo.forge
            );
            return Err(PageError::Invalid(problem));
        }
    };
    let text = answers::line(&form.command, &form.text, form.quoted);
    let given = state.engine.intake.command_from_dashboard(id, (&author, &CommandPath::Page), &text);
    let answer = given.await.map_err(|error| match error {
        DashboardCommandError::UnknownLoop(_) => PageError::NotFound,
        DashboardCommandError::Denied { .. } => {
            PageError::Forbidden("The forge reports that you may not give commands there.")
        }
        failure @ DashboardCommandError::Unavailable(_) => PageError::Unavailable(failure),
        DashboardCommandError::Store(error) => PageError::Store(error),
    })?;
    let status = match answer.outcome {
        DashboardOutcome::Taken(step) => {
            let address = format!("/loops/{}?answer={step}", segment(id.as_str()));
            return Ok((StatusCode::SEE_OTHER, [(LOCATION, address)]).into_response());
        }
        DashboardOutcome::Answered => StatusCode::OK,
        DashboardOutcome::Stored => StatusCode::ACCEPTED,
        DashboardOutcome::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        DashboardOutcome::Refused => StatusCode::CONFLICT,
    };
    // Keep the text of a failed command in the field, so that the person can correct it.
    let typed = if status.is_success() { String::new() } else { text };
    let mut response = content(state, viewer, id, &LoopQuery::default(), Some((answer.reply, typed))).await?;
    *response.status_mut() = status;
    Ok(response)
}

async fn content(
    state: &WebState,
    viewer: &Viewer,
    id: &LoopId,
    query: &LoopQuery,
    refused: Option<(CommandReply, String)>,
) -> Result<Response, PageError> {
    let (reply, typed) = refused.map_or((None, String::new()), |(reply, typed)| (Some(reply), typed));
    let position = live::position(state).await?;
    let (current, right) = seen(state, viewer, id, false).await?;
    let writes = right >= ViewRight::Write;
    let repo = std::slice::from_ref(&current.issue.repo);
    let presses = state.access.may_press(&state.engine, viewer, repo).await == [true];
    let (of, answer) = (id.clone(), query.answer);
    let read = state.engine.store.read(move |c| {
        let answered = answer.map(|seq| data::reasons_of(c, &of, seq)).transpose()?;
        let steps = (data::newest_steps(c, &of, STEPS_SHOWN)?, data::count_of_steps(c, &of)?);
        Ok((steps, audit::trail(c, &of)?, calls::of_loop(c, &of)?, answered))
    });
    let ((mut steps, steps_count), mut trail, mut calls, answered) = read.await?;
    let reply = reply.or(answered.filter(|reasons| !reasons.is_empty()).map(|lines| CommandReply {
        command: String::new(),
        ok: true,
        lines,
        nearest: None,
    }));
    let now = state.engine.clock.now();
    let View::Status(status) = report::status(&current, &state.engine.calls.settings.default_backend, now) else {
        return Err(PageError::NotFound);
    };
    let (audit_count, calls_count) = (trail.len(), calls.len());
    trail.reverse();
    trail.truncate(AUDIT_SHOWN);
    calls.reverse();
    calls.truncate(CALLS_SHOWN);
    let drawn = beside_tasks(|| charts::draw(&current));
    steps.iter_mut().flat_map(|step| &mut step.reasons).for_each(|reason| *reason = beginning(reason, LINE_SHOWN));
    let newest = current.iterations.len();
    let from = current.iterations.iter().rev().position(|i| query.until.is_none_or(|until| i.number <= until));
    let from = from.unwrap_or(newest);
    let rows = |from: usize, count: usize| -> Vec<IterationLine<'_>> {
        current.iterations.iter().rev().skip(from).take(count).map(|i| line(&current, i, now)).collect()
    };
    let at = |place: usize| current.iterations.iter().rev().nth(place).map(|i| i.number);
    let checks = current.latest_checks().into_iter().flat_map(|report| &report.outcomes).map(|check| LoopCheckLine {
        name: &check.name,
        command: beginning(&check.command, LINE_SHOWN),
        holds: check.holds,
        why: beginning(&check.why, LINE_SHOWN),
    });
    let view = LoopView {
        id: &current.id,
        writes,
        title: current.task.text.title(),
        repository: current.issue.repo.to_string(),
        issue: current.issue.issue.0,
        url: &current.task.url,
        state: &status.state,
        open: current.state.is_open(),
        status: shown(&status, writes),
        created_at: current.created_at.0,
        updated_at: current.updated_at.0,
        person: &current.people.requested_by.login,
        authority: &current.people.authority.login,
        cost: current.spent.cost.0,
        cost_limit: current.limits.cost.0,
        tokens_in: current.spent.tokens_in,
        tokens_out: current.spent.tokens_out,
        answers: if presses { status.commands.iter().map(answers::form).collect() } else { Vec::new() },
        presses,
        who_may: report::who_may(&current.settings.policy),
        command: typed,
        reply,
        checks: checks.collect(),
        count: newest,
        timeline: rows(0, TIMELINE_SHOWN),
        iterations: rows(from, TABLE_SHOWN),
        later: if from > 0 { at(from.saturating_sub(TABLE_SHOWN)) } else { None },
        earlier: at(from + TABLE_SHOWN),
        steps,
        step_count: steps_count,
        audit: trail,
        audit_count,
        calls,
        calls_count,
        has_charts: !drawn.progress.is_empty(),
        has_alarms: drawn.has_alarms,
    };
    let address = format!("/loops/{}", segment(id.as_str()));
    let frame = PageFrame {
        title: format!("{} · {}", status.state.replace('_', " "), current.task.text.title()),
        feed: live::address(&address, position),
        here: query.until.map_or(address.clone(), |until| format!("{address}?until={until}")),
        icon: layout::icon_of(current.state),
    };
    let svg =
        vec![("progress", drawn.progress), ("terms", drawn.terms), ("gains", drawn.gains), ("cost_chart", drawn.cost)];
    Ok(layout::page_in(state, viewer, &PAGE, &frame, &view, svg))
}

/// Returns a loop's state with texts cut to their maximum size. Includes texts that require write access only if `writes` is
/// set.
fn shown(status: &StatusView, writes: bool) -> Json {
    let mut status_json = json!(status);
    if let Some(map) = status_json.as_object_mut() {
        let plan = status.plan.as_ref().filter(|_| writes);
        map.insert(
            "task_text".into(),
            json!(if writes { beginning(&status.task_text, TEXT_SHOWN) } else { String::new() }),
        );
        map.insert(
            "plan".into(),
            json!(plan.map(|plan| json!({ "plan_text": beginning(&plan.plan_text, TEXT_SHOWN) }))),
        );
        map.insert("notes".into(), status.notes.iter().map(|note| beginning(note, LINE_SHOWN)).collect());
    }
    status_json
}

fn line<'a>(current: &Loop, iteration: &'a Iteration, now: Timestamp) -> IterationLine<'a> {
    let (added, removed) = iteration.stat.lines();
    let end = iteration.ended_at.unwrap_or(if current.state.is_open() { now } else { current.updated_at });
    let judged = iteration.judged.as_ref();
    let said = [&iteration.report.summary, &iteration.message].into_iter().find(|text| !text.trim().is_empty());
    let found = judged.into_iter().flat_map(|judged| &judged.found).map(|found| FoundLine {
        level: found.level.name(),
        title: found.kind.title(),
        evidence: beginning(&found.evidence, LINE_SHOWN),
    });
    IterationLine {
        n: iteration.number,
        approach: beginning(&report::approach(iteration), LINE_SHOWN),
        summary: said.map_or_else(String::new, |text| beginning(text.lines().next().unwrap_or_default(), LINE_SHOWN)),
        problem: beginning(&iteration.agent_problem, LINE_SHOWN),
        running: iteration.ended_at.is_none() && current.state.is_open(),
        started_at: iteration.started_at.0,
        seconds: end.since(iteration.started_at) / 1000,
        percent: iteration.completion.whole_percent(),
        held: iteration.checks.held(),
        checks: iteration.checks.outcomes.len(),
        all_held: iteration.checks.all_hold() && !iteration.checks.outcomes.is_empty(),
        files: iteration.stat.files.len(),
        added,
        removed,
        cost: iteration.cost.0,
        backend: &iteration.served.backend,
        model: iteration.served.model.as_deref(),
        commit: iteration.commit.as_ref().map(|commit| commit.short()),
        discarded: iteration.discarded,
        signal: judged.map(|judged| format!("{:.2}", judged.signal)),
        p: judged.map(|judged| format!("{:.2}", judged.p)),
        i: judged.map(|judged| format!("{:.2}", judged.i)),
        d: judged.map(|judged| format!("{:+.2}", judged.d)),
        gains: judged.map(control_words::gains),
        profile: judged.map(|judged| judged.profile.clone()),
        alarms: judged
            .into_iter()
            .flat_map(control_words::active_alarms)
            .map(|alarm| alarm_line(current, alarm))
            .collect(),
        health: judged.map(|judged| judged.health.word()),
        ended_at: iteration.ended_at.map(|at| at.0),
        found: found.collect(),
        strategy: judged.map(|judged| judged.reasoning.as_str()),
    }
}

fn alarm_line(current: &Loop, alarm: &KeptAlarm) -> AlarmLine {
    let since = current.iterations.iter().find(|iteration| u64::from(iteration.number) == alarm.since);
    AlarmLine {
        text: control_words::alarm(alarm),
        raised_at: since.and_then(|iteration| iteration.ended_at).map(|at| at.0),
    }
}

/// Returns the audit log as JSON: decisions, steps and their inputs. It requires write access, because inputs contain
/// outputs.
pub(super) async fn audit(State(state): State<Arc<WebState>>, viewer: Viewer, Path(id): Path<String>) -> Response {
    match audit_json(&state, &viewer, &LoopId::new(id)).await {
        Ok(value) => axum::Json(value).into_response(),
        Err(error) => error.page(&state, &viewer),
    }
}

async fn audit_json(state: &WebState, viewer: &Viewer, id: &LoopId) -> Result<Json, PageError> {
    let (_, right) = seen(state, viewer, id, false).await?;
    let of = id.clone();
    let read = state.engine.store.read(move |c| {
        let events = if right >= ViewRight::Write { loops::history(c, &of)? } else { Vec::new() };
        Ok((audit::trail(c, &of)?, events, data::newest_steps(c, &of, usize::MAX >> 1)?))
    });
    let (trail, events, mut steps) = read.await?;
    steps.reverse();
    let events = match right >= ViewRight::Write {
        true => json!(events),
        false => json!(steps),
    };
    Ok(state.engine.outbound.masked_json(json!({ "loop": id, "audit": trail, "events": events })))
}
