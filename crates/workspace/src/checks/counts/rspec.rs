//! RSpec.

use super::runs::{Runner, TestRun, closings, incomplete_by, name_by};
use super::{number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "RSpec, Crystal, hspec, ShellSpec",
    versions: "3.12.0",
    fixtures: "rspec",
    reads: "`5 examples, 1 failure, 2 pending` below `Finished in …`; `rspec ./a_spec.rb:3 # …` lines. An error outside of \
            examples makes it incomplete.",
    read,
};

pattern!(
    CLOSE,
    r"^Finished in .+\n(\d+) examples?, (\d+) failures?(?:, (\d+) errors)?(?:, (\d+) pending)?(?:, \d+ errors? occurred outside of examples)?$"
);
pattern!(NAME, r"^rspec \S+ # (.+)$");
pattern!(BROKEN, r"^\d+ examples?, .* occurred outside of examples$");

fn read(output: &str) -> Vec<TestRun> {
    let runs = closings(output, &CLOSE, |found| {
        let failing = number(found, 2).saturating_add(number(found, 3));
        Some(of_total(number(found, 1), failing, number(found, 4)))
    });
    incomplete_by(name_by(runs, output, &NAME), output, &BROKEN)
}
