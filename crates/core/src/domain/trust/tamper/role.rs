//! Role of a file of the base, by its path and its content, where the path alone decides wrong: a program in a folder that is named
//! like test data, a library of assertions in a folder of the program, and a runner of tests with an ordinary name.

use super::language::Language;
use super::marks::is_test_file;
use super::starts::CheckStart;

// Paths that only tests have.
pattern!(
    TEST_PATH,
    r"(?i)(?:^|/)(?:tests?|__tests__|specs?|e2e|t|__snapshots__|testdata)/|(?:^|[/_.-])(?:tests?|specs?)(?:[_.-][^/]*)?\.\w+$|tests?\.\w+$|Spec\.\w+$|(?:^|/)conftest\.py$"
);
// A test, or data of a test in the form of code.
pattern!(
    TESTS,
    r"(?im)assert|expect|\bcases\b|^\s*\[\s|\bunittest\b|\bpytest\b|junit|\btesting\b|describe\s*\(|\btest\w*\s*[\(:\x22']|\bit\s*\(|<check\.h>|\bshould|\bfail|\bexit\s+1\b|\|\|\s*(?:exit|return)\b"
);
// What makes a test fail: functions of a test framework, or an error of an assertion that the file raises or defines.
pattern!(
    FAILS_TESTS,
    r#"(?x)^\s*(?:import|from)\s+(?:unittest|pytest|doctest|hypothesis)\b | \braise\s+AssertionError\b
     | \bnew\s+(?:\w+\.)*Assertion(?:Failed)?Error\b | ["'](?:node:)?assert(?:/strict)?["'] | ["'](?:vitest|chai|@jest/globals|node:test|ava|tape|uvu)["']
     | ^\s*(?:import\s+)?(?:\w+\s+)?"testing"\s*$ | \btesting\.TB?\b | \*testing\.[TBM]\b
     | \borg\.(?:junit|testng|hamcrest|assertj)\b | \bPHPUnit\\ | \b(?:Minitest|RSpec|Test::Unit|Test::More)\b
     | \bmacro_rules!\s*\w*(?:assert|expect|check|should)\w*
     | \bExUnit\b | \bHspec\b | \bTest\.(?:HUnit|Tasty)\b | \bAlcotest\b | \brackunit\b"#
);
// A program that judges others: it compares, reports in the words of a runner, and ends with failure.
pattern!(REPORTS, r#"(?i)["'`][^"'`\n]*\b(?:fail(?:ed|s|ure|ures)?|passed|expected|wanted|not ok|mismatch)\b"#);
pattern!(
    ENDS_WITH_FAILURE,
    r"(?i)\bexit\w*\s*\(?\s*(?:[1-9]|\$?\w*fail|\$?\w*err|!|\$?\w+\s*\?|Number|int\()|exitCode\s*=|exit_code|AssertionError|\bassert\b|\bpanic|\bdie\b"
);

/// Whether a file of the base belongs to the tests, according to its path and content. `start` has the commands of the checks.
/// `None` if the path decides.
pub fn role_by_content(path: &str, content: &str, start: &CheckStart<'_>) -> Option<bool> {
    if !has_role_by_content(path) {
        return None;
    }
    if is_test_file(path) {
        return Some(TESTS.is_match(content));
    }
    let has_tests = test_regions(content);
    let asserts = || content.lines().any(|line| FAILS_TESTS.is_match(line)) || only_asserts(path, content);
    let judges = || start.runs(path) && REPORTS.is_match(content) && ENDS_WITH_FAILURE.is_match(content);
    (!has_tests && (asserts() || judges())).then_some(true)
}

/// Whether a file does nothing but assert: functions named after assertions that fail, exported macros of assertions, a Python module
/// that asserts when it is imported or whose functions return nothing.
fn only_asserts(path: &str, content: &str) -> bool {
    pattern!(NAME, r"(?i)(?:^|/)(?:expect\w*|assert\w*|should|want|matchers?)\.\w+$");
    pattern!(FAILS, r"\b(?:throw|raise|panic|exit|fail)\w*\b");
    pattern!(HEADER, r"\.(?:h|hh|hpp|hxx|inc)$");
    pattern!(DEFINES_ASSERTION, r"^\s*#\s*define\s+\w*(?i:assert|expect|check|require|mu_|should|test)\w*\(");
    pattern!(MACRO, r"(?s)#\[macro_export\].*\bassert");
    pattern!(RUST_ITEM, r"(?m)^\s*pub\s+(?:fn|struct|enum|trait)\b");
    pattern!(PYTHON_ASSERT, r"(?m)^([ \t]*)assert\b");
    pattern!(RESULT, r"(?m)^\s*(?:return|yield)\s+\S");
    let python = || {
        let mut asserts = PYTHON_ASSERT.captures_iter(content).peekable();
        asserts.peek().is_some() && (asserts.any(|found| found[1].is_empty()) || !RESULT.is_match(content))
    };
    match Language::of(path) {
        Some(Language::Python) if python() => true,
        // A source file that defines such a macro may be the program with its tests.
        Some(Language::Cpp) if HEADER.is_match(path) => content.lines().any(|line| DEFINES_ASSERTION.is_match(line)),
        Some(Language::Rust) => MACRO.is_match(content) && !RUST_ITEM.is_match(content),
        _ => NAME.is_match(path) && FAILS.is_match(content),
    }
}

/// Whether a program file has tests, which are compared one by one.
fn test_regions(content: &str) -> bool {
    pattern!(
        REGION,
        r"(?m)^\s*#\s*if(?:def)?\b.*(?i:test|debug)|#\[(?:cfg\(test|test\b)|>>> |^\s*class\s+\w*Tests?\w*\(|TestCase\)|import\.meta\.vitest|\bTEST(?:_CASE)?\(|\bunittest\s*\{|^test\s|when isMainModule|runnableExamples|let%(?:expect_)?test|module\+ test|Minitest::Test|@Test\b|require\.main|__main__"
    );
    REGION.is_match(content)
}

/// Whether the role of a changed file of the base depends on its content.
pub fn has_role_by_content(path: &str) -> bool {
    Language::of(path).is_some() && !(TEST_PATH.is_match(path) && is_test_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_where_the_path_misleads() {
        let start = CheckStart::new(
            ["node run.js", "python3 -m checks", "python3 main.py", "sh suite/all.sh"],
            ["run.js", "checks/__main__.py", "main.py", "suite/all.sh"],
        );
        let role = |path: &str, content: &str| role_by_content(path, content, &start);
        for (path, content) in [
            (
                "harness/compare.py",
                "def same(a, b):\n    if a != b:\n        raise AssertionError(f\"{a} is not {b}\")\n",
            ),
            (
                "lib/check.js",
                "const assert = require(\"node:assert\");\nexports.same = (a, b) => assert.equal(a, b);\n",
            ),
            ("internal/want/want.go", "package want\n\nimport (\n\t\"testing\"\n)\n"),
            (
                "src/Expect.java",
                "class Expect {\n  static void same(int a, int b) {\n    if (a != b) throw new AssertionError();\n",
            ),
            ("src/minunit.h", "#define mu_assert(message, test) do { if (!(test)) return message; } while (0)\n"),
            ("src/lib.rs", "#[macro_export]\nmacro_rules! assert_pairs {\n    () => {};\n}\n"),
            ("harness/same.py", "def same(a, b):\n    assert a == b, f\"{a} is not {b}\"\n"),
            ("calc/selftest.py", "from calc import mul\n\nassert mul(2, 3) == 6\n"),
            ("Expect.java", "if (a != b) { throw new IllegalStateException(); }"),
            ("src/support.rs", "#[macro_export]\nmacro_rules! pairs {\n    () => { assert_eq!(1, 1) };\n}\n"),
            ("suite/clamp.sh", ". ./calc.sh\n[ $(clamp 9) = 5 ]\n"),
            ("run.js", "if (slug(\"A\") !== \"a\") { console.log(\"FAIL: expected a\"); process.exitCode = 1; }\n"),
            ("checks/__main__.py", "if clamp(9, 1, 5) != 5:\n    print(\"failed: clamp\")\n    sys.exit(1)\n"),
            ("fixtures/case.py", "def test_a():\n    assert f() == 1\n"),
        ] {
            assert_eq!(role(path, content), Some(true), "{path}");
        }
        for (path, content) in [
            ("fixtures/model.py", "class Lamp:\n    pass\n"),
            ("src/check_digit.c", "int check_digit(const char *number) {\n  return 0;\n}\n"),
            ("src/snapshots/store.js", "export const take = (tree) => ({ ...tree });\n"),
            ("fixtures/fixtures.go", "package fixtures\n\nfunc Lamps() int { return 3 }\n"),
        ] {
            assert_eq!(role(path, content), Some(false), "{path}");
        }
        for (path, content) in [
            ("main.py", "import calc\nprint(calc.add(1, 2))\n"),
            (
                "calc.py",
                "def add(a, b):\n    \"\"\"\n    >>> add(1, 2)\n    3\n    \"\"\"\n    assert a\n    return a + b\n",
            ),
            ("src/lib.rs", "macro_rules! check_all { () => {} }\n#[cfg(test)]\nmod tests {}\n"),
            ("tests/cases.py", ""),
            ("data.json", ""),
        ] {
            assert_eq!(role(path, content), None, "{path}");
        }
    }
}
