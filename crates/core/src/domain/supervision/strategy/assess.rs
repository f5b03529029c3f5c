//! Assessment of a loop's current state.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::StrategySettings;
use crate::domain::model::record::{MAX_BLOCKERS, Record, SeenErrors};
use crate::domain::model::signature::{first_error, normalize};
use crate::domain::model::task::{CheckReport, DiffStat};
use crate::domain::supervision::TaskFacts;

/// Number of iterations that no loop reaches. It replaces a missing limit.
const MOST_ITERATIONS: f64 = 1e6;
/// Number of newest iterations whose blockers are counted.
const BLOCKER_WINDOW: usize = 10;

/// Maximum length of a blocker's text, in characters.
const MAX_BLOCKER: usize = 300;

/// Phase of the loop, determined by its used budget and its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Little of the budget is used.
    Early,
    /// Between early and late.
    Mid,
    /// Little of the budget or little of the work remains.
    Late,
}

/// Blocker in the agent's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenBlocker {
    /// Text of the blocker.
    pub text: String,
    /// Number of the last ten iterations that named the blocker.
    pub seen: u32,
}

/// Failing check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingCheck {
    /// Name of the check.
    pub name: String,
    /// First error in the check's output, normalized; `None` if no error was found.
    pub error: Option<String>,
    /// Number of other failing checks that probably depend on this check.
    pub waiting: usize,
}

/// Size of the last iteration's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastChange {
    /// Number of changed files.
    pub files: usize,
    /// Number of added lines.
    pub added: u64,
    /// Number of removed lines.
    pub removed: u64,
}

/// State of the loop before an iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateAssessment {
    /// 1-based number of the next iteration.
    pub iteration: u32,
    /// Completion of the last iteration, 0..1.
    pub progress: f64,
    /// Phase of the loop.
    pub phase: Phase,
    /// Used share of the budget, from 0; may exceed 1. It is the highest share among iterations, time and money.
    pub budget_used: f64,
    /// Number of iterations within the remaining budget, at the average use per iteration so far.
    pub iterations_left: f64,
    /// Number of iterations since the last progress.
    pub without_progress: u32,
    /// Number of iterations without progress after which the loop asks a person.
    pub escalates_after: u32,
    /// Open blockers, most frequent first.
    pub blockers: Vec<OpenBlocker>,
    /// Failing checks; checks on which most others depend come first.
    pub failing: Vec<FailingCheck>,
    /// Size of the last change; `None` before the first iteration.
    pub last_change: Option<LastChange>,
}

/// Assesses the loop after `history`. `checks` and `change` belong to the last iteration; `None` if unavailable.
pub fn assess(
    history: &[Record],
    facts: &TaskFacts,
    checks: Option<&CheckReport>,
    change: Option<&DiffStat>,
    settings: &StrategySettings,
) -> StateAssessment {
    let done = taken(history);
    let progress = history.last().map_or(0.0, |record| record.completion.get());
    let budget_used = budget_used(history, facts);
    let iterations_in_limit = (facts.max_iterations.min(MOST_ITERATIONS) - done).max(0.0);
    let at_this_pace =
        if budget_used > 0.0 { done * (1.0 - budget_used).max(0.0) / budget_used } else { iterations_in_limit };
    let phase = if budget_used > settings.late || progress > settings.near_completion {
        Phase::Late
    } else if budget_used < settings.early {
        Phase::Early
    } else {
        Phase::Mid
    };
    StateAssessment {
        // A cast from a float saturates.
        iteration: (done as u32).saturating_add(1),
        progress,
        phase,
        budget_used,
        iterations_left: at_this_pace.min(iterations_in_limit),
        without_progress: without_progress(history, settings.min_progress),
        escalates_after: facts.within_limit(
            settings.escalation_threshold,
            settings.limit_share,
            settings.patience.max(settings.blocker_count),
        ),
        blockers: blockers(history),
        failing: failing(history.last(), checks),
        last_change: last_change(history.last(), change),
    }
}

/// Returns the number of iterations so far: the newest record's number, or the number of records.
fn taken(history: &[Record]) -> f64 {
    history.last().map_or(0.0, |last| last.iteration.max(history.len() as f64))
}

fn budget_used(history: &[Record], facts: &TaskFacts) -> f64 {
    let sum = |figure: fn(&Record) -> f64| history.iter().map(figure).sum::<f64>();
    let minutes = sum(|record| record.duration_s) / 60.0;
    let cost = sum(|record| record.cost_usd);
    let uses =
        [(taken(history), Some(facts.max_iterations)), (minutes, facts.timeout_minutes), (cost, facts.max_cost_usd)];
    let share = |(used, limit): (f64, Option<f64>)| limit.filter(|limit| *limit > 0.0).map(|limit| used / limit);
    uses.into_iter().filter_map(share).fold(0.0, f64::max)
}

/// Returns the number of newest iterations without progress: without a sufficient gain of completion and, if no check has counts,
/// without a new error.
fn without_progress(history: &[Record], min_progress: f64) -> u32 {
    let (mut reached, mut without) = (0.0, 0);
    let (all_or_nothing, mut seen_errors) = (Record::is_all_or_nothing(history), SeenErrors::default());
    for record in history.iter().filter(|record| record.tampering.is_empty()) {
        let moved = seen_errors.is_new(record) && all_or_nothing;
        if moved || record.completion.get() > reached + min_progress {
            (reached, without) = (record.completion.get().max(reached), 0);
        } else {
            without += 1;
        }
    }
    without
}

fn blockers(history: &[Record]) -> Vec<OpenBlocker> {
    let Some(last) = history.last() else { return Vec::new() };
    let recent = &history[history.len().saturating_sub(BLOCKER_WINDOW)..];
    let words = |record: &Record| record.blockers.iter().take(MAX_BLOCKERS).map(|text| normalize(text)).collect();
    let named: Vec<BTreeSet<String>> = recent.iter().map(words).collect();
    let mut met = BTreeSet::new();
    let mut open: Vec<OpenBlocker> = Vec::new();
    for text in last.blockers.iter().take(MAX_BLOCKERS) {
        let normal = normalize(text);
        if normal.is_empty() || !met.insert(normal.clone()) {
            continue;
        }
        let seen = named.iter().filter(|named| named.contains(&normal)).count();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        open.push(OpenBlocker {
            text: text.chars().take(MAX_BLOCKER).collect(),
            seen: u32::try_from(seen).unwrap_or(u32::MAX),
        });
    }
    open.sort_by_key(|blocker| std::cmp::Reverse(blocker.seen));
    open
}

fn failing(last: Option<&Record>, checks: Option<&CheckReport>) -> Vec<FailingCheck> {
    let mut failing: Vec<(FailingCheck, u8)> = match (checks, last) {
        (Some(report), _) => {
            let outcomes = report.outcomes.iter().filter(|outcome| !outcome.holds);
            let check = |outcome: &crate::domain::model::task::CheckOutcome| {
                let stage = stage(&format!("{} {}", outcome.name, outcome.command));
                let error =
                    first_error(&outcome.output).or_else(|| Some(outcome.why.clone()).filter(|why| !why.is_empty()));
                (FailingCheck { name: outcome.name.clone(), error, waiting: 0 }, stage)
            };
            outcomes.map(check).collect()
        }
        (None, Some(last)) => {
            let mut signature = last.error_signature.clone();
            let failed = last.checks.iter().filter(|check| !check.passed);
            let check = |check: &crate::domain::model::record::CheckFact| {
                (FailingCheck { name: check.name.clone(), error: signature.take(), waiting: 0 }, stage(&check.name))
            };
            failed.map(check).collect()
        }
        (None, None) => Vec::new(),
    };
    let stages: Vec<u8> = failing.iter().map(|(_, stage)| *stage).collect();
    for (check, stage) in &mut failing {
        check.waiting = stages.iter().filter(|other| **other > *stage).count();
    }
    failing.sort_by_key(|(check, _)| std::cmp::Reverse(check.waiting));
    failing.into_iter().map(|(check, _)| check).collect()
}

/// Returns the stage of a check (setup, build, test, ...), derived from words in its command. Later stages depend on earlier
/// ones.
fn stage(words: &str) -> u8 {
    let words = words.to_lowercase();
    let has = |all: &[&str]| all.iter().any(|word| words.contains(word));
    if has(&["install", "setup", "deps"]) {
        0
    } else if has(&["build", "compile", "cargo check"]) {
        1
    } else if has(&["tsc", "type", "mypy", "pyright"]) {
        2
    } else if has(&["coverage", "e2e", "integration"]) {
        4
    } else {
        3
    }
}

fn last_change(last: Option<&Record>, change: Option<&DiffStat>) -> Option<LastChange> {
    match (change, last) {
        (Some(change), _) => {
            let (added, removed) = change.lines();
            Some(LastChange { files: change.files.len(), added, removed })
        }
        (None, Some(last)) => Some(LastChange { files: last.files.len(), added: 0, removed: 0 }),
        (None, None) => None,
    }
}
