//! doctest for C++.

use super::runs::{Runner, TestRun, add_names, between};
use super::{number, pattern};
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
pattern!(RULE, r"^={79}$");
pattern!(FAILED, r"ERROR: |marking it as failed|Marking it as failed|exceeded time limit");
pattern!(BROKEN, r"FATAL ERROR: test case CRASHED: ");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| {
        Some(TestCounts { passing: number(found, 1), failing: number(found, 2), skipped: number(found, 3) })
    });
    for run in &mut runs {
        run.incomplete |= BROKEN.is_match(&output[run.span.clone()]);
    }
    // With `-s`, passing test cases have a heading, too.
    add_names(
        &mut runs,
        NAME.captures_iter(output).filter_map(|found| {
            let name = found.get(1)?;
            let below = &output[name.end()..];
            let below = RULE.find(below).map_or(below, |rule| &below[..rule.start()]);
            FAILED.is_match(below).then(|| (name.start(), name.as_str().trim().to_owned()))
        }),
    );
    runs
}
