//! Inputs of a prompt in addition to the task: memory, the context block and a model's advice. If no model is
//! configured or answers, only the advice is missing.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::assist::Questions;
use super::project;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::intelligence::{
    Analysis, Block, Compressed, Compression, Context, ContextSettings, JobKind, MessageAnalysis, ModelAdvice,
    Reflecting, Summarizing, ToolUse, token_budget,
};
use crate::domain::knowledge::memory::Reflection;
use crate::domain::knowledge::session::SessionSummary;
use crate::domain::loops::{
    AgentEnd, AgentRunFacts, AgentSession, EndedLoop, Estimate, Iteration, Loop, PublishedProposal,
};
use crate::domain::model::ids::{Money, RepoRef};
use crate::domain::supervision::experience::Experience;
use crate::engine::context::ServiceContext;
use crate::engine::memory::summarize;
use crate::engine::prompt_memory::Recall;
use crate::engine::providers::Calls;
use crate::engine::work::Verification;
use crate::engine::work::assist::Assistants;
use crate::render::Renderer;
use crate::store::leases::LeaseToken;
use crate::store::sql::Connection;
use crate::store::{StoreError, StoreResult, calls, loops, memory, session};

/// Tokens reserved in the context block for the names of backend and model.
const NAMES_TOKENS: usize = 40;
/// Maximum number of tokens of the context block for a resumed session.
const NEWS_TOKENS: usize = 800;
/// Maximum number of proposals of conventions that one loop publishes.
const TOLD_PROPOSALS: usize = 3;
/// Maximum size of a diff in a question to a model, in bytes.
const CHANGE_BYTES: usize = 64 * 1024;

/// Inputs of a prompt, shared by all backends that are tried.
#[derive(Default)]
pub(super) struct PromptInputs {
    /// Content of the context block; `None` if the loop has none.
    context: Option<Context>,
    /// Context block that a model has shortened; `None` if no model has.
    compressed: Option<Compressed>,
    /// Advice of a model; `None` if none was given.
    pub model_advice: Option<ModelAdvice>,
    /// Statistics of the agent's tools.
    pub tools: Vec<ToolUse>,
    /// Approaches that failed in earlier loops.
    pub failed: Vec<String>,
}

impl PromptInputs {
    /// Returns the context block for a backend and model, within its token budget. For a resumed session the block
    /// contains only new facts; `told` has the digests of the facts that the session has received.
    pub fn block(
        &self,
        settings: &ContextSettings,
        (backend, model): (&str, Option<&str>),
        window: Option<u64>,
        told: Option<&[String]>,
    ) -> Option<Block> {
        let mut context = self.context.clone()?;
        context.session.backend = backend.to_owned();
        context.session.model = model.unwrap_or_default().to_owned();
        let tokens = token_budget(settings.max_output_tokens as usize, settings.budget_pct, window);
        if let Some(told) = told {
            return Some(context.news(told, tokens.min(NEWS_TOKENS)));
        }
        let written = self.compressed.as_ref().map(|answer| Compression::of(&context, tokens).block(answer));
        Some(written.filter(|block| block.tokens <= tokens).unwrap_or_else(|| context.block(tokens)))
    }

    /// Whether the prompt has optional content.
    pub fn can_shorten(&self) -> bool {
        self.context.is_some()
    }

    /// Removes optional content after a model rejected the prompt as too long.
    pub fn shorten(&mut self) {
        self.context = None;
    }
}

/// Collects the inputs of prompts, and renders prompts.
pub(in crate::engine) struct Prompts {
    pub(in crate::engine) context: ServiceContext,
    pub(in crate::engine) calls: Arc<Calls>,
    pub(in crate::engine) verification: Arc<Verification>,
    pub(in crate::engine) assistants: Assistants,
    pub(in crate::engine) recall: Arc<Recall>,
    pub(in crate::engine) renderer: Arc<Renderer>,
}

impl Prompts {
    /// Gathers the inputs for the prompt of the current iteration while the tree is restored; reads in the tree wait for that.
    ///
    /// # Errors
    /// Git could not restore the tree.
    pub(super) async fn prompt_inputs<T, E>(
        &self,
        questions: &Questions<'_>,
        repo: &RepoRef,
        (tree, put_back): (&Path, impl Future<Output = Result<T, E>>),
    ) -> Result<(T, PromptInputs), E> {
        let current = questions.current;
        if !current.settings.policy.intelligence.adapts() {
            return Ok((put_back.await?, PromptInputs::default()));
        }
        let about = format!(
            "iteration {} at {}",
            current.spent.iterations,
            current.branch.head.as_ref().map_or("its beginning", |head| head.short())
        );
        if current.knowledge.plans_next() {
            return self.context(questions, repo, (tree, put_back), &about).await;
        }
        // Advice and statistics depend only on the loop, so all run concurrently.
        let job = Analysis::of(current);
        let (analysis, context, tools) = tokio::join!(
            self.assistants.consult(questions, &job, &about),
            self.context(questions, repo, (tree, put_back), &about),
            self.look_up(current, "how its tools did", session::tools)
        );
        let (ready, prompt_inputs) = context?;
        let model_advice = analysis.as_ref().and_then(ModelAdvice::of);
        Ok((ready, PromptInputs { model_advice, tools, ..prompt_inputs }))
    }

    /// Builds the content of the context block and asks a model to compress it.
    async fn context<T, E>(
        &self,
        questions: &Questions<'_>,
        repo: &RepoRef,
        (tree, put_back): (&Path, impl Future<Output = Result<T, E>>),
        about: &str,
    ) -> Result<(T, PromptInputs), E> {
        let current = questions.current;
        let ended = last_ended(current).map_or(0, |last| last.number);
        let recalling = async {
            // The prompt memory includes the results of these two.
            tokio::join!(self.reflect(questions, repo), self.sum_up_in_words(questions, |newest| newest.to == ended));
            self.recall.prompt_memory(current).await
        };
        let (ready, recalled) = tokio::join!(put_back, recalling);
        let ready = ready?;
        let mut context = Context::of(current, self.context.clock.now());
        context.history.reflections = recalled.reflections;
        context.history.summaries = recalled.summaries;
        context.history.decisions = recalled.decisions;
        context.recall = recalled.learnings;
        context.project = project::look(tree, &current.branch.base_branch);
        let settings = &self.assistants.settings.context;
        let room = (settings.max_output_tokens as usize).saturating_sub(NAMES_TOKENS);
        // Content that fits needs no compression, and a session that is likely to be resumed gets only new facts.
        let backends = &self.calls.settings.backends;
        let is_full = |session: &AgentSession| {
            session.context_pct.is_some_and(|filled| backends.wants_fresh_session(&session.backend, filled))
        };
        let resumes =
            current.agent.session.as_ref().is_some_and(|session| self.calls.can_resume(session) && !is_full(session));
        let compressed = match context.block(room).left_out {
            _ if !settings.enabled || resumes => None,
            0 => None,
            _ => self.assistants.consult(questions, &Compression::of(&context, room), about).await,
        };
        let failed = recalled.failed;
        Ok((ready, PromptInputs { context: Some(context), compressed, failed, ..PromptInputs::default() }))
    }

    /// Asks a model to extract a report from the run's last message if the agent wrote no report.
    pub(super) async fn read_message(&self, questions: &Questions<'_>, run: &mut AgentRunFacts) {
        let over = matches!(run.end, AgentEnd::Finished | AgentEnd::Failed { .. } | AgentEnd::TimedOut { .. });
        if over && run.report.is_none() && !run.message.trim().is_empty() {
            let about = format!("the last message of run {}", questions.ticket);
            let read = self.assistants.consult(questions, &MessageAnalysis::of(&run.message), &about).await;
            run.report = read.map(Into::into);
        }
    }

    /// Asks a model to reflect on a failed iteration; the answer replaces the reflection that was extracted without a
    /// model.
    async fn reflect(&self, questions: &Questions<'_>, repo: &RepoRef) {
        let current = questions.current;
        let failed = |last: &&Iteration| !last.checks.all_hold() || !last.agent_problem.is_empty();
        let Some(last) = last_ended(current).filter(failed) else { return };
        if !self.recall.settings.enabled || !self.assistants.asks(current, JobKind::Reflection) {
            return;
        }
        let all = current.iterations.len();
        let known = self.look_up(current, "reflections", move |c, id| memory::reflections(c, id, all)).await;
        // A person's text stays.
        let open = |one: &Reflection| one.iteration == last.number && one.edited_by.is_none();
        let Some(noted) = known.into_iter().find(open) else { return };
        let change = match &last.commit {
            Some(commit) => {
                self.verification.workspaces.diff((&current.id, repo), &last.parent, commit, CHANGE_BYTES).await
            }
            None => Ok(String::new()),
        };
        let change = change.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "cannot read the change of the last iteration");
            String::new()
        });
        let about = format!("iteration {}", last.number);
        let Some(answer) = self.assistants.consult(questions, &Reflecting::on(last, &change), &about).await else {
            return;
        };
        let reflection = Reflection { failed: answer.what_failed, why: answer.why, next: answer.next, ..noted };
        let (id, masker, now) = (current.id.clone(), self.verification.checks.masker.clone(), self.context.clock.now());
        let add = move |c: &Connection| memory::add_reflection(c, &masker, &id, &reflection, now);
        if let Err(error) = self.context.store.write(questions.lease.guard(add)).await {
            tracing::warn!(loop_id = %current.id, %error, "could not store a reflection");
        }
    }

    /// Asks a model to write the latest summary, if `wanted` returns `true` for it and no model has written it yet.
    async fn sum_up_in_words(&self, questions: &Questions<'_>, wanted: impl Fn(&SessionSummary) -> bool) {
        let current = questions.current;
        if !self.assistants.asks(current, JobKind::Summary) {
            return;
        }
        let newest = self.look_up(current, "summaries", |c, id| session::summaries(c, id, 0)).await.pop();
        let Some(newest) = newest.filter(|newest| newest.extractive && wanted(newest)) else { return };
        let within = |it: &&Iteration| (newest.from..=newest.to).contains(&it.number) && it.ended_at.is_some();
        let Some(job) = Summarizing::of(&current.retained_iterations().filter(within).collect::<Vec<_>>()) else {
            return;
        };
        let about = format!("iterations {} to {}", newest.from, newest.to);
        let Some(answer) = self.assistants.consult(questions, &job, &about).await else { return };
        let decisions = if answer.key_decisions.is_empty() { newest.decisions } else { answer.key_decisions };
        let made_at = self.context.clock.now();
        // Files and errors stay as counted.
        let summary = SessionSummary { text: answer.summary, decisions, extractive: false, made_at, ..newest };
        let id = current.id.clone();
        if let Err(error) =
            self.context.store.write(questions.lease.guard(move |c| session::add_summary(c, &id, &summary))).await
        {
            tracing::warn!(loop_id = %current.id, %error, "could not store a summary");
        }
    }

    /// Asks the final questions of an ended loop and returns their cost, including earlier attempts. Calls
    /// whose process died are settled.
    pub(super) async fn last_questions(
        &self,
        current: &Loop,
        lease: &LeaseToken,
        cancel: &CancellationToken,
    ) -> Result<Money, StoreError> {
        self.calls.settle_lost(current, 0, lease).await?;
        // The final summary may not exist yet.
        summarize(&self.context, &self.recall.settings, current).await;
        self.sum_up_in_words(&Questions::of(current, 0, lease, cancel), |_| true).await;
        let asked = calls::key_prefix(&current.id, 0);
        self.context.store.read(move |c| calls::cost_of(c, &asked)).await
    }

    /// Returns the proposals of conventions that the loop publishes in a comment; empty if memory is disabled.
    pub(super) async fn untold_proposals(&self, current: &Loop) -> Vec<PublishedProposal> {
        if !self.recall.settings.learns() {
            return Vec::new();
        }
        let (repo, id) = (current.issue.repo.clone(), current.id.clone());
        let found =
            self.context.store.write(move |c| memory::proposals::reserve_untold(c, &repo, &id, TOLD_PROPOSALS)).await;
        found.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "could not read proposals of conventions; they are not announced now");
            Vec::new()
        })
    }

    /// Returns estimates from earlier loops of the repository; empty if memory is disabled.
    pub(super) async fn estimates(&self, repo: &RepoRef) -> BTreeMap<TaskType, Estimate> {
        if !self.recall.settings.learns() {
            return BTreeMap::new();
        }
        let of = repo.clone();
        self.context.store.read(move |c| memory::estimates(c, &of)).await.unwrap_or_else(|error| {
            tracing::warn!(repo = %repo, %error, "could not look up the duration and cost of earlier loops");
            BTreeMap::new()
        })
    }

    /// Returns the resource use of the repository's newest ended loops; empty if it cannot be read.
    pub(super) async fn past_loops(&self, repo: &RepoRef) -> Vec<EndedLoop> {
        let of = repo.clone();
        self.context.store.read(move |c| loops::ended(c, &of)).await.unwrap_or_else(|error| {
            tracing::warn!(repo = %repo, %error, "could not look up the duration and cost of earlier loops");
            Vec::new()
        })
    }

    /// Returns the experience of earlier loops of the repository; empty if memory is disabled.
    pub(super) async fn experience(&self, repo: &RepoRef) -> Experience {
        if !self.recall.settings.learns() {
            return Experience::default();
        }
        let of = repo.clone();
        self.context.store.read(move |c| loops::experience(c, &of)).await.unwrap_or_else(|error| {
            tracing::warn!(repo = %repo, %error, "could not look up the course of earlier loops");
            Experience::default()
        })
    }

    /// Reads data of a loop; on failure logs a warning and returns the default.
    async fn look_up<T: Default + Send + 'static>(
        &self,
        current: &Loop,
        what: &'static str,
        read: impl FnOnce(&Connection, &crate::domain::model::ids::LoopId) -> StoreResult<T> + Send + 'static,
    ) -> T {
        let id = current.id.clone();
        self.context.store.read(move |c| read(c, &id)).await.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "{what} cannot be read");
            T::default()
        })
    }
}

/// Returns the last completed iteration.
fn last_ended(current: &Loop) -> Option<&Iteration> {
    current.retained_iterations().rev().find(|iteration| iteration.ended_at.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::knowledge::intelligence::SummarySoFar;

    #[test]
    fn update_for_a_resumed_session_has_its_share_of_the_block_budget() {
        let mut context = Context::default();
        context.history.summaries = (0..200)
            .map(|n| SummarySoFar { from: n, to: n, text: format!("Attempt {n} changed the parser in another place.") })
            .collect();
        context.history.reflections = (0..200).map(|n| format!("Case {n} needs a lookahead of its own.")).collect();
        context.history.decisions = (0..200).map(|n| format!("Keep rule {n} of the grammar as it is.")).collect();
        let inputs = PromptInputs { context: Some(context), ..PromptInputs::default() };
        let tokens = |most: u32, told: Option<&[String]>| {
            let settings = ContextSettings { max_output_tokens: most, ..ContextSettings::default() };
            inputs.block(&settings, ("claude", None), None, told).expect("a block").tokens
        };
        let few = tokens(100, Some(&[]));
        assert!(few > 50 && few <= 100, "{few}");
        let news = tokens(20_000, Some(&[]));
        assert!(news <= NEWS_TOKENS, "{news}");
        assert_eq!(news, tokens(10_000, Some(&[])));
    }
}
