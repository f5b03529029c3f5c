//! `dotnet test`.

use super::runs::{Runner, TestRun, closings, incomplete_by, name_by};
use super::{number, of_total, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "dotnet test (xUnit, NUnit, MSTest)",
    versions: "",
    fixtures: "dotnet",
    reads: "`Failed!  - Failed: 1, Passed: 3, Skipped: 1, Total: 5, …` of each assembly, else `Total tests: 5` with the lines \
            below, else `Test summary: total: 5, …`; `Failed …` lines. An aborted run is incomplete.",
    read,
};

pattern!(
    LINE,
    r"^(?:Passed|Failed|Skipped)! +- Failed: +(\d+), Passed: +(\d+), Skipped: +(\d+), Total: +\d+, Duration: .+$"
);
pattern!(
    TOTAL,
    r"^Total tests: (\d+)(?:\n +Passed: (\d+))?(?:\n +Failed: (\d+))?(?:\n +Skipped: (\d+))?(?:\n Total time: .+)?$"
);
pattern!(
    SUMMARY,
    r"^(?:Test summary: total: (\d+), failed: (\d+), succeeded: \d+, skipped: (\d+), duration: .+|Test run summary: .+\n  total: (\d+)(?:\n  error: \d+)?\n  failed: (\d+)\n  succeeded: \d+\n  skipped: (\d+).*)$"
);
pattern!(NAME, r"^(?:  Failed|failed) (\S.*?) (?:\[.*\]|\(\d.*\))$");
pattern!(BROKEN, r"^(?:Test Run Aborted\.|The active test run was aborted\.)");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = closings(output, &LINE, |found| {
        Some(TestCounts { passing: number(found, 2), failing: number(found, 1), skipped: number(found, 3) })
    });
    if runs.is_empty() {
        runs = closings(output, &TOTAL, |found| Some(of_total(number(found, 1), number(found, 3), number(found, 4))));
    }
    if runs.is_empty() {
        runs = closings(output, &SUMMARY, |found| {
            let either = |a: usize, b: usize| number(found, a).saturating_add(number(found, b));
            Some(of_total(either(1, 4), either(2, 5), either(3, 6)))
        });
    }
    if runs.is_empty() {
        return BROKEN.find(output).map(|line| TestRun::cut(line.range())).into_iter().collect();
    }
    incomplete_by(name_by(runs, output, &NAME), output, &BROKEN)
}
