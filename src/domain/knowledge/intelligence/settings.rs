//! Settings of the context block, their defaults, and what each may be.

use super::job::JobKind;
use crate::domain::model::settings::{SectionProblems, Settings, config_section};
use crate::domain::providers::rules::{INVALID_NAME, valid_model_name};

/// Tokens that a model's answer may have for each token of the block: it is JSON, and models count badly.
const ANSWER_FACTOR: f64 = 1.6;

config_section! {
    /// The context block of a prompt, and the models that write it and the summaries. They are asked where `intelligence` is
    /// `full` alone; without them the most important facts are put together.
    pub struct ContextSettings {
        /// Whether a model writes the block where not all that is known fits into it.
        pub enabled: bool = true;
        /// The model that is asked for the block, of whichever backend has the role `assistant`; where left out, that backend's
        /// cheap one.
        pub model: Option<String> = None;
        /// The model that is asked for summaries of iterations, in the same way.
        pub summary_model: Option<String> = None;
        /// Most tokens of the block.
        pub max_output_tokens: u32 = 500, in 100..=20_000;
        /// Most percent of the backend's context window that the block takes, where the window is known.
        pub budget_pct: f64 = 10.0, in 0.1..=50.0;
    }
}

impl ContextSettings {
    /// The model that a question of this kind is put to; `None` for the backend's own choice.
    pub fn model_for(&self, kind: JobKind) -> Option<&str> {
        match kind {
            JobKind::Context => self.model.as_deref(),
            JobKind::Summary => self.summary_model.as_deref(),
            JobKind::Prompt | JobKind::Reflection | JobKind::Message => None,
        }
    }

    /// Tokens that the answer to a question of this kind may have.
    pub fn max_answer_tokens(&self, kind: JobKind) -> u32 {
        match kind {
            JobKind::Context => (f64::from(self.max_output_tokens) * ANSWER_FACTOR).ceil() as u32,
            _ => kind.max_output_tokens(),
        }
    }
}

impl Settings for ContextSettings {
    const GROUP: &'static str = "context";

    fn check_further(&self, problems: &mut SectionProblems) {
        for (key, model) in [("model", &self.model), ("summary_model", &self.summary_model)] {
            if model.as_ref().is_some_and(|name| !valid_model_name(name)) {
                problems.add(key, INVALID_NAME);
            }
        }
    }
}
