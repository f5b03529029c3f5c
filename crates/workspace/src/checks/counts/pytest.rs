//! pytest, plain, with `-q`, with xdist, pytest-sugar and pytest-pretty.

use std::ops::Range;

use super::runs::{Runner, TestOutcome, TestRun, between, incomplete_by, name_by};
use super::{number, pattern, tally};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "pytest, with xdist, sugar, pretty",
    versions: "pytest 8.x and 9.2.0, xdist 3.8.0, sugar 1.1.1, pretty 1.3.0",
    fixtures: "pytest",
    reads: "`=== 1 failed, 8 passed, … in 0.04s ===`, with `-q` without the rule, once after each line that reached \
            100 %, of sugar and pretty the list below `Results (0.05s):`; `FAILED` and `ERROR` lines of the short summary. \
            Expected failures count as skipped. Failing subtests and errors in a set-up or teardown may not be tests. \
            A module that cannot be collected, `!!! Interrupted … !!!` and `!!! stopping after … !!!` make it incomplete.",
    read,
};

pattern!(START, r"^(?:=+ test session starts.* =+|Test session starts \(platform: .*)$");
pattern!(
    CLOSE,
    r"^(?:=+ (\d+ [a-z]+[a-z, \d-]*|no tests (?:ran|collected).*?) in [\d.]+ ?s(?:econds)?(?: \([^)\n]*\))? =+$|Results \([\d.]+m?s.*\):\n((?: +(?:\d+ [a-z]+|- .*)(?:\n|\z))+))"
);
pattern!(
    BARE,
    r"^(\d+ (?:passed|failed|error|skipped|xfailed|xpassed|deselected|warning|rerun|subtests)[a-z, \d-]*|no tests (?:ran|collected).*?) in [\d.]+ ?s(?:econds)?(?: \([^)\n]*\))?$"
);
pattern!(FULL, r"^[.FEsxXRuy,-]+ +\[100%\]$");
pattern!(SUBTESTS, r"SUBFAIL|[0-9] subtests|^\S* ?[.FEsxXR,-]*u[.FEsxXRu,-]* +\[ *[0-9]+%\]$");
pattern!(ERRORS, r"(\d+) errors?\b");
pattern!(STOPPED, r"^!+ .+ !+$|^_+ ERROR collecting .+ _+$");
pattern!(NAME, r"^(?:FAILED|ERROR) (\S+\.\w+(?:::.+?)?)(?: - .*)?$");

fn read(output: &str) -> Vec<TestRun> {
    let ruled = || between(output, &START, &CLOSE, |found| Some(counts(found.get(1).or(found.get(2))?.as_str())));
    // With `-q` a line with a rule was printed by a test.
    let mut runs = if START.is_match(output) { ruled() } else { Vec::new() };
    let ends = runs.iter().map(|run| run.span.start).chain([output.len()]);
    let starts = [0].into_iter().chain(runs.iter().map(|run| run.span.end));
    let gaps: Vec<_> = starts.zip(ends).filter(|(from, to)| from < to).collect();
    let quiet: Vec<TestRun> = gaps.into_iter().flat_map(|(from, to)| bare(output, from, to)).collect();
    runs.extend(quiet);
    runs.sort_by_key(|run| run.span.start);
    if runs.is_empty() {
        runs = ruled();
    }
    let failing_subtests = SUBTESTS.is_match(output);
    for run in &mut runs {
        let closing = output[run.span.clone()].trim_end().lines().last().unwrap_or_default();
        let counts = run.counts.unwrap_or_default();
        let errors = ERRORS.captures(closing).map_or(counts.failing, |found| number(&found, 1));
        run.extra = if failing_subtests {
            counts.failing
        } else if closing.contains(" error") {
            errors
        } else {
            0
        };
    }
    incomplete_by(name_by(runs, output, &NAME), output, &STOPPED)
}

/// Returns the runs with `-q` in a byte range of the output. A run is the last closing line (`3 passed in 0.1s`) after
/// a progress line with 100 %. Without such a progress line, the last closing line of the range is the only run.
fn bare(output: &str, from: usize, to: usize) -> Vec<TestRun> {
    let part = &output[from..to];
    let full: Vec<usize> = FULL.find_iter(part).map(|full| full.start()).collect();
    if full.is_empty() {
        let last = BARE.captures_iter(part).last();
        let closed =
            last.and_then(|found| Some(TestRun::closed(moved(found.get(0)?.range(), from), counts(&found[1]))));
        return closed.into_iter().collect();
    }
    let ends = full.iter().skip(1).copied().chain([part.len()]);
    let last = |(start, end): (&usize, usize)| {
        let found = BARE.captures_iter(&part[*start..end]).last()?;
        Some(TestRun::closed(moved(*start..start + found.get(0)?.end(), from), counts(&found[1])))
    };
    full.iter().zip(ends).filter_map(last).collect()
}

fn moved(span: Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}

fn counts(items: &str) -> TestCounts {
    tally(items.split([',', '\n']), |word| match word {
        "passed" | "xpassed" => Some(TestOutcome::Passing),
        "failed" | "error" | "errors" => Some(TestOutcome::Failing),
        "skipped" | "xfailed" => Some(TestOutcome::Skipped),
        _ => None,
    })
}
