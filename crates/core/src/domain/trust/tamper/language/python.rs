//! Python: pytest, unittest, Django, nose2.

use super::tokens::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["py"],
    comments: &["#"],
    function: r"^\s*(?:async\s+)?def\s+(\w+)|^\s*class\s+(\w+)",
    exit: r"\bsys\.exit\(\s*(?:0|None)?\s*\)|\bos\._exit\(|^\s*(?:exit|quit)\(\s*0?\s*\)|\braise\s+SystemExit(?:\(\s*0?\s*\))?\s*$|\bpytest\.exit\(",
    asks_for_tests: r#"PYTEST_CURRENT_TEST|["']pytest["']\s+in\s+sys\.modules|["']unittest["']\s+in\s+sys\.modules"#,
    any_value: r#"\bunittest\.mock\b|^\s*from\s+unittest\s+import\s+.*\bmock\b|^\s*(?:from|import)\s+(?:mock|hamcrest|dirty_equals|callee|flexmock|mockito)\b|\b__(?:eq|lt|gt|le|ge|contains)__["']?\s*[=:,]\s*lambda\b.*:\s*\(?(?:True|1|not\s+(?:False|0|None))\b|\b__ne__["']?\s*[=:,]\s*lambda\b.*:\s*\(?(?:False|0|not\s+True)\b|\b__(?:repr|str|format)__["']?\s*[=:,]\s*lambda\b[^"']*:[^"']*["'][^"'{}]*["']"#,
    assertion_api: r#"\b(?:TestCase|TestResult|TextTestResult|TextTestRunner|TestSuite|TestProgram)\.\w+\s*=[^=]|\bsetattr\(\s*(?:\w+\.)*(?:TestCase|TestResult|TextTestResult|TextTestRunner|TestSuite|unittest|pytest|_pytest)\b|^\s*(?:unittest|pytest|_pytest|doctest)\.(?:\w+\.)*\w+\s*=[^=]|\bsys\.modules\[\s*["'](?:unittest|pytest|_pytest|doctest|nose2?|hypothesis)\b|\b(?:builtins|__builtins__)\.(?:AssertionError|exit|quit)\s*=[^=]|^\s*AssertionError\s*=[^=]|^\s*(?:sys\.exit|os\._exit)\s*=[^=]"#,
    hard_exit: r#"\bos\._exit\b|(?:^|[^\w.])_exit\(|\bimport\b.*\b_exit\b|\bgetattr\(\s*os\s*,\s*["']_|\bos\.exec[lv]\w*\([^)]*["'](?:(?:/usr)?/bin/)?true["']"#,
    exit_hook: r"\batexit\.register\b",
    collected: r"^test_.*\.py$|_test\.py$|^tests\.py$",
};
