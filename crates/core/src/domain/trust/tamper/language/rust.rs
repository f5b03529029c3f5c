//! Rust: cargo test, nextest, and the usual attributes of test crates.

use super::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["rs"],
    comments: &["//", "/*", "* "],
    test: "",
    mark: r"^\s*#\[(?:[\w:]*::)?(?:test|rstest|test_case|quickcheck|proptest|wasm_bindgen_test)\b",
    function: r"^\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?fn\s+(\w+)|^\s*(?:pub(?:\([^)]*\))?\s+)?(?:mod|impl|struct|enum|trait)\b",
    skip: r"#\[cfg\(.*\ball\(\s*test,\s*not\(test\)|\bTestResult::discard\(|^\s*#\[(?:ignore\b|cfg_attr\(.*\bignore\b|cfg\((?:any\(\)|FALSE|false)\))|^\s*#!\[cfg\((?:[^t)]|t[^e])",
    assertion: r"^\s*#\[should_panic|\.unwrap_err\(\)",
    exact: r"\bassert_eq!|\bassert_\w*matches!|\bassert_\w*snapshot!|#\[should_panic\(|\bassert!\(.*==|\bassert_\w+_eq!",
    weak: r"\bdebug_assert|\bassert!\(\s*[^;]*\.(?:is_ok|is_some|is_err)\(\)\s*[,)]|^\s*#\[should_panic\]|\bassert!\([^;]*>=\s*0\b|\bassert!\(\s*![\w.]+\.is_empty\(\)\s*\)|\bassert_ne!",
    exit: r"\bprocess::exit\(\s*0\s*\)|\bprocess::exit\(\s*exitcode::OK",
    swallow: r"\bcatch_unwind\(|\b(?:Err\(_?\w*\)|None|_)\s*=>\s*(?:\{\s*\}|\(\)|return\b)",
    asks_for_tests: r"\bcfg!\(\s*test\s*\)",
    mock: "",
    any_value: r"\bpredicate::always\(\)|\bMatcher::Any\b",
    assertion_api: r"^\s*macro_rules!\s+(?:assert|assert_eq|assert_ne|assert_matches|panic)\b",
    hard_exit: r"\b(?:libc|nix|unistd)::(?:_exit|exit_group)\(|(?:^|[^\w:])_exit\(|\bexit_immediately\(|\bexit_group\(|\bSYS_exit",
    exit_hook: r#"#\[(?:\w+::)?(?:ctor|dtor)\b|\batexit\(|#\[(?:unsafe\()?link_section\s*=\s*"\.(?:init|fini)_array"#,
    last_definition_wins: false,
    collected: r"\.rs$",
};
