//! Open and accepted findings about tests in a loop's branch.

use super::aggregate::Loop;
use super::branch_findings::{BaseCounts, BranchFinding};
use crate::domain::model::task::TamperFinding;

/// Maximum number of paths that are listed in a sentence.
const MAX_NAMED: usize = 3;

/// Formats paths as a part of a sentence. If there are many, only the first ones are listed and the rest is counted.
pub fn named_paths(paths: &[String]) -> String {
    let shown: Vec<String> = paths.iter().take(MAX_NAMED).map(|path| format!("`{path}`")).collect();
    match paths.len().saturating_sub(MAX_NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl Loop {
    /// Returns the test counts at the base. `None` if the checks did not run there, because the base was merged since, or because
    /// the checks were added after the branch had changes.
    pub fn base_counts(&self) -> Option<BaseCounts> {
        let base = self.branch.base.as_ref()?;
        match self.checks.baseline_report() {
            Some(baseline) if self.checks.baseline_commit() == Some(base) => {
                Some(BaseCounts::of(base.clone(), baseline))
            }
            _ => self.checks.guard.base.clone().filter(|counts| counts.base.as_ref() == Some(base)),
        }
    }

    /// Returns the findings in the branch, as last measured; `None` if no iteration measured them.
    pub fn branch_findings(&self) -> Option<&[BranchFinding]> {
        self.standing().find_map(|iteration| iteration.branch_findings.as_deref())
    }

    /// Returns the findings that prevent the review, because they are neither fixed nor accepted.
    pub fn open_findings(&self) -> Vec<&BranchFinding> {
        let open = |finding: &&BranchFinding| finding.blocks() && self.checks.guard.accepted_by(finding).is_none();
        self.branch_findings().unwrap_or_default().iter().filter(open).collect()
    }

    /// Returns the paths of the open findings, without repetitions.
    pub fn open_paths(&self) -> Vec<String> {
        let mut paths: Vec<String> =
            self.open_findings().into_iter().map(|finding| finding.found.path.clone()).collect();
        paths.dedup();
        paths
    }

    /// Returns the accepted findings that still exist, each with the login of the person who accepted it.
    pub fn accepted_findings(&self) -> Vec<(&str, &BranchFinding)> {
        let findings = self.branch_findings().unwrap_or_default().iter();
        findings.filter_map(|finding| Some((self.checks.guard.accepted_by(finding)?, finding))).collect()
    }

    /// Returns the findings of weakened checks for reviewers, except accepted ones. If the branch was not measured, returns the
    /// findings of the single iterations, except those in files that the branch no longer changes. A path that git may quote
    /// cannot be compared, so findings in it are always returned.
    pub fn findings(&self) -> Vec<TamperFinding> {
        if let Some(measured) = self.branch_findings() {
            let not_accepted = measured.iter().filter(|finding| self.checks.guard.accepted_by(finding).is_none());
            return not_accepted.map(|finding| finding.found.clone()).collect();
        }
        let stat = self.branch_stat();
        let plain = |path: &str| path.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\'));
        let gone = |path: &str| plain(path) && stat.is_some_and(|stat| stat.files.iter().all(|f| f.path != path));
        self.retained_iterations().flat_map(|i| &i.findings).filter(|found| !gone(&found.path)).cloned().collect()
    }
}
