//! The intelligence layer's pure part: what is known put into few tokens, prompts made for the moment, questions to a model
//! as values, and what to make of the agent's word.
//!
//! No model is called here. A [`Job`] says what to ask and how to check the answer; whoever asks goes on without one where
//! nobody answers. [`Intelligence`] says which of this a loop uses.

mod adapt;
mod analysis;
mod best;
mod budget;
mod claims;
mod context;
mod facts;
mod job;
mod message;
mod middle;
mod reflect;
mod settings;
mod summarise;
mod text;
mod tokens;

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use adapt::{ToolUse, adapt};
pub use analysis::{Analysis, GeneratedPrompt, PromptUrgency};
pub use best::{Candidate, Standing, best, best_state};
pub use budget::{Estimate, usual};
pub use claims::Claims;
pub use context::{
    Block, Compressed, Compression, Context, ErrorSeen, FileTouched, History, Learning, LearningKind, Project, Session,
    SummarySoFar, Try, token_budget,
};
pub use job::{Ask, Job, JobKind, ask};
pub use message::{MessageAnalysis, MessageReport, report_of, reported};
pub use middle::Middle;
pub use reflect::{Reflecting, ReflectionAnswer};
pub use settings::ContextSettings;
pub use summarise::{Summarising, SummaryAnswer};
pub use tokens::count;

/// Counts the tokens of a text; [`count`] is the real one, tests take what suits them.
pub type Count<'a> = &'a (dyn Fn(&str) -> usize + Sync);

/// How much of the intelligence layer a loop uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Intelligence {
    /// The plain prompt: task, checks, what fails, guidance, what supervision orders. Nothing is added, no model is asked.
    Off,
    /// All that needs no model: the context block, sentences for the moment, reports read from final messages.
    #[default]
    Fallback,
    /// The same, and models are asked first; where one does not answer, it is as with `fallback`.
    Full,
}

impl Intelligence {
    /// Whether what needs no model is used.
    pub fn adapts(self) -> bool {
        self != Self::Off
    }

    /// Whether models are asked.
    pub fn asks(self) -> bool {
        self == Self::Full
    }
}
