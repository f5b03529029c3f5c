//! Tests of the counts: recorded outputs of the real runners, alone and together, and texts that only look like them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::domain::checks::criteria::{objection, plain, ran_none};
use crate::domain::model::task::CheckSource;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../../../tests/fixtures/runners/", $name))
    };
}

fn counts(passing: u64, failing: u64, skipped: u64) -> Option<TestCounts> {
    Some(TestCounts { passing, failing, skipped })
}

fn project() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).to_owned()
}

/// Outputs of runners with separate code by name, without the ending.
fn recorded() -> BTreeMap<String, String> {
    let files = std::fs::read_dir(project().join("tests/fixtures/runners")).expect("the folder of the fixtures");
    let texts =
        files.map(|file| file.expect("a fixture").path()).filter(|path| path.extension().is_some_and(|e| e == "txt"));
    let texts = texts.filter(|path| path.file_stem().is_some_and(|name| name != "forms"));
    let named = texts.map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(&path).expect("a text"))
    });
    named.collect()
}

/// Returns the runner that a fixture belongs to; `None` for outputs of compilers and linters.
fn runner(fixture: &str) -> Option<&'static Runner> {
    RUNNERS.iter().find(|runner| fixture.split('-').next() == Some(runner.fixtures))
}

/// Formats a result in one line: counts, whether complete and understood, names.
fn line(results: &TestResults) -> String {
    let counts = results.counts.map_or("not counted".to_owned(), |c| {
        format!("{} passing, {} failing, {} skipped", c.passing, c.failing, c.skipped)
    });
    let state = match (results.cut, results.incomplete) {
        (true, _) => ", cut",
        (false, true) => ", incomplete",
        (false, false) => "",
    };
    // Where the counts say that tests ran, other summaries change nothing.
    let ran = results.counts.is_some_and(|c| c.passing + c.failing > 0);
    let unread = if results.unread && (results.cut || !ran) { ", not understood" } else { "" };
    let extra = if results.extra > 0 { format!(", {} maybe no tests", results.extra) } else { String::new() };
    let names = results.failing.iter().map(|name| format!("; {name}"));
    [format!("{counts}{state}{unread}{extra}")].into_iter().chain(names).collect()
}

#[test]
fn recorded_outputs_give_counts_of_the_runner() {
    let expected: BTreeMap<&str, &str> =
        fixture!("expected.tsv").lines().filter_map(|row| row.split_once('\t')).collect();
    let recorded = recorded();
    let mut wrong = Vec::new();
    for (name, output) in &recorded {
        let results = line(&read(output));
        if expected.get(name.as_str()) != Some(&results.as_str()) {
            wrong.push(format!("{name}\t{results}"));
        }
        assert_eq!(line(&read(&output.replace('\n', "\r\n"))), results, "{name} with CRLF");
    }
    assert!(wrong.is_empty(), "other rows than in expected.tsv:\n{}", wrong.join("\n"));
    let known: BTreeSet<&str> = recorded.keys().map(String::as_str).collect();
    assert_eq!(expected.into_keys().collect::<BTreeSet<_>>(), known, "expected.tsv has a row for each fixture");
}

/// Outputs of the runners of the table, each with the name of its row and the expected result.
fn forms() -> Vec<(&'static str, &'static str, &'static str)> {
    let form = |form: &'static str| {
        let (head, output) = form.split_once('\n')?;
        let (name, expected) = head.split_once(" | ")?;
        Some((name, expected, output))
    };
    fixture!("forms.txt").split("### ").filter_map(form).collect()
}

#[test]
fn runners_of_the_table_are_read_by_their_patterns() {
    let forms = forms();
    let read_forms: Vec<_> = forms.iter().map(|(_, _, output)| read(output)).collect();
    let wrong: Vec<String> = (forms.iter().zip(&read_forms))
        .filter(|((_, expected, _), results)| line(results) != *expected)
        .map(|((name, _, _), results)| format!("### {name} | {}", line(results)))
        .collect();
    assert!(wrong.is_empty(), "other results than in forms.txt:\n{}", wrong.join("\n"));
    for row in &table::ROWS {
        let has = |condition: fn(TestCounts) -> bool| {
            let own = forms.iter().zip(&read_forms).filter(|((name, _, _), _)| *name == row.name);
            own.filter_map(|(_, results)| results.counts).any(condition)
        };
        assert!(has(|c| c.passing > 0 && c.failing == 0) && has(|c| c.failing > 0), "{} has too few forms", row.name);
    }
    let names: BTreeSet<&str> = table::ROWS.iter().map(|row| row.name).collect();
    assert!(forms.iter().all(|(name, _, _)| names.contains(name)), "a form has no row");
}

/// Plain calls of runners, by the name or the prefix of their fixtures.
const PLAIN_CALLS: [(&str, &str); 8] = [
    ("node-dot", "node --test --test-reporter=dot"),
    ("unittest", "python3 -m unittest"),
    ("pytest", "pytest"),
    ("cargo", "cargo test"),
    ("node", "node --test"),
    ("jest", "jest"),
    ("vitest", "vitest run"),
    ("mocha", "mocha"),
];

/// The page states the size of the corpus.
#[test]
fn every_passing_output_of_the_corpus_is_accepted() {
    let recorded = recorded();
    let forms = forms();
    let outputs: Vec<&str> =
        recorded.values().map(String::as_str).chain(forms.iter().map(|(_, _, text)| *text)).collect();
    let mut passing = 0;
    for output in &outputs {
        let results = read(output);
        let passed = results.counts.is_some_and(|counts| counts.passing > 0 && counts.failing == 0);
        if passed && !results.incomplete {
            passing += 1;
        }
    }
    // The names of recorded outputs state which runs exited with 0, independently of the parsed counts.
    let exited_well =
        recorded.iter().filter(|(name, _)| name.split('-').any(|part| part == "pass") || *name == "node-dot");
    let mut judged = 0;
    for (name, output) in exited_well {
        let results = read(output);
        let own =
            PLAIN_CALLS.into_iter().find(|(fixtures, _)| name == fixtures || name.split('-').next() == Some(fixtures));
        for command in own.into_iter().map(|(_, command)| command).chain(["make test"]) {
            let check = plain(command, CheckSource::Command);
            assert_eq!(objection(&check, &results).or(ran_none(&check, &results)), None, "{name}, {command}: {output}");
            judged += 1;
        }
    }
    assert!(judged > 45, "{judged}");
    let sentence =
        format!("The fixtures are {} outputs, {passing} of them of complete runs that passed.", outputs.len());
    let page = std::fs::read_to_string(project().join("docs/reference/runners.md")).expect("the page");
    assert!(page.contains(&sentence), "docs/reference/runners.md has to say: {sentence}");
}

#[test]
fn prefixes_of_lines_do_not_change_the_counts() {
    let recorded = recorded();
    for name in ["pytest-mixed", "jest-mixed", "go-verbose-mixed", "cargo-mixed", "phpunit-mixed", "mocha-mixed"] {
        let own = line(&read(&recorded[name]));
        for prefix in ["[0] ", "[@demo/a]: ", "demo: ", "api-1  | ", "packages/a test: ", "12:00:00.123 ", "#12 0.345 "]
        {
            let lines = recorded[name].lines().map(|line| format!("{prefix}{line}").trim_end().to_owned() + "\n");
            assert_eq!(line(&read(&lines.collect::<String>())), own, "{name} after `{prefix}`");
        }
    }
    let package =
        |prefix: &str| recorded["pytest-mixed"].lines().map(|line| format!("{prefix}{line}\n")).collect::<String>();
    let text = package("[api] ") + &package("[web] ");
    let own = read(&recorded["pytest-mixed"]).counts.expect("counts");
    assert_eq!(read(&text).counts, Some(own.plus(own)), "two packages are added");
}

#[test]
fn summary_of_unknown_runner_is_not_recognized() {
    for text in ["5 tests passed", "OK: 12 assertions", "Tests run: 7", "✓ 4 passed in total", "12/12 specs ok"] {
        let results = read(text);
        assert!(results.unread && results.counts.is_none() && !results.cut, "{text}: {results:?}");
    }
    for text in [
        "running 6 tests",
        "Found 4 test(s).",
        "compiled 12 files",
        "0 tests",
        "v1.2 tests",
        "at run (runner/test:796:25)",
        "[----] 4 tests from Sums",
    ] {
        assert!(!read(text).unread, "{text}");
    }
}

#[test]
fn every_runner_has_fixtures_of_passing_failing_and_broken_runs() {
    let recorded = recorded();
    for runner in &RUNNERS {
        let runners_that = |condition: &dyn Fn(&TestResults) -> bool| {
            let fixtures =
                recorded.iter().filter(|(name, _)| self::runner(name).is_some_and(|r| r.name == runner.name));
            fixtures.filter(|(_, output)| condition(&read(output))).count()
        };
        let passed = runners_that(&|r| !r.incomplete && r.counts.is_some_and(|c| c.passing > 0 && c.failing == 0));
        let failed = runners_that(&|r| !r.incomplete && r.counts.is_some_and(|c| c.failing > 0));
        let skipped = runners_that(&|r| r.counts.is_some_and(|c| c.skipped > 0));
        assert!(passed > 0 && failed > 0 && skipped > 0, "{}: {passed} {failed} {skipped}", runner.name);
        let broken = runners_that(&|r| r.incomplete || r.counts.is_none());
        let without = ["sbt (ScalaTest, munit, specs2, JUnit)", "Pest, artisan test"];
        assert!(broken > 0 || without.contains(&runner.name), "{} has no broken run", runner.name);
    }
}

#[test]
fn runs_of_different_runners_are_added() {
    let recorded = recorded();
    let whole: Vec<_> = recorded
        .iter()
        .filter(|(name, _)| ["-pass", "-mixed"].iter().any(|ending| name.ends_with(ending)))
        .filter_map(|(name, output)| Some((name, output, runner(name)?, read(output).counts?)))
        .collect();
    let mut tried = 0;
    for (first, output, runner, own) in &whole {
        for (second, other, _, others) in whole.iter().filter(|(_, _, other, _)| other.name != runner.name) {
            let both = read(&format!("{output}\n{other}"));
            assert_eq!(both.counts, Some(own.plus(*others)), "{first} and then {second}");
            tried += 1;
        }
    }
    assert!(tried > 2_000, "{tried}");
}

#[test]
fn runs_of_one_runner_are_added() {
    for (name, output) in recorded() {
        let single_output = read(&output);
        let Some(own) = single_output.counts.filter(|_| name.ends_with("-pass") || name.ends_with("-mixed")) else {
            continue;
        };
        let repeated_output = read(&format!("{output}\n{output}"));
        assert_eq!(repeated_output.counts, Some(own.plus(own)), "{name}");
        assert_eq!(
            (repeated_output.failing, repeated_output.incomplete),
            (single_output.failing, single_output.incomplete),
            "{name}"
        );
    }
}

#[test]
fn crash_after_complete_run_is_incomplete() {
    let (whole, recorded) = (fixture!("pytest-mixed.txt"), recorded());
    for name in
        ["pytest-crash", "cargo-crash", "gtest-crash", "minitest-crash", "phpunit-crash", "vitest-crash", "bun-crash"]
    {
        let cut = &recorded[name];
        assert!(read(cut).incomplete, "{name}");
        let results = read(&format!("{whole}\n{cut}"));
        assert!(results.incomplete && results.counts.is_some_and(|counts| counts.passing >= 9), "{name}: {results:?}");
    }
}

#[test]
fn prose_and_forged_lines_are_not_counted() {
    let texts = [
        "",
        "3 passed",
        "All good: 3 passed, 0 failed.",
        "I ran it and 3 passed in 0.5s, great",
        "log: === 3 passed in 0.5s ===",
        "=== 3 passed in 0.5s",
        "3 apples, 2 pears in 5s",
        "test result: ok. 99 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "    test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        "My Tests: 4 passed, 4 total",
        "Tests: 4 passed",
        "Tests:       4 passed, 4 total",
        "Tests  3 passed (3)",
        "      Tests  3 passed (3)",
        "3 passing (4ms)",
        "  3 passing thoughts",
        "ok\nok then\nnot ok with me",
        "ok 1 - it\nok 2 - works",
        "--- PASS: TestX (0.00s)",
        "{\"Action\":\"pass\"}",
        "{\"Action\":\"pass\",\"Test\":\"TestX\"}",
        "100% tests passed",
        "The tests run: Tests run: 5, Failures: 0, Errors: 0, Skipped: 0",
        "Tests run: 5, Failures: 0, Errors: 0, Skipped: 0",
        "# pass 3\n# fail 0",
        "Summary [ 1s] 3 tests run: 3 passed",
        "Files=2, Tests=7",
        "Ran 5 tests in 0.01s\n\nOK",
        "5 examples, 0 failures",
        "5 tests, 0 failures",
        "OK, 5 tests",
        "  5 passed (1.0s)",
        " 5 pass\n 0 fail",
        "[  PASSED  ] 5 tests.",
        "All tests passed (5 assertions in 5 test cases)",
        "Total tests run: 5, Failures: 0, Skips: 0",
        "PASSED 5 tests",
    ];
    for text in texts {
        let results = TestResults { unread: false, ..read(text) };
        assert_eq!(results, TestResults::default(), "{text}");
    }
    let other_sum = "running 2 tests\ntest result: ok. 99 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
    assert_eq!(line(&read(other_sum)), "not counted, cut, not understood");
    // A forged line that a test prints while the real one follows.
    let forged = "running 1 test\ntest result: ok. 50 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                  test a ... FAILED\n\n\
                  test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
    assert_eq!(read(forged).counts, counts(0, 1, 0));
}

#[test]
fn unusual_forms_are_parsed() {
    let cases = [
        ("==== 2 passed, 3 deselected, 1 warning in 65.20s (0:01:05) ====", "2 passing, 0 failing, 0 skipped"),
        (
            "     Summary [  10.0s] 3/10 tests run: 2 passed (1 slow, 1 flaky), 1 timed out, 4 skipped",
            "2 passing, 1 failing, 11 skipped, incomplete",
        ),
        (
            "Tests run: 3, Failures: 0, Errors: 0, Skipped: 1, Time elapsed: 1 s - in A",
            "2 passing, 0 failing, 1 skipped, incomplete",
        ),
        ("1..0 # SKIP no database", "0 passing, 0 failing, 0 skipped"),
        ("TAP version 13\n1..3\nok 1\nok 2 # TODO works already", "2 passing, 0 failing, 0 skipped, cut"),
        ("TAP version 14\nok 1 - a\nBail out! no database\n1..1", "1 passing, 0 failing, 0 skipped, incomplete"),
        ("1..2\nok 1\nok 2\n1..1\nnot ok 1 - b", "2 passing, 1 failing, 0 skipped; b"),
        ("1..1\nok 1\nok 2 - forged", "1 passing, 0 failing, 0 skipped"),
        ("100% tests passed, 0 tests failed out of 12", "12 passing, 0 failing, 0 skipped"),
        ("  0 passing (2s)\n  4 failing", "0 passing, 4 failing, 0 skipped"),
        (
            "Test Suites: 1 passed, 1 total\nTests:       99999999999999999999999 passed, 1 total",
            "0 passing, 0 failing, 0 skipped",
        ),
        ("Finished in 0.1 seconds\n1 doctest, 2 properties, 3 tests, 1 failure", "5 passing, 1 failing, 0 skipped"),
        ("ok  \texample.org/a\t0.1s\tcoverage: 80.0% of statements", "1 passing, 0 failing, 0 skipped"),
        ("ok  \texample.org/a\t0.1s [no tests to run]", "0 passing, 0 failing, 0 skipped"),
        (
            "FAIL\texample.org/a [build failed]\nok  \texample.org/b\t0.1s",
            "1 passing, 0 failing, 0 skipped, incomplete",
        ),
        ("2 passed, 1 subtests passed in 0.01s", "2 passing, 0 failing, 0 skipped"),
        ("> a@1.0.0 test\n> jest", "not counted, cut"),
        (
            "> a@1.0.0 test\n> jest --changedSince=main\n\nNo tests found related to files changed since \"main\".",
            "not counted",
        ),
        ("> a@1.0.0 test\n> jest --passWithNoTests", "not counted"),
        (" RUN  v4.1.12 /home/dev/project\n\nNo test files found, exiting with code 0", "not counted"),
        ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", "not counted, cut"),
        ("FATAL ERROR: a test of the log", "not counted"),
        ("Waiting for the server\n.....", "not counted"),
        (
            "Loaded suite t\n2 tests, 2 assertions, 1 failures, 2 errors, 0 pendings, 0 omissions, 0 notifications",
            "0 passing, 2 failing, 0 skipped",
        ),
    ];
    for (output, expected) in cases {
        assert_eq!(line(&read(output)), expected, "{output}");
    }
}

#[test]
fn number_and_length_of_failing_test_names_are_bounded() {
    let names: String = (0..200).map(|n| format!("FAILED test_a.py::test_{n}_{} - x\n", "ö".repeat(300))).collect();
    let results = read(&format!("{names}200 failed in 0.1s\n"));
    assert_eq!((results.counts, results.failing.len()), (counts(0, 200, 0), 50));
    assert!(results.failing.iter().all(|name| name.len() <= 200));
}

#[test]
fn junit_files_count_cases_once_and_name_failing_ones() {
    let read = |xml| read_junit(xml).and_then(|results| results.counts);
    assert_eq!(read(fixture!("junit-pytest.xml")), counts(9, 2, 2));
    assert_eq!(read(fixture!("junit-vitest.xml")), counts(2, 1, 2));
    assert_eq!(read(fixture!("junit-nested.xml")), counts(2, 1, 1));
    assert_eq!(read_junit(fixture!("junit-pytest.xml")).unwrap().failing, ["test_a.test_two", "test_a.test_six"]);
    let cases = [
        (r#"<testsuite tests="5" failures="1" errors="1" skipped="1"/>"#, counts(2, 2, 1)),
        (r#"<testsuites><testsuite tests="3"/><testsuite tests="2" failures="1"/></testsuites>"#, counts(4, 1, 0)),
        ("<testsuites/>", counts(0, 0, 0)),
        (r#"<testsuite><testcase name="a" status="notrun"/></testsuite>"#, counts(0, 0, 1)),
        ("<html/>", None),
        ("not xml", None),
        ("", None),
        ("<testsuite><testcase>", None),
        ("<!DOCTYPE x [<!ENTITY a \"b\">]><testsuite>&a;</testsuite>", None),
    ];
    for (xml, expected) in cases {
        assert_eq!(read(xml), expected, "{xml}");
    }
}

#[test]
fn json_reports_are_read_as_printed_and_from_files() {
    let playwright =
        r#"{"config": {}, "stats": {"startTime": "x", "expected": 3, "skipped": 1, "unexpected": 0, "flaky": 1}}"#;
    let pytest = r#"{"summary": {"passed": 2, "failed": 1, "error": 1, "xfailed": 1, "total": 5, "collected": 5},
                     "tests": [{"nodeid": "test_a.py::test_b", "outcome": "failed"}, {"nodeid": "c", "outcome": "passed"}]}"#;
    let rspec = r#"{"examples": [], "summary": {"example_count": 2, "failure_count": 0, "pending_count": 1, "errors_outside_of_examples_count": 1}}"#;
    let jest = r#"{"numFailedTests": 0, "numPassedTests": 1, "numTotalTests": 1, "numRuntimeErrorTestSuites": 1}"#;
    for (report, expected) in [
        (playwright, "4 passing, 0 failing, 1 skipped"),
        (pytest, "2 passing, 2 failing, 1 skipped; test_a.py::test_b"),
        (rspec, "1 passing, 0 failing, 1 skipped, incomplete"),
        (jest, "1 passing, 0 failing, 0 skipped, incomplete"),
    ] {
        assert_eq!(read_json(report).map(|results| line(&results)).as_deref(), Some(expected), "{report}");
        assert_eq!(line(&read(&format!("> demo@1.0.0 test\n> jest --json\n\n{report}\nbye\n"))), expected, "{report}");
        let both = format!("{report}\n{}", fixture!("pytest-xdist-pass.txt"));
        assert_eq!(read(&both).counts, read(fixture!("pytest-xdist-pass.txt")).counts, "another report counts instead");
    }
    let many = format!(r#"{{"stats": {{"passes": 1}}, "failures": [{}{{}}]}}"#, "{},".repeat(1_000_000));
    assert!(read_json(&many).is_some_and(|results| results.failing.is_empty()), "entries without a name are not kept");
    for text in
        ["", "{", "{}", "[1]", r#"{"stats": 3}"#, r#"{"summary": {"passed": 3}}"#, r#"{"tests": [{"status": "ok"}]}"#]
    {
        assert_eq!(read_json(text), None, "{text}");
        assert_eq!(read(text).counts, None, "{text}");
    }
}

/// See docs/research/threats.md#s17.
#[test]
fn junit_files_that_take_long_to_parse_are_refused() {
    let suite = |inner: &str| read_junit(&format!("<testsuite tests='1'>{inner}</testsuite>"));
    let attributes = |count: usize| (0..count).map(|n| format!(" a{n}='>'")).collect::<String>();
    let element = |count: usize| format!("<a{}/>", attributes(count));
    assert!(suite(&element(256)).is_some());
    assert!(suite(&element(257)).is_none(), "the parser compares each attribute with all others");
    assert!(suite(&format!("<!--{0}--><![CDATA[{0}]]>", element(257))).is_some(), "no element");
    let spaces = |count: usize| (0..count).map(|n| format!("<a xmlns:n{n}='u{n}'/>")).collect::<String>();
    assert!(suite(&spaces(5_000)).is_some() && suite(&spaces(5_001)).is_none(), "namespaces are copied");
    assert!(suite(&"<a/>".repeat(1_000_000)).is_none(), "more nodes than fit into the memory of a run");
    let deep = format!("{}{}", "<testsuite>".repeat(200_000), "</testsuite>".repeat(200_000));
    assert_eq!(read_junit(&deep).and_then(|results| results.counts), counts(0, 0, 0), "no recursion");
}

#[test]
fn pattern_reads_counts_of_unknown_runner() {
    let pattern = r"^done: (?P<passed>\d+) ok(?:, (?P<failed>\d+) bad)?$";
    assert_eq!(read_pattern(pattern, "x\n\u{1b}[32mdone: 3 ok, 1 bad\u{1b}[0m\ndone: 2 ok\n"), counts(5, 1, 0));
    assert_eq!(read_pattern(pattern, "nothing"), None);
    assert_eq!(read_pattern("(", "nothing"), None);
}

/// See docs/reference/runners.md, whose table is generated from the rows.
#[test]
fn documentation_lists_every_runner() {
    let row = |runner: &Runner| {
        let seen = if runner.versions.is_empty() { "from documentation" } else { runner.versions };
        format!("| {} | {seen} | {} |\n", runner.name, runner.reads.replace('|', "\\|"))
    };
    let table: String = RUNNERS.iter().map(row).collect();
    let named: Vec<&str> = table::ROWS.iter().map(|row| row.name).collect();
    let named = format!("The service reads only the summaries of: {}.\n", named.join("; "));
    let page = std::fs::read_to_string(project().join("docs/reference/runners.md")).expect("the page");
    assert!(page.contains(&table), "docs/reference/runners.md is out of date; its table has to be\n{table}");
    assert!(page.contains(&named), "docs/reference/runners.md is out of date; it has to list\n{named}");
}

/// Lines of all recorded outputs.
static LINES: LazyLock<Vec<String>> = LazyLock::new(|| {
    recorded().values().flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
});

proptest! {
    #![proptest_config(test_support::cases(100))]

    #[test]
    fn any_order_of_lines_does_not_panic(picks in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
        let text: String = picks.iter().map(|pick| format!("{}\n", pick.get(&LINES))).collect();
        prop_assert!(read(&text).failing.len() <= MAX_TEST_NAMES);
    }

    #[test]
    fn any_text_does_not_panic(text in any::<String>()) {
        prop_assert!(read(&text).failing.len() <= MAX_TEST_NAMES);
        prop_assert!(read_junit(&text).is_none());
    }
}
