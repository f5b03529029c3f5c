//! Examples in documentation that test runners execute: assertions in Rust comments, and Python sessions with their output.

use super::blocks::{TestFile, TestLine};
use super::code_tokens::Difference;
use super::diff::LineChange;
use super::language::Language;
use super::matcher::compare;
use super::nearby::near;
use super::summary::DiffSummary;
use super::versions::AssertionChange;
use super::{Findings, TamperKind};

/// Minimum similarity of two versions of an assertion, 0..1.
const ALIKE: f64 = 0.35;

/// Reports examples in the documentation of a file whose expected result was changed or weakened.
pub(super) fn scan(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    if tests.file.is_deleted() || tests.file.is_new() {
        return;
    }
    match tests.language {
        Language::Rust => assertions(tests, diff, findings),
        Language::Python => outputs(tests, diff, findings),
        _ => {}
    }
}

/// Returns the code in a line of Rust documentation.
fn example(text: &str) -> Option<&str> {
    let text = text.trim_start();
    text.strip_prefix("///").or_else(|| text.strip_prefix("//!")).map(str::trim)
}

fn assertions(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let changed = |line: &TestLine<'_>| line.change != LineChange::Context;
    for group in tests.lines.chunk_by(|a, b| a.hunk == b.hunk && changed(a) && changed(b)) {
        let of = |change| {
            let lines = group.iter().filter(move |line| line.change == change);
            lines.filter_map(|line| Some((line, example(line.text)?))).filter(|(_, code)| Language::Rust.asserts(code))
        };
        let added: Vec<_> = of(LineChange::Added).collect();
        let removed: Vec<_> = of(LineChange::Removed).filter(|(old, _)| !diff.has(old.text)).collect();
        for (at, (old, code)) in removed.iter().enumerate() {
            let alike = |new: &str| Difference::between(code, new).similarity;
            let near = near(&added, at, removed.len()).iter();
            let new = near.map(|(line, new)| (line, new, alike(new))).max_by(|a, b| a.2.total_cmp(&b.2));
            let Some((line, new, _)) = new.filter(|(line, _, alike)| *alike >= ALIKE && !diff.had(line.text)) else {
                continue;
            };
            let (kind, weak) = match compare(Language::Rust, code, new) {
                AssertionChange::Wider => (TamperKind::AssertionWeakened, false),
                AssertionChange::Looser => (TamperKind::AssertionWeakened, diff.changes_code),
                AssertionChange::Expectation => (TamperKind::ExpectationChanged, diff.changes_code),
                AssertionChange::Unnamed => (TamperKind::ExpectationChanged, true),
                AssertionChange::Other => continue,
            };
            let evidence = format!("{} -> {}", old.text.trim(), line.text.trim());
            findings.add_graded(tests.file.path(), Some(line.number), kind, &evidence, weak);
        }
    }
}

/// Reports changed output of a Python session. The output begins after a line with a prompt, and ends at a blank line, at the
/// next prompt, or at the end of the text.
fn outputs(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let output = |hidden: LineChange, changed: LineChange| {
        let (mut after, mut hunk, mut found) = (false, 0, Vec::new());
        for line in tests.lines.iter().filter(|line| line.change != hidden) {
            let text = line.text.trim();
            after &= line.hunk == hunk;
            hunk = line.hunk;
            if text.starts_with(">>>") || after && text.starts_with("...") {
                after = true;
            } else if text.is_empty() || text.starts_with("\"\"\"") || text.starts_with("'''") {
                after = false;
            } else if after && line.change == changed {
                found.push(line);
            }
        }
        found
    };
    let (old, new) = (output(LineChange::Added, LineChange::Removed), output(LineChange::Removed, LineChange::Added));
    for line in old.iter().filter(|line| !diff.has(line.text)) {
        let first = new.partition_point(|new| (new.hunk, new.number.saturating_add(3)) < (line.hunk, line.number));
        let near = |new: &&&TestLine<'_>| new.hunk == line.hunk && new.number.abs_diff(line.number) <= 3;
        if let Some(new) = new.get(first).filter(|new| near(new)).filter(|new| !diff.had(new.text)) {
            let evidence = format!("{} -> {}", line.text.trim(), new.text.trim());
            let kind = TamperKind::ExpectationChanged;
            findings.add_graded(tests.file.path(), Some(new.number), kind, &evidence, diff.changes_code);
        }
    }
}
