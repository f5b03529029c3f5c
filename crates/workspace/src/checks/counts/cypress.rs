//! Cypress.

use super::mocha::names;
use super::runs::{Runner, TestRun, add_names, between};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "Cypress",
    versions: "",
    fixtures: "cypress",
    reads: "the last row of the table at the end (`✔  All specs passed!` or `✖  1 of 2 failed (50%)`) with its columns \
            tests, passing, failing, pending, skipped; mocha's list of failures of each spec. Tests that a broken hook kept \
            from running make it incomplete.",
    read,
};

pattern!(START, r"^ *\(Run Starting\)$");
pattern!(
    CLOSE,
    r"^ +[✔✖√×] +(?:All specs passed!|\d+ of \d+ failed \(\d+%\)) +[\d:]+ +(\d+|-) +(\d+|-) +(\d+|-) +(\d+|-) +(\d+|-) *$"
);

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| {
        let skipped = number(found, 4).saturating_add(number(found, 5));
        Some(TestCounts { passing: number(found, 2), failing: number(found, 3), skipped })
    });
    for run in runs.iter_mut().filter(|run| run.counts.is_some()) {
        let last = output[run.span.clone()].lines().last().unwrap_or_default();
        run.incomplete |= CLOSE.captures(last).is_some_and(|found| number(&found, 5) > 0);
    }
    if !runs.is_empty() {
        add_names(&mut runs, names(output));
    }
    runs
}
