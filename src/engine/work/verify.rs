//! Verification of a commit in a fresh checkout: the checks, the findings of the branch, and the checks with the base's
//! tests.

use std::collections::HashSet;

use failpoint::kill_point;
use tokio_util::sync::CancellationToken;

use super::git::branch_findings;
use crate::clock::Stopwatch;
use crate::domain::loops::{BaseTestsRun, BranchFinding, ChangedTestFile, Loop, LoopInput, TestEvidence};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::model::task::{Check, CheckReport};
use crate::domain::trust::tamper;
use crate::engine::Engine;
use crate::engine::executor::{EffectError, Receipt};
use crate::workspace::{ChangedBaseFile, CleanCheckout};

/// Maximum number of new files whose names are searched in the imports of the base.
const MAX_IMPORT_SEARCHES: usize = 200;
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
        let watch = Stopwatch::start();
        let checks = &current.checks;
        let mut report = self.set_up_and_check(current, checkout, None, ("clean", checks), cancel).await?;
        if report.all_hold() {
            let elapsed_ms = u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX);
            report = self.repeat(repo, current, commit, report, elapsed_ms, cancel).await?;
        }
        let Some(base) = &current.base else { return Ok((report, TestEvidence::default())) };
        let complete = self.workspaces.branch_diff((&current.id, repo), base, commit).await?;
        let mut findings = branch_findings(current, &complete);
        if report.all_hold() {
            findings.extend(self.hard_coded_answers(repo, current, (base, commit), &complete).await?);
        }
        let accepted_finding = |finding: &BranchFinding| current.guard.accepted_by(finding).is_some();
        let open = |one: &BranchFinding| one.blocks() && !one.needs_decision() && !accepted_finding(one);
        // The agent has to put these back first, whatever the base's tests say.
        if !report.all_hold() || findings.iter().any(open) {
            return Ok((report, TestEvidence { findings, ..TestEvidence::default() }));
        }
        let accepted = |path: &str| findings.iter().any(|one| one.found.path == path && accepted_finding(one));
        let mut changed = self.deciding_files(repo, current, base, commit).await?;
        changed.retain(|file| !accepted(&file.path));
        let base_tests = match changed.is_empty() {
            true => None,
            false => {
                let marks = tamper::ChangeMarks::of(&complete.text);
                let of = (repo, current, commit);
                let (files, report) = self.run_with_base_tests(of, base, &changed, cancel).await?;
                let mark = |path: String| ChangedTestFile { mark: marks.change_of(&path), path };
                let of = (&current.id, repo);
                let diff = self.workspaces.diff_of_files(of, (base, commit), &files, TEST_CHANGE_BYTES).await?;
                let files = changed.into_iter().map(|file| mark(file.path)).collect();
                Some(BaseTestsRun { report, files, diff })
            }
        };
        let base_checks = self.run_at_base(repo, current, base, cancel).await?;
        Ok((report, TestEvidence { findings, base_tests, base_checks }))
    }

    /// Runs checks again in another fresh checkout of the commit, where their passing once is not enough.
    async fn repeat(
        &self,
        repo: &RepoRef,
        current: &Loop,
        commit: &Sha,
        report: CheckReport,
        elapsed_ms: u64,
        cancel: &CancellationToken,
    ) -> Result<CheckReport, EffectError> {
        let checks = current.checks_to_repeat(elapsed_ms);
        if checks.is_empty() {
            return Ok(report);
        }
        let checkout = self.workspaces.clean_checkout(&current.id, repo, commit).await?;
        let again = self.set_up_and_check(current, &checkout, None, ("clean", &checks), cancel).await;
        self.workspaces.release_checkout(checkout).await?;
        Ok(report.repeated(again?))
    }

    /// Runs the checks at the base, unless their tests were counted there.
    async fn run_at_base(
        &self,
        repo: &RepoRef,
        current: &Loop,
        base: &Sha,
        cancel: &CancellationToken,
    ) -> Result<Option<CheckReport>, EffectError> {
        if current.base_counts().is_some() {
            return Ok(None);
        }
        let checkout = self.workspaces.clean_checkout(&current.id, repo, base).await?;
        let outcome = self.set_up_and_check(current, &checkout, None, ("clean_base", &current.checks), cancel).await;
        self.workspaces.release_checkout(checkout).await?;
        match outcome {
            Err(EffectError::Permanent { why }) => {
                tracing::warn!(loop_id = %current.id, why, "the tests of the base could not be counted");
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Runs the set-up commands and some checks in a fresh checkout, the checks with the versions that a base has of some files.
    async fn set_up_and_check(
        &self,
        current: &Loop,
        checkout: &CleanCheckout,
        files: Option<(&Sha, &[String])>,
        (phase, checks): (&'static str, &[Check]),
        cancel: &CancellationToken,
    ) -> Result<CheckReport, EffectError> {
        self.setup(current, &current.policy, &checkout.dir, cancel).await?;
        if let Some((base, paths)) = files {
            self.workspaces.use_base_files(checkout, base, paths).await?;
        }
        self.run_checks(current, phase, &checkout.dir, &checkout.read_only, checks, cancel).await
    }

    /// Returns the changed files whose base version must give the same result: tests of the base, and files that decide how the
    /// checks are started.
    async fn deciding_files(
        &self,
        repo: &RepoRef,
        current: &Loop,
        base: &Sha,
        commit: &Sha,
    ) -> Result<Vec<ChangedBaseFile>, EffectError> {
        let of_base = self.workspaces.paths_of(repo, base).await?;
        let commands = current.checks.iter().map(|check| check.command.as_str());
        let start = tamper::CheckStart::new(commands, of_base.iter().map(String::as_str));
        let mut changed = self.workspaces.changed_base_files((&current.id, repo), base, commit).await?;
        changed.retain(|file| tamper::is_test_file(&file.path) || start.depends_on(&file.path));
        let known: HashSet<String> = changed.iter().filter_map(|file| file.renamed_to.clone()).collect();
        let mut searches = 0;
        for path in self.workspaces.added_files((&current.id, repo), base, commit).await? {
            let decides = !known.contains(&path)
                && (start.depends_on(&path) || self.takes_a_place(repo, current, &start, &path, &mut searches).await);
            if decides {
                changed.push(ChangedBaseFile { path, renamed_to: None });
            }
        }
        Ok(changed)
    }

    /// Whether a new file is in the place of a program or module that the checks found before: in a folder of their search path, or
    /// under a name that the base imports.
    async fn takes_a_place(
        &self,
        repo: &RepoRef,
        current: &Loop,
        start: &tamper::CheckStart<'_>,
        path: &str,
        searches: &mut usize,
    ) -> bool {
        let (Some(base), Some(baseline)) = (&current.base, &current.baseline) else { return false };
        let import = tamper::ImportedName::of(path);
        let file = path.rsplit('/').next().unwrap_or(path);
        let name = import.as_ref().map_or(file.split('.').next().unwrap_or(file), |import| &import.name);
        if baseline.outcomes.iter().any(|outcome| tamper::is_missing(&outcome.output, name)) {
            return false;
        }
        if start.is_on_path(path) {
            return true;
        }
        let Some(import) = import.filter(|_| *searches < MAX_IMPORT_SEARCHES) else { return false };
        *searches += 1;
        self.workspaces.has_line(repo, base, &import.pattern, import.files).await
    }

    /// Runs the checks with the base's version of files that decide about them; returns the paths that were replaced or removed.
    /// It has a checkout of its own: what the first run wrote, ignored files too, could stand in for what is tested.
    async fn run_with_base_tests(
        &self,
        (repo, current, commit): (&RepoRef, &Loop, &Sha),
        base: &Sha,
        changed: &[ChangedBaseFile],
        cancel: &CancellationToken,
    ) -> Result<(Vec<String>, CheckReport), EffectError> {
        let paths = changed.iter().flat_map(|file| [Some(&file.path), file.renamed_to.as_ref()]);
        let paths: Vec<String> = paths.flatten().cloned().collect();
        let checkout = self.workspaces.clean_checkout(&current.id, repo, commit).await?;
        let files = Some((base, &paths[..]));
        let outcome =
            self.set_up_and_check(current, &checkout, files, ("clean_base_tests", &current.checks), cancel).await;
        self.workspaces.release_checkout(checkout).await?;
        Ok((paths, outcome?))
    }
}
