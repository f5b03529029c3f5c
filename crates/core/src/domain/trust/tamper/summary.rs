//! Summary of all files of a diff: what moved, what went from the program, and what explains a change of a test.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::blocks::{TestBlock, TestFile};
use super::code_tokens::is_assertion_name;
use super::diff::{FileDiff, LineChange};
use super::language::{Language, is_test_path};
use super::marks::subject;

/// Minimum length of a function name that is unlikely to have another meaning, in bytes.
const LONG_NAME: usize = 5;
/// Maximum number of version numbers of a file that are kept.
const MOST_VERSIONS: usize = 100;

pattern!(VERSION, r"\b\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?\b");

/// Summary of all files of a diff, which distinguishes moved tests from lost ones.
#[derive(Default)]
pub(super) struct DiffSummary {
    /// Names of tests that a file contains only after the change.
    pub added_tests: HashSet<String>,
    /// Names of tests that a file contained only before the change.
    pub removed_tests: HashSet<String>,
    /// Names of tests that were disabled before the change.
    pub skipped_before: HashSet<String>,
    /// Added and removed lines without their indentation.
    added_text: HashSet<String>,
    removed_text: HashSet<String>,
    /// Names of deleted files and their folders, and old names of renamed ones.
    deleted_names: HashSet<String>,
    /// The same names without their extensions.
    pub deleted_stems: HashSet<String>,
    /// Names of source files, by the name of what they test.
    sources: HashMap<String, BTreeSet<String>>,
    /// Names of functions that were removed from the program.
    removed_functions: HashSet<String>,
    /// Names of functions and classes that were removed from any file.
    removed_names: HashSet<String>,
    /// Names of functions that the change adds to files with tests, and that are assertions by their names.
    new_assertions: HashSet<String>,
    /// Version numbers in the lines that the change added to files other than tests.
    versions: HashSet<String>,
    /// Whether program code changed, as opposed to tests only.
    pub changes_code: bool,
}

impl DiffSummary {
    pub fn of(files: &[FileDiff], tests: &[Option<TestFile<'_>>]) -> Self {
        let mut diff = Self::default();
        for file in files {
            for name in file.old.iter().filter(|old| file.new.as_ref() != Some(old)).flat_map(|old| old.split('/')) {
                diff.deleted_names.insert(name.to_owned());
                diff.deleted_stems.extend(name.split('.').next().map(str::to_owned));
            }
            if Language::of(file.path()).is_some() {
                let name = file.path().rsplit('/').next().unwrap_or_default();
                diff.sources.entry(subject(name)).or_default().insert(name.to_owned());
            }
            diff.changes_code |= super::program::changes_data(file);
            if !file.paths().any(is_test_path) {
                let versions = file.lines(LineChange::Added).flat_map(|line| VERSION.find_iter(line));
                diff.versions.extend(versions.take(MOST_VERSIONS).map(|version| version.as_str().to_owned()));
            }
            diff.added_text.extend(file.lines(LineChange::Added).map(|line| line.trim().to_owned()));
            diff.removed_text.extend(file.lines(LineChange::Removed).map(|line| line.trim().to_owned()));
        }
        for file in tests.iter().flatten() {
            diff.changes_code |= super::program::changes(file);
            let gone = file.lines.iter().filter(|line| line.change == LineChange::Removed);
            diff.removed_names.extend(gone.filter_map(|line| file.language.function_name(line.text)));
            if file.is_test {
                let added = functions(file, LineChange::Added).filter(|name| is_assertion_name(name));
                diff.new_assertions.extend(added);
            } else {
                diff.removed_functions.extend(functions(file, LineChange::Removed));
            }
            diff.added_tests.extend(alone(&file.new).map(|block| block.name.clone()));
            diff.removed_tests.extend(alone(&file.old).map(|block| block.name.clone()));
            let before =
                file.lines.iter().filter(|line| line.change != LineChange::Added && file.language.skips(line.text));
            diff.skipped_before.extend(before.filter_map(|line| line.old.map(|at| file.old[at].name.clone())));
        }
        for file in tests.iter().flatten() {
            for name in functions(file, LineChange::Added) {
                diff.removed_functions.remove(&name);
            }
        }
        diff
    }

    /// Whether a text mentions a function that was removed from the program.
    pub fn names_removed_code(&self, text: &str) -> bool {
        let mut words = text.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_');
        // A short name means one thing only where it is called.
        let names = |word: &str| {
            let name = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_');
            let is_clear = name.len() >= LONG_NAME || name.len() > 1 && word.ends_with('(');
            is_clear && self.removed_functions.contains(name)
        };
        !self.removed_functions.is_empty() && words.any(names)
    }

    /// Whether the path of a deleted or renamed file contains a name.
    pub fn deletes(&self, name: &str) -> bool {
        self.deleted_names.contains(name)
    }

    /// Whether another source file, by its name, tests `subject`.
    pub fn has_other_source(&self, subject: &str, name: &str) -> bool {
        self.sources.get(subject).is_some_and(|names| names.iter().any(|other| other != name))
    }

    /// Whether a text calls an assertion that the change defines.
    pub fn calls_new_assertion(&self, text: &str) -> bool {
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        !self.new_assertions.is_empty() && words.into_iter().any(|word| self.new_assertions.contains(word))
    }

    /// Whether two texts differ only in version numbers, and the new ones stand in the program or its manifest now.
    pub fn follows_version(&self, old: &str, new: &str) -> bool {
        let plain = |text: &str| VERSION.replace_all(text, "#").into_owned();
        let mut versions = VERSION.find_iter(new).map(|version| version.as_str()).peekable();
        versions.peek().is_some() && plain(old) == plain(new) && versions.all(|version| self.versions.contains(version))
    }

    /// Whether the change removed the same line from any file, so that it may have moved.
    pub fn had(&self, line: &str) -> bool {
        self.removed_text.contains(line.trim())
    }

    /// Whether a function or class with this name was removed from any file, so that it may have moved.
    pub fn removed_text_defines(&self, name: &str) -> bool {
        self.removed_names.contains(name)
    }

    /// Whether the change added the same line to any file.
    pub fn has(&self, line: &str) -> bool {
        self.added_text.contains(line.trim())
    }
}

/// Returns the names of functions that begin in lines with this role.
fn functions<'a>(file: &'a TestFile<'_>, change: LineChange) -> impl Iterator<Item = String> + 'a {
    pattern!(
        METHOD,
        r"^\s+(?:(?:async|static|get|set|public|private|protected)\s+)*(\w+)\s*\([^()]*\)\s*(?::[^{]+)?\{\s*$"
    );
    pattern!(KEYWORD, r"^(?:if|for|while|switch|catch|function|with|constructor|return|do|else)$");
    let method = |text: &str| {
        let found = METHOD.captures(text).filter(|_| file.language == Language::JavaScript)?;
        Some(found[1].to_owned()).filter(|name| !KEYWORD.is_match(name))
    };
    let lines = file.lines.iter().filter(move |line| line.change == change && !line.in_test_module);
    lines.filter_map(move |line| file.language.function_name(line.text).or_else(|| method(line.text)))
}

/// Returns the tests that are only on this side of a change.
fn alone(blocks: &[TestBlock]) -> impl Iterator<Item = &TestBlock> {
    blocks.iter().filter(|block| block.other.is_none() && block.header.is_some() && !block.helper)
}
