//! The task, its checks, and completion as measured from their outcomes.

use serde::{Deserialize, Serialize};

use super::ids::{Percent, Ratio};

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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Number that the rule looked at, for `Coverage` and `Count`.
    pub measured: Option<f64>,
    /// Last part of the output, masked, at most 16 KiB of valid text.
    pub output: String,
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

    /// Completion as measured: `0.7 * checks held / checks + 0.3 * tests passing / tests`, the second part only where
    /// tests were counted; 1.0 exactly when every check holds. `claimed` (the agent's own figure) counts only where
    /// nothing was measured.
    pub fn completion(&self, claimed: Option<Ratio>) -> Ratio {
        const ALMOST: f64 = 0.99;
        if self.outcomes.is_empty() {
            return Ratio::new(claimed.map_or(0.0, Ratio::get).min(ALMOST));
        }
        if self.all_hold() {
            return Ratio::new(1.0);
        }
        let checks = self.held() as f64 / self.outcomes.len() as f64;
        let measured = match self.tests() {
            Some(t) if t.passing + t.failing > 0 => {
                0.7 * checks + 0.3 * t.passing as f64 / (t.passing + t.failing) as f64
            }
            _ => checks,
        };
        Ratio::new(measured.min(ALMOST))
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
