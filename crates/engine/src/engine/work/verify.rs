//! Verification of a commit in a fresh checkout: runs the checks, runs them with the base's tests, and then collects the
//! findings about the branch.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use failpoint::kill_point;
use tokio_util::sync::CancellationToken;

use super::branch_state::BranchState;
use super::changed_tests::{ReplacedFile, changed_tests, check_start};
use super::environment::SetupContext;
use super::program_tests::{Contents, MergedFile};
use crate::clock::Stopwatch;
use crate::domain::loops::{
    BaseTestsRun, BranchFinding, ChangedTestFile, Loop, RewrittenFile, TestEvidence, WorkOutcome,
};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::model::task::{Check, CheckReport, TamperKind};
use crate::domain::trust::tamper::{self, ChangeMarks, CheckStart};
use crate::engine::Engine;
use crate::engine::executor::{EffectError, Receipt};
use crate::workspace::CleanCheckout;

/// Maximum size of the change of tests that is shown to a maintainer, in bytes.
const TEST_CHANGE_BYTES: usize = 8 * 1024;

/// Data that the runs of one verification share.
#[derive(Clone, Copy)]
struct VerifyContext<'a> {
    repo: &'a RepoRef,
    current: &'a Loop,
    /// Base commit and the commands with which it starts the checks.
    start: &'a CheckStart<'a>,
    cancel: &'a CancellationToken,
}

/// Outcome of the checks in a checkout.
struct CheckedTree {
    report: CheckReport,
    /// Tests and files that start checks whose content was changed while the checks ran.
    rewritten: Vec<RewrittenFile>,
}

/// Versions of files with which the checks run, in place of the commit's.
#[derive(Clone, Copy, Default)]
struct OtherVersions<'a> {
    /// Commits, each with the paths whose version is used.
    commits: &'a [(&'a Sha, Vec<String>)],
    /// Program files with the base's tests.
    merged: &'a [MergedFile],
}

/// Run with the base's tests, and the files that it judged.
#[derive(Default)]
struct BaseRun<'a> {
    /// Outcomes of the checks; `None` if nothing was replaced.
    report: Option<CheckReport>,
    replaced: Vec<&'a ReplacedFile>,
    merged: &'a [MergedFile],
    /// Paths of build files whose base version does not fit the branch.
    not_judged: BTreeSet<&'a str>,
}

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
        Ok(Receipt::outcome(text, ticket, WorkOutcome::Verified { report, tests: Box::new(tests) }))
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
        let of_base = match &current.base {
            Some(base) => self.workspaces.paths_of(repo, base).await?,
            None => Vec::new(),
        };
        let start = &check_start(current, &of_base);
        let of = VerifyContext { repo, current, start, cancel };
        let checked = self.set_up_and_check(of, checkout, OtherVersions::default(), ("clean", &current.checks)).await?;
        let elapsed_ms = u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX);
        let CheckedTree { mut report, mut rewritten } = checked;
        let Some(base) = &current.base else {
            if report.all_hold() {
                let checks = current.checks_to_repeat(elapsed_ms);
                report = self.repeat(of, commit, report, &checks, &mut rewritten).await?;
            }
            return Ok((report, TestEvidence { rewritten, ..TestEvidence::default() }));
        };
        let complete = self.workspaces.branch_diff((&current.id, repo), base, commit).await?;
        let paths = self.workspaces.changed_paths((&current.id, repo), base, commit).await?;
        let branch = BranchState { repo, current, base, to: commit, diff: &complete, paths: &paths };
        if !report.all_hold() {
            let findings = self.branch_findings(branch, start).await?;
            return Ok((report, TestEvidence { findings, ..TestEvidence::default() }));
        }
        let replaced = self.replaced_files(branch, start).await?;
        let known: BTreeSet<&str> = replaced.iter().map(|file| file.path.as_str()).collect();
        let program_tests = self.program_tests(branch, start, &known).await?;
        let merged = program_tests.files.as_slice();
        let base_run = self.judge_by_base(of, branch, &report, (&replaced, merged), &mut rewritten).await?;
        // The findings come last: what the run with the base's tests judged blocks nothing.
        let builds: BTreeSet<&str> =
            replaced.iter().filter(|file| file.is_build).map(|file| file.path.as_str()).collect();
        let mut findings = self.findings_about_text(branch, start, &(&known - &builds)).await?;
        for finding in &mut findings {
            let path = finding.found.path.as_str();
            if builds.contains(path) && !base_run.not_judged.contains(path) {
                finding.found.kind = TamperKind::TestsChanged;
            }
        }
        findings.extend(self.hard_coded_answers(branch).await?);
        let marks = ChangeMarks::of(&complete.text);
        let changed = replaced.iter().filter(|file| !file.is_new && !file.is_build);
        findings.extend(changed.map(|file| changed_tests(&file.path, &marks)));
        findings.extend(merged.iter().filter_map(MergedFile::notice));
        findings.extend(accepted_tests(branch));
        let base_tests = self.base_tests_run(branch, base_run, &marks).await?;
        findings.extend(program_tests.findings);
        let mut repeated = current.checks_to_repeat(elapsed_ms);
        // What passes with the tests of the base has passed twice.
        let passed = |name: &str| base_tests.as_ref().is_some_and(|run| run.report.holds(name));
        repeated.retain(|check| !passed(&check.name));
        current.mark_run_once(&mut report, |name| passed(name) || repeated.iter().any(|check| check.name == name));
        report = self.repeat(of, commit, report, &repeated, &mut rewritten).await?;
        if !report.all_hold() {
            return Ok((report, TestEvidence { findings, ..TestEvidence::default() }));
        }
        let mut base_checks = None;
        if current.base_counts().is_none() || !rewritten.is_empty() {
            let at_base = self.run_at_base(of, base).await?;
            // What the base writes as well is none of the branch's work.
            rewritten.retain(|file| at_base.iter().all(|run| run.rewritten.iter().all(|one| one.path != file.path)));
            base_checks = at_base.map(|run| run.report).filter(|_| current.base_counts().is_none());
        }
        rewritten.sort_by(|one, other| one.path.cmp(&other.path));
        rewritten.dedup_by(|one, other| one.path == other.path);
        Ok((report, TestEvidence { findings, base_tests, base_checks, rewritten }))
    }

    /// Runs checks again in another fresh checkout of the commit, if passing once is not enough.
    async fn repeat(
        &self,
        of: VerifyContext<'_>,
        commit: &Sha,
        report: CheckReport,
        checks: &[Check],
        rewritten: &mut Vec<RewrittenFile>,
    ) -> Result<CheckReport, EffectError> {
        if checks.is_empty() {
            return Ok(report);
        }
        // A check may need what an earlier one builds.
        let is_repeated = |name: &str| checks.iter().any(|check| check.name == name);
        let last = of.current.checks.iter().rposition(|check| is_repeated(&check.name));
        let run = &of.current.checks[..last.map_or(0, |last| last + 1)];
        let mut again = self.set_up_and_check_fresh(of, commit, OtherVersions::default(), ("clean", run)).await?;
        again.report.outcomes.retain(|outcome| is_repeated(&outcome.name));
        rewritten.extend(again.rewritten);
        Ok(report.repeated(again.report))
    }

    /// Runs the checks at the base; `None` if they cannot be run there.
    async fn run_at_base(&self, of: VerifyContext<'_>, base: &Sha) -> Result<Option<CheckedTree>, EffectError> {
        match self.set_up_and_check_fresh(of, base, OtherVersions::default(), ("clean_base", &of.current.checks)).await
        {
            Err(EffectError::Permanent { why }) => {
                tracing::warn!(loop_id = %of.current.id, why, "the tests of the base could not be counted");
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Runs [`Self::set_up_and_check`] in a new checkout. Files from an earlier run, including ignored files, could
    /// otherwise replace the tested ones.
    async fn set_up_and_check_fresh(
        &self,
        of: VerifyContext<'_>,
        commit: &Sha,
        versions: OtherVersions<'_>,
        checks: (&'static str, &[Check]),
    ) -> Result<CheckedTree, EffectError> {
        let checkout = self.workspaces.clean_checkout(&of.current.id, of.repo, commit).await?;
        let checked = self.set_up_and_check(of, &checkout, versions, checks).await;
        self.workspaces.release_checkout(checkout).await?;
        checked
    }

    /// Runs the setup commands and some checks in a fresh checkout. The checks use other commits' versions of some
    /// files.
    async fn set_up_and_check(
        &self,
        of: VerifyContext<'_>,
        checkout: &CleanCheckout,
        versions: OtherVersions<'_>,
        (phase, checks): (&'static str, &[Check]),
    ) -> Result<CheckedTree, EffectError> {
        let VerifyContext { repo, current, start, cancel } = of;
        let mut fixed = self.workspaces.fixed_files(checkout, |path| start.is_fixed(path)).await?;
        let mut written = Vec::new();
        if !current.policy.setup.is_empty() {
            let of = SetupContext::of(current, repo, &checkout.commit, cancel);
            self.setup(of, &checkout.dir, &checkout.commit).await?;
            (fixed, written) = fixed.written().await?;
        }
        for (commit, paths) in versions.commits {
            self.workspaces.use_base_files(checkout, commit, paths).await?;
            fixed = fixed.replaced(paths).await?;
        }
        for file in versions.merged {
            self.workspaces.use_text(checkout, &file.changed.path, &file.text)?;
        }
        let place = (checkout.dir.as_path(), checkout.read_only.as_slice());
        let report = self.run_checks((repo, current), phase, place, checks, cancel).await?;
        written.extend(fixed.written().await?.1);
        let rewritten = written.into_iter().map(|(path, digest)| RewrittenFile { path, digest }).collect();
        Ok(CheckedTree { report, rewritten })
    }

    /// Runs the checks with the base's tests and build files. If they fail, and pass with the branch's build files, the run counts only
    /// for the build files that decide this. `clean` has the outcomes with the branch's versions of all files.
    async fn judge_by_base<'a>(
        &self,
        of: VerifyContext<'_>,
        branch: BranchState<'_>,
        clean: &CheckReport,
        (replaced, merged): (&'a [ReplacedFile], &'a [MergedFile]),
        rewritten: &mut Vec<RewrittenFile>,
    ) -> Result<BaseRun<'a>, EffectError> {
        let all: Vec<&ReplacedFile> = replaced.iter().collect();
        if all.is_empty() && merged.is_empty() {
            return Ok(BaseRun::default());
        }
        let with_builds = self.run_with_base_tests(of, branch.to, &all, merged).await?;
        rewritten.extend(with_builds.rewritten);
        let (builds, tests): (Vec<_>, Vec<_>) = all.iter().copied().partition(|file| file.is_build);
        if builds.is_empty() || with_builds.report.all_hold() {
            let not_judged = BTreeSet::new();
            return Ok(BaseRun { report: Some(with_builds.report), replaced: all, merged, not_judged });
        }
        let mut report = None;
        if !(tests.is_empty() && merged.is_empty()) {
            let without = self.run_with_base_tests(of, branch.to, &tests, merged).await?;
            rewritten.extend(without.rewritten);
            report = Some(without.report);
        }
        let mut not_judged: BTreeSet<&str> = builds.iter().map(|file| file.path.as_str()).collect();
        let passing = report.as_ref().unwrap_or(clean);
        if passing.all_hold() {
            let compared = tamper::tests_compared(&with_builds.report, passing);
            let deciding = match compared {
                Some(Ordering::Greater) => builds,
                _ => self.changing_tests(of, branch, builds, compared.is_some_and(Ordering::is_eq)).await?,
            };
            if !deciding.is_empty() {
                not_judged.retain(|path| deciding.iter().all(|file| file.path != *path));
                let report = Some(with_builds.report);
                return Ok(BaseRun { report, replaced: deciding, merged: &[], not_judged });
            }
        }
        Ok(BaseRun { report, replaced: tests, merged, not_judged })
    }

    /// Returns the build files whose change is about tests.
    async fn changing_tests<'a>(
        &self,
        of: VerifyContext<'_>,
        branch: BranchState<'_>,
        builds: Vec<&'a ReplacedFile>,
        all_ran: bool,
    ) -> Result<Vec<&'a ReplacedFile>, EffectError> {
        let BranchState { repo, current, to, paths, .. } = branch;
        let deleted: BTreeSet<&str> = paths.deleted().collect();
        let kept: Vec<&str> = of.start.base_paths().filter(|path| !deleted.contains(path)).collect();
        let mut changing = Vec::new();
        for file in builds {
            let path = file.path.as_str();
            let old = self.contents((&current.id, repo), &file.version, &[path]).await?;
            let new = self.contents((&current.id, repo), to, &[path]).await?;
            let text = |contents: &Contents| {
                contents.get(path).map(|content| String::from_utf8_lossy(content).into_owned()).unwrap_or_default()
            };
            if tamper::changes_tests(path, &text(&old), &text(&new), &kept, all_ran) {
                changing.push(file);
            }
        }
        Ok(changing)
    }

    /// Describes a run with the base's tests; `None` if there was none.
    async fn base_tests_run(
        &self,
        branch: BranchState<'_>,
        run: BaseRun<'_>,
        marks: &ChangeMarks,
    ) -> Result<Option<BaseTestsRun>, EffectError> {
        let BranchState { repo, current, base, to, .. } = branch;
        let Some(report) = run.report else { return Ok(None) };
        let file = |file: &&ReplacedFile| {
            let mark = marks.change_of(&file.path);
            ChangedTestFile { mark, path: file.path.clone(), is_new: file.is_new, regions: Vec::new() }
        };
        let merged = run.merged.iter().map(|file| file.changed.clone());
        let files: Vec<ChangedTestFile> = run.replaced.iter().map(file).chain(merged).collect();
        let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        let names = (&current.id, repo);
        let diff = self.workspaces.diff_of_files(names, (base, to), &paths, TEST_CHANGE_BYTES).await?;
        Ok(Some(BaseTestsRun { report, files, diff }))
    }

    /// Runs the checks after replacing or removing the files that influence their result.
    async fn run_with_base_tests(
        &self,
        of: VerifyContext<'_>,
        commit: &Sha,
        replaced: &[&ReplacedFile],
        merged: &[MergedFile],
    ) -> Result<CheckedTree, EffectError> {
        let mut versions: BTreeMap<&Sha, Vec<String>> = BTreeMap::new();
        for file in replaced {
            versions.entry(&file.version).or_default().push(file.path.clone());
        }
        let commits: Vec<(&Sha, Vec<String>)> = versions.into_iter().collect();
        let versions = OtherVersions { commits: &commits, merged };
        self.set_up_and_check_fresh(of, commit, versions, ("clean_base_tests", &of.current.checks)).await
    }
}

/// Returns the changes of tests that a person accepted and that are still in the branch. They take part in the run as they were
/// accepted.
fn accepted_tests(branch: BranchState<'_>) -> impl Iterator<Item = BranchFinding> {
    branch
        .paths
        .all()
        .filter_map(move |path| branch.current.guard.accepted_tests(path))
        .map(|(_, finding)| finding.clone())
}
