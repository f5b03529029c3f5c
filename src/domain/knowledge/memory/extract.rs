//! What an iteration, and the end of a loop, teach.
//!
//! Callers give facts that the service measured, words of the loop's own agent, and words of maintainers. Text of outsiders
//! has no place here: it would come back in the prompts of other loops.

use super::learning::{ASKED_FOR, Content, Learning, Source, State};
use super::merge::{estimate_confidence, promote};
use super::settings::MemorySettings;
use super::worth::{Evidence, MIN_GAIN};
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::dispersion::Dispersion;
use crate::domain::model::ids::{LoopId, Money, RepoRef, Timestamp};

/// Confidence in an approach that raised completion.
const HELPED: f64 = 0.7;
/// Confidence in an approach that led to work which verified, or was merged.
const VERIFIED: f64 = 0.9;
/// Confidence in an approach that failed being one.
const FAILED: f64 = 0.7;
/// Completion from which on an iteration that verified is a success.
const DONE: f64 = 0.9;
/// Confidence in a rule: told to be remembered, told in passing.
const TOLD: f64 = 0.95;
const MENTIONED: f64 = 0.7;

/// An approach that the overseer had given up, and what it said to do instead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redirected {
    /// What did not work.
    pub from: String,
    /// What was to be tried; empty where that was not said.
    pub to: String,
}

/// What is known of an iteration that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct IterationFacts {
    /// Its loop.
    pub loop_id: LoopId,
    /// Its number, from 1.
    pub iteration: u32,
    /// Where it was.
    pub repository: RepoRef,
    /// Sort of the loop's task.
    pub task_type: TaskType,
    /// Words to find it by: changed paths, the task's words where their author is trusted.
    pub about: String,
    /// What was tried, in the agent's words.
    pub approach: String,
    /// Tools that were used, in order, each once.
    pub tools: Vec<String>,
    /// How the trouble was resolved and what was learnt, in the agent's words.
    pub resolution: Vec<String>,
    /// Measured completion before it, 0..1.
    pub completion_before: f64,
    /// Measured completion after it, 0..1.
    pub completion_after: f64,
    /// Signature of the first error before it.
    pub error_before: Option<String>,
    /// Signature of the first error after it.
    pub error_after: Option<String>,
    /// Whether it verified in a fresh checkout.
    pub verified: bool,
    /// Whether checks were weakened; such an iteration teaches nothing good.
    pub tampered: bool,
    /// Whether the agent's run itself failed (limit, crash); such an iteration says nothing about its approach.
    pub agent_failed: bool,
    /// The REDIRECT that followed it.
    pub redirected: Option<Redirected>,
}

impl IterationFacts {
    /// Whether it gained anything: completion rose, or the work verified.
    pub fn gained(&self) -> bool {
        self.verified || self.completion_after - self.completion_before >= MIN_GAIN
    }
}

/// How a loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its pull request was merged.
    Merged,
    /// Its work verified, and nothing is known of a merge.
    Verified,
    /// Its pull request was closed unmerged.
    ClosedUnmerged,
    /// It came to nothing.
    Failed,
    /// People ended it for reasons of their own; nothing follows from that.
    Stopped,
}

/// A review comment of a maintainer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// What it says.
    pub text: String,
    /// Whether it asks for a change.
    pub asks_for_change: bool,
}

/// What is known of a loop that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopFacts {
    /// Its id.
    pub loop_id: LoopId,
    /// Where it was.
    pub repository: RepoRef,
    /// Sort of its task.
    pub task_type: TaskType,
    /// Words to find it by, as in [`IterationFacts`].
    pub about: String,
    /// How it ended.
    pub ended: Ended,
    /// Approach of the iteration whose work it ended with; empty where unknown.
    pub approach: String,
    /// Tools of that iteration.
    pub tools: Vec<String>,
    /// How the trouble was resolved, in the agent's words.
    pub resolution: Vec<String>,
    /// Iterations that it took.
    pub iterations: u32,
    /// Minutes that it ran.
    pub minutes: f64,
    /// What it cost.
    pub cost: Money,
    /// Review comments of maintainers.
    pub comments: Vec<Comment>,
    /// Rules that maintainers gave.
    pub guidelines: Vec<String>,
}

/// What an iteration teaches: its approach as a strategy where completion rose a lot or the work verified, as an
/// antipattern where the same error came again or it was redirected.
pub fn from_iteration(facts: &IterationFacts, settings: &MemorySettings, now: Timestamp) -> Vec<Learning> {
    let source = Source { loop_id: facts.loop_id.clone(), iteration: Some(facts.iteration) };
    let learnt = |content, confidence, about: &str| {
        let mut learning =
            Learning::new(&facts.repository, facts.task_type, content, confidence, source.clone(), now).about(about);
        learning.evidence = first_evidence();
        learning
    };
    let mut found = Vec::new();
    let error = facts.error_before.as_deref().unwrap_or_default();
    let about = format!("{} {error}", facts.about);
    let approach = facts.approach.trim();
    let gain = facts.completion_after - facts.completion_before;
    if !approach.is_empty() && !facts.agent_failed {
        let done = facts.verified && facts.completion_after >= DONE;
        if !facts.tampered && (done || gain >= settings.strategy_gain) {
            let content = Content::Strategy {
                approach: approach.to_owned(),
                tools: facts.tools.clone(),
                resolution: facts.resolution.join("; "),
                iterations: Dispersion::of(f64::from(facts.iteration)),
            };
            found.push(learnt(content, if done { VERIFIED } else { HELPED }, &about));
        }
        let again = facts.error_after.as_deref().filter(|after| *after == error && gain <= 0.0);
        if let Some(again) = again {
            let content = Content::Antipattern {
                pattern: approach.to_owned(),
                consequence: format!("the same error again: {again}"),
                alternative: String::new(),
            };
            found.push(learnt(content, FAILED, &about));
        }
    }
    let redirected = facts.redirected.as_ref().filter(|redirected| !redirected.from.trim().is_empty());
    if let Some(Redirected { from, to }) = redirected {
        let content = Content::Antipattern {
            pattern: from.clone(),
            consequence: "the overseer had it given up".to_owned(),
            alternative: to.clone(),
        };
        found.push(learnt(content, FAILED, &about));
    }
    found
}

/// What the end of a loop teaches: what worked or did not, what such tasks take, and the rules that people gave.
pub fn from_loop(facts: &LoopFacts, settings: &MemorySettings, now: Timestamp) -> Vec<Learning> {
    let source = Source { loop_id: facts.loop_id.clone(), iteration: None };
    let learnt = |task_type, content, confidence| {
        Learning::new(&facts.repository, task_type, content, confidence, source.clone(), now).about(&facts.about)
    };
    let mut found = Vec::new();
    let approach = facts.approach.trim().to_owned();
    match facts.ended {
        Ended::Merged | Ended::Verified if !approach.is_empty() => {
            let content = Content::Strategy {
                approach,
                tools: facts.tools.clone(),
                resolution: facts.resolution.join("; "),
                iterations: Dispersion::of(f64::from(facts.iterations)),
            };
            let mut strategy = learnt(facts.task_type, content, VERIFIED);
            strategy.merged = facts.ended == Ended::Merged;
            strategy.evidence = first_evidence();
            found.push(strategy);
        }
        Ended::ClosedUnmerged if !approach.is_empty() => {
            let content = Content::Antipattern {
                pattern: approach,
                consequence: "the pull request was closed without being merged".to_owned(),
                alternative: facts.comments.first().map(|comment| comment.text.clone()).unwrap_or_default(),
            };
            found.push(learnt(facts.task_type, content, FAILED));
        }
        _ => {}
    }
    for comment in facts.comments.iter().filter(|comment| comment.asks_for_change && !comment.text.trim().is_empty()) {
        let content = Content::Antipattern {
            pattern: comment.text.clone(),
            consequence: ASKED_FOR.to_owned(),
            alternative: String::new(),
        };
        found.push(learnt(facts.task_type, content, FAILED));
    }
    if facts.ended != Ended::Stopped && facts.iterations > 0 {
        let content = Content::Estimate {
            iterations: Dispersion::of(f64::from(facts.iterations)),
            minutes: Dispersion::of(facts.minutes),
            cost_usd: Dispersion::of(facts.cost.usd()),
        };
        found.push(learnt(facts.task_type, content, estimate_confidence(1)));
    }
    for rule in facts.guidelines.iter().filter(|rule| !rule.trim().is_empty()) {
        let content = Content::Convention { rule: rule.clone(), seen_in: "guidance".to_owned() };
        let mut convention = learnt(TaskType::Other, content, MENTIONED);
        convention.evidence = first_evidence();
        found.push(convention);
    }
    for learning in &mut found {
        if matches!(learning.content, Content::Antipattern { .. }) {
            learning.evidence = first_evidence();
        }
        promote(learning, settings);
    }
    found
}

/// A rule that a maintainer told to remember (`/ralph guide --remember`): believed at once.
pub fn remembered(repository: &RepoRef, rule: &str, loop_id: &LoopId, now: Timestamp) -> Learning {
    let content = Content::Convention { rule: rule.to_owned(), seen_in: "a maintainer's word".to_owned() };
    let source = Source { loop_id: loop_id.clone(), iteration: None };
    let mut learning = Learning::new(repository, TaskType::Other, content, TOLD, source, now);
    learning.state = State::Active;
    learning.evidence = Evidence { successes: 2.0, failures: 0.0 };
    learning
}

/// What showed a learning is evidence for it: of a strategy that it works, of an antipattern that it does not.
fn first_evidence() -> Evidence {
    Evidence { successes: 1.0, failures: 0.0 }
}
