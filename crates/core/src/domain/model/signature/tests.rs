//! Tests with outputs of real tools. Each is used twice with different varying parts, and once with another failure.

use proptest::prelude::*;

use super::*;

/// Parts of an output that vary between two runs with the same failure.
struct SampleRun {
    root: &'static str,
    line: u32,
    time: &'static str,
    hash: &'static str,
    date: &'static str,
}

const FIRST: SampleRun = SampleRun {
    root: "/tmp/ralph-a81/tree",
    line: 12,
    time: "0.03",
    hash: "1a2b3c4d5e6f7a8b",
    date: "2026-02-03T10:00:01.123Z",
};
const SECOND: SampleRun = SampleRun {
    root: "/home/ci/work/r-7-xyz",
    line: 417,
    time: "12.71",
    hash: "ffee00112233aabb",
    date: "2027-11-30T23:59:58.001Z",
};

fn cargo_compile(run: &SampleRun, message: &str) -> String {
    let SampleRun { root, line, time, .. } = run;
    format!(
        "   Compiling parser v0.3.1 ({root})\nwarning: unused variable: `error`\n --> src/lib.rs:{line}:9\n\n\
         \x1b[0m\x1b[1m\x1b[38;5;9merror[E0308]\x1b[0m: {message}\n   --> src/parse.rs:{line}:18\n    |\n\
         {line} |     let n: u32 = text;\n    |            ---   ^^^^\n\nerror: could not compile `parser` (lib) due to 1 \
         previous error\nfinished in {time}s\n"
    )
}

fn cargo_test(run: &SampleRun, message: &str) -> String {
    let SampleRun { line, time, hash, .. } = run;
    format!(
        "     Running unittests src/lib.rs (target/debug/deps/parser-{hash})\n\nrunning 2 tests\ntest failure_is_an_error ... ok\n\
         test tests::adds ... FAILED\n\nfailures:\n\n---- tests::adds stdout ----\n\nthread 'tests::adds' ({line}99) panicked at \
         src/lib.rs:{line}:9:\n{message}\n  left: {line}\n right: 4\nnote: run with `RUST_BACKTRACE=1` environment variable\n\n\n\
         failures:\n    tests::adds\n\ntest result: FAILED. 1 passed; 1 failed; finished in {time}s\n\nerror: test failed, to rerun \
         pass `--lib`\n"
    )
}

fn pytest(run: &SampleRun, message: &str) -> String {
    let SampleRun { root, line, time, .. } = run;
    format!(
        "============================= test session starts ==============================\nplatform linux -- Python 3.12.3, \
         pytest-8.2.0\nrootdir: {root}\ncollected 3 items\n\ntests/test_error.py ..F                                     \
         [100%]\n\n=================================== FAILURES ===================================\n_________________________ \
         test_add _________________________\n\n    def test_add():\n        # raises ValueError: never\n>       assert add(1, \
         2) == 4\nE       {message}\n\ntests/test_error.py:{line}: AssertionError\n=========================== short test \
         summary info ============================\nFAILED tests/test_error.py::test_add - {message}\n1 failed, 2 passed in \
         {time}s\n"
    )
}

fn jest(run: &SampleRun, message: &str) -> String {
    let SampleRun { root, line, time, .. } = run;
    format!(
        "\x1b[0m\x1b[7m\x1b[1m\x1b[31m FAIL \x1b[39m\x1b[22m\x1b[27m\x1b[0m src/sum.test.js ({time} s)\n  sum\n    ✓ adds zero \
         ({line} ms)\n    ✕ adds ({line} ms)\n\n  ● sum › adds\n\n    {message}\n\n    Expected: 4\n    Received: {line}\n\n      at \
         Object.<anonymous> ({root}/src/sum.test.js:{line}:21)\n\nTests:       1 failed, 1 passed, 2 total\nTime:        {time} \
         s\n"
    )
}

fn go_test(run: &SampleRun, message: &str) -> String {
    let SampleRun { line, time, .. } = run;
    format!(
        "ok  \texample.org/calc/errors\t{time}s\n--- FAIL: TestAdd ({time}s)\n    --- FAIL: TestAdd/negative ({time}s)\n        \
         add_test.go:{line}: {message}\nFAIL\nFAIL\texample.org/calc\t{time}s\nFAIL\n"
    )
}

fn tsc(run: &SampleRun, message: &str) -> String {
    let SampleRun { line, .. } = run;
    format!(
        "src/user.ts({line},7): error TS2322: {message}\nsrc/user.ts({line},9): error TS2304: Cannot find name 'x'.\n"
    )
}

fn eslint(run: &SampleRun, message: &str) -> String {
    let SampleRun { root, line, .. } = run;
    format!(
        "\n{root}/src/user.js\n   1:1   warning  Missing JSDoc  jsdoc/require\n  {line}:7   error    {message}\n\n✖ 2 problems (1 \
         error, 1 warning)\n"
    )
}

fn gcc(run: &SampleRun, message: &str) -> String {
    let SampleRun { line, .. } = run;
    format!(
        "gcc -c -o build/main.o src/main.c\nsrc/main.c: In function 'main':\nsrc/main.c:{line}:5: warning: unused variable \
         'error' [-Wunused-variable]\nsrc/main.c:{line}:12: error: {message}\n   {line} |   retrun 0;\nmake: *** [Makefile:{line}: \
         build/main.o] Error 1\n"
    )
}

fn maven(run: &SampleRun, message: &str) -> String {
    let SampleRun { root, line, time, date, .. } = run;
    format!(
        "[INFO] Scanning for projects...\n[INFO] Building calc 1.0\n[ERROR] COMPILATION ERROR : \n[INFO] ----\n[ERROR] \
         {root}/src/main/java/org/example/Calc.java:[{line},9] {message}\n[INFO] Finished at: {date}\n[INFO] Total time:  {time} \
         s\n[ERROR] Failed to execute goal org.apache.maven.plugins:maven-compiler-plugin:3.11.0:compile\n"
    )
}

fn surefire(run: &SampleRun, message: &str) -> String {
    let SampleRun { line, time, .. } = run;
    format!(
        "[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: {time} s <<< FAILURE! - in org.example.CalcTest\n\
         [ERROR] org.example.CalcTest.adds  Time elapsed: {time} s  <<< FAILURE!\norg.opentest4j.AssertionFailedError: {message}\n\
         \tat org.example.CalcTest.adds(CalcTest.java:{line})\n\n[ERROR] Failures: \n[ERROR]   CalcTest.adds:{line} {message}\n"
    )
}

/// Output of a tool for a run and a message, two messages, and texts that the first message's signature must contain.
type Tool = (&'static str, fn(&SampleRun, &str) -> String, [&'static str; 2], &'static str);

const TOOLS: [Tool; 10] = [
    ("cargo build", cargo_compile, ["mismatched types", "this function takes 1 argument"], "E0308"),
    (
        "cargo test",
        cargo_test,
        ["assertion `left == right` failed", "index out of bounds: the len is 3"],
        "tests::adds",
    ),
    ("pytest", pytest, ["assert 3 == 4", "TypeError: unsupported operand type(s)"], "test_add"),
    ("jest", jest, ["expect(received).toBe(expected)", "TypeError: sum is not a function"], "sum › adds"),
    ("go test", go_test, ["Add(-1, 2) = 3, want 1", "unexpected EOF"], "TestAdd/negative"),
    (
        "tsc",
        tsc,
        ["Type 'string' is not assignable to type 'number'.", "Type 'null' is not assignable to type 'User'."],
        "TS2322",
    ),
    (
        "eslint",
        eslint,
        ["'user' is assigned a value but never used  no-unused-vars", "Unexpected var  no-var"],
        "src/user.js",
    ),
    ("gcc", gcc, ["'retrun' undeclared (first use in this function)", "expected ';' before '}' token"], "src/main.c"),
    ("maven", maven, ["cannot find symbol", "incompatible types: String cannot be converted to int"], "Calc.java"),
    ("surefire", surefire, ["expected: <3> but was: <4>", "Unexpected exception type thrown"], "CalcTest.adds"),
];

#[test]
fn same_failure_has_same_signature() {
    let mut all = std::collections::BTreeSet::new();
    for (tool, output, [message, other], says) in TOOLS {
        let first = first_error(&output(&FIRST, message)).expect(tool);
        let second = first_error(&output(&SECOND, message)).expect(tool);
        let different = first_error(&output(&FIRST, other)).expect(tool);
        assert_eq!(first, second, "{tool}");
        assert_ne!(first, different, "{tool}");
        assert!(first.contains(says), "{tool}: {first}");
        all.extend([first, different]);
    }
    assert_eq!(all.len(), 2 * TOOLS.len());
}

#[test]
fn signatures_stay_readable() {
    let of = |tool: usize| first_error(&TOOLS[tool].1(&FIRST, TOOLS[tool].2[0])).unwrap_or_default();
    let all: Vec<String> = (0..TOOLS.len()).map(of).collect();
    insta::assert_snapshot!(all.join("\n"), @r#"
    error[E0308]: mismatched types --> src/parse.rs:#
    thread 'tests::adds' (#) panicked at src/lib.rs:#: assertion `left == right` failed
    test_add E assert # == #
    ● sum › adds expect(received).toBe(expected)
    --- FAIL: TestAdd/negative (<time>) add_test.go:#: Add(-#, #) = #, want #
    src/user.ts(#): error TS2322: Type 'string' is not assignable to type 'number'.
    src/user.js # error 'user' is assigned a value but never used no-unused-vars
    src/main.c:#: error: 'retrun' undeclared (first use in this function)
    [ERROR] src/main/java/org/example/Calc.java:[#] cannot find symbol
    [ERROR] org.example.CalcTest.adds Time elapsed: <time> <<< FAILURE! org.opentest4j.AssertionFailedError: expected: <#> but was: <#>
    "#);
}

macro_rules! recorded {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../../../tests/fixtures/runners/", $name, ".txt")))),*]
    };
}

/// Recorded outputs of real tools with errors.
const RECORDED: [(&str, &str); 20] = recorded![
    "cargo-compile-error",
    "cargo-mixed",
    "nextest-mixed",
    "pytest-mixed",
    "pytest-collection-error",
    "jest-mixed",
    "vitest-mixed",
    "mocha-mixed",
    "node-spec",
    "go-plain",
    "go-verbose",
    "ctest-mixed",
    "surefire-mixed",
    "prove-mixed",
    "tsc-error",
    "tsc-pretty",
    "eslint-error",
    "eslint-color",
    "gcc-error",
    "gcc-link",
];

fn recorded(name: &str) -> &'static str {
    RECORDED.iter().find(|(known, _)| *known == name).expect("it was recorded").1
}

#[test]
fn first_error_of_real_outputs_is_found() {
    let line = |(name, output): &(&str, &str)| format!("{name}: {}", first_error(output).unwrap_or_default());
    let all: Vec<String> = RECORDED.iter().map(line).collect();
    insta::assert_snapshot!(all.join("\n"), @r#"
    cargo-compile-error: error: this file contains an unclosed delimiter --> src/lib.rs:#
    cargo-mixed: thread 'tests::two' (#) panicked at src/lib.rs:#: assertion `left == right` failed
    nextest-mixed: thread 'tests::two' (#) panicked at src/lib.rs:#: assertion `left == right` failed
    pytest-mixed: ERROR at setup of test_six E RuntimeError: no db
    pytest-collection-error: ERROR collecting empty/test_b.py E File "test_b.py", line #
    jest-mixed: ● two expect(received).toBe(expected) // Object.is equality
    vitest-mixed: FAIL a.test.js > two AssertionError: expected # to be # // Object.is equality
    mocha-mixed: AssertionError [ERR_ASSERTION]: # == #
    node-spec: AssertionError [ERR_ASSERTION]: # == #
    go-plain: --- FAIL: TestTable/one (<time>) calc_test.go:#: got #, want #
    go-verbose: --- FAIL: TestTable/one (<time>)
    ctest-mixed: # Test ##: subtracts ........................***Failed <time>
    surefire-mixed: [ERROR] org.example.MixedTest.two -- Time elapsed: <time> <<< FAILURE! java.lang.AssertionError: expected:<#> but was:<#>
    prove-mixed: # Failed test 'two'
    tsc-error: src/user.ts(#): error TS2322: Type 'string' is not assignable to type 'number'.
    tsc-pretty: src/user.ts:# - error TS2322: Type 'string' is not assignable to type 'number'.
    eslint-error: src/sum.js # error Unexpected var, use let or const instead no-var
    eslint-color: src/sum.js # error Unexpected var, use let or const instead no-var
    gcc-error: src/main.c:#: error: expected ‘;’ before ‘retrun’
    gcc-link: calc.c:(.text+<addr>): undefined reference to `answer'
    "#);
}

#[test]
fn signatures_ignore_line_folder_and_color() {
    let number = regex::Regex::new("([:(,])[0-9]+").expect("a pattern");
    for (name, output) in RECORDED {
        let elsewhere = output.replace("/home/dev/project", "/tmp/r-7-xyz/tree").replace("/tmp/cc", "/tmp/ccx");
        assert_eq!(first_error(&elsewhere), first_error(output), "{name}");
    }
    for name in ["tsc-error", "gcc-error", "eslint-error", "cargo-compile-error"] {
        let moved = number.replace_all(recorded(name), "${1}417");
        assert_ne!(moved, recorded(name));
        assert_eq!(first_error(&moved), first_error(recorded(name)), "{name}: {moved}");
    }
    assert_eq!(first_error(recorded("eslint-color")), first_error(recorded("eslint-error")));
}

#[test]
fn varying_parts_become_placeholders() {
    let cases = [
        ("at 0x7ffd12ab in 12ms", "at <addr> in <time>"),
        ("commit 9fceb02 by deadbeef", "commit <hash> by deadbeef"),
        ("run 550e8400-e29b-41d4-a716-446655440000 took 1m 3s", "run <uuid> took <time>"),
        ("[2026-02-03 10:00:01,123] failed at 10:00:01", "[<time>] failed at <time>"),
        ("Tue, 03 Feb 2026 10:00:01 GMT", "<time> GMT"),
        ("connect ECONNREFUSED 127.0.0.1:5432", "connect ECONNREFUSED <host>"),
        ("GET http://localhost:8080/api/users/17 failed", "GET http://localhost:#/api/users/# failed"),
        (r"C:\Users\me\work\src\a.ts:3:5", "src/a.ts:#"),
        ("/tmp/pytest-of-root/pytest-12/test_x0/conf.toml", "conf.toml"),
        ("open /tmp/tmpab12cd.json: denied", "open <tmp>.json: denied"),
        ("./main.go:5:2: undefined: foo", "main.go:#: undefined: foo"),
        ("error[E0382] in utf8_test2, x86_64", "error[E0382] in utf8_test2, x86_64"),
        ("\x1b[31mred\x1b[0m\t and\n\nblue", "red and blue"),
        ("target/debug/deps/parser-1a2b3c4d5e6f7a8b/x", "target/debug/deps/parser-<hash>/x"),
        ("12/57 done, 1,234.5 left", "# done, # left"),
    ];
    for (text, expected) in cases {
        assert_eq!(normalize(text), expected, "{text}");
    }
}

#[test]
fn first_error_of_further_tools_is_found() {
    let cases = [
        ("all good\n3 passed\n0 failed\n", None),
        ("", None),
        ("building\nsh: 1: foo: not found\n", Some("sh: #: foo: not found")),
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\nValueError: bad\n",
            Some("ValueError: bad"),
        ),
        (
            "FAIL: test_a (tests.T)\n-----\nAssertionError: 3 != 4\n",
            Some("FAIL: test_a (tests.T) AssertionError: # != #"),
        ),
        (
            "panic: runtime error: index out of range [3]\n\ngoroutine 7\n",
            Some("panic: runtime error: index out of range [#]"),
        ),
        ("10%\r50%\rerror: no space left\n", Some("error: no space left")),
    ];
    for (output, expected) in cases {
        assert_eq!(first_error(output).as_deref(), expected, "{output}");
    }
}

#[test]
fn long_output_is_read_at_both_ends() {
    let filler = "all is well with this line of the log\n".repeat(100_000);
    let late = format!("{filler}src/a.c:3:5: error: late\n");
    assert_eq!(first_error(&late).as_deref(), Some("src/a.c:#: error: late"));
    let early = format!("it failed somehow\n{filler}");
    assert_eq!(first_error(&early).as_deref(), Some("it failed somehow"));
    assert_eq!(normalize(&"ü".repeat(100_000)).chars().count(), 300);
}

proptest! {
    #[test]
    fn signature_accepts_any_text(text in any::<String>(), lines in prop::collection::vec("[ -~é\u{1b}/\\\\0-9a-f]{0,40}", 0..20)) {
        prop_assert!(normalize(&text).chars().count() <= 300);
        let output = lines.join("\n");
        prop_assert_eq!(first_error(&output), first_error(&output));
        prop_assert_eq!(normalize(&output), normalize(&output));
    }
}

#[test]
fn error_lines_are_distinct_ordered_and_bounded() {
    assert_eq!(error_lines("all good\n0 errors\n"), Vec::<String>::new());
    let tsc = "src/a.ts(3,1): error TS2322: Type 'x' is not assignable.\nsrc/a.ts(9,1): error TS2322: Type 'x' is not \
               assignable.\nsrc/b.ts(1,1): error TS2304: Cannot find name 'y'.\n";
    let lines = error_lines(tsc);
    assert_eq!(lines.len(), 2, "the same error on another line is the same: {lines:?}");
    assert!(lines[0].starts_with("src/a.ts") && lines[1].starts_with("src/b.ts"));
    assert_eq!(error_lines(recorded("gcc-error")).first().cloned(), first_error(recorded("gcc-error")));
    let many: String = (0..100).map(|n| format!("src/{}.ts(1,1): error TS1: x\n", "a".repeat(n + 1))).collect();
    assert_eq!(error_lines(&many).len(), 40);
}
