//! Python's unittest, and runners with the same output: Django, nose2.

use super::runs::{Closing, TestRun, believed, incomplete_by, marks, name_by};
use super::{Runner, number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "Python unittest, Django, nose2",
    versions: "Python 3.11.7, Django 5.2.19, nose2 0.16.0",
    fixtures: "unittest",
    reads: "`Ran 8 tests in …` and the line `OK` or `FAILED (…)`; `FAIL:`, `ERROR:` and `UNEXPECTED SUCCESS:` headings. \
            Expected failures count as skipped, unexpected successes as failing. Modules and classes that could not be \
            set up make it incomplete.",
    read,
};

pattern!(CLOSE, r"^-{70}\nRan (\d+) tests? in [\d.]+s\n\n(?:OK|FAILED|NO TESTS RAN)(?: \(([^)\n]*)\))?$");
pattern!(ITEM, r"(failures|errors|skipped|expected failures|unexpected successes)=(\d+)");
pattern!(DOTS, r"^([.FEsxu]+)$");
pattern!(VERBOSE, r"^.* \(\S+\).* \.\.\. |^ok$");
pattern!(STARTED, r"^\w+ \([\w.]+\) \.\.\. ");
pattern!(NAME, r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\w+ \(.+)$");
pattern!(BROKEN, r"^ERROR: (?:.*\((?:unittest\.loader\._FailedTest|nose2\.loader\.)|(?:setUp)(?:Class|Module) \()");

fn read(output: &str) -> Vec<TestRun> {
    let closings: Vec<Closing> = CLOSE
        .captures_iter(output)
        .filter_map(|found| {
            let (total, mut failing, mut skipped) = (number(&found, 1), 0u64, 0u64);
            for item in ITEM.captures_iter(found.get(2).map_or("", |items| items.as_str())) {
                let field =
                    if matches!(&item[1], "skipped" | "expected failures") { &mut skipped } else { &mut failing };
                *field = field.saturating_add(number(&item, 2));
            }
            Some(Closing { span: found.get(0)?.range(), counts: of_total(total, failing, skipped), claimed: total })
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
