//! State of a loop.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a loop, as shown by its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoopState {
    /// No verifiable completion criteria were found.
    NeedsCriteria,
    /// The text was edited by somebody without write access, or has parts of one that people do not see; a
    /// maintainer has to confirm it.
    NeedsConfirm,
    /// A plan waits to be approved.
    NeedsApproval,
    /// A plan that asks questions waits to be approved with answers.
    NeedsAnswer,
    /// Waits for a free slot.
    Queued,
    /// Work is in progress.
    Running,
    /// Every backend is rate limited.
    Waiting,
    /// Stopped by a person, an intervention, or the removal of the label.
    Paused,
    /// Every check passed; the pull request waits for human review.
    Review,
    /// The limit of iterations, time or money is reached.
    LimitReached,
    /// The service could not continue.
    Failed,
    /// The pull request was merged.
    Merged,
    /// The pull request or the issue was closed, or there was nothing to do.
    Closed,
    /// Ended by a person.
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

    /// Name in the store, in JSON and on the command line.
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

    /// Parses a name in the store.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Name within a sentence.
    pub fn words(self) -> String {
        self.as_str().replace('_', " ")
    }

    /// Name on the label, without the prefix.
    pub fn label(self) -> String {
        self.as_str().replace('_', "-")
    }

    /// Whether the loop can continue from this state.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Merged | Self::Closed | Self::Aborted)
    }

    /// Whether a plan waits for a person.
    pub fn waits_for_plan(self) -> bool {
        matches!(self, Self::NeedsApproval | Self::NeedsAnswer)
    }

    /// Whether the loop occupies a slot.
    pub fn holds_slot(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}
