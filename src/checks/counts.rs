//! Parses test counts from the output of known runners, JUnit files, or a configured pattern.
//!
//! Only complete summary lines of a runner count, not sentences that mention "3 passed". Several summaries in one
//! output are added.

mod compiled;
mod javascript;
mod junit;
mod scripted;

use std::sync::LazyLock;

use regex::Regex;

use crate::domain::checks::criteria::compile;
use crate::domain::model::task::TestCounts;

pub use junit::read_junit;

/// Escape sequences: colours and cursor moves (CSI), titles and links (OSC), character sets.
static ESCAPES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[@-Z\\^_=>78])")
        .expect("constant pattern")
});

/// Parses the counts of every known runner in `output`; `None` if there is no summary.
pub fn read(output: &str) -> Option<TestCounts> {
    let plain = strip_escapes(output);
    let readers = [
        compiled::cargo,
        compiled::nextest,
        compiled::go,
        compiled::ctest,
        compiled::surefire,
        scripted::pytest,
        scripted::prove,
        javascript::jest,
        javascript::vitest,
        javascript::mocha,
        javascript::node,
    ];
    // Plain TAP comes last: several of the above can print it besides their own summary.
    sum(readers.iter().filter_map(|reader| reader(&plain))).or_else(|| scripted::tap(&plain))
}

/// Parses counts by a pattern with the optional named groups `passed`, `failed` and `skipped`; all matches are added.
/// `None` if it is invalid or does not match.
pub fn read_pattern(pattern: &str, output: &str) -> Option<TestCounts> {
    let pattern = compile(pattern).ok()?;
    let plain = strip_escapes(output);
    sum(pattern.captures_iter(&plain).map(|found| {
        let number = |name: &str| found.name(name).and_then(|group| group.as_str().trim().parse().ok()).unwrap_or(0);
        TestCounts { passing: number("passed"), failing: number("failed"), skipped: number("skipped") }
    }))
}

/// Removes terminal escapes and normalises line ends to `
/// `.
pub fn strip_escapes(text: &str) -> String {
    ESCAPES.replace_all(text, "").replace("\r\n", "\n")
}

fn sum(counts: impl Iterator<Item = TestCounts>) -> Option<TestCounts> {
    counts.reduce(saturating_plus)
}

fn saturating_plus(a: TestCounts, b: TestCounts) -> TestCounts {
    TestCounts {
        passing: a.passing.saturating_add(b.passing),
        failing: a.failing.saturating_add(b.failing),
        skipped: a.skipped.saturating_add(b.skipped),
    }
}

/// Adds up items like `3 passed` in a summary by what `place` says of their word; `None` of it ignores the item.
fn tally<'t>(items: impl Iterator<Item = &'t str>, place: impl Fn(&str) -> Option<Outcome>) -> TestCounts {
    let mut counts = TestCounts::default();
    for item in items {
        let Some((number, word)) = item.trim().split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        let field = match place(word.trim()) {
            Some(Outcome::Passing) => &mut counts.passing,
            Some(Outcome::Failing) => &mut counts.failing,
            Some(Outcome::Skipped) => &mut counts.skipped,
            None => continue,
        };
        *field = field.saturating_add(number);
    }
    counts
}

/// Count that a runner's word belongs to.
#[derive(Clone, Copy)]
enum Outcome {
    Passing,
    Failing,
    Skipped,
}

/// Returns the number in a group of a match; 0 if missing or too large.
fn number(found: &regex::Captures<'_>, group: usize) -> u64 {
    found.get(group).and_then(|text| text.as_str().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
