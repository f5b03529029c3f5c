//! Test counts of pytest, prove and plain TAP.

use std::sync::LazyLock;

use regex::Regex;

use super::{Outcome, number, sum, tally};
use crate::domain::model::task::TestCounts;

static PYTEST: LazyLock<Regex> = LazyLock::new(|| {
    let word = r"\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)";
    Regex::new(&format!(
        r"(?m)^(=+ )?({word}(?:, {word})*|no tests (?:ran|collected)) in [\d.]+s(?: \([^)]*\))?( =+)?$"
    ))
    .expect("constant pattern")
});

/// `=== 1 failed, 8 passed, 1 skipped, 1 xfailed, 1 error in 0.04s ===`, with `-q` without the rule. Only the last line
/// without a rule counts, and only where no line has one. What was expected to fail is skipped, as in pytest's JUnit file.
pub(super) fn pytest(output: &str) -> Option<TestCounts> {
    let mut ruled = Vec::new();
    let mut bare = None;
    for found in PYTEST.captures_iter(output) {
        let counts = tally(found[2].split(", "), |word| match word {
            "passed" | "xpassed" => Some(Outcome::Passing),
            "failed" | "error" | "errors" => Some(Outcome::Failing),
            "skipped" | "xfailed" => Some(Outcome::Skipped),
            _ => None,
        });
        match (found.get(1), found.get(3)) {
            (Some(_), Some(_)) => ruled.push(counts),
            (None, None) => bare = Some(counts),
            _ => {}
        }
    }
    sum(ruled.into_iter()).or(bare)
}

static PROVE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^Files=\d+, Tests=(\d+), .*\nResult: (?:PASS|FAIL|NOTESTS)$").expect("constant pattern")
});

static PROVE_FAILED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\S+ +\(Wstat: .+ Tests: \d+ Failed: (\d+)\)$").expect("constant pattern"));

static PROVE_SKIPPED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\(less (\d+) skipped subtests?: ").expect("constant pattern"));

/// `Files=2, Tests=7, …` with `Result:`; failures come from the report of each file.
pub(super) fn prove(output: &str) -> Option<TestCounts> {
    let total = PROVE.captures_iter(output).map(|found| number(&found, 1)).reduce(u64::saturating_add)?;
    let add =
        |pattern: &Regex| pattern.captures_iter(output).map(|found| number(&found, 1)).fold(0, u64::saturating_add);
    let (failing, skipped) = (add(&PROVE_FAILED), add(&PROVE_SKIPPED));
    Some(TestCounts { passing: total.saturating_sub(failing).saturating_sub(skipped), failing, skipped })
}

static TAP_PLAN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^1\.\.(\d+)(?: *#.*)?$").expect("constant pattern"));

static TAP_LINE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(not )?ok(?: \d+)?(?:$| +[^#]*(?:#\s*((?i)skip|todo)\b.*|#.*)?$)").expect("constant pattern")
});

/// TAP at the top level. It must have a plan: a lone `ok` is a word like any other. Tests that were planned and never
/// reported failed.
pub(super) fn tap(output: &str) -> Option<TestCounts> {
    let mut planned: Option<u64> = None;
    let mut counts = TestCounts::default();
    for line in output.lines() {
        if let Some(plan) = TAP_PLAN.captures(line) {
            planned = Some(planned.unwrap_or(0).saturating_add(number(&plan, 1)));
        } else if let Some(found) = TAP_LINE.captures(line) {
            let directive = found.get(2).map(|word| word.as_str().to_lowercase());
            match (found.get(1).is_some(), directive.as_deref()) {
                (_, Some("skip")) | (true, Some("todo")) => counts.skipped += 1,
                (false, _) => counts.passing += 1,
                (true, _) => counts.failing += 1,
            }
        }
    }
    let seen = counts.passing + counts.failing + counts.skipped;
    counts.failing = counts.failing.saturating_add(planned?.saturating_sub(seen));
    Some(counts)
}
