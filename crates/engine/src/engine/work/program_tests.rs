//! Tests in program files and settings of checks in manifests: finds those that the branch changed, and makes the files for the run
//! with the base's tests.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use sha2::{Digest as _, Sha256};
use test_regions::{ChangedFile, Judgement, Reason, RegionName, TestModuleFile};

use super::branch_state::{BranchState, ReplacedFile};
use crate::domain::loops::{BranchFinding, ChangedTestFile};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};
use crate::domain::model::task::{TamperFinding, TamperKind};
use crate::domain::trust::bounds::COMPARED_BYTES;
use crate::domain::trust::tamper;
use crate::engine::receipt::EffectError;
use crate::engine::work::Verification;
use crate::workspace::PathContents;

/// Number of files that are read at once, so that their size stays below the limit of one reading.
const FILES_AT_ONCE: usize = 50;
/// Number of folders above a module in which its declaration is searched.
const PARENT_FOLDERS: usize = 3;
/// Maximum number of tests that a finding names.
const MAX_NAMES: usize = 3;
/// Maximum length of these names, in characters.
const MAX_LISTED: usize = 120;
/// Length of a mark, in bytes.
const MARK: usize = 8;

/// Program file with the base's tests.
#[derive(Clone)]
pub(super) struct MergedFile {
    pub text: String,
    pub changed: ChangedTestFile,
    /// Whether tests of the base changed. False if all changed tests are new.
    differs: bool,
    /// Numbers of lines that the branch added to the tests and removed from them.
    lines: (usize, usize),
}

impl MergedFile {
    /// Creates a file of which the run uses `text` instead of the branch's version.
    pub fn whole(path: &str, branch: &str, text: String) -> Self {
        let lines = (without(branch, &text), without(&text, branch));
        let mark = digest([branch.as_bytes()]);
        let changed = ChangedTestFile { path: path.to_owned(), mark, is_new: false, regions: Vec::new() };
        Self { text, changed, differs: true, lines }
    }

    /// Returns the notice about changed tests of the base; `None` if all changed tests are new.
    pub fn notice(&self) -> Option<BranchFinding> {
        let ChangedTestFile { path, mark, regions, .. } = &self.changed;
        let (added, removed) = self.lines;
        let names = listed(regions);
        let evidence = match names.is_empty() {
            true => format!("+{added} -{removed}"),
            false => format!("{names}: +{added} -{removed}"),
        };
        let found = TamperFinding::new(path, TamperKind::TestsChanged, evidence);
        self.differs.then(|| BranchFinding { found, mark: mark.clone(), pushed: false })
    }
}

/// Tests in program files that the branch changed.
#[derive(Default)]
pub(super) struct ProgramTests {
    /// Program files of the branch with the base's tests.
    pub files: Vec<MergedFile>,
    /// Findings about tests whose base version cannot be used.
    pub findings: Vec<BranchFinding>,
}

impl Verification {
    /// Compares the tests in the program files of the branch with the base's. Files in `replaced` are left out, as are files that
    /// `start` depends on. If a person accepted a change of a file, the accepted version counts as the base's.
    pub(super) async fn program_tests(
        &self,
        branch: BranchState<'_>,
        start: &tamper::CheckStart<'_>,
        replaced: &BTreeSet<&str>,
    ) -> Result<ProgramTests, EffectError> {
        let BranchState { repo, current, base, to, .. } = branch;
        let names = (&current.id, repo);
        let all: BTreeSet<&str> = branch.paths.all().collect();
        let added: BTreeSet<&str> = branch.paths.added().collect();
        // A changed file that is named like a test and not replaced is part of the program.
        let is_new_test = |path: &&str| added.contains(path) && tamper::is_test_file(path);
        let is_program = |path: &&str| !replaced.contains(path) && !is_new_test(path) && !start.depends_on(path);
        let paths: Vec<&str> = all.into_iter().filter(is_program).collect();
        let [mut old, new] = self.contents_of_each(names, [base, to], &paths).await?;
        let mut accepted: BTreeMap<&Sha, Vec<&str>> = BTreeMap::new();
        for path in &paths {
            if let Some((version, _)) = current.checks.guard.accepted_tests(path) {
                accepted.entry(version).or_default().push(path);
            }
        }
        for (version, paths) in accepted {
            // Without that commit, the base's version counts.
            if let Ok(contents) = self.contents(names, version, &paths).await {
                old.extend(contents);
            }
        }
        let collects = current.checks.list.iter().any(|check| collects_doctests(&check.command));
        Ok(compared(&paths, (&old, &new), collects, &current.task.text.agent_text()))
    }

    /// Returns the modules that the base declares for tests only, among those that changed files may belong to.
    pub(super) async fn test_modules(
        &self,
        names: (&LoopId, &RepoRef),
        base: &Sha,
        changed: &[String],
    ) -> Result<Vec<TestModuleFile>, EffectError> {
        let mut declaring: BTreeSet<String> = BTreeSet::new();
        for path in changed.iter().filter(|path| path.ends_with(".rs") && !tamper::is_test_file(path)) {
            let mut folder = path.as_str();
            for _ in 0..PARENT_FOLDERS {
                let Some((parent, _)) = folder.rsplit_once('/') else { break };
                declaring.extend(["mod", "lib", "main"].map(|name| format!("{parent}/{name}.rs")));
                declaring.insert(format!("{parent}.rs"));
                folder = parent;
            }
        }
        let paths: Vec<&str> = declaring.iter().map(String::as_str).collect();
        let contents = self.contents(names, base, &paths).await?;
        let modules = |(path, content): (&String, &Vec<u8>)| {
            test_regions::test_module_files(path, &String::from_utf8_lossy(content))
        };
        Ok(contents.iter().flat_map(modules).collect())
    }

    /// Takes the tests that moved with their package out of the replaced files, and returns the base's versions for the new places.
    pub(super) async fn moved_tests(
        &self,
        branch: BranchState<'_>,
        start: &tamper::CheckStart<'_>,
        replaced: &mut Vec<ReplacedFile>,
    ) -> Result<Vec<MergedFile>, EffectError> {
        let BranchState { repo, current, base, to, paths, .. } = branch;
        let names = (&current.id, repo);
        let is_open = |path: &&str| current.checks.guard.accepted_tests(path).is_none();
        let (deleted, added) = (paths.deleted().filter(is_open).collect(), paths.added().filter(is_open).collect());
        let pairs = tamper::moved_packages(start, &deleted, &added);
        let (from, targets): (Vec<&str>, Vec<&str>) = pairs.iter().copied().unzip();
        let old = self.contents(names, base, &from).await?;
        let new = self.contents(names, to, &targets).await?;
        let mut moved = Vec::new();
        for (from, path) in pairs {
            let (Some(old), Some(new)) = (old.get(from), new.get(path)) else { continue };
            let (Ok(old), Ok(new)) = (str::from_utf8(old), str::from_utf8(new)) else { continue };
            replaced.retain(|file| file.path != from && file.path != path);
            let text = tamper::with_package(old, new);
            if text != new {
                moved.push(MergedFile::whole(path, new, text));
            }
        }
        Ok(moved)
    }

    /// Returns the contents of files at a commit. Files beyond [`COMPARED_BYTES`] are skipped; a person looks at such a change.
    pub(super) async fn contents(
        &self,
        names: (&LoopId, &RepoRef),
        commit: &Sha,
        paths: &[&str],
    ) -> Result<PathContents, EffectError> {
        let [contents] = self.contents_of_each(names, [commit], paths).await?;
        Ok(contents)
    }

    /// Returns the contents of files at each of the commits, as [`Self::contents`] does for one.
    pub(super) async fn contents_of_each<const N: usize>(
        &self,
        names: (&LoopId, &RepoRef),
        commits: [&Sha; N],
        paths: &[&str],
    ) -> Result<[PathContents; N], EffectError> {
        let mut contents = std::array::from_fn(|_| PathContents::new());
        let mut sizes = [0; N];
        for part in paths.chunks(FILES_AT_ONCE) {
            let read = self.workspaces.contents_at_each(names, commits, &part.iter().copied().collect()).await?;
            for ((contents, size), read) in contents.iter_mut().zip(&mut sizes).zip(read) {
                *size += read.values().map(Vec::len).sum::<usize>();
                contents.extend(read);
            }
            if sizes.iter().any(|size| *size > COMPARED_BYTES) {
                break;
            }
        }
        Ok(contents)
    }
}

/// Whether a command collects the doctests of all Python modules, and names no module.
fn collects_doctests(command: &str) -> bool {
    let names_module = |word: &str| word.ends_with(".py") || word.contains(".py:");
    command.contains("--doctest-modules") && !command.split_whitespace().any(names_module)
}

/// Compares the tests in two versions of program files. `collects` is true if a check collects Python's doctests. `task` is the text
/// of the task.
fn compared(paths: &[&str], (old, new): (&PathContents, &PathContents), collects: bool, task: &str) -> ProgramTests {
    let text = |contents: &PathContents| -> HashMap<String, String> {
        let text = |(path, content): (&String, &Vec<u8>)| (path.clone(), String::from_utf8_lossy(content).into_owned());
        contents.iter().filter(|(_, content)| !content.contains(&0)).map(text).collect()
    };
    let old = text(old);
    let texts = text(new);
    let versions = |path: &&str| {
        let base = old.get(*path).map(String::as_str);
        let branch = texts.get(*path).map(String::as_str);
        (base, branch)
    };
    let enabled = EnabledFeatures::of(&texts);
    let without = |texts: &HashMap<String, String>| -> HashMap<String, String> {
        texts.iter().filter_map(|(path, text)| Some((path.clone(), enabled.without_conditions(path, text)?))).collect()
    };
    let plain = (without(&old), without(&texts));
    let read = |path: &&str| {
        let (base, branch) = versions(path);
        let plain = (plain.0.get(*path).map(String::as_str), plain.1.get(*path).map(String::as_str));
        (plain.0.or(base), plain.1.or(branch))
    };
    let files =
        paths.iter().map(|path| (path, read(path))).filter(|(_, (base, branch))| base.is_some() || branch.is_some());
    let files: Vec<ChangedFile<'_>> = files.map(|(path, (base, branch))| ChangedFile { path, base, branch }).collect();
    let is_deleted = |path: &str| old.contains_key(path) && !texts.contains_key(path);
    let mut result = ProgramTests {
        files: paths.iter().filter_map(|path| manifest(path, versions(path), &is_deleted)).collect(),
        ..ProgramTests::default()
    };
    for (path, merge) in test_regions::with_base_tests_of(&files, collects, task).files {
        let branch = texts.get(&path).map_or("", String::as_str);
        let mark = mark(&path, branch);
        let mut not_judged = merge.not_judged;
        // A text that is not UTF-8 would not be written as it was read.
        let is_exact = new.get(&path).is_none_or(|content| content == branch.as_bytes());
        match merge.text {
            Some(text) if is_exact => {
                let base = old.get(&path).map_or("", String::as_str);
                let (is_new, lines) = difference(&path, (base, branch), &merge.judged);
                let mut regions: Vec<String> = merge.judged.iter().map(|(name, _)| name.to_string()).collect();
                regions.dedup();
                let changed = ChangedTestFile { path: path.clone(), mark: mark.clone(), is_new, regions };
                let differs = merge.judged.iter().any(|(_, judgement)| *judgement != Judgement::Removed);
                result.files.push(MergedFile { text, changed, differs, lines });
            }
            Some(_) => not_judged.extend(merge.judged.into_iter().map(|(name, _)| (name, Reason::ResultDiffers))),
            None => {}
        }
        result.findings.extend(findings(&path, not_judged, &mark));
    }
    result
}

/// Features of Rust packages that the branch enables by default.
struct EnabledFeatures {
    /// Features, by the folder of the package.
    packages: Vec<(String, HashSet<String>)>,
}

impl EnabledFeatures {
    /// Reads the changed manifests of the branch.
    fn of(texts: &HashMap<String, String>) -> Self {
        let package = |(path, text): (&String, &String)| {
            let folder = path.strip_suffix("Cargo.toml").filter(|folder| folder.is_empty() || folder.ends_with('/'))?;
            Some((folder.to_owned(), tamper::default_features(text).into_iter().collect()))
        };
        Self { packages: texts.iter().filter_map(package).collect() }
    }

    /// Returns a source file without conditions that are true; `None` if it has none. The number of tests shows whether a check
    /// disables such a feature.
    fn without_conditions(&self, path: &str, text: &str) -> Option<String> {
        let packages = self.packages.iter().filter(|(folder, _)| path.ends_with(".rs") && path.starts_with(folder));
        let (_, features) = packages.max_by_key(|(folder, _)| folder.len())?;
        let mut plain = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("#[cfg(feature") {
            let condition = &rest[at..];
            let name =
                ["#[cfg(feature = \"", "#[cfg(feature=\""].iter().find_map(|start| condition.strip_prefix(start));
            let (name, after) = name.and_then(|name| name.split_once('"')).unwrap_or(("", ""));
            let after = after.strip_prefix(")]").filter(|_| features.contains(name));
            plain.push_str(&rest[..at]);
            // Another condition stays.
            let kept = if after.is_some() { "" } else { &condition[..1] };
            plain.push_str(kept);
            rest = after.unwrap_or(&condition[1..]);
        }
        plain.push_str(rest);
        (plain != text).then_some(plain)
    }
}

/// Returns a manifest with the base's settings of checks; `None` if they are equal.
fn manifest(
    path: &str,
    (base, branch): (Option<&str>, Option<&str>),
    is_deleted: &dyn Fn(&str) -> bool,
) -> Option<MergedFile> {
    let merge = tamper::with_base_settings(path, base?, branch?, is_deleted)?;
    let lines = (without(&merge.branch, &merge.base), without(&merge.base, &merge.branch));
    let mark = digest([merge.branch.as_bytes()]);
    let changed = ChangedTestFile { path: path.to_owned(), mark, is_new: false, regions: merge.names };
    Some(MergedFile { text: merge.text, changed, differs: true, lines })
}

/// Returns whether the branch only added lines to the tests of a file, and the numbers of lines that it added and removed.
fn difference(path: &str, (base, branch): (&str, &str), judged: &[(RegionName, Judgement)]) -> (bool, (usize, usize)) {
    let texts = |source: &str| -> HashMap<RegionName, String> {
        let regions = test_regions::regions(path, source).unwrap_or_default();
        regions.into_iter().map(|region| (region.name, source[region.range].to_owned())).collect()
    };
    let old = texts(base);
    let new = texts(branch);
    let mut only_adds = true;
    let mut lines = (0, 0);
    for (name, judgement) in judged {
        let old = old.get(name).map_or("", String::as_str);
        let new = new.get(name).map_or("", String::as_str);
        let mut added = new.lines();
        let kept = old.lines().all(|line| added.any(|other| other == line));
        only_adds &= *judgement == Judgement::Removed || kept && !old.is_empty() && !new.is_empty();
        lines.0 += without(new, old);
        lines.1 += without(old, new);
    }
    (only_adds, lines)
}

/// Returns the number of lines that a text has more often than another.
fn without(text: &str, other: &str) -> usize {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for line in other.lines() {
        *counts.entry(line).or_default() += 1;
    }
    let is_extra = |line: &&str| match counts.get_mut(*line) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    text.lines().filter(is_extra).count()
}

/// Formats names of tests. If there are many, only the first ones are listed and the rest is counted.
fn listed(names: &[String]) -> String {
    let mut listed = names[..names.len().min(MAX_NAMES)].join(", ");
    if names.len() > MAX_NAMES {
        listed.push_str(&format!(" and {} more", names.len() - MAX_NAMES));
    }
    listed.chars().take(MAX_LISTED).collect()
}

/// Returns one finding for all tests of a file that could not be judged for the same reason.
fn findings(path: &str, not_judged: Vec<(RegionName, Reason)>, mark: &str) -> Vec<BranchFinding> {
    let mut by_reason: BTreeMap<Reason, Vec<String>> = BTreeMap::new();
    for (name, reason) in not_judged {
        by_reason.entry(reason).or_default().push(name.to_string());
    }
    let finding = |(reason, names): (Reason, Vec<String>)| {
        let evidence = format!("{}: {reason}; {}", listed(&names), reason.advice());
        let found = TamperFinding::new(path, TamperKind::TestsNotJudged, evidence);
        BranchFinding { found, mark: mark.to_owned(), pushed: false }
    };
    by_reason.into_iter().map(finding).collect()
}

/// Returns a digest of the tests in a file, which changes of the program leave unchanged. It is the digest of the whole file
/// if its tests are unknown.
fn mark(path: &str, text: &str) -> String {
    let Some(regions) = test_regions::regions(path, text) else { return digest([text.as_bytes()]) };
    digest(
        regions.iter().flat_map(|region| [region.condition.as_bytes(), &text.as_bytes()[region.range.clone()], &[0]]),
    )
}

fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut digest = Sha256::new();
    parts.into_iter().for_each(|part| digest.update(part));
    data_encoding::HEXLOWER.encode(&digest.finalize()[..MARK])
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "/// ```\n/// assert_eq!(a(), 1);\n/// ```\npub fn a() -> u8 {\n    1\n}\n";

    fn of(files: &[(&str, Option<&[u8]>, Option<&[u8]>)]) -> ProgramTests {
        let paths: Vec<&str> = files.iter().map(|(path, ..)| *path).collect();
        let side = |pick: fn(&(&str, Option<&[u8]>, Option<&[u8]>)) -> Option<Vec<u8>>| {
            files.iter().filter_map(|file| Some((file.0.to_owned(), pick(file)?))).collect::<PathContents>()
        };
        let old = side(|file| file.1.map(<[u8]>::to_vec));
        let new = side(|file| file.2.map(<[u8]>::to_vec));
        compared(&paths, (&old, &new), false, "")
    }

    #[test]
    fn command_that_names_modules_does_not_collect_doctests() {
        for command in ["python3 -m pytest -q --doctest-modules", "pytest --doctest-modules src"] {
            assert!(collects_doctests(command), "{command}");
        }
        for command in ["pytest --doctest-modules a.py", "pytest --doctest-modules a.py::a", "python3 -m doctest a.py"]
        {
            assert!(!collects_doctests(command), "{command}");
        }
    }

    #[test]
    fn changed_doctest_is_replaced_and_its_mark_ignores_the_program() {
        let branch = BASE.replace("a(), 1", "a(), 2").replace("    1", "    2");
        let tests = of(&[("src/a.rs", Some(BASE.as_bytes()), Some(branch.as_bytes()))]);
        let [file @ MergedFile { text, changed, .. }] = &tests.files[..] else { panic!("one file") };
        assert_eq!(*text, BASE.replace("    1", "    2"));
        assert_eq!((changed.regions.as_slice(), changed.is_new), (&["doctest `a`".to_owned()][..], false));
        let notice = TamperFinding::new("src/a.rs", TamperKind::TestsChanged, "doctest `a`: +1 -1");
        assert_eq!(file.notice().map(|notice| notice.found), Some(notice));
        assert!(tests.findings.is_empty());
        assert_eq!(mark("src/a.rs", &branch), mark("src/a.rs", &branch.replace("    2", "    3")));
        assert_ne!(mark("src/a.rs", &branch), mark("src/a.rs", BASE));
    }

    #[test]
    fn condition_of_a_default_feature_changes_no_test() {
        let manifest = "[package]\nname = \"a\"\n\n[features]\ndefault = [\"a\"]\na = []\nb = []\n";
        let of_feature = |feature: &str| format!("#[cfg(feature = \"{feature}\")]\n{BASE}");
        for (feature, findings) in [("a", 0), ("b", 1)] {
            let branch = of_feature(feature);
            let manifest = ("Cargo.toml", Some("[package]\nname = \"a\"\n".as_bytes()), Some(manifest.as_bytes()));
            let tests = of(&[manifest, ("src/a.rs", Some(BASE.as_bytes()), Some(branch.as_bytes()))]);
            assert_eq!(tests.findings.len(), findings, "{feature}");
        }
        let changed = of_feature("a").replace("a(), 1", "a(), 2");
        let manifest = ("Cargo.toml", None, Some(manifest.as_bytes()));
        let tests = of(&[manifest, ("src/a.rs", Some(BASE.as_bytes()), Some(changed.as_bytes()))]);
        assert!(tests.files[0].text.contains("a(), 1") && tests.findings.is_empty());
    }

    /// A check may fail without new tests because it counts them.
    #[test]
    fn added_lines_count_as_new_tests() {
        let base = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n}\n";
        for (branch, is_new, is_told) in [
            (base.replace("{}\n", "{}\n    #[test]\n    fn b() {}\n"), true, true),
            (format!("{base}#[test]\nfn b() {{}}\n"), true, false),
            (base.replace("fn a", "fn b"), false, true),
            (String::new(), false, true),
        ] {
            let tests = of(&[("src/a.rs", Some(base.as_bytes()), Some(branch.as_bytes()))]);
            let [file] = &tests.files[..] else { panic!("one file") };
            assert_eq!((file.changed.is_new, file.notice().is_some()), (is_new, is_told), "{branch}");
        }
    }

    #[test]
    fn definition_is_named_once_and_belongs_to_the_mark() {
        let base = "#[derive(PartialEq)]\npub struct A(u8);\n";
        let own = "pub struct A(u8);\n\nimpl PartialEq for A {\n    fn eq(&self, _: &Self) -> bool {\n        true\n    }\n}\n";
        let tests = of(&[("src/a.rs", Some(base.as_bytes()), Some(own.as_bytes()))]);
        let [file] = &tests.files[..] else { panic!("one file") };
        assert_eq!(file.changed.regions, ["definition `A::PartialEq`"]);
        assert!(file.text.contains("derive(PartialEq)") && !file.text.contains("impl"), "{}", file.text);
        assert_ne!(mark("src/a.rs", own), mark("src/a.rs", &own.replace("true", "false")));
    }

    #[test]
    fn test_without_its_item_is_a_finding() {
        let tests = of(&[("src/a.rs", Some(BASE.as_bytes()), None), ("b.py", Some(b"a"), Some(b"\0"))]);
        assert!(tests.files.is_empty());
        let [finding] = &tests.findings[..] else { panic!("one finding") };
        assert!(finding.blocks() && finding.needs_decision());
        assert_eq!(
            finding.found.evidence,
            "doctest `a`: its file no longer exists in the branch; put the test back beside its item, or let a maintainer accept its removal"
        );
    }

    #[test]
    fn file_in_another_encoding_is_not_written() {
        let branch = [BASE.replace("a(), 1", "a(), 2").as_bytes(), b"// \xe9\n"].concat();
        let tests = of(&[("src/a.rs", Some(BASE.as_bytes()), Some(&branch))]);
        assert_eq!((tests.files.len(), tests.findings.len()), (0, 1));
    }

    #[test]
    fn manifest_gets_the_settings_of_the_base() {
        let base = "{\"scripts\": {\"test\": \"node --test\"}}";
        let branch = "{\"scripts\": {\"test\": \"echo pass 6\"}, \"dependencies\": {\"a\": \"1\"}}";
        let tests = of(&[("package.json", Some(base.as_bytes()), Some(branch.as_bytes()))]);
        let [file @ MergedFile { text, changed, .. }] = &tests.files[..] else { panic!("one file") };
        assert!(text.contains("node --test") && text.contains("dependencies"), "{text}");
        assert_eq!((changed.regions.as_slice(), changed.is_new), (&["scripts.test".to_owned()][..], false));
        let notice = TamperFinding::new("package.json", TamperKind::TestsChanged, "scripts.test: +1 -1");
        assert_eq!(file.notice().map(|notice| notice.found), Some(notice));
        // Another dependency is no other change of the settings.
        let later = of(&[("package.json", Some(base.as_bytes()), Some(branch.replace("\"1\"", "\"2\"").as_bytes()))]);
        assert_eq!(later.files[0].changed.mark, changed.mark);
        let honest = base.replace("{\"scripts", "{\"name\": \"a\", \"scripts");
        assert!(of(&[("package.json", Some(base.as_bytes()), Some(honest.as_bytes()))]).files.is_empty());
    }
}
