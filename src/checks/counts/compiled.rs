//! Test counts of cargo test, nextest, go test, CTest and Maven.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{Outcome, number, sum, tally};
use crate::domain::model::task::TestCounts;

static CARGO: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?m)^(?:running (\d+) tests?|test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored; (\d+) measured; \d+ filtered out(?:; finished in [\d.]+s)?)$",
    )
    .expect("constant pattern")
});

/// Each test binary prints the number of its tests and one result line. A result line with another sum was printed by
/// a test, not by the harness.
pub(super) fn cargo(output: &str) -> Option<TestCounts> {
    let mut announced: Option<u64> = None;
    sum(CARGO.captures_iter(output).filter_map(|found| {
        if found.get(1).is_some() {
            announced = Some(number(&found, 1));
            return None;
        }
        let counts = TestCounts { passing: number(&found, 2), failing: number(&found, 3), skipped: number(&found, 4) };
        let parts = [counts.passing, counts.failing, counts.skipped, number(&found, 5)];
        if announced != Some(parts.into_iter().fold(0, u64::saturating_add)) {
            return None;
        }
        announced = None;
        Some(counts)
    }))
}

static NEXTEST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^ +Summary \[ *[\d.]+s\] \d+(?:/(\d+))? tests? run: (.+)$").expect("constant pattern")
});

static NEXTEST_DETAILS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r" \([^)]*\)").expect("constant pattern"));

/// `3 passed (1 slow, 1 flaky), 1 failed, 1 timed out, 2 skipped`; what a failure kept from running is skipped.
pub(super) fn nextest(output: &str) -> Option<TestCounts> {
    sum(NEXTEST.captures_iter(output).map(|found| {
        let items = NEXTEST_DETAILS.replace_all(&found[2], "");
        let mut counts = tally(items.split(", "), |word| match word {
            "passed" => Some(Outcome::Passing),
            "failed" | "timed out" | "exec failed" => Some(Outcome::Failing),
            "skipped" => Some(Outcome::Skipped),
            _ => None,
        });
        let not_run = number(&found, 1).saturating_sub(counts.passing.saturating_add(counts.failing));
        counts.skipped = counts.skipped.saturating_add(not_run);
        counts
    }))
}

static GO_RESULT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^ *--- (PASS|FAIL|SKIP): \S+ \([\d.]+s\)$").expect("constant pattern"));

/// `go test -v` and `go test -json`, subtests counted as tests. Without either, go names only packages and failures, of
/// which no counts can be made.
pub(super) fn go(output: &str) -> Option<TestCounts> {
    let mut counts = TestCounts::default();
    let mut count = |word: &str| match word {
        "PASS" | "pass" => counts.passing += 1,
        "FAIL" | "fail" => counts.failing += 1,
        "SKIP" | "skip" => counts.skipped += 1,
        _ => {}
    };
    if output.lines().any(|line| line.starts_with("=== RUN   ")) {
        GO_RESULT.captures_iter(output).for_each(|found| count(&found[1]));
        return Some(counts);
    }
    let mut events = 0;
    for line in output.lines().filter(|line| line.starts_with('{') && line.contains("\"Action\"")) {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let text = |key: &str| event.get(key).and_then(Value::as_str);
        if let (Some(action), Some(_), Some(_)) = (text("Action"), text("Package"), text("Test")) {
            events += 1;
            count(action);
        }
    }
    (events > 0).then_some(counts)
}

static CTEST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^\d+% tests passed, (\d+) tests? failed out of (\d+)$").expect("constant pattern")
});

static CTEST_NOT_RUN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\s+\d+ - .+ \((Skipped|Disabled)\)$").expect("constant pattern"));

/// CTest counts skipped tests as passed and omits disabled ones.
pub(super) fn ctest(output: &str) -> Option<TestCounts> {
    let mut counts = sum(CTEST.captures_iter(output).map(|found| {
        let failing = number(&found, 1);
        TestCounts { passing: number(&found, 2).saturating_sub(failing), failing, skipped: 0 }
    }))?;
    for found in CTEST_NOT_RUN.captures_iter(output) {
        counts.skipped += 1;
        if &found[1] == "Skipped" {
            counts.passing = counts.passing.saturating_sub(1);
        }
    }
    Some(counts)
}

static SUREFIRE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?m)^(?:\[(?:INFO|WARNING|ERROR)\] )?Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)(, Time elapsed: .+)?$",
    )
    .expect("constant pattern")
});

/// Surefire and failsafe print one line a class, with a time, and one a module, without; the latter count, and where
/// there are none (the build was stopped) the former.
pub(super) fn surefire(output: &str) -> Option<TestCounts> {
    let of = |classes: bool| {
        sum(SUREFIRE.captures_iter(output).filter(|found| found.get(5).is_some() == classes).map(|found| {
            let failing = number(&found, 2).saturating_add(number(&found, 3));
            let skipped = number(&found, 4);
            let passing = number(&found, 1).saturating_sub(failing).saturating_sub(skipped);
            TestCounts { passing, failing, skipped }
        }))
    };
    of(false).or_else(|| of(true))
}
