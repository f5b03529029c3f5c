//! GoogleTest.

use super::runs::{Runner, TestRun, between, name_by};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "GoogleTest",
    versions: "1.12.1",
    fixtures: "gtest",
    reads: "from `[==========] Running 6 tests` to `6 tests from 2 test suites ran.` with the lines `[  PASSED  ]`, \
            `[  SKIPPED ]` and `[  FAILED  ]` below; disabled tests count as skipped.",
    read,
};

pattern!(START, r"^\[=+\] Running \d+ tests? from ");
pattern!(
    CLOSE,
    r"^\[=+\] (\d+) tests? from \d+ test (?:suite|case)s? ran\..*\n\[  PASSED  \] (\d+) tests?\.(?:\n\[  SKIPPED \] (\d+) tests?(?:\.|, listed below:(?:\n\[  SKIPPED \] .*)*))?(?:\n\[  FAILED  \] (\d+) tests?, listed below:)?"
);
pattern!(DISABLED, r"^  YOU HAVE (\d+) DISABLED TESTS?$");
pattern!(NAME, r"^\[  FAILED  \] (\S+\.[^\s,]+)(?:,.*| \(\d+ ms\))?$");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| {
        let [total, passing, skipped] = [1, 2, 3].map(|group| number(found, group));
        // With `--gtest_brief=1`, no list of failed tests follows.
        let failing = found.get(4).map_or(total.saturating_sub(passing).saturating_sub(skipped), |_| number(found, 4));
        Some(TestCounts { passing, failing, skipped })
    });
    let ends: Vec<usize> = runs.iter().skip(1).map(|run| run.span.start).chain([output.len()]).collect();
    for (run, to) in runs.iter_mut().zip(ends) {
        if let (Some(counts), Some(found)) = (&mut run.counts, DISABLED.captures(&output[run.span.end..to])) {
            counts.skipped = counts.skipped.saturating_add(number(&found, 1));
        }
    }
    name_by(runs, output, &NAME)
}
