//! Conclusions from earlier runs of the checks: which checks are flaky, which run a second time, and whether the report of a test
//! runner counts against exit code 0.

use std::collections::{BTreeSet, HashSet};

use super::Loop;
use crate::domain::checks::criteria;
use crate::domain::model::task::{Check, CheckOutcome, CheckReport};

/// Maximum duration of a first run for which the checks of the base run again, in milliseconds.
const RETRIED_WITHIN_MS: u64 = 30_000;
/// Duration up to which a verification is always repeated, in milliseconds. Includes its set-up.
const REPEATED_WITHIN_MS: u64 = 60_000;
/// Divisor of the loop's time limit: a longer verification is repeated if it takes at most this fraction of the limit.
const REPEATED_SHARE: u64 = 8;

impl Loop {
    /// Returns the checks of the base to run again after `report`: those that failed, or all of them if all passed. Empty if that
    /// would take too long.
    pub fn checks_to_retry(&self, report: &CheckReport) -> Vec<Check> {
        let all = report.all_hold();
        let deciding = || report.outcomes.iter().filter(|outcome| all || !outcome.holds);
        let cheap = deciding().map(|outcome| outcome.duration_ms).sum::<u64>() <= RETRIED_WITHIN_MS;
        self.checks_named(|name| cheap && deciding().any(|outcome| outcome.name == name))
    }

    /// Returns the checks that must pass a second time before the work counts as verified. These are the checks that are known to
    /// be flaky. If the first run took at most a minute or an eighth of the loop's time limit, they also include the checks that
    /// failed earlier in the loop, because their success is the evidence of the work.
    pub fn checks_to_repeat(&self, elapsed_ms: u64) -> Vec<Check> {
        let bound = u64::try_from(self.limits.time_ms).unwrap_or_default() / REPEATED_SHARE;
        let affordable = elapsed_ms <= REPEATED_WITHIN_MS.max(bound);
        self.checks_named(|name| self.is_known_as_flaky(name) || affordable && self.failed_before(name))
    }

    /// Sets `ran_once` of the passed checks that failed earlier in the loop, unless `again` is true for them because they also
    /// passed a second run.
    pub fn mark_run_once(&self, report: &mut CheckReport, again: impl Fn(&str) -> bool) {
        for outcome in report.outcomes.iter_mut().filter(|outcome| outcome.holds) {
            outcome.ran_once = self.failed_before(&outcome.name) && !again(&outcome.name);
        }
    }

    /// Fails each check of `report` whose test runner objects to exit code 0, or whose output lacks the report that an earlier run
    /// had, if the runner's output was understood in an earlier run of the same command. Otherwise the exit code decides. A runner
    /// that no such run had does not object: its lines may be a printed file, or tests that test a runner. A check that ran no tests
    /// passes if the same command failed without tests at the base: its exit code depends on something else.
    pub fn apply_objections(&self, report: &mut CheckReport) {
        for outcome in &mut report.outcomes {
            let of_same_command = |then: &&CheckOutcome| then.name == outcome.name && then.command == outcome.command;
            if outcome.contradicted && ran_no_tests(outcome) {
                let mut at_base = self
                    .checks
                    .baseline_report()
                    .into_iter()
                    .flat_map(|report| &report.outcomes)
                    .filter(of_same_command);
                if at_base.any(|then| then.exit_code.is_some_and(|code| code != 0) && ran_no_tests(then)) {
                    outcome.why.clear();
                    (outcome.holds, outcome.contradicted) = (true, false);
                }
                continue;
            }
            if !outcome.holds {
                continue;
            }
            let earlier = self.reports_of_now().flat_map(|report| &report.outcomes).filter(of_same_command);
            let mut understood = earlier.filter(|then| then.understood);
            let why = match &outcome.objection {
                Some(why) => understood.any(|then| may_object(&outcome.objectors, then)).then(|| why.clone()),
                None => understood.find_map(|then| lost_report(then, outcome)),
            };
            let otherwise = |check: &Check| check.name == outcome.name && !criteria::passes_by_exit_code(check);
            if let Some(why) = why.filter(|_| !self.checks.list.iter().any(otherwise)) {
                outcome.why = why;
                (outcome.holds, outcome.contradicted) = (false, true);
            }
        }
    }

    fn failed_before(&self, name: &str) -> bool {
        self.reports_of_now().any(|report| has(report, name, |outcome| !outcome.holds))
    }

    fn checks_named(&self, wanted: impl Fn(&str) -> bool) -> Vec<Check> {
        self.checks.list.iter().filter(|check| wanted(&check.name)).cloned().collect()
    }

    /// Returns the reports of the current checks: the baseline, and the iterations' reports since the last change of the checks.
    fn reports_of_now(&self) -> impl Iterator<Item = &CheckReport> {
        let of_now = self.iterations.iter().filter(|iteration| iteration.number > self.checks.measured_after);
        self.checks.baseline_report().into_iter().chain(of_now.map(|iteration| &iteration.checks))
    }

    /// Whether a check is known to be flaky: it failed once and passed once on the same commit.
    pub fn is_known_as_flaky(&self, name: &str) -> bool {
        self.reports_of_now().any(|report| has(report, name, |outcome| outcome.flaky))
    }

    /// Returns the commands of the current checks that are known to be flaky.
    pub fn flaky_checks(&self) -> Vec<String> {
        let mut commands: Vec<String> = Vec::new();
        for outcome in self.reports_of_now().flat_map(|report| &report.outcomes).filter(|outcome| outcome.flaky) {
            if !commands.contains(&outcome.command) {
                commands.push(outcome.command.clone());
            }
        }
        commands
    }

    /// Returns the names of the checks that failed in a fresh checkout of the newest commit.
    pub fn failed_in_fresh_checkout(&self) -> &[String] {
        let failed =
            self.checks.guard.failed.as_ref().filter(|failed| self.branch.head.as_ref() == Some(&failed.commit));
        failed.map_or(&[][..], |failed| &failed.checks[..])
    }

    /// Whether the branch has the same files as its base, and the baseline was measured at that base.
    pub fn is_unchanged(&self) -> bool {
        let measured_here = self.branch.base.is_some() && self.checks.baseline_commit() == self.branch.base.as_ref();
        let empty = || self.branch_stat().is_some_and(|stat| stat.files.is_empty());
        measured_here && (self.branch.head == self.branch.base || empty())
    }

    /// Marks checks as flaky that failed in the baseline and pass in `report` although the branch is unchanged.
    pub fn mark_unexplained(&self, report: &mut CheckReport) {
        let Some(start) = self.checks.baseline_report().filter(|_| self.is_unchanged()) else { return };
        for outcome in report.outcomes.iter_mut().filter(|outcome| outcome.holds) {
            outcome.flaky |= has(start, &outcome.name, |then| !then.holds);
        }
    }
}

/// Whether a test runner reported zero tests.
fn ran_no_tests(outcome: &CheckOutcome) -> bool {
    outcome.tests.is_some_and(|tests| tests.passing + tests.failing == 0)
}

/// Whether one of the objecting runners, if they are known, counted tests in an earlier run.
fn may_object(objectors: &BTreeSet<String>, then: &CheckOutcome) -> bool {
    let unknown = objectors.is_empty() || objectors.contains("") || then.runners.is_empty();
    unknown || !objectors.is_disjoint(&then.runners)
}

/// Returns the reason why a check that exited 0 does not pass: its output has no report of tests, and each line also occurs in an
/// earlier run whose report counted passing tests. The tests then ended before the report. `None` if the output has another line,
/// which may be a report that was not understood.
fn lost_report(then: &CheckOutcome, now: &CheckOutcome) -> Option<String> {
    let counted = then.tests.filter(|tests| tests.passing > 0 && now.tests.is_none())?;
    // Numbers such as times differ in each run.
    let plain = |line: &str| line.trim().replace(|c: char| c.is_ascii_digit(), "0");
    let known: HashSet<String> = then.output.lines().map(plain).collect();
    let all = counted.passing + counted.failing;
    // The marks of finished tests are not a report.
    let is_progress = |line: &str| line.trim().chars().all(|mark| ".FE*!,".contains(mark));
    let is_known = |line: &str| is_progress(line) || known.contains(&plain(line));
    now.output
        .lines()
        .all(is_known)
        .then(|| format!("exit code 0, but no report of tests; an earlier run of the same command reported {all}"))
}

fn has(report: &CheckReport, name: &str, test: impl Fn(&CheckOutcome) -> bool) -> bool {
    report.outcomes.iter().any(|outcome| outcome.name == name && test(outcome))
}
