//! doctest for C++.

use super::runs::{TestRun, between, name_by};
use super::{Runner, number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "doctest",
    versions: "2.4.9",
    fixtures: "doctest",
    reads: "`[doctest] test cases: 3 | 2 passed | 1 failed | 1 skipped`; `TEST CASE:` headings. A crash, which makes the \
            rest skipped, makes it incomplete.",
    read,
};

pattern!(START, r"^\[doctest\] doctest version is ");
pattern!(CLOSE, r"^\[doctest\] test cases: +\d+ +\| +(\d+) passed \| +(\d+) failed \| +(\d+) skipped$");
pattern!(NAME, r"^={79}\n\S+:\d+:\n(?:TEST SUITE: .*\n)?TEST CASE:  (.+)$");
pattern!(BROKEN, r"FATAL ERROR: test case CRASHED: ");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| {
        Some(TestCounts { passing: number(found, 1), failing: number(found, 2), skipped: number(found, 3) })
    });
    for run in &mut runs {
        run.incomplete |= BROKEN.is_match(&output[run.span.clone()]);
    }
    name_by(runs, output, &NAME)
}
