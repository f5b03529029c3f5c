//! What a prompt carries of earlier loops and iterations.

use std::collections::HashSet;

use super::Engine;
use crate::domain::knowledge::intelligence::{PromptLearning, SummarySoFar};
use crate::domain::knowledge::memory::{self, Content, LearningQuery, Reflection};
use crate::domain::knowledge::session::SessionSummary;
use crate::domain::loops::{Loop, error_signature};
use crate::domain::model::task::CheckReport;
use crate::domain::trust::sanitize;
use crate::store::memory::{self as store, vectors};
use crate::store::{StoreError, session};

/// Learnings that get their vectors in one round; the rest have their turn with the next prompt, or in the daily look.
const EMBEDDED: usize = 256;

/// Most changed files, and most that failing checks name, that learnings are looked up by.
const PATHS: usize = 12;

/// What is remembered for the next prompt of a loop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recalled {
    /// What earlier loops learnt, best first.
    pub learnings: Vec<PromptLearning>,
    /// Approaches that they say failed.
    pub failed: Vec<String>,
    /// What the loop's newest iterations said to the next ones, oldest first.
    pub reflections: Vec<String>,
    /// What earlier stretches of the loop came to, oldest first.
    pub summaries: Vec<SummarySoFar>,
    /// What was decided in them and still holds, oldest first.
    pub decisions: Vec<String>,
}

impl Engine {
    /// What is remembered for the iteration under way; nothing where memory is off. What cannot be read is told in the log
    /// and left out.
    pub async fn recall(&self, current: &Loop) -> Recalled {
        let settings = &self.settings.memory;
        if !settings.enabled {
            return Recalled::default();
        }
        let now = self.clock.now();
        let mut query = query(current);
        if let Some(model) = &self.settings.embedder {
            if let Err(error) = self.embed_learnings().await {
                tracing::warn!(loop_id = %current.id, %error, "learnings could not be given their vectors");
            }
            query.embedding = Some(model.embed(&query.text));
        }
        let learnings = store::recall(&self.store, query, settings.clone(), now).await;
        let learnings = learnings.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "what was learnt cannot be looked up");
            Vec::new()
        });
        let failed = learnings.iter().filter_map(|recalled| match &recalled.learning.content {
            Content::Antipattern { pattern, .. } => Some(pattern.clone()),
            _ => None,
        });
        let failed = failed.collect();
        let learnings = learnings.into_iter().map(|recalled| {
            let confidence = recalled.learning.confidence_at(now, settings);
            told(recalled.learning, confidence)
        });
        let (summaries, decisions) = self.summaries(current).await;
        let learnings = learnings.collect();
        Recalled { learnings, failed, reflections: self.reflections(current).await, summaries, decisions }
    }

    /// Gives learnings without one a vector of the configured model, as many as one round takes; how many there were.
    pub(super) async fn embed_learnings(&self) -> Result<usize, StoreError> {
        let Some(model) = self.settings.embedder.clone() else { return Ok(0) };
        let name = model.name().to_owned();
        let missing = self.store.read(move |c| vectors::missing(c, &name, EMBEDDED)).await?;
        let count = missing.len();
        if count > 0 {
            let made = missing.into_iter().map(|one| (model.embed(&one.text), one)).map(|(vector, one)| (one, vector));
            let made: Vec<_> = made.collect();
            self.store.write(move |c| vectors::keep(c, &made)).await?;
        }
        Ok(count)
    }

    /// Notes which learnings the prompt of an iteration carries, so that they get what comes of it.
    pub async fn carried(&self, current: &Loop, iteration: u32, learnings: &[String]) {
        if learnings.is_empty() || !self.settings.memory.enabled {
            return;
        }
        let (id, ids, now) = (current.id.clone(), learnings.to_vec(), self.clock.now());
        if let Err(error) = self.store.write(move |c| store::carried(c, &id, iteration, &ids, now)).await {
            tracing::warn!(loop_id = %current.id, iteration, %error, "what the prompt carries could not be noted");
        }
    }

    /// The loop's summaries, and the decisions that a model found in its iterations.
    async fn summaries(&self, current: &Loop) -> (Vec<SummarySoFar>, Vec<String>) {
        let id = current.id.clone();
        let read = self.store.read(move |c| session::summaries(c, &id, 0)).await;
        let found = read.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "summaries cannot be read");
            Vec::new()
        });
        let decisions = found.iter().filter(|one| !one.extractive).flat_map(|one| one.decisions.clone()).collect();
        let told = found.into_iter().map(|SessionSummary { from, to, text, extractive, .. }| {
            // The first line of one that was put together says again which iterations it is of.
            let text = if extractive { text.split_once('\n').map_or("", |(_, rest)| rest).to_owned() } else { text };
            SummarySoFar { from, to, text }
        });
        (told.filter(|one| !one.text.is_empty()).collect(), decisions)
    }

    /// Reflections of the iterations that count, as many as the task's sort looks back.
    async fn reflections(&self, current: &Loop) -> Vec<String> {
        let files: HashSet<&str> =
            current.kept().flat_map(|it| &it.stat.files).map(|file| file.path.as_str()).collect();
        let window = memory::window(current.task_type(), files.len());
        let (id, all) = (current.id.clone(), current.iterations.len());
        let read = self.store.read(move |c| store::reflections(c, &id, all)).await;
        let mut reflections: Vec<Reflection> = read.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "reflections cannot be read");
            Vec::new()
        });
        reflections.retain(|one| current.kept().any(|iteration| iteration.number == one.iteration));
        memory::latest(&reflections, window).iter().map(Reflection::line).collect()
    }
}

fn told(learning: memory::Learning, confidence: f64) -> PromptLearning {
    PromptLearning { kind: learning.kind(), text: learning.line(), confidence, id: learning.id }
}

/// What a loop's task is looked up by: its title, the checks that fail and their first errors, the files that were changed
/// or that failing checks name, and its text. Of a long text the end is not looked at, so it comes last.
fn query(current: &Loop) -> LearningQuery {
    let clean = |text: &str| sanitize::for_prompt(text).text;
    let mut text = clean(&current.task.title);
    let outcomes = current.latest_checks().map_or(&[][..], |report| &report.outcomes);
    let failing = || outcomes.iter().filter(|outcome| !outcome.holds);
    for outcome in failing() {
        let error = error_signature(&CheckReport { outcomes: vec![outcome.clone()] });
        text.push_str(&format!("\n{} {}", outcome.name, error.unwrap_or_default()));
    }
    let changed = current.whole().map_or(&[][..], |whole| &whole.files).iter().map(|file| file.path.as_str());
    let named = failing().flat_map(|outcome| memory::paths_in(&outcome.output, PATHS));
    for path in changed.take(PATHS).chain(named.take(PATHS)) {
        text.push('\n');
        text.push_str(path);
    }
    text.push_str(&format!("\n\n{}", clean(&current.task.body)));
    LearningQuery { text, task_type: current.task_type(), repository: current.place.repo.clone(), embedding: None }
}
