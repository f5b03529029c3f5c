//! `deno test`.

use super::runs::{Closing, Runner, TestRun, believed, name_by};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "deno test",
    versions: "2.9.6",
    fixtures: "deno",
    reads: "`FAILED | 2 passed | 1 failed | 1 ignored (10ms)`, believed by the `running N tests from …` before it; the list \
            of failures. Steps are not tests.",
    read,
};

pattern!(START, r"^running (\d+) tests? from \S");
pattern!(
    CLOSE,
    r"^(?:ok|FAILED) \| (\d+) passed(?: \(\d+ steps?\))? \| (\d+) failed(?: \(\d+ steps?\))?(?: \| (\d+) ignored(?: \(\d+ steps?\))?)?(?: \| \d+ measured)?(?: \| \d+ filtered out)? \([^)\n]+\)$"
);
pattern!(NAME, r"^(.+) => \S+:\d+:\d+$");

fn read(output: &str) -> Vec<TestRun> {
    let announced = START.captures_iter(output).filter_map(|found| {
        let at = found.get(0)?.start();
        Some(std::iter::repeat_n(at, usize::try_from(number(&found, 1).min(100_000)).unwrap_or(0)))
    });
    let marks: Vec<usize> = announced.flatten().collect();
    let closing = |found: regex::Captures<'_>| {
        let counts = TestCounts { passing: number(&found, 1), failing: number(&found, 2), skipped: number(&found, 3) };
        let claimed = counts.passing.saturating_add(counts.failing).saturating_add(counts.skipped);
        Some(Closing { span: found.get(0)?.range(), counts, claimed })
    };
    let mut runs = believed(CLOSE.captures_iter(output).filter_map(closing).collect(), &marks, &marks);
    let end = runs.last().map_or(0, |run| run.span.end);
    if let Some(started) = START.find_at(output, end) {
        runs.push(TestRun::cut(started.range()));
    }
    name_by(runs, output, &NAME)
}
