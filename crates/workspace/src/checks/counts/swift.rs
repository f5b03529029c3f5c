//! `swift test`: XCTest and Swift Testing.

use std::collections::BTreeSet;

use super::runs::{Runner, TestRun, between};
use super::{number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "swift test (XCTest, Swift Testing)",
    versions: "",
    fixtures: "swift",
    reads: "`Executed 4 tests, with 1 test skipped and 2 failures …` of the outermost suite, `Test run with 4 tests failed …` \
            of Swift Testing; failing tests are the lines `Test Case '…' failed` and `Test … failed after`, because the \
            totals count assertions.",
    read,
};

pattern!(START, r"^Test Suite '(?:All tests|Selected tests)' started at ");
pattern!(
    CLOSE,
    r"^Test Suite '(?:All tests|Selected tests)' (?:passed|failed) at .+\n\s+ Executed (\d+) tests?, with (?:(\d+) tests? skipped and )?(\d+) failures? "
);
pattern!(NAME, r"^Test Case '(?:-\[)?(.+?)\]?' failed \(");
pattern!(START_NEW, r"^\S+ +Test run started\.$");
pattern!(CLOSE_NEW, r"^\S+ +Test run with (\d+) tests?(?: in \d+ suites?)? (?:passed|failed) after .+$");
pattern!(NAME_NEW, r#"^\S+ +Test ("[^"]*"|\S+\(.*?\)) failed after "#);
pattern!(SKIPPED_NEW, r"^\S+ +Test .+ skipped");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs =
        between(output, &START, &CLOSE, |found| Some(of_total(number(found, 1), number(found, 3), number(found, 2))));
    for run in &mut runs {
        name(run, output, &NAME);
    }
    let mut newer = between(output, &START_NEW, &CLOSE_NEW, |found| Some(of_total(number(found, 1), 0, 0)));
    for run in &mut newer {
        if let Some(counts) = &mut run.counts {
            let skipped = SKIPPED_NEW.find_iter(&output[run.span.clone()]).count() as u64;
            *counts = of_total(counts.passing, counts.failing, skipped);
        }
        name(run, output, &NAME_NEW);
    }
    runs.extend(newer);
    runs
}

/// Names the failing tests of a run and updates its counts.
fn name(run: &mut TestRun, output: &str, pattern: &regex::Regex) {
    let names: BTreeSet<&str> =
        pattern.captures_iter(&output[run.span.clone()]).filter_map(|found| Some(found.get(1)?.as_str())).collect();
    run.failing.extend(names.into_iter().map(str::to_owned));
    if let (Some(counts), false) = (&mut run.counts, run.failing.is_empty()) {
        let total = counts.passing.saturating_add(counts.failing).saturating_add(counts.skipped);
        *counts = of_total(total, run.failing.len() as u64, counts.skipped);
    }
}
