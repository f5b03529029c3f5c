//! `prove` of Perl's Test::Harness.

use super::runs::{Runner, TestRun};
use super::{number, of_total, pattern};

pub(super) const RUNNER: Runner = Runner {
    name: "prove",
    versions: "3.44",
    fixtures: "prove",
    reads: "`Files=2, Tests=7, …` with `Result:`; failures and the names of files from the report of each file. A file with \
            a bad plan makes it incomplete.",
    read,
};

pattern!(CLOSE, r"^Files=\d+, Tests=(\d+), .*\nResult: (?:PASS|FAIL|NOTESTS)$");
pattern!(FIRST, r"^\S+ \.{2,} ?");
pattern!(FILE, r"^(\S+) +\(Wstat: (\d+).* Tests: \d+ Failed: (\d+)\)$");
pattern!(FAILED, r"^  Failed tests?:  (.+)$");
pattern!(SKIPPED, r"\(less (\d+) skipped subtests?: ");
pattern!(SKIPPED_LINE, r"^ok \d+ .*# (?i:skip)");
pattern!(BROKEN, r"^  Parse errors: ");

fn read(output: &str) -> Vec<TestRun> {
    let mut from = 0;
    let mut runs = Vec::new();
    for found in CLOSE.captures_iter(output) {
        let Some(closing) = found.get(0) else { continue };
        let text = &output[from..closing.end()];
        let start = FIRST.find(text).map_or(closing.start(), |first| from + first.start());
        let skipped = SKIPPED.captures_iter(text).map(|found| number(&found, 1)).fold(0, u64::saturating_add);
        // With `-v`, files that pass have only these.
        let skipped = skipped.max(SKIPPED_LINE.find_iter(&output[start..closing.end()]).count() as u64);
        let (mut failing, mut names) = (0u64, Vec::new());
        for file in FILE.captures_iter(text) {
            failing = failing.saturating_add(number(&file, 3));
            let below = file.get(0).map_or("", |line| &text[line.end()..]);
            let tests = below.lines().nth(1).and_then(|line| FAILED.captures(line).map(|tests| tests[1].to_owned()));
            match tests {
                Some(tests) => names.extend(tests.split(',').map(|test| format!("{} test {}", &file[1], test.trim()))),
                None if number(&file, 2) > 0 => names.push(file[1].to_owned()),
                None => {}
            }
        }
        let mut run = TestRun::closed(start..closing.end(), of_total(number(&found, 1), failing, skipped));
        run.failing = names;
        runs.push(run.incomplete_if(BROKEN.is_match(text)));
        from = closing.end();
    }
    runs
}
