//! PHP: PHPUnit, Pest.

use super::tokens::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["php", "phpt"],
    comments: &["//", "/*", "* ", "# "],
    function: r"^\s*(?:(?:public|protected|private|static|final|abstract)\s+)*function\s+(\w+)|^\s*(?:(?:final|abstract)\s+)?(?:class|trait|interface)\s+(\w+)",
    exit: r"\b(?:exit|die)\s*(?:\(\s*0?\s*\)\s*[;)]|;)",
    asks_for_tests: r"PHPUNIT_COMPOSER_INSTALL|__PHPUNIT_PHAR__|class_exists\(\s*\\?['\x22]?PHPUnit",
    any_value: r"^\s*use\s+(?:PHPUnit|Mockery|Prophecy|Hamcrest)\b|\bMockery::(?:any|on)\(|\bArgument::(?:any|cetera)\(|\bIsAnything\b",
    assertion_api: r#"^\s*namespace\s+(?:PHPUnit|Pest|Mockery|Prophecy)\b|\bclass_alias\([^)]*PHPUnit|\bassert_options\(|\bini_set\(\s*["'](?:zend\.assertions|assert\.)"#,
    hard_exit: r#"\bpcntl_exec\([^)]*["'](?:/usr)?/bin/true["']"#,
    exit_hook: r"\bregister_shutdown_function\(",
    collected: r"Test\.php$|(?:^|[_.-])test\.php$|\.phpt$",
};
