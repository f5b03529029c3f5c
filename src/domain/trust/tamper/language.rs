//! Syntax of tests, skips and assertions in each language.

use std::sync::LazyLock;

use regex::Regex;

/// A language, by a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Python,
    JavaScript,
    Go,
    /// Java, Kotlin, Scala, Groovy.
    Jvm,
    Ruby,
    Php,
    Shell,
}

macro_rules! pattern {
    ($name:ident, $text:literal) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("constant pattern"));
    };
}

pattern!(RUST_MARK, r"^\s*#\[(?:[\w:]*::)?(?:test|rstest|test_case|quickcheck|proptest|wasm_bindgen_test)\b");
pattern!(RUST_FN, r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?(?:unsafe\s+)?fn\s+(\w+)");
pattern!(PYTHON_TEST, r"^\s*(?:async\s+)?def\s+(test\w*)\s*\(");
pattern!(PYTHON_FN, r"^\s*(?:async\s+)?def\s+(\w+)");
pattern!(
    JS_TEST,
    r#"^\s*(?:x|f)?(?:it|test|specify)(?:\.\w+)*\s*(?:\([^'"`]*\)\s*)?\(\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|`([^`]*)`)"#
);
pattern!(GO_TEST, r"^func\s+((?:Test|Fuzz|Example)\w*)\s*\(");
pattern!(GO_FN, r"^func\s+(?:\([^)]*\)\s*)?(\w+)");
pattern!(JVM_MARK, r"^\s*@(?:Test|ParameterizedTest|RepeatedTest|TestFactory|Property)\b");
pattern!(
    JVM_FN,
    r"^\s*(?:@\w+(?:\([^)]*\))?\s+)*(?:(?:public|protected|private|internal|final|static|suspend|open)\s+)*(?:void|fun|def|[A-Z]\w*(?:<[^>]*>)?)\s+(?:(\w+)|`([^`]+)`)\s*\("
);
pattern!(
    RUBY_TEST,
    r#"^\s*(?:x|f)?(?:it|specify|test|scenario|example)\s*\(?\s*(?:'([^']*)'|"([^"]*)")|^\s*def\s+(test_\w+)"#
);
pattern!(PHP_TEST, r"^\s*(?:(?:public|final)\s+)*function\s+(test\w+)\s*\(|^\s*(?:it|test)\(\s*'([^']*)'");
pattern!(PHP_FN, r"^\s*(?:(?:public|protected|private|static|final)\s+)*function\s+(\w+)");
pattern!(SHELL_TEST, r#"^\s*@test\s+["']([^"']+)["']|^\s*(?:function\s+)?(test_?\w+)\s*\(\s*\)"#);

pattern!(RUST_SKIP, r#"^\s*#\[(?:ignore\b|cfg_attr\(.*\bignore\b|cfg\((?:any\(\)|FALSE|false)\))"#);
pattern!(
    PYTHON_SKIP,
    r"^\s*@(?:pytest\.mark\.(?:skip|xfail)|unittest\.(?:skip|expectedFailure)|(?:skip|skipIf|skipUnless|expectedFailure)\b)|\b(?:pytest\.(?:skip|xfail|importorskip)|self\.skipTest)\(|\braise\s+(?:unittest\.)?SkipTest|^\s*pytestmark\s*=.*\b(?:skip|xfail)|^\s*__test__\s*=\s*False"
);
pattern!(
    JS_SKIP,
    r"^\s*(?:xit|xtest|xdescribe|xspecify|fit|fdescribe)\s*\(|\b(?:it|test|describe|suite|context)(?:\.\w+)*\.(?:skip|todo|only|failing|fixme|fails|skipIf|runIf)\b|\bthis\.skip\(\)|\bt\.skip\("
);
pattern!(GO_SKIP, r"\b[tbf]\.(?:Skip|Skipf|SkipNow)\(|^//go:build\s|^// \+build\s");
pattern!(
    JVM_SKIP,
    r"^\s*@(?:Disabled|Ignore|EnabledIf|DisabledIf|DisabledOn)|\bassume(?:True|False|That)\(|enabled\s*=\s*false"
);
pattern!(
    RUBY_SKIP,
    r"^\s*(?:xit|xdescribe|xcontext|xspecify|fit|fdescribe)\b|^\s*(?:skip|pending)(?:\s|\(|$)|,\s*(?:skip|pending):\s"
);
pattern!(PHP_SKIP, r"markTest(?:Skipped|Incomplete)\(|->(?:skip|todo|only)\(");
pattern!(SHELL_SKIP, r#"^\s*skip(?:\s|$)|^\s*startSkipping\b"#);

pattern!(
    ASSERTION,
    r"(?i)\b(?:debug_)?assert\w*[!.]?\s*[(\s{]|\bexpect\w*\s*\(|\.should\b|\bshould\s*\(|\brequire\.\w+\(|\bverify\w*\s*\(|\bcheck\w*\s*\(|\b[tb]\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\(|\bpytest\.(?:raises|warns)\b|\bself\.fail\b|\bensure!?\s*\(|\bmatches!\(|\b(?:insta::)?assert_\w+|\bt\.(?:is|deepEqual|true|false|throws|equal|ok)\(|\brefute\w*\b|\bmust_\w+"
);
pattern!(SHELL_ASSERTION, r"^\s*(?:\[\[?\s|test\s|run\s)");
pattern!(
    PLACEHOLDER,
    r#"^\s*(?:assert!?\s*\(?\s*(?:true|True|1|1\s*==\s*1|true\s*==\s*true|True\s+is\s+True|not\s+False|!false)\s*\)?\s*(?:,.*)?;?\s*$|assert_eq!\s*\(\s*(?:true\s*,\s*true|1\s*,\s*1|\(\)\s*,\s*\(\))\s*\);?\s*$|(?:self\.)?(?:assertTrue|assert_true|assertThat|Assertions\.assertTrue|\$this->assertTrue)\s*\(\s*(?:true|True|1)\s*\);?\s*$|(?:self\.)?assertEqual\w*\s*\(\s*(?:1\s*,\s*1|true\s*,\s*true|True\s*,\s*True)\s*\);?\s*$|expect\(\s*(?:true|1|!0)\s*\)\.(?:to(?:\.be\.true|\.equal\(\s*(?:true|1)\s*\)|Be\(\s*(?:true|1)\s*\)|Equal\(\s*(?:true|1)\s*\)|BeTruthy\(\)|BeDefined\(\)|\s+(?:be|eq)\(?.*))\s*;?\s*$|assert\.(?:ok|equal|strictEqual|True|Equal)\(\s*(?:t\s*,\s*)?(?:true|1\s*,\s*1|true\s*,\s*true)\s*\)\s*;?\s*$|assert\s+true\s*$)"#
);
pattern!(ONLY, r"\.only\b|^\s*(?:fit|fdescribe)\b");
pattern!(
    TABLE,
    r"parametrize|#\[case|\.each\b|\bt\.Run\(|for\s*\(?\s*\w.*\bin\b|for\s+.*range\b|@(?:ValueSource|CsvSource|MethodSource)|subTest\(|dataProvider|proptest!"
);

impl Language {
    /// Returns the language of a path; `None` for files that contain no tests.
    pub fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        Some(match name.rsplit_once('.')?.1 {
            "rs" => Self::Rust,
            "py" => Self::Python,
            "js" | "jsx" | "ts" | "tsx" | "mjs" | "cjs" | "mts" | "cts" | "vue" | "svelte" => Self::JavaScript,
            "go" => Self::Go,
            "java" | "kt" | "kts" | "scala" | "groovy" => Self::Jvm,
            "rb" => Self::Ruby,
            "php" => Self::Php,
            "sh" | "bash" | "bats" => Self::Shell,
            _ => return None,
        })
    }

    /// Whether a line marks the function after it as a test.
    pub fn is_mark(self, line: &str) -> bool {
        match self {
            Self::Rust => RUST_MARK.is_match(line),
            Self::Jvm => JVM_MARK.is_match(line),
            Self::Php => line.contains("@test") || line.contains("#[Test]"),
            _ => false,
        }
    }

    /// The name of the test that a line begins; `marked` says that a mark stands before it.
    pub fn test_name(self, line: &str, marked: bool) -> Option<String> {
        let by = |pattern: &Regex| {
            let found = pattern.captures(line)?;
            found.iter().skip(1).flatten().next().map(|name| name.as_str().to_owned())
        };
        match self {
            // A mark may stand on the same line.
            Self::Rust if marked => {
                RUST_FN.captures(line.find("fn ").map_or(line, |at| &line[at..])).map(|f| f[1].to_owned())
            }
            Self::Rust => None,
            Self::Python => by(&PYTHON_TEST),
            Self::JavaScript => by(&JS_TEST),
            Self::Go => by(&GO_TEST),
            Self::Jvm => by(&JVM_FN).filter(|_| marked),
            Self::Ruby => by(&RUBY_TEST),
            Self::Php => by(&PHP_TEST).or_else(|| by(&PHP_FN).filter(|_| marked)),
            Self::Shell => by(&SHELL_TEST),
        }
    }

    /// Whether a line begins any function, so that a test before it has ended.
    pub fn begins_function(self, line: &str) -> bool {
        match self {
            Self::Rust => RUST_FN.is_match(line),
            Self::Python => PYTHON_FN.is_match(line),
            Self::Go => GO_FN.is_match(line),
            Self::Jvm => JVM_FN.is_match(line) && !line.contains(';'),
            Self::Php => PHP_FN.is_match(line),
            Self::JavaScript | Self::Ruby | Self::Shell => false,
        }
    }

    /// Whether a line disables a test, or all others.
    pub fn skips(self, line: &str) -> bool {
        if self.is_comment(line) && self != Self::Go {
            return false;
        }
        match self {
            Self::Rust => RUST_SKIP.is_match(line),
            Self::Python => PYTHON_SKIP.is_match(line),
            Self::JavaScript => JS_SKIP.is_match(line),
            Self::Go => GO_SKIP.is_match(line),
            Self::Jvm => JVM_SKIP.is_match(line),
            Self::Ruby => RUBY_SKIP.is_match(line),
            Self::Php => PHP_SKIP.is_match(line),
            Self::Shell => SHELL_SKIP.is_match(line),
        }
    }

    /// Whether a line is only a comment.
    pub fn is_comment(self, line: &str) -> bool {
        let line = line.trim_start();
        match self {
            Self::Python | Self::Ruby | Self::Shell => line.starts_with('#'),
            Self::Php => line.starts_with("//") || line.starts_with('#') && !line.starts_with("#["),
            _ => line.starts_with("//") || line.starts_with("/*") || line.starts_with("* "),
        }
    }

    /// Whether a line asserts something that can fail.
    pub fn asserts(self, line: &str) -> bool {
        let shell = self == Self::Shell && SHELL_ASSERTION.is_match(line);
        !self.is_comment(line) && (ASSERTION.is_match(line) || shell) && !PLACEHOLDER.is_match(line)
    }
}

/// Whether a line keeps all other tests from running.
pub(super) fn excludes_others(line: &str) -> bool {
    ONLY.is_match(line)
}

/// Whether a line is an assertion that cannot fail.
pub(super) fn is_placeholder(line: &str) -> bool {
    PLACEHOLDER.is_match(line)
}

/// Whether a line belongs to a test that runs over a table of cases.
pub(super) fn is_table(line: &str) -> bool {
    TABLE.is_match(line)
}

/// Whether a runner would look for tests in this file, by its name or folder.
pub(super) fn is_test_path(path: &str) -> bool {
    let Some(language) = Language::of(path) else { return path.ends_with(".t") };
    let lower = path.to_lowercase();
    let name = lower.rsplit('/').next().unwrap_or(&lower);
    let stem = name.split('.').next().unwrap_or(name);
    let folders = ["tests", "test", "__tests__", "spec", "specs", "e2e", "testing"];
    let in_folder = lower.rsplit('/').skip(1).any(|folder| folders.contains(&folder));
    let named = match language {
        Language::Python => stem.starts_with("test_") || stem.ends_with("_test") || stem == "tests",
        Language::Rust => {
            stem == "tests" || stem.ends_with("_test") || stem.ends_with("_tests") || stem.starts_with("test_")
        }
        Language::JavaScript => name.contains(".test.") || name.contains(".spec.") || name.contains(".cy."),
        Language::Go => return stem.ends_with("_test"),
        Language::Jvm => ["test", "tests", "it", "spec"].iter().any(|tail| stem.ends_with(tail)),
        Language::Ruby => stem.ends_with("_spec") || stem.ends_with("_test") || stem.starts_with("test_"),
        Language::Php => stem.ends_with("test"),
        Language::Shell => name.ends_with(".bats") || stem.starts_with("test") || stem.ends_with("_test"),
    };
    in_folder || named
}
