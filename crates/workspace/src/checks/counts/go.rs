//! `go test` (plain, `-v`, `-json`) and gotestsum.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde_json::Value;

use super::runs::{Closing, Runner, TestRun, add_names, believed, incomplete_by, marks};
use super::{number, of_total, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "go test, gotestsum",
    versions: "go 1.19.8, gotestsum 1.8.2",
    fixtures: "go",
    reads: "with `-v` the `--- PASS:` lines of tests that have a `=== RUN` line, also of a compiled test binary, with `-json` the events, subtests as tests; \
            plain, where no tests are named, the packages (`ok`, `FAIL`), each as one; of gotestsum `DONE 10 tests, 1 skipped, 3 \
            failures`, with `--rerun-fails` the failures of the last run. A package that was not built, and a test without its end (panic), make it incomplete.",
    read,
};

pattern!(
    DONE,
    r"^DONE (?:(\d+) runs, )?(\d+) tests?(?:, (\d+) skipped)?(?:, (\d+) failures?)?(?:, (\d+) errors?)? in [\d.]+s$"
);
pattern!(PACKAGE, r"^(?:ok  |FAIL|\?   )\t\S");
pattern!(SUITE, r"^Running Suite: ");
pattern!(DONE_MARK, r"^(?:--- PASS: |PASS \S+\.\S+ \()");
pattern!(DONE_NAME, r"^=== FAIL: (\S+ .+?)(?: \(re-run (\d+)\))? \([\d.]+s\)$");
// A test whose result follows its own output in the same line.
pattern!(UNENDED, r"^=== FAIL: \S+ .+ \(unknown\)$");
pattern!(DONE_BROKEN, r"^DONE .*, \d+ errors? in|^panic: |^=== Errors$");
pattern!(
    LINE,
    r"^(?:.*?=== RUN +(\S+)|.*?--- (PASS|FAIL|SKIP): (\S+) \([\d.]+s\)|(ok  |FAIL|\?   )\t(\S+)(?:\t([\d.]+s|\(cached\)).*| (\[(?:build|setup) failed\]))|(panic: .*|PASS|FAIL))$"
);

fn read(output: &str) -> Vec<TestRun> {
    let mut closings = Vec::<Closing>::new();
    let mut attempts = Vec::<(usize, u64)>::new();
    let mut earlier = 0;
    for found in DONE.captures_iter(output) {
        let Some(span) = found.get(0).map(|line| line.range()) else { continue };
        let [attempt, total, skipped, failures] = [1, 2, 3, 4].map(|group| number(&found, group));
        // `DONE 2 runs` adds the repeated tests to the count of the previous line.
        let first = if attempt > 0 { closings.pop() } else { None };
        let from = attempts.last().map_or(0, |(end, _)| *end);
        attempts.push((span.end, attempt));
        closings.push(match first {
            Some(Closing { counts, claimed, .. }) => {
                Closing { span, counts: of_total(claimed, failures.saturating_sub(earlier), counts.skipped), claimed }
            }
            None => {
                let unended = UNENDED.find_iter(&output[from..span.start]).count() as u64;
                let counts = of_total(total, failures.saturating_sub(unended), skipped);
                Closing { span, counts, claimed: total }
            }
        });
        earlier = failures;
    }
    // A line before go's own last words was printed by a test.
    let packages = marks(output, &PACKAGE);
    let mut nexts =
        closings.iter().skip(1).map(|next| next.span.start).chain([output.len()]).collect::<Vec<_>>().into_iter();
    closings.retain(|closing| {
        let next = nexts.next().unwrap_or(output.len());
        packages.get(packages.partition_point(|at| *at < closing.span.end)).is_none_or(|package| *package > next)
    });
    let summaries = believed(closings, &marks(output, &DONE_MARK), &[]);
    let after = summaries.last().map_or(0, |last| last.span.end);
    let mut runs = incomplete_by(summaries, output, &DONE_BROKEN);
    add_names(&mut runs, names(output, &attempts));
    runs.extend(events(output, after));
    runs.extend(written(output, after));
    runs
}

/// Returns the tests that gotestsum lists as failed in the last of their runs, with their byte positions. `attempts` has the end
/// of each closing line and its number of runs.
fn names(output: &str, attempts: &[(usize, u64)]) -> Vec<(usize, String)> {
    let name = |found: regex::Captures<'_>| {
        let name = found.get(1)?;
        let next = attempts.partition_point(|(end, _)| *end < name.end());
        let last = attempts.get(next).is_none_or(|(_, attempt)| number(&found, 2) + 1 >= *attempt);
        last.then(|| (name.start(), name.as_str().to_owned()))
    };
    DONE_NAME.captures_iter(output).filter_map(name).collect()
}

/// Whether a line is an event of `go test -json`.
fn is_event(line: &str) -> bool {
    line.starts_with('{') && line.contains("\"Action\"")
}

/// Returns the run that the events of `go test -json` after byte `from` report.
fn events(output: &str, from: usize) -> Vec<TestRun> {
    let (mut counts, mut failing, mut open) =
        (TestCounts::default(), Vec::new(), HashMap::<String, HashSet<String>>::new());
    let (mut span, mut cut, mut at): (Option<Range<usize>>, bool, usize) = (None, false, from);
    for line in output[from..].split_inclusive('\n') {
        let start = at;
        at += line.len();
        if !is_event(line) {
            continue;
        }
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let text = |key: &str| event.get(key).and_then(Value::as_str);
        let Some(action) = text("Action") else { continue };
        let Some(package) = text("Package") else {
            cut |= action == "build-fail";
            continue;
        };
        span = Some(span.map_or(start, |span| span.start)..at);
        let Some(test) = text("Test") else {
            let broken =
                text("Output").is_some_and(|said| said.contains("[build failed]") || said.contains("[setup failed]"));
            cut |= broken;
            if action == "pass" {
                // The package passed, and so did each test whose result follows its own output in the same line.
                counts.passing += open.remove(package).map_or(0, |tests| tests.len() as u64);
            }
            continue;
        };
        match action {
            "run" => {
                open.entry(package.to_owned()).or_default().insert(test.to_owned());
            }
            "output" => cut |= text("Output").is_some_and(|said| said.starts_with("panic: ")),
            // A result of a test that never started was printed by another test.
            "pass" | "fail" | "skip" if !open.get_mut(package).is_some_and(|tests| tests.remove(test)) => {}
            "pass" => counts.passing += 1,
            "fail" => {
                counts.failing += 1;
                failing.push(format!("{package}.{test}"));
            }
            "skip" => counts.skipped += 1,
            _ => {}
        }
    }
    // Between its lines other runners may print: the span is the last line.
    let run = span.map(|span| {
        TestRun::closed(span.end - 1..span.end, counts)
            .incomplete_if(cut)
            .cut_if(open.values().any(|tests| !tests.is_empty()))
    });
    run.map(|run| TestRun { failing, ..run }).into_iter().collect()
}

/// Events of one package.
#[derive(Default)]
struct Package {
    /// Tests that started, each with the number of results that are still missing.
    open: HashMap<String, u64>,
    /// Number of results that are still missing.
    missing: u64,
    counts: TestCounts,
    failing: Vec<String>,
    panicked: bool,
    /// Whether a test binary reported that all tests passed.
    ended: bool,
}

impl Package {
    /// Adds a result. A result of a test that did not start was printed by another test. Without `-v`, only failures
    /// are printed, and no starts.
    fn add(&mut self, word: &str, test: &str) {
        if !self.open.is_empty() {
            let Some(open) = self.open.get_mut(test).filter(|open| **open > 0) else { return };
            *open -= 1;
            self.missing -= 1;
        }
        match word {
            "PASS" => self.counts.passing += 1,
            "SKIP" => self.counts.skipped += 1,
            _ => {
                self.counts.failing += 1;
                self.failing.push(test.to_owned());
            }
        }
    }
}

/// Returns the run in the text output of `go test` after byte `from`: with `-v` the tests of packages, otherwise the
/// packages.
fn written(output: &str, from: usize) -> Vec<TestRun> {
    let (mut counts, mut failing) = (TestCounts::default(), Vec::new());
    let (mut package, mut incomplete, mut end) = (Package::default(), false, None);
    let mut swallowed = Vec::new();
    for found in LINE.captures_iter(&output[from..]) {
        if is_event(&found[0]) {
            continue;
        }
        let line_end = found.get(0).map_or(from, |line| from + line.end());
        if let Some(test) = found.get(1) {
            package.ended = false;
            *package.open.entry(test.as_str().to_owned()).or_default() += 1;
            package.missing += 1;
            end = Some(line_end);
        } else if let (Some(word), Some(test)) = (found.get(2), found.get(3)) {
            package.add(word.as_str(), test.as_str());
        } else if let (Some(word), Some(path)) = (found.get(4), found.get(5)) {
            let (verbose, unbuilt) = (!package.open.is_empty(), found.get(7).is_some());
            let passed = word.as_str() == "ok  ";
            // Within the output of a package that did not end yet, `ok` was printed by a test.
            if word.as_str() == "?   " || passed && (package.missing > 0 || !verbose && !package.failing.is_empty()) {
                continue;
            }
            if !verbose && !passed {
                // Go shows the output of tests only if they fail: this is not a separate run, such as Ginkgo's.
                let printed = SUITE.find_at(&output[..line_end], end.unwrap_or(from)).map(|suite| suite.start());
                swallowed.extend(printed.map(|start| TestRun::closed(start..line_end, TestCounts::default())));
            }
            if verbose {
                counts = counts.plus(package.counts);
            } else if passed {
                // A filter that matches nothing in the package.
                let ran = !found[0].contains("[no tests to run]");
                counts.passing += u64::from(ran);
            } else if !unbuilt {
                counts.failing += 1;
            }
            // Tests of a package that passed may print `panic: `.
            incomplete |= unbuilt || verbose && !passed && (package.missing > 0 || package.panicked);
            failing.extend(package.failing.drain(..).map(|test| format!("{}.{test}", path.as_str())));
            package = Package::default();
            end = Some(line_end);
        } else if let Some(line) = found.get(8) {
            package.panicked |= line.as_str().starts_with("panic: ");
            // The last line of a compiled test binary, before which all of its tests ended.
            package.ended = line.as_str() == "PASS" && package.missing == 0;
        }
    }
    // The last package has no line: the run was cut short, unless `go test` did not start it.
    let cut = !package.open.is_empty() && !package.ended;
    counts = counts.plus(package.counts);
    failing.append(&mut package.failing);
    // Between its lines other runners may print: the span is the end of the last line.
    let run = end.map(|end| TestRun::closed(end - 1..end, counts).incomplete_if(incomplete).cut_if(cut));
    swallowed.into_iter().chain(run.map(|run| TestRun { failing, ..run })).collect()
}
