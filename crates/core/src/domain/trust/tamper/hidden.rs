//! Assertions that a diff turns into text, by a comment or a string around them, and tests of Python that it takes from the runner.

use std::cell::LazyCell;
use std::collections::HashSet;

use super::blocks::{TestFile, TestLine, indent};
use super::diff::LineChange;
use super::language::Language;
use super::summary::DiffSummary;
use super::{Findings, TamperKind};

/// Maximum number of lines that are read before and after a line.
const REACH: usize = 40;

// Begins a comment of C that does not end on this line; not in a string.
pattern!(OPENS_COMMENT, r#"^[^\x22'`]*/\*(?:[^*]|\*+[^*/])*\**$"#);
// A string of Python begins or ends.
pattern!(QUOTES, r#"^\s*[rRuUbBfF]{0,2}(?:\x22{3}|'{3})\s*$"#);
// A text of a shell that nothing reads begins.
pattern!(OPENS_TEXT, r#"^\s*:\s*<<-?\s*[\\\x22']?(\w+)[\x22']?\s*$"#);

/// Searches one file for tests and assertions that are no longer code.
pub(super) fn scan(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    if tests.file.is_deleted() || tests.file.is_new() {
        return;
    }
    texts(tests, diff, findings);
    if tests.language == Language::Python {
        python(tests, findings);
    }
}

/// Returns the lines of a hunk after line `at` as they are after the change.
fn after<'a>(tests: &'a TestFile<'a>, at: usize) -> impl Iterator<Item = &'a TestLine<'a>> {
    let hunk = tests.lines[at].hunk;
    let rest = tests.lines[at + 1..].iter().take_while(move |other| other.hunk == hunk);
    rest.filter(|other| other.change != LineChange::Removed)
}

/// Returns the end of the text that a line begins, which later lines have to contain; `None` if it begins none.
fn end_of_text(language: Language, text: &str) -> Option<String> {
    match language {
        Language::Python => {
            QUOTES.is_match(text).then(|| text.trim().trim_start_matches(char::is_alphabetic).to_owned())
        }
        Language::Ruby => text.starts_with("=begin").then(|| "=end".to_owned()),
        Language::Shell => OPENS_TEXT.captures(text).map(|found| found[1].to_owned()),
        Language::JavaScript | Language::Rust | Language::Go | Language::Jvm | Language::Cpp | Language::Php => {
            OPENS_COMMENT.is_match(text).then(|| "*/".to_owned())
        }
    }
}

/// Reports existing assertions that now stand in a comment or a string of several lines.
fn texts(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    // Line up to which everything is in the text that was seen last.
    let mut until = 0;
    // Removed lines that were text.
    let texts = LazyCell::new(|| -> HashSet<&str> {
        let removed = tests.lines.iter().filter(|old| old.change == LineChange::Removed && old.in_text);
        removed.map(|old| old.text.trim()).collect()
    });
    for (at, line) in tests.lines.iter().enumerate() {
        if line.change != LineChange::Added || at < until {
            continue;
        }
        let Some(end) = end_of_text(tests.language, line.text) else { continue };
        let length = after(tests, at).position(|other| other.text.contains(&end));
        let inside = || after(tests, at).take(length.unwrap_or(usize::MAX));
        let last = tests.lines[at + 1..].iter().position(|other| {
            other.change != LineChange::Removed && (other.hunk != line.hunk || other.text.contains(&end))
        });
        until = last.map_or(tests.lines.len(), |last| at + last + 2);
        // In a file that was written anew, text stays text.
        let was_text = |text: &str| texts.contains(text.trim());
        let lost = inside().find(|other| {
            let old = other.change == LineChange::Context || diff.had(other.text) && !was_text(other.text);
            old && tests.language.asserts(other.text) && tests.is_about_tests(other)
        });
        if let Some(lost) = lost {
            let evidence = format!("is a text now: {}", lost.text.trim());
            findings.add(tests.file.path(), Some(line.number), TamperKind::AssertionRemoved, &evidence);
        }
    }
}

/// Reports tests of Python that are removed after their definition, and tests that became asynchronous but wait for nothing,
/// which a runner skips.
fn python(tests: &TestFile<'_>, findings: &mut Findings) {
    pattern!(TAKEN, r"^(?:del\s+[tT]est\w+|test\w*\.__test__\s*=\s*False)\b");
    pattern!(ASYNC_TEST, r"^\s*async\s+(def\s+test\w*)");
    pattern!(WAITS, r"\bawait\b|\basync\s+(?:with|for)\b|\basyncio\b|\banyio\b|\btrio\b");
    let path = tests.file.path();
    for (at, line) in tests.lines.iter().enumerate().filter(|(_, line)| line.change == LineChange::Added) {
        if TAKEN.is_match(line.text) {
            let evidence = format!("the runner does not find it: {}", line.text.trim());
            findings.add(path, Some(line.number), TamperKind::TestDeleted, &evidence);
        }
        let Some(test) = ASYNC_TEST.captures(line.text).map(|found| found[1].to_owned()) else { continue };
        let was_plain = tests.lines[at.saturating_sub(REACH)..at].iter().any(|old| {
            old.change == LineChange::Removed && old.hunk == line.hunk && old.text.trim_start().starts_with(&test)
        });
        let level = indent(line.text);
        let body = || {
            after(tests, at).take(REACH).take_while(|other| other.text.trim().is_empty() || indent(other.text) > level)
        };
        let asserts = body().any(|other| tests.language.asserts(other.text));
        let before = tests.lines[at.saturating_sub(3)..at].iter();
        if was_plain && asserts && !before.chain(body()).any(|other| WAITS.is_match(other.text)) {
            let evidence = format!("became asynchronous and waits for nothing: {}", line.text.trim());
            findings.add(path, Some(line.number), TamperKind::EarlyExit, &evidence);
        }
    }
}
