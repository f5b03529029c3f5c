//! PHPUnit.

use super::runs::{Runner, TestRun, add_names, between};
use super::{number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "PHPUnit, ParaTest, Codeception",
    versions: "9.6.7",
    fixtures: "phpunit",
    reads: "`OK (2 tests, 2 assertions)` or `Tests: 9, Assertions: 5, Errors: 1, …` after the line with the version; the \
            numbered errors and failures. Incomplete tests count as skipped, risky ones as passing.",
    read,
};

pattern!(START, r"^(?:PHPUnit \d+\.\d+\S* by |ParaTest v\d|Codeception PHP Testing Framework v\d)");
pattern!(
    CLOSE,
    r"^(?:OK \((\d+) tests?, \d+ assertions?\)|(No tests executed!)|[A-Z][^\n]*!\nTests: (\d+), Assertions: \d+((?:, [A-Z][\w ]*: \d+)*)\.)$"
);
pattern!(ITEM, r"(Errors|Failures|Skipped|Incomplete): (\d+)");
pattern!(LISTED, r"^(?:There (?:was|were) \d+ (.+):|\d+\) (\S+::.+))$");

fn read(output: &str) -> Vec<TestRun> {
    let mut runs = between(output, &START, &CLOSE, |found| {
        let (mut failing, mut skipped) = (0u64, 0u64);
        for item in ITEM.captures_iter(found.get(4).map_or("", |items| items.as_str())) {
            let field = if matches!(&item[1], "Errors" | "Failures") { &mut failing } else { &mut skipped };
            *field = field.saturating_add(number(&item, 2));
        }
        Some(of_total(number(found, 1).saturating_add(number(found, 3)), failing, skipped))
    });
    let mut fails = false;
    let mut names = Vec::new();
    for found in LISTED.captures_iter(output) {
        if let Some(heading) = found.get(1) {
            fails = heading.as_str().starts_with("error") || heading.as_str().starts_with("failure");
        } else if let (true, Some(name)) = (fails, found.get(2)) {
            names.push((name.start(), name.as_str().to_owned()));
        }
    }
    add_names(&mut runs, names);
    runs
}
