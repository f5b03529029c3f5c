//! Memory of a loop's session: turns, events, and summaries of several iterations.
//!
//! The three tiers range from complete to short. Callers mask secrets before storing a text, because agents see stored texts
//! unchanged.

mod answer;
mod query;
mod running;
mod step_events;
mod summary;
#[cfg(test)]
mod tests;
pub mod transcript;
mod tree_roots;

use std::fmt;
use std::str::FromStr;

use ralph_types::failure::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Timestamp};

pub use answer::{Hit, SearchResults, excerpt, fit, found_text, shortened, summaries_text, turns_text, word_finder};
pub use query::{Form, IterationFilter, MAX_LIMIT, Patterns, SessionQuery, SessionTier, forms, terms};
pub use running::{OutputBuffer, OutputText, RunningTurn};
pub use step_events::step_events;
pub use summary::{due, extract, interval_within};
pub use tree_roots::TreeRoots;

/// Author of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnRole {
    /// The coding agent, in the work tree.
    Agent,
    /// A model that gives advice or writes summaries.
    Assistant,
}

impl TurnRole {
    /// Returns the name used in the store and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Assistant => "assistant",
        }
    }
}

/// Turn: a prompt and its answer, from one agent run or one call to an assistant. Texts are masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTurn {
    /// 1-based number of the iteration; 0 before the first.
    pub iteration: u32,
    /// Attempt of the iteration.
    pub attempt: u32,
    /// Author of the answer.
    pub role: TurnRole,
    /// Prompt of the turn.
    pub prompt: String,
    /// Answer of the turn.
    pub response: String,
    /// Name of the backend.
    pub backend: String,
    /// Model; `None` if unknown.
    pub model: Option<String>,
    /// Input tokens that did not come from the provider's cache.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Input tokens from the provider's cache.
    pub tokens_cached: u64,
    /// Cost of the turn.
    pub cost: Money,
    /// Whether the service estimated the tokens or the cost.
    pub estimated: bool,
    /// Error; `None` if the turn succeeded.
    pub error: Option<String>,
    /// Ids of the learnings in the prompt.
    pub learnings: Vec<String>,
    /// Start time. Identifies a turn within its loop, together with iteration, attempt and role.
    pub started: Timestamp,
    /// End time.
    pub ended: Timestamp,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The agent called a tool.
    ToolCall,
    /// A tool call failed. Results of successful calls are not stored.
    ToolResult,
    /// A file was created, modified or deleted.
    FileChange,
    /// An error occurred outside tools and checks.
    Error,
    /// The backend changed.
    BackendSwitch,
    /// The model changed.
    ModelSwitch,
    /// A check ran. The event's tool is the check's name.
    Check,
    /// The overseer detected a problem.
    Detection,
    /// The overseer intervened.
    Intervention,
    /// A person gave a command.
    Command,
    /// A person requested changes in a review.
    Remark,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::ToolCall,
        Self::ToolResult,
        Self::FileChange,
        Self::Error,
        Self::BackendSwitch,
        Self::ModelSwitch,
        Self::Check,
        Self::Detection,
        Self::Intervention,
        Self::Command,
        Self::Remark,
    ];

    /// Returns the name used in the store and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::FileChange => "file_change",
            Self::Error => "error",
            Self::BackendSwitch => "backend_switch",
            Self::ModelSwitch => "model_switch",
            Self::Check => "check",
            Self::Detection => "detection",
            Self::Intervention => "intervention",
            Self::Command => "command",
            Self::Remark => "remark",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(|| Failure::new(format!("{name:?} is not a kind of event")))
    }
}

/// Event of an iteration. Its text is masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// 1-based number of the iteration; 0 before the first.
    pub iteration: u32,
    /// Kind of the event.
    pub kind: EventKind,
    /// Name of the tool or check.
    pub tool: Option<String>,
    /// Path of the file, relative to the work tree.
    pub path: Option<String>,
    /// Description, arguments or output.
    pub text: String,
    /// Whether the event is a failure: an error, a rejected tool call, or a failing check.
    pub failed: bool,
    /// Time of the event.
    pub at: Timestamp,
}

/// Error, identified by its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorPattern {
    /// Signature; see `domain::model::signature`.
    pub signature: String,
    /// Number of occurrences.
    pub count: u32,
    /// Iterations in which the error occurred, in ascending order.
    pub iterations: Vec<u32>,
}

/// Summary of several iterations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// First iteration.
    pub from: u32,
    /// Last iteration.
    pub to: u32,
    /// Text of the summary.
    pub text: String,
    /// Decisions, oldest first.
    pub decisions: Vec<String>,
    /// Changed files, most frequently changed first.
    pub files: Vec<String>,
    /// Errors, most frequent first.
    pub errors: Vec<ErrorPattern>,
    /// Whether the summary was extracted from turns and events without a model.
    pub extractive: bool,
    /// Time of the summary.
    pub made_at: Timestamp,
}
