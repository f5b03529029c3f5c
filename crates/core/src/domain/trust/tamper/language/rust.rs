//! Rust: cargo test, nextest, and the usual attributes of test crates.

use super::tokens::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["rs"],
    comments: &["//", "/*", "* "],
    function: r"^\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?fn\s+(\w+)|^\s*(?:pub(?:\([^)]*\))?\s+)?(?:mod|impl|struct|enum|trait)\b",
    exit: r"\bprocess::exit\(\s*0\s*\)|\bprocess::exit\(\s*exitcode::OK",
    asks_for_tests: r"\bcfg!\(\s*test\s*\)",
    any_value: r"\bpredicate::always\(\)|\bMatcher::Any\b",
    assertion_api: r"^\s*macro_rules!\s+(?:assert|assert_eq|assert_ne|assert_matches|panic)\b",
    hard_exit: r"\b(?:libc|nix|unistd)::(?:_exit|exit_group)\(|(?:^|[^\w:])_exit\(|\bexit_immediately\(|\bexit_group\(|\bSYS_exit",
    exit_hook: r#"#\[(?:\w+::)?(?:ctor|dtor)\b|\batexit\(|#\[(?:unsafe\()?link_section\s*=\s*"\.(?:init|fini)_array"#,
    collected: r"\.rs$",
};
