//! jest.

use super::runs::{Closing, Runner, TestOutcome, TestRun, believed, incomplete_by, marks, name_by};
use super::{number, pattern, tally};

pub(super) const RUNNER: Runner = Runner {
    name: "jest",
    versions: "30.5.2",
    fixtures: "jest",
    reads: "`Test Suites: …` and `Tests: 1 failed, 2 passed, 3 total`; `●` headings. A suite that failed to run, a test \
            that ended the process, and a crash of Node.js make it incomplete. Todo counts as skipped.",
    read,
};

pattern!(CLOSE, r"^Test Suites: (?:\d+ [a-z]+, )*(?:\d+ of )?(\d+) total\nTests: +((?:\d+ [a-z]+, )*)\d+ total$");
pattern!(SUITE, r"^(?:PASS|FAIL) \S");
pattern!(BROKEN, r"^  ● Test suite failed to run$");
pattern!(NAME, r"^  ● (.+)$");

fn read(output: &str) -> Vec<TestRun> {
    let closing = |found: regex::Captures<'_>| {
        let counts = tally(found[2].split(", "), place);
        Some(Closing { span: found.get(0)?.range(), counts, claimed: number(&found, 1) })
    };
    let suites = marks(output, &SUITE);
    let runs = believed(CLOSE.captures_iter(output).filter_map(closing).collect(), &suites, &suites);
    let mut runs = incomplete_by(name_by(runs, output, &NAME), output, &BROKEN);
    for run in &mut runs {
        run.failing.retain(|name| name != "Test suite failed to run" && name != "Console");
    }
    runs
}

pub(super) fn place(word: &str) -> Option<TestOutcome> {
    match word {
        "passed" => Some(TestOutcome::Passing),
        "failed" => Some(TestOutcome::Failing),
        "skipped" | "todo" | "todos" | "pending" | "incomplete" | "expected fail" => Some(TestOutcome::Skipped),
        _ => None,
    }
}
