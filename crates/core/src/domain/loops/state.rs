//! State of a loop.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a loop, as shown by its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoopState {
    /// No verifiable completion criteria were found.
    NeedsCriteria,
    /// The text was edited by a person without write access, or such a person wrote parts of it that people do not see. A
    /// maintainer has to confirm the text.
    NeedsConfirm,
    /// A plan is waiting for approval.
    NeedsApproval,
    /// A plan with questions is waiting for approval with answers.
    NeedsAnswer,
    /// The loop is waiting for a free slot.
    Queued,
    /// Work is in progress.
    Running,
    /// Every backend is rate limited.
    Waiting,
    /// The loop was stopped by a person, by an intervention, or because its label was removed.
    Paused,
    /// Every check passed, and the pull request is waiting for review by a person.
    Review,
    /// The limit of iterations, time or money is reached.
    LimitReached,
    /// The service could not continue.
    Failed,
    /// The pull request was merged.
    Merged,
    /// The pull request or the issue was closed, or there was nothing to do.
    Closed,
    /// A person ended the loop.
    Aborted,
}

impl LoopState {
    /// All states.
    pub const ALL: [LoopState; 14] = [
        LoopState::NeedsCriteria,
        LoopState::NeedsConfirm,
        LoopState::NeedsApproval,
        LoopState::NeedsAnswer,
        LoopState::Queued,
        LoopState::Running,
        LoopState::Waiting,
        LoopState::Paused,
        LoopState::Review,
        LoopState::LimitReached,
        LoopState::Failed,
        LoopState::Merged,
        LoopState::Closed,
        LoopState::Aborted,
    ];

    /// Returns the name for the store, JSON and the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeedsCriteria => "needs_criteria",
            Self::NeedsConfirm => "needs_confirm",
            Self::NeedsApproval => "needs_approval",
            Self::NeedsAnswer => "needs_answer",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Review => "review",
            Self::LimitReached => "limit_reached",
            Self::Failed => "failed",
            Self::Merged => "merged",
            Self::Closed => "closed",
            Self::Aborted => "aborted",
        }
    }

    /// Parses a name as returned by `as_str`; `None` if it is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Returns the name for use within a sentence.
    pub fn words(self) -> String {
        self.as_str().replace('_', " ")
    }

    /// Returns the name for the label, without the prefix.
    pub fn label(self) -> String {
        self.as_str().replace('_', "-")
    }

    /// Whether the loop can continue from this state.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Merged | Self::Closed | Self::Aborted)
    }

    /// Whether a plan is waiting for the decision of a person.
    pub fn waits_for_plan(self) -> bool {
        matches!(self, Self::NeedsApproval | Self::NeedsAnswer)
    }

    /// Whether the loop occupies a slot.
    pub fn holds_slot(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}
