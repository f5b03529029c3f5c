//! C and C++: GoogleTest, Catch2, doctest, Unity, Check, cmocka, plain `assert`.

use super::tokens::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["c", "cc", "cpp", "cxx", "h", "hh", "hpp", "hxx"],
    comments: &["//", "/*", "* "],
    function: r"^(?:static\s+|inline\s+|extern\s+|const\s+|unsigned\s+)*[A-Za-z_][\w:<>]*[\s*&]+(\w+)\s*\([^;]*$",
    exit: r"\b_?[eE]?xit\(\s*(?:0|EXIT_SUCCESS)\s*\)|\bquick_exit\(\s*0",
    asks_for_tests: r"^#\s*if(?:def\s+|\s+defined\(?\s*)(?:UNIT_TEST\w*|TESTING|GTEST\w*|RUNNING_TESTS)\b",
    any_value: r"^\s*#\s*include\s*[<\x22](?:gmock|fakeit|trompeloeil)\b|\btesting::_\b",
    assertion_api: r"^\s*#\s*define\s+(?:assert|EXPECT_(?:EQ|NE|TRUE|FALSE|STREQ|THAT|NEAR|LT|GT)|ASSERT_(?:EQ|NE|TRUE|FALSE|STREQ|THAT|NEAR)|TEST_ASSERT\w*|ck_assert\w*|RUN_ALL_TESTS|UNITY_END|REQUIRE|CHECK_EQUAL)\s*\(|^\s*#\s*undef\s+(?:assert|EXPECT_\w+|ASSERT_\w+|TEST_ASSERT\w*|ck_assert\w*)\b|\b__wrap_(?:exit|abort|__assert_fail)\b",
    hard_exit: r"\bquick_exit\(|\bSYS_exit(?:_group)?\b",
    exit_hook: r"__attribute__\s*\(\(\s*_*(?:constructor|destructor)|\bgnu::(?:constructor|destructor)|\b(?:atexit|on_exit|at_quick_exit)\(|\.(?:init|fini)_array\b|^\s*#\s*pragma\s+(?:init|startup)",
    collected: r"^test[\w-]*\.(?:c|cc|cpp|cxx)$|tests?\.(?:c|cc|cpp|cxx)$|^check_\w+\.(?:c|cc|cpp|cxx)$|\.t\.(?:c|cc|cpp|cxx)$",
};
