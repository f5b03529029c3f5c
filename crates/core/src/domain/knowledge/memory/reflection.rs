//! Reflections: conclusions from an iteration for later iterations of the same loop.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::checks::criteria::TaskType;
use crate::domain::model::similarity::{Rarity, WordCounts};

/// Minimum number of changed files for including more reflections in a prompt.
const MANY_FILES: usize = 6;
/// Minimum similarity of a relevant reflection, relative to the most similar one.
const RELEVANT_SHARE: f64 = 0.25;
/// Maximum length of one field, in characters.
const MAX_TEXT: usize = 400;

/// Outcome of an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReflectionOutcome {
    /// All checks pass.
    Done,
    /// Completion rose.
    Better,
    /// Completion did not change.
    Same,
    /// Completion fell.
    Worse,
    /// The agent's run failed.
    AgentFailed,
}

/// Reflection on an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflection {
    /// 1-based iteration.
    pub iteration: u32,
    /// Approach of the reflection.
    pub approach: String,
    /// Failure; empty if there was none.
    pub failed: String,
    /// Cause of the failure.
    pub why: String,
    /// Next step.
    pub next: String,
    /// Outcome of the reflection.
    pub outcome: ReflectionOutcome,
    /// Person who edited the reflection; `None` if it is unedited.
    #[serde(default)]
    pub edited_by: Option<String>,
}

/// Change of a reflection by a person. `None` keeps a text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReflectionChange {
    /// Approach.
    pub approach: Option<String>,
    /// Failure.
    pub failed: Option<String>,
    /// Cause of the failure.
    pub why: Option<String>,
    /// Next step.
    pub next: Option<String>,
}

/// Facts for a reflection without a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReflectionFacts {
    /// 1-based iteration.
    pub iteration: u32,
    /// Approach stated by the agent, or its summary.
    pub approach: String,
    /// Names of failing checks.
    pub failing_checks: Vec<String>,
    /// Signature of the first error before the iteration.
    pub error_before: Option<String>,
    /// Signature of the first error after the iteration.
    pub error_after: Option<String>,
    /// Blockers reported by the agent.
    pub blockers: Vec<String>,
    /// Next steps reported by the agent.
    pub next_steps: Vec<String>,
    /// Error of the agent's run.
    pub agent_failure: Option<String>,
    /// Measured completion before the iteration, 0..1.
    pub completion_before: f64,
    /// Measured completion after the iteration, 0..1.
    pub completion_after: f64,
}

impl Reflection {
    /// Creates a reflection from the report and the checks, without a model.
    pub fn of(facts: &ReflectionFacts) -> Self {
        let gain = facts.completion_after - facts.completion_before;
        let outcome = match () {
            () if facts.agent_failure.is_some() => ReflectionOutcome::AgentFailed,
            () if facts.completion_after >= 1.0 => ReflectionOutcome::Done,
            () if gain > 0.0 => ReflectionOutcome::Better,
            () if gain < 0.0 => ReflectionOutcome::Worse,
            () => ReflectionOutcome::Same,
        };
        let error = facts.error_after.as_deref().filter(|error| !error.is_empty());
        let repeats = error.is_some() && facts.error_after == facts.error_before;
        let failed = match (&facts.agent_failure, error) {
            (Some(failure), _) => format!("the agent's run failed: {failure}"),
            (None, Some(error)) => error.to_owned(),
            (None, None) if facts.failing_checks.is_empty() => String::new(),
            (None, None) => format!("failing: {}", facts.failing_checks.join(", ")),
        };
        let why = match facts.blockers.first() {
            Some(_) => facts.blockers.join("; "),
            None if repeats => "the change did not fix the cause: the error is the same as before".to_owned(),
            None if outcome == ReflectionOutcome::Worse => "the change broke something that worked before".to_owned(),
            None if error.is_some() && facts.error_before.is_some() => {
                "the first error is a different one now".to_owned()
            }
            None => String::new(),
        };
        let next = match facts.next_steps.first() {
            // The agent planned its next step before the checks showed no change.
            Some(_) if !repeats => facts.next_steps.join("; "),
            _ if repeats => "another approach: find out where the error comes from before changing more".to_owned(),
            _ if outcome == ReflectionOutcome::Worse => "revert what broke, then continue in smaller steps".to_owned(),
            _ if failed.is_empty() => String::new(),
            _ => format!("deal with: {failed}"),
        };
        Self {
            iteration: facts.iteration,
            approach: cut(&facts.approach),
            failed: cut(&failed),
            why: cut(&why),
            next: cut(&next),
            outcome,
            edited_by: None,
        }
    }

    /// Returns the reflection after a change by a person. Texts are cut to 400 characters.
    #[must_use]
    pub fn changed(self, change: &ReflectionChange, by: &str) -> Self {
        let changed = |old: String, new: &Option<String>| new.as_deref().map_or(old, cut);
        Self {
            approach: changed(self.approach, &change.approach),
            failed: changed(self.failed, &change.failed),
            why: changed(self.why, &change.why),
            next: changed(self.next, &change.next),
            edited_by: Some(by.to_owned()),
            ..self
        }
    }

    /// Describes the reflection in one line for a prompt.
    pub fn line(&self) -> String {
        let what = match self.outcome {
            ReflectionOutcome::Done => "every check held",
            ReflectionOutcome::Better => "completion rose",
            ReflectionOutcome::Same => "completion stayed",
            ReflectionOutcome::Worse => "completion fell",
            ReflectionOutcome::AgentFailed => "the run failed",
        };
        let mut line = format!("iteration {}: {what}", self.iteration);
        let parts = [("tried", &self.approach), ("failed", &self.failed), ("why", &self.why), ("next", &self.next)];
        for (name, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
            line.push_str(&format!("; {name}: {}", text.trim_end_matches('.')));
        }
        line
    }

    /// Returns all texts, for comparisons.
    fn text(&self) -> String {
        [&self.approach, &self.failed, &self.why, &self.next].map(String::as_str).join(" ")
    }

    /// Returns the conclusion without the outcome, in one line; empty if there is none.
    pub fn insight(&self) -> String {
        let parts = [&self.failed, &self.why, &self.next].map(|text| text.trim_end_matches('.'));
        parts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// Returns the number of newest reflections for a prompt: two for fixes, three for refactoring and migration, five for work on
/// many files.
pub fn window(task_type: TaskType, files: usize) -> usize {
    match task_type {
        _ if files >= MANY_FILES => 5,
        TaskType::TestFix | TaskType::TypeErrors | TaskType::Lint | TaskType::Docs | TaskType::Dependency => 2,
        TaskType::Refactor | TaskType::Migration | TaskType::Coverage | TaskType::Other => 3,
        TaskType::Feature => 5,
    }
}

/// Returns the newest `count` reflections that are relevant to `situation`: the task, its failing checks and its files.
/// Oldest first.
///
/// A reflection is relevant if its similarity to the situation is at least a quarter of the most similar reflection's. The
/// newest reflection is always relevant, because it describes the current state. If no reflection shares a word with the
/// situation, for example because the languages differ, all are relevant.
pub fn relevant(reflections: Vec<Reflection>, situation: &str, count: usize) -> Vec<Reflection> {
    let words: Vec<WordCounts> = reflections.iter().map(|one| WordCounts::of(&one.text())).collect();
    let rarity = Rarity::among(&words);
    let situation = WordCounts::of(situation);
    let similarities: Vec<f64> = words.iter().map(|words| rarity.cosine(words, &situation)).collect();
    let least = RELEVANT_SHARE * similarities.iter().copied().fold(0.0, f64::max);
    let last = reflections.len().saturating_sub(1);
    let rated = reflections.into_iter().zip(similarities).enumerate();
    let relevant = rated.filter(|(at, (_, similarity))| *at == last || *similarity >= least);
    let mut relevant: Vec<Reflection> = relevant.map(|(_, (reflection, _))| reflection).collect();
    relevant.drain(..relevant.len().saturating_sub(count));
    relevant
}

fn cut(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => line[..at].trim_end().to_owned(),
        None => line,
    }
}
