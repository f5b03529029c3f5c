//! Verification of a commit in a fresh checkout: the checks, the findings of the branch, and the checks with the base's
//! tests.

use failpoint::kill_point;
use tokio_util::sync::CancellationToken;

use super::git::branch_findings;
use crate::domain::loops::{BaseTestsRun, BranchFinding, ChangedTestFile, Loop, LoopInput, TestEvidence};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::model::task::CheckReport;
use crate::domain::trust::tamper;
use crate::engine::Engine;
use crate::engine::executor::{EffectError, Receipt};
use crate::workspace::{ChangedBaseFile, CleanCheckout};

/// Maximum size of the change of tests that a maintainer is shown, in bytes.
const TEST_CHANGE_BYTES: usize = 8 * 1024;

impl Engine {
    /// Runs the checks in a fresh checkout of `commit`.
    pub(super) async fn verify(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        commit: &Sha,
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        let checkout = self.workspaces.clean_checkout(&current.id, repo, commit).await?;
        kill_point("K22");
        let outcome = self.verify_in(&checkout, repo, current, commit, cancel).await;
        kill_point("K23");
        self.workspaces.release_checkout(checkout).await?;
        let (report, tests) = outcome?;
        let mut text = format!("{} of {} hold", report.held(), report.outcomes.len());
        if let Some(run) = &tests.base_tests {
            let (held, all) = (run.report.held(), run.report.outcomes.len());
            text.push_str(&format!("; with the base's tests {held} of {all}"));
        }
        Ok(Receipt::with_input(text, LoopInput::Verified { ticket, report, tests: Box::new(tests) }))
    }

    async fn verify_in(
        &self,
        checkout: &CleanCheckout,
        repo: &RepoRef,
        current: &Loop,
        commit: &Sha,
        cancel: &CancellationToken,
    ) -> Result<(CheckReport, TestEvidence), EffectError> {
        self.setup(current, &current.policy, &checkout.dir, cancel).await?;
        let report = self.run_checks(current, &checkout.dir, &checkout.read_only, &current.checks, cancel).await?;
        let Some(base) = &current.base else { return Ok((report, TestEvidence::default())) };
        let complete = self.workspaces.branch_diff((&current.id, repo), base, commit).await?;
        let findings = branch_findings(current, &complete);
        let accepted_finding = |finding: &BranchFinding| current.guard.accepted_by(finding).is_some();
        let open = |one: &BranchFinding| one.blocks() && !one.needs_decision() && !accepted_finding(one);
        // The agent has to put these back first, whatever the base's tests say.
        if !report.all_hold() || findings.iter().any(open) {
            return Ok((report, TestEvidence { findings, base_tests: None }));
        }
        let accepted = |path: &str| findings.iter().any(|one| one.found.path == path && accepted_finding(one));
        let mut changed = self.workspaces.changed_base_files((&current.id, repo), base, commit).await?;
        changed.retain(|file| tamper::is_test_file(&file.path) && !accepted(&file.path));
        let base_tests = match changed.is_empty() {
            true => None,
            false => {
                let marks = tamper::ChangeMarks::of(&complete.text);
                let (files, report) = self.run_with_base_tests(checkout, current, base, &changed, cancel).await?;
                let mark = |path: String| ChangedTestFile { mark: marks.change_of(&path), path };
                let of = (&current.id, repo);
                let diff = self.workspaces.diff_of_files(of, (base, commit), &files, TEST_CHANGE_BYTES).await?;
                let files = changed.into_iter().map(|file| mark(file.path)).collect();
                Some(BaseTestsRun { report, files, diff })
            }
        };
        Ok((report, TestEvidence { findings, base_tests }))
    }

    /// Runs the checks with the base's version of test files; returns the paths that were replaced or removed.
    async fn run_with_base_tests(
        &self,
        checkout: &CleanCheckout,
        current: &Loop,
        base: &Sha,
        changed: &[ChangedBaseFile],
        cancel: &CancellationToken,
    ) -> Result<(Vec<String>, CheckReport), EffectError> {
        let paths = changed.iter().flat_map(|file| [Some(&file.path), file.renamed_to.as_ref()]);
        let paths: Vec<String> = paths.flatten().cloned().collect();
        self.workspaces.use_base_files(checkout, base, &paths).await?;
        let report = self.run_checks(current, &checkout.dir, &checkout.read_only, &current.checks, cancel).await?;
        Ok((paths, report))
    }
}
