//! Selects the best state for the pull request when a limit is reached, because the last state may be worse.

use crate::domain::loops::Loop;
use crate::domain::model::ids::Sha;
use crate::domain::model::record::Record;
use crate::domain::model::task::CheckReport;

/// Candidate for the best state.
#[derive(Debug, Clone, PartialEq)]
pub struct StateCandidate {
    /// Iteration that produced it.
    pub iteration: u32,
    /// Hash of the commit.
    pub commit: Sha,
    /// Measurements of the iteration.
    pub record: Record,
    /// Outcomes of the iteration's checks.
    pub checks: CheckReport,
    /// Whether all checks passed in a fresh checkout.
    pub verified: bool,
}

/// Selected state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedState {
    /// Iteration that produced the state.
    pub iteration: u32,
    /// Hash of the commit.
    pub commit: Sha,
    /// Regressions compared with earlier states, one sentence each, for people. Empty unless every candidate has
    /// regressions.
    pub broke: Vec<String>,
}

/// Returns the best candidate; the candidates are in order, oldest first. Criteria in order: verified in a fresh checkout,
/// most passing checks, highest completion, latest. A candidate with regressions is selected only if all candidates have
/// regressions. `None` without candidates.
pub fn best(candidates: &[StateCandidate]) -> Option<SelectedState> {
    let mut most_passing: f64 = 0.0;
    let mut judged = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let broke = broken(&candidate.record, most_passing);
        most_passing = most_passing.max(passing(&candidate.record).unwrap_or(0.0));
        judged.push((candidate, broke));
    }
    let rank = |(candidate, broke): &(&StateCandidate, Vec<String>)| {
        let held = candidate.record.checks.iter().filter(|check| check.passed).count();
        (candidate.verified, broke.is_empty(), held, candidate.record.completion.get())
    };
    let order = |a: &(bool, bool, usize, f64), b: &(bool, bool, usize, f64)| {
        (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)).then(a.3.total_cmp(&b.3))
    };
    let most = judged.iter().map(rank).max_by(order)?;
    judged.retain(|state| order(&rank(state), &most).is_eq());
    let dominated = |(candidate, _): &(&StateCandidate, Vec<String>)| {
        judged.iter().any(|(other, _)| candidate.checks.is_worse_than(&other.checks))
    };
    let chosen = judged.iter().rposition(|state| !dominated(state)).unwrap_or(judged.len() - 1);
    let (candidate, broke) = judged.swap_remove(chosen);
    Some(SelectedState { iteration: candidate.iteration, commit: candidate.commit.clone(), broke })
}

/// Returns the best state of a loop. Candidates are the iterations that made a change and were measured by the current
/// checks, plus the state before them if every candidate is worse. States before a merge are excluded, because their files
/// lack the merged changes.
pub fn best_state(current: &Loop) -> Option<SelectedState> {
    let merged = current.measured().rev().find(|iteration| iteration.merged).map_or(0, |last| last.number);
    let candidates: Vec<StateCandidate> = current
        .measured()
        .filter(|iteration| iteration.number >= merged)
        .filter_map(|iteration| {
            let commit = iteration.commit.clone()?;
            let verified = current.branch.verified.as_ref() == Some(&commit);
            let (record, checks) = (iteration.record.clone()?, iteration.checks.clone());
            Some(StateCandidate { iteration: iteration.number, commit, record, checks, verified })
        })
        .collect();
    let selected = best(&candidates)?;
    Some(start_if_better(current, &selected, &candidates).filter(|_| merged == 0).unwrap_or(selected))
}

/// Returns the state before the first measured iteration if the selected state is worse: fewer checks pass, or a check got
/// worse while no failing check passes now. Otherwise `None`.
fn start_if_better(current: &Loop, selected: &SelectedState, all: &[StateCandidate]) -> Option<SelectedState> {
    let baseline = current.checks.baseline_report()?;
    let checks = &all.iter().find(|candidate| candidate.iteration == selected.iteration)?.checks;
    let fewer = checks.held() < baseline.held();
    let worse = fewer || checks.held() == baseline.held() && checks.is_worse_than(baseline);
    let commit = current.measured().next()?.parent.clone();
    worse.then_some(SelectedState { iteration: current.checks.measured_after, commit, broke: Vec::new() })
}

/// Returns the regressions of a state: failing checks that passed before the first iteration, lost tests, and weakened checks.
fn broken(record: &Record, most_passing: f64) -> Vec<String> {
    let lost = record.checks.iter().filter(|check| !check.passed && check.baseline == Some(true));
    let mut broke: Vec<String> =
        lost.map(|check| format!("`{}` passed before the first iteration and fails now", check.name)).collect();
    if let Some(now) = passing(record).filter(|now| *now < most_passing) {
        broke.push(format!("{now:.0} tests pass, {most_passing:.0} did in an earlier iteration"));
    }
    if !record.tampering.is_empty() {
        broke.push(format!("signs of weakened checks: {}", record.tampering.len()));
    }
    broke
}

/// Returns the number of passing tests; `None` if they were not counted.
fn passing(record: &Record) -> Option<f64> {
    record.tests_passing.filter(|count| count.is_finite())
}
