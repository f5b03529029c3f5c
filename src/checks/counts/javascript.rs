//! Test counts of jest, vitest, mocha and Node.js.

use std::sync::LazyLock;

use regex::Regex;

use super::{Outcome, number, sum, tally};
use crate::domain::model::task::TestCounts;

static JEST: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^Tests: +((?:\d+ [a-z]+, )*)\d+ total$").expect("constant pattern"));

/// `Tests:       1 failed, 1 skipped, 1 todo, 2 passed, 5 total`
pub(super) fn jest(output: &str) -> Option<TestCounts> {
    sum(JEST.captures_iter(output).map(|found| tally(found[1].split(", "), place)))
}

static VITEST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^ +Tests  (\d+ [a-z ]+(?: \| \d+ [a-z ]+)*) \(\d+\)$").expect("constant pattern")
});

/// `      Tests  1 failed | 2 passed | 1 skipped | 1 todo (5)`
pub(super) fn vitest(output: &str) -> Option<TestCounts> {
    sum(VITEST.captures_iter(output).map(|found| tally(found[1].split(" | "), place)))
}

fn place(word: &str) -> Option<Outcome> {
    match word {
        "passed" => Some(Outcome::Passing),
        "failed" => Some(Outcome::Failing),
        "skipped" | "todo" | "pending" | "expected fail" => Some(Outcome::Skipped),
        _ => None,
    }
}

static MOCHA: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^  (\d+) passing \(\d+(?:ms|s|m|h|d)\)$(?:\n  (\d+) pending$)?(?:\n  (\d+) failing$)?")
        .expect("constant pattern")
});

/// `  3 passing (7ms)`, then `  2 pending` and `  1 failing` where there are any.
pub(super) fn mocha(output: &str) -> Option<TestCounts> {
    sum(MOCHA.captures_iter(output).map(|found| TestCounts {
        passing: number(&found, 1),
        failing: number(&found, 3),
        skipped: number(&found, 2),
    }))
}

static NODE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?m)^[#ℹ] tests \d+\n[#ℹ] suites \d+\n[#ℹ] pass (\d+)\n[#ℹ] fail (\d+)\n[#ℹ] cancelled (\d+)\n[#ℹ] skipped (\d+)\n[#ℹ] todo (\d+)$",
    )
    .expect("constant pattern")
});

/// The closing block of `node --test`, in TAP (`# pass 3`) and in the form for people (`ℹ pass 3`).
pub(super) fn node(output: &str) -> Option<TestCounts> {
    sum(NODE.captures_iter(output).map(|found| TestCounts {
        passing: number(&found, 1),
        failing: number(&found, 2).saturating_add(number(&found, 3)),
        skipped: number(&found, 4).saturating_add(number(&found, 5)),
    }))
}
