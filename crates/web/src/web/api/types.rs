//! Types of requests and responses. Times are in RFC 3339 format (UTC), amounts in US dollars.

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

/// Shortens a text to 256 KiB by omitting its middle.
fn bounded(text: String) -> String {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let head = &text[..text.floor_char_boundary(MAX_TEXT / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - MAX_TEXT / 2)..];
    format!("{head}\n[… {} bytes omitted …]\n{tail}", text.len() - head.len() - tail.len())
}

/// Loop in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiLoop {
    /// Id of the loop.
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
    /// State of the loop.
    pub state: LoopState,
    /// Whether the loop is open: it can continue from this state.
    pub open: bool,
    /// Whether the loop waits for a person.
    pub waits: bool,
    /// Login of the person who requested the loop.
    pub person: String,
    /// Reason for the state, one sentence.
    pub reason: String,
    /// Number of started iterations.
    pub iteration: u32,
    /// Maximum number of iterations; null if unlimited.
    pub max_iterations: Option<u32>,
    /// Completion at the last measurement, 0 to 1.
    pub completion: f64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Cost limit, in US dollars.
    pub cost_limit_usd: f64,
    /// Branch that the loop pushes to.
    pub branch: String,
    /// Address of the pull request's page.
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
            max_iterations: row.max_iterations.count(),
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
    /// `cursor` for the next page; null on the last page.
    pub next: Option<String>,
}

/// Loop with its details.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiLoopDetail {
    /// The loop as in lists.
    #[serde(rename = "loop")]
    pub summary: ApiLoop,
    /// Viewer's right in the repository.
    pub right: ViewRight,
    /// Person whose authority the loop uses to push.
    pub authority: String,
    /// Base branch.
    pub base_branch: String,
    /// Newest recorded commit.
    pub head: Option<String>,
    /// Running time, in seconds.
    pub running_s: i64,
    /// Limit of the running time, in seconds.
    pub time_limit_s: i64,
    /// Results of the newest checks.
    pub checks: Vec<ApiCheck>,
    /// Guidance for the next iteration; null without write access.
    pub guidance: Option<Vec<String>>,
    /// Supervision; null before the first judged iteration.
    pub supervision: Option<ApiSupervision>,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiCheck {
    /// Name of the check.
    pub name: String,
    /// Command of the check.
    pub command: String,
    /// Whether the check passed.
    pub passed: bool,
    /// Reason for the failure; empty if the check passed.
    pub why: String,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// End of the output; null without write access.
    pub output: Option<String>,
}

impl ApiCheck {
    /// Creates a check; includes its output only with sufficient rights.
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

/// Iteration of a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiIteration {
    /// 1-based number.
    pub number: u32,
    /// Start time.
    #[schemars(extend("format" = "date-time"))]
    pub started_at: String,
    /// End of the iteration's checks; null while it runs.
    pub ended_at: Option<String>,
    /// Summary of the work; empty until the agent has ended.
    pub summary: String,
    /// Problem that ended the agent's run; empty if there was none.
    pub problem: String,
    /// Backend used.
    pub backend: String,
    /// Model used.
    pub model: Option<String>,
    /// Completion after the iteration, 0 to 1.
    pub completion: f64,
    /// Number of passed checks.
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
    /// Control values; null until the iteration is judged.
    pub figures: Option<ApiFigures>,
    /// Detections of the overseer.
    pub detections: Vec<ApiDetection>,
    /// Whether the iteration was discarded.
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

/// Iteration with its texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiIterationDetail {
    /// The iteration as in lists.
    pub iteration: ApiIteration,
    /// Results of the checks.
    pub checks: Vec<ApiCheck>,
    /// Prompts and answers, oldest first; null without write access. They are deleted when the service's retention period
    /// after the loop's end expires.
    pub turns: Option<Vec<ApiTurn>>,
    /// Activities, oldest first, at most 1,000; null without write access.
    pub activities: Option<Vec<ApiActivity>>,
}

/// Prompt and answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiTurn {
    /// Attempt of the iteration.
    pub attempt: u32,
    /// `agent` or `assistant`.
    pub role: String,
    /// Name of the backend.
    pub backend: String,
    /// Model; null if unknown.
    pub model: Option<String>,
    /// Prompt, at most 256 KiB.
    pub prompt: String,
    /// Answer, at most 256 KiB.
    pub response: String,
    /// Error; null on success.
    pub error: Option<String>,
    /// Input tokens that did not come from the provider's cache.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Input tokens from the provider's cache.
    pub tokens_cached: u64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Whether tokens or cost are estimated by the service.
    pub estimated: bool,
    /// Start time.
    #[schemars(extend("format" = "date-time"))]
    pub started_at: String,
    /// End time; null while the agent runs. `response` is then the agent's output so far.
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
    /// 1-based iteration; 0 before the first iteration.
    pub iteration: u32,
    /// Kind, such as `tool_call`, `tool_result`, `file_change`, `check` or `error`.
    pub kind: String,
    /// Name of the tool or check.
    pub tool: Option<String>,
    /// Path of the file, relative to the work tree.
    pub path: Option<String>,
    /// Description, arguments or output.
    pub text: String,
    /// Whether it failed.
    pub failed: bool,
    /// Time of the activity.
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

/// Data of a stream event `step`: a loop completed a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiStep {
    /// Id of the loop.
    #[serde(rename = "loop")]
    pub loop_id: String,
    /// 1-based position in the loop's log.
    pub seq: i64,
    /// Time of the step.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// Name of the step's input, such as `agent_ended`.
    pub input: String,
    /// Reasons for the decision.
    pub reasons: Vec<String>,
    /// State at the time of sending.
    pub state: LoopState,
    /// Number of started iterations.
    pub iteration: u32,
    /// Completion at the last measurement, 0 to 1.
    pub completion: f64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Reason for the state.
    pub reason: String,
}

/// Data of a stream event `activity`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiLoopActivity {
    /// Id of the loop.
    #[serde(rename = "loop")]
    pub loop_id: String,
    /// Description.
    pub activity: ApiActivity,
}

/// Data of a stream event `output`: text from a running agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiLoopOutput {
    /// Id of the loop.
    #[serde(rename = "loop")]
    pub loop_id: String,
    /// 1-based iteration.
    pub iteration: u32,
    /// Time of the output.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// Text of one or more lines.
    pub text: String,
}

/// All recorded data of a loop. The parts have the service's storage format and may change with its version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiAudit {
    /// Version of the service.
    pub version: String,
    /// The loop.
    #[serde(rename = "loop")]
    pub state: Value,
    /// Backend calls with their cost.
    pub calls: Value,
    /// Audit log: interventions and commands.
    pub decisions: Value,
    /// Log: inputs with the reasons for the decisions.
    pub events: Value,
    /// Effects with their receipts.
    pub effects: Value,
}

/// Command for a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiCommand {
    /// One command, written as in a comment, such as `/ralph pause --now`.
    pub command: String,
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiCommandResult {
    /// Id of the loop.
    #[serde(rename = "loop")]
    pub loop_id: String,
    /// State of the loop afterwards.
    pub state: LoopState,
    /// Whether the loop processed the command; otherwise, it is stored for later.
    pub taken: bool,
    /// Answer: one sentence from the loop, or one line per command for `/ralph help`.
    pub says: String,
}

/// Results of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiSearchPage {
    /// Results, newest first for each kind of text.
    pub hits: Vec<ApiHit>,
    /// `cursor` to continue with; null if the search is complete, or if it found nothing within its time limit.
    pub next: Option<String>,
    /// Whether the search stopped early because of its time limit. `next` continues it; without `next`, narrow the search.
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
    /// Kind of text: `title`, `reason`, `summary`, `prompt`, `response`, or the kind of an activity.
    pub place: String,
    /// 1-based line of the first match in the text.
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
    /// Whether the piece matches.
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

/// Costs of several days.
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
    /// Costs per day, newest first. A call counts for the day of its start (UTC), once it has ended.
    pub days: Vec<ApiDailyCost>,
}

/// Cost of a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiDailyCost {
    /// Day (UTC).
    #[schemars(extend("format" = "date"))]
    pub day: String,
    /// Repository (`forge:owner/name`), backend, or login; empty if the person is unknown.
    pub of: String,
    /// Number of backend calls.
    pub calls: u64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Input tokens, including cached ones.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
}
