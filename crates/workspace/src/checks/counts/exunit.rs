//! ExUnit of Elixir.

use super::runs::{Runner, TestRun, name_by};
use super::{of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "ExUnit",
    versions: "Elixir 1.14.0",
    fixtures: "exunit",
    reads: "`1 doctest, 5 tests, 1 failure, 1 excluded, 1 skipped` below `Finished in …`; the numbered failures. Excluded \
            counts as skipped. Tests that a broken `setup_all` made invalid count as failing and make it incomplete.",
    read,
};

pattern!(
    CLOSE,
    r"^Finished in .+\n((?:\d+ (?:doctests?|propert(?:y|ies)|tests?|features?), )+\d+ failures?(?:, \d+ (?:excluded|invalid|skipped))*)$"
);
pattern!(NAME, r"^  +\d+\) ((?:test|doctest|property) .+ \(\S+\)|\S+: failure on setup_all callback).*$");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = Vec::new();
    for found in CLOSE.captures_iter(output) {
        let (mut total, mut failing, mut skipped, mut invalid) = (0u64, 0u64, 0u64, 0u64);
        for item in found[1].split(", ") {
            let Some((number, word)) = item.split_once(' ') else { continue };
            let field = match word {
                "failure" | "failures" => &mut failing,
                "excluded" | "skipped" => &mut skipped,
                "invalid" => &mut invalid,
                _ => &mut total,
            };
            *field = field.saturating_add(number.parse().unwrap_or(0));
        }
        let counts = of_total(total, failing.saturating_add(invalid), skipped);
        let span = found.get(0).map_or(0..0, |closing| closing.range());
        runs.push(TestRun::closed(span, counts).incomplete_if(invalid > 0));
    }
    name_by(runs, output, &NAME)
}
