//! Reasons to stop a loop, some of which wait until its best state is restored.

use serde::{Deserialize, Serialize};

use super::escalation::{EscalationCause, LoopLimit};
use super::state::LoopState;

/// Stop that follows once the best iteration's files are restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAfterRestore {
    /// Iteration to restore; 0 is the baseline.
    pub iteration: u32,
    /// Reason to stop.
    pub then: LoopStopReason,
    /// Whether the files were restored.
    #[serde(default)]
    pub restored: bool,
    /// Ref at which the service keeps the work that the restoration undid.
    #[serde(default)]
    pub retained_as: Option<String>,
}

/// Reason to stop a loop after its best iteration is restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopStopReason {
    /// The overseer paused it.
    Held,
    /// A limit was reached.
    Limit {
        /// Limit.
        which: LoopLimit,
        /// Explanation, one sentence.
        why: String,
    },
    /// It pauses.
    Paused {
        /// Explanation, one sentence.
        why: String,
        /// Cause of the escalation; `None` if nobody has to be asked.
        cause: Option<EscalationCause>,
        /// Advice for the people who are asked.
        advice: String,
    },
    /// The service could not continue.
    Failed {
        /// Explanation, one sentence.
        why: String,
        /// Advice for the people who are asked.
        advice: String,
    },
    /// The overseer ended it.
    Aborted {
        /// Explanation, one sentence.
        why: String,
    },
    /// The iteration that followed from a second opinion came to nothing; the state before it is handed over.
    Verified {
        /// Explanation, one sentence.
        why: String,
    },
    /// A person or a rule ended it.
    Ended {
        /// State at the end.
        state: LoopState,
        /// Explanation, one sentence.
        why: String,
    },
}

impl LoopStopReason {
    /// Returns the explanation, one sentence; the overseer's is with its judgement.
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

/// Returns what was restored, as a clause: the files of an iteration, 0 for those before the first.
pub fn restored_words(iteration: u32) -> String {
    match iteration {
        0 => "the files are as they were before the first iteration, which was better".to_owned(),
        number => format!("the files of iteration {number}, the best one, were restored"),
    }
}
