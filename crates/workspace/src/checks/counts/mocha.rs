//! mocha.

use super::runs::{Closing, Runner, TestRun, add_names, believed, incomplete_by, marks};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "mocha",
    versions: "12.0.3",
    fixtures: "mocha",
    reads: "`  3 passing (7ms)` with `  2 pending` and `  1 failing`; the numbered list of failures. A failing `before` or \
            `beforeEach` hook, and a suite after which no closing line comes, make it incomplete. A failing hook is not a test.",
    read,
};

pattern!(CLOSE, r"^  (\d+) passing \(\d+(?:ms|s|m|h|d)\)$(?:\n  (\d+) pending$)?(?:\n  (\d+) failing$)?");
pattern!(MARK, r"^ {2,}(?:[✔✓√] |\d+\) )");
pattern!(DOTS, r"^  ([.!,]+)$");
pattern!(NAME, r"^  \d+\) (.+(?:\n {7,}.+){0,12}?):$");
pattern!(HOOK, r#"^ +\d+\) "before (?:all|each)" hook"#);

fn read(output: &str) -> Vec<TestRun> {
    let closing = |found: regex::Captures<'_>| {
        let counts = TestCounts { passing: number(&found, 1), failing: number(&found, 3), skipped: number(&found, 2) };
        let claimed = counts.passing.saturating_add(counts.failing);
        Some(Closing { span: found.get(0)?.range(), counts, claimed })
    };
    let mut seen = [marks(output, &MARK), marks(output, &DOTS)].concat();
    let names = names(output);
    // An entry of the list of failures is not a further test.
    seen.retain(|at| names.iter().all(|(listed, _)| listed != at));
    seen.sort_unstable();
    let mut runs = believed(CLOSE.captures_iter(output).filter_map(closing).collect(), &seen, &[]);
    add_names(&mut runs, names);
    for run in &mut runs {
        let hooks = run.failing.iter().filter(|name| name.contains("\" hook")).count() as u64;
        run.extra = hooks.min(run.counts.unwrap_or_default().failing);
    }
    incomplete_by(runs, output, &HOOK)
}

/// Returns the entries of the list of failures with their byte positions. In the output, each suite and the test are
/// on separate lines.
pub(super) fn names(output: &str) -> Vec<(usize, String)> {
    let name = |found: regex::Captures<'_>| {
        let parts: Vec<&str> = found[1].lines().map(str::trim).collect();
        Some((found.get(0)?.start(), parts.join(" > ")))
    };
    NAME.captures_iter(output).filter_map(name).collect()
}
