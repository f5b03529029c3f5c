//! Observations for memory, derived from a loop's state before and after a step.
//!
//! They use only the service's measurements, texts of the loop's agent, and texts of people with permission. The task's text
//! is trusted only if its author is trusted.

use super::extract::{FollowedRedirect, IterationFacts, LoopEnding, LoopFacts, RedirectedApproach};
use super::proposal::remark_text;
use super::reflection::{Reflection, ReflectionFacts};
use crate::domain::knowledge::agent_message::reported;
use crate::domain::loops::command::LoopCommand;
use crate::domain::loops::{
    CommandInput, ForgeInput, Guidance, GuidanceSource, Iteration, IterationKind, JudgedDetection, Loop, LoopInput,
    LoopState, error_signature,
};
use crate::domain::model::task::{AgentReport, TamperFinding};
use crate::domain::supervision::oversight::InterventionLevel;
use crate::domain::trust::sanitize;

/// Maximum length of the task's text for the search words, in characters.
const ABOUT: usize = 300;
/// Maximum number of changed files for the search words.
const PATHS: usize = 8;

/// Observation for memory in a step.
#[derive(Debug, Clone, PartialEq)]
pub enum MemoryObservation {
    /// An iteration was judged.
    Iteration {
        /// Facts for extracting learnings, and for crediting the learnings in the iteration's prompt.
        facts: Box<IterationFacts>,
        /// Reflection for the next iterations.
        reflection: Reflection,
    },
    /// The loop ended or reached a limit.
    Ended {
        /// Facts for extraction.
        facts: Box<LoopFacts>,
        /// Outcome for crediting the learnings in the loop's prompts: whether the loop succeeded. `None` to credit nothing.
        succeeded: Option<bool>,
    },
    /// A maintainer stated a rule to remember.
    Rule {
        /// Rule.
        text: String,
        /// Login of the maintainer.
        by: String,
        /// Number of the proposal accepted by the rule; `None` if it accepts none.
        proposal: Option<u64>,
    },
    /// A maintainer made a review comment.
    Remark {
        /// Text, on one line.
        text: String,
    },
    /// Proposals of conventions were published.
    Told {
        /// Numbers of the proposals.
        numbers: Vec<u64>,
    },
}

/// Returns the observations from a step with an input, in order. Deterministic; empty if the step changed nothing.
pub fn observed(before: &Loop, after: &Loop, input: &LoopInput) -> Vec<MemoryObservation> {
    let mut found = Vec::new();
    for guidance in after.requests.guidance.iter().filter(|guidance| guidance.remember && !is_known(before, guidance)) {
        let text = clean(&guidance.text);
        if !text.is_empty() {
            found.push(MemoryObservation::Rule { text, by: guidance.who.clone(), proposal: None });
        }
    }
    match input {
        LoopInput::Command(CommandInput::Given { by, command: LoopCommand::Guide(guide), .. })
            if guide.proposal.is_some() =>
        {
            let text = clean(&guide.text);
            if !text.is_empty() {
                found.push(MemoryObservation::Rule { text, by: by.login.clone(), proposal: guide.proposal });
            }
        }
        // Only comments of people with permission become an input.
        LoopInput::Command(CommandInput::Reviewed { items, .. }) => {
            let new = items
                .iter()
                .filter(|(key, _)| after.pull.reviews_seen.contains(key) && !before.pull.reviews_seen.contains(key));
            let texts = new.filter_map(|(_, remark)| remark_text(&clean(&remark.text)));
            found.extend(texts.map(|text| MemoryObservation::Remark { text }));
        }
        LoopInput::Command(_) | LoopInput::Forge(_) | LoopInput::Timer(_) | LoopInput::Outcome { .. } => {}
    }
    if !before.pull.proposals.is_empty() && after.pull.proposals.is_empty() && after.state == LoopState::Review {
        let numbers = before.pull.proposals.iter().map(|proposal| proposal.number).collect();
        found.push(MemoryObservation::Told { numbers });
    }
    found.extend(judged_anew(before, after).map(|iteration| of_iteration(after, iteration)));
    found.extend(ended(before, after, input).map(|(how, succeeded)| of_end(after, how, succeeded)));
    found
}

/// Whether the loop had this guidance before the step. Guidance moves from the loop to an iteration, and sometimes back.
fn is_known(before: &Loop, guidance: &Guidance) -> bool {
    before.requests.guidance.contains(guidance)
        || before.iterations.iter().any(|known| known.guidance.contains(guidance))
}

/// Returns the iteration judged in this step; `None` if there is none, or if no agent ran in it.
pub(in crate::domain) fn judged_anew<'a>(before: &Loop, after: &'a Loop) -> Option<&'a Iteration> {
    // The next iteration may have started in the same step.
    let iteration = after.iterations.iter().rev().find(|iteration| iteration.judged.is_some())?;
    let known = before.iterations.iter().rev().find(|known| known.number == iteration.number);
    (iteration.kind == IterationKind::Agent && known.is_none_or(|known| known.judged != iteration.judged))
        .then_some(iteration)
}

fn of_iteration(current: &Loop, iteration: &Iteration) -> MemoryObservation {
    let report = agents_report(iteration);
    let (completion_before, error_before) = state_before(current, iteration);
    let completion_after = iteration.completion.get();
    let error_after = iteration.record.as_ref().and_then(|record| record.error_signature.as_deref());
    let agent_failed = !iteration.agent_problem.is_empty();
    let approach = approach(&report);
    let reflection = reflection(current, iteration, error_after);
    let facts = IterationFacts {
        loop_id: current.id.clone(),
        iteration: iteration.number,
        repository: current.issue.repo.clone(),
        task_type: current.task_type(),
        about: about(current, [iteration]),
        approach: approach.clone(),
        tools: iteration.tools.clone(),
        resolution: resolution(&report),
        completion_before,
        completion_after,
        error_before,
        error_after: error_after.map(clean),
        verified: current.branch.verified.is_some()
            && current.branch.verified == current.branch.head
            && iteration.checks.all_hold(),
        tampered: iteration.findings.iter().any(TamperFinding::blocks),
        agent_failed,
        // If the run failed, the directive did not concern the approach.
        redirected: redirected(iteration, &approach).filter(|_| !agent_failed),
        followed: followed(current, iteration),
    };
    MemoryObservation::Iteration { facts: Box::new(facts), reflection }
}

/// Creates the reflection on an iteration from its report and its checks. `error_after` is the signature of the first error.
pub fn reflection(current: &Loop, iteration: &Iteration, error_after: Option<&str>) -> Reflection {
    let report = agents_report(iteration);
    let (completion_before, error_before) = state_before(current, iteration);
    let failing = iteration.checks.outcomes.iter().filter(|outcome| !outcome.holds);
    let agent_failed = !iteration.agent_problem.is_empty();
    Reflection::of(&ReflectionFacts {
        iteration: iteration.number,
        approach: approach(&report),
        failing_checks: failing.map(|outcome| outcome.name.clone()).collect(),
        error_before,
        error_after: error_after.map(clean),
        blockers: report.blockers.iter().map(|text| clean(text)).collect(),
        next_steps: report.next_steps.iter().map(|text| clean(text)).collect(),
        agent_failure: agent_failed.then(|| clean(&iteration.agent_problem)),
        completion_before,
        completion_after: iteration.completion.get(),
    })
}

/// Returns the completion and the first error at the start of an iteration. They come from the iteration whose files it
/// started with, or from the baseline.
fn state_before(current: &Loop, iteration: &Iteration) -> (f64, Option<String>) {
    let mut earlier =
        current.measured().rev().filter(|known| known.number < iteration.number && known.ended_at.is_some());
    let restored = current
        .retained_iterations()
        .rev()
        .find(|known| known.number < iteration.number)
        .and_then(|last| last.restored_to);
    let found = match restored {
        Some(best) => earlier.find(|known| known.number <= best),
        None => earlier.next(),
    };
    match (found, current.checks.baseline_report()) {
        (Some(known), _) => (known.completion.get(), error_signature(&known.checks).as_deref().map(clean)),
        (None, Some(baseline)) => {
            (current.checks.completion_at_start().get(), error_signature(baseline).as_deref().map(clean))
        }
        (None, None) => (0.0, None),
    }
}

/// Returns the approach that the overseer ended with this iteration, and the proposed replacement.
fn redirected(iteration: &Iteration, approach: &str) -> Option<RedirectedApproach> {
    let judged = iteration.judged.as_ref()?;
    let ordered = |found: &JudgedDetection| {
        found.level == InterventionLevel::Redirect && found.fresh && found.kind.row().of_approach
    };
    let ordered = judged.found.iter().any(ordered);
    (ordered && !approach.is_empty()).then(|| RedirectedApproach { from: approach.to_owned(), to: judged.way.clone() })
}

/// Returns the approach that the overseer proposed after the previous iteration.
fn followed(current: &Loop, iteration: &Iteration) -> Option<FollowedRedirect> {
    let before = current.retained_iterations().rev().find(|known| known.number < iteration.number)?;
    let judged = before.judged.as_ref().filter(|judged| !judged.way.is_empty())?;
    let ordered = |found: &&JudgedDetection| found.level == InterventionLevel::Redirect && found.fresh;
    let cause = judged.found.iter().find(ordered)?.kind.title().to_owned();
    Some(FollowedRedirect { way: judged.way.clone(), cause })
}

/// Returns the outcome of a loop that ended in this step, and whether it succeeded, if known. `None` if the loop continues
/// or ended earlier.
fn ended(before: &Loop, after: &Loop, input: &LoopInput) -> Option<(LoopEnding, Option<bool>)> {
    if after.state == before.state {
        return None;
    }
    // People end a loop for other reasons; the overseer and a failed restoration do not.
    let given_up = || before.run.halting.is_some() || judged_anew(before, after).is_some();
    match after.state {
        LoopState::Merged => Some((LoopEnding::Merged, Some(true))),
        LoopState::Closed if matches!(input, LoopInput::Forge(ForgeInput::PullClosed)) => {
            Some((LoopEnding::ClosedUnmerged, Some(false)))
        }
        LoopState::Closed if before.state == LoopState::Review => Some((LoopEnding::Verified, Some(true))),
        LoopState::LimitReached => Some((LoopEnding::Failed, Some(false))),
        LoopState::Aborted if given_up() => Some((LoopEnding::Failed, Some(false))),
        LoopState::Closed | LoopState::Aborted => Some((LoopEnding::Stopped, None)),
        _ => None,
    }
}

fn of_end(current: &Loop, ended: LoopEnding, succeeded: Option<bool>) -> MemoryObservation {
    let last = current.retained_iterations().rev().find(|iteration| iteration.commit.is_some());
    let report = last.map(agents_report).unwrap_or_default();
    let mut distinct: Vec<&Guidance> = Vec::new();
    for guidance in
        current.iterations.iter().flat_map(|iteration| &iteration.guidance).chain(&current.requests.guidance)
    {
        if !distinct.contains(&guidance) {
            distinct.push(guidance);
        }
    }
    let texts = |source: GuidanceSource| {
        let of = distinct.iter().filter(move |guidance| guidance.source == source && !guidance.remember);
        of.map(|guidance| clean(&guidance.text)).filter(|text| !text.is_empty())
    };
    let facts = LoopFacts {
        loop_id: current.id.clone(),
        repository: current.issue.repo.clone(),
        task_type: current.task_type(),
        about: about(current, current.retained_iterations()),
        ended,
        approach: approach(&report),
        tools: last.map(|iteration| iteration.tools.clone()).unwrap_or_default(),
        resolution: resolution(&report),
        iterations: current.spent.iterations,
        minutes: current.spent.time_ms as f64 / 60_000.0,
        cost: current.spent.cost,
        comments: texts(GuidanceSource::Review).collect(),
        guidelines: texts(GuidanceSource::Command).collect(),
    };
    MemoryObservation::Ended { facts: Box::new(facts), succeeded }
}

/// Returns the agent's report; empty if no agent ran.
fn agents_report(iteration: &Iteration) -> AgentReport {
    if iteration.kind == IterationKind::Agent { reported(iteration) } else { AgentReport::default() }
}

/// Returns the approach stated by the agent, or its summary.
fn approach(report: &AgentReport) -> String {
    let texts = [&report.approach, &report.summary].map(|text| clean(text));
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

fn resolution(report: &AgentReport) -> Vec<String> {
    let texts = report.resolution_steps.iter().chain(&report.learnings);
    texts.map(|text| clean(text)).filter(|text| !text.is_empty()).collect()
}

/// Returns the search words: changed paths, and the task's words if a maintainer wrote it.
fn about<'a>(current: &Loop, iterations: impl IntoIterator<Item = &'a Iteration>) -> String {
    let mut words = String::new();
    if current.task.author_trusted {
        let task = one_line(&current.task.text.agent_text());
        words.extend(task.chars().take(ABOUT));
    }
    let mut paths: Vec<&str> = Vec::new();
    for path in iterations.into_iter().flat_map(|it| &it.stat.files).map(|file| file.path.as_str()) {
        if !paths.contains(&path) && paths.len() < PATHS {
            paths.push(path);
        }
    }
    for path in paths {
        words.push(' ');
        words.push_str(path);
    }
    words.trim().to_owned()
}

/// Returns the text on one line, without invisible characters.
fn clean(text: &str) -> String {
    one_line(&sanitize::for_prompt(&sanitize::without_comments(text).0))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
