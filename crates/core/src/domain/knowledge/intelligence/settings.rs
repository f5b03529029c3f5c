//! Settings of the context block, with their defaults and ranges.

use super::job::JobKind;
use crate::domain::model::settings::{SectionProblems, Settings, config_section};
use crate::domain::providers::rules::{INVALID_NAME, valid_model_name};

/// Number of answer tokens allowed per token of the block, because the answer is JSON and models count tokens inaccurately.
const ANSWER_FACTOR: f64 = 1.6;

config_section! {
    /// Context block of prompts, and the models that write it and the summaries. Models are used with `intelligence:
    /// summaries` or `full` and an `assistant`; otherwise the block consists of the most important facts.
    pub struct ContextSettings {
        /// Whether a model writes the block if not all known facts fit into it.
        pub enabled: bool = true;
        /// Model that writes the block, at any backend with the role `assistant`; `assistant.model` or that backend's cheap model if omitted.
        pub model: Option<String> = None;
        /// Model that writes summaries of iterations, at any backend with the role `assistant`; `assistant.model` or that backend's
        /// cheap model if omitted.
        pub summary_model: Option<String> = None;
        /// Maximum number of tokens of the block.
        pub max_output_tokens: u32 = 500, in 100..=20_000;
        /// Maximum percentage of the backend's context window that the block takes, if the window is known.
        pub budget_pct: f64 = 10.0, in 0.1..=50.0;
    }
}

impl ContextSettings {
    /// Returns the model for questions of this kind; `None` if the backend chooses.
    pub fn model_for(&self, kind: JobKind) -> Option<&str> {
        match kind {
            JobKind::Context => self.model.as_deref(),
            JobKind::Summary => self.summary_model.as_deref(),
            JobKind::Prompt | JobKind::Reflection | JobKind::Message | JobKind::Checks | JobKind::SecondOpinion => None,
        }
    }

    /// Returns the maximum number of tokens in the answer to a question of this kind.
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
