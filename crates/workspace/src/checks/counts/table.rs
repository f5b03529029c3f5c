//! Runners whose runs are read by patterns alone: a first line, a summary, and names of failing tests.
//!
//! The summary is read by a vocabulary that all runners share, for example `4 passed`, `Failures: 1`, `skips=2`. A total takes
//! precedence over passed tests, except in named groups.

use std::sync::LazyLock;

use regex::{Captures, Regex, RegexSet};

use super::runs::{TestRun, between, closings, name_by};
use super::{number, of_total};
use crate::domain::model::task::TestCounts;

/// Runner that is read by patterns, in which `^` and `$` match at line ends.
#[cfg_attr(not(test), allow(dead_code, reason = "only the generated page and the fixtures use the names"))]
pub(super) struct TableRow {
    /// Name, for people.
    pub name: &'static str,
    /// First line of a run; empty if there is none that only this runner prints.
    pub start: &'static str,
    /// Summary. Its groups named `total`, `passed`, `failed` and `skipped` are numbers. Without them, the items are read from
    /// the unnamed groups, or from all of it.
    pub close: &'static str,
    /// Name of a failing test, in the first group; empty if none are read.
    pub failing: &'static str,
}

const fn row(name: &'static str, start: &'static str, close: &'static str, failing: &'static str) -> TableRow {
    TableRow { name, start, close, failing }
}

/// All rows. Each needs outputs of a passing and of a failing run in `forms.txt` of the fixtures.
pub(super) const ROWS: [TableRow; 61] = [
    row(
        "Ginkgo",
        r"^(?:Running Suite: |\[\d+\] .+ - \d+/\d+ specs )",
        r"^(?:SUCCESS|FAIL)!(?: - .*)? -- (\d+ Passed \| .+)$|^\[\d+\] .+ - (\d+)/\d+ (specs) .*SUCCESS! [\d.]+\S*s ",
        r"^ +\[F(?:AIL|ail)\] (.+)$",
    ),
    row(
        "test-unit",
        r"^Loaded suite ",
        r"^(\d+ tests, \d+ assertions, \d+ failures, \d+ errors, \d+ pendings, \d+ omissions), \d+ notifications$",
        r"^(?:Failure|Error): (\w+\([\w:]+\))",
    ),
    row(
        "flutter test, dart test",
        r"^\d\d:\d\d \+0: loading ",
        r"^(?:\d\d:\d\d \+(?P<passed>\d+)(?: ~(?P<skipped>\d+))?(?: -(?P<failed>\d+))?: (?:All tests passed!|Some tests failed\.|All tests skipped\.|No tests ran\.)|(?:🎉 |::error::)(\d+ tests? passed.*)\.)$",
        r"^\d\d:\d\d \+\d+(?: ~\d+)? -\d+: (?:\S+\.dart: )?(.+) \[E\]$",
    ),
    row(
        "Foundry (forge test)",
        r"^(?:Ran|Running) \d+ tests? for \S+:\S+$",
        r"^(?:Suite|Test) result: (?:ok|FAILED)\. (\d+ passed; \d+ failed;.*)$",
        r"^\[FAIL.*\] (\w+\([^)\n]*\))",
    ),
    row("snforge", r"^Collected \d+ test\(s\) from ", r"^Tests: (\d+ passed, \d+ failed, .+)$", r"^\[FAIL\] (\S+)"),
    row(
        "Move (sui, aptos)",
        r"^Running Move unit tests$",
        r"^Test result: (?:OK|FAILED)\. (Total tests: \d+; .+)$",
        r"^\[ FAIL +\] (\S+)",
    ),
    row(
        "stestr",
        "",
        r"^Ran: \d+ tests? in [\d.]+ sec\.\n - Passed: .+\n - Skipped: .+\n - Expected Fail: .+\n - Unexpected Success: .+\n - Failed: \d+$",
        r"^\{\d+\} (\S+) \[[\d.]+s\] \.\.\. FAILED$",
    ),
    row(
        "zope.testrunner",
        "",
        r"^  Ran (\d+ tests with \d+ failures, \d+ errors(?:,? and)? \d+ skipped) in ",
        r"^(?:Failure|Error) in test (.+)$",
    ),
    row(
        "testtools",
        r"^Tests running\.\.\.$",
        r"^Ran \d+ tests? in [\d.]+s\n(?:OK|FAILED \(.+\))$",
        r"^(?:FAIL|ERROR): (\S+)$",
    ),
    row("Python doctest", "", r"^\d+ tests? in \d+ items?\.\n(\d+ passed(?: and \d+ failed)?)\.$", ""),
    row(
        "Robot Framework",
        r"^Running suite '.+' with \d+ tests\.$",
        r"^(?:.+\| (?:PASS|FAIL|SKIP) \|\n(?:\d+ critical tests?, .+\n)?(\d+ tests?)(?: total)?(, \d+ passed, \d+ failed(?:, \d+ skipped)?)\n={78}|(?:PASSED|FAILED|SKIPPED)\n(\d+ tests?, \d+ passed, \d+ failed(?:, \d+ skipped)?)\n|(\d+ tests?, \d+ passed, \d+ failed(?:, \d+ skipped)?)\.\n=+)\nOutput:",
        r"^(?:FAIL: (.+)|(\S.*?) +\| FAIL \|\n(?:\D|\d+(?: [^t]|[^ \d])))",
    ),
    row(
        "behave",
        r"^USING RUNNER: behave",
        r"^\d+ features? passed, .+\n(\d+ scenarios? passed, .+)\n\d+ steps? passed, ",
        r"^  (\S+\.feature:\d+ .+)$",
    ),
    row(
        "Cucumber, godog, Behat",
        "",
        r"^(\d+ [Ss]cenarios?(?: \(.+\))?)\n\d+ [Ss]teps?\b",
        r"^(?:\d+\) Scenario: (.+?)(?: # .*)?|cucumber (\S+:\d+)(?: .*)?)$",
    ),
    row("Karate", "", r"^scenarios: +\d+ \| passed: +\d+ \| failed: +\d+", ""),
    row("Gauge", "", r"^Scenarios:\t(.+)$", ""),
    row(
        "Jasmine",
        r"^Randomized with seed \d+\nStarted$",
        r"^(\d+ specs?, \d+ failures?(?:, \d+ pending specs?)?)$",
        r"^\d+\) (.+)\n  Message:$",
    ),
    row(
        "Karma",
        r"\[karma-server\]: Karma v",
        r": Executed \d+ of (?P<total>\d+)(?: \((?P<failed>\d+) FAILED\))?(?: \(skipped (?P<skipped>\d+)\))?(?: SUCCESS)? \(",
        r"^.+ \(.+\) (.+) FAILED$",
    ),
    row(
        "uvu",
        "",
        r"^  Total: +(?P<total>\d+)\n  Passed: +(?P<passed>\d+)\n  Skipped: +(?P<skipped>\d+)\n  Duration: ",
        r#"^ +FAIL +"(.+)"$"#,
    ),
    row(
        "node-tap",
        r"^TAP version 14$",
        r"^# \{ (total: .+) \}$|^Suites: .+\nAsserts: +(\d+ .+), of \d+$",
        r"^ *not ok \d+ - ((?:[^#\n]|#[^\n]*[^\n {])+?)(?: # time=.*)?$",
    ),
    row("CodeceptJS", r"^CodeceptJS v", r"^ +(?:OK|FAIL) +\| (.+?) +// ", ""),
    row("WebdriverIO", "", r"^Spec Files:\s+(\d.*\d total) \(", ""),
    row(
        "busted",
        "",
        r"^(\d+ success(?:es)? / \d+ failures? / \d+ errors? / \d+ pending) : [\d.]+ seconds?$",
        r"^Failure -> (.+)$",
    ),
    row("LuaUnit", "", r"^Ran (\d+ tests) in [\d.]+ seconds(, .+)$", ""),
    row("plenary.nvim", "", r"^Success: +\t?\d+\s*\nFailed : +\t?\d+\s*\nErrors : +\t?\d+", ""),
    row(
        "tasty",
        "",
        r"^(?:All (?P<passed>\d+) tests passed|(?P<failed>\d+) out of (?P<total>\d+) tests failed) \([\d.]+s\)$",
        "",
    ),
    row(
        "Alcotest",
        "",
        r"^(?:Test Successful|(?P<failed>\d+) failures?!) in [\d.]+s\. (?P<total>\d+) tests? run\.$",
        r"^(?:\[FAIL\]|> \[FAIL\]) +(\S.*?)\.?$",
    ),
    row("elm-test", r"^Running \d+ tests?\. To reproduce", r"^Passed: +(?P<passed>\d+)\nFailed: +(?P<failed>\d+)$", ""),
    row(
        "clojure.test, kaocha",
        "",
        r"^(?:Ran (\d+ tests?) containing \d+ assertions?\.\n(\d+ failures?, \d+ errors?)\.|(\d+ tests?, \d+ assertions?, (?:\d+ errors?, )?\d+ failures?)\.)$",
        r"^(?:FAIL|ERROR) in \(?(\S+?)\)? \(",
    ),
    row("Pester", "", r"^(Tests Passed: \d+, Failed: \d+, Skipped: \d+)", ""),
    row(
        "JUnit console launcher",
        "",
        r"^\[ +(?P<skipped>\d+) tests skipped +\]\n\[.+\]\n\[.+\]\n\[ +(?P<passed>\d+) tests successful +\]\n\[ +(?P<failed>\d+) tests failed +\]$",
        "",
    ),
    row(
        "ScalaTest, utest",
        r"^Run starting\. Expected test count is: \d+$",
        r"^Tests: (succeeded \d+, failed \d+, .+|\d+, Passed: \d+, Failed: \d+)$",
        r"^- (.+) \*\*\* FAILED \*\*\*",
    ),
    row(
        "Qt Test",
        r"^\*{9} Start testing of \S+ \*{9}$",
        r"^Totals: (\d+ passed, \d+ failed, \d+ skipped)",
        r"^FAIL!  : (\S+)",
    ),
    row(
        "Unity, CppUTest, Check",
        "",
        r"^(?:(\d+ Tests \d+ Failures \d+ Ignored)\n(?:OK|FAIL)|(?:OK|Errors) \(((?:\d+ failures, )?\d+ tests), \d+ ran, \d+ checks(, \d+ ignored), .+\)|\d+%: (Checks: \d+, Failures: \d+, Errors: \d+))$",
        "",
    ),
    row(
        "Meson",
        "",
        r"^Ok: +\d+(?:\n(?:Expected Fail|Fail|Unexpected Pass|Skipped|Timeout): +\d+)+$",
        r"^ *\d+/\d+ (.+?) +(?:FAIL|ERROR|TIMEOUT)\b",
    ),
    row(
        "Terraform test",
        "",
        r"^(?:Success|Failure)! (\d+ passed, \d+ failed(?:, \d+ skipped)?)\.$",
        r#"^ +run "(.+)"\.\.\. fail$"#,
    ),
    row(
        "bashunit, shunit2",
        "",
        r"^(?:Tests: +(\d+ .+), \d+ total\nAssertions: .+|Ran \d+ tests?\.\n\n(?:OK|FAILED)(?: \(.+\))?)$",
        "",
    ),
    row(
        "cram, ERT",
        "",
        r"^(?:# Ran (\d+ tests?, \d+ skipped, \d+ failed)\.|Ran (?P<total>\d+) tests, \d+ results as expected(?:, (?P<failed>\d+) unexpected)?(?:, (?P<skipped>\d+) skipped)?.*)$",
        r"^   FAILED  (\S+)",
    ),
    row(
        "TestCafe",
        r"^ Running tests in:$",
        r"^ (?:(?P<passed>\d+) passed|(?P<failed>\d+)/(?P<total>\d+) failed) \([\dhms ]+\)(?:\n (?P<skipped>\d+) skipped)?$",
        r"^ ✖ (.+)$",
    ),
    row(
        "lab",
        "",
        r"^(?:(?P<passed>\d+) tests? complete(?: \((?P<skipped>\d+) skipped\))?|(?P<failed>\d+) of (?P<total>\d+) tests? failed(?: \(\d+ skipped\))?)$",
        "",
    ),
    row(
        "JUnit 4 text runner",
        r"^JUnit version ",
        r"^(?:OK \((\d+ tests?)\)|Tests run: (?P<total>\d+),  Failures: (?P<failed>\d+))$",
        r"^\d+\) (\w.*\(.+\))$",
    ),
    row(
        "NUnit and xUnit consoles",
        "",
        r"^(?:  Test (Count: \d+), .+(Failed: \d+), .+(Skipped: \d+)| +\S+  (Total: \d+, Errors: \d+, Failed: \d+, Skipped: \d+), .*Time: .+)$",
        r"^    (\S.*) \[FAIL\]$",
    ),
    row("Expecto", "", r"EXPECTO! (\d+ tests) run in .+ – (\d+ passed, \d+ ignored, \d+ failed, \d+ errored)\.", ""),
    row(
        "phpspec, Nette Tester",
        "",
        r"^(?:\d+ specs?\n(\d+ examples?) \((.+)\)\n\d+ms|(?:OK|FAILURES!) \((\d+ tests?.*), [\d.]+ seconds\))$",
        r"^-- FAILED: (.+?)(?: \| .*)?$",
    ),
    row(
        "EUnit, Common Test, gleeunit",
        "",
        r"^(?: *All (\d+ tests passed)\.|  (\d+ tests passed)\.|  (Failed: \d+)\.  (Skipped: \d+)\.  (Passed: \d+)\.|(?:(Skipped \d+) \(\d+, \d+\) tests\. )?(Failed \d+) tests\. (Passed \d+) tests\.|(\d+ passed)(?:, no failures|(, \d+ failures)))$",
        r"^(?:(\S+: \S+)\.\.\.\*failed\*|%%% (\S+ ==> \S+): FAILED|.* test: (\S+))$",
    ),
    row(
        "OUnit",
        "",
        r"^Ran: \d+ tests in: [\d.]+ seconds\.\n(?:OK|FAILED: (Cases: \d+) Tried: \d+ (Errors: \d+ Failures: \d+ Skip: +\d+))",
        r"^Error: (\S+)\.$",
    ),
    row("xcbeautify", "", r"^Tests (?:Passed|Failed): (\d+ failed, \d+ skipped, \d+ total) \(", ""),
    row(
        "Zig",
        "",
        r"^(?:(\d+ passed; \d+ skipped; \d+ failed)\.|Build Summary: .+; (?P<passed>\d+)/\d+ tests passed(?:; (?P<skipped>\d+) skipped)?(?:; (?P<failed>\d+) failed)?.*)$",
        r"^\d+/\d+ (.+)\.\.\.FAIL",
    ),
    row(
        "testthat",
        "",
        r"^\[ (FAIL \d+) \| WARN \d+ \| (SKIP \d+) \| (PASS \d+) \]$",
        r"^── (?:Failure|Error) \('.+?'\): (.+?) ─",
    ),
    row(
        "munit, ZIO Test",
        "",
        r"^(?:Test run \S+ finished: (\d+ failed, \d+ ignored, \d+ total), .+|(\d+) tests (passed)\. (\d+) tests (failed)\. (\d+) tests (ignored)\.)$",
        "",
    ),
    row("Buck2", "", r"^Tests finished: (Pass \d+\. Fail \d+)\. Fatal \d+\. (Skip \d+)\.", r"^✗ Fail: (\S+ - .+) \("),
    row(
        "OPA, Conftest",
        "",
        r"^(?:PASS: (?P<passed>\d+)/\d+(?:\nFAIL: (?P<failed>\d+)/\d+)?(?:\nSKIPPED: (?P<skipped>\d+)/\d+)?|(\d+ tests?, \d+ passed, \d+ warnings?, \d+ failures?, \d+ exceptions?))$",
        r"^(data\.\S+): (?:FAIL|ERROR) ",
    ),
    row(
        "InSpec, Goss, Dredd",
        "",
        r"^(?:Test Summary: (\d+ successful, \d+ failures?, \d+ skipped)|(Count: \d+, Failed: \d+(?:, Skipped: \d+)?)|complete: (\d+ passing, \d+ failing, \d+ errors, \d+ skipped), \d+ total)$",
        "",
    ),
    row("dbt", "", r"^ *Done\. (PASS=\d+) WARN=\d+ (ERROR=\d+ SKIP=\d+) .*TOTAL=\d+$", r"^ *Failure in test (\S+) "),
    row("cocotb", "", r"\*\* (TESTS=\d+ PASS=\d+ FAIL=\d+ SKIP=\d+) ", r"\*\* (\S+) +FAIL +[\d.]+ "),
    row(
        "PlatformIO, Ceedling",
        "",
        r"^(?:=+ (\d+ test cases: .+) in [\d:.]+ =+|(TESTED: +\d+\nPASSED: +\d+\nFAILED: +\d+\nIGNORED: +\d+))$",
        "",
    ),
    row(
        "cmocka",
        r"^\[={10}\] (?:\S+: )?Running \d+ test\(s\)\.$",
        r"^\[={10}\] .*\d+ test\(s\) run\.\n\[  PASSED  \] (?P<passed>\d+) test\(s\)\.(?:\n\[  SKIPPED \] .*?(?P<skipped>\d+) test\(s\), listed below:(?:\n\[  SKIPPED \] .+)+)?(?:\n\[  FAILED  \] .*?(?P<failed>\d+) test\(s\), listed below:)?",
        r"^\[  FAILED  \] (\w+)$",
    ),
    row(
        "Criterion",
        "",
        r"^\[====\] Synthesis: (Tested: \d+ \| Passing: \d+ \| Failing: \d+ \| Crashing: \d+)",
        r"^\[FAIL\] (\S+): \(",
    ),
    row("V", "", r"^Summary for all V _test\.v files: (.+), \d+ total\.", r"^ *FAIL .* (\S+_test\.v)$"),
    row(
        "Hurl",
        "",
        r"^Executed files: +(?P<total>\d+)\nExecuted requests: .+\nSucceeded files: +(?P<passed>\d+) .+\nFailed files: +(?P<failed>\d+) ",
        r"^(\S+\.hurl): Failure \(",
    ),
    row(
        "lit",
        "",
        r"^Total Discovered Tests: \d+\n((?:  .+: +\d+ \([\d.]+%\)\n?)+)",
        r"^(?:FAIL|TIMEOUT|UNRESOLVED): (.+) \(",
    ),
    row(
        "Automake, DejaGnu",
        "",
        r"^(?:# TOTAL: +\d+\n# (PASS: +\d+)\n# (SKIP: +\d+)\n# XFAIL: +\d+\n# (FAIL: +\d+)\n# XPASS: +\d+\n# (ERROR: +\d+)|\t\t=== .+ Summary ===\n\n# of expected (passes\t+\d+)(?:\n# of unexpected (failures\t+\d+))?(?:\n# of (unexpected success)es\t+(\d+))?)$",
        r"^(?:FAIL|ERROR): ([^=\n]+)$",
    ),
];

/// Returns the text of a pattern that matches line by line. Digits are ASCII digits, which keeps patterns small.
fn multi_line(text: &str) -> String {
    format!("(?m){}", text.replace(r"\d", "[0-9]"))
}

/// Compiled row.
struct CompiledRow {
    start: Option<Regex>,
    close: Regex,
    failing: Option<Regex>,
}

static COMPILED: LazyLock<Vec<CompiledRow>> = LazyLock::new(|| {
    let compiled = |text: &str| Regex::new(&multi_line(text)).expect("constant pattern");
    let some = |text: &str| (!text.is_empty()).then(|| compiled(text));
    let row =
        |row: &TableRow| CompiledRow { start: some(row.start), close: compiled(row.close), failing: some(row.failing) };
    ROWS.iter().map(row).collect()
});
/// First lines and summaries of all rows, to find the rows of an output at once.
static LINES: LazyLock<RegexSet> = LazyLock::new(|| {
    let either = |row: &TableRow| match row.start {
        "" => multi_line(row.close),
        start => multi_line(&format!("{start}|(?:{})", row.close)),
    };
    RegexSet::new(ROWS.iter().map(either)).expect("constant patterns")
});

/// Words of the shared vocabulary.
const SKIPPED: &str = r"skipped|skips?|ignored|pendings?|todos?|disabled|excluded|omissions?|xfailed|expected[ _]?fail(?:ure)?s?|expectedly failed|failed as expected|known failures?|canceled|unsupported|undefined";
const FAILED: &str = r"failed|failing|failures?|fails?|errors?|errored|unexpected[ _]?(?:success(?:es)?|pass)|crashed|crashing|timed out|timeout|invalid|interrupted|ambiguous|aborted";
const PASSED: &str =
    r"passed|passing|passes|pass|ok|succeeded|success(?:es)?|successful|xpassed|risky|warnings?|deprecated|notices?";
const TOTAL: &str = r"tests?|specs?|scenarios?|examples?|test cases|cases|runs|total|tested|count|checks|doctests?|propert(?:y|ies)|features?";

/// One item of a summary: a number before or after a word. Groups: number, words by kind, words by kind, number.
static ITEM: LazyLock<Regex> = LazyLock::new(|| {
    let words = format!("(?:({SKIPPED})|({FAILED})|({PASSED})|({TOTAL}))");
    let unit = "(?:(?:tests?|specs?|scenarios?|examples?) )?";
    Regex::new(&format!(r"(?i)\b(?:(\d+)[ \t]+{unit}{words}|{words}(?:\s*[:=]\s*|[ \t]+)(\d+))\b"))
        .expect("constant pattern")
});

/// Returns the counts in a summary.
fn counts(found: &Captures<'_>) -> TestCounts {
    let named = |name: &str| found.name(name).and_then(|number| number.as_str().parse::<u64>().ok());
    let [total, passed, failed, skipped] = ["total", "passed", "failed", "skipped"].map(named);
    if total.is_none() && passed.is_none() {
        let groups: Vec<&str> = found.iter().skip(1).flatten().map(|group| group.as_str()).collect();
        return if groups.is_empty() { items(&found[0]) } else { items(&groups.join(" ")) };
    }
    let skipped = skipped.unwrap_or(0);
    let failing = failed.unwrap_or_else(|| total.unwrap_or(0).saturating_sub(passed.unwrap_or(u64::MAX)));
    match passed {
        Some(passing) => TestCounts { passing, failing, skipped },
        None => of_total(total.unwrap_or(0), failing, skipped),
    }
}

/// Adds up the items of a summary. A total takes precedence over the number of passed tests.
pub(super) fn items(summary: &str) -> TestCounts {
    let mut kinds = [None::<u64>; 4];
    for item in ITEM.captures_iter(summary) {
        let Some(kind) = (2..6).chain(6..10).position(|group| item.get(group).is_some()) else { continue };
        let value = number(&item, if kind < 4 { 1 } else { 10 });
        let sum = &mut kinds[kind % 4];
        *sum = Some(sum.unwrap_or(0).saturating_add(value));
    }
    let [skipped, failing, passing, total] = kinds;
    let (skipped, failing) = (skipped.unwrap_or(0), failing.unwrap_or(0));
    match total {
        Some(total) => of_total(total, failing, skipped),
        None => TestCounts { passing: passing.unwrap_or(0), failing, skipped },
    }
}

/// Returns the test runs that the rows of the table find in an output without escape sequences.
pub(super) fn read(output: &str) -> Vec<TestRun> {
    let read = |at: usize| {
        let row = &COMPILED[at];
        let counts = |found: &Captures<'_>| Some(counts(found));
        let mut runs = match &row.start {
            Some(start) => between(output, start, &row.close, counts),
            None => closings(output, &row.close, counts),
        };
        // Some runners print their first line once per file.
        let last = runs.iter().filter(|run| run.counts.is_some()).map(|run| run.span.start).max();
        runs.retain(|run| run.counts.is_some() || last.is_none_or(|last| run.span.start > last));
        runs.iter_mut().for_each(|run| run.runner = ROWS[at].name);
        match &row.failing {
            Some(failing) if !runs.is_empty() => name_by(runs, output, failing),
            _ => runs,
        }
    };
    LINES.matches(output).into_iter().flat_map(read).collect()
}
