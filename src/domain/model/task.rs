//! The task, its checks, and completion as measured from their outcomes.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Percent, Ratio};

/// Where a check came from; decides whose word it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckSource {
    /// `/ralph run --check` by somebody with permission.
    Command,
    /// The issue's text, written by somebody with write access, as it stood when labelled.
    Issue,
    /// The repository's file on the default branch.
    RepositoryFile,
    /// Found from the tree (Cargo.toml, package.json, …).
    Detected,
}

/// The rule by which a command's outcome counts as holding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CheckRule {
    /// The command exits 0.
    ExitCode,
    /// It exits 0 and prints nothing but white space.
    EmptyOutput,
    /// The percentage that `pattern`'s first group finds (last match) is at least `min`.
    Coverage { pattern: String, min: Percent },
    /// The number that `pattern`'s first group finds (last match) is within the bounds, both inclusive.
    Count { pattern: String, at_least: Option<f64>, at_most: Option<f64> },
}

/// A command with a rule for its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Short name for people; unique in a loop.
    pub name: String,
    /// Shell command, run by `sh -c` in the work tree; comes from trusted sources only.
    pub command: String,
    /// When it holds.
    pub rule: CheckRule,
    /// Whose word it is.
    pub source: CheckSource,
    /// Limit of one run, in seconds; `None` for the operator's.
    pub timeout_s: Option<u64>,
    /// Pattern with groups `passed`, `failed`, `skipped` to read test counts by, where no runner is recognised.
    #[serde(default)]
    pub counts: Option<String>,
    /// Glob of the JUnit files that it writes, from the top of the tree; their counts come before printed ones.
    #[serde(default)]
    pub junit: Option<String>,
}

/// What a test runner counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestCounts {
    /// Tests that passed.
    pub passing: u64,
    /// Tests that failed or errored.
    pub failing: u64,
    /// Tests that were not run.
    pub skipped: u64,
}

impl TestCounts {
    /// Sum of two runs.
    pub fn plus(self, other: Self) -> Self {
        Self {
            passing: self.passing + other.passing,
            failing: self.failing + other.failing,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// How one check went.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CheckOutcome {
    /// Name of the check.
    pub name: String,
    /// Its command, for people.
    pub command: String,
    /// Whether its rule held.
    pub holds: bool,
    /// Why not, in one sentence ("exited with 1", "timed out after 300 s", "found 79.5 %, needs 80 %"); empty when it held.
    pub why: String,
    /// Exit code; `None` after a signal or a timeout.
    pub exit_code: Option<i32>,
    /// Milliseconds it took.
    pub duration_ms: u64,
    /// Counts of the runner, where recognised.
    pub tests: Option<TestCounts>,
    /// Number that the rule looked at, for all but `ExitCode`.
    pub measured: Option<f64>,
    /// The number that it has to come to, where it does not hold.
    #[serde(default)]
    pub wanted: Option<f64>,
    /// Last part of the output, masked, at most 16 KiB of valid text.
    pub output: String,
}

impl CheckOutcome {
    /// How much is mended of what failed at `start`, 0..1 and 1.0 exactly when it holds: by the tests that failed then and
    /// came since, else by the way from the number then to the one that is wanted. 0 where nothing was counted.
    fn part(&self, start: Option<&Self>) -> f64 {
        const ALMOST: f64 = 0.99;
        if self.holds {
            return 1.0;
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

/// All checks of one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CheckReport {
    /// One outcome a check, in the order of the checks.
    pub outcomes: Vec<CheckOutcome>,
}

impl CheckReport {
    /// Whether there is at least one check and every one holds.
    pub fn all_hold(&self) -> bool {
        !self.outcomes.is_empty() && self.outcomes.iter().all(|o| o.holds)
    }

    /// Number of checks that hold.
    pub fn held(&self) -> usize {
        self.outcomes.iter().filter(|o| o.holds).count()
    }

    /// Sum of the runners' counts, where any check had some.
    pub fn tests(&self) -> Option<TestCounts> {
        self.outcomes.iter().filter_map(|o| o.tests).reduce(TestCounts::plus)
    }

    /// Completion as measured: how much is mended of what failed at `start`, as the mean over the checks that failed then or
    /// fail now, each 1 where it holds, else by its counts; 1.0 exactly when every check holds. `claimed` (the agent's own
    /// figure) counts only where nothing was measured.
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

/// What an agent's change did to the things that measure it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TamperFinding {
    /// File it is in.
    pub path: String,
    /// What was found.
    pub kind: TamperKind,
    /// The line or the fact that shows it, at most 200 characters.
    pub evidence: String,
}

/// Ways to make checks pass without doing the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TamperKind {
    /// A test was removed.
    TestDeleted,
    /// A test was switched off.
    TestSkipped,
    /// Assertions went away and none came.
    AssertionRemoved,
    /// The configuration of a check or runner was edited.
    CheckConfigEdited,
    /// A CI workflow was edited.
    WorkflowEdited,
    /// The bot's own file was edited.
    RalphFileEdited,
    /// A threshold was lowered.
    ThresholdLowered,
}

/// Size of a change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiffStat {
    /// One entry a file.
    pub files: Vec<FileStat>,
}

/// Size of a change in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Path from the top of the tree.
    pub path: String,
    /// Lines added; 0 for binary files.
    pub added: u64,
    /// Lines removed; 0 for binary files.
    pub removed: u64,
    /// Whether git takes it for binary.
    pub binary: bool,
}

impl DiffStat {
    /// Lines added and removed over all files.
    pub fn lines(&self) -> (u64, u64) {
        self.files.iter().fold((0, 0), |(a, r), f| (a + f.added, r + f.removed))
    }
}

/// What the agent says about its run (`RALPH_REPORT`): data to weigh, never trusted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentReport {
    /// Its own figure, 0..=100.
    pub completion_percentage: Option<f64>,
    /// Its own figure, 0..=1.
    pub quality_score: Option<f64>,
    /// What it did, in a sentence or two.
    pub summary: String,
    /// How it went about it.
    pub approach: String,
    /// What it learnt.
    pub learnings: Vec<String>,
    /// What stands in its way.
    pub blockers: Vec<String>,
    /// What it did about blockers.
    pub resolution_steps: Vec<String>,
    /// What it would do next.
    pub next_steps: Vec<String>,
    /// Whether it says that it is done.
    pub completion_signal: bool,
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
    fn tests_are_counted_from_those_that_failed_at_the_start() {
        let start = [counted(4997, 3)];
        let walk = [3, 2, 1, 0].map(|failing| completion(&start, &[counted(5000 - failing, failing)]));
        assert_eq!(walk.map(|part| (part * 100.0).round()), [0.0, 33.0, 67.0, 100.0]);
        assert_eq!(completion(&start, &[counted(4900, 100)]), 0.0, "more fail than at the start");
        assert_eq!(completion(&start, &[counted(4999, 11)]), 1.0 - 11.0 / 13.0, "ten tests more are ten more to do");
        assert_eq!(completion(&[outcome("test", false)], &[counted(3, 1)]), 0.75, "nothing was counted at the start");
    }

    #[test]
    fn a_check_that_held_throughout_neither_adds_nor_hides() {
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
    fn a_number_counts_by_its_way_to_the_one_that_is_wanted() {
        let coverage = |now| completion(&[number("coverage", 60.0, 80.0)], &[number("coverage", now, 80.0)]);
        assert_eq!([60.0, 75.0, 50.0].map(coverage), [0.0, 0.75, 0.0]);
        assert_eq!(completion(&[number("lint", 20.0, 0.0)], &[number("lint", 5.0, 0.0)]), 0.75);
        assert_eq!(completion(&[outcome("coverage", false)], &[number("coverage", 40.0, 80.0)]), 0.5);
        assert_eq!(completion(&[outcome("lint", false)], &[number("lint", 5.0, 0.0)]), 0.0, "from where is not known");
        assert_eq!(completion(&[outcome("lint", false)], &[number("lint", f64::NAN, 1.0)]), 0.0);
    }

    #[test]
    fn it_is_whole_only_when_every_check_holds() {
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
