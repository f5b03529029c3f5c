//! Shell: bats, shunit2, plain scripts.

use super::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["sh", "bash", "bats"],
    comments: &["#"],
    test: r#"^\s*[xf]?(?:It|Specify|Example)\s+['"]([^'"]+)['"]|^\s*@test\s+["']([^"']+)["']|^\s*(?:function\s+)?(test_?\w+)\s*\(\s*\)|^\s*test_expect_(?:success|failure)\s+(?:[A-Z_,!]+\s+)?['"]([^'"]+)['"]"#,
    mark: "",
    function: r"^\s*(?:function\s+)?(\w+)\s*\(\s*\)",
    skip: r"^\s*(?:x(?:It|Describe|Context|Specify|Example)|Skip|Pending|Todo)\b|\b(?:not )?ok\b.*#\s*(?:TODO|SKIP|todo|skip)\b|^\s*skip(?:\s|$)|(?:\|\||&&|;|then)\s*skip\b|^\s*startSkipping\b|^\s*test_expect_failure\b|^\s*(?:skip_all|test_done)=",
    assertion: r"^\s*The\s.*\bshould\b|^\s*(?:!\s+)?(?:\[\[?\s|test\s|run\s|(?:assert|refute)\w*(?:\s|$)|diff\s|cmp\s|test_cmp\s|grep\s)|\|\|\s*(?:fail|exit\s+[1-9]|return\s+[1-9]|die|error|framework_failure_|fail=1)|\bgrep\s+-\w*q",
    exact: r"\bshould\s+(?:equal|eq)\b|^\s*assert_output\b|^\s*assert(?:_equal|Equals|Same|Contains)\b|^\s*\[\[?\s.*=|^\s*test\s.*=|\bif\s+\[\[?\s.*=",
    weak: r"\bshould\s+be\s+(?:present|defined|truthy|valid|success)\b|^\s*assert_output\s+(?:--partial|-p)\b|^\s*assert_output\s*$|^\s*assert_success\s*$|^\s*assertNotNull\b|^\s*\[\[?\s+-n\s",
    exit: r"^\s*exit(?:\s+0)?\s*(?:#.*)?$|\btrap\s+.*exit\s+0|^\s*trap\s+true\s+ERR",
    swallow: r"\|\|\s*\[\[?\s+\\?\x22?\$\?|\|\|\s*(?:true|:|exit\s+0|return\s+0|echo\b)|;\s*true\s*$|^\s*set\s+\+e\b",
    asks_for_tests: r"\$\{?BATS_\w+",
    mock: "",
    any_value: "",
    assertion_api: r"^\s*(?:function\s+)?(?:test|\[|diff|cmp|exit|false|assert\w*|refute\w*)\s*\(\s*\)|^\s*alias\s+(?:test|diff|cmp|grep|exit|false|\[)=|^\s*enable\s+-n\s+(?:test|\[|exit|false)",
    hard_exit: r"^\s*(?:.*(?:;|&&|\|\|)\s*)?exec\s+(?:(?:/usr)?/bin/)?(?:true|:)(?:\s|;|$)",
    exit_hook: r"\btrap\b.*(?:\s(?:EXIT|0|ERR)\b)",
    last_definition_wins: true,
    collected: r"\.bats$|^test.*\.(?:sh|bash)$|_test\.(?:sh|bash)$|^t[\d-].*\.sh$",
};
