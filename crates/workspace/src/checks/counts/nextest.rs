//! cargo-nextest.

use super::runs::{Runner, TestOutcome, TestRun, between, name_by};
use super::{number, pattern, tally};

pub(super) const RUNNER: Runner = Runner {
    name: "cargo-nextest",
    versions: "0.9.143",
    fixtures: "nextest",
    reads: "`Summary [ 0.1s] 3/10 tests run: 2 passed, 1 failed, 4 skipped`; the lines of failing tests. Tests that a failure \
            kept from running count as skipped and make it incomplete. With `--stress-count` its iterations are counted.",
    read,
};

pattern!(START, r"^ *Starting \d+ tests? across");
pattern!(CLOSE, r"^ +Summary \[ *[\d.]+s\] \d+(?:/(\d+))? (?:tests? run|stress run iterations?): (.+)$");
pattern!(DETAILS, r" \([^)]*\)");
pattern!(
    NAME,
    r"^ +(?:TRY \d+ )?(?:FAIL|TIMEOUT|TMT|SIG[A-Z]+|ABORT|XFAIL|LEAK-FAIL|FL\+LK) \[ *[>\d.]+s\] (?:\([─\d/ ]+\) )?(\S.*)$"
);

/// Parses summaries like `3 passed (1 slow, 1 flaky), 1 failed, 1 timed out, 2 skipped`.
fn read(output: &str) -> Vec<TestRun> {
    let items = |found: &regex::Captures<'_>| {
        let items = DETAILS.replace_all(&found[2], "").into_owned();
        let counts = tally(items.split([',', ';']), |word| match word {
            "passed" => Some(TestOutcome::Passing),
            "failed" | "timed out" | "exec failed" => Some(TestOutcome::Failing),
            "skipped" => Some(TestOutcome::Skipped),
            _ => None,
        });
        let not_run = number(found, 1).saturating_sub(counts.passing.saturating_add(counts.failing));
        (counts, not_run)
    };
    let mut runs = between(output, &START, &CLOSE, |found| {
        let (mut counts, not_run) = items(found);
        counts.skipped = counts.skipped.saturating_add(not_run);
        Some(counts)
    });
    for run in runs.iter_mut().filter(|run| run.counts.is_some()) {
        let last = CLOSE.captures_iter(&output[run.span.clone()]).last();
        run.incomplete |= last.is_some_and(|found| items(&found).1 > 0);
    }
    name_by(runs, output, &NAME)
}
