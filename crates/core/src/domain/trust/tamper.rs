//! Detection of changes that weaken the checks: tests, assertions, check configuration, workflows, thresholds.
//!
//! Reads a unified git diff as text. Code that the diff does not show, such as the rest of a test, is not guessed. Moving or
//! renaming is no finding. Findings are shown to people, so each names its line.

/// Declares a regular expression that is compiled on first use.
macro_rules! pattern {
    ($name:ident, $text:literal) => {
        static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| regex::Regex::new($text).expect("constant pattern"));
    };
}

mod answers;
mod blocks;
mod bounds;
mod bypassed;
mod code_tokens;
mod commands;
mod compiled;
mod computed;
mod config;
mod config_files;
mod diff;
mod doctests;
mod doubles;
mod enclosing;
mod flow;
mod hidden;
mod language;
mod loosened;
mod marks;
mod matcher;
mod nearby;
mod neutralized;
mod new_tests;
mod program;
mod recorded;
mod replaced;
mod rows;
mod starts;
mod statements;
mod stricter;
mod summary;
mod tests_lost;
mod versions;
mod waits;
mod weakened;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::domain::model::task::{DiffStat, TamperFinding, TamperGrade, TamperKind};
use blocks::TestFile;
use diff::FileDiff;

pub use answers::{LookedUpFunctions, inline_tests, is_test_source, program_files};
pub use compiled::is_compiled_cache;
pub use enclosing::{ChangedTexts, files_to_extend};
pub use marks::{ChangeMarks, is_test_code, is_test_file};
pub use new_tests::NewTests;
pub use starts::{CheckStart, ImportedName, is_missing};

/// Maximum number of findings of one diff.
pub const MAX_FINDINGS: usize = 100;
/// Maximum length of evidence, in characters.
const MAX_EVIDENCE: usize = 200;

/// Globs of CI workflows on all forges.
const WORKFLOWS: [&str; 7] = [
    ".github/workflows/**",
    ".github/actions/**",
    ".gitea/workflows/**",
    ".forgejo/workflows/**",
    ".gitlab-ci.yml",
    ".gitlab/ci/**",
    ".woodpecker/**",
];
/// Paths of the bot's own configuration file on all forges.
const RALPH_FILES: [&str; 4] = [".github/ralph.yml", ".gitea/ralph.yml", ".forgejo/ralph.yml", ".ralph.yml"];
/// Names of manifests and lock files, which determine the dependencies.
const MANIFESTS: [&str; 39] = [
    "Cargo.toml",
    "Cargo.lock",
    "package.json",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "bun.lock",
    "bun.lockb",
    ".npmrc",
    ".yarnrc.yml",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "Pipfile",
    "Pipfile.lock",
    "poetry.lock",
    "uv.lock",
    "requirements.txt",
    "go.mod",
    "go.sum",
    "go.work",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "settings.gradle.kts",
    "gradle.lockfile",
    "Gemfile",
    "Gemfile.lock",
    "composer.json",
    "composer.lock",
    "mix.exs",
    "mix.lock",
    "Package.swift",
    "Package.resolved",
    "Dockerfile",
    "packages.lock.json",
    "flake.lock",
];

/// Returns the changes in a unified git diff that weaken the checks, at most 100. Blocking findings come first, then notices,
/// each in the order of the diff. Text that is no diff gives no findings.
pub fn scan(diff: &str) -> Vec<TamperFinding> {
    scan_with(diff, &ChangedTexts::new())
}

/// Like [`scan`], but also reads the beginnings of the tests around the changed lines in the changed files. [`files_to_extend`]
/// returns the files for which this matters.
pub fn scan_with(diff: &str, texts: &ChangedTexts) -> Vec<TamperFinding> {
    scan_at_most(diff, texts, MAX_FINDINGS)
}

/// Like [`scan_with`], but with at most `most` findings of each grade, and at most `most` in total.
pub fn scan_at_most(diff: &str, texts: &ChangedTexts, most: usize) -> Vec<TamperFinding> {
    let mut files = diff::parse(diff);
    enclosing::extend(&mut files, texts);
    let mut findings = Findings { most, ..Findings::default() };
    let tests: Vec<Option<TestFile<'_>>> = files.iter().map(TestFile::of).collect();
    let summary = summary::DiffSummary::of(&files, &tests);
    for (file, tests) in files.iter().zip(&tests) {
        let place = kind_of_place(file);
        if let Some(kind) = place {
            findings.add(file.path(), None, kind, &config::summary(file));
        }
        let out_of_reach = tests_lost::moved_out_of_reach(file, &mut findings);
        if let Some(tests) = tests.as_ref().filter(|_| !out_of_reach) {
            tests_lost::scan(tests, &summary, &mut findings);
            weakened::scan(tests, &summary, &mut findings);
            flow::scan(tests, &summary, &mut findings);
            hidden::scan(tests, &summary, &mut findings);
            bypassed::scan(tests, &summary, &mut findings);
            replaced::scan(tests, &summary, &mut findings);
            computed::scan(tests, &summary, &mut findings);
            doctests::scan(tests, &summary, &mut findings);
        }
        compiled::scan(file, &mut findings);
        if let Some(tests) = tests {
            neutralized::scan(tests, &summary, &mut findings);
        }
        replaced::shadows(file, &summary, &mut findings);
        replaced::dependencies(file, &summary, &mut findings);
        recorded::scan(file, &summary, &mut findings);
        loosened::scan(file, &mut findings);
        loosened::exits(file, &summary, &mut findings);
        commands::scan(file, &summary, &mut findings);
        if place.is_none() {
            config::scan(file, &summary, &mut findings);
        }
    }
    findings.into_list()
}

/// Returns the paths of changed manifests and lock files, which the pull request lists at the top.
pub fn flagged_manifests(stat: &DiffStat) -> Vec<String> {
    let flagged = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        MANIFESTS.contains(&name)
            || name.starts_with("requirements") && name.ends_with(".txt")
            || name.starts_with("Dockerfile.")
            || path.ends_with(".cargo/config.toml")
    };
    stat.files.iter().filter(|file| flagged(&file.path)).map(|file| file.path.clone()).collect()
}

/// Returns the kind of finding for any change of a file, determined by its old and new paths; `None` if changes to the file are
/// allowed.
fn kind_of_place(file: &FileDiff) -> Option<TamperKind> {
    static KINDS: LazyLock<[(GlobSet, TamperKind); 2]> = LazyLock::new(|| {
        [(globs(&RALPH_FILES), TamperKind::RalphFileEdited), (globs(&WORKFLOWS), TamperKind::WorkflowEdited)]
    });
    let (_, kind) = KINDS.iter().find(|(set, _)| file.paths().any(|path| set.is_match(path)))?;
    Some(*kind)
}

fn globs(patterns: &[&str]) -> GlobSet {
    let mut builder = GlobSetBuilder::new();
    patterns.iter().for_each(|pattern| {
        builder.add(Glob::new(pattern).expect("constant pattern"));
    });
    builder.build().expect("constant patterns")
}

/// Distinct findings so far.
#[derive(Default)]
struct Findings {
    blocking: Vec<TamperFinding>,
    notices: Vec<TamperFinding>,
    seen: BTreeSet<(TamperGrade, TamperKind, String, String)>,
    /// Maximum number of findings of each grade.
    most: usize,
}

impl Findings {
    /// Adds a blocking finding. `line` is 1-based.
    fn add(&mut self, path: &str, line: Option<u32>, kind: TamperKind, evidence: &str) {
        self.insert(TamperFinding { line, ..TamperFinding::new(path, kind, brief(evidence)) });
    }

    /// Adds a notice. `line` is 1-based.
    fn notice(&mut self, path: &str, line: Option<u32>, kind: TamperKind, evidence: &str) {
        let finding = TamperFinding::new(path, kind, brief(evidence));
        self.insert(TamperFinding { line, grade: TamperGrade::Notice, ..finding });
    }

    /// Adds a notice if `weak` is set, else a blocking finding. `line` is 1-based.
    fn add_graded(&mut self, path: &str, line: Option<u32>, kind: TamperKind, evidence: &str, weak: bool) {
        if weak { self.notice(path, line, kind, evidence) } else { self.add(path, line, kind, evidence) }
    }

    /// Whether there is a finding of this kind for a line.
    fn has(&self, path: &str, line: u32, kind: TamperKind) -> bool {
        let is = |found: &&TamperFinding| found.path == path && found.line == Some(line) && found.kind == kind;
        self.blocking.iter().rev().chain(self.notices.iter().rev()).take(MAX_FINDINGS).any(|found| is(&found))
    }

    fn insert(&mut self, finding: TamperFinding) {
        let list = if finding.blocks() { &mut self.blocking } else { &mut self.notices };
        let key = (finding.grade, finding.kind, finding.path.clone(), finding.evidence.clone());
        if list.len() < self.most && self.seen.insert(key) {
            list.push(finding);
        }
    }

    /// Returns all findings, the blocking ones first.
    fn into_list(mut self) -> Vec<TamperFinding> {
        self.blocking.append(&mut self.notices);
        self.blocking.truncate(self.most);
        self.blocking
    }
}

fn brief(evidence: &str) -> String {
    evidence.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_EVIDENCE).collect()
}

#[cfg(test)]
mod tests;
