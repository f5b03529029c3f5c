//! Program code that neutralizes tests: values that equal every other value, changed meanings of assertions, exits that report
//! success, forged summaries of a test runner, and code that behaves differently in tests. The run with the base's tests cannot
//! detect it.

use std::cell::OnceCell;
use std::collections::HashSet;

use super::diff::LineChange;
use super::findings::Findings;
use super::language::Language;
use super::program_code::{CodeLine, ProgramCode, indent};
use super::summary::DiffSummary;
use super::tested::TestQuestions;
use crate::domain::model::task::TamperKind;

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

// Says that everything equals everything.
pattern!(
    EQUALS_ALL,
    r"\bdef\s+__(?:eq|ne|lt|gt|le|ge|contains|bool)__\(|\bdef\s+(?:==|eql\?|===)\s*\(?|\bbool(?:ean)?\s+(?:operator\s*==|equals\s*\()|\bfn\s+eq\s*\(|\bfun\s+equals\s*\(|\bfunc\s+\([^)]*\)\s+Equal\(|\bpublic\s+function\s+equals\(|\bequals\(Object\b"
);
pattern!(
    TRUE_ONLY,
    r"(?:return\s+(?:true|True|1)\b\s*;?\s*\}?\s*$|\{\s*true\s*\}|=\s*true\s*;?\s*$|^\s*true\s*$|->\s*true|=>\s*true|^\s*return\s+(?:\w+\s+instanceof\s+\w+|isinstance\(\w+,\s*\w+\)|\w+\s+is\s+\w+|type\(\w+\).*|\w+\.getClass\(\)\s*==\s*\w+\.getClass\(\))\s*;?\s*$)"
);
// A comparison of types, and the class that it names.
pattern!(
    SAME_TYPE,
    r"\binstanceof\s+(\w+)|\bisinstance\(\w+,\s*(\w+)\)|\b\w+\s+is\s+(\w+)|\btype\((self)\)|\b(getClass)\(\)"
);
pattern!(CLASS, r"^\s*(?:\w+\s+)*class\s+(\w+)");

// Number that prints as another: a class of numbers, and a method that writes a number's text.
pattern!(NUMBER_CLASS, r"^\s*class\s+\w+\((?:\w+\.)?(?:int|float|complex|bool|Decimal|Fraction)\b");
pattern!(PRINTS, r"\bdef\s+__(?:repr|str|format)__\(");
pattern!(FIXED_TEXT, r#"\breturn\s+(?:\w+\s+if\b.*\belse\s+)?["'][^"'{}]*["']"#);

/// Reports added program lines that prevent tests from failing.
pub(super) fn scan(code: &ProgramCode<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let path = code.file.path();
    if code.file.is_deleted() {
        return;
    }
    let (program, questions) = (ProgramFile::of(code), TestQuestions::of(code));
    let mut ends = false;
    let mut closing: Vec<&CodeLine<'_>> = Vec::new();
    for (at, line) in code.lines.iter().enumerate() {
        let is_new = line.change == LineChange::Added && line.text.len() <= LONGEST && !diff.had(line.text);
        if !is_new || line.in_test_module {
            continue;
        }
        let mut found = questions.decides(at);
        if !program.is_comment(line) {
            let exit = program.exit(at);
            ends |= exit.is_some();
            found |= program.any_value(line)
                || program.assertion(line)
                || exit == Some(true)
                || program.equals_all(at)
                || program.prints_another_number(at);
            if CLOSING.is_match(line.text) {
                closing.push(line);
            }
        }
        if found && !line.in_text {
            findings.add(path, Some(line.number), TamperKind::TestsNeutralized, line.text);
        }
    }
    // A program that only reads such lines, or prints them as a runner does, ends no process.
    for line in closing.into_iter().filter(|_| ends && !program.entry) {
        let evidence = format!("writes the report of a runner: {}", line.text.trim());
        findings.add(path, Some(line.number), TamperKind::TestsNeutralized, &evidence);
    }
}

/// Changed file of the program.
struct ProgramFile<'a> {
    code: &'a ProgramCode<'a>,
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
    /// Index of the line that starts the enclosing function.
    function: Option<usize>,
    /// Smallest indentation of a preceding line that mentions `__main__`.
    main: Option<usize>,
}

impl EnclosingCode {
    /// Returns the code around each line of a file.
    fn of(code: &ProgramCode<'_>) -> Vec<Self> {
        let mut all = Vec::with_capacity(code.lines.len());
        let (mut hunk, mut main) = (0, None);
        // Indentations and indices of the functions that are not closed, from the outermost to the innermost.
        let mut functions: Vec<(usize, usize)> = Vec::new();
        for (at, line) in code.lines.iter().enumerate() {
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
            if code.language.begins_function(line.text) {
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

impl<'a> ProgramFile<'a> {
    fn of(code: &'a ProgramCode<'a>) -> Self {
        let path = code.file.path();
        let is_read = |line: &&CodeLine<'_>| line.change != LineChange::Removed && line.text.len() <= LONGEST;
        let new_lines = code.lines.iter().filter(is_read);
        let names = new_lines.flat_map(|line| REGISTERED.captures_iter(line.text));
        Self {
            code,
            entry: ENTRY.is_match(path),
            support: SUPPORT.is_match(path) && !code.file.is_new(),
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

    fn is_comment(&self, line: &CodeLine<'_>) -> bool {
        self.code.language.is_comment(line.text) && !line.text.contains("go:linkname")
    }

    fn any_value(&self, line: &CodeLine<'_>) -> bool {
        let language = self.code.language;
        let had = || self.was_there(&self.had_value, |text| language.brings_any_value(text));
        language.brings_any_value(line.text) && !self.support && !had()
    }

    fn assertion(&self, line: &CodeLine<'_>) -> bool {
        let language = self.code.language;
        // A definition in a C source file stays local to it.
        let own = language == Language::Cpp
            && !self.code.file.path().rsplit('.').next().is_some_and(|end| end.starts_with('h'));
        let had = || self.was_there(&self.had_assertion, |text| language.replaces_assertion(text));
        language.replaces_assertion(line.text) && !self.support && !own && !had()
    }

    /// Whether a line ends the process with success, or sets its exit status to success, where honest programs do not. `None` if
    /// the line does not end the process.
    fn exit(&self, at: usize) -> Option<bool> {
        let (language, line) = (self.code.language, &self.code.lines[at]);
        let hard = language.exits_hard(line.text) && !language.begins_function(line.text);
        let succeeds = language.exits(line.text) || STATUS_ZERO.is_match(line.text);
        if !(hard || succeeds) || FAILS.is_match(line.text) {
            return None;
        }
        let had = || self.was_there(&self.had_exit, |text| language.exits_hard(text));
        let main = || self.entry || self.is_in_main(at);
        let blocks = self.runs_by_itself(at) || hard && !main() && !self.is_of_child(at) && !had();
        // A script that ends with success is usual.
        (blocks || hard || language != Language::Shell && !main()).then_some(blocks)
    }

    /// Whether an added line replaces the last statement of a function that compares two values, so that all values are equal.
    fn equals_all(&self, at: usize) -> bool {
        let (lines, line) = (&self.code.lines, &self.code.lines[at]);
        if !TRUE_ONLY.is_match(line.text) {
            return false;
        }
        let around = lines[..=at].iter().rev().take(10).take_while(|other| other.hunk == line.hunk);
        let mut outer =
            around.filter(|other| other.change != LineChange::Removed && indent(other.text) <= indent(line.text));
        let named = outer.any(|other| EQUALS_ALL.is_match(other.text)) || EQUALS_ALL.is_match(self.code.heading(line));
        let last =
            lines[at + 1..].iter().find(|next| next.change != LineChange::Removed && !next.text.trim().is_empty());
        let ends = last.is_none_or(|next| indent(next.text) < indent(line.text));
        // A first check of identity stays honest: something compares after it.
        let near = &lines[at.saturating_sub(4)..lines.len().min(at + 5)];
        let replaces = near.iter().any(|other| other.hunk == line.hunk && other.change == LineChange::Removed);
        let code = |other: &&CodeLine<'_>| {
            other.change != LineChange::Removed && !other.text.trim().is_empty() && !self.is_comment(other)
        };
        let before = lines[..at].iter().rev().find(code);
        let first = before.is_some_and(|before| EQUALS_ALL.is_match(before.text));
        named && ends && (replaces || first && !self.is_same_type(at))
    }

    /// Whether a line compares with the type of its class, in languages in which the run with the base's tests judges such a new
    /// comparison.
    fn is_same_type(&self, at: usize) -> bool {
        let line = &self.code.lines[at];
        let name = SAME_TYPE.captures(line.text).and_then(|found| found.iter().skip(1).flatten().next());
        let Some(name) = name.map(|name| name.as_str()).filter(|_| self.code.language.has_stand_in()) else {
            return false;
        };
        let outer = self.before(at).filter(|other| indent(other.text) < indent(line.text)).map(|other| other.text);
        let mut classes = outer.chain([self.code.heading(line)]).filter_map(|text| CLASS.captures(text));
        ["self", "getClass"].contains(&name) || classes.next().is_some_and(|class| &class[1] == name)
    }

    /// Whether an added line lets a number print as a fixed text, which doctests compare.
    fn prints_another_number(&self, at: usize) -> bool {
        let line = &self.code.lines[at];
        let is_class = |text: &str| NUMBER_CLASS.is_match(text);
        let in_class = || self.before(at).any(|other| is_class(other.text)) || is_class(self.code.heading(line));
        FIXED_TEXT.is_match(line.text) && PRINTS.is_match(self.function(at)) && in_class()
    }

    /// Returns the lines before a line in its hunk, nearest first, without removed and blank lines.
    fn before(&self, at: usize) -> impl Iterator<Item = &'a CodeLine<'a>> {
        let hunk = self.code.lines[at].hunk;
        let lines = self.code.lines[..at].iter().rev().take_while(move |line| line.hunk == hunk);
        lines.filter(|line| line.change != LineChange::Removed && !line.text.trim().is_empty())
    }

    /// Returns the text of the line that starts the enclosing function.
    fn function(&self, at: usize) -> &'a str {
        let heading = || self.code.heading(&self.code.lines[at]);
        self.around(at).function.map_or_else(heading, |outer| self.code.lines[outer].text)
    }

    fn around(&self, at: usize) -> EnclosingCode {
        self.enclosing.get_or_init(|| EnclosingCode::of(self.code))[at]
    }

    /// Whether a line runs without being called, because it is in an exit handler, a constructor, or an initializer.
    fn runs_by_itself(&self, at: usize) -> bool {
        let (language, line) = (self.code.language, &self.code.lines[at]);
        let function = self.function(at);
        let named = language.function_name(function).is_some_and(|name| self.registered.contains(name.as_str()));
        let around = self.before(at).take(REACH);
        // Its first line has less indentation, or is an attribute of the function around it.
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
        let line = &self.code.lines[at];
        let name = self.code.language.function_name(self.function(at));
        let is_guarded = self.around(at).main.is_some_and(|level| level < indent(line.text));
        name.is_some_and(|name| MAIN.is_match(&name)) || line.text.contains("__main__") || is_guarded
    }

    /// Whether a line runs in the child process of a fork, according to the surrounding lines.
    fn is_of_child(&self, at: usize) -> bool {
        let line = &self.code.lines[at];
        FORKS.is_match(line.text)
            || FORKS.is_match(self.function(at))
            || self.before(at).take(REACH).any(|other| FORKS.is_match(other.text))
    }

    /// Whether the file already contained a line before the change that satisfies `same`.
    fn was_there(&self, known: &OnceCell<bool>, same: impl Fn(&str) -> bool) -> bool {
        let mut before = self.code.lines.iter().filter(|line| line.change != LineChange::Added);
        *known.get_or_init(|| before.any(|line| same(line.text)))
    }
}
