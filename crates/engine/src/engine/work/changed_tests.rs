//! Tests and files that start checks of a branch, compared with the base's: which files the run with the base's tests replaces,
//! and the findings about the branch.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::branch_state::{BranchState, ReplacedFile};
use super::program_tests::MergedFile;
use crate::domain::loops::{BranchFinding, Loop};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::model::task::{TamperFinding, TamperKind};
use crate::domain::trust::tamper::{self, ChangeMarks, CheckStart};
use crate::engine::receipt::EffectError;
use crate::engine::work::Verification;
use crate::workspace::BranchDiff;

/// Maximum number of new files whose names are looked up in the imports of the base.
const MAX_IMPORT_SEARCHES: usize = 200;

/// Number of files that are read to find program code which uses a file.
const MAX_USERS: usize = 50;

impl Verification {
    /// Returns the findings about a commit or tree, before its checks run.
    pub(super) async fn branch_findings(
        &self,
        branch: BranchState<'_>,
        start: &CheckStart<'_>,
    ) -> Result<Vec<BranchFinding>, EffectError> {
        let files = self.changed_test_files(branch, start).await?;
        let known = files.iter().map(String::as_str).collect();
        let program_tests = self.program_tests(branch, start, &known).await?;
        let mut findings = self.findings_about_text(branch, start, &known).await?;
        let marks = ChangeMarks::of(&branch.diff.text);
        let is_accepted = |path: &str| branch.current.checks.guard.accepted_tests(path).is_some();
        findings.extend(files.iter().filter(|path| !is_accepted(path)).map(|path| changed_tests(path, &marks)));
        findings.extend(program_tests.files.iter().filter_map(MergedFile::notice));
        // Whether the tests of a file can be judged matters only once the checks pass.
        findings.extend(program_tests.findings.into_iter().map(|mut finding| {
            finding.found.kind = TamperKind::TestsChanged;
            finding
        }));
        Ok(findings)
    }

    /// Returns the files of the base that the branch changed and that are tests or start checks.
    async fn changed_test_files(
        &self,
        branch: BranchState<'_>,
        start: &CheckStart<'_>,
    ) -> Result<Vec<String>, EffectError> {
        let BranchState { repo, current, base, paths, .. } = branch;
        let mut changed: Vec<String> = paths.of_base().map(str::to_owned).collect();
        let modules = self.test_modules((&current.id, repo), base, &changed).await?;
        // A test may read any data. The run with the base's tests shows whether the deleted data matters.
        let deleted: HashSet<&str> = paths.deleted().collect();
        let by_content = changed.iter().map(String::as_str).filter(|path| tamper::has_role_by_content(path)).collect();
        let contents = self.workspaces.contents_at(&current.id, repo, base, &by_content).await?;
        let role = |path: &String| {
            let content = String::from_utf8_lossy(contents.get(path)?);
            let has_tests = test_regions::regions(path, &content).is_some_and(|regions| !regions.is_empty());
            tamper::role_by_content(path, &content, has_tests, start)
        };
        let mut roles: HashMap<String, bool> =
            changed.iter().filter_map(|path| Some((path.clone(), role(path)?))).collect();
        let data = self.data_of_tests(branch, start).await?;
        for path in changed.iter().filter(|path| !tamper::is_test_file(path)) {
            let Some(content) = contents.get(path).filter(|_| roles.get(path) == Some(&true)) else { continue };
            if self.is_used_by_program(branch, start, (path.as_str(), content.as_slice())).await? {
                roles.remove(path);
            }
        }
        changed.retain(|path| {
            let is_module = || modules.iter().any(|module| module.contains(path));
            let is_deleted_data = || !tamper::is_code(path) && deleted.contains(path.as_str());
            let is_test = || roles.get(path).copied().unwrap_or_else(|| tamper::is_test_file(path));
            is_test() || start.depends_on(path) || is_module() || is_deleted_data() || data.contains(path)
        });
        Ok(changed)
    }

    /// Whether program code of the base imports a file, so that the file is not a library of tests.
    async fn is_used_by_program(
        &self,
        BranchState { repo, current, base, .. }: BranchState<'_>,
        start: &CheckStart<'_>,
        (path, content): (&str, &[u8]),
    ) -> Result<bool, EffectError> {
        let Some(pattern) = tamper::use_of(path, start) else { return Ok(false) };
        let users = self.workspaces.files_with_line(repo, base, &pattern, MAX_USERS).await;
        let others = users.iter().map(String::as_str).filter(|user| *user != path).collect();
        let contents = self.workspaces.contents_at(&current.id, repo, base, &others).await?;
        let used = String::from_utf8_lossy(content);
        let is_program = |(user, text): (&String, &Vec<u8>)| {
            tamper::is_program_use((user.as_str(), String::from_utf8_lossy(text).as_ref()), &used)
        };
        Ok(contents.iter().any(is_program))
    }

    /// Returns the files of the branch that are replaced by their base version or removed for the second run of the
    /// checks, whose result must be the same. These are tests of the base, new tests beside them, and files that
    /// decide how the checks are started. For a change that a person accepted, the accepted version is used.
    pub(super) async fn replaced_files(
        &self,
        branch: BranchState<'_>,
        start: &CheckStart<'_>,
    ) -> Result<Vec<ReplacedFile>, EffectError> {
        let BranchState { repo, current, base, to, diff, paths } = branch;
        let names = (&current.id, repo);
        let mut replaced = Vec::new();
        let tests = self.changed_test_files(branch, start).await?;
        let is_build = |path: &&str| tamper::is_build_file(path) && !tests.iter().any(|test| test == path);
        let builds: Vec<String> = paths.of_base().filter(is_build).map(str::to_owned).collect();
        let mut replace = |path, is_new, is_build| {
            replaced.push(ReplacedFile { path, is_new, is_build, version: base.clone() });
        };
        tests.into_iter().for_each(|path| replace(path, false, false));
        builds.into_iter().for_each(|path| replace(path, false, true));
        let new_tests = tamper::NewTests::new(start, &diff.text);
        let mut searches = 0;
        for path in paths.added() {
            let decides = start.depends_on(path)
                || new_tests.is_apart(path)
                || self.takes_a_place(repo, current, start, path, &mut searches).await;
            if decides {
                replace(path.to_owned(), true, false);
            }
        }
        let mut since: BTreeMap<&Sha, HashSet<String>> = BTreeMap::new();
        let accepted_at = |path: &str| current.checks.guard.accepted_tests(path).map(|(commit, _)| commit);
        for version in replaced.iter().filter_map(|file| accepted_at(&file.path)).collect::<HashSet<_>>() {
            // Without that commit, the base's version counts.
            if let Ok(changed) = self.workspaces.changed_paths(names, version, to).await {
                since.insert(version, changed.all().map(str::to_owned).collect());
            }
        }
        replaced.retain_mut(|file| {
            let Some(version) = accepted_at(&file.path) else { return true };
            let Some(changed) = since.get(version) else { return true };
            file.version = version.clone();
            changed.contains(&file.path)
        });
        Ok(replaced)
    }

    /// Whether a new file can replace a program or module that the checks used before: it is in a folder of their
    /// search path, or has a name that the base imports.
    async fn takes_a_place(
        &self,
        repo: &RepoRef,
        current: &Loop,
        start: &CheckStart<'_>,
        path: &str,
        searches: &mut usize,
    ) -> bool {
        let (Some(base), Some(baseline)) = (&current.branch.base, current.checks.baseline_report()) else {
            return false;
        };
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

    /// Returns the findings about the text of a branch's complete change, except files in `replaced`. If the change was cut
    /// because of its size, earlier findings are kept.
    pub(super) async fn findings_about_text(
        &self,
        branch: BranchState<'_>,
        start: &CheckStart<'_>,
        replaced: &BTreeSet<&str>,
    ) -> Result<Vec<BranchFinding>, EffectError> {
        let BranchState { repo, current, to, diff, .. } = branch;
        let is_replaced = |path: &str| replaced.contains(path) || start.depends_on(path);
        let found = self.findings_of(repo, current, to, &diff.text, &is_replaced).await?;
        let mut findings = found_on_branch(found, diff);
        if diff.truncated {
            let earlier = current.branch_findings().unwrap_or_default().iter().filter(|known| known.blocks());
            let lost: Vec<_> =
                earlier.filter(|known| !findings.iter().any(|one| one.is_same(known))).cloned().collect();
            findings.extend(lost);
        }
        Ok(findings)
    }

    /// Returns the findings about the text of a change that leads to a commit or tree.
    pub(super) async fn findings_of(
        &self,
        repo: &RepoRef,
        current: &Loop,
        to: &Sha,
        diff: &str,
        is_replaced: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Vec<TamperFinding>, EffectError> {
        let files = tamper::files_to_read(diff);
        let paths = files.iter().map(String::as_str).collect();
        let texts = self.workspaces.contents_at(&current.id, repo, to, &paths).await?;
        Ok(tamper::scan(diff, &texts, is_replaced, tamper::MAX_FINDINGS))
    }
}

/// Returns what starts the checks of a loop. `of_base` has the paths of the base.
pub(super) fn check_start<'a>(current: &'a Loop, of_base: &'a [String]) -> CheckStart<'a> {
    let commands = current.checks.list.iter().map(|check| check.command.as_str());
    CheckStart::new(commands, of_base.iter().map(String::as_str))
}

/// Returns the notice about a changed file of tests.
pub(super) fn changed_tests(path: &str, marks: &ChangeMarks) -> BranchFinding {
    let (added, removed) = marks.lines_of(path);
    let found = TamperFinding::new(path, TamperKind::TestsChanged, format!("+{added} -{removed}"));
    BranchFinding { found, mark: marks.change_of(path), pushed: false }
}

/// Returns the findings about a branch, each with the digest of the change that it is about.
pub(super) fn found_on_branch(found: Vec<TamperFinding>, complete: &BranchDiff) -> Vec<BranchFinding> {
    let marks = ChangeMarks::of(&complete.text);
    let of_branch = |found| BranchFinding { mark: marks.mark(&found), found, pushed: false };
    found.into_iter().map(of_branch).collect()
}
