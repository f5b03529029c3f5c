//! Python's unittest, and runners with similar output: Django, nose2, trial, green.

use std::collections::HashSet;

use regex::Captures;

use super::runs::{Closing, Runner, TestRun, believed, incomplete_by, marks, name_by};
use super::table::items;
use super::{number, of_total, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "Python unittest, Django, nose2, trial, green",
    versions: "Python 3.11.7, Django 5.2.19, nose2 0.16.0, Twisted 26.10.0, green 4.0.2",
    fixtures: "unittest",
    reads: "`Ran 8 tests in …` and the line `OK`, `PASSED` or `FAILED (…)`; `FAIL:`, `ERROR:` and `UNEXPECTED SUCCESS:` headings. \
            Expected failures count as skipped, unexpected successes as failing. The failing subtests of a test are one test. \
            Modules and classes that could not be set up make it incomplete, and are no tests.",
    read,
};

pattern!(
    CLOSE,
    r"^(?:-{70,79}\nRan (\d+) tests? in [\d.]+s|Ran (\d+) tests? in [\d.]+s using \d+ process(?:es)?)\n\n(?:OK|PASSED|FAILED|NO TESTS RAN)(?: \(([^)\n]*)\))?$"
);
pattern!(DOTS, r"^([.FEsxu]+)$");
pattern!(VERBOSE, r"^.* \(\S+\).* \.\.\. |^ok$|^ +\w+ \.\.\. +\[[A-Z]+\]$|^[.FEsxu] {3}\S");
pattern!(STARTED, r"^\w+ \([\w.]+\) \.\.\. ");
pattern!(NAME, r"^(?:(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\w+ \([^)\n]+\)).*|(?:Failure|Error) in (\S+))$");
pattern!(BROKEN, r"^ERROR: (?:.*\((?:unittest\.loader\._FailedTest|nose2\.loader\.)|(?:setUp)(?:Class|Module) \()");
pattern!(FIXTURE, r"^(?:setUp|tearDown)(?:Class|Module) \(");

/// Returns the number of tests that ran, and the counts of the closing line.
fn summary(found: Captures<'_>) -> (u64, TestCounts) {
    let total = number(&found, 1).saturating_add(number(&found, 2));
    (total, items(found.get(3).map_or("", |items| items.as_str())))
}

fn read(output: &str) -> Vec<TestRun> {
    let closings: Vec<Closing> = CLOSE
        .captures_iter(output)
        .filter_map(|found| {
            let span = found.get(0)?.range();
            let (total, listed) = summary(found);
            Some(Closing { span, counts: of_total(total, listed.failing, listed.skipped), claimed: total })
        })
        .collect();
    let mut seen = [marks(output, &DOTS), marks(output, &VERBOSE)].concat();
    seen.sort_unstable();
    let mut runs =
        incomplete_by(name_by(believed(closings, &seen, &marks(output, &STARTED)), output, &NAME), output, &BROKEN);
    let mut from = 0;
    for run in &mut runs {
        // Each failing subtest, and each error of a tear-down, has a separate heading.
        let text = &output[from..run.span.end];
        from = run.span.end;
        let headings: Vec<&str> = NAME
            .captures_iter(text)
            .filter_map(|found| Some(found.iter().skip(1).flatten().next()?.as_str()))
            .collect();
        let names: HashSet<&str> = headings.iter().copied().collect();
        let repeated = (headings.len() - names.len()) as u64;
        let Some((total, listed)) = CLOSE.captures_iter(&output[run.span.clone()]).last().map(summary) else {
            continue;
        };
        let failing = listed.failing.saturating_sub(repeated).max(listed.failing.min(names.len() as u64));
        let fixtures = names.iter().filter(|name| FIXTURE.is_match(name)).count() as u64;
        let tests = failing.saturating_sub(fixtures).min(total);
        let skipped = listed.skipped.min(total - tests);
        run.counts = Some(TestCounts { failing, ..of_total(total, tests, skipped) });
        run.extra = failing - tests;
    }
    let end = runs.last().map_or(0, |run| run.span.end);
    if let Some(started) = STARTED.find_at(output, end) {
        runs.push(TestRun::cut(started.range()));
    }
    runs
}
