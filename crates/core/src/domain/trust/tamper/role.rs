//! Role of a file of the base, by its path and its content, where the path alone decides wrong: a program in a folder that is named
//! like test data or a test, a library of assertions in a folder of the program, and a runner of tests with an ordinary name.

use super::language::Language;
use super::marks::is_test_file;
use super::starts::CheckStart;

// Paths that only tests have.
pattern!(
    TEST_PATH,
    r"(?i)(?:^|/)(?:tests?|__tests__|specs?|e2e|t|__snapshots__|testdata)/|(?:^|[/_.-])(?:tests?|specs?)(?:[_.-][^/]*)?\.\w+$|(?-i:tests?\.\w+$)|(?:^|/)conftest\.py$"
);
// A test, or data of a test in the form of code.
pattern!(
    TESTS,
    r"(?im)assert|expect|\bcases\b|^\s*\[\s|\bunittest\b|\bpytest\b|junit|\x22testing\x22|describe\s*\(|\btest\w*\s*[\(:\x22']|\bit\s*\(|<check\.h>|\bshould|\bfail|\bexit\s+1\b|\|\|\s*(?:exit|return)\b"
);
// Classes and modules with the name of a test, which may also be part of a program, such as a load test.
pattern!(CLASS_NAME, r"[a-z0-9](?:Tests?|Spec)\.\w+$");
pattern!(MODULE_NAME, r"[a-z0-9](?:Tests?|Spec)\.(?:hs|elm|cs|fs|vb|swift)$");
pattern!(
    FAILS_CLASS,
    r"\bthrow\b|\bexit\w*\b|\bmain\b|\b(?:print\w*|echo|puts)\b|\bHUnit\b|\bTasty\b|\bHspec\b|QuickCheck|\bprop_\w|@Test\b|\[(?:Fact|Theory|Test)\b"
);
// What makes a test fail: functions of a test framework, or an error of an assertion that the file raises or defines.
pattern!(
    FAILS_TESTS,
    r#"(?x)^\s*(?:import|from)\s+(?:unittest|pytest|doctest|hypothesis)\b | \braise\s+AssertionError\b
     | \bnew\s+(?:\w+\.)*Assertion(?:Failed)?Error\b | ["'](?:node:)?assert(?:/strict)?["'] | ["'](?:vitest|chai|@jest/globals|node:test|ava|tape|uvu)["']
     | ^\s*(?:import\s+)?(?:\w+\s+)?"testing"\s*$ | \btesting\.TB?\b | \*testing\.[TBM]\b
     | \borg\.(?:junit|testng|hamcrest|assertj)\b | \bPHPUnit\\ | \b(?:Minitest|RSpec|Test::Unit|Test::More)\b
     | \bExUnit\b | \bHspec\b | \bTest\.(?:HUnit|Tasty)\b | \bAlcotest\b | \brackunit\b"#
);
// A program that judges others: it compares, reports in the words of a runner, and ends with failure.
pattern!(REPORTS, r#"(?i)["'`][^"'`\n]*\b(?:fail(?:ed|s|ure|ures)?|passed|expected|wanted|not ok|mismatch)\b"#);
pattern!(
    ENDS_WITH_FAILURE,
    r"(?i)\bexit\w*\s*\(?\s*(?:[1-9]|\$?\w*fail|\$?\w*err|!|\$?\w+\s*\?|Number|int\()|exitCode\s*=|exit_code|AssertionError|\bassert\b|\bpanic|\bdie\b"
);

/// Whether a line belongs to a test framework, or raises or defines an error of an assertion outside of unreachable code.
pub(super) fn fails_tests(line: &str) -> bool {
    pattern!(
        NEVER,
        r"(?i)unreachable|never|impossible|can(?:no|')t happen|exhaust|\bnot? instan|\bno instan|\bdefault\b"
    );
    FAILS_TESTS.is_match(line) && !NEVER.is_match(line)
}

/// Returns a POSIX extended regular expression for a line of a program that imports a file; `None` if the language has no such lines, or
/// if a check starts the file.
pub fn use_of(path: &str, start: &CheckStart<'_>) -> Option<String> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = match file.split('.').next().unwrap_or(file) {
        "__init__" | "index" => path.rsplit('/').nth(1)?,
        stem => stem,
    };
    if start.runs(path) || !stem.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        return None;
    }
    let after = "([^[:alnum:]_]|$)";
    match Language::of(path)? {
        Language::Python => Some(format!(
            "^[[:space:]]*(import[[:space:]]+|from[[:space:]]+|from[[:space:]].*import(.*,)?[[:space:]]+)([[:alnum:]_.]*[.])?{stem}{after}"
        )),
        Language::JavaScript => {
            Some(format!("(from|require[(]|import[(]?)[[:space:]]*['\"]([^'\"]*/)?{stem}([.][a-z]+)?['\"]"))
        }
        Language::Ruby => Some(format!("require(_relative)?[[:space:](]+['\"]([^'\"]*/)?{stem}['\"]")),
        Language::Cpp => {
            Some(format!("#[[:space:]]*include[[:space:]]*[<\"]([^>\"]*/)?{}[>\"]", file.replace('.', "[.]")))
        }
        // Classes of a package need no import.
        Language::Jvm | Language::Php => Some(format!("(^|[^[:alnum:]_]){stem}{after}")),
        Language::Rust | Language::Go | Language::Shell => None,
    }
}

/// Whether a file that imports another one, and their contents, show that the other one is part of the program: no test and no library
/// of tests imports it. Where a package only exports it, it must also return results.
pub fn is_program_use((user, content): (&str, &str), used: &str) -> bool {
    pattern!(RESULT, r"(?m)^\s*(?:return|yield)\s+\S");
    let asserts = || content.lines().any(fails_tests) || only_asserts(user, content);
    let exports =
        user.ends_with("/__init__.py") || user.rsplit('/').next().is_some_and(|name| name.starts_with("index."));
    let is_code = Language::of(user).is_some() && !is_test_file(user);
    is_code && (!exports || RESULT.is_match(used)) && !asserts()
}

/// Whether a file of the base belongs to the tests, according to its path and content. `has_tests` is true for a program file with
/// tests, which are compared one by one. `start` has the commands of the checks. `None` if the path decides.
pub fn role_by_content(path: &str, content: &str, has_tests: bool, start: &CheckStart<'_>) -> Option<bool> {
    if !has_role_by_content(path) {
        return None;
    }
    if is_test_file(path) {
        return Some(TESTS.is_match(content) || CLASS_NAME.is_match(path) && FAILS_CLASS.is_match(content));
    }
    let asserts = || content.lines().any(fails_tests) || only_asserts(path, content);
    let judges = || start.runs(path) && REPORTS.is_match(content) && ENDS_WITH_FAILURE.is_match(content);
    (!has_tests && (asserts() || judges())).then_some(true)
}

/// Whether the functions of a file can only fail: they return nothing and print nothing.
pub(super) fn only_fails(path: &str, content: &str) -> bool {
    pattern!(FAILS, r"\b(?:assert|raise|exit)\b");
    pattern!(RESULT, r"(?m)^\s*(?:return|yield)\s+\S|^\s*lambda\b|=\s*lambda\b|\bprint\(|\.write\(");
    let fails = Language::of(path) == Some(Language::Python) && FAILS.is_match(content) && !RESULT.is_match(content);
    fails || only_asserts(path, content)
}

/// Whether a file does nothing but assert: functions named after assertions that fail, exported macros of assertions, a Python module
/// that asserts when it is imported or whose functions return nothing.
fn only_asserts(path: &str, content: &str) -> bool {
    pattern!(NAME, r"(?i)(?:^|/)(?:expect\w*|assert\w*|should|want|matchers?)\.\w+$");
    pattern!(FAILS, r"\b(?:throw|raise|panic|exit|fail)\w*\b");
    pattern!(HEADER, r"\.(?:h|hh|hpp|hxx|inc)$");
    pattern!(DEFINES_ASSERTION, r"^\s*#\s*define\s+\w*(?i:assert|expect|check|require|mu_|should|test)\w*\(");
    pattern!(FAILS_MACRO, r"\b(?:if|exit|abort|throw|longjmp)\b|(?i)assert|fail|__line__");
    pattern!(MACRO, r"(?s)#\[macro_export\].*\bassert");
    pattern!(
        RUST_MACRO,
        r"(?s)\bmacro_rules!\s*\w*(?:assert|expect|check|should)\w*\s*\{.*?\b(?:panic|assert\w*)!.*?\n\}"
    );
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
        Some(Language::Cpp) if HEADER.is_match(path) => content.replace("\\\n", " ").lines().any(|line| {
            let body = DEFINES_ASSERTION.find(line).and_then(|found| line[found.end()..].split_once(')'));
            body.is_some_and(|(_, body)| FAILS_MACRO.is_match(body))
        }),
        Some(Language::Rust) => RUST_MACRO.is_match(content) || MACRO.is_match(content) && !RUST_ITEM.is_match(content),
        _ => NAME.is_match(path) && FAILS.is_match(content),
    }
}

/// Whether the role of a changed file of the base depends on its content.
pub fn has_role_by_content(path: &str) -> bool {
    let is_code = Language::of(path).is_some() || MODULE_NAME.is_match(path);
    is_code && !(TEST_PATH.is_match(path) && is_test_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_overrides_a_misleading_path() {
        let start = CheckStart::new(
            ["node run.js", "python3 -m checks", "python3 main.py", "sh suite/all.sh"],
            ["run.js", "checks/__main__.py", "main.py", "suite/all.sh"],
        );
        let role = |path: &str, content: &str| role_by_content(path, content, false, &start);
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
            ("src/lib.rs", "#[macro_export]\nmacro_rules! assert_pairs {\n    () => { panic!() };\n}\n"),
            ("harness/same.py", "def same(a, b):\n    assert a == b, f\"{a} is not {b}\"\n"),
            ("calc/selftest.py", "from calc import mul\n\nassert mul(2, 3) == 6\n"),
            ("Expect.java", "if (a != b) { throw new IllegalStateException(); }"),
            ("src/support.rs", "#[macro_export]\nmacro_rules! pairs {\n    () => { assert_eq!(1, 1) };\n}\n"),
            ("suite/clamp.sh", ". ./calc.sh\n[ $(clamp 9) = 5 ]\n"),
            ("run.js", "if (slug(\"A\") !== \"a\") { console.log(\"FAIL: expected a\"); process.exitCode = 1; }\n"),
            ("checks/__main__.py", "if clamp(9, 1, 5) != 5:\n    print(\"failed: clamp\")\n    sys.exit(1)\n"),
            ("fixtures/case.py", "def test_a():\n    assert f() == 1\n"),
            ("PrintTest.java", "System.out.println(Calc.mul(2, 3));\n"),
            ("CalcTest.java", "if (Calc.mul(2, 3) != 6) throw new RuntimeException();\n"),
            ("src/CalcSpec.hs", "import Test.Hspec\n"),
        ] {
            assert_eq!(role(path, content), Some(true), "{path}");
        }
        for (path, content) in [
            ("fixtures/model.py", "class Lamp:\n    pass\n"),
            ("src/check_digit.c", "int check_digit(const char *number) {\n  return 0;\n}\n"),
            ("src/snapshots/store.js", "export const take = (tree) => ({ ...tree });\n"),
            ("fixtures/fixtures.go", "package fixtures\n\nfunc Lamps() int { return 3 }\n"),
            ("src/LoadTest.hs", "module LoadTest where\n\nscore :: Int -> Int\nscore = id\n"),
            ("src/Testing/Bucket.php", "<?php\n\nnamespace App\\Testing;\n\nclass Bucket {}\n"),
        ] {
            assert_eq!(role(path, content), Some(false), "{path}");
        }
        for (path, content) in
            [("main.py", "import calc\nprint(calc.add(1, 2))\n"), ("tests/cases.py", ""), ("data.json", "")]
        {
            assert_eq!(role(path, content), None, "{path}");
        }
        let with_tests = "def add(a, b):\n    \"\"\"\n    >>> add(1, 2)\n    3\n    \"\"\"\n    assert a\n";
        assert_eq!(role_by_content("calc.py", with_tests, true, &start), None);
        assert_eq!(role_by_content("calc.py", with_tests, false, &start), Some(true));
    }

    #[test]
    fn imports_of_a_file_are_found_by_their_lines() {
        let start = CheckStart::new(["php run.php"], ["run.php"]);
        for (path, uses, others) in [
            (
                "lib/check.py",
                &["import check", "from lib.check import same", "from lib import a, check"][..],
                &["check = 1", "import checks"][..],
            ),
            ("harness/__init__.py", &["import harness"], &["import other"]),
            (
                "src/pool.js",
                &["export { Pool } from './pool.js';", "const pool = require(\"../pool\");"],
                &["pool();", "import a from './pools.js'"],
            ),
            ("src/bits.h", &["#include \"bits.h\"", "# include <a/bits.h>"], &["// bits.h"]),
            ("src/Color.java", &["Color.mix(a)", "  new Color();"], &["Colors.mix(a)"]),
            ("lib/want.rb", &["require_relative 'want'", "require 'a/want'"], &["want(1)"]),
        ] {
            let pattern = use_of(path, &start).unwrap();
            let pattern = pattern.replace("[[:space:]]", r"\s").replace("[[:space:]", r"[\s");
            let pattern = regex::Regex::new(&pattern).unwrap();
            assert!(uses.iter().all(|line| pattern.is_match(line)), "{path}: {pattern}");
            assert!(!others.iter().any(|line| pattern.is_match(line)), "{path}: {pattern}");
        }
        assert!(is_program_use(("src/main.py", "import check\n"), "") && !is_program_use(("tests/a.py", ""), ""));
        assert!(!is_program_use(("lib/same.js", "import assert from 'node:assert';\n"), ""));
        assert!(is_program_use(("shapes/__init__.py", ""), "return 1\n") && !is_program_use(("a/__init__.py", ""), ""));
        for path in ["run.php", "internal/want/want.go", "src/support.rs", "a$b.js"] {
            assert_eq!(use_of(path, &start), None, "{path}");
        }
    }
}
