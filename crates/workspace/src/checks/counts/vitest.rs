//! Vitest.

use super::jest::place;
use super::runs::{TestRun, between, name_by};
use super::{Runner, pattern, tally};

pub(super) const RUNNER: Runner = Runner {
    name: "Vitest",
    versions: "4.1.12",
    fixtures: "vitest",
    reads: "`Test Files …` and `Tests  1 failed | 2 passed | 1 skipped (4)` after ` RUN `; `FAIL` headings. A failed \
            suite makes it incomplete. Todo counts as skipped.",
    read,
};

pattern!(START, r"^ *(?:RUN|DEV) +v\d");
pattern!(CLOSE, r"^ +Test Files  .+\n +Tests  (\d+ [a-z ]+(?: \| \d+ [a-z ]+)*|no tests)(?: \(\d+\))?$");
pattern!(BROKEN, r"^⎯+ (?:Failed Suites \d+|Unhandled Errors?) ⎯+$");
pattern!(NAME, r"^ FAIL  (.+ > .+)$");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| Some(tally(found[1].split(" | "), place)));
    for run in &mut runs {
        run.incomplete |= BROKEN.is_match(&output[run.span.clone()]);
    }
    name_by(runs, output, &NAME)
}
