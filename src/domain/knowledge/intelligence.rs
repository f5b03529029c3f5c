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
mod tests;

pub use adapt::{ToolUse, adapt};
pub use analysis::{Analysis, GeneratedPrompt, PromptUrgency};
pub use best::{Candidate, Standing, best, best_state};
pub use budget::usual;
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
