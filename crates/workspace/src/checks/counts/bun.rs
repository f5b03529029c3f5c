//! `bun test`.

use super::runs::{Runner, TestRun, between, name_by};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "bun test",
    versions: "1.4.5",
    fixtures: "bun",
    reads: "the closing block from ` 2 pass` to `Ran 5 tests across 1 file.`; `(fail)` lines. Todo counts as skipped. An \
            error between tests counts as failing and makes it incomplete.",
    read,
};

pattern!(START, r"^bun test v\d");
pattern!(
    CLOSE,
    r"^ (\d+) pass\n(?: (\d+) skip\n)?(?: (\d+) todo\n)?(?: \d+ filtered out\n)?(?: (\d+) fail\n)?(?: (\d+) errors?\n)?(?: .*\n)*?Ran \d+ tests? across \d+ files?\."
);
pattern!(NAME, r"^(?:\(fail\)|✗) (.+?)(?: \[[\d.]+m?s\])?$");
pattern!(BROKEN, r"^ \d+ errors?$");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| {
        let skipped = number(found, 2).saturating_add(number(found, 3));
        Some(TestCounts { passing: number(found, 1), failing: number(found, 4), skipped })
    });
    for run in &mut runs {
        run.incomplete |= BROKEN.is_match(&output[run.span.clone()]);
    }
    name_by(runs, output, &NAME)
}
