//! The context block: what is known at this moment, in few tokens, recent failures and breakthroughs first.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Count;
use super::facts::{Fact, facts, session_line};
use super::job::{Job, JobKind};
use super::message::reported;
use super::middle::is_out_of_place;
use super::text;
use crate::domain::loops::{Iteration, Loop};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::task::AgentReport;
use crate::domain::report::{approach, outcome_words};

/// Facts that are tried once some did not fit, so that a short one can still find room.
const TRIED_AFTER_FULL: usize = 12;
/// Earlier iterations that are looked at.
const TRIES: usize = 50;

/// All that a context block can be made of. Every text may come from anywhere: it is made harmless on the way.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// How the loop stands.
    pub session: Session,
    /// What was done in it.
    pub history: History,
    /// What earlier loops learnt.
    pub recall: Vec<Learning>,
    /// What is known of the repository.
    pub project: Project,
    /// Share of the block, 0..1, that is kept for what is remembered (reflections, summaries, learnings), as control wants
    /// it; the rest is kept for how things stand. What one part does not need the other may have. `None`: by rank alone.
    pub memory_share: Option<f64>,
}

/// How a loop stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// Iteration under way, from 1.
    pub iteration: u32,
    /// Iterations that it may take.
    pub max_iterations: u32,
    /// Milliseconds that it has run.
    pub elapsed_ms: i64,
    /// Completion as measured, 0..1.
    pub completion: f64,
    /// Files that were changed, with how often.
    pub files: Vec<FileTouched>,
    /// Errors that came more than once or came last.
    pub errors: Vec<ErrorSeen>,
    /// Backend of the iteration under way; may be empty.
    pub backend: String,
    /// Its model; may be empty.
    pub model: String,
    /// Money spent.
    pub cost: Money,
    /// Tokens used, both ways.
    pub tokens: u64,
}

/// A file that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTouched {
    /// Its path.
    pub path: String,
    /// In how many iterations.
    pub times: u32,
}

/// An error that came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorSeen {
    /// Its words, normalised.
    pub text: String,
    /// In how many iterations.
    pub times: u32,
    /// In which one last.
    pub last: u32,
}

/// What was done in a loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// Summaries of chunks, oldest first.
    pub summaries: Vec<SummarySoFar>,
    /// Decisions that hold, oldest first.
    pub decisions: Vec<String>,
    /// Approaches tried, oldest first.
    pub tries: Vec<Try>,
    /// What iterations taught, oldest first.
    pub reflections: Vec<String>,
}

/// A summary of some iterations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummarySoFar {
    /// First iteration.
    pub from: u32,
    /// Last iteration.
    pub to: u32,
    /// What they came to.
    pub text: String,
}

/// An approach that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Try {
    /// In which iteration.
    pub iteration: u32,
    /// What was tried.
    pub approach: String,
    /// What came of it.
    pub outcome: String,
    /// By how much completion rose, -1..1.
    pub gain: f64,
}

/// Something that earlier loops learnt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Learning {
    /// Its id, so that its worth can be measured.
    pub id: String,
    /// What sort.
    pub kind: LearningKind,
    /// What.
    pub text: String,
    /// How sure it is, 0..1.
    pub confidence: f64,
}

/// Sorts of learnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearningKind {
    /// What worked.
    Strategy,
    /// What did not.
    Antipattern,
    /// How long it takes.
    Estimate,
    /// How people here work.
    Convention,
}

/// What is known of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Project {
    /// What AGENTS.md or CLAUDE.md says that matters here.
    pub guide: String,
    /// Outline of the tree.
    pub outline: String,
    /// How tests are run.
    pub tests: String,
    /// How it is built.
    pub build: String,
    /// Branch of the work.
    pub branch: String,
}

impl Context {
    /// What a loop itself knows; backend, model, summaries, reflections, learnings and project are the caller's to add.
    pub fn of(current: &Loop, now: Timestamp) -> Self {
        let done: Vec<_> = current.kept().filter(|i| i.ended_at.is_some()).collect();
        let done = &done[done.len().saturating_sub(TRIES)..];
        let mut session = Session {
            iteration: current.spent.iterations,
            max_iterations: current.limits.iterations,
            elapsed_ms: current.spent.time_at(now).max(0),
            completion: current.completion().get(),
            cost: current.spent.cost,
            tokens: current.spent.tokens_in.saturating_add(current.spent.tokens_out),
            ..Session::default()
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
                None => session.errors.push(ErrorSeen { text: error, times: 1, last: iteration.number }),
            }
        }
        session.files = files.into_iter().map(|(path, times)| FileTouched { path: path.clone(), times }).collect();
        let history = History { tries, ..History::default() };
        let memory_share = current.course.as_ref().map(|course| course.memory_share);
        Self { session, history, memory_share, ..Self::default() }
    }

    /// The block of at most so many tokens: the facts that matter most, in order of their sort.
    pub fn block(&self, tokens: usize, count: Count<'_>) -> Block {
        let mut facts = facts(self);
        facts.sort_by_key(|fact| fact.rank);
        let all = facts.len();
        let mut chosen = Chosen { facts: Vec::new(), used: 0, most: tokens, count };
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
            // Where joined lines come to more than their sum after all, the least important one goes.
            if block.tokens <= tokens || chosen.is_empty() {
                return block;
            }
            chosen.pop();
        }
    }
}

/// Facts that a block has room for.
struct Chosen<'a> {
    facts: Vec<Fact>,
    used: usize,
    most: usize,
    count: Count<'a>,
}

impl Chosen<'_> {
    /// Takes facts in their order, so many tokens of them; those that found no room.
    fn take(&mut self, facts: Vec<Fact>, room: usize) -> Vec<Fact> {
        let (mut left, mut taken) = (Vec::new(), 0);
        for fact in facts {
            if left.len() > TRIED_AFTER_FULL {
                left.push(fact);
                continue;
            }
            // A line feed may be a token of its own.
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

/// The text without the words by which the overseer's orders are known.
fn facts_only(text: &str) -> String {
    text.replace("OVERRIDE:", "override -").replace("WARNING:", "warning -")
}

/// What was tried, in the report's words or the last message's.
fn tried(iteration: &Iteration) -> String {
    let said = reported(iteration);
    match iteration.report == AgentReport::default() && !said.summary.is_empty() {
        true => said.summary,
        false => approach(iteration),
    }
}

/// A context block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Block {
    /// Its lines, without the tags around them.
    pub text: String,
    /// Tokens of the text.
    pub tokens: usize,
    /// Facts that found no room.
    pub left_out: usize,
    /// Ids of the learnings that it carries.
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

/// Tokens that the block may have: `most`, and at most `percent` (0..100) of the backend's context window where that is
/// known.
pub fn token_budget(most: usize, percent: f64, window: Option<u64>) -> usize {
    let share = if percent.is_finite() { (percent / 100.0).clamp(0.0, 1.0) } else { 0.0 };
    // A cast from a float saturates.
    window.map_or(most, |window| most.min((window as f64 * share) as usize))
}

/// A context block as a model writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Compressed {
    /// What the agent needs to know to go on, in short lines.
    pub context: String,
}

/// The question for a shorter context block.
#[derive(Clone)]
pub struct Compression<'a> {
    context: &'a Context,
    tokens: usize,
    count: Count<'a>,
}

/// Times the block's size that a model is given to choose from.
const SOURCE: usize = 6;

impl<'a> Compression<'a> {
    /// Of all that is known, to so many tokens.
    pub fn of(context: &'a Context, tokens: usize, count: Count<'a>) -> Self {
        Self { context, tokens, count }
    }

    /// The block of an answer. The line with the figures is the service's own, and learnings are not told apart in it: all
    /// that the question carried count as carried.
    pub fn block(&self, answer: &Compressed) -> Block {
        let source = self.context.block(self.tokens.saturating_mul(SOURCE), self.count);
        let text = facts_only(&format!("{}\n{}", session_line(&self.context.session), answer.context));
        Block { tokens: (self.count)(&text), text, left_out: 0, learnings: source.learnings }
    }
}

impl Job for Compression<'_> {
    type Answer = Compressed;

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
