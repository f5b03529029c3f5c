//! Pure part of the intelligence layer: the context block within a token budget, advice for the prompt, questions to models as
//! values, and scores for the agent's claims.
//!
//! This module does not call models. An [`AssistantJob`] contains a question and validates its answer. Without an answer,
//! the caller continues without it. [`Intelligence`](crate::domain::trust::policy::Intelligence) selects the enabled parts.

mod adapt;
mod analysis;
mod best;
mod block;
mod budget;
mod claims;
mod compression;
mod context;
mod facts;
mod generated_prompt;
mod job;
mod message;
mod model_advice;
mod reflect;
mod second_opinion;
mod settings;
mod suggest_checks;
mod summarize;

#[cfg(test)]
mod tests;

pub use adapt::{ToolUse, adapt};
pub use analysis::Analysis;
pub use best::{SelectedState, StateCandidate, best, best_state};
pub use block::{Block, token_budget};
pub use budget::usual;
pub use claims::ClaimSums;
pub use compression::{Compressed, Compression};
pub use context::{
    Context, FileTouched, History, LoopProgress, Project, PromptLearning, RecurringError, SummarySoFar, Try,
};
pub use generated_prompt::{GeneratedPrompt, PromptUrgency};
pub use job::{Ask, AssistantJob, JobKind, ask};
pub use message::{MessageAnalysis, MessageReport};
pub use model_advice::ModelAdvice;
pub use reflect::{Reflecting, ReflectionAnswer};
pub use second_opinion::Reviewing;
pub use settings::ContextSettings;
pub use suggest_checks::{SuggestedCommands, SuggestingChecks};
pub use summarize::{Summarizing, SummaryAnswer};
