//! Contradictions between the exit code of a command and the tests that it ran. For example, the program under test can end the
//! test runner with exit code 0, or a filter can match no test.

use std::sync::LazyLock;

use regex::Regex;

use crate::domain::model::task::{Check, CheckRule, TestResults};

/// Words in commands that run tests.
const TEST_WORDS: [&str; 20] = [
    "test", "tests", "spec", "specs", "pytest", "unittest", "nose2", "tox", "nox", "jest", "vitest", "mocha", "ava",
    "rspec", "phpunit", "pest", "ctest", "nextest", "bats", "prove",
];
/// Parts of commands that run no tests, or for which running no tests is valid.
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
/// Parts of commands that make the exit code independent of failing tests.
const IGNORES_FAILURES: [&str; 3] = ["test.failure.ignore", "testFailureIgnore", "ignoreFailures"];

/// Continuation after a failure that keeps the failure: `|| exit 1`, `|| { echo failed; exit 1; }`.
static KEEPS_FAILURE: LazyLock<Regex> = LazyLock::new(|| {
    let end = r"\s*(?:[;&|)}\n]|$)";
    let leaves = r"(?:exit|return)(?:\s+(?:[1-9]\d*|\$\?))?";
    Regex::new(&format!(r"\|\|\s*(?:\{{[^{{}}]*\b{leaves}\s*;?\s*\}}|(?:{leaves}|false){end})"))
        .expect("constant pattern")
});
/// Shell syntax with which a command derives its own exit code from that of a test run.
static OWN_RESULT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\|\||\$\?|PIPESTATUS|(?:^|[\s;&|(])(?:!|if|while|until)\s").expect("constant pattern")
});
/// Plain call of a test runner that always reports its tests, with no other command in front of or behind it.
static REPORTS: LazyLock<Regex> = LazyLock::new(|| {
    let prefix = r"(?:\w+=\S*\s+)*(?:(?:env|time|uv run|poetry run|pipenv run|npx|pnpm exec|yarn|coverage run -m|python[\d.]* -m)\s+)*";
    let runner = r"(?:unittest|pytest|py\.test|cargo (?:test|t)|node --test|jest|vitest run|mocha)";
    let arguments = r"(?:\s[^<>|&;]*)?";
    Regex::new(&format!(r"^\s*{prefix}{runner}{arguments}(?:2>&1\s*)?$")).expect("constant pattern")
});
/// Options of such a call that replace the usual output of the runner.
static REPORTS_OTHERWISE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\s(?:-qq|--json\S*|--format\S*|-R|--reporters?\S*|--test-reporter\S*|--co|--help|--version)(?:\s|$)")
        .expect("constant pattern")
});

/// Returns the unit that the command's test runner counts, in the plural. Usually "tests"; Bazel counts targets, and `go test`
/// without `-v` counts packages.
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

/// Returns the reason why a command that exited 0 does not pass: tests failed, a run ended early, or no tests ran. `None` if the
/// tests do not contradict the exit code, or if the command derives its exit code from the tests itself.
pub fn contradiction(check: &Check, tests: &TestResults) -> Option<String> {
    if !matches!(check.rule, CheckRule::ExitCode | CheckRule::Coverage { .. }) {
        return None;
    }
    let command = KEEPS_FAILURE.replace_all(&check.command, ";");
    let has = |parts: &[&str]| parts.iter().any(|part| command.contains(part));
    if OWN_RESULT.is_match(&command) {
        return None;
    }
    let counts = tests.counts.unwrap_or_default();
    if counts.failing > 0 && !has(&IGNORES_FAILURES) {
        let plural = if counts.failing == 1 { "" } else { "s" };
        return Some(format!("exit code 0, but the output reports {} failed test{plural}", counts.failing));
    }
    let runs_tests = runs_tests(&command);
    if tests.incomplete && (runs_tests || tests.counts.is_some()) && !has(&IGNORES_FAILURES) {
        return Some("exit code 0, but a test run ended before its summary".to_owned());
    }
    if !runs_tests || has(&RUNS_NONE) {
        return None;
    }
    match tests.counts {
        Some(counts) if counts.passing == 0 && counts.skipped == 0 => {
            Some("exit code 0, but it ran no tests".to_owned())
        }
        Some(counts) if counts.passing == 0 => {
            Some(format!("exit code 0, but it ran no tests ({} skipped)", counts.skipped))
        }
        None if calls_reporting_runner(&command) => Some("exit code 0, but the output reports no tests".to_owned()),
        _ => None,
    }
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
        TestResults { counts, incomplete: true, ..TestResults::default() }
    }

    fn why(command: &str, tests: &TestResults) -> String {
        contradiction(&plain(command, CheckSource::Command), tests).unwrap_or_default()
    }

    #[test]
    fn failing_tests_contradict_exit_code_of_any_command() {
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
        ];
        for command in own.into_iter().chain(["mvn -Dmaven.test.failure.ignore=true verify"]) {
            assert_eq!(why(command, &counted(5, 1, 0)), "", "{command}");
        }
        let count =
            CheckRule::Count { pattern: r"(\d+) failed".into(), at_least: None, at_most: Some(3.0), any_exit: true };
        let by_number = Check { rule: count, ..plain("pytest", CheckSource::Command) };
        assert_eq!(contradiction(&by_number, &counted(5, 1, 0)), None);
        let coverage = CheckRule::Coverage { pattern: r"(\d+)%".into(), min: Percent(80.0) };
        let covered = Check { rule: coverage, ..plain("make cov", CheckSource::Command) };
        assert_eq!(contradiction(&covered, &counted(5, 1, 0)).as_deref(), Some(one));
    }

    #[test]
    fn unfinished_run_contradicts_exit_code_of_test_command() {
        let early = "exit code 0, but a test run ended before its summary";
        assert_eq!(why("npm test", &cut(None)), early);
        assert_eq!(why("make all", &cut(Some(TestCounts { passing: 3, ..TestCounts::default() }))), early);
        assert_eq!(why("./build.sh", &cut(None)), "", "progress of some other program");
        assert_eq!(why("npm test || true", &cut(None)), "");
    }

    #[test]
    fn test_command_without_tests_does_not_pass() {
        let none = "exit code 0, but it ran no tests";
        for command in [
            "cargo test negates",
            "make test",
            "./scripts/run-tests.sh x",
            "npm t",
            "ctest -R x",
            "python3 -m unittest",
        ] {
            assert_eq!(why(command, &counted(0, 0, 0)), none, "{command}");
        }
        assert_eq!(why("npx vitest run -t x", &counted(0, 0, 7)), "exit code 0, but it ran no tests (7 skipped)");
        let others =
            ["make ci", "cargo bench", "cargo test --no-run", "jest --passWithNoTests", "test -f spec && make"];
        for command in others {
            assert_eq!(why(command, &counted(0, 0, 0)), "", "{command}");
        }
    }

    #[test]
    fn unit_of_a_count_is_that_of_the_runner() {
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
    fn known_runner_without_report_does_not_pass() {
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
