//! Effect of a change on the checks: which files belong to tests or start checks, so that the run with the base's tests uses the
//! base's versions, and which other changes weaken the checks where that run cannot judge. These are configuration in build files,
//! program code that neutralizes tests, and functions that return only the values that tests expect.
//!
//! Reads a unified git diff as text. Code that the diff does not show is not guessed. Findings are shown to people, so each names
//! its line.

/// Declares a regular expression that is compiled on first use.
macro_rules! pattern {
    ($name:ident, $text:literal) => {
        static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| regex::Regex::new($text).expect("constant pattern"));
    };
}

mod answers;
mod build_files;
mod build_lists;
mod code_tokens;
mod commands;
mod compiled;
mod config;
mod config_files;
mod diff;
mod findings;
mod language;
mod manifests;
mod marks;
mod moved_packages;
mod neutralized;
mod new_tests;
mod program_code;
mod role;
mod starts;
mod stricter;
mod subjects;
mod summary;
mod test_data;
mod tested;
mod thresholds;

use std::sync::LazyLock;

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::domain::model::task::{DiffStat, TamperFinding, TamperKind};
use diff::FileDiff;
use findings::Findings;
use program_code::ProgramCode;

pub use answers::{LookedUpFunctions, inline_tests, is_test_source, program_files};
pub use build_files::{changes_tests, is_build_file, tests_compared};
pub use build_lists::with_new_sources;
pub use compiled::is_compiled_cache;
pub use findings::MAX_FINDINGS;
pub use manifests::{SettingsMerge, default_features, is_manifest, with_base_settings};
pub use marks::{ChangeMarks, is_code, is_test_code, is_test_file};
pub use moved_packages::{moved_packages, with_package};
pub use new_tests::NewTests;
pub use program_code::{ChangedTexts, files_to_read};
pub use role::{has_role_by_content, is_program_use, role_by_content, use_of};
pub use starts::{CheckStart, ImportedName, found_name, is_missing};
pub use subjects::{may_be_subject, succeeding};
pub use test_data::{DataUse, TestData, only_adds_lines};

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

/// Returns the changes in a unified git diff that weaken the checks and that the run with the base's tests cannot judge, in the
/// order of the diff, at most `most`. `texts` has the contents of [`files_to_read`]. `is_replaced` returns for which files that
/// run uses the base's version; test files always belong to them. Text that is not a diff gives no findings.
pub fn scan(diff: &str, texts: &ChangedTexts, is_replaced: &dyn Fn(&str) -> bool, most: usize) -> Vec<TamperFinding> {
    let files = diff::parse(diff);
    let mut findings = Findings::new(most);
    let summary = summary::DiffSummary::of(&files);
    for file in &files {
        compiled::scan(file, &mut findings);
        if let Some(kind) = kind_of_place(file) {
            findings.add(file.path(), None, kind, &config::summary(file));
        } else if !is_test_file(file.path()) && !is_replaced(file.path()) {
            if let Some(code) = ProgramCode::of(file, texts.get(file.path()).map(Vec::as_slice)) {
                neutralized::scan(&code, &summary, &mut findings);
            }
            commands::scan(file, &summary, &mut findings);
            config::scan(file, &summary, &mut findings);
            thresholds::scan(file, &mut findings);
        }
    }
    findings.list
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

#[cfg(test)]
mod tests;
