//! Advice for an iteration as a model writes it, before it is sanitized.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Urgency of an iteration, as the model states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptUrgency {
    /// No hurry.
    Low,
    /// Normal.
    #[default]
    Normal,
    /// Little time or budget remains.
    High,
    /// Last iteration before a limit.
    Critical,
}

/// Advice of a model for an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GeneratedPrompt {
    /// Advice for this iteration: what to do first, how, what to avoid. At most 200 words, no headings.
    pub prompt: String,
    /// State of the loop that the agent should know, in one or two sentences; may be empty.
    pub system_context: String,
    /// Up to five things to look at, each in a few words, the most important first.
    pub focus_areas: Vec<String>,
    /// Urgency of the prompt.
    pub urgency: PromptUrgency,
}
