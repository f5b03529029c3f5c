//! Views of a loop in progress: the status comment and the comment of each iteration.

use serde::{Deserialize, Serialize};

use super::{CommandHint, FileLinks, Link, PlanLine};
use crate::domain::model::ids::{LoopId, Money};
use crate::domain::model::task::{TamperFinding, TestCounts};

/// Status comment: the first comment of a loop, edited in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// Loop.
    pub loop_id: LoopId,
    /// Whether a newer status comment exists; then only a note is shown.
    pub superseded: bool,
    /// Name of the state (`running`, `paused`, …).
    pub state: String,
    /// Reason of the state, or the current step, in a sentence.
    pub headline: String,
    /// Next action, in a sentence: of a person, or of the bot.
    pub next_action: String,
    /// Whether the loop needs a reply from a person.
    pub needs_person: bool,
    /// Iteration in progress or last ended; 0 before the first.
    pub iteration: u32,
    /// Maximum number of iterations.
    pub max_iterations: u32,
    /// Measured completion in percent.
    pub completion_percent: u8,
    /// Number of checks that pass.
    pub checks_held: u32,
    /// Number of checks.
    pub checks_total: u32,
    /// Iterations, oldest first.
    pub rows: Vec<IterationRow>,
    /// Cost so far.
    pub cost: Option<Money>,
    /// Maximum cost.
    pub cost_limit: Option<Money>,
    /// Working time so far.
    pub elapsed_s: u64,
    /// Maximum working time.
    pub timeout_s: u64,
    /// Branch, if anything was pushed.
    pub branch: Option<Link>,
    /// Branch that the work is based on.
    pub base_branch: String,
    /// Pull request.
    pub pull: Option<Link>,
    /// Page of the dashboard.
    pub dashboard: Option<Link>,
    /// Assessment of the last iteration.
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
    /// Backend, with its model once one has run.
    pub backend: String,
    /// Checks and their sources.
    pub checks: Vec<PlannedCheck>,
    /// Whether the checks were detected from the repository's files because none were configured.
    pub detected: bool,
    /// Login of the person who started the loop.
    pub started_by: String,
    /// People who may give commands, in words ("people with write access").
    pub who_may: String,
    /// Facts about the task, stated or estimated, each with its source.
    #[serde(default)]
    pub task_facts: Vec<String>,
    /// Estimate from earlier loops; `None` if they were not looked up.
    #[serde(default)]
    pub past: Option<PastLine>,
    /// Plan that waits for an approval or has one.
    #[serde(default)]
    pub plan: Option<PlanLine>,
    /// Images in the issue and its comments, one sentence each, without a full stop.
    #[serde(default)]
    pub images: Vec<String>,
    /// Number of hidden pieces of text that were removed from the issue for the agent.
    pub hidden_removed: usize,
    /// Title and text of the issue as the agent gets them; empty if unknown.
    #[serde(default)]
    pub task_text: String,
}

/// Resources that earlier loops of the repository took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastLine {
    /// Number of loops; 0 if there are none.
    pub loops: u32,
    /// Type of their tasks; empty if they have several.
    pub task_type: String,
    /// Median of the number of iterations.
    pub usual_iterations: i64,
    /// 90th percentile of the number of iterations.
    pub most_iterations: i64,
    /// Median of the running time.
    pub usual_seconds: u64,
    /// 90th percentile of the running time.
    pub most_seconds: u64,
    /// Median of the cost; `None` if it is unknown.
    pub usual_cost: Option<Money>,
    /// 90th percentile of the cost; `None` if it is unknown.
    pub most_cost: Option<Money>,
}

/// Check and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCheck {
    /// Short name.
    pub name: String,
    /// Shell command.
    pub command: String,
    /// Condition to pass, in words ("exit code 0", "exit code 0 and coverage of at least 80 %").
    pub rule: String,
    /// Source, in words ("this issue", "the repository's file", "detected").
    pub source: String,
}

/// Assessment of a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CourseLine {
    /// Control signal, 0..=1.
    pub signal: f64,
    /// Band of the control signal.
    pub urgency: String,
    /// Trend of the completion.
    pub trend: String,
    /// Gain profile.
    pub profile: String,
    /// Estimated number of iterations to completion; `None` if it cannot be estimated.
    pub forecast: Option<u64>,
    /// Strategy of the next iteration; empty if it does not change.
    pub strategy: String,
    /// Health of the loop.
    #[serde(default)]
    pub health: String,
    /// Control signal as the sum of its terms; empty if they are not known.
    #[serde(default)]
    pub terms: String,
    /// Gains; empty if they are not known.
    #[serde(default)]
    pub gains: String,
    /// Change of the gain profile, with its reason; empty if it did not change.
    #[serde(default)]
    pub transition: String,
    /// Active alarms, most severe first.
    #[serde(default)]
    pub alarms: Vec<String>,
}

/// Detection and the action taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DetectionLine {
    /// Title, without a full stop.
    pub title: String,
    /// Severity.
    pub severity: String,
    /// Action taken: LOG, WARN, REDIRECT, PAUSE or ABORT.
    pub level: String,
    /// Evidence.
    pub evidence: String,
}

/// Iteration in the table of the status comment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationRow {
    /// 1-based number.
    pub n: u32,
    /// Approach, in a few words.
    pub approach: String,
    /// Number of checks that passed; 0 until they have run.
    pub checks_held: u32,
    /// Number of checks.
    pub checks_total: u32,
    /// Completion in percent; `None` until the checks have run.
    pub completion_percent: Option<u8>,
    /// Control signal, 0..=1; `None` until the iteration was judged.
    pub control_signal: Option<f64>,
    /// Duration.
    pub duration_s: u64,
    /// Cost.
    pub cost: Option<Money>,
}

/// Comment of one iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationView {
    /// Loop.
    pub loop_id: LoopId,
    /// Whether to fold the comment to one line, because a later iteration has one.
    #[serde(default)]
    pub folded: bool,
    /// 1-based number.
    pub n: u32,
    /// Maximum number of iterations.
    pub max: u32,
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
    /// Number of checks that passed.
    #[serde(default)]
    pub checks_held: u32,
    /// Number of checks.
    #[serde(default)]
    pub checks_total: u32,
    /// Completion after the iteration, in percent.
    pub completion_percent: u8,
    /// Completion before the iteration, in percent, if known.
    pub previous_percent: Option<u8>,
    /// Learnings that the agent reported.
    pub learnings: Vec<String>,
    /// Blockers that the agent reported.
    pub blockers: Vec<String>,
    /// Next step, in a sentence.
    pub next: String,
    /// Strategy of the next iteration and its reason; empty if it does not change.
    pub strategy: String,
    /// Detections of this iteration and the actions taken.
    pub detections: Vec<DetectionLine>,
    /// Changes that may weaken the checks.
    pub findings: Vec<TamperFinding>,
    /// Protected paths whose changes were reverted.
    pub restored_paths: Vec<String>,
    /// Hosts that the sandbox refused for the first time in this loop.
    pub refused_hosts: Vec<String>,
    /// Requests to the model that the broker of keys refused.
    #[serde(default)]
    pub refused_requests: Vec<String>,
    /// Commit, if anything changed.
    pub commit: Option<Link>,
    /// Failure of the agent, in a sentence.
    pub agent_problem: Option<String>,
    /// Duration.
    pub duration_s: u64,
    /// Cost.
    pub cost: Option<Money>,
    /// Lines that failing checks name and that exist in the commit.
    #[serde(default)]
    pub places: Vec<FailureLocation>,
    /// Addresses of the files that the text names.
    #[serde(default)]
    pub links: FileLinks,
    /// Page of the iteration in the dashboard.
    #[serde(default)]
    pub dashboard: Option<Link>,
}

/// Line that a failing check names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureLocation {
    /// Path relative to the repository's root and line, with a colon between them.
    pub place: String,
    /// Name of the check.
    pub check: String,
    /// Line of output that names it.
    pub message: String,
}

/// Changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLine {
    /// Path relative to the repository's root.
    pub path: String,
    /// Number of lines added.
    pub added: u64,
    /// Number of lines removed.
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
    /// Reason of the failure, in a sentence; empty if the check passed.
    pub why: String,
    /// Whether it failed once and passed once on the same commit.
    #[serde(default)]
    pub flaky: bool,
    /// Whether it passed in one run only, because a second one takes too long.
    #[serde(default)]
    pub ran_once: bool,
    /// Test counts, if the runner's output was recognized.
    pub tests: Option<TestCounts>,
    /// Duration.
    pub duration_s: u64,
    /// Last part of the output, secrets masked; may be empty.
    pub output: String,
    /// 1-based line of the iteration's transcript at which its output begins, if it is known.
    #[serde(default)]
    pub line: Option<u64>,
}
