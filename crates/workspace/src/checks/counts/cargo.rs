//! `cargo test`, and runners with the same lines: wasm-bindgen-test, cairo-test.

use super::runs::{Runner, TestRun, add_names};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "cargo test, wasm-bindgen-test, cairo-test",
    versions: "Rust 1.95.0",
    fixtures: "cargo",
    reads: "`running 4 tests` and `test result: …` of each binary, which must have the same sum; the last list of \
            `failures:`. A binary without its result, or a run that stopped at the first failing binary (no \
            `--no-fail-fast`), makes it incomplete. A run inside of \
            another one belongs to it.",
    read,
};

pattern!(
    LINE,
    r"^(?:running (\d+) tests?|(?:Error: )?test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored(?:; (\d+) measured)?(?:; \d+ filtered out)?(?:; finished in [\d.]+m?s)?;?)$"
);
pattern!(NAMES, r"^failures:\n\n?((?:    \S.*\n)+)");
pattern!(STOPPED, r"^error: test failed, to rerun pass `");
pattern!(ALL, r"^error: \d+ targets? failed:$");

/// Parses the runs. Each test binary prints the number of its tests and one result line. A result line whose counts do
/// not add up to that number was printed by a test, not by the harness. A test may run cargo itself: the inner run has its
/// result first, and belongs to the outer one.
fn read(output: &str) -> Vec<TestRun> {
    let mut runs: Vec<TestRun> = Vec::new();
    let mut open: Vec<(std::ops::Range<usize>, u64)> = Vec::new();
    for found in LINE.captures_iter(output) {
        let Some(line) = found.get(0).map(|line| line.range()) else { continue };
        if found.get(1).is_some() {
            open.push((line, number(&found, 1)));
            continue;
        }
        let counts = TestCounts { passing: number(&found, 2), failing: number(&found, 3), skipped: number(&found, 4) };
        let parts = [counts.passing, counts.failing, counts.skipped, number(&found, 5)];
        let sum = parts.into_iter().fold(0, u64::saturating_add);
        if let Some(at) = open.iter().rposition(|(_, announced)| *announced == sum) {
            let start = open[at].0.start;
            open.truncate(at);
            runs.retain(|run| run.span.start < start);
            runs.push(TestRun::closed(start..line.end, counts));
        }
    }
    runs.extend(open.into_iter().map(|(start, _)| TestRun::cut(start)));
    runs.sort_by_key(|run| run.span.start);
    if let Some(last) = runs.last_mut() {
        last.incomplete |= STOPPED.is_match(output) && !ALL.is_match(output);
    }
    // An inner run may list failures, too.
    for at in (0..runs.len()).filter(|at| runs[*at].counts.is_none_or(|counts| counts.failing > 0)).collect::<Vec<_>>()
    {
        let span = runs[at].span.clone();
        let listed = NAMES.captures_iter(&output[span.clone()]).last();
        let names: Vec<_> =
            listed.iter().flat_map(|list| list[1].lines()).map(|name| (span.start, name.trim().to_owned())).collect();
        add_names(&mut runs[at..=at], names);
    }
    runs
}
