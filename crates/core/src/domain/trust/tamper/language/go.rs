//! Go: testing, testify, gotestsum.

use super::tokens::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["go"],
    comments: &["//", "/*"],
    function: r"^func\s+(?:\([^)]*\)\s*)?(\w+)",
    exit: r"\bos\.Exit\(\s*0\s*\)|\bruntime\.Goexit\(",
    asks_for_tests: r#"\btesting\.Testing\(\)|HasSuffix\(os\.Args\[0\],\s*"\.test"\)"#,
    any_value: r#"\bmock\.Anything\b|\bgomock\.Any\(|"(?:github\.com/stretchr/testify/mock|github\.com/golang/mock/gomock|go\.uber\.org/mock/gomock)""#,
    assertion_api: r#"\bgo:linkname\s+\w+\s+(?:testing|os\.(?:Exit|runtime))|\bflag\.(?:Set|Lookup)\(\s*"test\."#,
    hard_exit: r"\b(?:syscall|unix|windows)\.(?:Exit|ExitProcess)\(|\bSYS_EXIT(?:_GROUP)?\b",
    exit_hook: r"^func\s+init\(\s*\)|^var\s+\w+.*=\s*func\(",
    collected: r"_test\.go$",
};
