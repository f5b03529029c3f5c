//! JUnit and TestNG by Gradle.

use std::collections::HashMap;

use super::runs::{TestRun, closings, name_by};
use super::{Runner, number, of_total, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "Gradle (JUnit, TestNG)",
    versions: "4.4.1 with JUnit 4; newer with JUnit 5 from documentation",
    fixtures: "gradle",
    reads: "with `testLogging` the lines `MixedTest > adds PASSED`, with the names of nested \
            classes and parameters between; of a test that ran again, the last result counts; else `SUCCESS: Executed \
            7 tests in 1s` of the plugin Gradle Test Logger; else `7 tests completed, 2 failed, 1 skipped`, which \
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
pattern!(EVENT, r"^(?:> Task :|(\S.* > .+) (PASSED|FAILED|SKIPPED)$)");
pattern!(FAILED, r"^(?:(\S.* > .+)|  Test (.+)) FAILED(?: \([\d.]+m?s\))?$");
pattern!(BROKEN, r"Process 'Gradle Test Executor \d+' finished with non-zero exit value");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = events(output);
    for closing in [&LOGGER, &CLOSE] {
        if runs.is_empty() {
            runs =
                closings(output, closing, |found| Some(of_total(number(found, 1), number(found, 2), number(found, 3))));
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
    let mut failed = HashMap::<&str, u64>::new();
    for found in EVENT.captures_iter(output) {
        let Some(line) = found.get(0) else { continue };
        let (Some(test), Some(result)) = (found.get(1), found.get(2)) else {
            // Another project may have a test of the same name.
            failed.clear();
            continue;
        };
        let earlier = failed.entry(test.as_str()).or_default();
        // The plugin Test Retry ran the test again.
        let repeated = *earlier > 0;
        if repeated {
            *earlier -= 1;
            counts.failing -= 1;
        }
        match result.as_str() {
            "PASSED" => counts.passing += 1,
            "FAILED" => {
                *earlier += 1;
                counts.failing += 1;
            }
            _ => counts.skipped += 1,
        }
        span = Some(span.map_or(line.start(), |span| span.start)..line.end());
    }
    // Only the last event is the span: other runners may print between two tests.
    let run = span.map(|span| TestRun::closed(span.end - 1..span.end, counts));
    run.filter(|_| counts.passing > 0).into_iter().collect()
}
