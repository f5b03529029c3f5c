//! Program code that neutralizes tests: values that equal every other value, changed meanings of assertions, exits that report
//! success, and forged summaries of a test runner.

use std::cell::OnceCell;
use std::collections::HashSet;

use super::blocks::{TestFile, TestLine, indent};
use super::diff::LineChange;
use super::language::Language;
use super::marks::is_test_data;
use super::summary::DiffSummary;
use super::{Findings, TamperKind};

/// Maximum length of a line that is read, in bytes. Longer lines are generated.
const LONGEST: usize = 400;
/// Number of lines before an exit in which its function, or the code that runs it, is searched.
const REACH: usize = 12;

// An exit with a status that is not 0.
pattern!(FAILS, r"(?i)exit(?:process)?!?\s*\(?\s*-?[1-9]|\bEXIT_FAILURE\b|halt\(\s*-?[1-9]");
// A child of a fork ends this way.
pattern!(FORKS, r"(?i)\bv?fork(?:pty)?\b|child|\bexec[lv]\w*\(|\bpid\s*==?\s*0");
// Sets the status of the process to success.
pattern!(STATUS_ZERO, r"(?i)\bexit_?code\s*=\s*0\b|\bexitstatus\s*=\s*0\b");
// Names of functions that run as the process ends.
pattern!(
    REGISTERED,
    r#"\b(?:atexit(?:\.register)?|on_exit|at_quick_exit|register_shutdown_function)\(\s*&?["']?(\w+)|\btrap\s+["']?(\w+)["']?\s+.*\b(?:EXIT|ERR|0)\b|\bprocess\.\w+\(\s*["'`](?:exit|beforeExit)["'`]\s*,\s*(\w+)\s*\)"#
);
// What runners print when all is well.
pattern!(
    CLOSING,
    r#"["'`](?:\\n|\s|=)*(?:Ran (?:\d|[{%$]\w*)+\S* tests? in|(?:\d+|\{\w*\}|%d) (?:tests? )?passed\b|test result: ok|running \d+ tests?|#? ?pass \d+|Tests?:\s+\d+ (?:passed|run)|Tests run: \d|ok \d+ - |OK \(\d+ tests?|\d+ examples?, 0 failures|\d+ runs?, \d+ assertions|--- PASS|\[  PASSED  \]|All tests passed|100% tests passed)"#
);
// Files that are started and not imported.
pattern!(
    ENTRY,
    r"(?i)(?:^|/)(?:main|__main__|cli|cmd|console|manage|daemon|setup|launcher|entry_?point)\.\w+$|(?:^|/)(?:cmd|bin|cli|scripts?|tools?|examples?|docs?|bench(?:es|marks?)?|demos?|hack)/"
);
pattern!(MAIN, r"(?i)^_*(?:main|run_cli|cli)_*$");
// Helpers of tests outside of the folders of tests.
pattern!(SUPPORT, r"(?i)(?:^|/)[\w-]*(?:test|mock|fake|stub|assert|expect)[\w-]*(?:/|\.\w+$)");

/// Reports added program lines that prevent tests from failing.
pub(super) fn scan(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let path = tests.file.path();
    if tests.file.is_deleted() || tests.is_test || is_test_data(path) {
        return;
    }
    let program = ProgramFile::of(tests);
    let added = |line: &TestLine<'_>| line.change == LineChange::Added && !diff.had(line.text);
    let mut ends = false;
    let mut closing: Vec<&TestLine<'_>> = Vec::new();
    for (at, line) in tests.lines.iter().enumerate().filter(|(_, line)| added(line)) {
        if program.is_left_out(line) {
            continue;
        }
        let found = program.any_value(line).or_else(|| program.assertion(line)).or_else(|| program.exit(at));
        if let Some((kind, weak)) = found {
            ends |= kind == TamperKind::EarlyExit || kind == TamperKind::FailureIgnored;
            findings.add_graded(path, Some(line.number), kind, line.text, weak || line.in_text);
        }
        if CLOSING.is_match(line.text) {
            closing.push(line);
        }
    }
    // Who only reads such lines, or makes them as a runner does, ends no process.
    for line in closing.into_iter().filter(|_| ends) {
        let evidence = format!("writes what a runner reports: {}", line.text.trim());
        findings.add_graded(path, Some(line.number), TamperKind::FailureIgnored, &evidence, program.entry);
    }
}

/// Changed file of the program.
struct ProgramFile<'a> {
    tests: &'a TestFile<'a>,
    /// Whether the file is started as a program, as opposed to imported.
    entry: bool,
    /// Whether the file supports tests and existed before.
    support: bool,
    /// Names of functions that are registered to run at the end of the process.
    registered: HashSet<&'a str>,
    /// Code around each line.
    enclosing: OnceCell<Vec<EnclosingCode>>,
    /// Whether the file had a value that equals every other, a changed assertion, or an exit before the change.
    had_value: OnceCell<bool>,
    had_assertion: OnceCell<bool>,
    had_exit: OnceCell<bool>,
}

/// Code around a line, as far as its hunk shows.
#[derive(Clone, Copy)]
struct EnclosingCode {
    /// Index of the line that begins the enclosing function.
    function: Option<usize>,
    /// Smallest indentation of a preceding line that mentions `__main__`.
    main: Option<usize>,
}

impl EnclosingCode {
    /// Returns the code around each line of a file.
    fn of(tests: &TestFile<'_>) -> Vec<Self> {
        let mut all = Vec::with_capacity(tests.lines.len());
        let (mut hunk, mut main) = (0, None);
        // Indentations and indices of the functions that are not closed, from the outermost to the innermost.
        let mut functions: Vec<(usize, usize)> = Vec::new();
        for (at, line) in tests.lines.iter().enumerate() {
            if line.hunk != hunk {
                (hunk, main) = (line.hunk, None);
                functions.clear();
            }
            let level = indent(line.text);
            let outer = functions.partition_point(|(other, _)| *other < level);
            let function = outer.checked_sub(1).map(|last| functions[last].1);
            all.push(Self { function, main });
            if line.change == LineChange::Removed {
                continue;
            }
            if tests.language.begins_function(line.text) {
                functions.truncate(outer);
                functions.push((level, at));
            }
            if line.text.contains("__main__") {
                main = Some(main.map_or(level, |other: usize| other.min(level)));
            }
        }
        all
    }
}

/// Kind of a finding, and a flag that is true for weak evidence.
type Found = (TamperKind, bool);

impl<'a> ProgramFile<'a> {
    fn of(tests: &'a TestFile<'a>) -> Self {
        let path = tests.file.path();
        let new_lines = tests.lines.iter().filter(|line| line.change != LineChange::Removed);
        let names = new_lines.flat_map(|line| REGISTERED.captures_iter(line.text));
        Self {
            tests,
            entry: ENTRY.is_match(path),
            support: SUPPORT.is_match(path) && !tests.file.is_new(),
            registered: names
                .filter_map(|found| found.iter().skip(1).flatten().next())
                .map(|name| name.as_str())
                .collect(),
            enclosing: OnceCell::new(),
            had_value: OnceCell::new(),
            had_assertion: OnceCell::new(),
            had_exit: OnceCell::new(),
        }
    }

    /// Whether a line is ignored, because it belongs to a test, is a comment, or is too long. A program function that only has a
    /// name like a test's is not ignored.
    fn is_left_out(&self, line: &TestLine<'_>) -> bool {
        let language = self.tests.language;
        let comment = language.is_comment(line.text) && !line.text.contains("go:linkname");
        let test = line.in_test_module || language.has_marks() && self.tests.is_about_tests(line);
        line.text.len() > LONGEST || comment || test
    }

    fn any_value(&self, line: &TestLine<'_>) -> Option<Found> {
        let language = self.tests.language;
        let weak = || self.support || self.was_there(&self.had_value, |text| language.brings_any_value(text));
        language.brings_any_value(line.text).then(|| (TamperKind::CodeReplaced, weak()))
    }

    fn assertion(&self, line: &TestLine<'_>) -> Option<Found> {
        let language = self.tests.language;
        // What a source file of C defines stays in it.
        let own = language == Language::Cpp
            && !self.tests.file.path().rsplit('.').next().is_some_and(|end| end.starts_with('h'));
        let had = || self.was_there(&self.had_assertion, |text| language.replaces_assertion(text));
        language.replaces_assertion(line.text).then(|| (TamperKind::CodeReplaced, self.support || own || had()))
    }

    /// Returns a finding if a line ends the process with success, or sets its exit status to success.
    fn exit(&self, at: usize) -> Option<Found> {
        let (language, line) = (self.tests.language, &self.tests.lines[at]);
        let hard = language.exits_hard(line.text) && !language.begins_function(line.text);
        let succeeds = language.exits(line.text) || STATUS_ZERO.is_match(line.text);
        if !(hard || succeeds) || FAILS.is_match(line.text) {
            return None;
        }
        if self.runs_by_itself(at) {
            return Some((TamperKind::FailureIgnored, false));
        }
        let main = self.entry || self.is_in_main(at);
        if hard {
            let had = || self.was_there(&self.had_exit, |text| language.exits_hard(text));
            let weak = main || self.is_of_child(at) || had();
            return Some((TamperKind::EarlyExit, weak));
        }
        // A script that ends with success is usual.
        (language != Language::Shell && !main).then_some((TamperKind::EarlyExit, true))
    }

    /// Returns the lines before a line in its hunk, nearest first, without removed and blank lines.
    fn before(&self, at: usize) -> impl Iterator<Item = &'a TestLine<'a>> {
        let hunk = self.tests.lines[at].hunk;
        let lines = self.tests.lines[..at].iter().rev().take_while(move |line| line.hunk == hunk);
        lines.filter(|line| line.change != LineChange::Removed && !line.text.trim().is_empty())
    }

    /// Returns the text of the line that begins the enclosing function.
    fn function(&self, at: usize) -> &'a str {
        let heading = || self.tests.file.hunks[self.tests.lines[at].hunk].heading.as_str();
        self.around(at).function.map_or_else(heading, |outer| self.tests.lines[outer].text)
    }

    fn around(&self, at: usize) -> EnclosingCode {
        self.enclosing.get_or_init(|| EnclosingCode::of(self.tests))[at]
    }

    /// Whether a line runs without being called, because it is in an exit handler, a constructor, or an initializer.
    fn runs_by_itself(&self, at: usize) -> bool {
        let (language, line) = (self.tests.language, &self.tests.lines[at]);
        let function = self.function(at);
        let named = language.function_name(function).is_some_and(|name| self.registered.contains(name.as_str()));
        let around = self.before(at).take(REACH);
        // What begins it stands further left, or is an attribute of the function around it.
        let mut hooks = around.filter(|other| language.begins_hook(other.text));
        let hook = hooks.any(|other| {
            let ends = self.before(at).take_while(|line| !std::ptr::eq(*line, other));
            let closed = ends.filter(|line| indent(line.text) <= indent(other.text));
            let attribute = other.text.trim_start().starts_with(['#', '_', '[', '@']) || function == other.text;
            indent(line.text) > indent(other.text)
                && closed.filter(|line| line.text.trim() != "{").count() <= usize::from(attribute)
        });
        language.begins_hook(line.text) || language.begins_hook(function) || named || hook
    }

    /// Whether a line belongs to the code that starts the program.
    fn is_in_main(&self, at: usize) -> bool {
        let line = &self.tests.lines[at];
        let name = self.tests.language.function_name(self.function(at));
        let is_guarded = self.around(at).main.is_some_and(|level| level < indent(line.text));
        name.is_some_and(|name| MAIN.is_match(&name)) || line.text.contains("__main__") || is_guarded
    }

    /// Whether a line runs in the child process of a fork, according to the surrounding lines.
    fn is_of_child(&self, at: usize) -> bool {
        let line = &self.tests.lines[at];
        FORKS.is_match(line.text)
            || FORKS.is_match(self.function(at))
            || self.before(at).take(REACH).any(|other| FORKS.is_match(other.text))
    }

    /// Whether the file already contained a line before the change that satisfies `same`.
    fn was_there(&self, known: &OnceCell<bool>, same: impl Fn(&str) -> bool) -> bool {
        let mut before = self.tests.lines.iter().filter(|line| line.change != LineChange::Added);
        *known.get_or_init(|| before.any(|line| same(line.text)))
    }
}
