//! JUnit and TestNG by Gradle.

use super::runs::{Runner, TestRun, closings, name_by};
use super::{number, of_total, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "Gradle (JUnit, TestNG)",
    versions: "4.4.1 with JUnit 4; newer with JUnit 5 from documentation",
    fixtures: "gradle",
    reads: "with `testLogging` the lines `MixedTest > adds PASSED`, with the names of nested \
            classes and parameters between; where the build succeeded, tests that failed passed when they ran again, unless it ignores failures; else \
            `SUCCESS: Executed 7 tests in 1s` of the plugin Gradle Test Logger; else `7 tests completed, 2 failed, 1 skipped`, which \
            Gradle prints only where some failed, so name its JUnit files in `junit`. A test process that ended early \
            makes it incomplete.",
    read,
};

pattern!(CLOSE, r"^(\d+) tests? completed(?:, (\d+) failed)?(?:, (\d+) skipped)?$");
// The closing line of the Gradle Test Logger plugin.
pattern!(
    LOGGER,
    r"^(?:SUCCESS|FAILURE): Executed (\d+) tests? in [^(\n]+?(?: \((?:(\d+) failed)?(?:, )?(?:(\d+) skipped)?\))?$"
);
pattern!(EVENT, r"^(\S.* > .+) (PASSED|FAILED|SKIPPED)$");
pattern!(FAILED, r"^(?:(\S.* > .+)|  Test (.+)) FAILED(?: \([\d.]+m?s\))?$");
pattern!(SUCCESSFUL, r"^BUILD SUCCESSFUL in ");
pattern!(IGNORED, r"^(?:> )?There were failing tests\b");
pattern!(BROKEN, r"Process 'Gradle Test Executor \d+' finished with non-zero exit value");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = events(output);
    for closing in [&LOGGER, &CLOSE] {
        if runs.is_empty() {
            runs =
                closings(output, closing, |found| Some(of_total(number(found, 1), number(found, 2), number(found, 3))));
        }
    }
    // The plugin Test Retry ran the failing tests again. Ignored failures are announced.
    if SUCCESSFUL.is_match(output) && !IGNORED.is_match(output) {
        for counts in runs.iter_mut().filter_map(|run| run.counts.as_mut()) {
            counts.failing = 0;
        }
    }
    if let Some(last) = runs.last_mut() {
        last.incomplete |= BROKEN.is_match(output);
    }
    name_by(runs, output, &FAILED)
}

/// Returns the run if Gradle printed every test, including passed ones.
fn events(output: &str) -> Vec<TestRun> {
    let mut counts = TestCounts::default();
    let mut span: Option<std::ops::Range<usize>> = None;
    for found in EVENT.captures_iter(output) {
        match &found[2] {
            "PASSED" => counts.passing += 1,
            "FAILED" => counts.failing += 1,
            _ => counts.skipped += 1,
        }
        if let Some(line) = found.get(0) {
            span = Some(span.map_or(line.start(), |span| span.start)..line.end());
        }
    }
    // Only the last event is the span: other runners may print between two tests.
    let run = span.map(|span| TestRun::closed(span.end - 1..span.end, counts));
    run.filter(|_| counts.passing > 0).into_iter().collect()
}
