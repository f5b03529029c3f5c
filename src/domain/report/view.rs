//! What people see, one struct a text. The lifecycle fills them, `render` turns them into Markdown.
//!
//! Every text in a view is raw: rendering makes it harmless, whoever wrote it. Percentages are whole, 0..=100; durations
//! are in seconds; money is `None` where nothing is known about it.

mod ask;
mod ending;
mod progress;

use serde::{Deserialize, Serialize};

pub use ask::{
    CommandReply, Confirm, DetectedCheck, HelpSetting, HelpView, NeedsConfirmView, NeedsCriteriaView,
    RepositoryFileErrorView, StartedView, WaitingView, WhoMayView,
};
pub use ending::{CompletionView, EscalationView, Outcome, PullState, PullView, RecentIteration, Severity, SpentLine};
pub use progress::{CheckLine, CourseLine, DetectionLine, FileLine, IterationRow, IterationView, StatusView};

use crate::domain::model::ids::LoopId;

/// A link that we made ourselves: a branch, a commit, a pull request, a page of the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// What is shown.
    pub text: String,
    /// `http` or `https` address; anything else is shown without a link.
    pub url: String,
}

/// A command that makes sense now, and what it would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandHint {
    /// Exact text to send, with capital words where a value belongs.
    pub usage: String,
    /// What it does, in a few words.
    pub what: String,
}

/// Every text that the bot writes on a forge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "view", rename_all = "snake_case")]
pub enum View {
    /// The one status comment of a loop.
    Status(Box<StatusView>),
    /// The comment of one iteration.
    Iteration(Box<IterationView>),
    /// The first comment: what will be done, and by what measure.
    Started(Box<StartedView>),
    /// Nothing verifiable was found.
    NeedsCriteria(NeedsCriteriaView),
    /// The text changed around the label; it must be confirmed.
    NeedsConfirm(NeedsConfirmView),
    /// Who may start loops, to somebody who may not.
    WhoMay(WhoMayView),
    /// The answer to a command.
    Reply(CommandReply),
    /// Nothing can run for a while.
    Waiting(WaitingView),
    /// The commands, the settings, and who may use them.
    Help(HelpView),
    /// The body of the pull request.
    Pull(Box<PullView>),
    /// The end of a loop, or of its limits.
    Completion(Box<CompletionView>),
    /// The body of an escalation issue, or a further comment there.
    Escalation(Box<EscalationView>),
    /// The repository's file is wrong.
    RepositoryFileError(RepositoryFileErrorView),
}

impl View {
    /// Short name of its kind, `[a-z_]`: part of the marker, and the stem of the template's name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Status(_) => "status",
            Self::Iteration(_) => "iteration",
            Self::Started(_) => "started",
            Self::NeedsCriteria(_) => "needs_criteria",
            Self::NeedsConfirm(_) => "needs_confirm",
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

    /// The loop it is about, where it is about one.
    pub fn loop_id(&self) -> Option<&LoopId> {
        match self {
            Self::Status(view) => Some(&view.loop_id),
            Self::Iteration(view) => Some(&view.loop_id),
            Self::Started(view) => Some(&view.loop_id),
            Self::Waiting(view) => Some(&view.loop_id),
            Self::NeedsCriteria(view) => Some(&view.loop_id),
            Self::NeedsConfirm(view) => view.loop_id.as_ref(),
            Self::Pull(view) => Some(&view.loop_id),
            Self::Completion(view) => Some(&view.loop_id),
            Self::Escalation(view) => Some(&view.loop_id),
            Self::RepositoryFileError(view) => view.loop_id.as_ref(),
            Self::WhoMay(_) | Self::Reply(_) | Self::Help(_) => None,
        }
    }
}
