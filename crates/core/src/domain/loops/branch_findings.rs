//! Findings about tests in a loop's branch compared with its base, and their acceptance by people.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Sha, Timestamp};
use crate::domain::model::task::{CheckOutcome, CheckReport, TamperFinding, TamperKind, TestCounts};

/// Finding in the complete change of the branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchFinding {
    /// Finding.
    #[serde(flatten)]
    pub found: TamperFinding,
    /// Digest of the change of the file, or a count of tests. An acceptance covers only this change.
    #[serde(default)]
    pub mark: String,
    /// Whether the change was pushed to the branch by a person.
    #[serde(default)]
    pub pushed: bool,
}

impl BranchFinding {
    /// Whether the finding prevents the review until it is fixed or accepted.
    pub fn blocks(&self) -> bool {
        self.found.blocks()
    }

    /// Whether only a person can decide about the finding, because the task may require the change or a person made it.
    pub fn needs_decision(&self) -> bool {
        self.pushed || self.found.kind.may_be_required()
    }

    /// Whether the task may ask for the change: its text names the file, or the file configures checks. The service then does not
    /// undo the change but asks a person.
    pub fn may_be_asked_for(&self, task_text: &str) -> bool {
        self.found.kind == TamperKind::CheckConfigEdited || names_file(task_text, &self.found.path)
    }

    /// Whether both findings are about the same change, whose lines may have moved.
    pub fn is_same(&self, other: &Self) -> bool {
        let (one, two) = (&self.found, &other.found);
        (one.kind, &one.path, &one.evidence, &self.mark) == (two.kind, &two.path, &two.evidence, &other.mark)
    }

    /// Whether the acceptance of `accepted` covers this finding.
    fn is_covered_by(&self, accepted: &Self) -> bool {
        let (now, then) = (&self.found, &accepted.found);
        let same_file = now.kind == then.kind && now.path == then.path;
        match now.kind {
            _ if !same_file => false,
            TamperKind::TestCountFell => match (self.mark.parse::<u64>(), accepted.mark.parse::<u64>()) {
                (Ok(now), Ok(then)) => now >= then,
                _ => false,
            },
            TamperKind::OnlyChangedTests => self.mark == accepted.mark,
            // Who accepted these answers is not asked again for another change of their file.
            TamperKind::AnswersHardCoded => now.evidence == then.evidence,
            _ => self.is_same(accepted),
        }
    }
}

/// Findings that a person accepted at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedFindings {
    /// Login of the person.
    pub by: String,
    /// Time of the acceptance.
    pub at: Timestamp,
    /// Head of the branch when the findings were accepted.
    pub commit: Option<Sha>,
    /// Findings, as they were when they were accepted.
    pub findings: Vec<BranchFinding>,
}

/// Whether a text names a file: by its path, by the end of its path, by its name, or by a folder path with at least two parts.
pub fn names_file(text: &str, path: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+' | '@');
    // Markdown may escape underscores.
    text.replace('\\', "").split(|c: char| !is_part(c)).any(|word| {
        let word = word.trim_end_matches(['.', '/']).trim_start_matches("./").trim_start_matches('/');
        let is_name = word.len() > 1 && (word.contains(['.', '/']) || word.starts_with(char::is_uppercase));
        let ends = || path.strip_suffix(word).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'));
        let begins = || word.contains('/') && path.strip_prefix(word).is_some_and(|rest| rest.starts_with('/'));
        is_name && (ends() || begins())
    })
}

/// Numbers of tests that the checks counted at a commit of the base branch. Failures that may not be tests are left out: those that
/// the runner counts beside the tests, and all if no test passed and the runner named none or not all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BaseCounts {
    /// Hash of the commit.
    pub base: Option<Sha>,
    /// Counts by name of the check.
    pub tests: BTreeMap<String, TestCounts>,
}

impl BaseCounts {
    /// Creates the counts from a report that was measured at `base`.
    pub fn of(base: Sha, report: &CheckReport) -> Self {
        let counted = |outcome: &CheckOutcome| {
            // Counts that the exit code contradicts were not understood.
            let tests = outcome.tests.filter(|_| outcome.objection.is_none())?;
            let are_named = outcome.failing_tests.len() as u64 == tests.failing;
            let tests = Some(tests).filter(|tests| tests.passing > 0 || are_named)?;
            let failing = tests.failing.saturating_sub(outcome.extra_failures);
            Some((outcome.name.clone(), TestCounts { failing, ..tests }))
        };
        Self { base: Some(base), tests: report.outcomes.iter().filter_map(counted).collect() }
    }
}

/// History of a loop's findings about tests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TestGuard {
    /// Acceptances, oldest first.
    pub accepted: Vec<AcceptedFindings>,
    /// Number of agent iterations that ended with an open finding, since a person resumed the loop.
    pub tries: u32,
    /// Last iteration that is included in `tries`.
    pub counted: u32,
    /// Whether the agent's prompt stated that the checks pass only with its changes to tests.
    pub told: bool,
    /// Test counts at the base, if the baseline was measured at another commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseCounts>,
    /// Checks that failed in the last failed verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedVerification>,
    /// Commit for which the loop asked people about a flaky check. Resuming the loop accepts the check's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_about_flaky: Option<Sha>,
}

impl TestGuard {
    /// Returns the login of the person who accepted the finding in its current form; `None` if it was not.
    pub fn accepted_by(&self, finding: &BranchFinding) -> Option<&str> {
        let covers = |acceptance: &&AcceptedFindings| acceptance.findings.iter().any(|one| finding.is_covered_by(one));
        self.accepted.iter().rev().find(covers).map(|acceptance| acceptance.by.as_str())
    }

    /// Returns the newest acceptance of changed tests in a file: the commit at which a person saw them, and the finding. The file's
    /// version at this commit counts as the base's. `None` if no such change was accepted.
    pub fn accepted_tests(&self, path: &str) -> Option<(&Sha, &BranchFinding)> {
        let is_of_tests = |finding: &&BranchFinding| {
            let kinds = [TamperKind::OnlyChangedTests, TamperKind::TestsNotJudged, TamperKind::TestsChanged];
            finding.found.path == path && kinds.contains(&finding.found.kind)
        };
        self.accepted
            .iter()
            .rev()
            .find_map(|acceptance| Some((acceptance.commit.as_ref()?, acceptance.findings.iter().find(is_of_tests)?)))
    }

    /// Resets the counts after a person resumed the loop. Acceptances are kept.
    pub fn begin_anew(&mut self) {
        (self.tries, self.told) = (0, false);
    }
}

/// Checks that failed in a fresh checkout of one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedVerification {
    /// Hash of the commit.
    pub commit: Sha,
    /// Names of the failed checks.
    pub checks: Vec<String>,
}

/// Evidence about tests that was collected in the fresh checkout of a commit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TestEvidence {
    /// Findings in the complete change of the branch.
    pub findings: Vec<BranchFinding>,
    /// Second run of the checks, with the base's tests. `None` if the branch changed neither tests nor files that start checks, or
    /// if a check failed.
    pub base_tests: Option<BaseTestsRun>,
    /// Run of the checks at the base. `None` if tests were counted there before, or if the outcome would have no consequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_checks: Option<CheckReport>,
    /// Tests, and files that start checks, that were written while the checks ran and do not exist at the base.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rewritten: Vec<RewrittenFile>,
}

/// File whose content after the set-up commands or the checks differs from the commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RewrittenFile {
    /// Path of the file.
    pub path: String,
    /// Digest of the content after the set-up commands or checks; empty if the file no longer exists.
    pub digest: String,
}

/// Run of the checks with the base's versions of the tests that the branch changed, and without the tests that it added.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BaseTestsRun {
    /// Outcomes of the checks.
    pub report: CheckReport,
    /// Files for which the base's version was used, each with a digest of its change.
    pub files: Vec<ChangedTestFile>,
    /// Change of these files as a patch, which may be truncated.
    pub diff: String,
}

/// File that the branch changed or added.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChangedTestFile {
    /// Path of the file.
    pub path: String,
    /// Digest of the file's change.
    pub mark: String,
    /// Whether the branch added the file, or, if `regions` are listed, only added these.
    #[serde(default)]
    pub is_new: bool,
    /// Names of the tests for which the base's version was used, if the file is a program file. Empty for a file of tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
}
