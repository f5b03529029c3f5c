//! Sources of a context block: the loop's state and history, learnings of earlier loops, and facts about the repository.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::knowledge::agent_message::reported;
use crate::domain::knowledge::memory::LearningKind;
use crate::domain::loops::{Iteration, Loop};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::quantity::IterationLimit;
use crate::domain::model::task::AgentReport;
use crate::domain::report::{approach, outcome_words};

/// Maximum number of earlier iterations to consider.
const TRIES: usize = 50;

/// Sources of a context block. Texts may be untrusted; they are sanitized before use.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// State of the loop.
    pub session: LoopProgress,
    /// History of the loop.
    pub history: History,
    /// Learnings of earlier loops.
    pub recall: Vec<PromptLearning>,
    /// Facts about the repository.
    pub project: Project,
    /// Share of the block reserved for memory (reflections, summaries, learnings), 0..1, as determined by control. The rest
    /// is reserved for the loop's state. Each part can use the other's unused space. `None` selects facts by rank only.
    pub memory_share: Option<f64>,
}

/// State of a loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopProgress {
    /// 1-based current iteration.
    pub iteration: u32,
    /// Maximum number of iterations.
    pub max_iterations: IterationLimit,
    /// Running time, in milliseconds.
    pub elapsed_ms: i64,
    /// Measured completion, 0..1.
    pub completion: f64,
    /// Changed files with their counts.
    pub files: Vec<FileTouched>,
    /// Errors that occurred repeatedly or in the last iteration.
    pub errors: Vec<RecurringError>,
    /// Backend of the current iteration; may be empty.
    pub backend: String,
    /// Model; may be empty.
    pub model: String,
    /// Cost so far.
    pub cost: Money,
    /// Sum of input and output tokens so far.
    pub tokens: u64,
}

/// Changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTouched {
    /// Path of the file.
    pub path: String,
    /// Number of iterations that changed the file.
    pub times: u32,
}

/// Error that occurred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecurringError {
    /// Normalized text.
    pub text: String,
    /// Number of iterations in which the error occurred.
    pub times: u32,
    /// Last iteration in which the error occurred.
    pub last: u32,
}

/// History of a loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// Summaries of iterations, oldest first.
    pub summaries: Vec<SummarySoFar>,
    /// Valid decisions, oldest first.
    pub decisions: Vec<String>,
    /// Attempted approaches, oldest first.
    pub tries: Vec<Try>,
    /// Reflections on iterations, oldest first.
    pub reflections: Vec<String>,
}

/// Summary of consecutive iterations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummarySoFar {
    /// First iteration.
    pub from: u32,
    /// Last iteration.
    pub to: u32,
    /// Text of the summary.
    pub text: String,
}

/// Attempted approach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Try {
    /// Iteration of the attempt.
    pub iteration: u32,
    /// Approach of the attempt.
    pub approach: String,
    /// Outcome of the attempt.
    pub outcome: String,
    /// Change of completion due to the approach, -1..1.
    pub gain: f64,
}

/// Learning of earlier loops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptLearning {
    /// Id of the learning, used to measure its effect.
    pub id: String,
    /// Kind of the learning.
    pub kind: LearningKind,
    /// Text of the learning.
    pub text: String,
    /// Confidence, 0..1.
    pub confidence: f64,
}

/// Facts about a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Project {
    /// Relevant parts of AGENTS.md or CLAUDE.md.
    pub guide: String,
    /// Outline of the tree.
    pub outline: String,
    /// Command for tests.
    pub tests: String,
    /// Command for builds.
    pub build: String,
    /// Working branch.
    pub branch: String,
}

impl Context {
    /// Collects the sources in the loop itself. The caller adds backend, model, summaries, reflections, learnings and
    /// project.
    pub fn of(current: &Loop, now: Timestamp) -> Self {
        let done: Vec<_> = current.retained_iterations().filter(|i| i.ended_at.is_some()).collect();
        let done = &done[done.len().saturating_sub(TRIES)..];
        let mut session = LoopProgress {
            iteration: current.spent.iterations,
            max_iterations: current.limits.iterations,
            elapsed_ms: current.spent.time_at(now).max(0),
            completion: current.completion().get(),
            cost: current.spent.cost,
            tokens: current.spent.tokens_in.saturating_add(current.spent.tokens_out),
            ..LoopProgress::default()
        };
        let start = current.checks.completion_at_start().get();
        let mut before = start;
        let mut files: BTreeMap<&String, u32> = BTreeMap::new();
        let mut tries = Vec::with_capacity(done.len());
        let by_present_checks = done.iter().position(|i| i.number > current.checks.measured_after);
        for (at, iteration) in done.iter().enumerate() {
            if by_present_checks == Some(at) {
                before = start;
            }
            let completion = iteration.completion.get();
            tries.push(Try {
                iteration: iteration.number,
                approach: tried(iteration),
                outcome: outcome_words(iteration),
                gain: completion - before,
            });
            before = completion;
            for file in &iteration.stat.files {
                *files.entry(&file.path).or_default() += 1;
            }
            let Some(error) = iteration.record.as_ref().and_then(|record| record.error_signature.clone()) else {
                continue;
            };
            match session.errors.iter_mut().find(|known| known.text == error) {
                Some(known) => (known.times, known.last) = (known.times + 1, iteration.number),
                None => session.errors.push(RecurringError { text: error, times: 1, last: iteration.number }),
            }
        }
        session.files = files.into_iter().map(|(path, times)| FileTouched { path: path.clone(), times }).collect();
        let history = History { tries, ..History::default() };
        let memory_share = current.supervision.course.as_ref().map(|course| course.memory_share);
        Self { session, history, memory_share, ..Self::default() }
    }
}

/// Returns the approach of an iteration, from its report or its last message.
fn tried(iteration: &Iteration) -> String {
    let report = reported(iteration);
    match iteration.report == AgentReport::default() && !report.summary.is_empty() {
        true => report.summary,
        false => approach(iteration),
    }
}
