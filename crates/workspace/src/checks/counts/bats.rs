//! Bats with output for people (`--pretty`). Without a terminal, Bats prints TAP.

use super::runs::{Closing, Runner, TestRun, believed, marks, name_by};
use super::{number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "Bats",
    versions: "1.8.2",
    fixtures: "bats",
    reads: "`4 tests, 1 failure, 1 skipped` after lines with `✓` and `✗`; without a terminal it prints TAP. Tests that did \
            not run make it incomplete.",
    read,
};

pattern!(CLOSE, r"^(\d+) tests?, (\d+) failures?(?:, (\d+) skipped)?(?:, (\d+) not run)?$");
pattern!(MARK, r"(?:^| )(?:✓|✗) \S| - .+ \(skipped");
pattern!(NAME, r"(?:^| )✗ (\S.*?)(?: \[\d+m?s?\])?$");

fn read(output: &str) -> Vec<TestRun> {
    let seen = marks(output, &MARK);
    if seen.is_empty() {
        return Vec::new();
    }
    let mut not_run = Vec::new();
    let closing = |found: regex::Captures<'_>| {
        let span = found.get(0)?.range();
        if number(&found, 4) > 0 {
            not_run.push(span.end);
        }
        let skipped = number(&found, 3).saturating_add(number(&found, 4));
        let counts = of_total(number(&found, 1), number(&found, 2), skipped);
        Some(Closing { span, counts, claimed: number(&found, 1) })
    };
    let mut closings: Vec<Closing> = CLOSE.captures_iter(output).filter_map(closing).collect();
    // ExUnit closes with the same words, but below another line.
    closings
        .retain(|closing| output[..closing.span.start].ends_with("\n\n") && closing.claimed <= 2 * seen.len() as u64);
    let runs = believed(closings, &seen, &[]).into_iter().map(|run| {
        let cut = not_run.contains(&run.span.end);
        run.incomplete_if(cut)
    });
    name_by(runs.collect(), output, &NAME)
}
