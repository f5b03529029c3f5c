//! Page of one iteration: its transcript, its change, and the decisions after it. Each part is also available as plain text.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::ansi::{AnsiReader, StyledText};
use super::diff::{self, FilePatch, PatchRoom};
use super::layout::{
    self, PageDef, PageError, PageFrame, PageNav, PageRights, beginning, markup_size, opened, page_template, require,
    segment,
};
use super::{live, loop_page};
use crate::domain::knowledge::session::SessionEvent;
use crate::domain::knowledge::session::transcript::{self, TranscriptPart};
use crate::domain::loops::{GuidanceSource, Iteration, IterationJudgement, Loop};
use crate::domain::model::ids::{LoopId, Sha};
use crate::domain::model::task::TestCounts;
use crate::domain::report::{self, control_words};
use crate::domain::trust::viewer::ViewRight;
use crate::store::session::{self, TextRow};
use crate::store::sql::Connection;
use crate::store::{hosts, loop_files};
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/loops/{id}/iterations/{number}",
    template: page_template!("iteration.html"),
    title: "Iteration",
    nav: PageNav::Below("/"),
    rights: PageRights::Viewer,
    show: |page| opened(page, show),
};

/// Number of transcript lines per page.
const LINES_SHOWN: usize = 200;
/// Number of lines shown before a link's target line.
const LINES_BEFORE: usize = 20;
/// Maximum length of a line on the page, in characters; the plain text has complete lines.
const LINE_SHOWN: usize = 500;
/// Maximum size of a page's lines including HTML, and the HTML sizes around a line and around a piece, in bytes.
const LINES_BYTES: usize = 40 * 1024;
const LINE_MARKUP: usize = 110;
const PIECE_MARKUP: usize = 25;
/// HTML size around a part's title, in bytes.
const PART_MARKUP: usize = 400;
/// Maximum number of lines and bytes of the change on a page.
const PATCH_ROOM: PatchRoom = PatchRoom { lines: 250, bytes: 24 * 1024 };
/// Maximum number of changed files on a page.
const FILES_SHOWN: usize = 50;
/// Maximum size of a text in a list, in bytes, and maximum number of list entries.
const TEXT_SHOWN: usize = 1_000;
const ENTRIES_SHOWN: usize = 10;

/// Query of the page.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct IterationQuery {
    /// Transcript line to show, with some lines before it. With `text`, a line of this text.
    line: Option<usize>,
    /// Stored text that contains the line, such as `event-7`; empty for none.
    text: String,
    /// First transcript line of the page.
    from: Option<usize>,
    /// `total` for the change of the whole branch; otherwise the iteration's change.
    diff: String,
}

impl IterationQuery {
    /// Returns the page's address at the path `page` with the same lines and the same change.
    fn address(&self, page: &str) -> String {
        let first = self.first().map(|line| format!("from={line}"));
        let diff = (self.diff == "total").then(|| "diff=total".to_owned());
        let query: Vec<String> = first.into_iter().chain(diff).collect();
        if query.is_empty() { page.to_owned() } else { format!("{page}?{}", query.join("&")) }
    }

    /// Returns the first line to show; `None` if the query does not select one.
    fn first(&self) -> Option<usize> {
        self.from.or_else(|| self.line.map(|line| line.saturating_sub(LINES_BEFORE)))
    }
}

/// Data of the page. Times are in milliseconds, and the cost is in millionths of a dollar.
#[derive(Debug, Serialize)]
struct IterationPageView<'a> {
    id: &'a LoopId,
    n: u32,
    title: &'a str,
    state: &'static str,
    running: bool,
    discarded: bool,
    approach: String,
    summary: String,
    problem: String,
    learnings: Vec<String>,
    blockers: Vec<String>,
    next_steps: Vec<String>,
    started_at: i64,
    ended_at: Option<i64>,
    attempt: u32,
    percent: u8,
    cost: i64,
    backend: &'a str,
    model: Option<&'a str>,
    /// Phrases about changes of the backend.
    switched: &'a [String],
    tools: ToolCounts,
    commit: Option<&'a str>,
    checks: Vec<CheckResultLine<'a>>,
    files: Vec<ChangedFileLine<'a>>,
    guidance: Vec<GuidanceLine<'a>>,
    findings: Vec<FindingLine>,
    restored: Vec<String>,
    refused_hosts: Vec<String>,
    judged: Option<JudgementView<'a>>,
    /// Whether the viewer has write access, which the transcript and the change require.
    writes: bool,
    transcript: Option<TranscriptWindow>,
    patch: Option<PatchView>,
    /// Name of the host with the commits, if it is another one.
    commits_on: Option<String>,
    /// Whether the page shows the change of the whole branch.
    total: bool,
    address: String,
    previous: Option<u32>,
    next: Option<u32>,
}

/// Calls of tools by the agent.
#[derive(Debug, Serialize)]
struct ToolCounts {
    calls: u32,
    errors: u32,
    names: Vec<String>,
}

/// Result of a check.
#[derive(Debug, Serialize)]
struct CheckResultLine<'a> {
    name: &'a str,
    holds: bool,
    why: String,
    command: String,
    ms: u64,
    tests: Option<TestCounts>,
    /// Whether the check passed, but its tests were not understood.
    unread: bool,
    /// Transcript line of the output.
    line: Option<usize>,
}

/// Changed file.
#[derive(Debug, Serialize)]
struct ChangedFileLine<'a> {
    path: &'a str,
    added: u64,
    removed: u64,
}

/// Guidance for the iteration. It quotes reviews and CI output.
#[derive(Debug, Serialize)]
struct GuidanceLine<'a> {
    who: &'a str,
    source: &'static str,
    text: String,
}

/// Change of tests or checks.
#[derive(Debug, Serialize)]
struct FindingLine {
    path: String,
    line: Option<u32>,
    evidence: String,
}

/// Assessment of the iteration.
#[derive(Debug, Serialize)]
struct JudgementView<'a> {
    lines: Vec<String>,
    reasoning: &'a str,
    moved: &'a [String],
    stops: Option<&'a str>,
    found: Vec<JudgedDetectionLine<'a>>,
}

/// Detection after the iteration.
#[derive(Debug, Serialize)]
struct JudgedDetectionLine<'a> {
    title: &'static str,
    severity: String,
    level: &'static str,
    evidence: String,
    recommendations: &'a [String],
}

/// Part of a change.
#[derive(Debug, Serialize)]
struct PatchView {
    files: Vec<FilePatch>,
    /// Number of omitted files.
    more: usize,
    truncated: bool,
}

/// Part of a transcript.
#[derive(Debug, Serialize)]
struct TranscriptWindow {
    lines: VecDeque<TranscriptLine>,
    /// Number of all lines.
    count: usize,
    first: usize,
    last: usize,
    /// First line of the previous and of the next page; 0 if there is none.
    earlier: usize,
    later: usize,
}

/// Line of a transcript with its 1-based number.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TranscriptLine {
    /// Title of the part at this index.
    Title { n: usize, title: String, part: usize },
    /// Line of a text; `cut` if it was longer.
    Text { n: usize, pieces: Vec<StyledText>, cut: bool },
}

/// Returns the page.
async fn show(
    state: Arc<WebState>,
    viewer: Viewer,
    (Path((id, number)), Query(query)): (Path<(String, u32)>, Query<IterationQuery>),
) -> Result<Response, PageError> {
    let id = LoopId::new(id);
    match TextRow::parse(&query.text) {
        Some(row) => found_line(&state, &viewer, &id, number, (row, query.line.unwrap_or(1))).await,
        None => content(&state, &viewer, &id, number, &query).await,
    }
}

/// Returns a part as plain text.
pub(super) async fn text(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path((id, number, part)): Path<(String, u32, String)>,
) -> Response {
    match part_text(&state, &viewer, &LoopId::new(id), number, &part).await {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response(),
        Err(error) => error.page(&state, &viewer),
    }
}

fn found(current: &Loop, number: u32) -> Result<&Iteration, PageError> {
    current.iterations.iter().rev().find(|i| i.number == number).ok_or(PageError::NotFound)
}

/// Redirects to the transcript line that corresponds to a line of a stored text, or to the decisions if the transcript does
/// not contain the text.
async fn found_line(
    state: &WebState,
    viewer: &Viewer,
    id: &LoopId,
    number: u32,
    (row, line): (TextRow, usize),
) -> Result<Response, PageError> {
    let (current, right) = loop_page::seen(state, viewer, id, false).await?;
    require(right, ViewRight::Write)?;
    let of = id.clone();
    let read = state.engine.store.read(move |c| session::source_of(c, &of, number, row));
    let source = read.await?.ok_or(PageError::NotFound)?;
    let (parts, events) = transcript_of(state, &current, number).await?;
    let address = format!("/loops/{}/iterations/{number}", segment(id.as_str()));
    let address = match transcript::line_of(&parts, &events, &source, line) {
        Some(line) => format!("{address}?line={line}#i{number}-L{line}"),
        None => format!("{address}#decisions"),
    };
    Ok((StatusCode::SEE_OTHER, [(LOCATION, address)]).into_response())
}

/// Returns the parts of an iteration's transcript, with masked secrets, and its events.
async fn transcript_of(
    state: &WebState,
    current: &Loop,
    number: u32,
) -> Result<(Vec<TranscriptPart>, Vec<SessionEvent>), PageError> {
    let id = current.id.clone();
    let read = state.engine.store.read(move |c| session::of_iteration(c, &id, number));
    let (turns, events, running) = read.await?;
    let mut parts = transcript::parts(found(current, number)?, &turns, &events, running.as_ref());
    for part in &mut parts {
        part.text = state.engine.outbound.masked(&part.text);
        part.title = state.engine.outbound.masked(&part.title);
    }
    Ok((parts, events))
}

/// Returns the change of an iteration, or of the branch up to it, with masked secrets, and whether it was cut; `None` if
/// unavailable.
async fn patch_of(state: &WebState, current: &Loop, iteration: &Iteration, total: bool) -> Option<(String, bool)> {
    let commit = iteration.commit.as_ref()?;
    let from: &Sha = if total { current.branch.base.as_ref()? } else { &iteration.parent };
    let patch = state.engine.git.patch_of(current, from, commit).await?;
    Some((state.engine.outbound.masked(&patch.text), patch.truncated))
}

/// Returns the name of the host with a loop's commits, if it is another one.
async fn other_host(state: &WebState, id: &LoopId) -> Result<Option<String>, PageError> {
    let id = id.clone();
    let own = state.engine.leases.host.id.clone();
    let read = move |c: &Connection| match loop_files::host(c, &id)?.filter(|host| *host != own) {
        Some(host) => hosts::name_of(c, &host).map(Some),
        None => Ok(None),
    };
    Ok(state.engine.store.read(read).await?)
}

fn patch_view(text: &str, truncated: bool) -> PatchView {
    let mut files = diff::files(text, PATCH_ROOM);
    let more = files.len().saturating_sub(FILES_SHOWN);
    files.truncate(FILES_SHOWN);
    PatchView { files, more, truncated }
}

async fn part_text(
    state: &WebState,
    viewer: &Viewer,
    id: &LoopId,
    number: u32,
    part: &str,
) -> Result<String, PageError> {
    let (current, right) = loop_page::seen(state, viewer, id, false).await?;
    require(right, ViewRight::Write)?;
    let iteration = found(&current, number)?;
    let patch = async |total| {
        let patch = patch_of(state, &current, iteration, total).await;
        patch.map(|(text, _)| text).ok_or(PageError::NotFound)
    };
    match part {
        "transcript.txt" => Ok(transcript::plain(&transcript_of(state, &current, number).await?.0)),
        "change.txt" => patch(false).await,
        "branch.txt" => patch(true).await,
        part => {
            let at = part.strip_prefix("part-").and_then(|rest| rest.strip_suffix(".txt")?.parse::<usize>().ok());
            let (mut parts, _) = transcript_of(state, &current, number).await?;
            match at.filter(|at| *at < parts.len()) {
                Some(at) => Ok(format!("{}\n", parts.swap_remove(at).text)),
                None => Err(PageError::NotFound),
            }
        }
    }
}

async fn content(
    state: &WebState,
    viewer: &Viewer,
    id: &LoopId,
    number: u32,
    query: &IterationQuery,
) -> Result<Response, PageError> {
    let position = live::position(state).await?;
    let (current, right) = loop_page::seen(state, viewer, id, false).await?;
    let iteration = found(&current, number)?;
    let writes = right >= ViewRight::Write;
    let total = query.diff == "total";
    let address = format!("/loops/{}/iterations/{number}", segment(id.as_str()));
    let running = iteration.ended_at.is_none() && current.state.is_open();
    let mut shown = None;
    let mut patch = None;
    let mut line_of_check: HashMap<&str, usize> = HashMap::new();
    if writes {
        let (parts, _) = transcript_of(state, &current, number).await?;
        let names = iteration.checks.outcomes.iter().map(|check| check.name.as_str());
        line_of_check = names.filter_map(|name| Some((name, transcript::line_of_check(&parts, name)?))).collect();
        shown = Some(window(&parts, query.first(), running));
        let found = patch_of(state, &current, iteration, total).await;
        patch = found.map(|(text, truncated)| patch_view(&text, truncated));
    }
    let commits_on = if patch.is_none() { other_host(state, id).await? } else { None };
    let checks = iteration.checks.outcomes.iter().map(|check| CheckResultLine {
        name: &check.name,
        holds: check.holds,
        why: short(&check.why),
        command: short(&check.command),
        ms: check.duration_ms,
        tests: check.tests,
        unread: check.holds && check.objection.is_some(),
        line: line_of_check.get(check.name.as_str()).copied(),
    });
    let guidance = iteration.guidance.iter().filter(|_| writes).take(ENTRIES_SHOWN).map(|guidance| GuidanceLine {
        who: &guidance.who,
        source: source_words(guidance.source),
        text: short(&guidance.text),
    });
    let findings = iteration.findings.iter().take(ENTRIES_SHOWN).map(|found| FindingLine {
        path: short(&found.path),
        line: found.line,
        evidence: short(&found.evidence),
    });
    let view = IterationPageView {
        id: &current.id,
        n: number,
        title: current.task.text.title(),
        state: current.state.as_str(),
        running,
        discarded: iteration.discarded,
        approach: short(&report::approach(iteration)),
        summary: short(&iteration.report.summary),
        problem: short(&iteration.agent_problem),
        learnings: listed(&iteration.report.learnings),
        blockers: listed(&iteration.report.blockers),
        next_steps: listed(&iteration.report.next_steps),
        started_at: iteration.started_at.0,
        ended_at: iteration.ended_at.map(|at| at.0),
        attempt: iteration.attempt,
        percent: iteration.completion.whole_percent(),
        cost: iteration.cost.0,
        backend: &iteration.served.backend,
        model: iteration.served.model.as_deref(),
        switched: &iteration.served.switched,
        tools: ToolCounts {
            calls: iteration.tool_calls,
            errors: iteration.tool_errors,
            names: listed(&iteration.tools),
        },
        commit: iteration.commit.as_ref().map(|commit| commit.short()),
        checks: checks.collect(),
        files: changed_files(iteration),
        guidance: guidance.collect(),
        findings: findings.collect(),
        restored: listed(&iteration.restored),
        refused_hosts: listed(&iteration.refused_hosts),
        judged: iteration.judged.as_ref().map(judgement),
        writes,
        transcript: shown,
        patch,
        commits_on,
        total,
        address: address.clone(),
        previous: current.iterations.iter().filter(|i| i.number < number).map(|i| i.number).max(),
        next: current.iterations.iter().filter(|i| i.number > number).map(|i| i.number).min(),
    };
    let here = query.address(&address);
    let feed = live::address(&format!("/loops/{}", segment(id.as_str())), position) + &format!("&iteration={number}");
    let frame = PageFrame {
        title: format!("Iteration {number} · {}", current.task.text.title()),
        here: if running { here } else { String::new() },
        feed: if running { feed } else { String::new() },
        icon: layout::icon_of(current.state),
    };
    Ok(layout::page_in(state, viewer, &PAGE, &frame, &view, Vec::new()))
}

fn short(text: &str) -> String {
    beginning(text, TEXT_SHOWN)
}

fn listed(texts: &[String]) -> Vec<String> {
    texts.iter().take(ENTRIES_SHOWN).map(|text| short(text)).collect()
}

fn changed_files(iteration: &Iteration) -> Vec<ChangedFileLine<'_>> {
    let files = iteration.stat.files.iter().take(FILES_SHOWN);
    files.map(|file| ChangedFileLine { path: &file.path, added: file.added, removed: file.removed }).collect()
}

fn judgement(judged: &IterationJudgement) -> JudgementView<'_> {
    let found = judged.found.iter().map(|found| JudgedDetectionLine {
        title: found.kind.title(),
        severity: found.severity.to_string(),
        level: found.level.name(),
        evidence: short(&found.evidence),
        recommendations: &found.recommendations,
    });
    JudgementView {
        lines: control_words::lines(judged),
        reasoning: &judged.reasoning,
        moved: &judged.moved,
        stops: judged.stops.as_deref(),
        found: found.collect(),
    }
}

/// Returns the name of a guidance source for people.
fn source_words(source: GuidanceSource) -> &'static str {
    match source {
        GuidanceSource::Command => "command",
        GuidanceSource::Review => "review",
        GuidanceSource::Ci => "CI",
        GuidanceSource::Service => "ralph-bot",
        GuidanceSource::SecondOpinion => "second opinion",
    }
}

/// Returns the lines from a 1-based line number on. Without a number, returns the last lines of a running iteration or the
/// first lines of a finished one.
fn window(parts: &[TranscriptPart], from: Option<usize>, running: bool) -> TranscriptWindow {
    // A title counts as a line, as in the plain text.
    let count: usize = parts.iter().map(|part| 1 + part.text.lines().count()).sum();
    let is_end = from.is_none() && running;
    let mut first = match from {
        Some(line) => line.clamp(1, count.max(1)) - 1,
        None if running => count.saturating_sub(LINES_SHOWN),
        None => 0,
    };
    let (mut number, mut bytes, mut shown) = (0, 0, VecDeque::new());
    for (at, part) in parts.iter().enumerate() {
        let mut reader = AnsiReader::default();
        let title = std::iter::once((part.title.as_str(), true));
        for (text, is_title) in title.chain(part.text.lines().map(|line| (line, false))) {
            number += 1;
            // Colors of a shown line can start before the first shown line.
            let pieces = if is_title { Vec::new() } else { reader.line(text) };
            let is_full = !is_end && (shown.len() >= LINES_SHOWN || bytes > LINES_BYTES);
            if number <= first || is_full {
                continue;
            }
            let (line, size) = if is_title {
                let text = beginning(text, LINE_SHOWN);
                let size = PART_MARKUP + markup_size(&text);
                (TranscriptLine::Title { n: number, title: text, part: at }, size)
            } else {
                shown_line(number, pieces)
            };
            bytes += size;
            shown.push_back((line, size));
            // The page always shows the end of a running iteration, regardless of line lengths.
            while is_end && bytes > LINES_BYTES && shown.len() > 1 {
                bytes -= shown.pop_front().map_or(0, |(_, size)| size);
                first += 1;
            }
        }
    }
    let last = first + shown.len();
    TranscriptWindow {
        lines: shown.into_iter().map(|(line, _)| line).collect(),
        count,
        first: first + 1,
        last,
        earlier: if first > 0 { first.saturating_sub(LINES_SHOWN) + 1 } else { 0 },
        later: if last < count { last + 1 } else { 0 },
    }
}

/// Returns a line, cut to the maximum length, and its HTML size in bytes.
fn shown_line(number: usize, pieces: Vec<StyledText>) -> (TranscriptLine, usize) {
    let mut left = LINE_SHOWN;
    let mut size = LINE_MARKUP;
    let cut_piece = |piece: StyledText| {
        let text: String = piece.text.chars().take(left).collect();
        left -= text.chars().count();
        size += PIECE_MARKUP + markup_size(&text);
        StyledText { text, ..piece }
    };
    let pieces = pieces.into_iter().map(cut_piece).collect();
    (TranscriptLine::Text { n: number, pieces, cut: left == 0 }, size)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    /// Returns the window as its template receives it.
    fn window(parts: &[TranscriptPart], from: Option<usize>, running: bool) -> Json {
        json!(super::window(parts, from, running))
    }

    fn numbers(shown: &Json) -> (u64, u64, usize) {
        let lines = shown["lines"].as_array().expect("lines");
        let n = |line: Option<&Json>| line.and_then(|line| line["n"].as_u64()).unwrap_or_default();
        (n(lines.first()), n(lines.last()), lines.len())
    }

    #[test]
    fn window_shows_the_requested_line_with_plain_text_line_numbers() {
        let long = (1..=700).map(|n| format!("line {n}\n")).collect::<String>();
        let parts = [TranscriptPart::new("Prompt".into(), &long)];
        assert_eq!(numbers(&window(&parts, None, false)), (1, 200, 200));
        assert_eq!(numbers(&window(&parts, None, true)), (502, 701, 200));
        assert_eq!(numbers(&window(&parts, Some(650), false)), (650, 701, 52));
        assert_eq!(numbers(&window(&parts, Some(usize::MAX), false)), (701, 701, 1));
        let query = IterationQuery { line: Some(650), ..IterationQuery::default() };
        assert_eq!(query.first(), Some(630));
        let text = transcript::plain(&parts);
        let shown = window(&parts, Some(650), false);
        let last = &shown["lines"][51];
        assert_eq!(text.lines().nth(700), last["pieces"][0]["text"].as_str());
        assert_eq!(numbers(&window(&[], None, true)), (0, 0, 0));
    }

    #[test]
    fn address_of_a_live_page_keeps_lines_and_patch() {
        let of = |from, line, diff: &str| {
            IterationQuery { from, line, diff: diff.into(), text: String::new() }.address("/loops/r-1/iterations/2")
        };
        let table = [
            (of(None, None, ""), ""),
            (of(Some(201), None, ""), "?from=201"),
            (of(None, Some(120), "total"), "?from=100&diff=total"),
            (of(None, None, "total"), "?diff=total"),
            (of(None, None, "other"), ""),
        ];
        for (address, query) in table {
            assert_eq!(address, format!("/loops/r-1/iterations/2{query}"));
        }
    }

    #[test]
    fn window_is_bounded_in_bytes() {
        let text = format!("{}\n", "y".repeat(9_000)).repeat(400);
        let parts = [TranscriptPart::new("Output".into(), &text)];
        let shown = window(&parts, None, false);
        assert!(shown.to_string().len() < 2 * LINES_BYTES, "{}", shown.to_string().len());
        let end = window(&parts, None, true);
        let (first, last, lines) = numbers(&end);
        assert!(
            last == 401 && lines == (last - first + 1) as usize && lines > 10,
            "the end of a running iteration: {first}, {lines}"
        );
        assert!(end.to_string().len() < 2 * LINES_BYTES && end["later"] == 0, "{}", end.to_string().len());
        let next = shown["later"].as_u64().expect("a next page") as usize;
        let (first, ..) = numbers(&window(&parts, Some(next), false));
        assert_eq!(first as usize, next, "the next page goes on where this one ends");
    }
}
