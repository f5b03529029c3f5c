//! Views: the data of all texts for people, one struct per template. `compose` fills them from a loop, and `render` converts
//! them to Markdown.
//!
//! Texts in a view are not escaped; rendering escapes all of them, regardless of their author. Percentages are integers, 0..=100.
//! Durations are in seconds. Money is `None` if unknown.

mod ask;
mod ending;
mod plan;
mod progress;

use serde::{Deserialize, Serialize};

pub use ask::{
    CommandReply, ConfirmReason, HelpSetting, HelpView, NeedsConfirmView, NeedsCriteriaView, ProposedLine,
    RepositoryFileErrorView, UnseenLine, WaitingView, WhoMayView,
};
pub use ending::{
    AcceptedLine, CompletionView, EscalationSeverity, EscalationView, LoopOutcome, OpinionLine, OpinionView, PullView,
    PullWorkState, RecentIteration, SpentLine,
};
pub use plan::{PlanLine, PlanView};
pub use progress::{
    CheckLine, CourseLine, DetectionLine, FailureLocation, FileLine, IterationRow, IterationView, PastLine,
    PlannedCheck, StatusView,
};

use crate::domain::model::ids::{LoopId, Sha};

/// Link to a page of the forge or the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Text of the link.
    pub text: String,
    /// `http` or `https` URL. For other schemes, only the text is shown.
    pub url: String,
}

/// URLs of the files and lines mentioned in a text, by `path` and `path:line`.
pub type FileLinks = std::collections::BTreeMap<String, String>;

/// Command that is valid in the current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandHint {
    /// Exact text to send; words in capitals are placeholders.
    pub usage: String,
    /// Effect of the command, in a few words.
    pub what: String,
}

/// Text that the bot writes on a forge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "view", rename_all = "snake_case")]
pub enum View {
    /// Status comment, one per loop.
    Status(Box<StatusView>),
    /// Comment of one iteration.
    Iteration(Box<IterationView>),
    /// Request for a check, because none was found.
    NeedsCriteria(NeedsCriteriaView),
    /// Request to confirm the task's text, if it was edited around the time of the label.
    NeedsConfirm(NeedsConfirmView),
    /// Plan that is waiting for approval.
    Plan(Box<PlanView>),
    /// Rejection of a label, with a description of the people who may set it.
    WhoMay(WhoMayView),
    /// Reply to a command.
    Reply(CommandReply),
    /// Notice that no backend is available at the moment.
    Waiting(WaitingView),
    /// Commands, settings and permissions.
    Help(HelpView),
    /// Body of the pull request.
    Pull(Box<PullView>),
    /// Result of a loop that ended or reached a limit.
    Completion(Box<CompletionView>),
    /// Body of an escalation issue, or a comment on it.
    Escalation(Box<EscalationView>),
    /// Errors in the repository's file.
    RepositoryFileError(RepositoryFileErrorView),
}

/// State of a commit, as shown by its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitState {
    /// The loop is waiting for a slot, a backend or a person.
    Queued,
    /// Work is in progress.
    Running,
    /// Every check passed in a fresh checkout.
    Success,
    /// The loop stopped before all checks passed.
    Failure,
    /// The loop ended without a result, or the branch has a newer commit.
    Cancelled,
}

impl CommitState {
    /// Whether no other state can follow.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Success | Self::Failure | Self::Cancelled)
    }
}

/// Status of the branch's commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitStatusView {
    /// Commit of the status.
    pub commit: Sha,
    /// State of the commit.
    pub state: CommitState,
    /// Title on one line.
    pub title: String,
    /// URL of the pull request's page, or of the page without a pull request.
    pub url: String,
}

impl View {
    /// Returns the name of the kind, `[a-z_]`, as in the comment's marker.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Status(_) => "status",
            Self::Iteration(_) => "iteration",
            Self::NeedsCriteria(_) => "needs_criteria",
            Self::NeedsConfirm(_) => "needs_confirm",
            Self::Plan(_) => "plan",
            Self::WhoMay(_) => "who_may",
            Self::Reply(_) => "reply",
            Self::Waiting(_) => "waiting",
            Self::Help(_) => "help",
            Self::Pull(_) => "pull",
            Self::Completion(_) => "completion",
            Self::Escalation(_) => "escalation",
            Self::RepositoryFileError(_) => "repository_file_error",
        }
    }

    /// Returns the loop of the text; `None` for rejections, replies and help.
    pub fn loop_id(&self) -> Option<&LoopId> {
        match self {
            Self::Status(view) => Some(&view.loop_id),
            Self::Iteration(view) => Some(&view.loop_id),
            Self::Waiting(view) => Some(&view.loop_id),
            Self::NeedsCriteria(view) => Some(&view.loop_id),
            Self::Plan(view) => Some(&view.loop_id),
            Self::NeedsConfirm(view) => view.loop_id.as_ref(),
            Self::Pull(view) => Some(&view.loop_id),
            Self::Completion(view) => Some(&view.loop_id),
            Self::Escalation(view) => Some(&view.loop_id),
            Self::RepositoryFileError(view) => view.loop_id.as_ref(),
            Self::WhoMay(_) | Self::Reply(_) | Self::Help(_) => None,
        }
    }
}
