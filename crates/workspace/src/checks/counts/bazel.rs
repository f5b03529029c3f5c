//! `bazel test`.

use super::runs::{Runner, TestRun, between, name_by};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "Bazel",
    versions: "4.2.3; newer forms from documentation",
    fixtures: "bazel",
    reads: "`Executed 2 out of 4 tests: 2 tests pass, 1 fails locally and 1 was skipped.`, which counts targets; the lines of \
            failed targets. Output of the tests belongs to Bazel. A target that was not built makes it \
            incomplete.",
    read,
};

pattern!(START, r"^(?:INFO: )?Analyzed (?:\d+ targets|target )");
pattern!(CLOSE, r"^Executed \d+ out of \d+ tests?: (.+)\.$");
pattern!(ITEM, r"(\d+) (?:tests? )?(pass|fail|was skipped|were skipped)[a-z]*( to build)?");
pattern!(NAME, r"^(//\S+|@\S+) +(?:\(.+\) )?(?:FAILED|TIMEOUT|FLAKY)\b");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| {
        let mut counts = TestCounts::default();
        for item in ITEM.captures_iter(&found[1]) {
            let field = match &item[2] {
                "pass" => &mut counts.passing,
                "fail" => &mut counts.failing,
                _ => &mut counts.skipped,
            };
            *field = field.saturating_add(number(&item, 1));
        }
        Some(counts)
    });
    for run in &mut runs {
        let closing = output[run.span.clone()].lines().last().unwrap_or_default();
        run.incomplete |= closing.contains("to build") || closing.contains("skipped");
    }
    name_by(runs, output, &NAME)
}
