//! Tests that a diff removes, disables or empties.

use std::collections::{HashMap, HashSet};

use super::diff::{FileDiff, Hunk, LineChange};
use super::language::{Language, excludes_others, is_placeholder, is_table, is_test_path};
use super::{Findings, TamperKind};

/// Maximum number of lines between an attribute such as `#[test]` and the function.
const MARK_REACH: usize = 6;
/// Number of removed assertions from which a few added ones do not replace them.
const MANY_ASSERTIONS: usize = 4;
/// Minimum similarity of two names at which one counts as the other, renamed.
const ALIKE: f64 = 0.85;

/// Facts about all files of a diff, which distinguish a moved test from a lost one.
pub(super) struct DiffSummary {
    /// Names of tests that a file has only after the change.
    added_tests: HashSet<String>,
    /// Names of tests that a file had only before the change.
    removed_tests: HashSet<String>,
    /// Names of tests that were already disabled.
    skipped_before: HashSet<String>,
    /// Added and removed lines without their indentation.
    added_text: HashSet<String>,
    removed_text: HashSet<String>,
}

impl DiffSummary {
    pub fn of(files: &[FileDiff]) -> Self {
        let mut whole = Self {
            added_tests: HashSet::new(),
            removed_tests: HashSet::new(),
            skipped_before: HashSet::new(),
            added_text: HashSet::new(),
            removed_text: HashSet::new(),
        };
        for file in files {
            whole.added_text.extend(file.lines(LineChange::Added).map(|line| line.trim().to_owned()));
            whole.removed_text.extend(file.lines(LineChange::Removed).map(|line| line.trim().to_owned()));
            let Some(language) = Language::of(file.path()) else { continue };
            let tests = Tests::of(file, language);
            whole.added_tests.extend(without(&tests.new, &tests.old));
            whole.removed_tests.extend(without(&tests.old, &tests.new));
            let before =
                tests.lines.iter().filter(|line| line.change != LineChange::Added && language.skips(line.text));
            whole.skipped_before.extend(before.filter_map(|line| line.old_skipped.clone()));
        }
        whole
    }

    /// Whether the same line was there before, here or elsewhere.
    pub fn had(&self, line: &str) -> bool {
        self.removed_text.contains(line.trim())
    }
}

/// Looks for lost tests in one file.
pub(super) fn scan(file: &FileDiff, whole: &DiffSummary, findings: &mut Findings) {
    if moved_out_of_reach(file, findings) {
        return;
    }
    let Some(language) = file.paths().find_map(Language::of) else { return };
    let tests = Tests::of(file, language);
    let renamed = removed(file, &tests, whole, findings);
    if file.is_deleted() {
        return;
    }
    skipped(file, language, &tests, whole, findings);
    assertions(file, language, &tests, &renamed, whole, findings);
}

/// Reports a test file that is renamed so that no runner finds it.
fn moved_out_of_reach(file: &FileDiff, findings: &mut Findings) -> bool {
    let (Some(old), Some(new)) = (&file.old, &file.new) else { return false };
    let lost = old != new && is_test_path(old) && !is_test_path(new) && Language::of(old) != Language::of(new);
    if lost {
        findings.add(old, TamperKind::TestDeleted, &format!("renamed to {new}, where no runner looks for tests"));
    }
    lost
}

/// Reports removed tests; returns the new names of renamed ones.
fn removed(
    file: &FileDiff,
    tests: &Tests<'_>,
    whole: &DiffSummary,
    findings: &mut Findings,
) -> HashMap<String, String> {
    let mut free = without(&tests.new, &tests.old);
    let mut renamed = HashMap::new();
    let mut lost = Vec::new();
    for name in without(&tests.old, &tests.new) {
        let elsewhere = whole.added_tests.contains(&name) && !free.contains(&name);
        if elsewhere || tests.body_lives_on(&name, whole) {
            continue;
        }
        match tests.replacement(&name, &free) {
            Some(at) => {
                renamed.insert(name, free.remove(at));
            }
            None => lost.push(name),
        }
    }
    let added: Vec<&str> = file.lines(LineChange::Added).filter(|line| !line.trim().is_empty()).collect();
    if lost.is_empty() || (added.len() >= lost.len() && added.iter().any(|line| is_table(line))) {
        return renamed;
    }
    if file.is_deleted() {
        let names = lost.join(", ");
        findings.add(file.path(), TamperKind::TestDeleted, &format!("file deleted with {} tests: {names}", lost.len()));
    } else {
        for name in lost {
            findings.add(file.path(), TamperKind::TestDeleted, &format!("test removed: {name}"));
        }
    }
    renamed
}

fn skipped(file: &FileDiff, language: Language, tests: &Tests<'_>, whole: &DiffSummary, findings: &mut Findings) {
    let in_tests = is_test_path(file.path());
    for line in tests.lines.iter().filter(|line| line.change == LineChange::Added && language.skips(line.text)) {
        let fine = match &line.new_skipped {
            Some(name) => {
                let new = whole.added_tests.contains(name) && !whole.removed_tests.contains(name);
                // A test that is new takes nothing away, unless it takes the place of all others.
                whole.skipped_before.contains(name) || (new && !excludes_others(line.text))
            }
            None => whole.had(line.text) || file.is_new() || !(in_tests || language == Language::Rust),
        };
        if !fine && (in_tests || line.new_skipped.is_some() || language == Language::Rust) {
            findings.add(file.path(), TamperKind::TestSkipped, line.text);
        }
    }
    // The module of unit tests is compiled under another condition now.
    let conditional =
        |line: &&str| line.trim_start().starts_with("#[cfg(") && !line.contains("test)") && !line.contains("(test,");
    let lost_condition = file.lines(LineChange::Removed).any(|line| line.trim() == "#[cfg(test)]")
        && !file.lines(LineChange::Added).any(|line| line.contains("cfg(test)") || line.contains("(test,"));
    if language == Language::Rust
        && lost_condition
        && let Some(line) = file.lines(LineChange::Added).find(conditional)
    {
        findings.add(file.path(), TamperKind::TestSkipped, line);
    }
}

fn assertions(
    file: &FileDiff,
    language: Language,
    tests: &Tests<'_>,
    renamed: &HashMap<String, String>,
    whole: &DiffSummary,
    findings: &mut Findings,
) {
    let in_tests = is_test_path(file.path());
    let gone = without(&tests.old, &tests.new);
    // By test: removed assertions that are nowhere else now, and added ones.
    let mut lost: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
    for line in tests.lines.iter().filter(|line| line.change == LineChange::Removed && language.asserts(line.text)) {
        let name = line.old_test.as_deref();
        let counts = in_tests || name.is_some() || line.in_test_module;
        let whole_test_gone = name.is_some_and(|name| gone.iter().any(|g| g == name) && !renamed.contains_key(name));
        if !counts || whole_test_gone || whole.added_text.contains(line.text.trim()) {
            continue;
        }
        match lost.iter_mut().find(|(test, _)| *test == name) {
            Some((_, texts)) => texts.push(line.text),
            None => lost.push((name, vec![line.text])),
        }
    }
    for (test, texts) in lost {
        let now = test.map(|name| renamed.get(name).map_or(name, String::as_str));
        let here = |line: &&Placed<'_>| line.change == LineChange::Added && line.new_test.as_deref() == now;
        let added = tests.lines.iter().filter(here).filter(|line| language.asserts(line.text)).count();
        let table = tests.lines.iter().filter(here).any(|line| is_table(line.text));
        if added == 0 || (texts.len() >= MANY_ASSERTIONS && added * 3 < texts.len() && !table) {
            findings.add(file.path(), TamperKind::AssertionRemoved, texts[0]);
        }
    }
    for line in tests.lines.iter().filter(|line| line.change == LineChange::Added && is_placeholder(line.text)) {
        if (in_tests || line.new_test.is_some() || line.in_test_module) && !whole.had(line.text) {
            findings.add(file.path(), TamperKind::AssertionRemoved, &format!("always holds: {}", line.text.trim()));
        }
    }
}

/// A line with the test that it belongs to, before and after the change.
struct Placed<'a> {
    change: LineChange,
    text: &'a str,
    old_test: Option<String>,
    new_test: Option<String>,
    /// The tests that this line switches off if it is a skip: the one it is in, or the one after an attribute.
    old_skipped: Option<String>,
    new_skipped: Option<String>,
    /// Whether what git or an earlier hunk shows around it is a module of unit tests.
    in_test_module: bool,
}

/// The tests that the hunks of a file show.
struct Tests<'a> {
    lines: Vec<Placed<'a>>,
    old: Vec<String>,
    new: Vec<String>,
}

impl<'a> Tests<'a> {
    fn of(file: &'a FileDiff, language: Language) -> Self {
        let mut tests = Self { lines: Vec::new(), old: Vec::new(), new: Vec::new() };
        let mut in_module = false;
        for hunk in &file.hunks {
            tests.add_hunk(hunk, language, &mut in_module);
        }
        tests
    }

    fn add_hunk(&mut self, hunk: &'a Hunk, language: Language, in_module: &mut bool) {
        let module = |text: &str| text.contains("mod test") || text.contains("cfg(test)");
        *in_module |= module(&hunk.heading);
        let (mut old, mut new) = (Side::default(), Side::default());
        old.current = language.test_name(&hunk.heading, false);
        new.current.clone_from(&old.current);
        for line in &hunk.lines {
            *in_module |= module(&line.text);
            let at = self.lines.len();
            self.lines.push(Placed {
                change: line.change,
                text: &line.text,
                old_test: None,
                new_test: None,
                old_skipped: None,
                new_skipped: None,
                in_test_module: *in_module,
            });
            if line.change != LineChange::Added {
                let attached = old.take(&line.text, at, language, &mut self.old);
                attached.into_iter().for_each(|at| self.lines[at].old_skipped.clone_from(&old.current));
                self.lines[at].old_test.clone_from(&old.current);
            }
            if line.change != LineChange::Removed {
                let attached = new.take(&line.text, at, language, &mut self.new);
                attached.into_iter().for_each(|at| self.lines[at].new_skipped.clone_from(&new.current));
                self.lines[at].new_test.clone_from(&new.current);
            }
        }
    }

    /// Whether every assertion of a removed test is found among the added lines of the diff.
    fn body_lives_on(&self, name: &str, whole: &DiffSummary) -> bool {
        let mut any = false;
        for line in self
            .lines
            .iter()
            .filter(|line| line.change == LineChange::Removed && line.old_test.as_deref() == Some(name))
        {
            if line.text.contains("assert") || line.text.contains("expect") {
                any = true;
                if !whole.added_text.contains(line.text.trim()) {
                    return false;
                }
            }
        }
        any
    }

    /// Returns the new name in `free` that replaces a removed test: one with as many assertions, or one with a
    /// similar name and at least one assertion.
    fn replacement(&self, name: &str, free: &[String]) -> Option<usize> {
        let weight = |line: &&Placed<'_>| line.text.to_lowercase().contains("assert") || line.text.contains("expect");
        let before = |line: &&Placed<'_>| line.change != LineChange::Added && line.old_test.as_deref() == Some(name);
        let needed = self.lines.iter().filter(before).filter(weight).count();
        let has = |new: &str| {
            let after =
                |line: &&Placed<'_>| line.change != LineChange::Removed && line.new_test.as_deref() == Some(new);
            self.lines.iter().filter(after).filter(weight).filter(|line| !is_placeholder(line.text)).count()
        };
        let fits = |new: &String| {
            let has = has(new);
            has >= needed || (has > 0 && strsim::jaro_winkler(name, new) > ALIKE)
        };
        (0..free.len()).filter(|at| fits(&free[*at])).min_by_key(|at| has(&free[*at]))
    }
}

/// One side of a hunk while it is read.
#[derive(Default)]
struct Side {
    /// The test that the reader is in.
    current: Option<String>,
    /// Lines since a mark.
    marked: Option<usize>,
    /// Lines with attributes that wait for the test they are about.
    waiting: Vec<usize>,
}

impl Side {
    /// Takes the next line; gives the lines whose skip is about the current test.
    fn take(&mut self, text: &str, at: usize, language: Language, names: &mut Vec<String>) -> Vec<usize> {
        let mark = language.is_mark(text) && !language.is_comment(text);
        if mark {
            self.marked = Some(0);
        }
        let attribute = text.trim_start().starts_with(['@', '#']) && !language.is_comment(text);
        if let Some(name) = language.test_name(text, self.marked.is_some()) {
            names.push(name.clone());
            self.current = Some(name);
            self.marked = None;
            let mut attached = std::mem::take(&mut self.waiting);
            attached.push(at);
            return attached;
        }
        if attribute {
            self.waiting.push(at);
            self.count_mark();
            return Vec::new();
        }
        if language.begins_function(text) {
            self.current = None;
            self.marked = None;
            self.waiting.clear();
        }
        self.count_mark();
        if self.current.is_some() { vec![at] } else { Vec::new() }
    }

    fn count_mark(&mut self) {
        self.marked = self.marked.map(|lines| lines + 1).filter(|lines| *lines <= MARK_REACH);
    }
}

/// Returns the elements that occur in `names` more often than in `others`.
fn without(names: &[String], others: &[String]) -> Vec<String> {
    let mut left = others.to_vec();
    let mut rest = Vec::new();
    for name in names {
        match left.iter().position(|other| other == name) {
            Some(at) => {
                left.swap_remove(at);
            }
            None => rest.push(name.clone()),
        }
    }
    rest
}
