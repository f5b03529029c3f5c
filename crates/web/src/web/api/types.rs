//! Types of requests and responses. Times are in RFC 3339 format and UTC, amounts in US dollars.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::{ApiDetection, ApiFigures, ApiSupervision};
use crate::domain::knowledge::session::{RunningTurn, SessionEvent, SessionTurn};
use crate::domain::loops::{Iteration, LoopState};
use crate::domain::model::ids::Timestamp;
use crate::domain::model::task::CheckOutcome;
use crate::domain::trust::viewer::ViewRight;
use crate::store::listing::LoopRow;
use crate::store::session::TextHit;

/// Maximum size of a text in a response, in bytes.
const MAX_TEXT: usize = 256 * 1024;

/// Empty body.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApiNothing {}

/// Formats a time.
pub fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

/// Returns a text of at most 256 KiB; the middle of a longer one is omitted.
fn bounded(text: String) -> String {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let head = &text[..text.floor_char_boundary(MAX_TEXT / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - MAX_TEXT / 2)..];
    format!("{head}\n[… {} bytes omitted …]\n{tail}", text.len() - head.len() - tail.len())
}

/// A loop in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiLoop {
    /// Identifier.
    pub id: String,
    /// Name of the forge.
    pub forge: String,
    /// `owner/name`.
    pub repository: String,
    /// Number of the issue.
    pub issue: u64,
    /// Title of the issue.
    pub title: String,
    /// Address of the issue's page.
    pub url: String,
    /// State.
    pub state: LoopState,
    /// Whether the loop can continue from this state.
    pub open: bool,
    /// Whether it waits for a person.
    pub waits: bool,
    /// Login of the person who asked for it.
    pub person: String,
    /// Reason of its state, one sentence.
    pub reason: String,
    /// Number of iterations begun.
    pub iteration: u32,
    /// Maximum number of iterations.
    pub max_iterations: u32,
    /// Completion measured last, 0 to 1.
    pub completion: f64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Cost limit, in US dollars.
    pub cost_limit_usd: f64,
    /// Branch that it pushes to.
    pub branch: String,
    /// Address of its pull request's page.
    pub pull: Option<String>,
    /// Time of creation.
    #[schemars(extend("format" = "date-time"))]
    pub created_at: String,
    /// Time of the last step.
    #[schemars(extend("format" = "date-time"))]
    pub updated_at: String,
}

impl From<LoopRow> for ApiLoop {
    fn from(row: LoopRow) -> Self {
        Self {
            id: row.id.to_string(),
            forge: row.repo.forge.to_string(),
            repository: row.repo.full_name(),
            issue: row.issue.0,
            title: row.title,
            url: row.url,
            state: row.state,
            open: row.state.is_open(),
            waits: row.waits,
            person: row.person.login,
            reason: row.reason,
            iteration: row.iterations,
            max_iterations: row.max_iterations,
            completion: row.completion.get(),
            cost_usd: row.cost.usd(),
            cost_limit_usd: row.cost_limit.usd(),
            branch: row.branch,
            pull: row.pull,
            created_at: time(row.created_at),
            updated_at: time(row.updated_at),
        }
    }
}

/// Page of loops, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiLoopPage {
    /// Loops.
    pub loops: Vec<ApiLoop>,
    /// Value of `cursor` for the next page; null on the last one.
    pub next: Option<String>,
}

/// A loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiLoopDetail {
    /// The loop as in lists.
    #[serde(rename = "loop")]
    pub summary: ApiLoop,
    /// Right of the viewer in its repository.
    pub right: ViewRight,
    /// Person on whose authority it pushes.
    pub authority: String,
    /// Branch that it started from.
    pub base_branch: String,
    /// Newest recorded commit.
    pub head: Option<String>,
    /// Running time, in seconds.
    pub running_s: i64,
    /// Limit of the running time, in seconds.
    pub time_limit_s: i64,
    /// Results of the newest checks.
    pub checks: Vec<ApiCheck>,
    /// Next iteration's guidance; null without the right to write.
    pub guidance: Option<Vec<String>>,
    /// Supervision; null before the first judged iteration.
    pub supervision: Option<ApiSupervision>,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiCheck {
    /// Name.
    pub name: String,
    /// Command.
    pub command: String,
    /// Whether it passed.
    pub passed: bool,
    /// Reason of the failure; empty if it passed.
    pub why: String,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// End of the output; null without the right to write.
    pub output: Option<String>,
}

impl ApiCheck {
    /// Creates a check; its output is included only with sufficient rights.
    pub fn of(outcome: &CheckOutcome, right: ViewRight) -> Self {
        Self {
            name: outcome.name.clone(),
            command: outcome.command.clone(),
            passed: outcome.holds,
            why: outcome.why.clone(),
            duration_ms: outcome.duration_ms,
            output: (right >= ViewRight::Write).then(|| bounded(outcome.output.clone())),
        }
    }
}

/// Iterations of a loop, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiIterationList {
    /// Iterations.
    pub iterations: Vec<ApiIteration>,
}

/// An iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiIteration {
    /// 1-based number.
    pub number: u32,
    /// Start.
    #[schemars(extend("format" = "date-time"))]
    pub started_at: String,
    /// End of its checks; null while it runs.
    pub ended_at: Option<String>,
    /// Summary of its work; empty until the agent ended.
    pub summary: String,
    /// Problem that ended the agent's run; empty if there was none.
    pub problem: String,
    /// Backend that ran.
    pub backend: String,
    /// Model that ran.
    pub model: Option<String>,
    /// Completion measured after it, 0 to 1.
    pub completion: f64,
    /// Number of checks that passed.
    pub checks_passed: usize,
    /// Number of checks.
    pub checks: usize,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Commit; null if nothing changed.
    pub commit: Option<String>,
    /// Number of changed files.
    pub files: usize,
    /// Number of added lines.
    pub added: u64,
    /// Number of removed lines.
    pub removed: u64,
    /// Figures of control; null until it is judged.
    pub figures: Option<ApiFigures>,
    /// Detections of the overseer.
    pub detections: Vec<ApiDetection>,
    /// Whether it was discarded.
    pub discarded: bool,
}

impl From<&Iteration> for ApiIteration {
    fn from(of: &Iteration) -> Self {
        let (added, removed) = of.stat.lines();
        let own = of.kind.summary();
        let told = [own, of.report.summary.as_str(), of.message.as_str()].into_iter().find(|text| !text.is_empty());
        let detections = of.judged.iter().flat_map(|judged| &judged.found);
        Self {
            number: of.number,
            started_at: time(of.started_at),
            ended_at: of.ended_at.map(time),
            summary: bounded(told.unwrap_or_default().to_owned()),
            problem: of.agent_problem.clone(),
            backend: of.served.backend.clone(),
            model: of.served.model.clone(),
            completion: of.completion.get(),
            checks_passed: of.checks.held(),
            checks: of.checks.outcomes.len(),
            cost_usd: of.cost.usd(),
            commit: of.commit.as_ref().map(ToString::to_string),
            files: of.stat.files.len(),
            added,
            removed,
            figures: of.judged.as_ref().map(ApiFigures::from),
            detections: detections.map(ApiDetection::from).collect(),
            discarded: of.discarded,
        }
    }
}

/// An iteration with its texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiIterationDetail {
    /// The iteration as in lists.
    pub iteration: ApiIteration,
    /// Results of its checks.
    pub checks: Vec<ApiCheck>,
    /// Prompts and answers, oldest first; null without the right to write. Those of ended loops are deleted after the service's
    /// retention period.
    pub turns: Option<Vec<ApiTurn>>,
    /// Activities, oldest first, at most 1,000; null without the right to write.
    pub activities: Option<Vec<ApiActivity>>,
}

/// Prompt and answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiTurn {
    /// Attempt of the iteration.
    pub attempt: u32,
    /// `agent` or `assistant`.
    pub role: String,
    /// Backend.
    pub backend: String,
    /// Model, if known.
    pub model: Option<String>,
    /// Prompt, at most 256 KiB.
    pub prompt: String,
    /// Answer, at most 256 KiB.
    pub response: String,
    /// Error; null if it succeeded.
    pub error: Option<String>,
    /// Input tokens that were not in the provider's cache.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Input tokens from the provider's cache.
    pub tokens_cached: u64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Whether tokens or cost are estimates of the service.
    pub estimated: bool,
    /// Start.
    #[schemars(extend("format" = "date-time"))]
    pub started_at: String,
    /// End; null while the agent still runs: then `response` is what it has written up to now.
    #[schemars(extend("format" = "date-time"))]
    pub ended_at: Option<String>,
}

impl From<RunningTurn> for ApiTurn {
    fn from(running: RunningTurn) -> Self {
        let response = bounded(running.text());
        Self { response, ended_at: None, ..running.turn.into() }
    }
}

impl From<SessionTurn> for ApiTurn {
    fn from(turn: SessionTurn) -> Self {
        Self {
            attempt: turn.attempt,
            role: turn.role.as_str().into(),
            backend: turn.backend,
            model: turn.model,
            prompt: bounded(turn.prompt),
            response: bounded(turn.response),
            error: turn.error,
            tokens_in: turn.tokens_in,
            tokens_out: turn.tokens_out,
            tokens_cached: turn.tokens_cached,
            cost_usd: turn.cost.usd(),
            estimated: turn.estimated,
            started_at: time(turn.started),
            ended_at: Some(time(turn.ended)),
        }
    }
}

/// Action of an agent, result of a check, or decision of the overseer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiActivity {
    /// 1-based iteration; 0 before the first.
    pub iteration: u32,
    /// Kind, such as `tool_call`, `tool_result`, `file_change`, `check` or `error`.
    pub kind: String,
    /// Name of the tool or check.
    pub tool: Option<String>,
    /// Path of the file, relative to the work tree.
    pub path: Option<String>,
    /// Description, arguments or output.
    pub text: String,
    /// Whether it is a failure.
    pub failed: bool,
    /// Time.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
}

impl From<SessionEvent> for ApiActivity {
    fn from(event: SessionEvent) -> Self {
        Self {
            iteration: event.iteration,
            kind: event.kind.to_string(),
            tool: event.tool,
            path: event.path,
            text: event.text,
            failed: event.failed,
            at: time(event.at),
        }
    }
}

/// Data of an event `step` of a stream: a loop took a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiStep {
    /// Loop.
    #[serde(rename = "loop")]
    pub loop_id: String,
    /// 1-based position in the loop's log.
    pub seq: i64,
    /// Time.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// Name of the input, such as `agent_ended`.
    pub input: String,
    /// Reasons of what the loop decided.
    pub reasons: Vec<String>,
    /// State when the event is sent.
    pub state: LoopState,
    /// Number of iterations begun.
    pub iteration: u32,
    /// Completion measured last, 0 to 1.
    pub completion: f64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Reason of the state.
    pub reason: String,
}

/// Data of an event `activity` of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiLoopActivity {
    /// Loop.
    #[serde(rename = "loop")]
    pub loop_id: String,
    /// Description.
    pub activity: ApiActivity,
}

/// Data of an event `output` of a stream: what a running agent wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiLoopOutput {
    /// Loop.
    #[serde(rename = "loop")]
    pub loop_id: String,
    /// 1-based iteration.
    pub iteration: u32,
    /// Time.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// Text, of one or several lines.
    pub text: String,
}

/// Everything that is recorded about a loop. Its parts are as the service stores them and may change with its version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiAudit {
    /// Version of the service.
    pub version: String,
    /// The loop.
    #[serde(rename = "loop")]
    pub state: Value,
    /// Calls of backends with their cost.
    pub calls: Value,
    /// Audit log: interventions and commands.
    pub decisions: Value,
    /// Log: inputs with the reasons of the decisions.
    pub events: Value,
    /// Effects with their receipts.
    pub effects: Value,
}

/// Command for a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiCommand {
    /// One command as a comment would have it, such as `/ralph pause --now`.
    pub command: String,
}

/// Outcome of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiCommandResult {
    /// Loop.
    #[serde(rename = "loop")]
    pub loop_id: String,
    /// State of the loop afterwards.
    pub state: LoopState,
    /// Whether it is processed; otherwise it is stored and will be.
    pub taken: bool,
    /// Answer: of the loop one sentence, of `/ralph help` a line for each command.
    pub says: String,
}

/// Results of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiSearchPage {
    /// Results: of each kind of text the newest first.
    pub hits: Vec<ApiHit>,
    /// Value of `cursor` to go on with; null if everything was searched, or if nothing was found in time.
    pub next: Option<String>,
    /// Whether the search ended early because it took too long. `next` continues it; without `next`, narrow the search.
    pub early: bool,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiHit {
    /// The loop.
    #[serde(rename = "loop")]
    pub of: ApiLoop,
    /// 1-based iteration; null for title and reason.
    pub iteration: Option<u32>,
    /// Kind of the text: `title`, `reason`, `summary`, `prompt`, `response`, or the kind of an activity.
    pub place: String,
    /// 1-based line of the first match in that text.
    pub line: u32,
    /// Part of the text around the first match, in pieces.
    pub snippet: Vec<ApiSnippetPart>,
    /// Time of the text.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
}

/// Piece of a snippet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiSnippetPart {
    /// Text on one line.
    pub text: String,
    /// Whether it matches.
    pub marked: bool,
}

impl From<TextHit> for ApiHit {
    fn from(hit: TextHit) -> Self {
        let part = |part: crate::store::session::SnippetPart| ApiSnippetPart { text: part.text, marked: part.marked };
        Self {
            of: hit.of.into(),
            iteration: hit.iteration,
            place: hit.place.as_str().into(),
            line: hit.line,
            snippet: hit.snippet.into_iter().map(part).collect(),
            at: time(hit.at),
        }
    }
}

/// Costs over days.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiCosts {
    /// First day.
    #[schemars(extend("format" = "date"))]
    pub from: String,
    /// Last day.
    #[schemars(extend("format" = "date"))]
    pub to: String,
    /// Sum, in US dollars.
    pub total_usd: f64,
    /// Sums of each day, the newest first. Calls count on the day of their start (UTC), once they have ended.
    pub days: Vec<ApiDailyCost>,
}

/// Cost of a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiDailyCost {
    /// Day (UTC).
    #[schemars(extend("format" = "date"))]
    pub day: String,
    /// Repository (`forge:owner/name`), backend, or login; empty if the person is not known.
    pub of: String,
    /// Number of calls of backends.
    pub calls: u64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Input tokens, with those from caches.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
}
