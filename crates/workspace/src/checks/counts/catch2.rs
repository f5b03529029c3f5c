//! Catch2.

use super::runs::{Runner, TestOutcome, TestRun, closings, incomplete_by, name_by};
use super::{number, pattern, tally};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "Catch2",
    versions: "2.13.10",
    fixtures: "catch2",
    reads: "below the rule `All tests passed (… in 2 test cases)` or `test cases: 4 | 2 passed | 1 failed`; the headings of \
            failed test cases. Tests that failed as expected count as skipped. A fatal error condition makes it incomplete.",
    read,
};

pattern!(
    CLOSE,
    r"^={79}\n(?:All tests passed \([^)\n]* in (\d+) test cases?\)|(No tests ran)|test cases: +\d+ \|(.+)\nassertions: .*)$"
);
pattern!(NAME, r"^-{79}\n(\S.*)\n(?:  .*\n)*-{79}\n\S+:\d+\n\.{79}\n\n\S+:\d+: FAILED:$");
pattern!(BROKEN, r"^due to a fatal error condition:$");

fn read(output: &str) -> Vec<TestRun> {
    let runs = closings(output, &CLOSE, |found| {
        let Some(items) = found.get(3) else {
            return Some(TestCounts { passing: number(found, 1), ..TestCounts::default() });
        };
        Some(tally(items.as_str().split('|'), |word| match word {
            "passed" => Some(TestOutcome::Passing),
            "failed" => Some(TestOutcome::Failing),
            "skipped" | "failed as expected" => Some(TestOutcome::Skipped),
            _ => None,
        }))
    });
    incomplete_by(name_by(runs, output, &NAME), output, &BROKEN)
}
