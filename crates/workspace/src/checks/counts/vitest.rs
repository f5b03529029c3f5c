//! Vitest.

use super::crash::reports_none;
use super::jest::place;
use super::runs::{Runner, TestRun, between, name_by};
use super::{pattern, tally};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "Vitest",
    versions: "4.1.12",
    fixtures: "vitest",
    reads: "`Test Files …` and `Tests  1 failed | 2 passed | 1 skipped (4)` after ` RUN `; `FAIL` headings; the innermost lines of the TAP \
            reporter. A failed suite makes it incomplete. Todo counts as skipped.",
    read,
};

pattern!(START, r"^ *(?:RUN|DEV) +v\d");
pattern!(CLOSE, r"^ +Test Files  .+\n +Tests  (\d+ [a-z ]+(?: \| \d+ [a-z ]+)*|no tests)(?: \(\d+\))?$");
pattern!(BROKEN, r"^⎯+ (?:Failed Suites \d+|Unhandled Errors?) ⎯+$");
pattern!(NAME, r"^ FAIL  (.+ > .+)$");

// With `--reporter=tap`, the lines of files and suites end with a brace; the lines of their tests follow.
pattern!(TAP, r"^TAP version 13\n1\.\.\d+\n(?:(?:not )?ok \d+ - .+ # time=[\d.]+ms \{\n(?:    .*\n)*\}(?:\n|\z))+");
pattern!(TAP_LINE, r"^ *(?:(not )?ok \d+ - (.+?)(?: # (?:time=[\d.]+ms|((?i)skip|todo)\b.*?))?( \{)?|(\}))$");

/// Returns the runs of the TAP reporter.
fn in_tap(output: &str) -> impl Iterator<Item = TestRun> {
    TAP.find_iter(output).map(|document| {
        let mut counts = TestCounts::default();
        let mut failing = Vec::new();
        let mut suites = Vec::new();
        for found in TAP_LINE.captures_iter(document.as_str()) {
            let name = found.get(2).map_or("", |name| name.as_str());
            if found.get(5).is_some() {
                suites.pop();
            } else if found.get(4).is_some() {
                suites.push(name);
            } else if found.get(3).is_some() {
                counts.skipped += 1;
            } else if found.get(1).is_none() {
                counts.passing += 1;
            } else {
                counts.failing += 1;
                failing.push([suites.as_slice(), &[name]].concat().join(" > "));
            }
        }
        TestRun { failing, ..TestRun::closed(document.range(), counts) }
    })
}

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| Some(tally(found[1].split(" | "), place)));
    let ends: Vec<usize> = runs.iter().skip(1).map(|run| run.span.start).chain([output.len()]).collect();
    let mut ends = ends.into_iter();
    runs.retain(|run| {
        let end = ends.next().unwrap_or(output.len()).max(run.span.end);
        run.counts.is_some() || !reports_none(&output[run.span.end..end])
    });
    for run in &mut runs {
        run.incomplete |= BROKEN.is_match(&output[run.span.clone()]);
    }
    let mut runs = name_by(runs, output, &NAME);
    runs.extend(in_tap(output));
    runs
}
