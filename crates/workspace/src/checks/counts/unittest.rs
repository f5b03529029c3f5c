//! Python's unittest, and runners with similar output: Django, nose2, trial, green.

use super::runs::{Closing, TestRun, believed, incomplete_by, marks, name_by};
use super::table::items;
use super::{Runner, number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "Python unittest, Django, nose2, trial, green",
    versions: "Python 3.11.7, Django 5.2.19, nose2 0.16.0, Twisted 26.10.0, green 4.0.2",
    fixtures: "unittest",
    reads: "`Ran 8 tests in …` and the line `OK`, `PASSED` or `FAILED (…)`; `FAIL:`, `ERROR:` and `UNEXPECTED SUCCESS:` headings. \
            Expected failures count as skipped, unexpected successes as failing. Modules and classes that could not be \
            set up make it incomplete.",
    read,
};

pattern!(
    CLOSE,
    r"^(?:-{70,79}\nRan (\d+) tests? in [\d.]+s|Ran (\d+) tests? in [\d.]+s using \d+ process(?:es)?)\n\n(?:OK|PASSED|FAILED|NO TESTS RAN)(?: \(([^)\n]*)\))?$"
);
pattern!(DOTS, r"^([.FEsxu]+)$");
pattern!(VERBOSE, r"^.* \(\S+\).* \.\.\. |^ok$|^ +\w+ \.\.\. +\[[A-Z]+\]$|^[.FEsxu] {3}\S");
pattern!(STARTED, r"^\w+ \([\w.]+\) \.\.\. ");
pattern!(NAME, r"^(?:(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\w+ \(.+)|(?:Failure|Error) in (\S+))$");
pattern!(BROKEN, r"^ERROR: (?:.*\((?:unittest\.loader\._FailedTest|nose2\.loader\.)|(?:setUp)(?:Class|Module) \()");

fn read(output: &str) -> Vec<TestRun> {
    let closings: Vec<Closing> = CLOSE
        .captures_iter(output)
        .filter_map(|found| {
            let total = number(&found, 1).saturating_add(number(&found, 2));
            let items = items(found.get(3).map_or("", |items| items.as_str()));
            let counts = of_total(total, items.failing, items.skipped);
            Some(Closing { span: found.get(0)?.range(), counts, claimed: total })
        })
        .collect();
    let mut seen = [marks(output, &DOTS), marks(output, &VERBOSE)].concat();
    seen.sort_unstable();
    let mut runs =
        incomplete_by(name_by(believed(closings, &seen, &marks(output, &STARTED)), output, &NAME), output, &BROKEN);
    let end = runs.last().map_or(0, |run| run.span.end);
    if let Some(started) = STARTED.find_at(output, end) {
        runs.push(TestRun::cut(started.range()));
    }
    runs
}
