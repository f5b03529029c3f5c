//! Roles of files that only a run can decide. If the checks fail with the base's tests, further runs show which of these files the
//! checks judge, so that the branch's version counts, and which files write the tests, so that the base's version counts.

use std::collections::BTreeSet;

use super::branch_state::{BranchState, ReplacedFile};
use super::program_tests::MergedFile;
use super::verify::{BaseTests, CheckedTree, VerifyContext};
use crate::domain::model::task::CheckReport;
use crate::domain::trust::tamper;
use crate::engine::receipt::EffectError;
use crate::engine::work::Verification;

/// Maximum number of scripts for which a run decides whether the checks test them.
const MAX_SCRIPTS: usize = 3;
/// Maximum number of runs in which new modules turn out to be missing.
const MAX_ROUNDS: usize = 3;

impl Verification {
    /// Repeats a run with the base's tests if the run shows that it had wrong versions of files. Returns the run that counts, and its
    /// files.
    pub(super) async fn decide_roles(
        &self,
        of: VerifyContext<'_>,
        branch: BranchState<'_>,
        mut tests: BaseTests,
        mut checked: CheckedTree,
    ) -> Result<(CheckedTree, BaseTests), EffectError> {
        let generators = self.generators(branch, &tests, &checked).await?;
        if !generators.is_empty() {
            tests.merged.retain(|file| !generators.contains(&file.changed.path));
            let version = branch.base;
            let replaced = |path| ReplacedFile { path, is_new: false, is_build: false, version: version.clone() };
            tests.replaced.extend(generators.into_iter().map(replaced));
            checked = self.run_with_base_tests(of, branch.to, &tests).await?;
        }
        if checked.report.all_hold() {
            return Ok((checked, tests));
        }
        let released = self.without_subjects(of, branch, &tests, &checked.report).await?;
        Ok(released.unwrap_or((checked, tests)))
    }

    /// Returns the changed files of the base that write tests which the checks rewrote: the base's version names the tests.
    async fn generators(
        &self,
        branch: BranchState<'_>,
        tests: &BaseTests,
        checked: &CheckedTree,
    ) -> Result<BTreeSet<String>, EffectError> {
        let BranchState { repo, current, base, paths, .. } = branch;
        if checked.rewritten.is_empty() {
            return Ok(BTreeSet::new());
        }
        let known: BTreeSet<&str> = tests.replaced.iter().map(|file| file.path.as_str()).collect();
        let changed = paths.of_base().filter(|path| tamper::is_code(path) && !known.contains(path)).collect();
        let contents = self.workspaces.contents_at(&current.id, repo, base, &changed).await?;
        let names_tests = |content: &[u8]| {
            let content = String::from_utf8_lossy(content);
            checked.rewritten.iter().any(|file| content.contains(file.path.rsplit('/').next().unwrap_or(&file.path)))
        };
        Ok(contents.into_iter().filter(|(_, content)| names_tests(content)).map(|(path, _)| path).collect())
    }

    /// Runs the checks with the branch's version of scripts that may be the subject of the checks, of new modules that the failed run
    /// `before` missed, and of the new sources in makefiles. `None` if the checks still fail, or if a script decides their result.
    async fn without_subjects(
        &self,
        of: VerifyContext<'_>,
        branch: BranchState<'_>,
        tests: &BaseTests,
        before: &CheckReport,
    ) -> Result<Option<(CheckedTree, BaseTests)>, EffectError> {
        let (scripts, lists) = self.subjects(of, branch, tests).await?;
        let mut rest = tests.clone();
        let is_kept = |path: &str| !scripts.iter().any(|(script, _)| script == path);
        rest.replaced.retain(|file| is_kept(&file.path) && !lists.iter().any(|list| list.changed.path == file.path));
        let mut is_other = !scripts.is_empty() || !lists.is_empty();
        rest.merged.extend(lists);
        let mut report = before.clone();
        let mut found = None;
        for _ in 0..MAX_ROUNDS {
            let all = rest.replaced.len();
            rest.replaced.retain(|file| !is_missed(file, &report));
            if rest.replaced.len() == all && !std::mem::take(&mut is_other) {
                break;
            }
            is_other = false;
            let checked = self.run_with_base_tests(of, branch.to, &rest).await?;
            if checked.report.all_hold() {
                found = Some(checked);
                break;
            }
            report = checked.report;
        }
        let Some(checked) = found else { return Ok(None) };
        for script in scripts {
            let succeeding = BaseTests { succeeding: Some(script), ..rest.clone() };
            let without = self.run_with_base_tests(of, branch.to, &succeeding).await?.report;
            // A check that passes then is decided by the script.
            let fails = |name: &str| without.outcomes.iter().any(|outcome| outcome.name == name && !outcome.holds);
            if !before.outcomes.iter().filter(|outcome| !outcome.holds).all(|outcome| fails(&outcome.name)) {
                return Ok(None);
            }
        }
        Ok(Some((checked, rest)))
    }

    /// Returns the replaced scripts that may be the subject of the checks, each with a version that reports success at once, and the
    /// base's makefiles with the branch's new sources. No scripts if there are many.
    async fn subjects(
        &self,
        of: VerifyContext<'_>,
        branch: BranchState<'_>,
        tests: &BaseTests,
    ) -> Result<(Vec<(String, String)>, Vec<MergedFile>), EffectError> {
        let BranchState { repo, current, base, to, paths, .. } = branch;
        let changed = tests.replaced.iter().filter(|file| !file.is_new && file.version == *base);
        let changed = changed.map(|file| file.path.as_str()).collect();
        let [old, new] = self.workspaces.contents_at_each((&current.id, repo), [base, to], &changed).await?;
        let mut scripts = Vec::new();
        let mut lists = Vec::new();
        for path in changed {
            let (Some(old), Some(new)) = (old.get(path), new.get(path)) else { continue };
            let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
            if let Some(text) = tamper::with_new_sources(path, &old, &new, paths.added()) {
                lists.push(MergedFile::whole(path, &new, text));
            } else if tamper::may_be_subject(path, &old, of.start) {
                scripts.extend(tamper::succeeding(path, &new).map(|text| (path.to_owned(), text)));
            }
        }
        if scripts.len() > MAX_SCRIPTS {
            scripts.clear();
        }
        Ok((scripts, lists))
    }
}

/// Whether a failed check did not find a new module or program, so that the file replaces no other.
fn is_missed(file: &ReplacedFile, report: &CheckReport) -> bool {
    let mut failed = report.outcomes.iter().filter(|outcome| !outcome.holds);
    let name = tamper::found_name(&file.path).filter(|_| file.is_new && !tamper::is_test_code(&file.path));
    name.is_some_and(|name| failed.any(|outcome| tamper::is_missing(&outcome.output, name)))
}
