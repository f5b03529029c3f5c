//! Views of a loop in progress: the status comment and the comment of each iteration.

use serde::{Deserialize, Serialize};

use super::{CommandHint, FileLinks, Link, PlanLine};
use crate::domain::model::ids::{LoopId, Money};
use crate::domain::model::task::{TamperFinding, TestCounts};

/// Status comment: the first comment of a loop, edited in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Whether a newer status comment exists. The comment then shows only a note.
    pub superseded: bool,
    /// Name of the state (`running`, `paused`, …).
    pub state: String,
    /// Reason for the state, or the current step, in a sentence.
    pub headline: String,
    /// Next action of a person or the bot, in one sentence.
    pub next_action: String,
    /// Whether the loop needs a reply from a person.
    pub needs_person: bool,
    /// Number of the current or last iteration; 0 before the first.
    pub iteration: u32,
    /// Maximum number of iterations; `None` if unlimited.
    pub max_iterations: Option<u32>,
    /// Measured completion in percent.
    pub completion_percent: u8,
    /// Number of passing checks.
    pub checks_held: u32,
    /// Number of checks.
    pub checks_total: u32,
    /// Iterations, oldest first.
    pub rows: Vec<IterationRow>,
    /// Cost so far.
    pub cost: Option<Money>,
    /// Maximum cost.
    pub cost_limit: Option<Money>,
    /// Running time so far, in seconds.
    pub elapsed_s: u64,
    /// Maximum running time, in seconds.
    pub timeout_s: u64,
    /// Link to the branch; `None` if nothing was pushed.
    pub branch: Option<Link>,
    /// Base branch of the work.
    pub base_branch: String,
    /// Link to the pull request; `None` if there is none.
    pub pull: Option<Link>,
    /// Link to the loop's page in the dashboard; `None` if people cannot reach the dashboard.
    pub dashboard: Option<Link>,
    /// Assessment of the last iteration; `None` before the first judgement.
    pub course: Option<CourseLine>,
    /// Open detections, most severe first.
    pub detections: Vec<DetectionLine>,
    /// Pending pause, guidance and other notes, one sentence each.
    pub notes: Vec<String>,
    /// Learnings of all iterations.
    pub learnings: Vec<String>,
    /// Commands that are valid now.
    pub commands: Vec<CommandHint>,
    /// Sandbox of the agent, in a few words ("bubblewrap 0.8.0").
    pub sandbox: String,
    /// Backend, including its model after the first run.
    pub backend: String,
    /// Checks and their sources.
    pub checks: Vec<PlannedCheck>,
    /// Whether the checks were detected from the repository's files because none were configured.
    pub detected: bool,
    /// Login of the person who started the loop.
    pub started_by: String,
    /// Description of the people who may give commands ("people with write access").
    pub who_may: String,
    /// Facts about the task, stated or estimated, each with its source.
    #[serde(default)]
    pub task_facts: Vec<String>,
    /// Resources used by earlier loops; `None` if not determined.
    #[serde(default)]
    pub past: Option<PastLine>,
    /// Approved or pending plan; `None` if there is none.
    #[serde(default)]
    pub plan: Option<PlanLine>,
    /// Descriptions of the images in the issue and its comments, one sentence each without a full stop.
    #[serde(default)]
    pub images: Vec<String>,
    /// Number of hidden parts removed from the text for the agent.
    pub hidden_removed: usize,
    /// Title and text of the issue as passed to agents; empty if unknown.
    #[serde(default)]
    pub task_text: String,
}

/// Resources used by earlier loops of the repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastLine {
    /// Number of loops.
    pub loops: u32,
    /// Type of the loops' tasks; empty if the types differ.
    pub task_type: String,
    /// Median of the number of iterations.
    pub usual_iterations: i64,
    /// 90th percentile of the number of iterations.
    pub most_iterations: i64,
    /// Median of the running time, in seconds.
    pub usual_seconds: u64,
    /// 90th percentile of the running time, in seconds.
    pub most_seconds: u64,
    /// Median of the cost; `None` if it is unknown.
    pub usual_cost: Option<Money>,
    /// 90th percentile of the cost; `None` if it is unknown.
    pub most_cost: Option<Money>,
}

/// Check, with its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCheck {
    /// Short name.
    pub name: String,
    /// Shell command.
    pub command: String,
    /// Passing rule, in words ("exit code 0", "exit code 0 and coverage of at least 80 %").
    pub rule: String,
    /// Source, in words ("this issue", "the repository's file", "detected").
    pub source: String,
}

/// Assessment of a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CourseLine {
    /// Control signal, 0..=1.
    pub signal: f64,
    /// Urgency corresponding to the control signal.
    pub urgency: String,
    /// Trend of the error.
    pub trend: String,
    /// Name of the target gain profile.
    pub profile: String,
    /// Estimated number of iterations until completion; `None` without an estimate.
    pub forecast: Option<u64>,
    /// Strategy of the next iteration; empty if the loop continues as before.
    pub strategy: String,
    /// Health of the loop.
    #[serde(default)]
    pub health: String,
    /// Control signal as the sum of its terms; empty if the terms are not stored.
    #[serde(default)]
    pub terms: String,
    /// Gains; empty if not stored.
    #[serde(default)]
    pub gains: String,
    /// Change of the gain profile, with its reason; empty if it did not change.
    #[serde(default)]
    pub transition: String,
    /// Active alarms, most severe first.
    #[serde(default)]
    pub alarms: Vec<String>,
}

/// Detection, with the action taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectionLine {
    /// Title, without a full stop.
    pub title: String,
    /// Severity of the detection.
    pub severity: String,
    /// Action taken: LOG, WARN, REDIRECT, PAUSE or ABORT.
    pub level: String,
    /// Evidence.
    pub evidence: String,
}

/// Iteration in the status comment's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationRow {
    /// 1-based number.
    pub n: u32,
    /// Approach, in a few words.
    pub approach: String,
    /// Number of passed checks; 0 until they have run.
    pub checks_held: u32,
    /// Number of checks.
    pub checks_total: u32,
    /// Completion in percent; `None` until the checks have run.
    pub completion_percent: Option<u8>,
    /// Control signal, 0..=1; `None` until the iteration is judged.
    pub control_signal: Option<f64>,
    /// Duration, in seconds.
    pub duration_s: u64,
    /// Cost of the iteration.
    pub cost: Option<Money>,
}

/// Comment of one iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationView {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Whether the comment is folded to one line, because a later iteration has a comment.
    #[serde(default)]
    pub folded: bool,
    /// 1-based number.
    pub n: u32,
    /// Maximum number of iterations; `None` if unlimited.
    pub max: Option<u32>,
    /// Approach, in a few words.
    pub approach: String,
    /// Summary written by the agent.
    pub summary: String,
    /// Changed files, largest change first.
    pub files: Vec<FileLine>,
    /// Number of changed files beyond `files`.
    pub more_files: usize,
    /// Results of the checks.
    pub checks: Vec<CheckLine>,
    /// Number of passed checks.
    #[serde(default)]
    pub checks_held: u32,
    /// Number of checks.
    #[serde(default)]
    pub checks_total: u32,
    /// Completion after the iteration, in percent.
    pub completion_percent: u8,
    /// Completion before the iteration, in percent; `None` if unknown.
    pub previous_percent: Option<u8>,
    /// Learnings reported by the agent.
    pub learnings: Vec<String>,
    /// Blockers reported by the agent.
    pub blockers: Vec<String>,
    /// Next step, in a sentence.
    pub next: String,
    /// Strategy of the next iteration and its reason; empty if the loop continues as before.
    pub strategy: String,
    /// Detections of this iteration and the actions taken.
    pub detections: Vec<DetectionLine>,
    /// Changes to tests and checks, compared with the base.
    pub findings: Vec<TamperFinding>,
    /// Protected paths with reverted changes.
    pub restored_paths: Vec<String>,
    /// Hosts that the sandbox rejected for the first time in this loop.
    pub refused_hosts: Vec<String>,
    /// Model requests that the key broker rejected.
    #[serde(default)]
    pub refused_requests: Vec<String>,
    /// Tools that the agent was denied for the first time in this loop.
    #[serde(default)]
    pub denied_tools: Vec<String>,
    /// Link to the commit; `None` if nothing changed.
    pub commit: Option<Link>,
    /// Failure of the agent, in one sentence; `None` if the agent succeeded.
    pub agent_problem: Option<String>,
    /// Duration, in seconds.
    pub duration_s: u64,
    /// Cost of the iteration.
    pub cost: Option<Money>,
    /// Existing lines mentioned by failing checks.
    #[serde(default)]
    pub places: Vec<FailureLocation>,
    /// URLs of the files mentioned in the text.
    #[serde(default)]
    pub links: FileLinks,
    /// Link to the iteration's page in the dashboard; `None` if people cannot reach the dashboard.
    #[serde(default)]
    pub dashboard: Option<Link>,
}

/// Line of a file mentioned by a failing check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureLocation {
    /// Path relative to the repository's root, and line number, separated by a colon.
    pub place: String,
    /// Name of the check.
    pub check: String,
    /// Output line that mentions the file's line.
    pub message: String,
}

/// Changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLine {
    /// Path relative to the repository's root.
    pub path: String,
    /// Number of added lines.
    pub added: u64,
    /// Number of removed lines.
    pub removed: u64,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckLine {
    /// Short name.
    pub name: String,
    /// Shell command.
    pub command: String,
    /// Whether the check passed.
    pub holds: bool,
    /// Reason for the failure, in a sentence; empty if the check passed.
    pub why: String,
    /// Whether the check failed once and passed once on the same commit.
    #[serde(default)]
    pub flaky: bool,
    /// Whether the check passed in only one run, because a second run would take too long.
    #[serde(default)]
    pub ran_once: bool,
    /// Whether the check passed by its exit code but its output was not understood.
    #[serde(default)]
    pub unread: bool,
    /// Test counts; `None` if no test runner was detected.
    pub tests: Option<TestCounts>,
    /// Duration, in seconds.
    pub duration_s: u64,
    /// End of the output with masked secrets; may be empty.
    pub output: String,
    /// 1-based line in the iteration's transcript where the output starts; `None` if unknown.
    #[serde(default)]
    pub line: Option<u64>,
}
