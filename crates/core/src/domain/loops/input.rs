//! Inputs of a loop as values: commands, outcomes of work, and timers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::agent_run::AgentRunFacts;
use super::aggregate::LoopTask;
use super::branch_findings::{BranchFinding, TestEvidence};
use super::ci_progress::CiProgress;
use super::command::LoopCommand;
use super::estimate::Estimate;
use super::existing_pull::{ExistingPull, PullProblems};
use super::iteration::Guidance;
use super::merge_wish::MergeAnswer;
use super::merging::ConflictingCommit;
use super::past_loops::EndedLoop;
use super::push_refusal::PushRefusal;
use super::refused_change::ForgeChange;
use super::remarks::PublishedProposal;
use super::run_options::RunOptions;
use super::suggestion::SuggestedChange;
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::hook::{HookEvent, HookObjection};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{CommentId, LoopId, Money, Number, Sha, Timestamp, User};
use crate::domain::model::image::TaskImages;
use crate::domain::model::opinion::OpinionRun;
use crate::domain::model::task::{Check, CheckReport, DiffStat, TamperFinding};
use crate::domain::supervision::experience::Experience;
use crate::domain::trust::policy::{Policy, RepositorySettings};

/// Timer of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// The loop's time limit is reached.
    Deadline,
    /// The wait for a backend is over.
    Reactivate,
    /// An escalation was not answered for a day.
    Remind,
    /// A cron pattern of the schedule matches.
    Schedule,
}

impl TimerKind {
    /// Returns the stored name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Reactivate => "reactivate",
            Self::Remind => "remind",
            Self::Schedule => "schedule",
        }
    }

    /// Returns the timer with that name in the store; `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Deadline, Self::Reactivate, Self::Remind, Self::Schedule].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Comment that contained a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommentRef {
    /// Issue or pull request of the comment; replies go there.
    pub on: Number,
    /// Identifier; `None` if reactions cannot be added to the comment.
    pub id: Option<CommentId>,
}

/// Input of a loop. The permission of its author was checked before. The store's log contains all groups in one form: the tag
/// `input` has the name of the group's variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LoopInput {
    /// A person with permission started the loop or gave it a command.
    Command(CommandInput),
    /// The forge reported a fact or answered a request.
    Forge(ForgeInput),
    /// The service's timers and its queue of loops.
    Timer(TimerInput),
    /// The outcome of the work that the loop requested with this ticket.
    Outcome {
        /// Outcome.
        #[serde(flatten)]
        outcome: WorkOutcome,
        /// Ticket of the work; 0 for work without a ticket.
        #[serde(default, skip_serializing_if = "has_no_ticket")]
        ticket: u64,
    },
}

/// Whether an outcome belongs to work without a ticket.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn has_no_ticket(ticket: &u64) -> bool {
    *ticket == 0
}

impl From<CommandInput> for LoopInput {
    fn from(input: CommandInput) -> Self {
        Self::Command(input)
    }
}

impl From<ForgeInput> for LoopInput {
    fn from(input: ForgeInput) -> Self {
        Self::Forge(input)
    }
}

impl From<TimerInput> for LoopInput {
    fn from(input: TimerInput) -> Self {
        Self::Timer(input)
    }
}

/// Input of a person: start, command, label, review.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub enum CommandInput {
    /// Starts the loop.
    Start(Box<LoopStart>),
    /// A person gave a command.
    #[serde(rename = "command")]
    Given { by: User, command: LoopCommand, comment: Option<CommentRef> },
    /// The label that started the loop was removed.
    RunLabelRemoved { by: Option<User> },
    /// A label that starts loops was set again, or in addition to another one.
    RunLabelAdded {
        by: User,
        /// Whether it is the label that requests a plan first.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        plan: bool,
    },
    /// A person with permission submitted a review. Each remark has a key, so that the loop recognizes a repeated remark.
    Reviewed {
        by: User,
        items: Vec<(String, Guidance)>,
        /// Suggested changes. Each is also included in the items, as a remark.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        suggestions: Vec<SuggestedChange>,
    },
}

/// Fact about the loop's issue, pull request, repository or permission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub enum ForgeInput {
    /// The forge rendered the task's text, of a loop that was stored without its page.
    Rendered { html: String },
    /// The issue was closed, deleted or transferred.
    IssueEnded { how: String },
    /// The pull request was opened.
    PullOpened { number: Number, url: String },
    /// The changes of tests in the commits of an existing pull request, before the first change of the loop.
    TestsFound { commit: Sha, findings: Vec<BranchFinding> },
    /// The pull request was merged.
    PullMerged,
    /// The pull request was closed without a merge.
    PullClosed,
    /// The pull request was deleted.
    PullGone,
    /// The repository accepts changes again.
    RepositoryBack,
    /// The base branch of the pull request changed.
    PullRetargeted { base: String },
    /// CI of a commit of the pull request was read.
    Inspected(CiInspection),
    /// The forge answered the request to merge the pull request with this commit as its head.
    MergeAnswered { commit: Sha, answer: MergeAnswer },
    /// The forge no longer merges the pull request by itself.
    MergeWithdrawn,
    /// The forge refused a change permanently.
    ChangeRefused {
        change: ForgeChange,
        /// Request and the forge's answer.
        detail: String,
    },
    /// The forge accepted a change that it had refused before.
    ChangeMade { change: ForgeChange },
    /// The person on whose authority the loop runs lost their permission.
    AuthorityLost {
        who: String,
        /// Teams with hidden members, because of which the permission cannot be determined.
        #[serde(default)]
        hidden_teams: Vec<String>,
    },
}

/// Input of the service's timers and queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub enum TimerInput {
    /// A slot for running the loop is free.
    SlotGranted,
    /// The clock of the machine was changed while the loop was running, by this number of milliseconds (negative if set back).
    ClockSet { by_ms: i64 },
    /// A timer expired.
    TimerDue { timer: TimerKind },
    /// The loop's work waits, because no host that accepts work has all of these labels.
    NoHost { labels: Vec<String> },
}

/// Outcome of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub enum WorkOutcome {
    /// The work tree was prepared.
    Prepared { tree: Box<PreparedTree> },
    /// The checks of an iteration or of the baseline finished.
    Checked { report: CheckReport },
    /// The proposed checks finished.
    ProposalsTried {
        report: CheckReport,
        /// Cost of the question to an assistant.
        cost: Money,
        /// Reason why the assistant gave no usable answer.
        assistant_failure: Option<String>,
    },
    /// The checks of a commit finished in a fresh checkout.
    Verified { report: CheckReport, tests: Box<TestEvidence> },
    /// The agent run for a plan ended. The plan is in the report or in the last message of the run.
    Planned { run: Box<AgentRunFacts> },
    /// The agent run ended.
    AgentEnded { run: Box<AgentRunFacts> },
    /// The process of the agent died. `salvaged` is a commit of the work tree's content.
    AgentLost {
        salvaged: Option<Sha>,
        /// Cost to book for the lost run.
        #[serde(default)]
        cost: Money,
        /// Whether the run was lost before its agent started.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        before_start: bool,
    },
    /// Model calls were made after the end of the loop.
    AskedAtEnd { cost: Money },
    /// The work tree was committed.
    Committed { change: Box<IterationChange> },
    /// Suggested changes were applied and committed.
    SuggestionsApplied {
        change: Box<IterationChange>,
        /// Comments whose changes are in the commit.
        applied: Vec<CommentId>,
        /// Comments whose changes could not be applied, each with the reason.
        failed: Vec<(CommentId, String)>,
    },
    /// The files of the best iteration were restored. `commit` is `None` if the tree already had these files.
    Restored {
        commit: Option<Sha>,
        /// Ref at which the service keeps the undone work.
        #[serde(default)]
        retained_as: Option<String>,
    },
    /// The branch was pushed.
    Pushed { commit: Sha },
    /// The push was rejected, because the branch on the forge moved or the forge refused it.
    PushRejected {
        remote: Option<Sha>,
        reason: String,
        /// Reason of the refusal, by kind.
        #[serde(default)]
        refusal: PushRefusal,
    },
    /// The push was blocked by the service, because the commits contain something that must not leave it.
    PushBlocked { reason: String },
    /// The other commit was merged into the work tree.
    Merged {
        other: Sha,
        conflicts: Vec<String>,
        /// Commit that caused the conflicts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<ConflictingCommit>,
        up_to_date: bool,
        /// Commit of the base branch that the branch contains after the merge; `None` if the merge does not change it.
        #[serde(default)]
        base: Option<Sha>,
    },
    /// Work failed permanently.
    WorkFailed { reason: String, advice: String },
    /// The hooks of an event ran. If there is no objection, the loop continues.
    HooksAnswered { event: HookEvent, objection: Option<HookObjection> },
    /// The run of another backend for a second opinion ended.
    SecondOpinionGiven { run: Box<OpinionRun> },
    /// Work was impossible because the repository accepts no changes: it is archived or gone, or denies the bot access.
    RepositoryUnavailable { why: String },
    /// Work was deferred, usually because the forge does not respond. It is retried at `until`.
    PutOff { until: Timestamp },
    /// The repository's file is invalid.
    RepositoryFileBroken { path: String, problems: Vec<String> },
}

/// CI results of a commit of the pull request, and its conflicts with the base.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CiInspection {
    /// Commit, usually the head of the branch.
    pub commit: Sha,
    /// Failed checks.
    pub failed: Vec<Guidance>,
    /// Whether CI has started.
    #[serde(default)]
    pub progress: CiProgress,
    /// Number of checks that have not finished.
    pub pending: u32,
    /// Whether the pull request conflicts with its base.
    pub conflict: bool,
    /// Names of the failed checks that also fail on the base.
    #[serde(default)]
    pub on_base: Vec<String>,
}

impl CiInspection {
    /// Whether no check failed or is pending, and there is no conflict.
    pub fn is_green(&self) -> bool {
        self.failed.is_empty() && self.pending == 0 && !self.conflict
    }
}

/// Data that a new loop starts with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopStart {
    /// Identifier, which the caller generates.
    pub id: LoopId,
    /// Issue to work on.
    pub place: IssueRef,
    /// Person who requested the loop.
    pub by: User,
    /// Task.
    pub task: LoopTask,
    /// Options.
    pub options: RunOptions,
    /// Wishes for the plan that `/ralph plan` requests; may be empty. `None` for other commands and for the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Request in the command's text; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// Existing pull request to work on; `None` for an issue. `place` then has the number of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<ExistingPull>,
    /// Settings of the operator.
    pub policy: Policy,
    /// Comment with the command; `None` if the label started the loop.
    pub comment: Option<CommentRef>,
    /// Number of hidden parts that were removed from the text.
    pub hidden_removed: u32,
    /// 1-based number among the loops of the issue. Each loop after the first has a branch name with this number.
    pub round: u32,
}

/// Prepared work tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreparedTree {
    /// Base branch.
    pub base_branch: String,
    /// Head of the base branch.
    pub base: Sha,
    /// Commit that is checked out in the work tree.
    pub head: Sha,
    /// Commit of the loop's branch on the forge; `None` if the branch does not exist.
    pub remote: Option<Sha>,
    /// Settings of the operator, restricted by the repository's file.
    pub policy: Policy,
    /// Settings of the repository's file that have no effect, one sentence each.
    pub notes: Vec<String>,
    /// Content that the work tree lacks, one sentence each without a full stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// Settings of the repository's file; `None` if there is no file.
    pub settings: Option<RepositorySettings>,
    /// Checks detected in the tree.
    pub detected: Vec<Check>,
    /// Whether commands can be proposed if there is no check.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proposes: bool,
    /// Usual iterations, time and cost in this repository, by task type.
    #[serde(default)]
    pub estimates: BTreeMap<TaskType, Estimate>,
    /// Resources that the most recently ended loops of the repository used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<EndedLoop>,
    /// Statistics of progress in earlier loops of the repository.
    #[serde(default)]
    pub experience: Experience,
    /// State of the sandbox, in words for people.
    pub sandbox: String,
    /// Proposals of conventions that were not published yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposals: Vec<PublishedProposal>,
    /// Images in the issue and its comments that are new to the loop.
    #[serde(default, skip_serializing_if = "TaskImages::is_empty")]
    pub images: TaskImages,
    /// Problems of the existing pull request that the loop starts to work on; `None` at other times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<PullProblems>,
}

/// Change of an iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationChange {
    /// Commit; `None` if nothing changed.
    pub commit: Option<Sha>,
    /// Hash of the complete tree.
    pub tree: Sha,
    /// Size of the change.
    pub stat: DiffStat,
    /// Size of the branch's complete change against its base; a renamed file counts as two. `None` if it was not measured.
    #[serde(default, rename = "whole")]
    pub branch_stat: Option<DiffStat>,
    /// Protected paths that were restored.
    pub restored: Vec<String>,
    /// Findings of weakened checks in the iteration's change.
    pub findings: Vec<TamperFinding>,
    /// Findings in the branch's complete change against its base; `None` if it was not measured.
    #[serde(default)]
    pub branch_findings: Option<Vec<BranchFinding>>,
    /// Files that still contain conflict markers.
    pub conflict_markers: Vec<String>,
    /// Reason why a person has to review the change before it is pushed; `None` if it can be pushed.
    pub blocked: Option<String>,
    /// New files that a killed agent left and that are not part of the commit.
    #[serde(default)]
    pub set_aside: Vec<String>,
    /// Changes that were not committed because of where they are, one sentence each without a full stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Size of the patch and of the new binary files, in bytes; 0 for a merge.
    #[serde(default)]
    pub bytes: u64,
    /// Size of the new binary files, in bytes; 0 for a merge.
    #[serde(default)]
    pub binary_bytes: u64,
    /// Cosine of the embeddings of the task and of the work, -1..1; `None` without an embedding model or without text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective_cosine: Option<f64>,
}
