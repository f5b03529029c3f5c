//! Shell: bats, shunit2, plain scripts.

use super::tokens::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["sh", "bash", "bats"],
    comments: &["#"],
    function: r"^\s*(?:function\s+)?(\w+)\s*\(\s*\)",
    exit: r"^\s*exit(?:\s+0)?\s*(?:#.*)?$|\btrap\s+.*exit\s+0|^\s*trap\s+true\s+ERR",
    asks_for_tests: r"\$\{?BATS_\w+",
    any_value: "",
    assertion_api: r"^\s*(?:function\s+)?(?:test|\[|diff|cmp|exit|false|assert\w*|refute\w*)\s*\(\s*\)|^\s*alias\s+(?:test|diff|cmp|grep|exit|false|\[)=|^\s*enable\s+-n\s+(?:test|\[|exit|false)",
    hard_exit: r"^\s*(?:.*(?:;|&&|\|\|)\s*)?exec\s+(?:(?:/usr)?/bin/)?(?:true|:)(?:\s|;|$)",
    exit_hook: r"\btrap\b.*(?:\s(?:EXIT|0|ERR)\b)",
    collected: r"\.bats$|^test.*\.(?:sh|bash)$|_test\.(?:sh|bash)$|^t[\d-].*\.sh$",
};
