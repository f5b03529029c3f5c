//! Parses test counts from the output of known runners, their JSON reports, JUnit files, or a configured pattern.
//!
//! Only complete closing lines of a runner count, not sentences that mention "3 passed". Several runs in one output are
//! added; a run inside another one (GoogleTest in CTest, TAP in prove) belongs to the outer one. A run without its
//! closing line makes the result incomplete, and is cut unless its end was reported. Output that no runner is known to
//! print is not understood. `docs/reference/runners.md` lists the runners.

mod ava;
mod bats;
mod bazel;
mod bun;
mod cargo;
mod catch2;
mod crash;
mod ctest;
mod cypress;
mod deno;
mod doctest;
mod dotnet;
mod exunit;
mod go;
mod gradle;
mod gtest;
mod jest;
mod json;
mod junit;
mod minitest;
mod mocha;
mod nextest;
mod node;
mod pest;
mod phpunit;
mod playwright;
mod prefixes;
mod prove;
mod pytest;
mod rspec;
mod runs;
mod sbt;
mod surefire;
mod swift;
mod table;
mod tap;
mod testng;
mod unittest;
mod vitest;

use std::cmp::Reverse;
use std::sync::LazyLock;

use regex::Regex;

use crate::domain::checks::criteria::compile;
use crate::domain::model::task::{MAX_TEST_NAMES, TestCounts, TestResults};

pub use json::read_json;
pub use junit::read_junit;
use runs::{Runner, TestOutcome, TestRun};

/// Defines a constant pattern in which `^` and `$` match at line ends.
macro_rules! pattern {
    ($name:ident, $pattern:expr) => {
        static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| regex::Regex::new(concat!("(?m)", $pattern)).expect("constant pattern"));
    };
}
use pattern;

/// Maximum length of a test's name, in bytes.
const MAX_NAME: usize = 200;
/// Maximum number of prefixes before one line.
const MAX_PREFIXES: u8 = 2;

/// Runners with separate code. `table` has the runners that are read by patterns alone.
static RUNNERS: [Runner; 33] = [
    unittest::RUNNER,
    pytest::RUNNER,
    jest::RUNNER,
    vitest::RUNNER,
    mocha::RUNNER,
    node::RUNNER,
    ava::RUNNER,
    playwright::RUNNER,
    cypress::RUNNER,
    deno::RUNNER,
    bun::RUNNER,
    cargo::RUNNER,
    nextest::RUNNER,
    go::RUNNER,
    surefire::RUNNER,
    gradle::RUNNER,
    testng::RUNNER,
    sbt::RUNNER,
    ctest::RUNNER,
    gtest::RUNNER,
    catch2::RUNNER,
    doctest::RUNNER,
    rspec::RUNNER,
    minitest::RUNNER,
    phpunit::RUNNER,
    pest::RUNNER,
    dotnet::RUNNER,
    exunit::RUNNER,
    swift::RUNNER,
    bats::RUNNER,
    prove::RUNNER,
    tap::RUNNER,
    bazel::RUNNER,
];

/// Escape sequences: colors and cursor moves (CSI), titles and links (OSC), character sets.
static ESCAPES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[@-Z\\^_=>78])")
        .expect("constant pattern")
});

pattern!(BLANKS, r"[ \x08]+$");
// A summary of any runner, in words: `5 passed`, `5 tests, 0 failures`, `OK (5 tests)`, `Passed: 5`. Not an announcement,
// nor the packages that pnpm counts.
pattern!(
    SUMMARY,
    r"(?i)(?:^|[^\w.-])[1-9][0-9]*(?:/[0-9]+)? (?:\w+ )?(?:(?:passed|passing|passes|succeeded|success(?:es)?|ok)\b|(?:tests?|specs?|scenarios?|examples?|assertions?)\b.*(?:fail|error|pass|success|\bok\b))|(?:fail|error|pass|success|\bok\b).*\b[1-9][0-9]* (?:\w+ )?(?:tests?|specs?|scenarios?|examples?|assertions?)\b|\b(?:passed|passing|succeeded|success(?:es)?|tests?(?: run)?) *(?:=|: ) *[1-9]"
);
pattern!(
    ANNOUNCED,
    r"(?i)^(?:\W*(?:running|found|collect|executing|start|will|discover)|summary: [0-9]+ fails, [0-9]+ passes$)"
);

/// Parses the tests of every known runner in `output`. If a tool prefixes lines with the package, each package is
/// parsed separately.
pub fn read(output: &str) -> TestResults {
    let plain = strip_escapes(output).replace('\r', "\n");
    let plain = BLANKS.replace_all(&plain, "");
    let mut results = TestResults::default();
    match prefixes::without_times(&plain) {
        Some(untimed) => read_prefixed(&untimed, 0, &mut results),
        None => read_prefixed(&plain, 0, &mut results),
    }
    if results.counts.is_none() {
        results = json::printed(&plain).unwrap_or(results);
    }
    results.failing = bounded(results.failing);
    results
}

/// Adds the tests in an output whose escape sequences were removed. Lines with a prefix are parsed apart if they have a
/// run of a known runner without it.
fn read_prefixed(plain: &str, depth: u8, results: &mut TestResults) {
    let runs = runs_in(plain);
    // Output of a known runner has its own prefixes, such as CTest's.
    let outside = outside_of(&runs, plain);
    let mut prefixes = Vec::new();
    for (prefix, text) in prefixes::groups(&outside) {
        let mut inner = TestResults::default();
        if depth < MAX_PREFIXES {
            read_prefixed(&text, depth + 1, &mut inner);
        }
        if inner.counts.is_some() || inner.cut {
            prefixes.push(prefix);
            *results = std::mem::take(results).plus(inner);
        }
    }
    if prefixes.is_empty() {
        add_runs(runs, plain, results);
    } else {
        let others = prefixes::without(plain, &prefixes);
        add_runs(runs_in(&others), &others, results);
    }
}

fn runs_in(plain: &str) -> Vec<TestRun> {
    let of =
        |runner: &'static Runner| (runner.read)(plain).into_iter().map(|run| TestRun { runner: runner.name, ..run });
    RUNNERS.iter().flat_map(of).chain(table::read(plain)).collect()
}

/// Returns the text outside of the runs that have a closing line. A run of one byte is the place of its end, not a text.
fn outside_of(runs: &[TestRun], plain: &str) -> String {
    let mut spans: Vec<_> =
        runs.iter().filter(|run| run.counts.is_some() && run.span.len() > 1).map(|run| run.span.clone()).collect();
    spans.sort_by_key(|span| span.start);
    let (mut text, mut from) = (String::new(), 0);
    for span in spans.into_iter().chain(std::iter::once(plain.len()..plain.len())) {
        text.push_str(plain.get(from..span.start).unwrap_or_default());
        from = from.max(span.end);
    }
    text
}

/// Adds the runs in an output whose escape sequences and prefixes were removed.
fn add_runs(mut runs: Vec<TestRun>, plain: &str, results: &mut TestResults) {
    let last = runs.iter().map(|run| run.span.end).max().unwrap_or(0);
    runs.extend(crash::unfinished(plain, last).map(TestRun::cut));
    runs.sort_by_key(|run| (run.span.start, Reverse(run.span.end)));
    let (mut outer, mut read) = (0..0, Vec::new());
    for run in runs {
        if run.span.end <= outer.end && run.span != outer {
            continue;
        }
        outer = run.span.clone();
        read.push(run.span);
        results.counts = [results.counts, run.counts].into_iter().flatten().reduce(TestCounts::plus);
        results.incomplete |= run.incomplete;
        results.cut |= run.cut;
        if run.counts.is_some_and(|counts| counts.passing + counts.failing > 0) {
            results.runners.insert(run.runner.to_owned());
        }
        if run.cut || run.counts.is_some_and(|counts| counts.failing > 0) {
            results.objectors.insert(run.runner.to_owned());
        }
        results.extra = results.extra.saturating_add(run.extra);
        // Otherwise, the names belong to an inner run, or to tests that passed when they ran again.
        if run.incomplete || run.counts.is_none_or(|counts| counts.failing > 0) {
            results.failing.extend(run.failing);
        }
    }
    results.unread |= SUMMARY.find_iter(plain).any(|found| {
        let at = found.start() + usize::from(found.as_str().starts_with('\n'));
        let line = plain[..at].rfind('\n').map_or(0, |end| end + 1);
        let outside = read.iter().all(|span| found.end() <= span.start || found.start() >= span.end);
        outside && !ANNOUNCED.is_match(plain[line..].lines().next().unwrap_or_default())
    });
}

/// Parses counts by a pattern with the optional named groups `passed`, `failed` and `skipped`; all matches are added
/// up. `None` if the pattern is invalid or does not match.
pub fn read_pattern(pattern: &str, output: &str) -> Option<TestCounts> {
    let pattern = compile(pattern).ok()?;
    let plain = strip_escapes(output);
    let counts = pattern.captures_iter(&plain).map(|found| {
        let number = |name: &str| found.name(name).and_then(|group| group.as_str().trim().parse().ok()).unwrap_or(0);
        TestCounts { passing: number("passed"), failing: number("failed"), skipped: number("skipped") }
    });
    counts.reduce(TestCounts::plus)
}

/// Removes terminal escapes and normalizes line ends.
pub fn strip_escapes(text: &str) -> String {
    ESCAPES.replace_all(text, "").replace("\r\n", "\n")
}

/// Returns distinct names, at most 50 of at most 200 bytes, each on one line.
fn bounded(names: Vec<String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        let name = name[..name.floor_char_boundary(MAX_NAME)].split_whitespace().collect::<Vec<_>>().join(" ");
        if distinct.len() < MAX_TEST_NAMES && !name.is_empty() && !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// Returns the counts of a runner whose total includes failed and skipped tests. One test can have several failures.
fn of_total(total: u64, failing: u64, skipped: u64) -> TestCounts {
    let failing = if total == 0 { failing } else { failing.min(total) };
    TestCounts { passing: total.saturating_sub(failing).saturating_sub(skipped), failing, skipped }
}

/// Adds up items like `3 passed` in a summary. `place` returns the count that a word belongs to, or `None` to ignore
/// the item.
fn tally<'t>(items: impl Iterator<Item = &'t str>, place: impl Fn(&str) -> Option<TestOutcome>) -> TestCounts {
    let mut counts = TestCounts::default();
    for item in items {
        let Some((number, word)) = item.trim().split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        let field = match place(word.trim()) {
            Some(TestOutcome::Passing) => &mut counts.passing,
            Some(TestOutcome::Failing) => &mut counts.failing,
            Some(TestOutcome::Skipped) => &mut counts.skipped,
            None => continue,
        };
        *field = field.saturating_add(number);
    }
    counts
}

/// Returns the number in a group of a match; 0 if it is missing or too large.
fn number(found: &regex::Captures<'_>, group: usize) -> u64 {
    found.get(group).and_then(|text| text.as_str().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
