//! What a loop remembers of itself: turns as they were, events in between, summaries of several iterations.
//!
//! Three tiers, from the fullest to the shortest. All texts are masked by whoever stores them: nothing in here looks for
//! secrets, and what is stored is shown to agents as it is.

mod answer;
mod happened;
mod query;
mod summary;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Timestamp};

pub use answer::{Found, Hit, excerpt, fit, found_text, shortened, summaries_text, tokens, turns_text, word_finder};
pub use happened::happened;
pub use query::{Form, Iterations, MAX_LIMIT, Patterns, Query, Tier, forms, terms};
pub use summary::{due, extract};

/// Who answered in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The coding agent, in the work tree.
    Agent,
    /// A model that was asked beside the work: to plan, to sum up.
    Assistant,
}

impl Role {
    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Assistant => "assistant",
        }
    }
}

/// A prompt and what came back: one run of an agent or one call of an assistant. Texts are masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// From 1; 0 before the first.
    pub iteration: u32,
    /// Which try of the iteration.
    pub attempt: u32,
    /// Who answered.
    pub role: Role,
    /// What was asked.
    pub prompt: String,
    /// What was answered.
    pub response: String,
    /// Operator's name of the backend.
    pub backend: String,
    /// Model, where it is known.
    pub model: Option<String>,
    /// Tokens read that were not in the provider's cache.
    pub tokens_in: u64,
    /// Tokens written.
    pub tokens_out: u64,
    /// Tokens read from the provider's cache.
    pub tokens_cached: u64,
    /// What it cost.
    pub cost: Money,
    /// Whether tokens or cost are our estimate and not the provider's figures.
    pub estimated: bool,
    /// How it failed; `None` where it went well.
    pub error: Option<String>,
    /// Ids of the learnings that the prompt carried.
    pub learnings: Vec<String>,
    /// When it was begun; with iteration, attempt and role what makes a turn of a loop the same turn.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
}

/// What sort of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The agent called a tool.
    ToolCall,
    /// A tool answered.
    ToolResult,
    /// A file was made, changed or deleted.
    FileChange,
    /// Something failed outside of tools and checks.
    Error,
    /// Another backend took over.
    BackendSwitch,
    /// Another model took over.
    ModelSwitch,
    /// A check was run; its name is the event's tool.
    Check,
    /// Oversight found something.
    Detection,
    /// Oversight did something about it.
    Intervention,
    /// A person gave a command.
    Command,
}

impl EventKind {
    /// Every kind, in the order of their names' declaration.
    pub const ALL: [Self; 10] = [
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
    ];

    /// As it is stored and shown.
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
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name).ok_or_else(|| format!("{name:?} is no kind of event"))
    }
}

/// Something that happened in an iteration. Its text is masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// From 1; 0 before the first.
    pub iteration: u32,
    /// What sort of thing.
    pub kind: EventKind,
    /// The tool, or the check, that it is about.
    pub tool: Option<String>,
    /// The file that it is about, from the top of the work tree.
    pub path: Option<String>,
    /// What happened, in words, arguments or output.
    pub text: String,
    /// Whether it is a failure: an error, a tool's refusal, a check that does not hold.
    pub failed: bool,
    /// When.
    pub at: Timestamp,
}

/// An error that came up, in the form in which the same error compares equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorPattern {
    /// See `domain::signature`.
    pub signature: String,
    /// How often.
    pub count: u32,
    /// In which iterations, ascending.
    pub iterations: Vec<u32>,
}

/// What several iterations came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// First iteration.
    pub from: u32,
    /// Last iteration.
    pub to: u32,
    /// In words.
    pub text: String,
    /// What was decided, oldest first.
    pub decisions: Vec<String>,
    /// Files that were changed, those changed most often first.
    pub files: Vec<String>,
    /// Errors, most frequent first.
    pub errors: Vec<ErrorPattern>,
    /// Whether it was put together from the turns and events themselves, without a model.
    pub extractive: bool,
    /// When.
    pub made_at: Timestamp,
}
