//! sbt, with any test framework.

use super::runs::{Runner, TestRun, closings, name_by};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "sbt (ScalaTest, munit, specs2, JUnit)",
    versions: "",
    fixtures: "sbt",
    reads: "`[error] Failed: Total 5, Failed 1, Errors 0, Passed 3, Ignored 1` of each project; from sbt 2.1 on the one \
            line in small letters; the suites below `Failed tests:`. Skipped, ignored, canceled and pending count as \
            skipped.",
    read,
};

pattern!(
    CLOSE,
    r"^\[(?:info|error|warn)\] (?:Passed|Failed|Error): Total \d+, Failed (\d+), Errors (\d+), Passed (\d+)((?:, [A-Z][a-z]+ \d+)*)$"
);
pattern!(
    NEWER,
    r"^\[(?:info|error|warn)\] (?:passed|failed|error): total \d+, failed (\d+), errors (\d+), passed (\d+)((?:, [a-z]+ \d+)*)$"
);
pattern!(ITEM, r"(?i:skipped|ignored|canceled|pending) (\d+)");
pattern!(NAME, r"^\[error\] \t([\w.$]+)$");

fn read(output: &str) -> Vec<TestRun> {
    let counts = |found: &regex::Captures<'_>| {
        let skipped = ITEM.captures_iter(&found[4]).map(|item| number(&item, 1)).fold(0, u64::saturating_add);
        let failing = number(found, 1).saturating_add(number(found, 2));
        Some(TestCounts { passing: number(found, 3), failing, skipped })
    };
    let newer = closings(output, &NEWER, counts);
    let runs = if newer.is_empty() { closings(output, &CLOSE, counts) } else { newer };
    name_by(runs, output, &NAME)
}
