//! What helps a run beside its task: what the loop taught and came to so far, the context block, a model's advice. Models
//! are asked where the loop wants that; without them, or without their answers, all of it is there but the advice.

use std::collections::BTreeMap;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::project;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::intelligence::{
    Analysis, Block, Compressed, Compression, Context, ContextSettings, MessageAnalysis, ModelAdvice, Reflecting,
    Summarising, ToolUse, count, token_budget,
};
use crate::domain::knowledge::memory::Reflection;
use crate::domain::knowledge::session::SessionSummary;
use crate::domain::loops::Estimate;
use crate::domain::loops::{AgentEnd, AgentRunFacts, Iteration, Loop};
use crate::domain::model::ids::{Money, RepoRef};
use crate::domain::supervision::experience::Experience;
use crate::engine::Engine;
use crate::engine::assist::Questions;
use crate::store::{StoreError, StoreResult, calls, loops, memory, session};

/// Tokens of the context block that are left for the names of backend and model, which are not known yet when a model writes it.
const NAMES_TOKENS: usize = 40;
/// Bytes of a change that a question about it is made of.
const CHANGE_BYTES: usize = 64 * 1024;

/// What helps a run, the same for each backend that it is tried with.
#[derive(Default)]
pub(super) struct PromptInputs {
    /// What the context block is made of; `None` where the loop has none.
    context: Option<Context>,
    /// It as a model put it.
    compressed: Option<Compressed>,
    /// A model's advice.
    pub model_advice: Option<ModelAdvice>,
    /// How the agent's tools did so far.
    pub tools: Vec<ToolUse>,
    /// Approaches that earlier loops failed with.
    pub failed: Vec<String>,
}

impl PromptInputs {
    /// The context block for a backend and its model, within its budget.
    pub fn block(
        &self,
        settings: &ContextSettings,
        backend: &str,
        model: Option<&str>,
        window: Option<u64>,
    ) -> Option<Block> {
        let mut context = self.context.clone()?;
        context.session.backend = backend.to_owned();
        context.session.model = model.unwrap_or_default().to_owned();
        let tokens = token_budget(settings.max_output_tokens as usize, settings.budget_pct, window);
        let written = self.compressed.as_ref().map(|answer| Compression::of(&context, tokens, &count).block(answer));
        Some(written.filter(|block| block.tokens <= tokens).unwrap_or_else(|| context.block(tokens, &count)))
    }

    /// Leaves out what a run can do without, for a model to which the prompt was too long; whether there was any.
    pub fn shorten(&mut self) -> bool {
        self.context.take().is_some()
    }
}

impl Engine {
    /// Gathers what helps the run of the iteration under way, in its tree.
    pub(super) async fn prompt_inputs(&self, questions: &Questions<'_>, repo: &RepoRef, tree: &Path) -> PromptInputs {
        let current = questions.current;
        if !current.policy.intelligence.adapts() {
            return PromptInputs::default();
        }
        let about = format!(
            "iteration {} at {}",
            current.spent.iterations,
            current.head.as_ref().map_or("its beginning", |head| head.short())
        );
        // Advice is asked for by what the loop is; it waits for nothing that is put together here.
        let job = Analysis::of(current);
        let (analysis, prompt_inputs) =
            tokio::join!(self.consult(questions, &job, &about), self.context(questions, repo, tree, &about));
        let tools = self.look_up(current, "how its tools did", session::tools).await;
        PromptInputs { model_advice: analysis.as_ref().and_then(ModelAdvice::of), tools, ..prompt_inputs }
    }

    /// What the context block is made of, and it as a model put it.
    async fn context(&self, questions: &Questions<'_>, repo: &RepoRef, tree: &Path, about: &str) -> PromptInputs {
        let current = questions.current;
        let ended = last_ended(current).map_or(0, |last| last.number);
        // What is recalled has in it what these two write.
        tokio::join!(self.reflect(questions, repo), self.sum_up_in_words(questions, |newest| newest.to == ended));
        let recalled = self.prompt_memory(current).await;
        let mut context = Context::of(current, self.clock.now());
        context.history.reflections = recalled.reflections;
        context.history.summaries = recalled.summaries;
        context.history.decisions = recalled.decisions;
        context.recall = recalled.learnings;
        context.project = project::look(tree, &current.branch);
        let settings = &self.settings.context;
        let room = (settings.max_output_tokens as usize).saturating_sub(NAMES_TOKENS);
        // What fits as it is needs nobody to choose from it.
        let compressed = match context.block(room, &count).left_out {
            _ if !settings.enabled => None,
            0 => None,
            _ => self.consult(questions, &Compression::of(&context, room, &count), about).await,
        };
        PromptInputs { context: Some(context), compressed, failed: recalled.failed, ..PromptInputs::default() }
    }

    /// What a run's last message says by a model's reading, where the agent wrote no report.
    pub(super) async fn read_message(&self, questions: &Questions<'_>, run: &mut AgentRunFacts) {
        let over = matches!(run.end, AgentEnd::Finished | AgentEnd::Failed { .. } | AgentEnd::TimedOut { .. });
        if over && run.report.is_none() && !run.message.trim().is_empty() {
            let about = format!("the last message of run {}", questions.ticket);
            let read = self.consult(questions, &MessageAnalysis::of(&run.message), &about).await;
            run.report = read.map(Into::into);
        }
    }

    /// Has a model say what the last iteration taught, where it failed; what was noted without one is replaced.
    async fn reflect(&self, questions: &Questions<'_>, repo: &RepoRef) {
        let current = questions.current;
        let failed = |last: &&Iteration| !last.checks.all_hold() || !last.agent_problem.is_empty();
        let Some(last) = last_ended(current).filter(failed) else { return };
        if !self.settings.memory.enabled || !self.asks(current) {
            return;
        }
        let all = current.iterations.len();
        let known = self.look_up(current, "reflections", move |c, id| memory::reflections(c, id, all)).await;
        let Some(noted) = known.into_iter().find(|one| one.iteration == last.number) else { return };
        let change = match &last.commit {
            Some(commit) => self.workspaces.diff(repo, &last.parent, commit, CHANGE_BYTES).await,
            None => Ok(String::new()),
        };
        let change = change.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "the change of the last iteration cannot be read");
            String::new()
        });
        let about = format!("iteration {}", last.number);
        let Some(answer) = self.consult(questions, &Reflecting::on(last, &change), &about).await else { return };
        let reflection = Reflection { failed: answer.what_failed, why: answer.why, next: answer.next, ..noted };
        let (id, masker, now) = (current.id.clone(), self.checks.masker.clone(), self.clock.now());
        let kept = self.store.write(move |c| memory::add_reflection(c, &masker, &id, &reflection, now)).await;
        if let Err(error) = kept {
            tracing::warn!(loop_id = %current.id, %error, "a reflection could not be kept");
        }
    }

    /// Has a model write the newest summary, where that is wanted and none has.
    async fn sum_up_in_words(&self, questions: &Questions<'_>, wanted: impl Fn(&SessionSummary) -> bool) {
        let current = questions.current;
        if !self.asks(current) {
            return;
        }
        let newest = self.look_up(current, "summaries", |c, id| session::summaries(c, id, 0)).await.pop();
        let Some(newest) = newest.filter(|newest| newest.extractive && wanted(newest)) else { return };
        let within = |it: &&Iteration| (newest.from..=newest.to).contains(&it.number) && it.ended_at.is_some();
        let Some(job) = Summarising::of(&current.kept().filter(within).collect::<Vec<_>>()) else { return };
        let about = format!("iterations {} to {}", newest.from, newest.to);
        let Some(answer) = self.consult(questions, &job, &about).await else { return };
        let decisions = if answer.key_decisions.is_empty() { newest.decisions } else { answer.key_decisions };
        let made_at = self.clock.now();
        // Files and errors are counted, not told.
        let summary = SessionSummary { text: answer.summary, decisions, extractive: false, made_at, ..newest };
        let id = current.id.clone();
        if let Err(error) = self.store.write(move |c| session::add_summary(c, &id, &summary)).await {
            tracing::warn!(loop_id = %current.id, %error, "a summary could not be kept");
        }
    }

    /// What is left to be asked when a loop has ended; gives what it cost, also where it was asked before and the answer
    /// was not told. Calls that nobody will end any more are settled.
    pub(super) async fn last_questions(&self, current: &Loop, cancel: &CancellationToken) -> Result<Money, StoreError> {
        self.settle_lost(current, 0).await?;
        // The step that ended the loop may not have summed it up yet.
        self.summarise(current).await;
        self.sum_up_in_words(&Questions::of(current, 0, cancel), |_| true).await;
        let asked = calls::key_prefix(&current.id, 0);
        self.store.read(move |c| calls::cost_of(c, &asked)).await
    }

    /// What loops of a repository took; nothing where memory is off.
    pub(super) async fn estimates(&self, repo: &RepoRef) -> BTreeMap<TaskType, Estimate> {
        if !self.settings.memory.enabled {
            return BTreeMap::new();
        }
        let of = repo.clone();
        self.store.read(move |c| memory::estimates(c, &of)).await.unwrap_or_else(|error| {
            tracing::warn!(repo = %repo, %error, "what earlier loops took cannot be looked up");
            BTreeMap::new()
        })
    }

    /// What earlier loops of a repository were like; nothing where memory is off.
    pub(super) async fn experience(&self, repo: &RepoRef) -> Experience {
        if !self.settings.memory.enabled {
            return Experience::default();
        }
        let of = repo.clone();
        self.store.read(move |c| loops::experience(c, &of)).await.unwrap_or_else(|error| {
            tracing::warn!(repo = %repo, %error, "what earlier loops were like cannot be looked up");
            Experience::default()
        })
    }

    /// Something of a loop from the store; what cannot be read is told in the log and is nothing.
    async fn look_up<T: Default + Send + 'static>(
        &self,
        current: &Loop,
        what: &'static str,
        read: impl FnOnce(&rusqlite::Connection, &crate::domain::model::ids::LoopId) -> StoreResult<T> + Send + 'static,
    ) -> T {
        let id = current.id.clone();
        self.store.read(move |c| read(c, &id)).await.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "{what} cannot be read");
            T::default()
        })
    }
}

/// The iteration that ended last of those that count.
fn last_ended(current: &Loop) -> Option<&Iteration> {
    current.kept().rev().find(|iteration| iteration.ended_at.is_some())
}
