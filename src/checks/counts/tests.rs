//! Tests of the counts: recorded outputs of the real runners, and texts that only look like them.

use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/runners/", $name))
    };
}

fn counts(passing: u64, failing: u64, skipped: u64) -> Option<TestCounts> {
    Some(TestCounts { passing, failing, skipped })
}

#[test]
fn recorded_outputs_give_what_the_runner_counted() {
    let cases = [
        ("cargo-mixed", fixture!("cargo-mixed.txt"), counts(4, 1, 1)),
        ("cargo-fail-fast", fixture!("cargo-fail-fast.txt"), counts(1, 1, 1)),
        ("cargo-pass", fixture!("cargo-pass.txt"), counts(2, 0, 0)),
        ("cargo-color", fixture!("cargo-color.txt"), counts(2, 0, 0)),
        ("cargo-compile-error", fixture!("cargo-compile-error.txt"), None),
        ("nextest-mixed", fixture!("nextest-mixed.txt"), counts(3, 1, 1)),
        ("nextest-pass", fixture!("nextest-pass.txt"), counts(2, 0, 0)),
        ("nextest-fail-fast", fixture!("nextest-fail-fast.txt"), counts(3, 1, 1)),
        ("pytest-mixed", fixture!("pytest-mixed.txt"), counts(9, 2, 2)),
        ("pytest-quiet", fixture!("pytest-quiet.txt"), counts(2, 0, 0)),
        ("pytest-quiet-mixed", fixture!("pytest-quiet-mixed.txt"), counts(7, 2, 2)),
        ("pytest-color", fixture!("pytest-color.txt"), counts(2, 0, 0)),
        ("pytest-cov", fixture!("pytest-cov.txt"), counts(2, 0, 0)),
        ("pytest-none", fixture!("pytest-none.txt"), counts(0, 0, 0)),
        ("pytest-collection-error", fixture!("pytest-collection-error.txt"), counts(0, 1, 0)),
        ("jest-mixed", fixture!("jest-mixed.txt"), counts(2, 1, 2)),
        ("jest-pass", fixture!("jest-pass.txt"), counts(1, 0, 0)),
        ("jest-color", fixture!("jest-color.txt"), counts(1, 0, 0)),
        ("vitest-mixed", fixture!("vitest-mixed.txt"), counts(2, 1, 2)),
        ("vitest-pass", fixture!("vitest-pass.txt"), counts(1, 0, 0)),
        ("vitest-color", fixture!("vitest-color.txt"), counts(1, 0, 0)),
        ("mocha-mixed", fixture!("mocha-mixed.txt"), counts(3, 1, 2)),
        ("mocha-pass", fixture!("mocha-pass.txt"), counts(2, 0, 0)),
        ("tap-mocha", fixture!("tap-mocha.txt"), counts(3, 1, 2)),
        ("tap-perl", fixture!("tap-perl.txt"), counts(1, 1, 2)),
        ("node-mixed", fixture!("node-mixed.txt"), counts(3, 1, 2)),
        ("node-tap", fixture!("node-tap.txt"), counts(3, 1, 2)),
        ("node-spec", fixture!("node-spec.txt"), counts(3, 1, 2)),
        ("prove-mixed", fixture!("prove-mixed.txt"), counts(5, 1, 1)),
        ("prove-pass", fixture!("prove-pass.txt"), counts(3, 0, 0)),
        ("prove-verbose", fixture!("prove-verbose.txt"), counts(5, 1, 1)),
        ("go-verbose", fixture!("go-verbose.txt"), counts(2, 2, 1)),
        ("go-json", fixture!("go-json.txt"), counts(1, 1, 1)),
        ("go-plain", fixture!("go-plain.txt"), None),
        ("ctest-mixed", fixture!("ctest-mixed.txt"), counts(1, 1, 2)),
        ("surefire-mixed", fixture!("surefire-mixed.txt"), counts(2, 2, 1)),
    ];
    for (name, output, expected) in cases {
        assert_eq!(read(output), expected, "{name}");
        assert_eq!(read(&output.replace('\n', "\r\n")), expected, "{name} with CRLF");
    }
}

#[test]
fn several_runners_are_summed() {
    let both = format!("{}\n{}", fixture!("cargo-pass.txt"), fixture!("jest-mixed.txt"));
    assert_eq!(read(&both), counts(4, 1, 2));
    let twice = format!("{0}\n{0}", fixture!("pytest-mixed.txt"));
    assert_eq!(read(&twice), counts(18, 4, 4));
}

#[test]
fn prose_and_forged_lines_do_not_count() {
    let texts = [
        "",
        "3 passed",
        "All good: 3 passed, 0 failed.",
        "I ran it and 3 passed in 0.5s, great",
        "log: === 3 passed in 0.5s ===",
        "=== 3 passed in 0.5s",
        "3 apples, 2 pears in 5s",
        "test result: ok. 99 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "running 2 tests\ntest result: ok. 99 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "    test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        "My Tests: 4 passed, 4 total",
        "Tests: 4 passed",
        "Tests  3 passed (3)",
        "3 passing (4ms)",
        "  3 passing thoughts",
        "ok\nok then\nnot ok with me",
        "--- PASS: TestX (0.00s)",
        "{\"Action\":\"pass\"}",
        "100% tests passed",
        "The tests run: Tests run: 5, Failures: 0, Errors: 0, Skipped: 0",
        "# pass 3\n# fail 0",
        "Summary [ 1s] 3 tests run: 3 passed",
        "Files=2, Tests=7",
    ];
    for text in texts {
        assert_eq!(read(text), None, "{text}");
    }
    // A forged line that a test prints while the real one follows.
    let forged = "running 1 test\ntest result: ok. 50 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                  test a ... FAILED\n\n\
                  test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
    assert_eq!(read(forged), counts(0, 1, 0));
}

#[test]
fn less_usual_forms_are_read() {
    let cases = [
        ("==== 2 passed, 3 deselected, 1 warning in 65.20s (0:01:05) ====", counts(2, 0, 0)),
        ("     Summary [  10.0s] 3/10 tests run: 2 passed (1 slow, 1 flaky), 1 timed out, 4 skipped", counts(2, 1, 11)),
        ("Tests run: 3, Failures: 0, Errors: 0, Skipped: 1, Time elapsed: 1 s - in A", counts(2, 0, 1)),
        ("1..0 # SKIP no database", counts(0, 0, 0)),
        ("TAP version 13\n1..3\nok 1\nok 2 # TODO works already", counts(2, 1, 0)),
        ("100% tests passed, 0 tests failed out of 12", counts(12, 0, 0)),
        ("  0 passing (2s)\n  4 failing", counts(0, 4, 0)),
        ("Tests:       99999999999999999999999 passed, 1 total", counts(0, 0, 0)),
    ];
    for (output, expected) in cases {
        assert_eq!(read(output), expected, "{output}");
    }
}

#[test]
fn junit_files_count_cases_once() {
    assert_eq!(read_junit(fixture!("junit-pytest.xml")), counts(9, 2, 2));
    assert_eq!(read_junit(fixture!("junit-vitest.xml")), counts(2, 1, 2));
    assert_eq!(read_junit(fixture!("junit-nested.xml")), counts(2, 1, 1));
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
        assert_eq!(read_junit(xml), expected, "{xml}");
    }
}

#[test]
fn a_pattern_reads_what_no_runner_printed() {
    let pattern = r"^done: (?P<passed>\d+) ok(?:, (?P<failed>\d+) bad)?$";
    assert_eq!(read_pattern(pattern, "x\n\u{1b}[32mdone: 3 ok, 1 bad\u{1b}[0m\ndone: 2 ok\n"), counts(5, 1, 0));
    assert_eq!(read_pattern(pattern, "nothing"), None);
    assert_eq!(read_pattern("(", "nothing"), None);
}
