//! Advice for the loop's current situation: phase, rate of progress, blockers, reliability of the agent's claims, and
//! suitable tools.
//!
//! It complements the advice of control and strategy without repeating it.

use serde::{Deserialize, Serialize};

use super::claims::ClaimSums;
use crate::domain::knowledge::text;
use crate::domain::loops::Loop;
use crate::domain::model::signature::normalize;
use crate::domain::supervision::control::{Trend, Urgency};
use crate::domain::supervision::strategy::{Approach, Phase, StateAssessment, assess};

/// Maximum number of sentences.
const SENTENCES: usize = 6;
/// Number of iterations that must name the same blocker before its advice comes first.
const BLOCKER_SEEN: u32 = 2;
/// Minimum decrease of completion gained per iteration that triggers the advice to take smaller steps, 0..1.
const SLOWER: f64 = 0.02;
/// Minimum number of calls to judge a tool.
const CALLS: u32 = 4;

/// Number of calls of a tool, and of failed calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Name of the tool.
    pub name: String,
    /// Number of calls.
    pub calls: u32,
    /// Number of failed calls.
    pub errors: u32,
}

/// Returns advice for the current iteration, most important first; at most six sentences.
pub fn adapt(current: &Loop, tools: &[ToolUse]) -> Vec<String> {
    let records = current.records();
    let settings = current.settings.policy.supervision().strategy;
    let assessment = assess(&records, &current.facts(), current.latest_checks(), None, &settings);
    let mut sentences = Vec::new();
    sentences.extend(blocked(current, &assessment));
    sentences.extend(pace(current, &assessment));
    sentences.extend(phase(current, &assessment));
    sentences.extend(claims(&ClaimSums::of(current)));
    sentences.extend(longer_than_usual(current));
    sentences.extend(tool_suggestions(current, tools));
    sentences.truncate(SENTENCES);
    sentences
}

/// Returns advice on blockers that were named at least twice, unless the plan already mentions them.
fn blocked(current: &Loop, assessment: &StateAssessment) -> Option<String> {
    let current_advice = current.supervision.course.as_ref().map_or(&[][..], |course| &course.advice);
    let blocker = assessment.blockers.iter().find(|blocker| blocker.seen >= BLOCKER_SEEN)?;
    let what = text::line(&blocker.text, 200);
    let bare = |text: &str| normalize(text).to_lowercase();
    let words = bare(what.trim_end_matches(['.', '…']));
    let known = current_advice.iter().any(|sentence| bare(sentence).contains(&words));
    let sentence = format!(
        "First resolve the blocker that was named in {} iterations, or find a way around it: {what}",
        blocker.seen
    );
    let end = if sentence.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    (!known).then(|| sentence + end)
}

/// Returns advice on the rate of progress.
fn pace(current: &Loop, assessment: &StateAssessment) -> Vec<String> {
    let mut sentences = Vec::new();
    let Some(judged) = current.judged() else { return sentences };
    let completions: Vec<f64> = current.records().iter().rev().take(3).map(|record| record.completion.get()).collect();
    let slower = match completions[..] {
        [last, before, earlier] => (last - before) < (before - earlier) - SLOWER,
        _ => false,
    };
    let open = assessment.progress < 1.0;
    match judged.trend {
        Trend::Regressing if open => sentences
            .push("The last iteration made it worse: look at `git show` first, and revert what broke it.".to_owned()),
        Trend::Oscillating if open => sentences
            .push("The work oscillates: write down what each change fixes and breaks before you edit.".to_owned()),
        _ if slower && open && assessment.without_progress < 2 => {
            sentences.push("Progress is slowing: take smaller steps, and run the checks after each.".to_owned())
        }
        _ => {}
    }
    if open && judged.urgency >= Urgency::Critical && assessment.phase != Phase::Early {
        let sentence =
            "If it cannot be done as requested, say so in the report with the reason, instead of trying further.";
        sentences.push(sentence.to_owned());
    }
    sentences
}

/// Returns advice on the phase of the loop.
fn phase(current: &Loop, assessment: &StateAssessment) -> Option<String> {
    let pivots = current.judged().is_some_and(|judged| judged.approach == Approach::Pivot);
    let iterations_left = current.limits.iterations.count().map(|most| most.saturating_sub(current.spent.iterations));
    match assessment.phase {
        Phase::Early if current.spent.iterations <= 1 => Some(
            "Read before you change: find the code that the failing checks run, and compare two ways before you take one."
                .to_owned(),
        ),
        Phase::Late if iterations_left == Some(0) => {
            Some("This is the last iteration: leave the work tree in its best working state.".to_owned())
        }
        Phase::Late if !pivots => {
            let room = match iterations_left {
                Some(1) => "There is room for one more iteration after this one".to_owned(),
                Some(left) => format!("There is room for {left} more iterations after this one"),
                None => "Most of the budget is used".to_owned(),
            };
            Some(format!("{room}: only make failing checks pass, and refactor nothing."))
        }
        _ => None,
    }
}

/// Describes the reliability of the agent's claims.
fn claims(claims: &ClaimSums) -> Option<String> {
    let wrong = match claims.false_done {
        0 => return None,
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    };
    Some(format!(
        "The report said {wrong} that the work was done while checks failed: run every check before you report completion."
    ))
}

/// Returns a remark if the task takes longer than usual.
fn longer_than_usual(current: &Loop) -> Option<String> {
    let (low, high) = current.usual_iterations();
    let now = current.spent.iterations;
    (now > high).then(|| {
        format!(
            "Tasks of this sort usually take {low} to {high} iterations, this is iteration {now}: the way taken until now \
             may be the wrong one."
        )
    })
}

/// Commands that run only part of a check, by a substring of the check's command.
const NARROWER: [(&str, &str); 12] = [
    ("cargo test", "run one test alone with `cargo test NAME -- --nocapture`"),
    ("cargo nextest", "run one test alone with `cargo nextest run NAME --no-capture`"),
    ("clippy", "fix the first warning first; many later ones follow from it"),
    ("pytest", "run one test alone with `pytest -x PATH::NAME`"),
    ("vitest", "run one test alone with `vitest run -t NAME`"),
    ("jest", "run one test alone with `jest -t NAME`"),
    ("go test", "run one test alone with `go test ./PACKAGE -run NAME`"),
    ("tsc", "fix the first error of each file first; many later ones follow from it"),
    ("mypy", "fix the first error of each file first; many later ones follow from it"),
    ("eslint", "let `eslint --fix` fix simple cases, then read the others"),
    ("ruff", "let `ruff check --fix` fix simple cases, then read the others"),
    ("mvn", "run one test alone with `mvn -q test -Dtest=NAME`"),
];

/// Returns advice on the first failing check, and on a tool with mostly failing calls.
pub(super) fn tool_suggestions(current: &Loop, tools: &[ToolUse]) -> Vec<String> {
    let narrower = current.failing().into_iter().filter_map(|outcome| {
        let words = format!("{} {}", outcome.command, outcome.name).to_lowercase();
        let (_, way) = NARROWER.iter().find(|(word, _)| words.contains(word))?;
        Some(format!("For `{}`: {way}.", text::line(&outcome.name, 60).replace('`', "'")))
    });
    let mut sentences: Vec<String> = narrower.take(1).collect();
    let failing_tool = |tool: &&ToolUse| tool.calls >= CALLS && tool.errors.saturating_mul(2) > tool.calls;
    if let Some(worst) = tools.iter().filter(failing_tool).max_by_key(|tool| tool.errors) {
        let name = text::line(&worst.name, 60).replace('`', "'");
        sentences.push(format!(
            "`{name}` failed in {} of {} calls in this loop: read its first error, or use another approach.",
            worst.errors, worst.calls
        ));
    }
    sentences
}
