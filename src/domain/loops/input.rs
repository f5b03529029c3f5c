//! Inputs of a loop: commands, outcomes of work and timers, as values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::agent_run::AgentRunFacts;
use super::aggregate::LoopTask;
use super::branch_findings::{BranchFinding, TestEvidence};
use super::command::LoopCommand;
use super::estimate::Estimate;
use super::iteration::Guidance;
use super::merge_wish::MergeAnswer;
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
    /// A wait for a backend is over.
    Reactivate,
    /// An escalation was not answered for a day.
    Remind,
}

impl TimerKind {
    /// Name in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Reactivate => "reactivate",
            Self::Remind => "remind",
        }
    }

    /// Returns the timer with that name in the store.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Deadline, Self::Reactivate, Self::Remind].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Comment that contained a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommentRef {
    /// Issue or pull request of the comment; replies go there.
    pub on: Number,
    /// Identifier, if reactions can be added to it.
    pub id: Option<CommentId>,
}

/// Input of a loop. The permission of people was checked before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub enum LoopInput {
    /// Starts the loop.
    Start(Box<LoopStart>),
    /// A slot is free.
    SlotGranted,
    /// A command of a person.
    Command { by: User, command: LoopCommand, comment: Option<CommentRef> },
    /// The label that started the loop was removed.
    RunLabelRemoved { by: Option<User> },
    /// A label that starts loops was set again, or beside another one.
    RunLabelAdded {
        by: User,
        /// Whether it is the label that asks for a plan first.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        plan: bool,
    },
    /// The issue was closed, deleted or transferred.
    IssueEnded { how: String },
    /// The pull request was opened.
    PullOpened { number: Number, url: String },
    /// The pull request was merged.
    PullMerged,
    /// The pull request was closed without a merge.
    PullClosed,
    /// The pull request was deleted.
    PullGone,
    /// The repository takes changes again.
    RepositoryBack,
    /// The base branch of the pull request changed.
    PullRetargeted { base: String },
    /// A review by a person with permission; each remark has a key that identifies repeated ones.
    Reviewed {
        by: User,
        items: Vec<(String, Guidance)>,
        /// Suggested changes; each is also an item, as a remark.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        suggestions: Vec<SuggestedChange>,
    },
    /// State of CI for a commit of the pull request, and whether it conflicts with its base.
    Inspected {
        commit: Sha,
        failed: Vec<Guidance>,
        /// Number of checks that passed.
        #[serde(default)]
        passed: u32,
        pending: u32,
        conflict: bool,
        /// Names of failed checks that fail on the base, too.
        #[serde(default)]
        on_base: Vec<String>,
    },
    /// The forge was asked to merge the pull request with this commit as its head.
    MergeAnswered { commit: Sha, answer: MergeAnswer },
    /// The forge no longer merges the pull request by itself.
    MergeWithdrawn,
    /// The forge refused a change for good.
    ChangeRefused {
        change: ForgeChange,
        /// Call and the forge's answer.
        detail: String,
    },
    /// The forge made a change that it had refused before.
    ChangeMade { change: ForgeChange },
    /// The person on whose authority the loop runs lost the permission.
    AuthorityLost {
        who: String,
        /// Teams whose members are hidden, so that the person's permission cannot be determined.
        #[serde(default)]
        hidden_teams: Vec<String>,
    },

    /// The work tree is ready.
    Prepared { ticket: u64, tree: Box<PreparedTree> },
    /// Checks finished.
    Checked { ticket: u64, report: CheckReport },
    /// Checks of a commit finished in a fresh checkout.
    Verified { ticket: u64, report: CheckReport, tests: Box<TestEvidence> },
    /// The run of the agent that was to make a plan ended; the plan is in its report or its last message.
    Planned { ticket: u64, run: Box<AgentRunFacts> },
    /// The agent's run ended.
    AgentEnded { ticket: u64, run: Box<AgentRunFacts> },
    /// The process that ran the agent died. `salvaged` is a commit of the tree's contents.
    AgentLost {
        ticket: u64,
        salvaged: Option<Sha>,
        /// Estimated cost of the lost run.
        #[serde(default)]
        cost: Money,
    },
    /// Cost of model calls after the end of the loop.
    AskedAtEnd { cost: Money },
    /// The work tree was committed.
    Committed { ticket: u64, change: Box<IterationChange> },
    /// Suggested changes were applied and committed.
    SuggestionsApplied {
        ticket: u64,
        change: Box<IterationChange>,
        /// Comments whose change is part of the commit.
        applied: Vec<CommentId>,
        /// Comments whose change does not apply, with the reason.
        failed: Vec<(CommentId, String)>,
    },
    /// The best iteration's files were restored. `commit` is `None` if the tree had them already.
    Restored {
        ticket: u64,
        commit: Option<Sha>,
        /// Ref at which the service keeps the work that the restoration undid.
        #[serde(default)]
        retained_as: Option<String>,
    },
    /// The branch was pushed.
    Pushed { ticket: u64, commit: Sha },
    /// The push was rejected: the forge's branch moved, or the account may not push.
    PushRejected {
        ticket: u64,
        remote: Option<Sha>,
        reason: String,
        /// Kind of the forge's refusal.
        #[serde(default)]
        refusal: PushRefusal,
    },
    /// The commits to push hold what must not leave the service.
    PushBlocked { ticket: u64, reason: String },
    /// The other side of a merge is in the work tree.
    Merged {
        ticket: u64,
        other: Sha,
        conflicts: Vec<String>,
        up_to_date: bool,
        /// Commit of the base branch that the branch contains after the merge; `None` if that does not change.
        #[serde(default)]
        base: Option<Sha>,
    },
    /// Work failed permanently.
    WorkFailed { ticket: u64, reason: String, advice: String },
    /// The hooks of an event ran; without an objection the loop continues.
    HooksAnswered { ticket: u64, event: HookEvent, objection: Option<HookObjection> },
    /// Another backend was asked for a second opinion.
    SecondOpinionGiven { ticket: u64, run: Box<OpinionRun> },
    /// Work could not be done because the repository takes no changes: it is archived, gone, or refuses the bot.
    RepositoryUnavailable { ticket: u64, why: String },
    /// Work was deferred, usually because the forge does not answer; it is retried at `until`.
    PutOff { ticket: u64, until: Timestamp },
    /// The repository's file is invalid.
    RepositoryFileBroken { ticket: u64, path: String, problems: Vec<String> },

    /// The machine's clock was changed while the loop was running; negative if it was set back.
    ClockSet { by_ms: i64 },
    /// A timer expired.
    TimerDue { timer: TimerKind },
}

/// Data that a new loop starts with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopStart {
    /// Identifier, generated by the caller.
    pub id: LoopId,
    /// Issue to work on.
    pub place: IssueRef,
    /// Person who asked for the loop.
    pub by: User,
    /// Task.
    pub task: LoopTask,
    /// Options.
    pub options: RunOptions,
    /// Wishes for a plan that `/ralph plan` asks for, may be empty; `None` for other commands and for the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Operator's settings.
    pub policy: Policy,
    /// Comment with the command, if any.
    pub comment: Option<CommentRef>,
    /// Number of hidden parts removed from the text.
    pub hidden_removed: u32,
    /// 1-based number of the loop among those of its issue; later loops get a branch of their own.
    pub round: u32,
}

/// Prepared work tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreparedTree {
    /// Base branch.
    pub base_branch: String,
    /// Head of the base branch.
    pub base: Sha,
    /// Commit that the work tree is at.
    pub head: Sha,
    /// Commit of the forge's branch of the loop, if it exists.
    pub remote: Option<Sha>,
    /// Operator's settings, restricted by the repository's file.
    pub policy: Policy,
    /// Settings of the repository's file that have no effect, one sentence each.
    pub notes: Vec<String>,
    /// Repository's file, if there is one.
    pub settings: Option<RepositorySettings>,
    /// Checks detected in the tree.
    pub detected: Vec<Check>,
    /// Usual iterations, time and cost in this repository, by task type.
    #[serde(default)]
    pub estimates: BTreeMap<TaskType, Estimate>,
    /// Resources that the newest ended loops of the repository took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<EndedLoop>,
    /// Progress of earlier loops of the repository.
    #[serde(default)]
    pub experience: Experience,
    /// State of the sandbox, for people.
    pub sandbox: String,
    /// Proposals of conventions that were not published yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposals: Vec<PublishedProposal>,
    /// Images that were found in the issue and its comments and that the loop does not know.
    #[serde(default, skip_serializing_if = "TaskImages::is_empty")]
    pub images: TaskImages,
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
    /// Size of the loop's complete change against its base; a renamed file counts as two. `None` if it was not
    /// measured.
    #[serde(default, rename = "whole")]
    pub branch_stat: Option<DiffStat>,
    /// Protected paths that were restored.
    pub restored: Vec<String>,
    /// Signs of weakened checks.
    pub findings: Vec<TamperFinding>,
    /// Findings of the loop's complete change against its base; `None` if it was not measured.
    #[serde(default)]
    pub branch_findings: Option<Vec<BranchFinding>>,
    /// Files that still contain conflict markers.
    pub conflict_markers: Vec<String>,
    /// Reason not to push it before a person has reviewed it, if any.
    pub blocked: Option<String>,
    /// New files of a killed agent, which are not part of the commit.
    #[serde(default)]
    pub set_aside: Vec<String>,
    /// Size of the patch and of the new binary files, in bytes; 0 for a merge.
    #[serde(default)]
    pub bytes: u64,
    /// Size of the new binary files, in bytes; 0 for a merge.
    #[serde(default)]
    pub binary_bytes: u64,
}
