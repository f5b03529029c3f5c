//! C and C++: GoogleTest, Catch2, doctest, Unity, Check, cmocka, plain `assert`.

use super::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["c", "cc", "cpp", "cxx", "h", "hh", "hpp", "hxx"],
    comments: &["//", "/*", "* "],
    test: r#"^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+\s*,\s*\w+)|^\s*(?:TEST_CASE|SCENARIO|TEST_CASE_METHOD|SUBCASE|SECTION)\(\s*(?:\w+\s*,\s*)?"([^"]*)"|^\s*START_TEST\(\s*(\w+)|^\s*BOOST_\w*TEST_CASE\(\s*(\w+)|^(?:static\s+)?(?:void|int|bool)\s+(test_?\w+)\s*\([^;]*$"#,
    mark: "",
    function: r"^(?:static\s+|inline\s+|extern\s+|const\s+|unsigned\s+)*[A-Za-z_][\w:<>]*[\s*&]+(\w+)\s*\([^;]*$",
    skip: r#"\bGTEST_SKIP\(|^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*\w+\s*,\s*DISABLED_|^\s*TEST_CASE\(.*"[^"]*\[(?:\.|!mayfail|!shouldfail|!hide)|\bdoctest::(?:skip|may_fail|should_fail)\(|\bTEST_IGNORE(?:_MESSAGE)?\(|^\s*SKIP\(|^#\s*if\s+0\b|\bGTEST_FLAG\(?_?\w*filter|\bGTEST_FLAG_SET\(\s*filter|\bskip\(\);|\bunit_test::(?:disabled|disable_if|expected_failures)"#,
    assertion: r"\b(?:EXPECT|ASSERT|REQUIRE|CHECK|TEST_ASSERT|BOOST_\w+)(?:_\w+)?\(|\bck_assert\w*\(|\bassert_\w+\(",
    exact: r"\b\w*assert\w*_(?:eq|equal|streq|str_eq|mem_eq)\w*\(|\b(?:EXPECT|ASSERT)_(?:EQ|STREQ|STRCASEEQ|THAT|NEAR|THROW|\w+_EQ)\(|\b(?:REQUIRE|CHECK)\([^;]*==|\bREQUIRE_THROWS_(?:AS|WITH)|\bCHECK_THROWS_(?:AS|WITH)|\bTEST_ASSERT_EQUAL|\bassert\([^;]*==|\bCHECK_EQ\(|\bck_assert_\w+_eq\(|\bassert_(?:int|string|memory)_equal\(",
    weak: r"\b\w*assert\w*_(?:not_null|non_null|nonnull)\w*\(|\b(?:EXPECT|ASSERT)_(?:NE|TRUE)\([^;]*(?:nullptr|NULL)|\b(?:EXPECT|ASSERT)_GE\(.*,\s*0\w*\s*\)|\b(?:EXPECT|ASSERT)_(?:ANY_THROW|NO_THROW)\(|\bassert\(\s*\w+\s*(?:!=\s*NULL)?\s*\)|\bCHECK_NOFAIL\(|\bWARN(?:_\w+)?\(|\b(?:REQUIRE|CHECK)_(?:THROWS|NOTHROW)\(|\bTEST_ASSERT_NOT_NULL\(|\b(?:EXPECT|ASSERT)_TRUE\(\s*\w+\s*\)",
    exit: r"\b_?[eE]?xit\(\s*(?:0|EXIT_SUCCESS)\s*\)|\bquick_exit\(\s*0",
    swallow: r"\bcatch\s*\(\s*(?:\.\.\.|(?:const\s+)?std::exception\b[^)]*)\s*\)",
    asks_for_tests: r"^#\s*if(?:def\s+|\s+defined\(?\s*)(?:UNIT_TEST\w*|TESTING|GTEST\w*|RUNNING_TESTS)\b",
    mock: "",
    any_value: r"^\s*#\s*include\s*[<\x22](?:gmock|fakeit|trompeloeil)\b|\btesting::_\b",
    assertion_api: r"^\s*#\s*define\s+(?:assert|EXPECT_(?:EQ|NE|TRUE|FALSE|STREQ|THAT|NEAR|LT|GT)|ASSERT_(?:EQ|NE|TRUE|FALSE|STREQ|THAT|NEAR)|TEST_ASSERT\w*|ck_assert\w*|RUN_ALL_TESTS|UNITY_END|REQUIRE|CHECK_EQUAL)\s*\(|^\s*#\s*undef\s+(?:assert|EXPECT_\w+|ASSERT_\w+|TEST_ASSERT\w*|ck_assert\w*)\b|\b__wrap_(?:exit|abort|__assert_fail)\b",
    hard_exit: r"\bquick_exit\(|\bSYS_exit(?:_group)?\b",
    exit_hook: r"__attribute__\s*\(\(\s*_*(?:constructor|destructor)|\bgnu::(?:constructor|destructor)|\b(?:atexit|on_exit|at_quick_exit)\(|\.(?:init|fini)_array\b|^\s*#\s*pragma\s+(?:init|startup)",
    last_definition_wins: false,
    collected: r"^test[\w-]*\.(?:c|cc|cpp|cxx)$|tests?\.(?:c|cc|cpp|cxx)$|^check_\w+\.(?:c|cc|cpp|cxx)$|\.t\.(?:c|cc|cpp|cxx)$",
};
