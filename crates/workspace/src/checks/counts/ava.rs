//! AVA.

use super::runs::{Closing, Runner, TestOutcome, TestRun, believed, marks, name_by};
use super::{pattern, tally};

pub(super) const RUNNER: Runner = Runner {
    name: "AVA",
    versions: "7.0.0",
    fixtures: "ava",
    reads: "the closing lines after the rule (`2 tests passed`, `1 test failed`, …); where some failed, the passing ones \
            are the lines with `✔`; `✘ [fail]:` lines. Known failures and todo count as skipped. An uncaught exception or \
            a process that ended early makes it incomplete.",
    read,
};

pattern!(
    CLOSE,
    r"^  ─$\n\n((?:  \d+ (?:tests? passed|tests? failed|known failures?|tests? skipped|tests? todo|uncaught exceptions?|unhandled rejections?|tests? remained pending.*)(?:\n|\z))+)"
);
pattern!(MARK, r"^  (?:✔|✘) ");
pattern!(PASSED, r"^  ✔ (?:[^\[\n]|\[[^e])");
pattern!(NAME, r"^  ✘ \[fail\]: (.+?)(?: \([\d.]+m?s\))?$");
pattern!(
    BROKEN,
    r"uncaught exception|unhandled rejection|remained pending|exited with a non-zero exit code|Exiting due to"
);

fn read(output: &str) -> Vec<TestRun> {
    let closing = |found: regex::Captures<'_>| {
        let counts = tally(found[1].lines(), |word| match word {
            "test passed" | "tests passed" => Some(TestOutcome::Passing),
            "test failed" | "tests failed" => Some(TestOutcome::Failing),
            "known failure" | "known failures" | "test skipped" | "tests skipped" | "test todo" | "tests todo" => {
                Some(TestOutcome::Skipped)
            }
            _ => None,
        });
        let claimed = counts.passing.saturating_add(counts.failing);
        Some(Closing { span: found.get(0)?.range(), counts, claimed })
    };
    let mut runs = believed(CLOSE.captures_iter(output).filter_map(closing).collect(), &marks(output, &MARK), &[]);
    let mut from = 0;
    for run in &mut runs {
        let text = &output[from..run.span.end];
        from = run.span.end;
        run.incomplete |= BROKEN.is_match(text);
        if let Some(counts) = run.counts.as_mut().filter(|counts| counts.failing > 0 && counts.passing == 0) {
            counts.passing = PASSED.find_iter(text).count() as u64;
        }
    }
    name_by(runs, output, &NAME)
}
