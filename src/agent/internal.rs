//! An agent of our own: a model behind a function, a tool that runs commands and one that edits files.
//!
//! It works like the agents that are commands: same folders, environment, sandbox and report; the same events and
//! outcome. Commands run in the sandbox, edits in this process but only within the tree; the model is called from this
//! process, so its key is never where the agent's commands are. A run is bounded in turns, tokens, cost, time and
//! silence; what is over a bound by one call of the model is accepted. Its conversation is not kept beyond the run: it is
//! cut to what the task under way needs, and what earlier runs did stands in the next prompt.

mod bash;
mod context;
mod edit;
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
use tokio_util::sync::CancellationToken;

use super::{AgentEvent, AgentOutcome, AgentRun, Backend, BackendSetup, run_environment};
use crate::clock::Clock;
use crate::domain::model::ids::Money;
use crate::domain::providers::chat::{CallError, ChatAnswer, ChatRequest};
use crate::domain::providers::prices::TokenUsage;
use crate::process::{Masker, executable};

/// A model, as the agent sees it: any client that answers one request.
pub type ModelFunction = Arc<dyn Fn(ChatRequest) -> BoxFuture<'static, Result<ChatAnswer, CallError>> + Send + Sync>;
/// What a call costs, by the provider's name of the model; `None` where no price is known.
pub type PriceFunction = Arc<dyn Fn(&str, &TokenUsage) -> Option<Money> + Send + Sync>;

/// What our own agent needs beside the settings that every backend has.
#[derive(Clone)]
pub struct InternalSettings {
    /// The model's function.
    pub model: ModelFunction,
    /// Name of the model where a run names none.
    pub default_model: String,
    /// Prices.
    pub price: PriceFunction,
    /// For reading when a limit ends.
    pub clock: Clock,
    /// AgentLimits of a run.
    pub bounds: AgentLimits,
    /// Whether commands may run where there is no sandbox. Files of the tree can be edited there in any case.
    pub commands_outside: bool,
}

/// AgentLimits of a run beside its own.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentLimits {
    /// Turns where a run names no number.
    pub turns: u32,
    /// Tokens read and written in all.
    pub tokens: u64,
    /// Tokens that one answer may have.
    pub answer_tokens: u32,
    /// Tokens that the model can have before it, its answer included.
    pub context_window: u64,
    /// Longest wait for one answer.
    pub call: Duration,
    /// Wait before a provider in trouble is asked again; the second time four times as long.
    pub retry: Duration,
}

impl Default for AgentLimits {
    /// 100 turns, 20 million tokens, answers of 16,384, a context of 128,000; 300 s an answer, 1 s before a retry.
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

/// Makes our own agent; its shell is looked up now. Of `settings`, `command`, `args` and `prompt_on_stdin` mean nothing
/// to it.
///
/// # Errors
/// A sentence for the operator: there is no shell, or a bound leaves no room.
pub fn build_internal(
    name: &str,
    settings: BackendSetup,
    internal: InternalSettings,
) -> Result<Box<dyn Backend>, String> {
    let bounds = &internal.bounds;
    if bounds.context_window < 4 * u64::from(bounds.answer_tokens).max(1_000) {
        return Err(format!(
            "backend {name}: a context window of {} tokens is too small for answers of {}: it needs four times as many, \
             and at least 4000",
            bounds.context_window, bounds.answer_tokens
        ));
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

    async fn run(
        &self,
        run: AgentRun,
        cancel: &CancellationToken,
        on_event: &mut (dyn FnMut(AgentEvent) + Send),
    ) -> AgentOutcome {
        run::run(self, &run, cancel, on_event).await
    }

    async fn probe(&self) -> Result<String, String> {
        Ok(format!("internal {} with {}", env!("CARGO_PKG_VERSION"), self.shell.display()))
    }
}
