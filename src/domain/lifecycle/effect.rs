//! Effects as data. Each effect has a natural key: it is executed at most once under the same key, and after a crash it
//! is looked up by that key before it is repeated.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::domain::loops::{EscalationCause, LoopState, TimerKind};
use crate::domain::model::hook::HookEvent;
use crate::domain::model::ids::{CommentId, Number, Sha, Timestamp};
use crate::domain::report::notice::Notice;
use crate::domain::report::view::{EscalationSeverity, View};
use crate::domain::supervision::oversight::{AuditEntry, EscalationLevel};

/// Queue of an effect. Effects of the same loop and queue run one at a time, in order; queues do not wait for each
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Git, agents, checks: long, on the machine that has the tree.
    Work,
    /// Calls to the forge: short.
    Talk,
    /// News for channels outside of the forge. Each channel has a queue of its own in this lane.
    Notify,
}

impl Lane {
    /// Name in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Talk => "talk",
            Self::Notify => "notify",
        }
    }
}

/// Purpose of a run of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckPurpose {
    /// Before the first iteration: what regressions are measured from.
    Baseline,
    /// After an iteration, in the loop's tree.
    Iteration,
    /// Checks in a fresh checkout of the commit; checks that pass only in a dirty tree do not count.
    Clean,
}

/// Reaction of the bot to a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Seen.
    Seen,
    /// Done.
    Done,
    /// Something is wrong with it.
    Wrong,
    /// Not allowed.
    Refused,
}

/// One thing to do. Work effects bear the ticket of the step that asked for them: an outcome with another ticket is late
/// and changes nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// Bring the mirror up to date, make or mend the work tree, read the repository's file, find checks.
    Prepare { ticket: u64 },
    /// Run the checks.
    Check { ticket: u64, purpose: CheckPurpose, commit: Sha },
    /// Run the agent once.
    Agent { ticket: u64, iteration: u32, attempt: u32 },
    /// Record what the tree holds as a commit; `conflict` bears the other side of a merge under way.
    Commit { ticket: u64, iteration: u32 },
    /// Push the loop's head to its branch.
    Push { ticket: u64, commit: Sha },
    /// Bring another commit into the tree: the base branch's, or what a person pushed to ours.
    Merge { ticket: u64, other: Option<Sha> },
    /// Put the files of an earlier commit back, as a commit of its own: the branch keeps all commits.
    Restore { ticket: u64, iteration: u32, to: Sha },
    /// Put the base's version of files back, as a commit of its own; files that the base lacks are removed.
    PutBackTests { ticket: u64, iteration: u32, paths: Vec<String> },
    /// Run the hooks of an event, which the loop waits for.
    Hooks { ticket: u64, event: HookEvent },
    /// Run the hooks after the loop stopped working.
    HooksAfterEnd {
        /// Version of the loop at that time.
        version: u64,
    },
    /// The loop ended: give its tree back; delete the branch where so configured.
    Release { delete_branch: bool },

    /// Write a comment once.
    Comment { key: String, on: Number, view: Box<View> },
    /// Bring the status comment up to date; made from the loop as it is when this runs. `fresh` posts a new one.
    Status { fresh: bool },
    /// Set the label of a state and take those of the others away; `None` takes all away.
    StateLabel { state: Option<LoopState> },
    /// Take the label that started the loop off the issue.
    DropRunLabel,
    /// React to a comment.
    React { comment: CommentId, mark: Mark },
    /// Open the pull request, or bring its text up to date.
    Pull { ready: bool, reviewers: Vec<String> },
    /// Open an escalation issue for a cause; while one is open, add a comment to it.
    Escalate {
        cause: EscalationCause,
        view: Box<View>,
        /// Urgency; selects the channels.
        #[serde(default = "critical")]
        level: EscalationLevel,
        /// Whether people were told before and have not answered.
        #[serde(default)]
        reminder: bool,
    },
    /// Close the escalation issues of the loop.
    CloseEscalations { why: String },
    /// Ask what CI and merging look like for the pull request's head.
    Inspect { commit: Sha },

    /// Tell the channels that want warnings of a loop that goes on. Nothing but their notices comes of it.
    Warn { notice: Box<Notice> },
    /// Tell a channel outside of the forge. Made of the others when a step is saved; no step asks for it itself.
    Notify { channel: String, notice: Box<Notice> },

    /// Set a timer. Done in the store, with the step itself.
    SetTimer { kind: TimerKind, at: Timestamp },
    /// Take a timer away. Done in the store, with the step itself.
    ClearTimer { kind: TimerKind },
    /// Drop work that waits and stop work that runs. Done in the store, with the step itself.
    CancelWork,
    /// Add to the trail of what was done and who said so. Done in the store, with the step itself.
    Audit { entries: Vec<AuditEntry> },
}

/// Queue of what says that a comment was seen: it goes before all else of its lane, and waits for nothing there.
pub const SEEN_QUEUE: &str = "talk/seen";

/// Name of a channel's queue in the store.
pub fn channel_queue(channel: &str) -> String {
    format!("{}/{channel}", Lane::Notify.as_str())
}

/// Returns the level of escalations that were stored before levels existed.
fn critical() -> EscalationLevel {
    EscalationLevel::Critical
}

impl Effect {
    /// An escalation that is as urgent as what people are to see of it.
    pub fn escalate(cause: EscalationCause, view: View) -> Self {
        let level = match &view {
            View::Escalation(inner) if inner.severity == EscalationSeverity::Emergency => EscalationLevel::Emergency,
            _ => EscalationLevel::Critical,
        };
        Self::Escalate { cause, view: Box::new(view), level, reminder: false }
    }

    /// The queue it waits in; `None` where the store does it with the step.
    pub fn lane(&self) -> Option<Lane> {
        match self {
            Self::Prepare { .. }
            | Self::Check { .. }
            | Self::Agent { .. }
            | Self::Commit { .. }
            | Self::Push { .. }
            | Self::Merge { .. }
            | Self::Restore { .. }
            | Self::PutBackTests { .. }
            | Self::Hooks { .. }
            | Self::HooksAfterEnd { .. }
            | Self::Release { .. } => Some(Lane::Work),
            Self::SetTimer { .. }
            | Self::ClearTimer { .. }
            | Self::CancelWork
            | Self::Audit { .. }
            | Self::Warn { .. } => None,
            Self::Notify { .. } => Some(Lane::Notify),
            _ => Some(Lane::Talk),
        }
    }

    /// Name of its queue in the store: that of its lane, in the lane `notify` that of its channel, and a queue of its own
    /// for saying that a comment was seen.
    pub fn queue(&self) -> Cow<'static, str> {
        match self {
            Self::React { mark: Mark::Seen, .. } => Cow::Borrowed(SEEN_QUEUE),
            Self::Notify { channel, .. } => Cow::Owned(channel_queue(channel)),
            other => Cow::Borrowed(other.lane().map_or("", Lane::as_str)),
        }
    }

    /// The ticket of a work effect.
    pub fn ticket(&self) -> Option<u64> {
        match self {
            Self::Prepare { ticket }
            | Self::Check { ticket, .. }
            | Self::Agent { ticket, .. }
            | Self::Commit { ticket, .. }
            | Self::Push { ticket, .. }
            | Self::Merge { ticket, .. }
            | Self::Restore { ticket, .. }
            | Self::PutBackTests { ticket, .. }
            | Self::Hooks { ticket, .. } => Some(*ticket),
            _ => None,
        }
    }

    /// Natural key within a loop.
    pub fn key(&self) -> String {
        match self {
            Self::Prepare { ticket } => format!("prepare/{ticket}"),
            Self::Check { ticket, .. } => format!("check/{ticket}"),
            Self::Agent { ticket, .. } => format!("agent/{ticket}"),
            Self::Commit { ticket, .. } => format!("commit/{ticket}"),
            Self::Push { ticket, .. } => format!("push/{ticket}"),
            Self::Merge { ticket, .. } => format!("merge/{ticket}"),
            Self::Restore { ticket, .. } => format!("restore/{ticket}"),
            Self::PutBackTests { ticket, .. } => format!("put-back/{ticket}"),
            Self::Hooks { ticket, .. } => format!("hooks/{ticket}"),
            Self::HooksAfterEnd { version } => format!("hooks-after-end/{version}"),
            Self::Release { .. } => "release".into(),
            Self::Comment { key, .. } => key.clone(),
            Self::Status { fresh } => if *fresh { "status/fresh" } else { "status" }.into(),
            Self::StateLabel { .. } => "label".into(),
            Self::DropRunLabel => "run-label".into(),
            Self::React { comment, mark } => format!("react/{comment}/{mark:?}").to_lowercase(),
            Self::Pull { .. } => "pull".into(),
            Self::Escalate { cause, .. } => format!("escalation/{cause}"),
            Self::CloseEscalations { .. } => "close-escalations".into(),
            Self::Inspect { commit } => format!("inspect/{commit}"),
            Self::Warn { notice } => format!("warn/{}", notice.cause),
            Self::Notify { channel, notice } => notice.key(channel),
            Self::SetTimer { kind, .. } | Self::ClearTimer { kind } => format!("timer/{}", kind.as_str()),
            Self::CancelWork => "cancel".into(),
            Self::Audit { .. } => "audit".into(),
        }
    }

    /// Whether only the newest one that waits has to be done.
    pub fn replaces_older(&self) -> bool {
        matches!(
            self,
            Self::Status { fresh: false } | Self::StateLabel { .. } | Self::Inspect { .. } | Self::Pull { .. }
        )
    }
}
