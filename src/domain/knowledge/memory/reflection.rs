//! Reflections: what an iteration says to the next ones of its loop.

use serde::{Deserialize, Serialize};

use crate::domain::checks::criteria::TaskType;

/// Files, from which on a task counts as one over many files.
const MANY_FILES: usize = 6;
/// Longest text of one field, in characters.
const MAX_TEXT: usize = 400;

/// What became of the iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReflectionOutcome {
    /// All checks hold.
    Done,
    /// Completion rose.
    Better,
    /// Completion stayed.
    Same,
    /// Completion fell.
    Worse,
    /// The agent's run failed.
    AgentFailed,
}

/// What an iteration says to the next ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflection {
    /// The iteration, from 1.
    pub iteration: u32,
    /// What was tried.
    pub approach: String,
    /// What failed; empty where nothing did.
    pub failed: String,
    /// Why it failed.
    pub why: String,
    /// What to try next.
    pub next: String,
    /// What became of it.
    pub outcome: ReflectionOutcome,
}

/// What a reflection is made of where no model writes it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReflectionFacts {
    /// The iteration, from 1.
    pub iteration: u32,
    /// What was tried, in the agent's words; its summary where it named no approach.
    pub approach: String,
    /// Checks that fail.
    pub failing_checks: Vec<String>,
    /// Signature of the first error before it.
    pub error_before: Option<String>,
    /// Signature of the first error after it.
    pub error_after: Option<String>,
    /// What was in the way, in the agent's words.
    pub blockers: Vec<String>,
    /// What it meant to do next, in its words.
    pub next_steps: Vec<String>,
    /// How the agent's run failed.
    pub agent_failure: Option<String>,
    /// Measured completion before it, 0..1.
    pub completion_before: f64,
    /// Measured completion after it, 0..1.
    pub completion_after: f64,
}

impl Reflection {
    /// The reflection that the report and the checks give without a model.
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
            None if repeats => "the change did not reach the cause: the error is the same as before".to_owned(),
            None if outcome == ReflectionOutcome::Worse => "the change broke what held before".to_owned(),
            None if error.is_some() && facts.error_before.is_some() => "the first error is another one now".to_owned(),
            None => String::new(),
        };
        let next = match facts.next_steps.first() {
            // What it meant to do next was meant before it was seen that nothing changed.
            Some(_) if !repeats => facts.next_steps.join("; "),
            _ if repeats => "another approach: find out where the error comes from before changing more".to_owned(),
            _ if outcome == ReflectionOutcome::Worse => "undo what broke, then go on in smaller steps".to_owned(),
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
        }
    }

    /// It in one line, for a prompt.
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

    /// What it says of the iteration beside what became of it, in one line; empty where it says nothing.
    pub fn insight(&self) -> String {
        let parts = [&self.failed, &self.why, &self.next].map(|text| text.trim_end_matches('.'));
        parts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// How many of the newest reflections a prompt carries: fixes look back two iterations, refactoring and migration three,
/// work over many files five.
pub fn window(task_type: TaskType, files: usize) -> usize {
    match task_type {
        _ if files >= MANY_FILES => 5,
        TaskType::TestFix | TaskType::TypeErrors | TaskType::Lint | TaskType::Docs | TaskType::Dependency => 2,
        TaskType::Refactor | TaskType::Migration | TaskType::Coverage | TaskType::Other => 3,
        TaskType::Feature => 5,
    }
}

/// The newest `count`, oldest first.
pub fn latest(reflections: &[Reflection], count: usize) -> &[Reflection] {
    &reflections[reflections.len().saturating_sub(count)..]
}

fn cut(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => line[..at].trim_end().to_owned(),
        None => line,
    }
}
