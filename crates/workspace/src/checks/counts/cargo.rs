//! `cargo test`.

use super::runs::{TestRun, add_names};
use super::{Runner, number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "cargo test",
    versions: "Rust 1.95.0",
    fixtures: "cargo",
    reads: "`running 4 tests` and `test result: …` of each binary, which must have the same sum; the last list of \
            `failures:`. A binary without its result, or a run that stopped at the first failing binary (no \
            `--no-fail-fast`), makes it incomplete.",
    read,
};

pattern!(
    LINE,
    r"^(?:running (\d+) tests?|test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored; (\d+) measured; \d+ filtered out(?:; finished in [\d.]+s)?)$"
);
pattern!(NAMES, r"^failures:\n((?:    \S.*\n)+)");
pattern!(STOPPED, r"^error: test failed, to rerun pass `");
pattern!(ALL, r"^error: \d+ targets? failed:$");

/// Parses the runs. Each test binary prints the number of its tests and one result line. A result line whose counts do
/// not add up to that number was printed by a test, not by the harness.
fn read(output: &str) -> Vec<TestRun> {
    let mut runs: Vec<TestRun> = Vec::new();
    let mut open: Option<(std::ops::Range<usize>, u64)> = None;
    for found in LINE.captures_iter(output) {
        let Some(line) = found.get(0).map(|line| line.range()) else { continue };
        if found.get(1).is_some() {
            runs.extend(open.replace((line, number(&found, 1))).map(|(start, _)| TestRun::cut(start)));
            continue;
        }
        let counts = TestCounts { passing: number(&found, 2), failing: number(&found, 3), skipped: number(&found, 4) };
        let parts = [counts.passing, counts.failing, counts.skipped, number(&found, 5)];
        let sum = parts.into_iter().fold(0, u64::saturating_add);
        if let Some((start, _)) = open.take_if(|(_, announced)| *announced == sum) {
            runs.push(TestRun::closed(start.start..line.end, counts));
        }
    }
    runs.extend(open.map(|(start, _)| TestRun::cut(start)));
    if let Some(last) = runs.last_mut() {
        last.incomplete |= STOPPED.is_match(output) && !ALL.is_match(output);
    }
    for at in 0..runs.len() {
        let span = runs[at].span.clone();
        let listed = NAMES.captures_iter(&output[span.clone()]).last();
        let names: Vec<_> =
            listed.iter().flat_map(|list| list[1].lines()).map(|name| (span.start, name.trim().to_owned())).collect();
        add_names(&mut runs[at..=at], names);
    }
    runs
}
