//! Views of pull requests, results and escalations.

use serde::{Deserialize, Serialize};

use super::{CheckLine, CommandHint, DetectionLine, FailureLocation, FileLine, FileLinks, Link, PlanLine};
use crate::domain::loops::PublishedProposal;
use crate::domain::model::ids::{LoopId, Money, Number};
use crate::domain::model::task::TamperFinding;
use crate::domain::trust::commit_rules::TemplatePart;

/// Pull request: title and body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullView {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Title of the pull request: the issue's title, adapted to the repository's rules.
    pub title: String,
    /// Parts of the repository's pull request template; empty if it has none.
    #[serde(default)]
    pub template: Vec<TemplatePart>,
    /// Issue that the merge closes.
    pub closes: Number,
    /// State of the work.
    pub state: PullWorkState,
    /// Summary of the changes, written by the agent.
    pub what: String,
    /// Text of the issue.
    pub why: String,
    /// Approved plan; `None` if there is none.
    #[serde(default)]
    pub plan: Option<PlanLine>,
    /// Latest results of the checks.
    pub checks: Vec<CheckLine>,
    /// Number of completed iterations.
    pub iterations: u32,
    /// Maximum number of iterations; `None` if unlimited.
    pub max_iterations: Option<u32>,
    /// Completion in percent.
    pub completion_percent: u8,
    /// Running time, in seconds.
    pub elapsed_s: u64,
    /// Total cost.
    pub cost: Option<Money>,
    /// Cost per backend, highest first.
    pub spent_on: Vec<SpentLine>,
    /// Points to review first, one sentence each.
    pub look_first: Vec<String>,
    /// Changes to tests and checks, compared with the base.
    pub findings: Vec<TamperFinding>,
    /// Changes to tests that a person accepted.
    #[serde(default)]
    pub accepted: Vec<AcceptedLine>,
    /// Second opinion about the change; `None` if none was requested.
    #[serde(default)]
    pub opinion: Option<OpinionView>,
    /// Changed dependency manifests and lock files.
    pub manifests: Vec<String>,
    /// Login of the person who started the loop.
    pub started_by: String,
    /// Link to the loop's page in the dashboard; `None` if people cannot reach the dashboard.
    pub dashboard: Option<Link>,
    /// Existing lines mentioned by failing checks.
    #[serde(default)]
    pub places: Vec<FailureLocation>,
    /// URLs of the files mentioned in the text.
    #[serde(default)]
    pub links: FileLinks,
}

/// Second opinion of another model. It is advice, not an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpinionView {
    /// Backend of the opinion.
    pub backend: String,
    /// Abbreviated commit of the opinion if the branch has a newer one; `None` if the opinion is current.
    pub older: Option<String>,
    /// Reason for a missing opinion, as a phrase; empty if there is an opinion.
    pub missing: String,
    /// Overall judgement, in one or two sentences.
    pub summary: String,
    /// Findings, most severe first.
    pub remarks: Vec<OpinionLine>,
    /// Iteration that worked on the first opinion's findings; `None` if there was none.
    pub iteration: Option<u32>,
    /// Number of runs for this commit that were lost because the service stopped.
    #[serde(default)]
    pub lost: u32,
}

/// Finding of a second opinion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpinionLine {
    /// File and line, as far as known.
    pub place: String,
    /// Severity of the finding.
    pub severity: String,
    /// Text of the finding.
    pub text: String,
}

/// Change to tests that a person accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedLine {
    /// Login of the person.
    pub by: String,
    /// Finding.
    #[serde(flatten)]
    pub found: TamperFinding,
}

/// Cost of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentLine {
    /// Name of the backend.
    pub backend: String,
    /// Total cost.
    pub cost: Money,
    /// Whether any part of the cost is estimated from published prices.
    pub estimated: bool,
}

/// State of the work in a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullWorkState {
    /// Work in progress.
    Working,
    /// Every check passed in a fresh checkout.
    Ready,
    /// The branch has the best iteration of a loop that ended before all checks passed.
    Partial,
}

/// Result of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopOutcome {
    /// Every check passed.
    Success,
    /// Every check passed before the first iteration.
    NothingToDo,
    /// A limit of iterations, time or money was reached.
    LimitReached,
    /// A person or the overseer ended the loop.
    Aborted,
    /// An error of the service or its environment ended the loop.
    Failed,
    /// The pull request was merged.
    Merged,
    /// The pull request was closed without a merge.
    Closed,
}

/// Result of a loop that ended or reached a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompletionView {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Result.
    pub outcome: LoopOutcome,
    /// Reason, in a sentence ("10 of 10 iterations were used").
    pub reason: String,
    /// A person's next action, in one sentence; empty if there is none.
    #[serde(default)]
    pub next_action: String,
    /// Number of completed iterations.
    pub iterations: u32,
    /// Maximum number of iterations; `None` if unlimited.
    pub max_iterations: Option<u32>,
    /// Running time, in seconds.
    pub elapsed_s: u64,
    /// Total cost.
    pub cost: Option<Money>,
    /// Cost per backend, highest first.
    pub spent_on: Vec<SpentLine>,
    /// Completion in percent.
    pub completion_percent: u8,
    /// Problems that remain although the checks may pass, one sentence each.
    #[serde(default)]
    pub unsolved: Vec<String>,
    /// Latest results of the checks.
    pub checks: Vec<CheckLine>,
    /// Changed files, largest change first.
    pub files: Vec<FileLine>,
    /// Number of changed files beyond `files`.
    pub more_files: usize,
    /// Learnings of all iterations.
    pub learnings: Vec<String>,
    /// Changes to tests and checks, compared with the base.
    pub findings: Vec<TamperFinding>,
    /// Link to the branch; `None` if nothing was pushed.
    pub branch: Option<Link>,
    /// Pull request.
    pub pull: Option<Link>,
    /// Commands that continue or end the loop.
    pub options: Vec<CommandHint>,
    /// Second opinion, or the reason for a missing one, in one sentence; empty if none was requested.
    #[serde(default)]
    pub opinion: String,
    /// Proposals of conventions, based on recurring review comments in the repository.
    #[serde(default)]
    pub proposals: Vec<PublishedProposal>,
}

/// Severity of an escalation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EscalationSeverity {
    /// The loop needs a decision.
    Critical,
    /// The loop was ended.
    Emergency,
}

/// Body of an escalation issue, or of a comment on it or on the loop's issue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EscalationView {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Severity of the escalation.
    pub severity: EscalationSeverity,
    /// Name of the cause (`stuck`, `test_tampering`, …).
    pub cause: String,
    /// Cause in a few words, without a full stop ("three iterations changed nothing").
    #[serde(default)]
    pub headline: String,
    /// State of the loop, in words ("is paused").
    #[serde(default)]
    pub state: String,
    /// Login of the person who requested the loop; `None` for a bot.
    #[serde(default)]
    pub assignee: Option<String>,
    /// Issue of the loop.
    pub issue: Link,
    /// Cause in one or two sentences.
    pub what_happened: String,
    /// Last iteration; 0 before the first one.
    #[serde(default)]
    pub iteration: u32,
    /// Time of the escalation in RFC 3339; empty in views that were stored without it.
    #[serde(default)]
    pub at: String,
    /// Detections of the last iteration.
    #[serde(default)]
    pub detections: Vec<DetectionLine>,
    /// Evidence, one phrase each.
    pub evidence: Vec<String>,
    /// Escalation as JSON, for programs; empty in views that were stored without it.
    #[serde(default)]
    pub record: String,
    /// Change that needs a person's decision, as a patch; empty if there is none.
    #[serde(default)]
    pub diff: String,
    /// Action taken by the bot, in a sentence.
    pub intervention: String,
    /// Recommended actions, one sentence each.
    pub recommendations: Vec<String>,
    /// Last iterations, oldest first; at most three are shown.
    pub recent: Vec<RecentIteration>,
    /// Approaches that the agent tried at supervision's request, oldest first.
    #[serde(default)]
    pub tried: Vec<String>,
    /// Learnings and blockers reported by the agent.
    #[serde(default)]
    pub learnings: Vec<String>,
    /// Exact replies that continue or end the loop.
    pub replies: Vec<CommandHint>,
    /// A person's next action if no reply can continue the loop, without a full stop; otherwise empty.
    #[serde(default)]
    pub next: String,
    /// Link to the loop's page in the dashboard; `None` if people cannot reach the dashboard.
    pub dashboard: Option<Link>,
    /// Whether the text is posted on the loop's issue, which must stay open because closing it ends the loop.
    #[serde(default)]
    pub at_home: bool,
}

/// Iteration in the table of an escalation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentIteration {
    /// 1-based number.
    pub n: u32,
    /// Approach, in a few words.
    pub approach: String,
    /// Result, in a phrase.
    pub outcome: String,
    /// Number of checks that passed.
    pub checks_held: u32,
    /// Number of checks.
    pub checks_total: u32,
    /// Completion in percent.
    pub completion_percent: u8,
}
