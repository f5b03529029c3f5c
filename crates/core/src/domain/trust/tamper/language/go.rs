//! Go: testing, testify, gotestsum.

use super::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["go"],
    comments: &["//", "/*"],
    test: r"^func\s+((?:Test(?:[^a-z\s(]\w*)?|Fuzz\w+|Example\w*))\s*\(|^func\s+\([^)]*Suite\)\s+(Test\w+)\s*\(",
    mark: "",
    function: r"^func\s+(?:\([^)]*\)\s*)?(\w+)",
    skip: r"\b(?:[tbf]|s\.T\(\))\.(?:Skip|Skipf|SkipNow)\(|^\s*[PXF](?:It|Describe|Context|When|Entry|Specify|DescribeTable)\(|^\s*(?:ginkgo\.)?Skip\(|^//go:build\s|^// \+build\s",
    assertion: r"\b[tb]\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\(|\b(?:is|c|qt)\.(?:Equal|Assert|NoErr|True)\(",
    exact: r"\b(?:assert|require|s|suite|r|a)\.(?:Equal\w*|ErrorIs|ErrorAs|ErrorContains|EqualError|Len|Contains|JSONEq|YAMLEq|InDelta|InEpsilon|Exactly|Same|ElementsMatch|Regexp)f?\(|\b[tb]\.(?:Errorf?|Fatalf?)\(",
    weak: r"\b(?:assert|require|s|suite|r|a)\.(?:NotNil|NotEmpty|NotZero|Error|NotPanics)f?\(|\b[tb]\.Logf?\(|GreaterOrEqual\([^)]*,\s*0\s*\)",
    exit: r"\bos\.Exit\(\s*0\s*\)|\bruntime\.Goexit\(",
    swallow: r"\brecover\(\)",
    asks_for_tests: r#"\btesting\.Testing\(\)|HasSuffix\(os\.Args\[0\],\s*"\.test"\)"#,
    mock: r"^\s*(?:\w+\.)?(\w+)\s*=\s*func\(",
    any_value: r#"\bmock\.Anything\b|\bgomock\.Any\(|"(?:github\.com/stretchr/testify/mock|github\.com/golang/mock/gomock|go\.uber\.org/mock/gomock)""#,
    assertion_api: r#"\bgo:linkname\s+\w+\s+(?:testing|os\.(?:Exit|runtime))|\bflag\.(?:Set|Lookup)\(\s*"test\."#,
    hard_exit: r"\b(?:syscall|unix|windows)\.(?:Exit|ExitProcess)\(|\bSYS_EXIT(?:_GROUP)?\b",
    exit_hook: r"^func\s+init\(\s*\)|^var\s+\w+.*=\s*func\(",
    last_definition_wins: false,
    collected: r"_test\.go$",
};
