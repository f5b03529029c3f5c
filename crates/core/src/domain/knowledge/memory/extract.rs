//! Extracts learnings from iterations and from ended loops.
//!
//! Inputs are the service's measurements, texts of the loop's agent, and texts of maintainers. Outsiders' texts are
//! excluded, because other loops' prompts would contain them.

use super::learning::{Content, Learning, LearningState, Source};
use super::learning_confidence::MIN_GAIN;
use super::learning_evidence::LearningEvidence;
use super::merge::{estimate_confidence, promote};
use super::settings::MemorySettings;
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::dispersion::Dispersion;
use crate::domain::model::ids::{LoopId, Money, RepoRef, Timestamp};

/// Initial confidence of an approach that increased completion.
const HELPED: f64 = 0.7;
/// Initial confidence of an approach whose work was verified or merged.
const VERIFIED: f64 = 0.9;
/// Initial confidence of an antipattern derived from a failed approach.
const FAILED: f64 = 0.7;
/// Minimum completion for a verified iteration to count as a success.
const DONE: f64 = 0.9;
/// Initial confidence of a rule stated with `--remember`.
const TOLD: f64 = 0.95;
/// Initial confidence of a rule mentioned in another comment.
const MENTIONED: f64 = 0.7;

/// Approach that a REDIRECT ended, with the proposed replacement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedirectedApproach {
    /// Approach that failed.
    pub from: String,
    /// Proposed replacement; empty if none was proposed.
    pub to: String,
}

/// Facts of an ended iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct IterationFacts {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// 1-based number of the iteration.
    pub iteration: u32,
    /// Owner and name of the repository.
    pub repository: RepoRef,
    /// Type of the loop's task.
    pub task_type: TaskType,
    /// Search words: changed paths, and the task's words if its author is trusted.
    pub about: String,
    /// Approach, as stated by the agent.
    pub approach: String,
    /// Names of the used tools, in the order of their first use.
    pub tools: Vec<String>,
    /// Resolution steps and learnings, as stated by the agent.
    pub resolution: Vec<String>,
    /// Measured completion before the iteration, 0..1.
    pub completion_before: f64,
    /// Measured completion after the iteration, 0..1.
    pub completion_after: f64,
    /// Signature of the first error before the iteration.
    pub error_before: Option<String>,
    /// Signature of the first error after the iteration.
    pub error_after: Option<String>,
    /// Whether the work passed in a fresh checkout.
    pub verified: bool,
    /// Whether the iteration weakened checks. Such an iteration produces no strategy.
    pub tampered: bool,
    /// Whether the agent's run failed (rate limit, crash). Such an iteration is not evidence about its approach.
    pub agent_failed: bool,
    /// REDIRECT after the iteration; `None` if there was none.
    pub redirected: Option<RedirectedApproach>,
    /// Approach proposed by a REDIRECT before the iteration; `None` if there was none.
    pub followed: Option<FollowedRedirect>,
}

/// Approach that a REDIRECT proposed for an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FollowedRedirect {
    /// Proposed approach.
    pub way: String,
    /// Title of the detection that caused the REDIRECT.
    pub cause: String,
}

impl IterationFacts {
    /// Whether completion rose or the work was verified.
    pub fn gained(&self) -> bool {
        self.verified || self.completion_after - self.completion_before >= MIN_GAIN
    }
}

/// Outcome of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopEnding {
    /// The pull request was merged.
    Merged,
    /// The work was verified. Whether it was merged is unknown.
    Verified,
    /// The pull request was closed without a merge.
    ClosedUnmerged,
    /// The loop failed.
    Failed,
    /// A person ended the loop for another reason. No learning is extracted.
    Stopped,
}

/// Facts of an ended loop.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopFacts {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Owner and name of the repository.
    pub repository: RepoRef,
    /// Type of the task.
    pub task_type: TaskType,
    /// Search words, as in [`IterationFacts`].
    pub about: String,
    /// Outcome of the loop.
    pub ended: LoopEnding,
    /// Approach of the iteration that produced the final state; empty if unknown.
    pub approach: String,
    /// Names of the tools used in this iteration.
    pub tools: Vec<String>,
    /// Resolution steps, as stated by the agent.
    pub resolution: Vec<String>,
    /// Number of iterations.
    pub iterations: u32,
    /// Running time, in minutes.
    pub minutes: f64,
    /// Cost of the loop.
    pub cost: Money,
    /// Review comments of maintainers that request a change.
    pub comments: Vec<String>,
    /// Rules stated by maintainers.
    pub guidelines: Vec<String>,
}

/// Extracts learnings from an iteration. Its approach becomes a strategy if completion increased enough or the work was
/// verified. It becomes an antipattern if the same error recurred or the overseer redirected the agent.
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
    let helped = facts.followed.as_ref().filter(|_| gain > 0.0 && !facts.tampered && !facts.agent_failed);
    if let Some(FollowedRedirect { way, cause }) = helped {
        let content = Content::Strategy {
            approach: format!("{way}, after: {}", cause.to_lowercase()),
            tools: facts.tools.clone(),
            resolution: [approach, &facts.resolution.join("; ")]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
            iterations: Dispersion::of(f64::from(facts.iteration)),
        };
        found.push(learnt(content, HELPED, &about));
    }
    let redirected = facts.redirected.as_ref().filter(|redirected| !redirected.from.trim().is_empty());
    if let Some(RedirectedApproach { from, to }) = redirected {
        let content = Content::Antipattern {
            pattern: from.clone(),
            consequence: "the overseer had it given up".to_owned(),
            alternative: to.clone(),
        };
        found.push(learnt(content, FAILED, &about));
    }
    found
}

/// Extracts learnings from an ended loop: successful or failed approaches, usual effort, and people's rules.
pub fn from_loop(facts: &LoopFacts, settings: &MemorySettings, now: Timestamp) -> Vec<Learning> {
    let source = Source { loop_id: facts.loop_id.clone(), iteration: None };
    let learnt = |task_type, content, confidence| {
        Learning::new(&facts.repository, task_type, content, confidence, source.clone(), now).about(&facts.about)
    };
    let mut found = Vec::new();
    let approach = facts.approach.trim().to_owned();
    match facts.ended {
        LoopEnding::Merged | LoopEnding::Verified if !approach.is_empty() => {
            let content = Content::Strategy {
                approach,
                tools: facts.tools.clone(),
                resolution: facts.resolution.join("; "),
                iterations: Dispersion::of(f64::from(facts.iterations)),
            };
            let mut strategy = learnt(facts.task_type, content, VERIFIED);
            strategy.merged = facts.ended == LoopEnding::Merged;
            strategy.evidence = first_evidence();
            found.push(strategy);
        }
        LoopEnding::ClosedUnmerged if !approach.is_empty() => {
            let content = Content::Antipattern {
                pattern: approach,
                consequence: "the pull request was closed without a merge".to_owned(),
                alternative: facts.comments.first().cloned().unwrap_or_default(),
            };
            found.push(learnt(facts.task_type, content, FAILED));
        }
        _ => {}
    }
    if facts.ended != LoopEnding::Stopped && facts.iterations > 0 {
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

/// Creates the learning for a rule that a maintainer asked to remember (`/ralph guide --remember`). It is active
/// immediately.
pub fn remembered(repository: &RepoRef, rule: &str, loop_id: &LoopId, now: Timestamp) -> Learning {
    let content = Content::Convention { rule: rule.to_owned(), seen_in: "a maintainer's word".to_owned() };
    let source = Source { loop_id: loop_id.clone(), iteration: None };
    let mut learning = Learning::new(repository, TaskType::Other, content, TOLD, source, now);
    learning.state = LearningState::Active;
    learning.evidence = LearningEvidence { successes: 2.0, failures: 0.0 };
    learning
}

/// Returns the evidence of a first sighting: a success of a strategy or a failure of an antipattern.
fn first_evidence() -> LearningEvidence {
    LearningEvidence { successes: 1.0, failures: 0.0 }
}
