//! JSON reports that runners print or write: jest, Vitest, mocha, Playwright, RSpec, pytest-json-report.

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{bounded, of_total};
use crate::domain::model::task::{MAX_TEST_NAMES, TestCounts, TestResults};

/// Maximum number of places in an output at which a report may start.
const MAX_BEGINNINGS: usize = 20;

/// Parts of all reports that are read. Each runner's report has only some of them.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JsonReport {
    num_total_tests: Option<u64>,
    num_passed_tests: u64,
    num_failed_tests: u64,
    num_runtime_error_test_suites: u64,
    was_interrupted: bool,
    test_results: Failing,
    stats: Option<Stats>,
    failures: Failing,
    summary: Option<Summary>,
    examples: Failing,
    tests: Failing,
}

/// Totals of mocha and of Playwright.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Stats {
    passes: Option<u64>,
    failures: u64,
    pending: u64,
    expected: Option<u64>,
    unexpected: Option<u64>,
    flaky: u64,
    skipped: u64,
}

/// Totals of RSpec and of pytest-json-report.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Summary {
    example_count: Option<u64>,
    failure_count: u64,
    pending_count: u64,
    errors_outside_of_examples_count: u64,
    collected: Option<u64>,
    passed: u64,
    failed: u64,
    error: u64,
    skipped: u64,
    xfailed: u64,
    xpassed: u64,
}

/// A test, or a file of jest with its tests.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JsonTest {
    #[serde(alias = "outcome")]
    status: String,
    #[serde(alias = "fullName", alias = "fullTitle", alias = "full_description", alias = "nodeid")]
    name: String,
    assertion_results: Option<Failing>,
}

/// Names of the failing tests of a list. The other tests are not kept, because an untrusted report may list millions.
#[derive(Default)]
struct Failing(Vec<String>);

impl<'de> Deserialize<'de> for Failing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FailingVisitor)
    }
}

struct FailingVisitor;

impl<'de> Visitor<'de> for FailingVisitor {
    type Value = Failing;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a list of tests")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tests: A) -> Result<Failing, A::Error> {
        let mut names = Vec::new();
        while let Some(test) = tests.next_element::<JsonTest>()? {
            // A list of failures states no status.
            let has_failed = matches!(test.status.as_str(), "failed" | "error" | "");
            let own = test
                .assertion_results
                .map_or_else(|| if has_failed { vec![test.name] } else { Vec::new() }, |failing| failing.0);
            let room = MAX_TEST_NAMES.saturating_sub(names.len());
            names.extend(own.into_iter().take(room));
        }
        Ok(Failing(names))
    }
}

/// Returns the tests of a runner's JSON report. `None` if the text is something else.
pub fn read_json(text: &str) -> Option<TestResults> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    // The fields could also be read from a list.
    text.starts_with('{').then(|| serde_json::from_str::<JsonReport>(text).ok())?.and_then(JsonReport::tests)
}

/// Returns the tests of the first report in an output.
pub(super) fn printed(output: &str) -> Option<TestResults> {
    let lines = std::iter::once(0).chain(output.match_indices('\n').map(|(at, _)| at + 1));
    let mut beginnings = lines.filter(|at| output[*at..].starts_with('{')).take(MAX_BEGINNINGS);
    beginnings.find_map(|at| {
        let mut reports = serde_json::Deserializer::from_str(&output[at..]).into_iter::<JsonReport>();
        reports.next()?.ok()?.tests()
    })
}

impl JsonReport {
    fn tests(self) -> Option<TestResults> {
        let (counts, failing, incomplete) = match (self.num_total_tests, self.stats, self.summary) {
            (Some(total), ..) => {
                let passing = self.num_passed_tests;
                let failing = self.num_failed_tests;
                let skipped = total.saturating_sub(passing).saturating_sub(failing);
                let incomplete = self.num_runtime_error_test_suites > 0 || self.was_interrupted;
                (TestCounts { passing, failing, skipped }, self.test_results, incomplete)
            }
            (_, Some(Stats { passes: Some(passing), failures, pending, .. }), _) => {
                (TestCounts { passing, failing: failures, skipped: pending }, self.failures, false)
            }
            (_, Some(Stats { expected: Some(expected), unexpected: Some(failing), flaky, skipped, .. }), _) => {
                (TestCounts { passing: expected.saturating_add(flaky), failing, skipped }, Failing::default(), false)
            }
            (
                ..,
                Some(Summary {
                    example_count: Some(total),
                    failure_count,
                    pending_count,
                    errors_outside_of_examples_count,
                    ..
                }),
            ) => {
                let counts = of_total(total, failure_count, pending_count);
                (counts, self.examples, errors_outside_of_examples_count > 0)
            }
            (.., Some(summary)) if summary.collected.is_some() => {
                let counts = TestCounts {
                    passing: summary.passed.saturating_add(summary.xpassed),
                    failing: summary.failed.saturating_add(summary.error),
                    skipped: summary.skipped.saturating_add(summary.xfailed),
                };
                (counts, self.tests, false)
            }
            _ => return None,
        };
        Some(TestResults { counts: Some(counts), failing: bounded(failing.0), incomplete, ..TestResults::default() })
    }
}
