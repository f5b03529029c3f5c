//! Playwright Test.

use super::runs::{Runner, TestRun, name_by};
use super::{number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "Playwright Test",
    versions: "1.65.1",
    fixtures: "playwright",
    reads: "`Running 6 tests using …` and the closing lines (`2 failed`, `1 flaky`, `2 skipped`, `2 passed (1.9s)`), which \
            must not add up to more; the list below `failed`. Flaky counts as passing, interrupted as failing. Tests that \
            did not run make it incomplete and count as skipped.",
    read,
};

pattern!(START, r"^Running (\d+) tests? using \d+ workers?");
pattern!(CLOSE, r"^  (\d+) (failed|flaky|skipped|did not run|passed|interrupted)(?: \([\d.]+m?[sh]?\))?$");
pattern!(PLACE, r":\d+:\d+ › ");
pattern!(NAME, r"^    (\S.* › .+?)(?: ─+)?$");

fn read(output: &str) -> Vec<TestRun> {
    let starts: Vec<_> =
        START.captures_iter(output).filter_map(|found| Some((found.get(0)?.range(), number(&found, 1)))).collect();
    let ends = starts.iter().skip(1).map(|(span, _)| span.start).chain([output.len()]);
    let runs = starts.iter().zip(ends).map(|((start, announced), to)| {
        let (mut last, mut end) = ([None; 6], None);
        for found in CLOSE.captures_iter(&output[start.start..to]) {
            let at = ["passed", "flaky", "failed", "interrupted", "skipped", "did not run"]
                .iter()
                .position(|word| *word == &found[2]);
            if let Some(at) = at {
                last[at] = Some(number(&found, 1));
                end = found.get(0).map(|line| start.start + line.end());
            }
        }
        let Some(end) = end else { return TestRun::cut(start.clone()) };
        let [passed, flaky, failed, interrupted, skipped, not_run] = last.map(Option::unwrap_or_default);
        let (failing, skipped) = (failed.saturating_add(interrupted), skipped.saturating_add(not_run));
        let most = of_total(*announced, failing, skipped);
        let passing = passed.saturating_add(flaky).min(most.passing);
        let seen = passing.saturating_add(failing).saturating_add(skipped);
        TestRun::closed(start.start..end, crate::domain::model::task::TestCounts { passing, failing, skipped })
            .incomplete_if(not_run > 0 || interrupted > 0 || seen < *announced)
    });
    let mut runs: Vec<TestRun> = runs.collect();
    // Names stand below `failed`, `flaky` or `interrupted`.
    let text = output.split_inclusive('\n');
    let (mut at, mut below, mut names) = (0, false, String::with_capacity(output.len()));
    for line in text {
        if let Some(found) = CLOSE.captures(line.trim_end_matches('\n')) {
            below = matches!(&found[2], "failed" | "interrupted");
        } else if !line.starts_with("    ") {
            below = false;
        }
        names.push_str(if below { line } else { "" });
        at += line.len();
        while names.len() < at {
            names.push('\n');
        }
    }
    runs = name_by(runs, &names, &NAME);
    for name in runs.iter_mut().flat_map(|run| &mut run.failing) {
        *name = PLACE.replace(name, " › ").into_owned();
    }
    runs
}
