//! Looks up the learnings, reflections and summaries that a prompt includes.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use ralph_types::failure::Failure;
use secrecy::SecretString;

use crate::clock::Clock;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::intelligence::{PromptLearning, SummarySoFar};
use crate::domain::knowledge::memory::{self, Content, LearningQuery, MemorySettings, Reflection};
use crate::domain::knowledge::session::SessionSummary;
use crate::domain::loops::{Loop, error_signature};
use crate::domain::model::ids::RepoRef;
use crate::domain::model::task::{CheckReport, DiffStat};
use crate::domain::trust::outbound::OutboundFilter;
use crate::embed::StaticModel;
use crate::engine::context::ServiceContext;
use crate::mcp;
use crate::store::memory::{self as store, vectors};
use crate::store::{Store, StoreError, session};

/// Maximum number of learnings that are embedded per call. The remaining ones follow with the next prompt or at the
/// daily maintenance.
const EMBEDDED: usize = 256;

/// Maximum number of changed files, and of files that failing checks name, in a query for learnings.
const PATHS: usize = 12;

/// Memory for the next prompt of a loop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptMemory {
    /// Learnings of earlier loops, most relevant first.
    pub learnings: Vec<PromptLearning>,
    /// Approaches that failed before, according to the learnings.
    pub failed: Vec<String>,
    /// Relevant reflections of the loop's latest iterations, oldest first.
    pub reflections: Vec<String>,
    /// Summaries of earlier ranges of iterations, oldest first.
    pub summaries: Vec<SummarySoFar>,
    /// Decisions in the summarized iterations that are still valid, oldest first.
    pub decisions: Vec<String>,
}

/// Memory of earlier loops and runs, for prompts and for the tools of agents.
pub struct Recall {
    pub(super) context: ServiceContext,
    /// Settings of memory.
    pub settings: MemorySettings,
    /// Embedding model for looking up learnings, in addition to full-text search.
    pub(super) embedder: Option<Arc<StaticModel>>,
    pub(super) outbound: OutboundFilter,
    /// Key from which the tokens of session memory servers are derived.
    pub(super) mcp_key: String,
}

impl Recall {
    /// Returns the memory for the current iteration; empty if memory is disabled. Parts that cannot be read are
    /// logged and left out.
    pub async fn prompt_memory(&self, current: &Loop) -> PromptMemory {
        let settings = &self.settings;
        if !settings.enabled {
            return PromptMemory::default();
        }
        let now = self.context.clock.now();
        let mut query = query(current);
        let situation = query.text.clone();
        if let Some(model) = &self.embedder {
            if let Err(error) = self.embed_learnings().await {
                tracing::warn!(loop_id = %current.id, %error, "could not embed learnings; lookup uses words only");
            }
            query.embedding = Some(model.embed(&query.text));
        }
        let learnings = store::recall(&self.context.store, query, settings.clone(), now).await;
        let learnings = learnings.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "could not look up learnings; the prompt has none");
            Vec::new()
        });
        let failed = learnings.iter().filter_map(|recalled| match &recalled.learning.content {
            Content::Antipattern { pattern, .. } => Some(pattern.clone()),
            _ => None,
        });
        let failed = failed.collect();
        let learnings = learnings.into_iter().map(|recalled| {
            let confidence = recalled.learning.confidence_at(now, settings);
            prompt_learning(recalled.learning, confidence)
        });
        let (summaries, decisions) = self.summaries(current).await;
        let learnings = learnings.collect();
        let reflections = self.reflections(current, &situation).await;
        PromptMemory { learnings, failed, reflections, summaries, decisions }
    }

    /// Embeds learnings that have no vector of the configured model, up to one batch. Returns their number.
    pub(super) async fn embed_learnings(&self) -> Result<usize, StoreError> {
        let Some(model) = self.embedder.clone() else { return Ok(0) };
        let name = model.name().to_owned();
        let missing = self.context.store.read(move |c| vectors::missing(c, &name, EMBEDDED)).await?;
        let count = missing.len();
        if count > 0 {
            let made = missing.into_iter().map(|one| (model.embed(&one.text), one)).map(|(vector, one)| (one, vector));
            let made: Vec<_> = made.collect();
            self.context.store.write(move |c| vectors::keep(c, &made)).await?;
        }
        Ok(count)
    }

    /// Returns the cosine of the embeddings of the task and of the running iteration's work, whose change is `stat`, -1..1;
    /// `None` without an embedding model, or if the model knows no word of one text.
    pub fn objective_cosine(&self, current: &Loop, stat: &DiffStat) -> Option<f64> {
        let model = self.embedder.as_ref()?;
        let texts = current.compared_texts(stat)?;
        model.embed(&texts.objective).cosine(&model.embed(&texts.work))
    }

    /// Records which learnings are in the prompt of an iteration, so that the iteration's outcome is attributed to
    /// them.
    pub async fn carried(&self, current: &Loop, iteration: u32, learnings: &[String]) {
        if learnings.is_empty() || !self.settings.enabled {
            return;
        }
        let (id, ids, now) = (current.id.clone(), learnings.to_vec(), self.context.clock.now());
        if let Err(error) = self.context.store.write(move |c| store::carried(c, &id, iteration, &ids, now)).await {
            tracing::warn!(loop_id = %current.id, iteration, %error, "could not record the learnings in the prompt");
        }
    }

    /// Returns the loop's summaries and the decisions that a model extracted from its iterations.
    async fn summaries(&self, current: &Loop) -> (Vec<SummarySoFar>, Vec<String>) {
        let id = current.id.clone();
        let read = self.context.store.read(move |c| session::summaries(c, &id, 0)).await;
        let found = read.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "could not read summaries; the prompt has none");
            Vec::new()
        });
        let decisions = found.iter().filter(|one| !one.extractive).flat_map(|one| one.decisions.clone()).collect();
        let summaries = found.into_iter().map(|SessionSummary { from, to, text, extractive, .. }| {
            // The first line of an extractive summary repeats its range of iterations.
            let text = if extractive { text.split_once('\n').map_or("", |(_, rest)| rest).to_owned() } else { text };
            SummarySoFar { from, to, text }
        });
        (summaries.filter(|one| !one.text.is_empty()).collect(), decisions)
    }

    /// Returns the reflections of retained iterations that are relevant to `situation`, limited to the window of the task
    /// type.
    async fn reflections(&self, current: &Loop, situation: &str) -> Vec<String> {
        let files: HashSet<&str> =
            current.retained_iterations().flat_map(|it| &it.stat.files).map(|file| file.path.as_str()).collect();
        let window = memory::window(current.task_type(), files.len());
        let (id, all) = (current.id.clone(), current.iterations.len());
        let read = self.context.store.read(move |c| store::reflections(c, &id, all)).await;
        let mut reflections: Vec<Reflection> = read.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "could not read reflections; the prompt has none");
            Vec::new()
        });
        reflections.retain(|one| current.retained_iterations().any(|iteration| iteration.number == one.iteration));
        memory::relevant(reflections, situation, window).iter().map(Reflection::line).collect()
    }

    /// Returns the session memory of a run; `None` if memory is disabled.
    pub(super) fn memory_of(&self, current: &Loop, run: &str) -> Option<mcp::Session> {
        if !self.settings.enabled {
            return None;
        }
        let token = mcp::Token::new(self.mcp_key.as_bytes(), &current.id, run);
        self.outbound.learn("the token of the session memory", &SecretString::from(token.as_str()));
        let learnings = RepositoryLearnings {
            store: self.context.store.clone(),
            settings: self.settings.clone(),
            embedder: self.embedder.clone(),
            clock: self.context.clock.clone(),
            repository: current.issue.repo.clone(),
            task_type: current.task_type(),
        };
        Some(mcp::Session {
            store: self.context.store.clone(),
            loop_id: current.id.clone(),
            token,
            learnings: self.settings.learns().then(|| Arc::new(learnings) as Arc<dyn mcp::Learnings>),
            answer_tokens: mcp::ANSWER_TOKENS,
            outbound: self.outbound.clone(),
            turn: Arc::default(),
        })
    }
}

fn prompt_learning(learning: memory::Learning, confidence: f64) -> PromptLearning {
    PromptLearning { kind: learning.kind(), text: learning.line(), confidence, id: learning.id }
}

/// Builds the query for learnings from the title, failing checks and their first errors, changed files, files that
/// failing checks name, and the task text. The text is last because long queries are cut.
fn query(current: &Loop) -> LearningQuery {
    let mut text = current.task.text.agent_title().to_owned();
    let outcomes = current.latest_checks().map_or(&[][..], |report| &report.outcomes);
    let failing = || outcomes.iter().filter(|outcome| !outcome.holds);
    for outcome in failing() {
        let error = error_signature(&CheckReport { outcomes: vec![outcome.clone()] });
        text.push_str(&format!("\n{} {}", outcome.name, error.unwrap_or_default()));
    }
    let changed = current.branch_stat().map_or(&[][..], |whole| &whole.files).iter().map(|file| file.path.as_str());
    let named = failing().flat_map(|outcome| memory::paths_in(&outcome.output, PATHS));
    for path in changed.take(PATHS).chain(named.take(PATHS)) {
        text.push('\n');
        text.push_str(path);
    }
    text.push_str(&format!("\n\n{}", current.task.text.agent_body()));
    LearningQuery { text, task_type: current.task_type(), repository: current.issue.repo.clone(), embedding: None }
}

/// Search over the learnings of a repository.
struct RepositoryLearnings {
    store: Store,
    settings: MemorySettings,
    embedder: Option<Arc<StaticModel>>,
    clock: Clock,
    repository: RepoRef,
    task_type: TaskType,
}

#[async_trait]
impl mcp::Learnings for RepositoryLearnings {
    async fn search(&self, query: &str) -> Result<Vec<String>, Failure> {
        let embedding = self.embedder.as_ref().map(|model| model.embed(query));
        let (task_type, repository) = (self.task_type, self.repository.clone());
        let query = LearningQuery { text: query.to_owned(), task_type, repository, embedding };
        let now = self.clock.now();
        let found = store::recall(&self.store, query, self.settings.clone(), now).await;
        let found = found.map_err(|error| Failure::new("cannot read the memory now").caused_by(error))?;
        Ok(found.into_iter().map(|recalled| recalled.learning.line()).collect())
    }
}
