//! Context block: known facts within a token budget, recent failures and breakthroughs first.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Count;
use super::facts::{Fact, facts, session_line};
use super::job::{AssistantJob, JobKind};
use super::message::reported;
use super::model_advice::is_out_of_place;
use super::text;
use crate::domain::knowledge::memory::LearningKind;
use crate::domain::loops::{Iteration, Loop};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::task::AgentReport;
use crate::domain::report::{approach, outcome_words};

/// Number of further facts that are tried once one did not fit, as a short one may.
const TRIED_AFTER_FULL: usize = 12;
/// Maximum number of earlier iterations considered.
const TRIES: usize = 50;

/// Sources of a context block. Texts may be untrusted; they are sanitized when used.
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
    /// Share of the block reserved for memory (reflections, summaries, learnings), 0..1, as control requests it; the
    /// rest is reserved for the state of the loop. Unused parts are shared. `None` selects by rank only.
    pub memory_share: Option<f64>,
}

/// State of a loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopProgress {
    /// 1-based current iteration.
    pub iteration: u32,
    /// Maximum number of iterations.
    pub max_iterations: u32,
    /// Running time, in milliseconds.
    pub elapsed_ms: i64,
    /// Measured completion, 0..1.
    pub completion: f64,
    /// Changed files with their counts.
    pub files: Vec<FileTouched>,
    /// Errors that occurred repeatedly or last.
    pub errors: Vec<RecurringError>,
    /// Backend of the current iteration; may be empty.
    pub backend: String,
    /// Model; may be empty.
    pub model: String,
    /// Cost so far.
    pub cost: Money,
    /// Input and output tokens so far.
    pub tokens: u64,
}

/// Changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTouched {
    /// Path.
    pub path: String,
    /// Number of iterations that changed it.
    pub times: u32,
}

/// Error that occurred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecurringError {
    /// Normalised text.
    pub text: String,
    /// Number of iterations with it.
    pub times: u32,
    /// Last iteration with it.
    pub last: u32,
}

/// History of a loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// Summaries of iterations, oldest first.
    pub summaries: Vec<SummarySoFar>,
    /// Current decisions, oldest first.
    pub decisions: Vec<String>,
    /// Attempted approaches, oldest first.
    pub tries: Vec<Try>,
    /// Reflections on iterations, oldest first.
    pub reflections: Vec<String>,
}

/// Summary of iterations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummarySoFar {
    /// First iteration.
    pub from: u32,
    /// Last iteration.
    pub to: u32,
    /// Text.
    pub text: String,
}

/// Attempted approach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Try {
    /// Iteration.
    pub iteration: u32,
    /// Approach.
    pub approach: String,
    /// Outcome.
    pub outcome: String,
    /// Change of completion, -1..1.
    pub gain: f64,
}

/// Learning of earlier loops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptLearning {
    /// Id, for measuring its effect.
    pub id: String,
    /// Kind.
    pub kind: LearningKind,
    /// Text.
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
    /// Branch of the work.
    pub branch: String,
}

impl Context {
    /// Sources that the loop itself provides; the caller adds backend, model, summaries, reflections, learnings and
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
        let start = current.completion_at_start().get();
        let mut before = start;
        let mut files: BTreeMap<&String, u32> = BTreeMap::new();
        let mut tries = Vec::with_capacity(done.len());
        let by_present_checks = done.iter().position(|i| i.number > current.measured_after);
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
        let memory_share = current.course.as_ref().map(|course| course.memory_share);
        Self { session, history, memory_share, ..Self::default() }
    }

    /// Builds the block with at most `tokens` tokens: the most important facts, ordered by kind.
    pub fn block(&self, tokens: usize, count: Count<'_>) -> Block {
        let mut facts = facts(self);
        facts.sort_by_key(|fact| fact.rank);
        let all = facts.len();
        let mut chosen = SelectedFacts { facts: Vec::new(), used: 0, most: tokens, count };
        let left = match self.memory_share.filter(|share| share.is_finite()) {
            Some(share) => {
                let (memory, mut rest): (Vec<_>, Vec<_>) = facts.into_iter().partition(|fact| fact.sort.is_memory());
                // The line with the figures is in every block that has room for it.
                chosen.take(rest.drain(..1.min(rest.len())).collect(), tokens);
                let room = tokens - chosen.used;
                let kept = (room as f64 * share.clamp(0.0, 1.0)) as usize;
                let mut left = chosen.take(rest, room - kept);
                left.extend(chosen.take(memory, kept));
                left.sort_by_key(|fact| fact.rank);
                left
            }
            None => facts,
        };
        chosen.take(left, tokens);
        let mut chosen = chosen.facts;
        chosen.sort_by_key(|fact| fact.rank);
        loop {
            let block = Block::of(&chosen, all, count);
            // If the joined lines exceed the sum of their counts, the least important line is removed.
            if block.tokens <= tokens || chosen.is_empty() {
                return block;
            }
            chosen.pop();
        }
    }
}

/// Facts selected for a block.
struct SelectedFacts<'a> {
    facts: Vec<Fact>,
    used: usize,
    most: usize,
    count: Count<'a>,
}

impl SelectedFacts<'_> {
    /// Adds facts in order within `room` tokens; returns those that did not fit.
    fn take(&mut self, facts: Vec<Fact>, room: usize) -> Vec<Fact> {
        let (mut left, mut taken) = (Vec::new(), 0);
        for fact in facts {
            if left.len() > TRIED_AFTER_FULL {
                left.push(fact);
                continue;
            }
            // A line feed may be a token.
            let size = (self.count)(&fact.text) + 1;
            if taken + size <= room && self.used + size <= self.most {
                (taken, self.used) = (taken + size, self.used + size);
                self.facts.push(fact);
            } else {
                left.push(fact);
            }
        }
        left
    }
}

/// Returns the text without prefixes that mark the overseer's directives.
fn facts_only(text: &str) -> String {
    text.replace("OVERRIDE:", "override -").replace("WARNING:", "warning -")
}

/// Approach of an iteration, from its report or its last message.
fn tried(iteration: &Iteration) -> String {
    let said = reported(iteration);
    match iteration.report == AgentReport::default() && !said.summary.is_empty() {
        true => said.summary,
        false => approach(iteration),
    }
}

/// Context block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Block {
    /// Lines, without the surrounding tags.
    pub text: String,
    /// Number of tokens.
    pub tokens: usize,
    /// Number of facts that did not fit.
    pub left_out: usize,
    /// Ids of the learnings in it.
    pub learnings: Vec<String>,
}

impl Block {
    fn of(chosen: &[Fact], all: usize, count: Count<'_>) -> Self {
        let mut shown: Vec<&Fact> = chosen.iter().collect();
        shown.sort_by_key(|fact| (fact.sort, fact.rank));
        let text = facts_only(&shown.iter().map(|fact| fact.text.as_str()).collect::<Vec<_>>().join("\n"));
        let learnings = shown.iter().filter_map(|fact| fact.learning.clone()).collect();
        Self { tokens: count(&text), text, left_out: all - chosen.len(), learnings }
    }
}

/// Token budget of the block: `most`, and at most `percent` (0..100) of the backend's context window if known.
pub fn token_budget(most: usize, percent: f64, window: Option<u64>) -> usize {
    let share = if percent.is_finite() { (percent / 100.0).clamp(0.0, 1.0) } else { 0.0 };
    // Casts from floats saturate.
    window.map_or(most, |window| most.min((window as f64 * share) as usize))
}

/// Context block written by a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Compressed {
    /// Facts that the agent needs to continue, in short lines.
    pub context: String,
}

/// Question for a shorter context block.
#[derive(Clone)]
pub struct Compression<'a> {
    context: &'a Context,
    tokens: usize,
    count: Count<'a>,
}

/// Size of the source that a model gets, as a multiple of the block's size.
const SOURCE: usize = 6;

impl<'a> Compression<'a> {
    /// Question to shorten all known facts to `tokens` tokens.
    pub fn of(context: &'a Context, tokens: usize, count: Count<'a>) -> Self {
        Self { context, tokens, count }
    }

    /// Builds the block from an answer. The service adds the line with the figures. All learnings in the question
    /// count as carried, as they cannot be told apart in the answer.
    pub fn block(&self, answer: &Compressed) -> Block {
        let source = self.context.block(self.tokens.saturating_mul(SOURCE), self.count);
        let text = facts_only(&format!("{}\n{}", session_line(&self.context.session), answer.context));
        Block { tokens: (self.count)(&text), text, left_out: 0, learnings: source.learnings }
    }
}

impl AssistantJob for Compression<'_> {
    type Output = Compressed;

    const KIND: JobKind = JobKind::Context;

    fn question(&self, nonce: &str) -> String {
        let tokens = self.tokens.saturating_sub((self.count)(&session_line(&self.context.session)) + 1);
        let mut out = format!(
            "Given this state and history, write a concise context block for iteration {} of a coding agent: what it needs \
             to continue well, in short lines, recent failures and breakthroughs first. At most {tokens} tokens. Facts \
             only, no orders; keep names of files and errors as they are; make nothing up.\n\n",
            self.context.session.iteration
        );
        let source = self.context.block(self.tokens.saturating_mul(SOURCE), self.count);
        text::frame(&mut out, nonce, "state and history", &source.text);
        out
    }

    fn checked(&self, answer: Compressed) -> Result<Compressed, String> {
        let lines = answer.context.lines().map(|line| text::line(line, 400));
        let kept = lines.filter(|line| !line.is_empty() && !is_out_of_place(line));
        let context = kept.collect::<Vec<_>>().join("\n");
        if context.is_empty() {
            return Err("nothing of `context` can be used: it has to hold facts, and no orders".to_owned());
        }
        let answer = Compressed { context };
        let tokens = self.block(&answer).tokens;
        if tokens > self.tokens {
            return Err(format!("it comes to {tokens} tokens, at most {} are allowed", self.tokens));
        }
        Ok(answer)
    }
}
