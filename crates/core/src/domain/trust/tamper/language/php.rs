//! PHP: PHPUnit, Pest.

use super::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["php", "phpt"],
    comments: &["//", "/*", "* ", "# "],
    test: r"^\s*(?:(?:public|final)\s+)*function\s+(test\w+)\s*\(|^\s*(?:it|test)\(\s*(?:'([^']*)'|\x22([^\x22]*)\x22)",
    mark: r"@test\b|#\[(?:[\w\\]*\\)?Test\]",
    function: r"^\s*(?:(?:public|protected|private|static|final|abstract)\s+)*function\s+(\w+)|^\s*(?:(?:final|abstract)\s+)?(?:class|trait|interface)\s+(\w+)",
    skip: r"\bmarkTest(?:Skipped|Incomplete)\(|->(?:skip|todo|only)\(|\bexpectNotToPerformAssertions\(|#\[(?:[\w\\]*\\)?Requires\w+|@requires\b|^\s*\*\s*@group\s+(?:skip|disabled|broken|exclude|ignore)|#\[(?:[\w\\]*\\)?(?:DoesNotPerformAssertions|Group\(\s*'(?:skip|disabled|broken|exclude|ignore))|@doesNotPerformAssertions",
    assertion: r"->(?:toBe\w*|toEqual\w*|toHave\w*|toThrow\w*|toMatch\w*|toContain\w*)\(|\bexpectException\w*\(|\)->throws\(|\$I->(?:see|dontSee|canSee|cantSee|waitFor|assert)\w*\(",
    exact: r"\bassert(?:Same|Equals\w*|Count|ArrayHasKey|StringContains\w*|Json\w*|MatchesRegularExpression)\(|->toBe\(|->toEqual\(|\bexpectException\w*\(|->toHaveCount\(|->toThrow\(",
    weak: r"\bassert(?:NotNull|NotEmpty|InstanceOf|Is(?:Array|Int|String|Object|Bool|Float|Callable|Numeric))\(|\bassertTrue\(\s*(?:isset|is_\w+)\(|->not->toBeNull\(|->toBe(?:Truthy|String|Array|Object|InstanceOf|Int)\(|\bexpectException\(\s*\\?(?:Throwable|Exception)::class|->toThrow\(\s*\)",
    exit: r"\b(?:exit|die)\s*(?:\(\s*0?\s*\)\s*[;)]|;)",
    swallow: r"\bcatch\s*\(\s*\\?(?:\w+\\)*(?:Throwable|Exception|Error|AssertionError|\w*AssertionFailedError|ExpectationFailedException|AssertionFailedException)\b[^)]*\)",
    asks_for_tests: r"PHPUNIT_COMPOSER_INSTALL|__PHPUNIT_PHAR__|class_exists\(\s*\\?['\x22]?PHPUnit",
    mock: r"->method\(\s*'(\w+)'\s*\)\s*->will|->shouldReceive\(\s*'(\w+)'",
    any_value: r"^\s*use\s+(?:PHPUnit|Mockery|Prophecy|Hamcrest)\b|\bMockery::(?:any|on)\(|\bArgument::(?:any|cetera)\(|\bIsAnything\b",
    assertion_api: r#"^\s*namespace\s+(?:PHPUnit|Pest|Mockery|Prophecy)\b|\bclass_alias\([^)]*PHPUnit|\bassert_options\(|\bini_set\(\s*["'](?:zend\.assertions|assert\.)"#,
    hard_exit: r#"\bpcntl_exec\([^)]*["'](?:/usr)?/bin/true["']"#,
    exit_hook: r"\bregister_shutdown_function\(",
    last_definition_wins: false,
    collected: r"Test\.php$|(?:^|[_.-])test\.php$|\.phpt$",
};
