//! CTest.

use super::runs::{Runner, TestRun, between, name_by};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "CTest",
    versions: "3.25.1",
    fixtures: "ctest",
    reads: "`50% tests passed, 2 tests failed out of 4`; the list of failed tests. Skipped and disabled tests count as \
            skipped. Output of the tests belongs to CTest. A run that stopped at a failure is incomplete.",
    read,
};

pattern!(START, r"^Test project /?\S");
pattern!(CLOSE, r"^\d+% tests passed, (\d+) tests? failed out of (\d+)$|^No tests were found!!!$");
pattern!(NOT_RUN, r"^\s+\d+ - .+ \((Skipped|Disabled)\)$");
pattern!(PLACE, r"^ *\d+/(\d+) Test +#\d+: ");
pattern!(
    NAME,
    r"^\t *\d+ - (.+) \((?:Failed|Timeout|Not Run|Child aborted|Subprocess aborted|Exit code .*|SEGFAULT|ILLEGAL|NUMERICAL|INTERRUPT|OTHER_FAULT|Bad Command)\)$"
);

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| {
        let failing = number(found, 1);
        Some(TestCounts { passing: number(found, 2).saturating_sub(failing), failing, skipped: 0 })
    });
    let ends: Vec<usize> = runs.iter().skip(1).map(|run| run.span.start).chain([output.len()]).collect();
    for (run, to) in runs.iter_mut().zip(ends) {
        let Some(counts) = &mut run.counts else { continue };
        let ran = counts.passing.saturating_add(counts.failing);
        let mut disabled = 0u64;
        // The lists stand below the closing line. CTest counts skipped tests as passed and omits disabled ones.
        for found in NOT_RUN.captures_iter(&output[run.span.end..to]) {
            counts.skipped += 1;
            match &found[1] {
                "Skipped" => counts.passing = counts.passing.saturating_sub(1),
                _ => disabled += 1,
            }
        }
        let places = PLACE.captures_iter(&output[run.span.clone()]).map(|found| number(&found, 1));
        run.incomplete |= places.max().is_some_and(|all| all > ran.saturating_add(disabled));
    }
    name_by(runs, output, &NAME)
}
