//! Built-in agent: a model with tools that run commands and edit files, and the tools of the run.
//!
//! Folders, environment, sandbox, report, events and outcome are the same as for agents that are commands. Commands
//! run in the sandbox; edits run in this process, within the work tree only. The model is called from this process, so
//! commands never see its key. A run is limited in turns, tokens, cost, time and time without output, and can exceed a
//! limit by one call of the model. The conversation is discarded after the run; the next prompt contains the results
//! of earlier runs.

mod bash;
mod context;
mod edit;
mod images;
mod run;
mod setup;
mod transcript;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use ralph_types::failure::Failure;
use tokio_util::sync::CancellationToken;

use super::{AgentEvent, AgentOutcome, AgentRun, Backend, BackendSetup, ToolCalls, run_environment};
use crate::clock::Clock;
use crate::domain::model::ids::Money;
use crate::domain::providers::chat::{CallError, ChatAnswer, ChatRequest};
use crate::domain::providers::prices::TokenUsage;
use crate::process::{Masker, executable};

/// Function that sends a request to a model.
pub type ModelFunction = Arc<dyn Fn(ChatRequest) -> BoxFuture<'static, Result<ChatAnswer, CallError>> + Send + Sync>;
/// Function that returns the cost of a call by the provider's name of the model; `None` if no price is known.
pub type PriceFunction = Arc<dyn Fn(&str, &TokenUsage) -> Option<Money> + Send + Sync>;

/// Settings of the built-in agent, in addition to the settings of every backend.
#[derive(Clone)]
pub struct InternalSettings {
    /// Model.
    pub model: ModelFunction,
    /// Default model of runs that select none.
    pub default_model: String,
    /// Function that returns the cost of a call.
    pub price: PriceFunction,
    /// Clock that determines when limits end.
    pub clock: Clock,
    /// Limits of a run.
    pub bounds: InternalAgentLimits,
    /// Whether the models accept images.
    pub takes_images: bool,
    /// Whether commands may run without a sandbox. Editing files is allowed in any case.
    pub commands_outside: bool,
}

/// Limits of a run, in addition to the limits of [`AgentRun`].
#[derive(Debug, Clone, PartialEq)]
pub struct InternalAgentLimits {
    /// Maximum number of turns of runs that set no maximum.
    pub turns: u32,
    /// Maximum number of input and output tokens.
    pub tokens: u64,
    /// Maximum number of tokens per response.
    pub answer_tokens: u32,
    /// Size of the context window in tokens, including the response.
    pub context_window: u64,
    /// Time limit for a response.
    pub call: Duration,
    /// Wait before the first retry of a request; four times as long before the second one.
    pub retry: Duration,
}

impl Default for InternalAgentLimits {
    /// Returns the defaults: 100 turns, 20 million tokens, responses of 16,384 and a context window of 128,000 tokens,
    /// 300 s per response, 1 s before a retry.
    fn default() -> Self {
        Self {
            turns: 100,
            tokens: 20_000_000,
            answer_tokens: 16_384,
            context_window: 128_000,
            call: Duration::from_secs(300),
            retry: Duration::from_secs(1),
        }
    }
}

/// Creates the built-in agent. Its shell is looked up now. `command`, `args` and `prompt_on_stdin` of `settings` are
/// ignored.
///
/// # Errors
/// A message for the operator: there is no shell, or the context window is too small.
pub fn build_internal(
    name: &str,
    settings: BackendSetup,
    internal: InternalSettings,
) -> Result<Box<dyn Backend>, Failure> {
    let bounds = &internal.bounds;
    if bounds.context_window < 4 * u64::from(bounds.answer_tokens).max(1_000) {
        return Err(Failure::new(format!(
            "backend {name}: a context window of {} tokens is too small for answers of {}: it needs four times as many, \
             and at least 4000",
            bounds.context_window, bounds.answer_tokens
        )));
    }
    let path = run_environment::path(&settings);
    let shell = ["bash", "sh"]
        .iter()
        .find_map(|shell| executable(Path::new(shell), &settings.config_folder, &path).ok())
        .ok_or_else(|| format!("backend {name}: there is neither bash nor sh in {path:?}"))?;
    let secrets = run_environment::secrets(&settings);
    Ok(Box::new(InternalAgent { name: name.to_owned(), settings, internal, shell, secrets }))
}

struct InternalAgent {
    name: String,
    settings: BackendSetup,
    internal: InternalSettings,
    shell: PathBuf,
    secrets: Masker,
}

#[async_trait]
impl Backend for InternalAgent {
    fn name(&self) -> &str {
        &self.name
    }

    fn tool_calls(&self) -> ToolCalls {
        ToolCalls::InProcess
    }

    async fn run(
        &self,
        run: AgentRun,
        cancel: &CancellationToken,
        on_event: &mut (dyn FnMut(AgentEvent) + Send),
    ) -> AgentOutcome {
        run::run(self, &run, cancel, on_event).await
    }

    async fn probe(&self) -> Result<String, Failure> {
        Ok(format!("internal {} with {}", env!("CARGO_PKG_VERSION"), self.shell.display()))
    }
}
