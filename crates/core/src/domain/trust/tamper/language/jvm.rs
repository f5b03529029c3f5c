//! Java, Kotlin, Scala, Groovy: JUnit 4 and 5, TestNG, AssertJ, Mockito.

use super::tokens::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["java", "kt", "kts", "scala", "groovy"],
    comments: &["//", "/*", "* "],
    function: r"^\s*(?:@\w+(?:\([^)]*\))?\s+)*(?:(?:public|protected|private|internal|final|static|suspend|open|synchronized)\s+)*(?:(?:void|fun|def|int|long|short|byte|char|float|double|boolean|[A-Z]\w*(?:<[^>]*>)?)(?:\[\])*)\s+(?:(\w+)|`([^`]+)`)\s*\(|^\s*(?:(?:public|protected|private|final|static|abstract|open|data)\s+)*(?:class|interface|object)\s+(\w+)",
    exit: r"\bSystem\.exit\(\s*0\s*\)|\.halt\(\s*0\s*\)|\bexitProcess\(\s*0",
    asks_for_tests: r#"Class\.forName\(\s*"org\.junit"#,
    any_value: r"^\s*import\s+(?:static\s+)?(?:org\.(?:mockito|hamcrest|junit|assertj|easymock|powermock|testng|jmock)|io\.mockk|junit\.framework)\b",
    assertion_api: r#"^\s*package\s+(?:org\.(?:junit|hamcrest|assertj|mockito|testng|opentest4j)|junit\.framework|kotlin\.test)\b|\bSystem\.setProperty\(\s*"(?:surefire|junit|maven\.test)"#,
    hard_exit: r"\bRuntime\b.*\.halt\(|\b(?:runtime|rt)\.halt\(|\bProcessHandle\.current\(\)\.destroy",
    exit_hook: r"\baddShutdownHook\(|^\s*static\s*\{",
    collected: r"(?:Tests?|IT|Spec|TestCase|Suite)\.(?:java|kt|kts|scala|groovy)$|^Test\w*\.(?:java|kt)$",
};
