//! What people see when a loop hands in its work, ends, or needs them.

use serde::{Deserialize, Serialize};

use super::{CheckLine, CommandHint, FileLine, Link};
use crate::domain::model::ids::{LoopId, Money, Number};
use crate::domain::model::task::TamperFinding;

/// The pull request: title and body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullView {
    /// Which loop.
    pub loop_id: LoopId,
    /// Title of the issue; the pull request's title is made of it.
    pub title: String,
    /// The issue that it closes when merged.
    pub closes: Number,
    /// How far the work is.
    pub state: PullState,
    /// What was done, in the agent's words.
    pub what: String,
    /// What it was done for, from the issue.
    pub why: String,
    /// The checks and how they went last.
    pub checks: Vec<CheckLine>,
    /// Iterations done.
    pub iterations: u32,
    /// Limit of iterations.
    pub max_iterations: u32,
    /// Completion, whole percent.
    pub completion_percent: u8,
    /// Working time.
    pub elapsed_s: u64,
    /// Money spent.
    pub cost: Option<Money>,
    /// What it was spent on, the most first.
    pub spent_on: Vec<SpentLine>,
    /// What a reviewer should look at first, a sentence each.
    pub look_first: Vec<String>,
    /// Changes that weaken what measures them.
    pub findings: Vec<TamperFinding>,
    /// Manifests and lock files that changed.
    pub manifests: Vec<String>,
    /// Login of the person who started the loop.
    pub started_by: String,
    /// Page of the dashboard.
    pub dashboard: Option<Link>,
}

/// What the iterations of one backend cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentLine {
    /// The backend.
    pub backend: String,
    /// How much.
    pub cost: Money,
    /// Whether it, or a part of it, is an estimate by published prices.
    pub estimated: bool,
}

/// How far a pull request's work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullState {
    /// The loop works on it.
    Working,
    /// Every check passed in a fresh checkout.
    Ready,
    /// The loop ended before every check passed; this is its best iteration.
    Partial,
}

/// How a loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every check passed.
    Success,
    /// Every check passed before anything was done.
    NothingToDo,
    /// Iterations, time or money were spent.
    LimitReached,
    /// Ended by a person or by the overseer.
    Aborted,
    /// The service could not go on.
    Failed,
    /// The pull request was merged.
    Merged,
    /// The pull request was closed without being merged.
    Closed,
}

/// The report at the end of a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompletionView {
    /// Which loop.
    pub loop_id: LoopId,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, in a sentence ("10 of 10 iterations were used"; who aborted and for what reason).
    pub reason: String,
    /// Title of the issue.
    pub task_title: String,
    /// Iterations done.
    pub iterations: u32,
    /// Limit of iterations.
    pub max_iterations: u32,
    /// Working time.
    pub elapsed_s: u64,
    /// Money spent.
    pub cost: Option<Money>,
    /// What it was spent on, the most first.
    pub spent_on: Vec<SpentLine>,
    /// Completion, whole percent.
    pub completion_percent: u8,
    /// The checks and how they went last.
    pub checks: Vec<CheckLine>,
    /// Files changed, the most important first.
    pub files: Vec<FileLine>,
    /// Files changed beyond those listed.
    pub more_files: usize,
    /// What was learnt.
    pub learnings: Vec<String>,
    /// Changes that weaken what measures them.
    pub findings: Vec<TamperFinding>,
    /// Branch of the work, where it still exists.
    pub branch: Option<Link>,
    /// Pull request.
    pub pull: Option<Link>,
    /// Ways to go on.
    pub options: Vec<CommandHint>,
}

/// How urgent an escalation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The loop waits for a person.
    Critical,
    /// The loop was ended.
    Emergency,
}

/// An escalation: the body of the issue, or of a comment there or on the loop's own issue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EscalationView {
    /// Which loop.
    pub loop_id: LoopId,
    /// How urgent.
    pub severity: Severity,
    /// Cause in a word (`stuck`, `test_tampering`, …).
    pub cause: String,
    /// The loop's issue.
    pub issue: Link,
    /// What happened, in a sentence or two.
    pub what_happened: String,
    /// What shows it, a line each.
    pub evidence: Vec<String>,
    /// What the bot did about it, in a sentence.
    pub intervention: String,
    /// What a person might do, a sentence each.
    pub recommendations: Vec<String>,
    /// The last iterations, oldest first; the last three are shown.
    pub recent: Vec<RecentIteration>,
    /// Exact replies that continue or end the loop.
    pub replies: Vec<CommandHint>,
    /// Page of the dashboard.
    pub dashboard: Option<Link>,
    /// Whether it stands on the loop's own issue, which ends the loop where it is closed.
    #[serde(default)]
    pub at_home: bool,
}

/// One of the last iterations, in an escalation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentIteration {
    /// Number, from 1.
    pub n: u32,
    /// How it was gone about.
    pub approach: String,
    /// What came of it, in a sentence.
    pub outcome: String,
    /// Checks that held after it.
    pub checks_held: u32,
    /// Checks in all.
    pub checks_total: u32,
    /// Completion after it, whole percent.
    pub completion_percent: u8,
}
