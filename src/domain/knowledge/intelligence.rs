//! Intelligence layer, pure part: the context block within a token budget, sentences for the prompt, questions to
//! models as values, and the evaluation of agents' claims.
//!
//! No model is called here. A [`AssistantJob`] states a question and how to validate its answer; the caller continues without
//! an answer if none arrives. [`Intelligence`](crate::domain::trust::policy::Intelligence) selects the parts that a
//! loop uses.

mod adapt;
mod analysis;
mod best;
mod budget;
mod claims;
mod context;
mod facts;
mod job;
mod message;
mod model_advice;
mod reflect;
mod settings;
mod summarise;
mod text;
mod tokens;

#[cfg(test)]
mod tests;

pub use adapt::{ToolUse, adapt};
pub use analysis::{Analysis, GeneratedPrompt, PromptUrgency};
pub use best::{SelectedState, StateCandidate, best, best_state};
pub use budget::usual;
pub use claims::ClaimSums;
pub use context::{
    Block, Compressed, Compression, Context, FileTouched, History, LoopProgress, Project, PromptLearning,
    RecurringError, SummarySoFar, Try, token_budget,
};
pub use job::{Ask, AssistantJob, JobKind, ask};
pub use message::{MessageAnalysis, MessageReport, report_of, reported};
pub use model_advice::ModelAdvice;
pub use reflect::{Reflecting, ReflectionAnswer};
pub use settings::ContextSettings;
pub use summarise::{Summarising, SummaryAnswer};
pub use tokens::count;

/// Function that counts the tokens of a text; [`count`] is the real one.
pub type Count<'a> = &'a (dyn Fn(&str) -> usize + Sync);
