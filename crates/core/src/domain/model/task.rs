//! Checks of a task, their outcomes, and the completion measured with them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Percent, Ratio};
use crate::domain::model::plan::TaskPlan;

/// Source of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckSource {
    /// Command `/ralph run --check` of a person with permission.
    Command,
    /// Text of the issue when the label was set, if its author has write access.
    Issue,
    /// File `.ralph.yml` on the default branch.
    RepositoryFile,
    /// Detection from the tree (Cargo.toml, package.json, …).
    Detected,
}

/// Rule that decides whether a command passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CheckRule {
    /// The command exits 0.
    ExitCode,
    /// The command exits with code 0 and prints only white space.
    EmptyOutput,
    /// The first group of the last match of `pattern` is a percentage of at least `min`.
    Coverage { pattern: String, min: Percent },
    /// The command exits with code 0 (with `any_exit`, any code), and the first group of the last match of `pattern` is a
    /// number within the bounds, both inclusive.
    Count {
        pattern: String,
        at_least: Option<f64>,
        at_most: Option<f64>,
        #[serde(default)]
        any_exit: bool,
    },
}

/// Command with a rule for passing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name, unique within a loop.
    pub name: String,
    /// Shell command, run with `sh -c` in the work tree; from trusted sources only.
    pub command: String,
    /// Rule for passing.
    pub rule: CheckRule,
    /// Source of the check.
    pub source: CheckSource,
    /// Time limit of one run, in seconds; `None` for the operator's default.
    pub timeout_s: Option<u64>,
    /// Pattern with the groups `passed`, `failed` and `skipped`, which reads test counts if no known test runner is
    /// detected.
    #[serde(default)]
    pub counts: Option<String>,
    /// Glob of the JUnit files written by the command, relative to the tree. Their counts override printed counts.
    #[serde(default)]
    pub junit: Option<String>,
}

/// Number of tests by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestCounts {
    /// Number of passed tests.
    pub passing: u64,
    /// Number of tests that failed or had errors.
    pub failing: u64,
    /// Number of tests that did not run.
    pub skipped: u64,
}

impl TestCounts {
    /// Returns the sum of two counts.
    pub fn plus(self, other: Self) -> Self {
        Self {
            passing: self.passing.saturating_add(other.passing),
            failing: self.failing.saturating_add(other.failing),
            skipped: self.skipped.saturating_add(other.skipped),
        }
    }
}

/// Test results of a check, from its output or its JUnit files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestResults {
    /// Counts; `None` if the output has no summary line of a known test runner.
    pub counts: Option<TestCounts>,
    /// Names of failing tests as printed by the runner; number and length are limited.
    pub failing: Vec<String>,
    /// Whether a run ended early (crash, broken test file, stop at the first failure), so the counts are incomplete.
    pub incomplete: bool,
    /// Whether the output contains the first line or the progress of a run, but not its end.
    pub cut: bool,
    /// Whether other lines look like the summary of an unknown test runner.
    pub unread: bool,
    /// Number of failures that may not be separate tests, such as failing hooks and subtests.
    pub extra: u64,
    /// Names of the runners whose tests were counted.
    pub runners: BTreeSet<String>,
    /// Names of the runners that report a failure, or whose run was cut; an empty name means an unknown runner.
    pub objectors: BTreeSet<String>,
}

/// Outcome of one check.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CheckOutcome {
    /// Name of the check.
    pub name: String,
    /// Executed command, for display.
    pub command: String,
    /// Whether the check passed.
    pub holds: bool,
    /// Reason for the failure, in one sentence ("exit code 1", "timed out after 300 s", "found 79.5 %, needs 80 %"); empty
    /// if the check passed.
    pub why: String,
    /// Exit code; `None` after a signal or a timeout.
    pub exit_code: Option<i32>,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// Test counts; `None` if no test runner was detected.
    pub tests: Option<TestCounts>,
    /// Names of failing tests, if printed by the runner; at most `MAX_TEST_NAMES`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing_tests: Vec<String>,
    /// Whether a test run ended early, so `tests` is incomplete.
    #[serde(default, skip_serializing_if = "is_false")]
    pub incomplete: bool,
    /// Number of failures in `tests` that may not be separate tests, such as failing hooks and subtests.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extra_failures: u64,
    /// Whether the counted tests agree with the exit code, which shows that the test runner's output was understood.
    #[serde(default, skip_serializing_if = "is_false")]
    pub understood: bool,
    /// Evidence in the output against exit code 0, in one sentence. It counts only if an earlier run was understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objection: Option<String>,
    /// Names of the runners whose tests were counted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub runners: BTreeSet<String>,
    /// Names of the runners on which the objection rests; an empty name means an unknown runner. Empty if it rests on
    /// counts that have no runner.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub objectors: BTreeSet<String>,
    /// Whether the check failed although the command exited with code 0, because the test runner reported a failure or no
    /// tests.
    #[serde(default, skip_serializing_if = "is_false")]
    pub contradicted: bool,
    /// Whether the check failed once and passed once on the same commit.
    #[serde(default, skip_serializing_if = "is_false")]
    pub flaky: bool,
    /// Whether the check ran only once during verification, because a second run would take too long.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ran_once: bool,
    /// Distinct normalized error lines of a failed check; their number is limited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Coverage in percent, if printed by a known tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<f64>,
    /// Number that the rule compares; `None` for `ExitCode`.
    pub measured: Option<f64>,
    /// Required number; `None` if the check passed.
    #[serde(default)]
    pub wanted: Option<f64>,
    /// End of the output with masked secrets; at most 16 KiB of valid text.
    pub output: String,
}

/// Maximum number of stored names of failing tests.
pub const MAX_TEST_NAMES: usize = 50;

impl TestResults {
    /// Combines the results of two test runs.
    pub fn plus(mut self, other: Self) -> Self {
        self.counts = [self.counts, other.counts].into_iter().flatten().reduce(TestCounts::plus);
        self.incomplete |= other.incomplete;
        self.cut |= other.cut;
        self.unread |= other.unread;
        self.extra = self.extra.saturating_add(other.extra);
        self.runners.extend(other.runners);
        self.objectors.extend(other.objectors);
        for name in other.failing {
            if self.failing.len() < MAX_TEST_NAMES && !self.failing.contains(&name) {
                self.failing.push(name);
            }
        }
        self
    }
}

/// Whether a flag is false; used to omit the field during serialization.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Whether a number is zero; used to omit the field during serialization.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl CheckOutcome {
    /// Returns the number of passing tests; `None` if the tests were not counted completely, or if the output was not
    /// understood.
    pub fn passing_tests(&self) -> Option<u64> {
        let unknown = self.incomplete || self.holds && self.objection.is_some();
        self.tests.filter(|_| !unknown).map(|tests| tests.passing)
    }

    /// Returns the repaired share of the failure at `start`, 0..1. It is 1.0 exactly if the check passes, except that a
    /// flaky check that failed at `start` has 0, because no change repaired it. For a failing check, the share is computed
    /// from the tests that failed at `start` or were added later, or from the distance between the measured and the required
    /// number. 0 if nothing was counted.
    fn part(&self, start: Option<&Self>) -> f64 {
        const ALMOST: f64 = 0.99;
        if self.holds {
            return if self.flaky && start.is_some_and(|start| !start.holds) { 0.0 } else { 1.0 };
        }
        let start = start.filter(|start| !start.holds);
        let tests = self.tests.filter(|tests| tests.failing > 0).map(|now| {
            let all = (now.passing + now.failing) as f64;
            let before = start.and_then(|start| start.tests).filter(|then| then.failing > 0);
            let of =
                before.map_or(all, |then| then.failing as f64 + (all - (then.passing + then.failing) as f64).max(0.0));
            1.0 - now.failing as f64 / of
        });
        let number = || {
            let (now, wanted) = (self.measured?, self.wanted?);
            let then = start.and_then(|start| start.measured).unwrap_or(0.0);
            (then != wanted).then(|| (now - then) / (wanted - then))
        };
        let part = tests.or_else(number).filter(|part| part.is_finite());
        part.unwrap_or_default().clamp(0.0, ALMOST)
    }
}

/// Outcomes of one run of all checks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CheckReport {
    /// Outcomes, in the order of the checks.
    pub outcomes: Vec<CheckOutcome>,
}

impl CheckReport {
    /// Whether there is at least one check and all checks pass.
    pub fn all_hold(&self) -> bool {
        !self.outcomes.is_empty() && self.outcomes.iter().all(|o| o.holds)
    }

    /// Whether there is at least one check, and each check passed in at least one run.
    pub fn may_hold(&self) -> bool {
        !self.outcomes.is_empty() && self.outcomes.iter().all(|o| o.holds || o.flaky)
    }

    /// Returns the number of passing checks.
    pub fn held(&self) -> usize {
        self.outcomes.iter().filter(|o| o.holds).count()
    }

    /// Merges a second run on the same commit. If all checks passed before, a check that fails now is flaky and fails.
    /// Otherwise, `again` has the previously failed checks, and a check that passes now is flaky and passes.
    pub fn run_twice(self, again: Self) -> Self {
        if self.all_hold() { self.repeated(again) } else { self.retried(again) }
    }

    /// Merges a second run of the failed checks on the same commit. A check that passes now is flaky and counts as passing.
    fn retried(mut self, again: Self) -> Self {
        for second in again.outcomes.into_iter().filter(|second| second.holds) {
            if let Some(first) = self.outcomes.iter_mut().find(|first| first.name == second.name && !first.holds) {
                *first = CheckOutcome { flaky: true, ..second };
            }
        }
        self
    }

    /// Whether there is a check with this name and it passed.
    pub fn holds(&self, name: &str) -> bool {
        self.outcomes.iter().any(|outcome| outcome.name == name && outcome.holds)
    }

    /// Merges a second run of the passed checks on the same commit. A check that fails now is flaky and counts as failing.
    pub fn repeated(mut self, again: Self) -> Self {
        for second in again.outcomes.into_iter().filter(|second| !second.holds) {
            if let Some(first) = self.outcomes.iter_mut().find(|first| first.name == second.name && first.holds) {
                let why = format!("passed once and failed once on the same commit: {}", second.why);
                *first = CheckOutcome { flaky: true, why, ..second };
            }
        }
        self
    }

    /// Returns the sum of the test counts; `None` if no check has counts.
    pub fn tests(&self) -> Option<TestCounts> {
        self.outcomes.iter().filter_map(|o| o.tests).reduce(TestCounts::plus)
    }

    /// Returns the number of passing tests in all checks; `None` if no check counts tests, or if a run ended early.
    pub fn passing_tests(&self) -> Option<u64> {
        let counted = !self.outcomes.iter().any(|outcome| outcome.incomplete);
        self.tests().filter(|_| counted).map(|tests| tests.passing)
    }

    /// Returns the failures of failing checks without test counts: names of failing tests, or error lines. Each starts with
    /// its check's name.
    pub fn uncounted_failures(&self) -> Vec<String> {
        let uncounted = self.outcomes.iter().filter(|outcome| !outcome.holds && outcome.passing_tests().is_none());
        let of = |outcome: &CheckOutcome| {
            let known = if outcome.failing_tests.is_empty() { &outcome.errors } else { &outcome.failing_tests };
            known.iter().map(|failure| format!("{}: {failure}", outcome.name)).collect::<Vec<_>>()
        };
        uncounted.flat_map(of).collect()
    }

    /// Returns the measured completion: the mean repaired share of the checks that failed at `start` or fail now. It is 1.0
    /// exactly if all checks pass. `claimed`, the agent's figure, is used only without checks.
    pub fn completion(&self, start: Option<&Self>, claimed: Option<Ratio>) -> Ratio {
        const ALMOST: f64 = 0.99;
        if self.outcomes.is_empty() {
            return Ratio::new(claimed.map_or(0.0, Ratio::get).min(ALMOST));
        }
        if self.all_hold() {
            return Ratio::new(1.0);
        }
        let parts = self.outcomes.iter().filter_map(|now| {
            let then = start.and_then(|start| start.outcomes.iter().find(|then| then.name == now.name));
            (!now.holds || !then.is_some_and(|then| then.holds)).then(|| now.part(then))
        });
        let (sum, checks) = parts.fold((0.0, 0.0), |(sum, checks), part| (sum + part, checks + 1.0));
        Ratio::new((sum / checks).min(ALMOST))
    }
}

/// Change to tests or checks, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredFinding")]
pub struct TamperFinding {
    /// Path of the file.
    pub path: String,
    /// 1-based line of the evidence: in the file after the change, or before the change if the file was deleted. `None` if
    /// the whole file is the evidence.
    pub line: Option<u32>,
    /// Kind of the change.
    pub kind: TamperKind,
    /// Line or fact that proves the finding, at most 200 characters.
    pub evidence: String,
}

impl TamperFinding {
    /// Creates a finding about a whole file.
    pub fn new(path: impl Into<String>, kind: TamperKind, evidence: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, kind, evidence: evidence.into() }
    }

    /// Whether the finding must be resolved before the work is done.
    pub fn blocks(&self) -> bool {
        self.kind.blocks_review()
    }
}

/// Finding as stored. Earlier versions also stored non-blocking findings of all kinds, with the grade `notice`.
#[derive(Deserialize)]
struct StoredFinding {
    path: String,
    #[serde(default)]
    line: Option<u32>,
    kind: TamperKind,
    evidence: String,
    #[serde(default)]
    grade: String,
}

impl From<StoredFinding> for TamperFinding {
    fn from(stored: StoredFinding) -> Self {
        let StoredFinding { path, line, kind, evidence, grade } = stored;
        let kind = if grade == "notice" && kind.blocks_review() { TamperKind::TestsChanged } else { kind };
        Self { path, line, kind, evidence }
    }
}

/// Kind of a change to tests or checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TamperKind {
    /// Tests, or files that start checks, differ from the base's. The run with the base's tests judges the difference.
    // The aliases are kinds from earlier versions, which compared the tests' texts.
    #[serde(
        alias = "test_deleted",
        alias = "test_skipped",
        alias = "assertion_removed",
        alias = "assertion_weakened",
        alias = "expectation_changed",
        alias = "threshold_lowered",
        alias = "early_exit",
        alias = "failure_ignored",
        alias = "code_replaced"
    )]
    TestsChanged,
    /// The configuration of a check or runner was edited.
    CheckConfigEdited,
    /// A CI workflow was edited.
    WorkflowEdited,
    /// The file `.ralph.yml` was edited.
    RalphFileEdited,
    /// Program code prevents tests from failing.
    TestsNeutralized,
    /// Functions of the program return the tests' expected values without computing them.
    AnswersHardCoded,
    /// The checks pass only because the branch changed existing tests.
    OnlyChangedTests,
    /// A check counts fewer tests than in the base.
    TestCountFell,
    /// Tests, or files that start checks, were rewritten during the checks.
    TestsRewritten,
    /// Tests in a program file changed, and their base version could not run with the branch's program.
    TestsNotJudged,
}

impl TamperKind {
    /// Returns a clause for display, such as `fewer tests are counted`.
    pub fn description(self) -> &'static str {
        match self {
            Self::TestsChanged => "tests differ from the base's",
            Self::CheckConfigEdited => "the configuration of a check was edited",
            Self::WorkflowEdited => "a CI workflow was edited",
            Self::RalphFileEdited => "the bot's configuration was edited",
            Self::TestsNeutralized => "program code keeps tests from failing",
            Self::AnswersHardCoded => "the program contains the answers of tests",
            Self::OnlyChangedTests => "the checks pass only with the changed tests",
            Self::TestCountFell => "fewer tests are counted",
            Self::TestsRewritten => "tests are written while the checks run",
            Self::TestsNotJudged => "the service could not run the base's version of a changed test",
        }
    }

    /// Whether the finding prevents review until it is fixed or accepted. False for changed tests, because the run with the
    /// base's tests judges them, and for workflows and `.ralph.yml`, because protected paths have a separate policy.
    pub fn blocks_review(self) -> bool {
        !matches!(self, Self::TestsChanged | Self::WorkflowEdited | Self::RalphFileEdited)
    }

    /// Whether a task can legitimately require such a change. A person then decides about it; otherwise, the service reverts
    /// it.
    pub fn may_be_required(self) -> bool {
        matches!(self, Self::OnlyChangedTests | Self::AnswersHardCoded | Self::TestsNotJudged)
    }
}

/// Size of a change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiffStat {
    /// One entry per file.
    pub files: Vec<FileStat>,
}

/// Size of a change in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Path relative to the tree.
    pub path: String,
    /// Number of added lines; 0 for binary files.
    pub added: u64,
    /// Number of removed lines; 0 for binary files.
    pub removed: u64,
    /// Whether git treats the file as binary.
    pub binary: bool,
    /// Kind of the change; `None` if it was not determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeKind>,
}

/// Kind of a file's change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The file is new.
    Created,
    /// Its content, its mode or its type changed.
    Modified,
    /// The file was removed.
    Deleted,
    /// The file was moved, and its content may have changed.
    Renamed {
        /// Previous path, relative to the tree.
        from: String,
    },
}

impl DiffStat {
    /// Returns the total numbers of added and removed lines.
    pub fn lines(&self) -> (u64, u64) {
        self.files.iter().fold((0, 0), |(a, r), f| (a + f.added, r + f.removed))
    }
}

/// Agent's report about its run (the file at `RALPH_REPORT`). Untrusted data.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentReport {
    /// Claimed completion, 0..=100.
    pub completion_percentage: Option<f64>,
    /// Summary in one or two sentences.
    pub summary: String,
    /// Approach of the iteration.
    pub approach: String,
    /// Learnings.
    pub learnings: Vec<String>,
    /// Blockers.
    pub blockers: Vec<String>,
    /// Steps taken to resolve blockers.
    pub resolution_steps: Vec<String>,
    /// Next steps proposed by the agent.
    pub next_steps: Vec<String>,
    /// Whether the agent claims that the task is done.
    pub completion_signal: bool,
    /// Plan, if the run was asked to create one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<TaskPlan>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, holds: bool) -> CheckOutcome {
        CheckOutcome { name: name.to_owned(), holds, ..CheckOutcome::default() }
    }

    fn counted(passing: u64, failing: u64) -> CheckOutcome {
        let tests = Some(TestCounts { passing, failing, skipped: 0 });
        CheckOutcome { tests, ..outcome("test", failing == 0) }
    }

    fn number(name: &str, measured: f64, wanted: f64) -> CheckOutcome {
        CheckOutcome { measured: Some(measured), wanted: Some(wanted), ..outcome(name, false) }
    }

    fn completion(start: &[CheckOutcome], now: &[CheckOutcome]) -> f64 {
        let report = |outcomes: &[CheckOutcome]| CheckReport { outcomes: outcomes.to_vec() };
        report(now).completion(Some(&report(start)), None).get()
    }

    #[test]
    fn completion_counts_tests_that_failed_at_start() {
        let start = [counted(4997, 3)];
        let walk = [3, 2, 1, 0].map(|failing| completion(&start, &[counted(5000 - failing, failing)]));
        assert_eq!(walk.map(|part| (part * 100.0).round()), [0.0, 33.0, 67.0, 100.0]);
        assert_eq!(completion(&start, &[counted(4900, 100)]), 0.0, "more fail than at the start");
        assert_eq!(completion(&start, &[counted(4999, 11)]), 1.0 - 11.0 / 13.0, "ten tests more are ten more to do");
        assert_eq!(completion(&[outcome("test", false)], &[counted(3, 1)]), 0.75, "nothing was counted at the start");
    }

    #[test]
    fn check_that_always_passed_does_not_affect_completion() {
        let (build, lint) = (outcome("build", true), outcome("lint", true));
        let start = [build.clone(), lint.clone(), counted(0, 10)];
        assert_eq!(completion(&start, &start), 0.0);
        assert_eq!(completion(&start, &[build.clone(), lint, counted(6, 4)]), 0.6);
        assert_eq!(completion(&start, &[build, outcome("lint", false), counted(6, 4)]), 0.3, "what broke counts too");
        let broken = [outcome("build", false), outcome("lint", true), outcome("test", false)];
        assert_eq!(completion(&start, &broken), 0.0);
        assert_eq!(completion(&[outcome("test", true)], &[counted(9, 1)]), 0.9, "one of ten broke");
    }

    #[test]
    fn numeric_check_counts_by_distance_to_goal() {
        let coverage = |now| completion(&[number("coverage", 60.0, 80.0)], &[number("coverage", now, 80.0)]);
        assert_eq!([60.0, 75.0, 50.0].map(coverage), [0.0, 0.75, 0.0]);
        assert_eq!(completion(&[number("lint", 20.0, 0.0)], &[number("lint", 5.0, 0.0)]), 0.75);
        assert_eq!(completion(&[outcome("coverage", false)], &[number("coverage", 40.0, 80.0)]), 0.5);
        assert_eq!(completion(&[outcome("lint", false)], &[number("lint", 5.0, 0.0)]), 0.0, "from where is not known");
        assert_eq!(completion(&[outcome("lint", false)], &[number("lint", f64::NAN, 1.0)]), 0.0);
    }

    #[test]
    fn completion_is_one_only_if_all_checks_pass() {
        let start = [outcome("build", false), counted(0, 3)];
        assert_eq!(completion(&start, &[outcome("build", true), counted(1, 2)]), (1.0 + (1.0 - 2.0 / 3.0)) / 2.0);
        assert_eq!(completion(&start, &[outcome("build", true), counted(3, 0)]), 1.0);
        assert_eq!(completion(&[counted(0, 1000)], &[counted(999, 1)]), 0.99);
        let claimed = Some(Ratio::new(1.0));
        assert_eq!(CheckReport::default().completion(None, claimed).get(), 0.99);
        let failing = CheckReport { outcomes: vec![outcome("test", false)] };
        assert_eq!(failing.completion(None, claimed).get(), 0.0, "what is measured is not claimed");
    }
}
