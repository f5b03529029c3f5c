//! Checks whose result is a matter of chance: which ones are known, and which are run a second time.

use super::Loop;
use crate::domain::model::task::{Check, CheckOutcome, CheckReport};

/// Longest first run after which failing checks of the base run again, in milliseconds.
const RETRIED_WITHIN_MS: u64 = 30_000;
/// Longest verification, with its set-up, after which the checks that show the progress run again in any case, in milliseconds.
const REPEATED_WITHIN_MS: u64 = 60_000;
/// Share of a loop's time limit that a longer verification may take and is still repeated.
const REPEATED_SHARE: u64 = 8;

impl Loop {
    /// Returns the checks of the base that run a second time after `report`, if that is cheap: those that failed, or all if all
    /// passed.
    pub fn checks_to_retry(&self, report: &CheckReport) -> Vec<Check> {
        let all = report.all_hold();
        let deciding = || report.outcomes.iter().filter(|outcome| all || !outcome.holds);
        let cheap = deciding().map(|outcome| outcome.duration_ms).sum::<u64>() <= RETRIED_WITHIN_MS;
        self.checks_named(|name| cheap && deciding().any(|outcome| outcome.name == name))
    }

    /// Returns the checks that have to pass a second time before the work is verified: those that are known to be flaky, and, if
    /// the first run took at most a minute or an eighth of the loop's time limit, those that failed earlier in the loop, whose
    /// passing is the evidence.
    pub fn checks_to_repeat(&self, elapsed_ms: u64) -> Vec<Check> {
        let bound = u64::try_from(self.limits.time_ms).unwrap_or_default() / REPEATED_SHARE;
        let affordable = elapsed_ms <= REPEATED_WITHIN_MS.max(bound);
        self.checks_named(|name| self.is_known_as_flaky(name) || affordable && self.failed_before(name))
    }

    /// Marks the checks of a verification that failed earlier in the loop and passed only once, unless they ran `again` and passed.
    pub fn mark_run_once(&self, report: &mut CheckReport, again: impl Fn(&str) -> bool) {
        for outcome in report.outcomes.iter_mut().filter(|outcome| outcome.holds) {
            outcome.ran_once = self.failed_before(&outcome.name) && !again(&outcome.name);
        }
    }

    fn failed_before(&self, name: &str) -> bool {
        self.reports_of_now().any(|report| has(report, name, |outcome| !outcome.holds))
    }

    fn checks_named(&self, wanted: impl Fn(&str) -> bool) -> Vec<Check> {
        self.checks.iter().filter(|check| wanted(&check.name)).cloned().collect()
    }

    /// Reports of the current checks: at the start, and of the iterations since.
    fn reports_of_now(&self) -> impl Iterator<Item = &CheckReport> {
        let of_now = self.iterations.iter().filter(|iteration| iteration.number > self.measured_after);
        self.baseline.iter().chain(of_now.map(|iteration| &iteration.checks))
    }

    /// Whether a check failed once and passed once on the same commit.
    pub fn is_known_as_flaky(&self, name: &str) -> bool {
        self.reports_of_now().any(|report| has(report, name, |outcome| outcome.flaky))
    }

    /// Commands of the current checks that are known to be flaky.
    pub fn flaky_checks(&self) -> Vec<String> {
        let mut commands: Vec<String> = Vec::new();
        for outcome in self.reports_of_now().flat_map(|report| &report.outcomes).filter(|outcome| outcome.flaky) {
            if !commands.contains(&outcome.command) {
                commands.push(outcome.command.clone());
            }
        }
        commands
    }

    /// Names of the checks that failed in a fresh checkout of the newest commit.
    pub fn failed_in_fresh_checkout(&self) -> &[String] {
        let failed = self.guard.failed.as_ref().filter(|failed| self.head.as_ref() == Some(&failed.commit));
        failed.map_or(&[][..], |failed| &failed.checks[..])
    }

    /// Whether the branch has the files of its base, on which the current checks were measured first.
    pub fn is_unchanged(&self) -> bool {
        let measured_here = self.baseline.is_some() && self.base.is_some() && self.baseline_base == self.base;
        let empty = || self.branch_stat().is_some_and(|stat| stat.files.is_empty());
        measured_here && (self.head == self.base || empty())
    }

    /// Marks the checks of a report that failed before the first iteration and pass though the branch is unchanged.
    pub fn mark_unexplained(&self, report: &mut CheckReport) {
        let Some(start) = self.baseline.as_ref().filter(|_| self.is_unchanged()) else { return };
        for outcome in report.outcomes.iter_mut().filter(|outcome| outcome.holds) {
            outcome.flaky |= has(start, &outcome.name, |then| !then.holds);
        }
    }
}

fn has(report: &CheckReport, name: &str, test: impl Fn(&CheckOutcome) -> bool) -> bool {
    report.outcomes.iter().any(|outcome| outcome.name == name && test(outcome))
}
