//! TestNG without a build tool.

use super::runs::{Runner, TestRun, between, name_by};
use super::{number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "TestNG",
    versions: "6.9.12",
    fixtures: "testng",
    reads: "`Total tests run: 4, Failures: 1, Skips: 1` between its rules; names only if TestNG prints them \
            (`FAILED: …`). A failed configuration method makes it incomplete.",
    read,
};

pattern!(START, r"^\[TestNG\] Running:$");
pattern!(
    CLOSE,
    r"^={47}\n.*\nTotal tests run: (\d+), (?:Passes: \d+, )?Failures: (\d+), Skips: (\d+)\n(?:Configuration Failures: \d+, Skips: \d+\n)?={47}$"
);
pattern!(BROKEN, r"^Configuration Failures: [1-9]");
pattern!(NAME, r"^FAILED: (\S+)$");

fn read(output: &str) -> Vec<TestRun> {
    let counts = |found: &regex::Captures<'_>| Some(of_total(number(found, 1), number(found, 2), number(found, 3)));
    let mut runs = between(output, &START, &CLOSE, counts);
    for run in &mut runs {
        run.incomplete |= BROKEN.is_match(&output[run.span.clone()]);
    }
    name_by(runs, output, &NAME)
}
