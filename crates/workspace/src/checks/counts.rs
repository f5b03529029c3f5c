//! Parses test counts from the output of known runners, JUnit files, or a configured pattern.
//!
//! Only complete closing lines of a runner count, not sentences that mention "3 passed". Several runs in one output are
//! added; a run inside another one (GoogleTest in CTest, TAP in prove) belongs to the outer one. A run without its
//! closing line makes the result incomplete. `docs/reference/runners.md` lists the runners.

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
mod tap;
mod testng;
mod unittest;
mod vitest;

use std::cmp::Reverse;
use std::sync::LazyLock;

use regex::Regex;

use crate::domain::checks::criteria::compile;
use crate::domain::model::task::{MAX_TEST_NAMES, TestCounts, TestResults};

pub use junit::read_junit;
use runs::TestRun;

/// Maximum length of a test's name, in bytes.
const MAX_NAME: usize = 200;

/// Test runner, or a family of runners with the same output. Its texts appear in `docs/reference/runners.md`, which a test
/// generates.
#[cfg_attr(not(test), allow(dead_code, reason = "only the generated page has the texts"))]
struct Runner {
    /// Names, for people.
    name: &'static str,
    /// Versions whose recorded output is a fixture; empty if the format is taken from documentation and issues.
    versions: &'static str,
    /// Prefix of the names of its fixtures.
    fixtures: &'static str,
    /// Description of the lines that are read, for people.
    reads: &'static str,
    /// Finds the runner's runs in an output whose escape sequences were removed.
    read: fn(&str) -> Vec<TestRun>,
}

/// All runners. To add one, write a file and add a row.
const RUNNERS: [Runner; 33] = [
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

/// Parses the tests of every known runner in `output`. If a tool prefixes lines with the package, each package is
/// parsed separately.
pub fn read(output: &str) -> TestResults {
    let mut results = TestResults::default();
    for block in prefixes::split(&strip_escapes(output)) {
        read_block(&block, &mut results);
    }
    results.failing = bounded(results.failing);
    results
}

/// Adds the tests in an output whose escape sequences and prefixes were removed.
fn read_block(plain: &str, results: &mut TestResults) {
    let mut runs: Vec<TestRun> = RUNNERS.iter().flat_map(|runner| (runner.read)(plain)).collect();
    let last = runs.iter().map(|run| run.span.end).max().unwrap_or(0);
    runs.extend(crash::unfinished(plain, last).map(TestRun::cut));
    runs.sort_by_key(|run| (run.span.start, Reverse(run.span.end)));
    let mut outer = 0..0;
    for run in runs {
        if run.span.end <= outer.end && run.span != outer {
            continue;
        }
        outer = run.span;
        results.counts = [results.counts, run.counts].into_iter().flatten().reduce(TestCounts::plus);
        results.incomplete |= run.incomplete;
        results.failing.extend(run.failing);
    }
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

/// Returns the counts of a runner whose total includes failed and skipped tests.
fn of_total(total: u64, failing: u64, skipped: u64) -> TestCounts {
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

/// Kind of count that a runner's word belongs to.
#[derive(Clone, Copy)]
enum TestOutcome {
    Passing,
    Failing,
    Skipped,
}

/// Returns the number in a group of a match; 0 if it is missing or too large.
fn number(found: &regex::Captures<'_>, group: usize) -> u64 {
    found.get(group).and_then(|text| text.as_str().parse().ok()).unwrap_or(0)
}

/// Defines a constant pattern in which `^` and `$` match at line ends.
macro_rules! pattern {
    ($name:ident, $pattern:expr) => {
        static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| regex::Regex::new(concat!("(?m)", $pattern)).expect("constant pattern"));
    };
}
use pattern;

#[cfg(test)]
mod tests;
