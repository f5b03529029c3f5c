//! Effects of a step, as data. Each effect has a natural key and is executed at most once under the same key. After a crash, the
//! effect is looked up by its key before it is repeated.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::domain::loops::{EscalationCause, ForgeChange, LoopState, SuggestedChange, TimerKind};
use crate::domain::model::hook::HookEvent;
use crate::domain::model::ids::{CommentId, Number, Sha, Timestamp};
use crate::domain::report::notice::Notice;
use crate::domain::report::view::{EscalationSeverity, View};
use crate::domain::supervision::oversight::{AuditEntry, EscalationLevel};

/// Lane of an effect. Effects of the same loop and queue run one at a time, in order. Different queues do not wait for each
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectQueue {
    /// Git, agents and checks. They take long, and run on the machine that has the work tree.
    Work,
    /// Short requests to the forge.
    #[serde(alias = "talk")]
    Forge,
    /// Notices for channels outside of the forge. Each channel has a separate queue.
    #[serde(alias = "notify")]
    Channels,
}

impl EffectQueue {
    /// Returns the stored name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Forge => "talk",
            Self::Channels => "notify",
        }
    }

    /// Returns the name, as in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Forge => "forge",
            Self::Channels => "channels",
        }
    }
}

/// Purpose of a run of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckPurpose {
    /// The run before the first iteration, which is the reference for regressions.
    Baseline,
    /// The run after an iteration, in the loop's work tree.
    Iteration,
    /// The run of commands that are proposed as checks, at the base.
    Proposals,
    /// The run in a fresh checkout of the commit. Checks that pass only because of files outside of the commit fail here.
    Clean,
}

/// Reaction of the bot to a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The comment was read.
    Seen,
    /// The command was executed.
    Done,
    /// The command is invalid.
    Wrong,
    /// The author may not give the command.
    Refused,
}

/// Effect of a step. The store's rows contain all groups in one form: the tag `effect` has the name of the group's variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Effect {
    /// Work on the machine that has the work tree.
    Work(WorkEffect),
    /// Requests to the forge.
    Forge(ForgeEffect),
    /// Notices for channels outside of the forge.
    Channel(ChannelEffect),
    /// Changes of the loop's timers. Applied by the store, together with the step.
    Timer(TimerEffect),
    /// Other changes in the store. Applied together with the step.
    Store(StoreEffect),
}

/// Implements the conversion of each group into an effect.
macro_rules! groups {
    ($($group:ident($kind:ty)),*) => {
        $(impl From<$kind> for Effect {
            fn from(effect: $kind) -> Self {
                Self::$group(effect)
            }
        })*
    };
}

groups!(Work(WorkEffect), Forge(ForgeEffect), Channel(ChannelEffect), Timer(TimerEffect), Store(StoreEffect));

/// Work of a loop. Most of it has the ticket of the step that requested it: an outcome with another ticket is outdated and has no
/// effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum WorkEffect {
    /// Updates the mirror, creates or repairs the work tree, reads the repository's file, and detects checks.
    Prepare { ticket: u64 },
    /// Runs the checks.
    Check { ticket: u64, purpose: CheckPurpose, commit: Sha },
    /// Runs the agent once to make a plan. The agent cannot change the tree.
    Plan { ticket: u64, attempt: u32 },
    /// Runs the agent once.
    Agent { ticket: u64, iteration: u32, attempt: u32 },
    /// Commits the content of the work tree, including a merge in progress.
    Commit { ticket: u64, iteration: u32 },
    /// Pushes the loop's head to its branch.
    Push { ticket: u64, commit: Sha },
    /// Merges another commit into the work tree: the head of the base branch, or a commit that a person pushed to the loop's
    /// branch.
    Merge { ticket: u64, other: Option<Sha> },
    /// Restores the files of an earlier commit in a new commit, so that the branch keeps all commits.
    Restore { ticket: u64, iteration: u32, to: Sha },
    /// Asks another backend for a second opinion about a verified commit.
    SecondOpinion { ticket: u64, commit: Sha },
    /// Applies suggested changes in a new commit.
    ApplySuggestions { ticket: u64, iteration: u32, changes: Vec<SuggestedChange> },
    /// Runs the hooks of an event. The loop waits for the result.
    Hooks { ticket: u64, event: HookEvent },
    /// Runs the hooks for the end of the loop's work. The loop does not wait for the result.
    HooksAfterEnd {
        /// Version of the loop when it stopped working.
        version: u64,
    },
    /// Releases the work tree of an ended loop. Also deletes the branch if that is configured.
    Release { delete_branch: bool },
}

/// Request to the forge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum ForgeEffect {
    /// Posts a comment once.
    Comment { key: String, on: Number, view: Box<View> },
    /// Updates the status comment with the loop's current state. With `fresh`, posts a new one.
    Status { fresh: bool },
    /// Sets the status of the branch's commit, from the loop's current state.
    CommitStatus,
    /// Sets the label of a state and removes the labels of other states. `None` removes all of them.
    StateLabel { state: Option<LoopState> },
    /// Removes the label that started the loop from the issue.
    DropRunLabel,
    /// Adds a reaction to a comment.
    React { comment: CommentId, mark: Mark },
    /// Adds a reaction to a review comment on a line.
    ReactToRemark { comment: CommentId, mark: Mark },
    /// Replies to a review comment on a line, in its thread, with the commit that made the requested change. Resolves the thread.
    AnswerRemark {
        comment: CommentId,
        commit: Sha,
        /// Whether the commit applied the change that the comment suggested.
        #[serde(default)]
        applied: bool,
        /// Iteration that applied the change again after the first commit was undone; 0 for the first reply.
        #[serde(default)]
        again: u32,
    },
    /// Opens the pull request, or updates its text.
    Pull { ready: bool, reviewers: Vec<String> },
    /// Converts the pull request to a draft.
    DraftPull,
    /// Requests that the forge merges the pull request once its rules are satisfied, provided that the commit is the head.
    MergeWhenReady { commit: Sha },
    /// Withdraws the request that the forge merges the pull request.
    WithdrawMerge,
    /// Opens an escalation issue for a cause. If one is already open, adds a comment to it.
    Escalate {
        cause: EscalationCause,
        view: Box<View>,
        /// Urgency, which selects the channels to notify.
        #[serde(default = "critical")]
        level: EscalationLevel,
        /// Whether this is a reminder, because people were notified before and did not answer.
        #[serde(default)]
        reminder: bool,
    },
    /// Closes the escalation issues of the loop.
    CloseEscalations { why: String },
    /// Reads the CI results of the pull request's head, and whether the pull request conflicts with its base.
    Inspect {
        commit: Sha,
        /// Whether the base changed, so that the forge's information about conflicts may be outdated.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        base_moved: bool,
    },
}

/// Notice for channels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum ChannelEffect {
    /// Notifies the channels that receive notices of this level. Has no other effect.
    Warn { notice: Box<Notice> },
    /// Notifies one channel outside of the forge. It is derived from other effects when a step is saved; no step requests it
    /// directly.
    Notify { channel: String, notice: Box<Notice> },
}

/// Change of a timer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum TimerEffect {
    /// Sets a timer.
    #[serde(rename = "set_timer")]
    Set { kind: TimerKind, at: Timestamp },
    /// Removes a timer.
    #[serde(rename = "clear_timer")]
    Clear { kind: TimerKind },
}

/// Change in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum StoreEffect {
    /// Drops pending work, and stops running work.
    CancelWork,
    /// Adds entries to the audit log.
    Audit { entries: Vec<AuditEntry> },
}

/// Name of the queue for reactions that a comment was read. They precede all other effects of their lane and wait for none of
/// them.
pub const SEEN_QUEUE: &str = "talk/seen";

/// Returns the name of a channel's queue in the store.
pub fn channel_queue(channel: &str) -> String {
    format!("{}/{channel}", EffectQueue::Channels.as_str())
}

/// Returns the level of escalations that were stored before there were levels.
fn critical() -> EscalationLevel {
    EscalationLevel::Critical
}

impl Effect {
    /// Creates an escalation with the urgency of its view.
    pub fn escalate(cause: EscalationCause, view: View) -> Self {
        let level = match &view {
            View::Escalation(inner) if inner.severity == EscalationSeverity::Emergency => EscalationLevel::Emergency,
            _ => EscalationLevel::Critical,
        };
        Self::Forge(ForgeEffect::Escalate { cause, view: Box::new(view), level, reminder: false })
    }

    /// Returns the lane of the effect; `None` if the store applies it together with the step.
    pub fn lane(&self) -> Option<EffectQueue> {
        match self {
            Self::Work(_) => Some(EffectQueue::Work),
            Self::Forge(_) => Some(EffectQueue::Forge),
            Self::Channel(ChannelEffect::Notify { .. }) => Some(EffectQueue::Channels),
            Self::Channel(ChannelEffect::Warn { .. }) | Self::Timer(_) | Self::Store(_) => None,
        }
    }

    /// Returns the name of the effect's queue in the store. This is the name of its lane. In the lane for channels, each channel
    /// has a separate queue, and reactions that a comment was read have a separate queue.
    pub fn queue(&self) -> Cow<'static, str> {
        match self {
            Self::Forge(
                ForgeEffect::React { mark: Mark::Seen, .. } | ForgeEffect::ReactToRemark { mark: Mark::Seen, .. },
            ) => Cow::Borrowed(SEEN_QUEUE),
            Self::Channel(ChannelEffect::Notify { channel, .. }) => Cow::Owned(channel_queue(channel)),
            Self::Work(_) | Self::Forge(_) | Self::Channel(_) | Self::Timer(_) | Self::Store(_) => {
                Cow::Borrowed(self.lane().map_or("", EffectQueue::as_str))
            }
        }
    }

    /// Returns the ticket; `None` if this effect is not in the lane for work.
    pub fn ticket(&self) -> Option<u64> {
        match self {
            Self::Work(effect) => effect.ticket(),
            Self::Forge(_) | Self::Channel(_) | Self::Timer(_) | Self::Store(_) => None,
        }
    }

    /// Returns the natural key, unique within a loop.
    pub fn key(&self) -> String {
        match self {
            Self::Work(effect) => effect.key(),
            Self::Forge(effect) => effect.key(),
            Self::Channel(ChannelEffect::Warn { notice }) => format!("warn/{}", notice.cause),
            Self::Channel(ChannelEffect::Notify { channel, notice }) => notice.key(channel),
            Self::Timer(TimerEffect::Set { kind, .. } | TimerEffect::Clear { kind }) => {
                format!("timer/{}", kind.as_str())
            }
            Self::Store(StoreEffect::CancelWork) => "cancel".into(),
            Self::Store(StoreEffect::Audit { .. }) => "audit".into(),
        }
    }

    /// Returns the change whose absence people would notice if the forge refuses the effect; `None` if there is none.
    pub fn change(&self) -> Option<ForgeChange> {
        match self {
            Self::Forge(effect) => effect.change(),
            Self::Work(_) | Self::Channel(_) | Self::Timer(_) | Self::Store(_) => None,
        }
    }

    /// Whether the effect changes the pull request itself: its text, its draft state, its reviewers, or its merge.
    pub fn changes_pull(&self) -> bool {
        matches!(
            self,
            Self::Forge(
                ForgeEffect::Pull { .. }
                    | ForgeEffect::DraftPull
                    | ForgeEffect::MergeWhenReady { .. }
                    | ForgeEffect::WithdrawMerge
            )
        )
    }

    /// Whether an effect replaces older pending ones with the same purpose, so that only the newest has to be executed.
    pub fn replaces_older(&self) -> bool {
        matches!(
            self,
            Self::Forge(
                ForgeEffect::Status { fresh: false }
                    | ForgeEffect::CommitStatus
                    | ForgeEffect::StateLabel { .. }
                    | ForgeEffect::Inspect { .. }
                    | ForgeEffect::Pull { .. }
            )
        )
    }
}

impl WorkEffect {
    /// Returns the ticket; `None` if the loop does not wait for the outcome.
    pub fn ticket(&self) -> Option<u64> {
        match self {
            Self::Prepare { ticket }
            | Self::Check { ticket, .. }
            | Self::Plan { ticket, .. }
            | Self::Agent { ticket, .. }
            | Self::Commit { ticket, .. }
            | Self::Push { ticket, .. }
            | Self::Merge { ticket, .. }
            | Self::Restore { ticket, .. }
            | Self::SecondOpinion { ticket, .. }
            | Self::ApplySuggestions { ticket, .. }
            | Self::Hooks { ticket, .. } => Some(*ticket),
            Self::HooksAfterEnd { .. } | Self::Release { .. } => None,
        }
    }

    /// Whether the effect fetches from the forge or pushes to it.
    pub fn reaches_forge(&self) -> bool {
        matches!(self, Self::Prepare { .. } | Self::Push { .. } | Self::Merge { .. })
    }

    /// Whether the effect creates something on the forge. If another repository has taken over the name of the loop's repository,
    /// such an effect would leave it in the wrong place.
    pub fn creates_on_forge(&self) -> bool {
        matches!(self, Self::Push { .. })
    }

    fn key(&self) -> String {
        match self {
            Self::Prepare { ticket } => format!("prepare/{ticket}"),
            Self::Check { ticket, .. } => format!("check/{ticket}"),
            Self::Plan { ticket, .. } => format!("plan/{ticket}"),
            Self::Agent { ticket, .. } => format!("agent/{ticket}"),
            Self::Commit { ticket, .. } => format!("commit/{ticket}"),
            Self::Push { ticket, .. } => format!("push/{ticket}"),
            Self::Merge { ticket, .. } => format!("merge/{ticket}"),
            Self::Restore { ticket, .. } => format!("restore/{ticket}"),
            Self::SecondOpinion { ticket, .. } => format!("second-opinion/{ticket}"),
            Self::ApplySuggestions { ticket, .. } => format!("suggestions/{ticket}"),
            Self::Hooks { ticket, .. } => format!("hooks/{ticket}"),
            Self::HooksAfterEnd { version } => format!("hooks-after-end/{version}"),
            Self::Release { .. } => "release".into(),
        }
    }
}

impl ForgeEffect {
    /// Whether the effect creates something on the forge, as for work.
    pub fn creates_on_forge(&self) -> bool {
        matches!(self, Self::Comment { .. } | Self::Status { fresh: true } | Self::Pull { .. } | Self::Escalate { .. })
    }

    fn key(&self) -> String {
        match self {
            Self::Comment { key, .. } => key.clone(),
            Self::Status { fresh } => if *fresh { "status/fresh" } else { "status" }.into(),
            Self::CommitStatus => "commit-status".into(),
            Self::StateLabel { .. } => "label".into(),
            Self::DropRunLabel => "run-label".into(),
            Self::React { comment, mark } => format!("react/{comment}/{mark:?}").to_lowercase(),
            Self::ReactToRemark { comment, mark } => format!("react-to-remark/{comment}/{mark:?}").to_lowercase(),
            Self::AnswerRemark { comment, again: 0, .. } => format!("remark/{comment}"),
            Self::AnswerRemark { comment, again, .. } => format!("remark/{comment}/{again}"),
            Self::Pull { .. } => "pull".into(),
            Self::DraftPull => "draft-pull".into(),
            Self::MergeWhenReady { commit } => format!("merge-when-ready/{commit}"),
            Self::WithdrawMerge => "withdraw-merge".into(),
            Self::Escalate { cause, .. } => format!("escalation/{cause}"),
            Self::CloseEscalations { .. } => "close-escalations".into(),
            Self::Inspect { commit, base_moved: false } => format!("inspect/{commit}"),
            Self::Inspect { commit, base_moved: true } => format!("inspect-base/{commit}"),
        }
    }

    fn change(&self) -> Option<ForgeChange> {
        match self {
            Self::Pull { .. } => Some(ForgeChange::OpenPull),
            Self::DraftPull => Some(ForgeChange::DraftPull),
            Self::Escalate { .. } => Some(ForgeChange::Escalation),
            Self::StateLabel { .. } => Some(ForgeChange::StateLabel),
            Self::WithdrawMerge => Some(ForgeChange::WithdrawMerge),
            Self::CommitStatus => Some(ForgeChange::CommitStatus),
            Self::Comment { .. }
            | Self::Status { .. }
            | Self::DropRunLabel
            | Self::React { .. }
            | Self::ReactToRemark { .. }
            | Self::AnswerRemark { .. }
            | Self::MergeWhenReady { .. }
            | Self::CloseEscalations { .. }
            | Self::Inspect { .. } => None,
        }
    }
}
