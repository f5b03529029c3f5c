//! Compares two check reports and returns the checks that got worse.
//!
//! The comparison uses counts if both reports have them. A failing check with an interrupted run is not evidence of fewer
//! tests. Without counts, it uses the names of failing tests, otherwise the error lines, otherwise whether the check ran to
//! its end.

use std::collections::BTreeSet;
use std::fmt;

use super::task::{CheckOutcome, CheckReport};

/// Deterioration of one check between two reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckLoss {
    /// Name of the check.
    pub check: String,
    /// Kind of the deterioration.
    pub kind: CheckLossKind,
}

/// Kind of a deterioration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckLossKind {
    /// The check passed before and fails now.
    Fails,
    /// Fewer tests pass than before.
    FewerPassing { before: u64, now: u64 },
    /// All tests that failed before still fail, and so do the tests in `added`.
    MoreFailing { added: Vec<String> },
    /// All errors that occurred before still occur, and so do the errors in `added`.
    MoreErrors { added: Vec<String> },
    /// The check failed with an exit code before, and was killed or timed out now.
    Killed,
}

impl fmt::Display for CheckLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = |added: &[String]| added.first().cloned().unwrap_or_default();
        write!(f, "`{}` ", self.check)?;
        match &self.kind {
            CheckLossKind::Fails => write!(f, "passed and fails now"),
            CheckLossKind::FewerPassing { before, now } => write!(f, "had {before} passing tests and has {now} now"),
            CheckLossKind::MoreFailing { added } => {
                write!(f, "has {} more failing tests, first {}", added.len(), first(added))
            }
            CheckLossKind::MoreErrors { added } => {
                write!(f, "has {} more errors, first: {}", added.len(), first(added))
            }
            CheckLossKind::Killed => write!(f, "ended with an exit code before and is killed now"),
        }
    }
}

impl CheckReport {
    /// Returns each check that got worse since the report `before`. Ignores checks that are in only one report.
    pub fn losses_since(&self, before: &Self) -> Vec<CheckLoss> {
        let lost = |(before, now): (&CheckOutcome, &CheckOutcome)| {
            Some(CheckLoss { check: now.name.clone(), kind: loss(before, now)? })
        };
        self.pairs(before).filter_map(lost).collect()
    }

    /// Whether this report is worse than `other`: a check got worse, and no failing check of `other` passes here. A check
    /// that passes with fewer passing tests is not an improvement.
    pub fn is_worse_than(&self, other: &Self) -> bool {
        let gained =
            |(before, now): (&CheckOutcome, &CheckOutcome)| now.holds && !before.holds && loss(before, now).is_none();
        !self.losses_since(other).is_empty() && !self.pairs(other).any(gained)
    }

    /// Returns each check in both reports as a pair of its earlier and current outcomes.
    fn pairs<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a CheckOutcome, &'a CheckOutcome)> {
        self.outcomes
            .iter()
            .filter_map(|now| Some((before.outcomes.iter().find(|before| before.name == now.name)?, now)))
    }
}

fn loss(before: &CheckOutcome, now: &CheckOutcome) -> Option<CheckLossKind> {
    if before.holds && !now.holds {
        return Some(CheckLossKind::Fails);
    }
    if let (Some(before), Some(now)) = (before.passing_tests(), now.passing_tests()) {
        return (now < before).then_some(CheckLossKind::FewerPassing { before, now });
    }
    if now.holds {
        return None;
    }
    let (tests, errors) = (added(&before.failing_tests, &now.failing_tests), added(&before.errors, &now.errors));
    if before.exit_code.is_some() && now.exit_code.is_none() {
        return Some(CheckLossKind::Killed);
    }
    tests.map(|added| CheckLossKind::MoreFailing { added }).or(errors.map(|added| CheckLossKind::MoreErrors { added }))
}

/// Returns the names only in `now`, if `now` contains every name in `before`. `None` if a name is missing, `before` is
/// empty, or nothing was added.
pub fn added(before: &[String], now: &[String]) -> Option<Vec<String>> {
    let earlier: BTreeSet<&String> = before.iter().collect();
    let later: BTreeSet<&String> = now.iter().collect();
    let grew = !earlier.is_empty() && earlier.is_subset(&later) && earlier.len() < later.len();
    grew.then(|| later.difference(&earlier).map(|name| (*name).clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::task::TestCounts;

    fn failing(tests: &[&str], errors: &[&str]) -> CheckOutcome {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        CheckOutcome {
            name: "test".to_owned(),
            exit_code: Some(1),
            failing_tests: owned(tests),
            errors: owned(errors),
            ..CheckOutcome::default()
        }
    }

    fn passing() -> CheckOutcome {
        CheckOutcome { name: "test".to_owned(), holds: true, exit_code: Some(0), ..CheckOutcome::default() }
    }

    fn counted(base: CheckOutcome, passing: u64, failing: u64) -> CheckOutcome {
        CheckOutcome { tests: Some(TestCounts { passing, failing, skipped: 0 }), ..base }
    }

    fn of(before: &CheckOutcome, now: &CheckOutcome) -> Option<CheckLossKind> {
        let report = |outcome: &CheckOutcome| CheckReport { outcomes: vec![outcome.clone()] };
        let (before, now) = (report(before), report(now));
        let losses = now.losses_since(&before);
        assert_eq!(now.is_worse_than(&before), !losses.is_empty());
        assert!(losses.iter().all(|loss| loss.to_string().starts_with("`test` ")));
        losses.into_iter().next().map(|loss| loss.kind)
    }

    #[test]
    fn fewer_passing_tests_are_a_loss_in_passing_check() {
        let fewer = Some(CheckLossKind::FewerPassing { before: 40, now: 35 });
        assert_eq!(of(&counted(passing(), 40, 0), &counted(passing(), 35, 0)), fewer);
        assert_eq!(of(&counted(failing(&[], &[]), 40, 2), &counted(failing(&[], &[]), 35, 7)), fewer);
        let more = counted(failing(&["a", "b"], &[]), 41, 5);
        assert_eq!(of(&counted(failing(&["a"], &[]), 40, 1), &more), None, "added tests that fail take nothing away");
        assert_eq!(of(&counted(passing(), 40, 0), &counted(failing(&[], &[]), 40, 1)), Some(CheckLossKind::Fails));
    }

    #[test]
    fn incomplete_run_does_not_count_as_fewer_tests() {
        let before = counted(failing(&[], &[]), 40, 2);
        let cut = CheckOutcome { incomplete: true, ..counted(failing(&[], &[]), 3, 1) };
        assert_eq!(of(&before, &cut), None);
        assert_eq!(of(&before, &failing(&[], &["it does not compile"])), None);
        assert_eq!(of(&cut, &counted(failing(&[], &[]), 1, 0)), None, "3 is only a part of what passed before");
    }

    #[test]
    fn passing_check_without_complete_counts_is_not_a_loss() {
        let before = counted(passing(), 40, 0);
        assert_eq!(of(&before, &passing()), None, "some tools print a report only if tests fail");
        assert_eq!(of(&before, &CheckOutcome { incomplete: true, ..counted(passing(), 39, 0) }), None);
        assert_eq!(of(&counted(failing(&[], &[]), 40, 1), &passing()), None);
    }

    #[test]
    fn uncounted_checks_compare_names_and_error_lines() {
        let more = |added: &str| Some(CheckLossKind::MoreFailing { added: vec![added.to_owned()] });
        assert_eq!(of(&failing(&["a"], &[]), &failing(&["a", "b"], &[])), more("b"));
        assert_eq!(of(&failing(&["a"], &[]), &failing(&["b", "c"], &[])), None, "one was repaired");
        assert_eq!(of(&failing(&["a", "b"], &[]), &failing(&["a"], &[])), None);
        let errors = Some(CheckLossKind::MoreErrors { added: vec!["y".to_owned()] });
        assert_eq!(of(&failing(&[], &["x"]), &failing(&[], &["x", "y"])), errors);
        assert_eq!(of(&failing(&[], &["syntax"]), &failing(&[], &["x", "y", "z"])), None, "the syntax was repaired");
        assert_eq!(of(&failing(&[], &[]), &failing(&[], &["x"])), None, "nothing was known before");
    }

    #[test]
    fn unknown_errors_compare_exit_codes() {
        let killed = CheckOutcome { exit_code: None, ..failing(&[], &[]) };
        assert_eq!(of(&failing(&[], &[]), &killed), Some(CheckLossKind::Killed));
        assert_eq!(of(&killed, &failing(&[], &[])), None);
        assert_eq!(of(&failing(&[], &[]), &failing(&[], &[])), None);
        assert_eq!(of(&failing(&[], &[]), &passing()), None);
    }

    #[test]
    fn report_with_newly_passing_check_is_not_worse() {
        let other = |holds| CheckOutcome { name: "build".to_owned(), holds, ..CheckOutcome::default() };
        let report = |outcomes: &[CheckOutcome]| CheckReport { outcomes: outcomes.to_vec() };
        let before = report(&[counted(failing(&[], &[]), 4, 1), other(false)]);
        let now = report(&[counted(failing(&[], &[]), 3, 2), other(true)]);
        assert!(!now.is_worse_than(&before) && now.losses_since(&before).len() == 1);
        assert!(before.is_worse_than(&report(&[counted(passing(), 5, 0), other(true)])));
        assert!(!report(&[]).is_worse_than(&before) && !before.is_worse_than(&report(&[])));
    }
}
