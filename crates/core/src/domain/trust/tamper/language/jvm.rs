//! Java, Kotlin, Scala, Groovy: JUnit 4 and 5, TestNG, AssertJ, Mockito.

use super::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["java", "kt", "kts", "scala", "groovy"],
    comments: &["//", "/*", "* "],
    test: "",
    mark: r"^\s*@(?:Test|ParameterizedTest|RepeatedTest|TestFactory|Property)\b",
    function: r"^\s*(?:@\w+(?:\([^)]*\))?\s+)*(?:(?:public|protected|private|internal|final|static|suspend|open|synchronized)\s+)*(?:(?:void|fun|def|int|long|short|byte|char|float|double|boolean|[A-Z]\w*(?:<[^>]*>)?)(?:\[\])*)\s+(?:(\w+)|`([^`]+)`)\s*\(|^\s*(?:(?:public|protected|private|final|static|abstract|open|data)\s+)*(?:class|interface|object)\s+(\w+)",
    skip: r"^\s*x(?:test|it|describe|context|should|given|feature|scenario|expect)\(|^\s*@(?:Disabled|Ignore|IfProfileValue|EnabledFor|DisabledFor|Requires|ConditionalOn|EnabledIf|EnabledOn|DisabledIf|DisabledOn)|\bassume(?:True|False|That)\(|\benabled\s*=\s*(?:false|!|[A-Z_]{3,})|\bthrow\s+new\s+SkipException",
    assertion: r"\bshould(?:Be|Not|Throw|Contain|Have|Start|End|Match|Equal)\w*\b|\bmust(?:Be|Equal)\w*\b|^\s*[\w.]+(?:\([^=;{}]*\)|\[[^\]]*\])?(?:\.\w+(?:\([^=;{}]*\))?)*\s+(?:==|!=)\s+[^;{}&|]+$|\.is(?:EqualTo|True|False|Null|Empty|SameAs|CloseTo)\(|\bfail\(|@Test\(\s*expected",
    exact: r"\b(?:shouldBe|shouldEqual|mustBe|mustEqual)\b|^\s*[\w.]+\s+==\s+[^;{}&|]+$|\bverify\(\w+(?:,\s*(?:times|never)\b.*)?\)|@Test\(\s*expected|\bassert(?:Equals|ArrayEquals|Same|IterableEquals|LinesMatch|Throws\w*)\(|\.isEqualTo\(|\.containsExactly\w*\(|\.hasSize\(|\.isSameAs\(|\.isCloseTo\(|\.hasMessage\w*\(|\bequalTo\(|,\s*is\(",
    weak: r"\bshouldNotBe(?:Null\w*)?\b|^\s*[\w.]+\s+!=\s+null\s*$|\bassertFailsWith<(?:Exception|Throwable|RuntimeException)>|\batLeast\(\s*0|\bassertNotEquals\(|\bassertNotNull\(|\.isNotNull\(\)|\.isNotEmpty\(\)|\.isNotBlank\(\)|\bassertThrows\w*\(\s*(?:Exception|Throwable|RuntimeException)(?:\.class|::class)|\bassertDoesNotThrow\(|\bnotNullValue\(\)|\bassertTrue\(\s*\w+\s*!=\s*null|\.isGreaterThanOrEqualTo\(\s*0|\bassertInstanceOf\(|\.isInstanceOf\(",
    exit: r"\bSystem\.exit\(\s*0\s*\)|\.halt\(\s*0\s*\)|\bexitProcess\(\s*0",
    swallow: r"^\s*runCatching\s*\{|\bcatch\s*\(\s*(?:final\s+)?(?:(?:java\.lang\.)?(?:AssertionError|Throwable|Exception|Error)\b[^)]*|_?\w+:\s*(?:AssertionError|Throwable|Exception))\)",
    asks_for_tests: r#"Class\.forName\(\s*"org\.junit"#,
    mock: r"\b(?:when|doReturn\([^)]*\)\.when)\(\s*\w+\)?\.(\w+)\(|\bevery\s*\{\s*\w+\.(\w+)\(",
    any_value: r"^\s*import\s+(?:static\s+)?(?:org\.(?:mockito|hamcrest|junit|assertj|easymock|powermock|testng|jmock)|io\.mockk|junit\.framework)\b",
    assertion_api: r#"^\s*package\s+(?:org\.(?:junit|hamcrest|assertj|mockito|testng|opentest4j)|junit\.framework|kotlin\.test)\b|\bSystem\.setProperty\(\s*"(?:surefire|junit|maven\.test)"#,
    hard_exit: r"\bRuntime\b.*\.halt\(|\b(?:runtime|rt)\.halt\(|\bProcessHandle\.current\(\)\.destroy",
    exit_hook: r"\baddShutdownHook\(|^\s*static\s*\{",
    last_definition_wins: false,
    collected: r"(?:Tests?|IT|Spec|TestCase|Suite)\.(?:java|kt|kts|scala|groovy)$|^Test\w*\.(?:java|kt)$",
};
