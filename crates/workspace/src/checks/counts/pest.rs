//! Pest, and Laravel's `artisan test`.

use super::jest::place;
use super::runs::{Runner, TestOutcome, TestRun, closings, name_by};
use super::{pattern, tally};

pub(super) const RUNNER: Runner = Runner {
    name: "Pest, artisan test",
    versions: "",
    fixtures: "pest",
    reads: "`Tests:    1 failed, 1 skipped, 2 passed (3 assertions)` with `Duration:` below; `FAILED` headings. Todo and \
            incomplete count as skipped, risky ones, warnings and deprecations as passing.",
    read,
};

pattern!(CLOSE, r"^  Tests:  +(\d+ [a-z]+(?:, \d+ [a-z]+)*)(?: \(\d+ assertions?\))?\n  Duration: +\S+$");
pattern!(NAME, r"^   FAILED  (.+?)(?:  +\S+)?$");

fn read(output: &str) -> Vec<TestRun> {
    let runs = closings(output, &CLOSE, |found| {
        Some(tally(found[1].split(", "), |word| match word {
            "risky" | "warning" | "warnings" | "deprecated" | "notice" | "notices" => Some(TestOutcome::Passing),
            _ => place(word),
        }))
    });
    name_by(runs, output, &NAME)
}
