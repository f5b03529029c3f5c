//! The test runner of Node.js.

use super::runs::{Closing, Runner, TestRun, add_names, believed, incomplete_by, marks};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "node:test",
    versions: "Node.js 20.20.2",
    fixtures: "node",
    reads: "the closing block from `# tests 5` to `# todo 1`, in TAP and with `ℹ`; `not ok` lines and the list of failing \
            tests. Cancelled counts as failing, todo as skipped. A file that did not end by itself makes it incomplete.",
    read,
};

pattern!(
    CLOSE,
    r"^[#ℹ] tests (\d+)\n(?:[#ℹ] suites (\d+)\n)?[#ℹ] pass (\d+)\n[#ℹ] fail (\d+)\n[#ℹ] cancelled (\d+)\n[#ℹ] skipped (\d+)\n[#ℹ] todo (\d+)$"
);
pattern!(START, r"^TAP version 13$");
pattern!(MARK, r"^ *(?:✔|✖|﹣|⚠) |^ *(?:not )?ok \d");
pattern!(NOT_OK, r"^ *not ok \d+ - (.+)$");
pattern!(LISTED, r"^✖ (.+?)(?: \([\d.]+ms\))?$");
pattern!(BROKEN, r"^ *(?:exitCode: [1-9]|'test failed'$)");

/// Line above the list of failing tests.
const HEADING: &str = "\n✖ failing tests:\n";

fn read(output: &str) -> Vec<TestRun> {
    let closing = |found: regex::Captures<'_>| {
        let counts = TestCounts {
            passing: number(&found, 3),
            failing: number(&found, 4).saturating_add(number(&found, 5)),
            skipped: number(&found, 6).saturating_add(number(&found, 7)),
        };
        Some(Closing { span: found.get(0)?.range(), counts, claimed: number(&found, 1) })
    };
    let closings: Vec<Closing> = CLOSE.captures_iter(output).filter_map(closing).collect();
    if closings.is_empty() {
        return Vec::new();
    }
    let mut runs = believed(closings, &marks(output, &MARK), &marks(output, &START));
    add_names(&mut runs, names(output));
    incomplete_by(runs, output, &BROKEN)
}

fn names(output: &str) -> Vec<(usize, String)> {
    let in_tap = NOT_OK.captures_iter(output).filter_map(|found| {
        let at = found.get(0)?;
        let after = output[at.end()..].lines().take(9);
        let suite = after.take_while(|line| line.trim() != "...").any(|line| line.contains("subtestsFailed"));
        let todo = found[1].contains(" # TODO") || found[1].contains(" # SKIP");
        (!suite && !todo).then(|| (at.start(), found[1].to_owned()))
    });
    let listed = output.match_indices(HEADING).flat_map(|(at, heading)| {
        let from = at + heading.len();
        let list = output[from..].split(HEADING).next().unwrap_or_default();
        let name = |found: regex::Captures<'_>| Some((from + found.get(0)?.start(), found[1].to_owned()));
        LISTED.captures_iter(list).filter_map(name).collect::<Vec<_>>()
    });
    in_tap.chain(listed).collect()
}
