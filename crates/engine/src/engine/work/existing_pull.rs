//! Existing pull requests that loops work on: their problems when a loop starts, and the changes of their authors.

use super::branch_state::{BranchState, ReplacedFile};
use super::changed_tests::{changed_tests, check_start};
use crate::domain::loops::{BranchFinding, ForgeInput, FoundBranch, Loop, LoopInput, PullProblems};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::trust::tamper::ChangeMarks;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::inspect::{failed_on_base, failures};
use crate::engine::receipt::EffectError;
use crate::engine::work::Verification;
use crate::forge::CiState;
use crate::store::loops;

impl Verification {
    /// Stores the changes of tests in the commits that the loop found, before its first checks run.
    pub(super) async fn note_found_tests(
        &self,
        repo: &RepoRef,
        current: &Loop,
        commit: &Sha,
    ) -> Result<(), EffectError> {
        let Some(found) = current.pull.found_branch().filter(|found| found.head == *commit) else { return Ok(()) };
        let findings = self.tests_of_pull(repo, current, found).await?;
        let id = current.id.clone();
        let key = format!("tests-found/{id}");
        let now = self.context.clock.now();
        let input = LoopInput::Forge(ForgeInput::TestsFound { commit: commit.clone(), findings });
        self.context.store.write(move |c| loops::enqueue_input(c, &id, &key, &input, now)).await?;
        Ok(())
    }

    /// Returns the findings about tests in the commits that the loop found. New tests are included.
    async fn tests_of_pull(
        &self,
        repo: &RepoRef,
        current: &Loop,
        FoundBranch { head, base }: &FoundBranch,
    ) -> Result<Vec<BranchFinding>, EffectError> {
        let of_base = self.workspaces.paths_of(repo, base).await?;
        let start = check_start(current, &of_base);
        let complete = self.workspaces.branch_diff((&current.id, repo), base, head).await?;
        let paths = self.workspaces.changed_paths((&current.id, repo), base, head).await?;
        let branch = BranchState { repo, current, base, to: head, diff: &complete, paths: &paths };
        let replaced = self.replaced_files(branch, &start).await?;
        let is_test = |file: &&ReplacedFile| !file.is_build;
        let known = replaced.iter().filter(is_test).map(|file| file.path.as_str()).collect();
        let program_tests = self.program_tests(branch, &start, &known).await?;
        let mut findings = self.findings_about_text(branch, &start, &known).await?;
        findings.extend(self.hard_coded_answers(branch).await?);
        let marks = ChangeMarks::of(&complete.text);
        let merged = program_tests.files.iter().map(|file| &file.changed.path);
        let tests = replaced.iter().map(|file| &file.path).chain(merged);
        findings.extend(tests.map(|path| changed_tests(path, &marks)));
        findings.extend(program_tests.findings);
        Ok(findings)
    }

    /// Returns the paths that the author of an existing pull request changed before the loop started; empty for a loop on
    /// an issue.
    pub(super) async fn paths_of_author(&self, repo: &RepoRef, current: &Loop) -> Result<Vec<String>, EffectError> {
        let Some(FoundBranch { head, base }) = current.pull.found_branch() else { return Ok(Vec::new()) };
        let changed = self.workspaces.changed_paths((&current.id, repo), base, head).await?;
        Ok(changed.all().map(str::to_owned).collect())
    }
}

/// Returns the failed CI of a pull request whose branch the loop found.
pub(super) async fn failed_ci_of_pull(
    account: &ForgeAccount,
    repo: &RepoRef,
    FoundBranch { head, base }: &FoundBranch,
) -> Result<PullProblems, EffectError> {
    let mut results = CiState::default();
    let mut on_base = Vec::new();
    if let Some(ci) = account.forge.ci() {
        results = ci.ci_results(repo, head).await?;
        on_base = failed_on_base(ci, repo, base, &results).await?;
    }
    let pending = u32::try_from(results.pending.len()).unwrap_or(u32::MAX);
    Ok(PullProblems { conflict: false, failed: failures(results), on_base, pending })
}
