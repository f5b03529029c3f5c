//! Reasons to stop a loop. Some stops wait until the best state is restored.

use serde::{Deserialize, Serialize};

use super::escalation::{EscalationCause, LoopLimit};
use super::state::LoopState;

/// Stop that takes effect after the files of the best iteration are restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAfterRestore {
    /// Iteration to restore, where 0 is the baseline.
    pub iteration: u32,
    /// Reason to stop.
    pub then: LoopStopReason,
    /// Whether the files were already restored.
    #[serde(default)]
    pub restored: bool,
    /// Ref at which the service keeps the work that the restoration undid; `None` if nothing was undone.
    #[serde(default)]
    pub retained_as: Option<String>,
}

/// Reason to stop a loop after its best iteration is restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopStopReason {
    /// The overseer paused the loop.
    Held,
    /// A limit was reached.
    Limit {
        /// Limit that was reached.
        which: LoopLimit,
        /// Explanation, one sentence.
        why: String,
    },
    /// The service pauses the loop.
    Paused {
        /// Explanation, one sentence.
        why: String,
        /// Cause of the escalation; `None` if no notification is needed.
        cause: Option<EscalationCause>,
        /// Advice for the people who are notified.
        advice: String,
    },
    /// The service could not continue.
    Failed {
        /// Explanation, one sentence.
        why: String,
        /// Advice for the people who are notified.
        advice: String,
    },
    /// The overseer ended the loop.
    Aborted {
        /// Explanation, one sentence.
        why: String,
    },
    /// The iteration that worked on a second opinion failed. The verified state before it is handed over for review.
    Verified {
        /// Explanation, one sentence.
        why: String,
    },
    /// A person or a rule ended the loop.
    Ended {
        /// State at the end.
        state: LoopState,
        /// Explanation, one sentence.
        why: String,
    },
}

impl LoopStopReason {
    /// Returns the explanation in one sentence. The details of a pause by the overseer are in its judgement.
    pub fn why(&self) -> &str {
        match self {
            Self::Held => "the overseer pauses the loop",
            Self::Limit { why, .. }
            | Self::Paused { why, .. }
            | Self::Failed { why, .. }
            | Self::Aborted { why }
            | Self::Verified { why }
            | Self::Ended { why, .. } => why,
        }
    }
}

/// Returns a clause about the restored state: the files of an iteration, or, for 0, those before the first iteration.
pub fn restored_words(iteration: u32) -> String {
    match iteration {
        0 => "the files are as they were before the first iteration, which was better".to_owned(),
        number => format!("the files of iteration {number}, the best one, were restored"),
    }
}
