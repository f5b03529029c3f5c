//! Views of pull requests, of results, and of escalations.

use serde::{Deserialize, Serialize};

use super::{CheckLine, CommandHint, FailureLocation, FileLine, FileLinks, Link, PlanLine};
use crate::domain::loops::PublishedProposal;
use crate::domain::model::ids::{LoopId, Money, Number};
use crate::domain::model::task::TamperFinding;

/// Pull request: title and body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullView {
    /// Loop.
    pub loop_id: LoopId,
    /// Title of the issue, used as title of the pull request.
    pub title: String,
    /// Issue that a merge closes.
    pub closes: Number,
    /// State of the work.
    pub state: PullState,
    /// Summary of the changes, written by the agent.
    pub what: String,
    /// Text of the issue.
    pub why: String,
    /// Approved plan.
    #[serde(default)]
    pub plan: Option<PlanLine>,
    /// Latest results of the checks.
    pub checks: Vec<CheckLine>,
    /// Number of iterations done.
    pub iterations: u32,
    /// Maximum number of iterations.
    pub max_iterations: u32,
    /// Completion in percent.
    pub completion_percent: u8,
    /// Working time.
    pub elapsed_s: u64,
    /// Total cost.
    pub cost: Option<Money>,
    /// Cost per backend, highest first.
    pub spent_on: Vec<SpentLine>,
    /// Points to review first, one sentence each.
    pub look_first: Vec<String>,
    /// Changes that may weaken the checks.
    pub findings: Vec<TamperFinding>,
    /// Changes to tests that a person accepted.
    #[serde(default)]
    pub accepted: Vec<AcceptedLine>,
    /// Second opinion about the change; `None` if nobody was asked.
    #[serde(default)]
    pub opinion: Option<OpinionView>,
    /// Changed dependency manifests and lock files.
    pub manifests: Vec<String>,
    /// Login of the person who started the loop.
    pub started_by: String,
    /// Page of the dashboard.
    pub dashboard: Option<Link>,
    /// Lines that failing checks name and that exist in the commit.
    #[serde(default)]
    pub places: Vec<FailureLocation>,
    /// Addresses of the files that the text names.
    #[serde(default)]
    pub links: FileLinks,
}

/// Second opinion of another model, which approves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpinionView {
    /// Backend.
    pub backend: String,
    /// Commit that it is about, shortened, if the branch has a newer one.
    pub older: Option<String>,
    /// Reason why there is none, in a phrase; empty if there is one.
    pub missing: String,
    /// Judgement of the whole, in a sentence or two.
    pub summary: String,
    /// Findings, the most severe first.
    pub remarks: Vec<OpinionLine>,
    /// Iteration that got the findings of the first opinion.
    pub iteration: Option<u32>,
    /// Number of runs about this commit that were lost with the service.
    #[serde(default)]
    pub lost: u32,
}

/// Finding of a second opinion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpinionLine {
    /// File with the line, as far as known.
    pub place: String,
    /// Severity.
    pub severity: String,
    /// Text.
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

/// Cost of the iterations of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentLine {
    /// Name of the backend.
    pub backend: String,
    /// Total cost.
    pub cost: Money,
    /// Whether any part of the cost is estimated from published prices.
    pub estimated: bool,
}

/// State of a pull request's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullState {
    /// Work in progress.
    Working,
    /// Every check passed in a fresh checkout.
    Ready,
    /// Best iteration of a loop that ended before every check passed.
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
    /// Limit of iterations, time or money reached.
    LimitReached,
    /// Ended by a person or by the overseer.
    Aborted,
    /// Ended by an error of the service or its environment.
    Failed,
    /// Pull request merged.
    Merged,
    /// Pull request closed without a merge.
    Closed,
}

/// Result of a loop that ended or reached a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompletionView {
    /// Loop.
    pub loop_id: LoopId,
    /// Result.
    pub outcome: LoopOutcome,
    /// Reason, in a sentence ("10 of 10 iterations were used").
    pub reason: String,
    /// Next action of a person, in a sentence; empty if there is none.
    #[serde(default)]
    pub next_action: String,
    /// Number of iterations done.
    pub iterations: u32,
    /// Maximum number of iterations.
    pub max_iterations: u32,
    /// Working time.
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
    /// Latest results of the checks; empty if the comment of the last iteration shows them.
    pub checks: Vec<CheckLine>,
    /// Changed files, largest change first; empty if the comment of the last iteration shows them.
    pub files: Vec<FileLine>,
    /// Number of changed files beyond `files`.
    pub more_files: usize,
    /// Learnings of all iterations.
    pub learnings: Vec<String>,
    /// Changes that may weaken the checks.
    pub findings: Vec<TamperFinding>,
    /// Branch, if anything was pushed.
    pub branch: Option<Link>,
    /// Pull request.
    pub pull: Option<Link>,
    /// Commands that continue or end the loop.
    pub options: Vec<CommandHint>,
    /// Second opinion, or the reason why there is none, in a sentence; empty if nobody was asked.
    #[serde(default)]
    pub opinion: String,
    /// Review remarks that recur in the repository and could become conventions.
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

/// Body of an escalation issue, or of a comment there or on the loop's issue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EscalationView {
    /// Loop.
    pub loop_id: LoopId,
    /// Severity.
    pub severity: EscalationSeverity,
    /// Name of the cause (`stuck`, `test_tampering`, …).
    pub cause: String,
    /// Cause in a few words, without a full stop ("three iterations changed nothing").
    #[serde(default)]
    pub headline: String,
    /// State of the loop, in words ("is paused").
    #[serde(default)]
    pub state: String,
    /// Login of the person who asked for the loop; `None` if that is not a user.
    #[serde(default)]
    pub assignee: Option<String>,
    /// Issue of the loop.
    pub issue: Link,
    /// Cause in a sentence or two.
    pub what_happened: String,
    /// Evidence, one phrase each.
    pub evidence: Vec<String>,
    /// Change that a person decides about, as a patch; empty if there is none.
    #[serde(default)]
    pub diff: String,
    /// Action that the bot took, in a sentence.
    pub intervention: String,
    /// Recommended actions, one sentence each.
    pub recommendations: Vec<String>,
    /// Last iterations, oldest first; three are shown.
    pub recent: Vec<RecentIteration>,
    /// Approaches that supervision proposed and the agent tried, oldest first.
    #[serde(default)]
    pub tried: Vec<String>,
    /// Learnings and blockers that the agent reported.
    #[serde(default)]
    pub learnings: Vec<String>,
    /// Exact replies that continue or end the loop.
    pub replies: Vec<CommandHint>,
    /// Next action of a person if no reply continues the loop, without a full stop; empty otherwise.
    #[serde(default)]
    pub next: String,
    /// Page of the dashboard.
    pub dashboard: Option<Link>,
    /// Whether the text is on the loop's own issue, which ends the loop if it is closed.
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
