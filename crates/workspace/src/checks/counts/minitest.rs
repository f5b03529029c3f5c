//! minitest, alone and under Rails.

use super::runs::{Runner, TestRun, between, name_by};
use super::{number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "minitest",
    versions: "5.17.0",
    fixtures: "minitest",
    reads: "`6 runs, 3 assertions, 2 failures, 1 errors, 1 skips` after `# Running:`; the numbered failures and errors.",
    read,
};

pattern!(START, r"^# Running(?: tests)?:$");
pattern!(CLOSE, r"^(\d+) (?:runs|tests), \d+ assertions, (\d+) failures, (\d+) errors, (\d+) skips$");
pattern!(NAME, r"^ +\d+\) (?:Failure|Error):\n(\S.*?)(?: \[.*\])?:$");

fn read(output: &str) -> Vec<TestRun> {
    let runs = between(output, &START, &CLOSE, |found| {
        let failing = number(found, 2).saturating_add(number(found, 3));
        Some(of_total(number(found, 1), failing, number(found, 4)))
    });
    name_by(runs, output, &NAME)
}
