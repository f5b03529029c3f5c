//! Evidence in a test runner's report against exit code 0. For example, the program under test can end the test runner with
//! exit code 0, or a filter can match no test. The exit code decides, but a test command that reports zero tests does not
//! pass. Other evidence counts only if earlier reports of the same command in this loop agreed with its exit code.

use std::sync::LazyLock;

use regex::Regex;

use crate::domain::model::task::{Check, CheckRule, TestResults};

/// Words in commands that run tests.
const TEST_WORDS: [&str; 20] = [
    "test", "tests", "spec", "specs", "pytest", "unittest", "nose2", "tox", "nox", "jest", "vitest", "mocha", "ava",
    "rspec", "phpunit", "pest", "ctest", "nextest", "bats", "prove",
];
/// Parts of commands that run no tests, or that may validly run no tests.
const RUNS_NONE: [&str; 13] = [
    "passWithNoTests",
    "pass-with-no-tests",
    "allow-no-tests",
    "no-tests=pass",
    "no-tests=warn",
    "no-tests=ignore",
    "no-tests pass",
    "no-tests warn",
    "--no-run",
    "--collect-only",
    "--list",
    "-bench",
    " bench",
];
/// Continuation after a failure that preserves the failure: `|| exit 1`, `|| { echo failed; exit 1; }`.
static KEEPS_FAILURE: LazyLock<Regex> = LazyLock::new(|| {
    let end = r"\s*(?:[;&|)}\n]|$)";
    let leaves = r"(?:exit|return)(?:\s+(?:[1-9]\d*|\$\?))?";
    Regex::new(&format!(r"\|\|\s*(?:\{{[^{{}}]*\b{leaves}\s*;?\s*\}}|(?:{leaves}|false){end})"))
        .expect("constant pattern")
});
/// Shell syntax that derives a command's exit code from the exit code of a test run, and options that ignore failures.
static OWN_RESULT: LazyLock<Regex> = LazyLock::new(|| {
    let ignores = r"test\.failure\.ignore|testFailureIgnore|ignoreFailures";
    Regex::new(&format!(r"\|\||\$\?|PIPESTATUS|\bbreak\b|(?:^|[\s;&|(])(?:!|if|while|until)\s|{ignores}"))
        .expect("constant pattern")
});
/// Plain call of a test runner that always reports its tests, without another command before or after it.
static REPORTS: LazyLock<Regex> = LazyLock::new(|| {
    let prefix = r"(?:\w+=\S*\s+)*(?:(?:env|time|uv run|poetry run|pipenv run|npx|pnpm exec|yarn|coverage run -m|python[\d.]* -m)\s+)*";
    let runner = r"(?:unittest|pytest|py\.test|cargo (?:test|t)|node --test|jest|vitest run|mocha)";
    let arguments = r"(?:\s[^<>|&;]*)?";
    Regex::new(&format!(r"^\s*{prefix}{runner}{arguments}(?:2>&1\s*)?$")).expect("constant pattern")
});
/// Options of such a call that replace the runner's usual output.
static REPORTS_OTHERWISE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\s(?:-qq|--json\S*|--format\S*|-R|--reporters?\S*|--test-reporter\S*|--co|--help|--version)(?:\s|$)")
        .expect("constant pattern")
});

/// Returns the plural unit that the command's test runner counts. It is usually "tests", but Bazel counts targets, and `go
/// test` without `-v` counts packages.
pub fn counted_unit(command: &str) -> &'static str {
    static PACKAGES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bgo test\b").expect("constant pattern"));
    static NAMES_TESTS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\s-{1,2}(?:test\.)?(?:v|json)\b|\bgotestsum\b").expect("constant pattern"));
    static TARGETS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\bbazel(?:isk)?\s(?:.*\s)?test\b").expect("constant pattern"));
    if TARGETS.is_match(command) {
        "targets"
    } else if PACKAGES.is_match(command) && !NAMES_TESTS.is_match(command) {
        "packages"
    } else {
        "tests"
    }
}

/// Returns the glob of the JUnit file or JSON report that one of the command's options makes it write. `None` if no option is
/// known.
pub fn written_report(command: &str) -> Option<String> {
    static OPTION: LazyLock<Regex> = LazyLock::new(|| {
        let option = r"--?(?:junit-?xml|junit-?file|log-junit|gtest_output|output-?file(?:\.\w+)?|json-report-file)";
        Regex::new(&format!(r#"(?i)\s{option}(?:=xml:|=|\s+)["']?(?:\./)?([\w-][\w./-]*\.(?:xml|json))\b"#))
            .expect("constant pattern")
    });
    let path = OPTION.captures(command)?[1].to_owned();
    (!path.split('/').any(|part| part == "..")).then(|| format!("**/{path}"))
}

/// Returns the reason why a test command that exited with code 0 does not pass: its runner reports that no tests ran. `None`
/// if tests ran, or if part of the output was not understood.
pub fn ran_none(check: &Check, tests: &TestResults) -> Option<String> {
    let command = judged_command(check)?;
    let counts = tests.counts.filter(|counts| counts.passing == 0 && counts.failing == 0)?;
    let unknown = tests.unread || tests.cut || tests.incomplete;
    if unknown || !runs_tests(&command) || may_run_none(&command) {
        return None;
    }
    let skipped = if counts.skipped == 0 { String::new() } else { format!(" ({} skipped)", counts.skipped) };
    Some(format!("exit code 0, but it ran no tests{skipped}"))
}

/// Whether a command runs no tests, or may validly run no tests.
pub fn may_run_none(command: &str) -> bool {
    RUNS_NONE.iter().any(|part| command.contains(part))
}

/// Returns the evidence in the output against exit code 0: a test failed, a run ended early, or a known runner reports
/// nothing. A summary that was not understood may belong to a run that seems to have ended early.
pub fn objection(check: &Check, tests: &TestResults) -> Option<String> {
    let command = judged_command(check)?;
    let failing = tests.counts.unwrap_or_default().failing;
    if failing > 0 {
        let plural = if failing == 1 { "" } else { "s" };
        return Some(format!("exit code 0, but the output reports {failing} failed test{plural}"));
    }
    if tests.unread {
        return None;
    }
    if tests.cut {
        return Some("exit code 0, but a test run ended before its summary".to_owned());
    }
    (tests.counts.is_none() && calls_reporting_runner(&command))
        .then(|| "exit code 0, but the output reports no tests".to_owned())
}

/// Whether the counted tests agree with the command's exit code, which shows that its output was understood.
pub fn understood(exit_code: Option<i32>, tests: &TestResults) -> bool {
    let counts = tests.counts.filter(|counts| counts.passing + counts.failing > 0 && !tests.cut);
    counts.is_some_and(|counts| exit_code.is_some_and(|code| (code == 0) == (counts.failing == 0)))
}

/// Returns the command of a check that passes by exit code 0. `None` if the check has another rule, or if the command itself
/// derives its exit code from the tests.
fn judged_command(check: &Check) -> Option<String> {
    let by_exit_code = matches!(check.rule, CheckRule::ExitCode | CheckRule::Coverage { .. });
    let command = KEEPS_FAILURE.replace_all(&check.command, ";");
    (by_exit_code && !OWN_RESULT.is_match(&command)).then(|| command.into_owned())
}

/// Whether exit code 0 of a check's command means that the tests passed: the check has no other rule, and the command does not
/// derive its exit code from the tests itself.
pub fn passes_by_exit_code(check: &Check) -> bool {
    judged_command(check).is_some()
}

/// Whether a part of a command is a plain call of a test runner that always reports its tests.
fn calls_reporting_runner(command: &str) -> bool {
    let mut parts = command.split("&&").flat_map(|part| part.split([';', '\n']));
    parts.any(|part| REPORTS.is_match(part) && !REPORTS_OTHERWISE.is_match(part))
}

/// Whether a command runs tests. The shell builtin `test` does not count.
fn runs_tests(command: &str) -> bool {
    let separators = |c: char| matches!(c, ';' | '&' | '|' | '(' | ')' | '{' | '}' | '\n');
    command.split(separators).any(|simple| {
        let mut words = simple.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
        let first = words.next().filter(|first| *first != "test");
        let alias = matches!(first, Some("cargo" | "npm")) && words.clone().next() == Some("t");
        let names = |word: &str| word.split(|c: char| !c.is_alphanumeric()).any(|part| TEST_WORDS.contains(&part));
        // The arguments of `test` are values.
        first.is_some() && (alias || first.into_iter().chain(words).any(names))
    })
}

#[cfg(test)]
mod tests {
    use super::super::plain;
    use super::*;
    use crate::domain::model::ids::Percent;
    use crate::domain::model::task::{CheckSource, TestCounts};

    fn counted(passing: u64, failing: u64, skipped: u64) -> TestResults {
        TestResults { counts: Some(TestCounts { passing, failing, skipped }), ..TestResults::default() }
    }

    fn cut(counts: Option<TestCounts>) -> TestResults {
        TestResults { counts, incomplete: true, cut: true, ..TestResults::default() }
    }

    fn why(command: &str, tests: &TestResults) -> String {
        objection(&plain(command, CheckSource::Command), tests).unwrap_or_default()
    }

    fn none(command: &str, tests: &TestResults) -> String {
        ran_none(&plain(command, CheckSource::Command), tests).unwrap_or_default()
    }

    #[test]
    fn failing_tests_contradict_the_exit_code_of_any_command() {
        let one = "exit code 0, but the output reports 1 failed test";
        for command in
            ["make all", "pytest | tee log", "cd app && npm test || exit 1", "./ci.sh || { echo no; exit 2; }"]
        {
            assert_eq!(why(command, &counted(5, 1, 0)), one, "{command}");
        }
        assert_eq!(why("sh ci.sh", &counted(5, 2, 0)), "exit code 0, but the output reports 2 failed tests");
        assert_eq!(why("make all", &counted(5, 0, 3)), "");
        let own = [
            "pytest || pytest --lf",
            "! cargo test",
            "make x || exit 0",
            "pytest; [ $? -eq 5 ]",
            "if pytest; then :; fi",
            "for _ in 1 2 3; do pytest && break; done",
        ];
        for command in own.into_iter().chain(["mvn -Dmaven.test.failure.ignore=true verify"]) {
            assert_eq!(why(command, &counted(5, 1, 0)), "", "{command}");
        }
        let count =
            CheckRule::Count { pattern: r"(\d+) failed".into(), at_least: None, at_most: Some(3.0), any_exit: true };
        let by_number = Check { rule: count, ..plain("pytest", CheckSource::Command) };
        assert_eq!(objection(&by_number, &counted(5, 1, 0)), None);
        let coverage = CheckRule::Coverage { pattern: r"(\d+)%".into(), min: Percent(80.0) };
        let covered = Check { rule: coverage, ..plain("make cov", CheckSource::Command) };
        assert_eq!(objection(&covered, &counted(5, 1, 0)).as_deref(), Some(one));
    }

    #[test]
    fn only_an_incomplete_run_contradicts_the_exit_code() {
        let early = "exit code 0, but a test run ended before its summary";
        assert_eq!(why("npm test", &cut(None)), early);
        assert_eq!(why("make all", &cut(Some(TestCounts { passing: 3, ..TestCounts::default() }))), early);
        assert_eq!(why("npm test || true", &cut(None)), "");
        let stopped = TestResults { incomplete: true, ..counted(3, 0, 2) };
        assert_eq!(why("npm test", &stopped), "", "its summary was printed");
        assert_eq!(why("pytest", &TestResults { unread: true, ..cut(None) }), "", "another summary was printed");
    }

    #[test]
    fn report_that_agrees_with_exit_code_is_recognized() {
        let of = |exit, tests: &TestResults| understood(Some(exit), tests);
        assert!(of(0, &counted(3, 0, 1)) && of(1, &counted(3, 1, 0)) && of(101, &counted(0, 1, 0)));
        assert!(!of(0, &counted(3, 1, 0)), "the exit code ignores failures");
        assert!(!of(1, &counted(3, 0, 0)) && !of(0, &counted(0, 0, 2)) && !of(0, &TestResults::default()));
        assert!(!of(1, &cut(Some(TestCounts { failing: 1, ..TestCounts::default() }))));
        assert!(!understood(None, &counted(3, 1, 0)), "a signal ended it");
    }

    #[test]
    fn test_command_without_tests_does_not_pass() {
        let no_tests = "exit code 0, but it ran no tests";
        for command in [
            "cargo test negates",
            "make test",
            "./scripts/run-tests.sh x",
            "npm t",
            "ctest -R x",
            "python3 -m unittest",
        ] {
            assert_eq!(none(command, &counted(0, 0, 0)), no_tests, "{command}");
        }
        assert_eq!(none("npx vitest run -t x", &counted(0, 0, 7)), "exit code 0, but it ran no tests (7 skipped)");
        let others =
            ["make ci", "cargo bench", "cargo test --no-run", "jest --passWithNoTests", "test -f spec && make"];
        for command in others {
            assert_eq!(none(command, &counted(0, 0, 0)), "", "{command}");
        }
        let unread = TestResults { unread: true, ..counted(0, 0, 0) };
        assert_eq!(none("cargo test", &unread), "", "another runner may have run tests");
    }

    #[test]
    fn options_name_the_written_report() {
        let cases = [
            ("pytest --junitxml=reports/a.xml -q", Some("**/reports/a.xml")),
            ("pytest --junit-xml ./out.xml", Some("**/out.xml")),
            ("vendor/bin/phpunit --log-junit 'build/x.xml'", Some("**/build/x.xml")),
            ("./sums --gtest_output=xml:sums.xml", Some("**/sums.xml")),
            ("vitest run --reporter=junit --outputFile=v.xml", Some("**/v.xml")),
            ("gotestsum --junitfile unit.xml ./...", Some("**/unit.xml")),
            ("jest --json --outputFile=out/jest.json", Some("**/out/jest.json")),
            ("pytest --json-report --json-report-file=r.json", Some("**/r.json")),
            ("pytest --junitxml=../a.xml", None),
            ("xmllint --noout a.xml", None),
        ];
        for (command, glob) in cases {
            assert_eq!(written_report(command).as_deref(), glob, "{command}");
        }
    }

    #[test]
    fn test_count_uses_the_unit_of_the_runner() {
        for (command, unit) in [
            ("go test ./...", "packages"),
            ("go vet ./... && go test -count=1 ./...", "packages"),
            ("go test -v ./...", "tests"),
            ("go test -json ./... | tee log", "tests"),
            ("gotestsum -- ./...", "tests"),
            ("bazel --output_base=/x test //...", "targets"),
            ("make test", "tests"),
        ] {
            assert_eq!(counted_unit(command), unit, "{command}");
        }
    }

    #[test]
    fn missing_report_of_known_runner_contradicts_the_exit_code() {
        let silent = "exit code 0, but the output reports no tests";
        let known = [
            "python3 -m unittest",
            "cd app && python3.11 -m pytest -q tests/",
            "FOO=1 cargo test 2>&1",
            "pytest tests && mypy .",
            "uv run pytest",
        ];
        for command in known {
            assert_eq!(why(command, &TestResults::default()), silent, "{command}");
        }
        let unknown = [
            "npm test",
            "make test",
            "pytest > log",
            "pytest -qq",
            "pytest | grep x",
            "jest --json",
            "go test ./...",
            "sh t.sh",
        ];
        for command in unknown {
            assert_eq!(why(command, &TestResults::default()), "", "{command}");
        }
    }
}
