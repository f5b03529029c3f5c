//! Verification of a commit in a fresh checkout: runs the checks, runs them with the base's tests, and then collects the
//! findings about the branch.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use failpoint::kill_point;
use tokio_util::sync::CancellationToken;

use super::branch_state::{BranchState, ReplacedFile};
use super::changed_tests::{changed_tests, check_start};
use super::environment::SetupContext;
use super::program_tests::MergedFile;
use crate::clock::Stopwatch;
use crate::domain::lifecycle::effect::CheckPurpose;
use crate::domain::loops::{
    BaseTestsRun, BranchFinding, ChangedTestFile, Loop, RewrittenFile, TestEvidence, WorkOutcome,
};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::model::task::{Check, CheckReport, TamperKind};
use crate::domain::trust::tamper::{self, ChangeMarks, CheckStart};
use crate::engine::receipt::{EffectError, Receipt};
use crate::engine::work::Verification;
use crate::workspace::{CleanCheckout, PathContents};

/// Maximum size of the change of tests that is shown to a maintainer, in bytes.
const TEST_CHANGE_BYTES: usize = 8 * 1024;

/// Data that the runs of one verification share.
#[derive(Clone, Copy)]
pub(super) struct VerifyContext<'a> {
    repo: &'a RepoRef,
    current: &'a Loop,
    /// Base commit and the commands with which it starts the checks.
    pub start: &'a CheckStart<'a>,
    cancel: &'a CancellationToken,
}

/// Outcome of the checks in a checkout.
pub(super) struct CheckedTree {
    pub report: CheckReport,
    /// Tests and files that start checks whose content was changed while the checks ran.
    pub rewritten: Vec<RewrittenFile>,
}

/// Files of a run with the base's tests.
#[derive(Clone, Default)]
pub(super) struct BaseTests {
    pub replaced: Vec<ReplacedFile>,
    /// Program files with the base's tests.
    pub merged: Vec<MergedFile>,
    /// Path and text of a script that reports success at once.
    pub succeeding: Option<(String, String)>,
}

impl BaseTests {
    /// Whether the run would be the same as with the branch's versions.
    fn is_empty(&self) -> bool {
        self.replaced.is_empty() && self.merged.is_empty()
    }

    /// Returns the paths of the files with another commit's version.
    fn paths(&self) -> BTreeSet<&str> {
        self.replaced.iter().map(|file| file.path.as_str()).collect()
    }
}

/// Versions of files with which the checks run, in place of the commit's.
#[derive(Clone, Copy, Default)]
struct OtherVersions<'a> {
    /// Commits, each with the paths whose version is used.
    commits: &'a [(&'a Sha, Vec<String>)],
    /// Program files with the base's tests.
    merged: &'a [MergedFile],
    /// Path and text of a script that reports success at once.
    succeeding: Option<&'a (String, String)>,
}

/// Run with the base's tests, and the files that it judged.
#[derive(Default)]
struct BaseRun {
    /// Outcomes of the checks; `None` if nothing was replaced.
    report: Option<CheckReport>,
    /// Files that the outcomes judge.
    judged: BaseTests,
    /// Files with the base's tests, without build files.
    tests: BaseTests,
    /// Paths of build files whose base version fits the branch.
    fitting: BTreeSet<String>,
}

impl Verification {
    pub(in crate::engine) async fn check(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        purpose: CheckPurpose,
        commit: &Sha,
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        match purpose {
            CheckPurpose::Clean => return self.verify(repo, current, ticket, commit, cancel).await,
            CheckPurpose::Proposals | CheckPurpose::Baseline | CheckPurpose::Iteration => {}
        }
        if purpose == CheckPurpose::Baseline {
            self.note_found_tests(repo, current, commit).await?;
        }
        let view = self.workspaces.agent_view(&current.id, repo);
        if !view.tree.is_dir() {
            self.fresh_tree(current, repo, commit, cancel).await?;
        }
        let phase = if purpose == CheckPurpose::Baseline { "baseline" } else { "iteration" };
        let (of, place) = ((repo, current), (view.tree.as_path(), view.read_only.as_slice()));
        let mut report = self.run_checks(of, phase, place, &current.checks.list, cancel).await?;
        if purpose == CheckPurpose::Baseline {
            let retried = current.checks_to_retry(&report);
            if !retried.is_empty() {
                let again = self.run_checks(of, phase, place, &retried, cancel).await?;
                report = report.run_twice(again);
            }
        }
        let text = format!("{} of {} hold", report.held(), report.outcomes.len());
        Ok(Receipt::outcome(text, ticket, WorkOutcome::Checked { report }))
    }

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
        let of_base = match &current.branch.base {
            Some(base) => self.workspaces.paths_of(repo, base).await?,
            None => Vec::new(),
        };
        let start = &check_start(current, &of_base);
        let of = VerifyContext { repo, current, start, cancel };
        let checked =
            self.set_up_and_check(of, checkout, OtherVersions::default(), ("clean", &current.checks.list)).await?;
        let elapsed_ms = u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX);
        let CheckedTree { mut report, mut rewritten } = checked;
        let Some(base) = &current.branch.base else {
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
        let mut tests = BaseTests { replaced: self.replaced_files(branch, start).await?, ..BaseTests::default() };
        let program_tests = self.program_tests(branch, start, &tests.paths()).await?;
        let moved = self.moved_tests(branch, start, &mut tests.replaced).await?;
        tests.merged = moved.into_iter().chain(program_tests.files).collect();
        let base_run = self.judge_by_base(of, branch, &report, tests, &mut rewritten).await?;
        // The findings come last: files judged by the run with the base's tests do not block.
        let BaseRun { tests, fitting, .. } = &base_run;
        let mut findings = self.findings_about_text(branch, start, &tests.paths()).await?;
        for finding in findings.iter_mut().filter(|finding| fitting.contains(&finding.found.path)) {
            finding.found.kind = TamperKind::TestsChanged;
        }
        findings.extend(self.hard_coded_answers(branch).await?);
        let marks = ChangeMarks::of(&complete.text);
        let changed = tests.replaced.iter().filter(|file| !file.is_new);
        findings.extend(changed.map(|file| changed_tests(&file.path, &marks)));
        findings.extend(tests.merged.iter().filter_map(MergedFile::notice));
        findings.extend(accepted_tests(branch));
        findings.extend(program_tests.findings);
        let base_tests = self.base_tests_run(branch, base_run, &marks).await?;
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
            // Files that the base also writes do not come from the branch.
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
        // A check may need the output of an earlier one.
        let is_repeated = |name: &str| checks.iter().any(|check| check.name == name);
        let last = of.current.checks.list.iter().rposition(|check| is_repeated(&check.name));
        let run = &of.current.checks.list[..last.map_or(0, |last| last + 1)];
        let mut again = self.set_up_and_check_fresh(of, commit, OtherVersions::default(), ("clean", run)).await?;
        again.report.outcomes.retain(|outcome| is_repeated(&outcome.name));
        rewritten.extend(again.rewritten);
        Ok(report.repeated(again.report))
    }

    /// Runs the checks at the base; `None` if they cannot be run there.
    async fn run_at_base(&self, of: VerifyContext<'_>, base: &Sha) -> Result<Option<CheckedTree>, EffectError> {
        match self
            .set_up_and_check_fresh(of, base, OtherVersions::default(), ("clean_base", &of.current.checks.list))
            .await
        {
            Err(EffectError::Permanent { why }) => {
                tracing::warn!(loop_id = %of.current.id, why, "could not count the tests of the base");
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
        if !current.settings.policy.setup.is_empty() {
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
            fixed = fixed.replaced(std::slice::from_ref(&file.changed.path)).await?;
        }
        if let Some((path, text)) = versions.succeeding {
            self.workspaces.use_text(checkout, path, text)?;
            fixed = fixed.replaced(std::slice::from_ref(path)).await?;
        }
        let place = (checkout.dir.as_path(), checkout.read_only.as_slice());
        let report = self.run_checks((repo, current), phase, place, checks, cancel).await?;
        written.extend(fixed.written().await?.1);
        let rewritten = written.into_iter().map(|(path, digest)| RewrittenFile { path, digest }).collect();
        Ok(CheckedTree { report, rewritten })
    }

    /// Runs the checks with the base's tests and build files. If they fail, and pass with the branch's build files, the run counts only
    /// for the build files that decide this. `clean` has the outcomes with the branch's versions of all files.
    async fn judge_by_base(
        &self,
        of: VerifyContext<'_>,
        branch: BranchState<'_>,
        clean: &CheckReport,
        all: BaseTests,
        rewritten: &mut Vec<RewrittenFile>,
    ) -> Result<BaseRun, EffectError> {
        if all.is_empty() {
            return Ok(BaseRun::default());
        }
        let mut run = self.run_with_base_tests(of, branch.to, &all).await?;
        let mut tests = all.clone();
        let builds: Vec<ReplacedFile> = tests.replaced.extract_if(.., |file| file.is_build).collect();
        if builds.is_empty() || run.report.all_hold() {
            let (run, judged) = self.decide_roles(of, branch, all, run).await?;
            rewritten.extend(run.rewritten);
            tests = judged.clone();
            tests.replaced.retain(|file| !file.is_build);
            let fitting = builds.into_iter().map(|file| file.path).collect();
            return Ok(BaseRun { report: Some(run.report), judged, tests, fitting });
        }
        rewritten.append(&mut run.rewritten);
        let with_builds = run.report;
        let mut report = None;
        if !tests.is_empty() {
            let without = self.run_with_base_tests(of, branch.to, &tests).await?;
            let (without, decided) = self.decide_roles(of, branch, tests, without).await?;
            tests = decided;
            rewritten.extend(without.rewritten);
            report = Some(without.report);
        }
        let passing = report.as_ref().unwrap_or(clean);
        if passing.all_hold() {
            let compared = tamper::tests_compared(&with_builds, passing);
            let deciding = match compared {
                Some(Ordering::Greater) => builds,
                _ => self.changing_tests(of, branch, builds, compared.is_some_and(Ordering::is_eq)).await?,
            };
            if !deciding.is_empty() {
                let fitting = deciding.iter().map(|file| file.path.clone()).collect();
                let judged = BaseTests { replaced: deciding, ..BaseTests::default() };
                return Ok(BaseRun { report: Some(with_builds), judged, tests, fitting });
            }
        }
        Ok(BaseRun { report, judged: tests.clone(), tests, fitting: BTreeSet::new() })
    }

    /// Returns the build files whose change is about tests.
    async fn changing_tests(
        &self,
        of: VerifyContext<'_>,
        branch: BranchState<'_>,
        builds: Vec<ReplacedFile>,
        all_ran: bool,
    ) -> Result<Vec<ReplacedFile>, EffectError> {
        let BranchState { repo, current, to, paths, .. } = branch;
        let deleted: BTreeSet<&str> = paths.deleted().collect();
        let kept: Vec<&str> = of.start.base_paths().filter(|path| !deleted.contains(path)).collect();
        let mut changing = Vec::new();
        for file in builds {
            let path = file.path.as_str();
            let [old, new] = self.contents_of_each((&current.id, repo), [&file.version, to], &[path]).await?;
            let text = |contents: &PathContents| {
                contents.get(path).map(|content| String::from_utf8_lossy(content).into_owned()).unwrap_or_default()
            };
            let changes = tamper::changes_tests(path, &text(&old), &text(&new), &kept, all_ran);
            if changes {
                changing.push(file);
            }
        }
        Ok(changing)
    }

    /// Describes a run with the base's tests; `None` if there was none.
    async fn base_tests_run(
        &self,
        branch: BranchState<'_>,
        BaseRun { report, judged, .. }: BaseRun,
        marks: &ChangeMarks,
    ) -> Result<Option<BaseTestsRun>, EffectError> {
        let BranchState { repo, current, base, to, .. } = branch;
        let Some(report) = report else { return Ok(None) };
        let file = |ReplacedFile { path, is_new, .. }| {
            let mark = marks.change_of(&path);
            ChangedTestFile { mark, path, is_new, regions: Vec::new() }
        };
        let merged = judged.merged.into_iter().map(|file| file.changed);
        let files: Vec<ChangedTestFile> = judged.replaced.into_iter().map(file).chain(merged).collect();
        let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        let names = (&current.id, repo);
        let diff = self.workspaces.diff_of_files(names, (base, to), &paths, TEST_CHANGE_BYTES).await?;
        Ok(Some(BaseTestsRun { report, files, diff }))
    }

    /// Runs the checks after replacing or removing the files that influence their result.
    pub(super) async fn run_with_base_tests(
        &self,
        of: VerifyContext<'_>,
        commit: &Sha,
        tests: &BaseTests,
    ) -> Result<CheckedTree, EffectError> {
        let mut versions: BTreeMap<&Sha, Vec<String>> = BTreeMap::new();
        for file in &tests.replaced {
            versions.entry(&file.version).or_default().push(file.path.clone());
        }
        let commits: Vec<(&Sha, Vec<String>)> = versions.into_iter().collect();
        let versions =
            OtherVersions { commits: &commits, merged: &tests.merged, succeeding: tests.succeeding.as_ref() };
        self.set_up_and_check_fresh(of, commit, versions, ("clean_base_tests", &of.current.checks.list)).await
    }
}

/// Returns the changes of tests that a person accepted and that are still in the branch. They take part in the run as they were
/// accepted.
fn accepted_tests(branch: BranchState<'_>) -> impl Iterator<Item = BranchFinding> {
    branch
        .paths
        .all()
        .filter_map(move |path| branch.current.checks.guard.accepted_tests(path))
        .map(|(_, finding)| finding.clone())
}
