//! Syntax of tests, skips and assertions. This file has the rules that all languages share; the tokens of each language are in a
//! file of their own.

mod cpp;
mod go;
mod javascript;
mod jvm;
mod php;
mod python;
mod ruby;
mod rust;
mod shell;

use std::sync::LazyLock;

use regex::Regex;

/// Tokens of a language as patterns. An empty pattern matches nothing.
pub(super) struct Tokens {
    /// Extensions of file names.
    extensions: &'static [&'static str],
    /// Prefixes of lines that are only a comment.
    comments: &'static [&'static str],
    /// Beginning of a test. Its name is the first capture group that matches.
    test: &'static str,
    /// Attribute that makes the next function a test.
    mark: &'static str,
    /// Beginning of a function or class. Its name is the first capture group that matches.
    function: &'static str,
    /// Disables a test, or all other tests.
    skip: &'static str,
    /// Assertions, in addition to the words that many languages have in common.
    assertion: &'static str,
    /// Assertions that accept exactly one value.
    exact: &'static str,
    /// Assertions that accept nearly every value.
    weak: &'static str,
    /// Ends the process with success.
    exit: &'static str,
    /// Catches failures of assertions.
    swallow: &'static str,
    /// Program code that checks whether it runs in a test.
    asks_for_tests: &'static str,
    /// Replaces a function by a mock. The function's name is the first capture group that matches.
    mock: &'static str,
    /// Introduces a value that equals every other value, or a library of test doubles, into program code.
    any_value: &'static str,
    /// Program code that changes the meaning of an assertion, a runner or an exit.
    assertion_api: &'static str,
    /// Ends the process immediately, so that the runner executes no handler and prints no report.
    hard_exit: &'static str,
    /// Beginning of code that runs automatically, at the end of the process or before a test.
    exit_hook: &'static str,
    /// Whether a second definition of a name replaces the first one.
    last_definition_wins: bool,
    /// Names of files in which runners look for tests. Compared in lower case, except for the JVM and PHP.
    collected: &'static str,
}

/// Language of a file, determined by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Language {
    Python,
    JavaScript,
    Rust,
    Go,
    /// Java, Kotlin, Scala, Groovy.
    Jvm,
    /// C and C++.
    Cpp,
    Ruby,
    Php,
    Shell,
}

/// All languages with their tokens.
const LANGUAGES: [(Language, &Tokens); 9] = [
    (Language::Python, &python::TOKENS),
    (Language::JavaScript, &javascript::TOKENS),
    (Language::Rust, &rust::TOKENS),
    (Language::Go, &go::TOKENS),
    (Language::Jvm, &jvm::TOKENS),
    (Language::Cpp, &cpp::TOKENS),
    (Language::Ruby, &ruby::TOKENS),
    (Language::Php, &php::TOKENS),
    (Language::Shell, &shell::TOKENS),
];

/// Compiled tokens of a language.
struct Syntax {
    test: Option<Regex>,
    mark: Option<Regex>,
    function: Option<Regex>,
    skip: Option<Regex>,
    assertion: Option<Regex>,
    exact: Option<Regex>,
    weak: Option<Regex>,
    exit: Option<Regex>,
    swallow: Option<Regex>,
    asks_for_tests: Option<Regex>,
    mock: Option<Regex>,
    any_value: Option<Regex>,
    assertion_api: Option<Regex>,
    hard_exit: Option<Regex>,
    exit_hook: Option<Regex>,
    collected: Option<Regex>,
}

static SYNTAXES: LazyLock<Vec<Syntax>> = LazyLock::new(|| {
    let compiled =
        |pattern: &str| (!pattern.is_empty()).then(|| Regex::new(pattern).expect("constant pattern of a language"));
    let syntax = |(_, tokens): &(Language, &Tokens)| Syntax {
        test: compiled(tokens.test),
        mark: compiled(tokens.mark),
        function: compiled(tokens.function),
        skip: compiled(tokens.skip),
        assertion: compiled(tokens.assertion),
        exact: compiled(tokens.exact),
        weak: compiled(tokens.weak),
        exit: compiled(tokens.exit),
        swallow: compiled(tokens.swallow),
        asks_for_tests: compiled(tokens.asks_for_tests),
        mock: compiled(tokens.mock),
        any_value: compiled(tokens.any_value),
        assertion_api: compiled(tokens.assertion_api),
        hard_exit: compiled(tokens.hard_exit),
        exit_hook: compiled(tokens.exit_hook),
        collected: compiled(tokens.collected),
    };
    LANGUAGES.iter().map(syntax).collect()
});

pattern!(
    ASSERTION,
    r"(?i)\bensure!\s*\(|\b(?:debug_)?assert\w*[!.]?\s*[(\s{<]|\bexpect\w*\s*[({]|\bexpect\.(?:soft|poll|element)\(|\.should\b|\bshould\s*\(|\brequire\.\w+\(|\bverify\w*\s*\(|\bcheck\w*\s*\(|\bassert\w*\.\w+\(|\bpytest\.(?:raises|warns)\b|\bself\.fail\b|\bmatches!\(|\b(?:insta::)?assert_\w+|\bt\.(?:is|deepEqual|true|false|throws|equal|ok)\(|\brefute\w*\b|\bmust_\w+"
);
pattern!(
    ALWAYS,
    r#"^\s*(?:assert!?\s*\(?\s*(?:true|True|1|1\s*==\s*1|true\s*==\s*true|True\s+is\s+True|not\s+False|!false|!0)\s*\)?\s*(?:,.*)?;?\s*$|assert_eq!\s*\(\s*(?:true\s*,\s*true|1\s*,\s*1|\(\)\s*,\s*\(\))\s*\);?\s*$|(?:self\.|self::|static::|Assertions\.|Assert\.|\$this->)?(?:assertTrue|assert_true|assertThat|assertNotNull|TEST_ASSERT_TRUE|TEST_ASSERT|EXPECT_TRUE|ASSERT_TRUE|REQUIRE|CHECK|SUCCEED|TEST_PASS)\s*\(\s*(?:true|True|TRUE|1|"")?\s*\)(?:\.isTrue\(\))?\s*;?\s*$|(?:self\.)?assertFalse\s*\(\s*(?:false|False)\s*\)\s*;?\s*$|assertTrue\s+(?:true|0|"?\[\s*1\s*-?eq?\s*1)|expect\(\s*(?:true|1|!0)\s*\)\.?(?:to(?:\.be\.true|\.equal\(\s*(?:true|1)\s*\)|Be\(\s*(?:true|1)\s*\)|Equal\(\s*(?:true|1)\s*\)|BeTruthy\(\)|BeDefined\(\)|\s+(?:be|eq)\b.*)|->toBe(?:True)?\(.*)\s*;?\s*$|(?:assert|require)\.(?:ok|True|isTrue|isOk)\(\s*(?:t\s*,\s*)?true\s*[,)].*$|assert\s+true\s*$|t\.(?:pass|ok\(true)\b|\[\s+(?:1\s+-eq\s+1|0\s+-eq\s+0|true)\s+\]\s*$|\[\[?\s+true\s+\]\]?|\$this->addToAssertionCount)"#
);
pattern!(ONLY, r"\.only\b|^\s*(?:fit|fdescribe|fcontext)\b|->only\(|\bfocus:");
pattern!(
    TABLE,
    r"parametrize|#\[case|\.each\b|\bt\.Run\(|for\s*\(*\s*\w.*\b(?:in|of)\b|for\s+.*range\b|@(?:ValueSource|CsvSource|MethodSource)|subTest\(|dataProvider|DataProvider|proptest!|\.forEach\(|INSTANTIATE_TEST|\beach do\b|\bwhile\b.*\bread\b"
);

/// Strength of an assertion, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AssertionStrength {
    /// It always passes.
    Nothing,
    /// Nearly every value passes.
    Little,
    /// The strength is unknown.
    Some,
    /// Exactly one value passes.
    Exact,
}

impl Language {
    /// Returns the language of a path; `None` if such a file contains no tests.
    pub fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let Some((_, extension)) = name.rsplit_once('.') else {
            // Programs without an extension are scripts mostly.
            let capital = name.starts_with(|c: char| c.is_uppercase());
            let folder = path.rsplit('/').nth(1).unwrap_or_default();
            let script = ["bin", "sbin", "libexec", "script", "scripts", "ci", "hack", "tools", "test", "tests", "t"];
            return (!capital && script.contains(&folder)).then_some(Self::Shell);
        };
        LANGUAGES.iter().find(|(_, tokens)| tokens.extensions.contains(&extension)).map(|(language, _)| *language)
    }

    fn tokens(self) -> &'static Tokens {
        LANGUAGES[self as usize].1
    }

    fn syntax(self) -> &'static Syntax {
        &SYNTAXES[self as usize]
    }

    /// Whether a line is an attribute that makes the function after it a test.
    pub fn is_mark(self, line: &str) -> bool {
        matches(self.syntax().mark.as_ref(), line)
    }

    /// Whether the language has attributes that make a function a test.
    pub fn has_marks(self) -> bool {
        !self.tokens().mark.is_empty()
    }

    /// Returns the name of the test that begins in a line. `marked` is true if an attribute before the line makes the function a
    /// test.
    pub fn test_name(self, line: &str, marked: bool) -> Option<String> {
        let syntax = self.syntax();
        first_group(syntax.test.as_ref(), line)
            .or_else(|| {
                let line = if self == Self::Rust { line.find("fn ").map_or(line, |at| &line[at..]) } else { line };
                first_group(syntax.function.as_ref().filter(|_| marked), line)
            })
            .map(|name| name.replace("DISABLED_", ""))
    }

    /// Returns the indentation that encloses the lines of a hunk, given the indentation of the first one. `None` if the lines are
    /// at the top level, except in a shell script, which runs from top to bottom.
    pub fn outer_indent(self, first: usize) -> Option<usize> {
        match first.checked_sub(1) {
            None if self == Self::Shell => Some(0),
            outer => outer,
        }
    }

    /// Whether a function or class begins in a line, so that the test before it has ended.
    pub fn begins_function(self, line: &str) -> bool {
        matches(self.syntax().function.as_ref(), line) && !(self == Self::Jvm && line.contains(';'))
    }

    /// Returns the name of the function that begins in a line.
    pub fn function_name(self, line: &str) -> Option<String> {
        first_group(self.syntax().function.as_ref(), line)
    }

    /// Returns the name of the function that begins in a line; `None` for a class or suite.
    pub fn helper_name(self, line: &str) -> Option<String> {
        pattern!(
            SUITE,
            r"^\s*(?:(?:export|default|public|protected|private|internal|abstract|final|open|static|data|sealed|pub(?:\([^)]*\))?|RSpec\.)\s*)*(?:class|interface|object|module|namespace|mod|impl|struct|enum|trait|[xf]?describe|[xf]?context|suite)\b"
        );
        if self.is_comment(line) || SUITE.is_match(line) || !self.begins_function(line) {
            return None;
        }
        self.function_name(line)
    }

    /// Whether a class or suite in which runners look for tests begins in a line.
    pub fn is_suite(self, line: &str) -> bool {
        pattern!(PYTHON, r"^\s*class\s+Test\w*\s*[(:]|^\s*class\s+\w+\(.*Test(?:Case)?\w*\s*[,)]");
        pattern!(
            JVM,
            r"^\s*(?:(?:public|final|open|internal|data)\s+)*class\s+\w*(?:Tests?|IT|Spec|TestCase)\b|^\s*@(?:RunWith|ExtendWith|Suite|Testcontainers|TestInstance|Nested)\b"
        );
        pattern!(
            OTHER,
            r"^\s*(?:final\s+)?class\s+\S+\s*(?:<|extends)\s*\S*(?:Test|TestCase|Spec)\b|^\s*[xf]?(?:RSpec\.)?(?:describe|context|suite)\b|^\s*(?:TEST_SUITE|BOOST_AUTO_TEST_SUITE|BOOST_FIXTURE_TEST_SUITE|INSTANTIATE_\w+)\b"
        );
        let suite: &Regex = match self {
            Self::Python => &PYTHON,
            Self::Jvm => &JVM,
            _ => &OTHER,
        };
        !self.is_comment(line) && suite.is_match(line)
    }

    /// Whether a line disables a test, or all other tests.
    pub fn skips(self, line: &str) -> bool {
        let comment = self.is_comment(line) && !matches!(self, Self::Go | Self::Php);
        !comment && (matches(self.syntax().skip.as_ref(), line) || is_skip_word(line))
    }

    /// Whether a line disables a test with a token of this language.
    pub fn skips_by_token(self, line: &str) -> bool {
        matches(self.syntax().skip.as_ref(), line)
    }

    /// Whether a line is only a comment.
    pub fn is_comment(self, line: &str) -> bool {
        let line = line.trim_start();
        self.tokens().comments.iter().any(|mark| line.starts_with(mark))
    }

    /// Whether a line contains an assertion that can fail.
    pub fn asserts(self, line: &str) -> bool {
        let is_assertion = if self == Self::Shell {
            matches(self.syntax().assertion.as_ref(), line)
        } else {
            ASSERTION.is_match(line) || matches(self.syntax().assertion.as_ref(), line)
        };
        is_assertion && !self.is_comment(line) && !self.holds_always(line)
    }

    /// Returns the strength of an assertion.
    pub fn demand(self, line: &str) -> AssertionStrength {
        if self.holds_always(line) {
            AssertionStrength::Nothing
        } else if matches(self.syntax().weak.as_ref(), line) {
            AssertionStrength::Little
        } else if matches(self.syntax().exact.as_ref(), line) {
            AssertionStrength::Exact
        } else {
            AssertionStrength::Some
        }
    }

    /// Whether a line is an assertion that cannot fail.
    pub fn holds_always(self, line: &str) -> bool {
        pattern!(
            SHELL,
            r#"^\s*true\s*$|\s-ge\s+0\s+\]|\bgrep\s+(?:-\w+\s+)*(?:["']["']|["']\.?\*?["'])(?:\s|$)|^\s*\[\[?\s+(?:-n\s+["']?\w+["']?|-z\s+["']{2}|\S+\s+==?\s+\*)\s+\]|^\s*(?:test|\[)\s+\w+\s+\]?\s*$"#
        );
        match self {
            Self::Shell => ALWAYS.is_match(line) || compares_with_itself(line) || SHELL.is_match(line),
            Self::Rust if line.contains("t.pass(") => false,
            Self::Jvm | Self::JavaScript if asks_nothing(line) => true,
            _ => ALWAYS.is_match(line) || compares_with_itself(line) || is_vacuous(line),
        }
    }

    /// Whether a line ends the process with success.
    pub fn exits(self, line: &str) -> bool {
        !self.is_comment(line) && matches(self.syntax().exit.as_ref(), line)
    }

    /// Whether a line introduces a value that equals every other value, or a library of test doubles.
    pub fn brings_any_value(self, line: &str) -> bool {
        matches(self.syntax().any_value.as_ref(), line)
    }

    /// Whether a line changes the meaning of an assertion, a runner or an exit.
    pub fn replaces_assertion(self, line: &str) -> bool {
        matches(self.syntax().assertion_api.as_ref(), line)
    }

    /// Whether a line ends the process immediately, without the runner's handlers and report.
    pub fn exits_hard(self, line: &str) -> bool {
        matches(self.syntax().hard_exit.as_ref(), line)
    }

    /// Whether a line begins code that runs automatically, at the end of the process or before a test.
    pub fn begins_hook(self, line: &str) -> bool {
        matches(self.syntax().exit_hook.as_ref(), line)
    }

    /// Whether a line catches failures of assertions.
    pub fn swallows(self, line: &str) -> bool {
        !self.is_comment(line) && matches(self.syntax().swallow.as_ref(), line)
    }

    /// Whether a line checks whether the program runs in a test.
    pub fn asks_for_tests(self, line: &str) -> bool {
        !self.is_comment(line) && matches(self.syntax().asks_for_tests.as_ref(), line)
    }

    /// Returns the name of the function that a line replaces by a mock.
    pub fn mocked(self, line: &str) -> Option<String> {
        first_group(self.syntax().mock.as_ref(), line)
    }

    /// Whether a second definition of a name replaces the first one.
    pub fn last_definition_wins(self) -> bool {
        self.tokens().last_definition_wins
    }

    /// Whether runners look for tests in a file with this name.
    pub fn collects(self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let ignored = |folder: &str| folder == "testdata" || folder.starts_with(['_', '.']);
        if self == Self::Go && path.rsplit('/').skip(1).any(ignored) {
            return false;
        }
        // `CreditIT` is a test, `Credit` is none.
        let lower = || name.to_lowercase();
        let name = if matches!(self, Self::Jvm | Self::Php) { name.to_owned() } else { lower() };
        matches(self.syntax().collected.as_ref(), &name)
    }
}

/// Whether an assertion is vacuous: it compares with a bound that no value exceeds, searches for an empty text, or has an
/// alternative that is always true.
fn is_vacuous(line: &str) -> bool {
    pattern!(
        BOUND,
        r#"(?i)\b(?:len|length|count|size|abs|fabs|strlen|sizeof)\b[^=<>&|]{0,40}>=\s*0(?:\.0+)?[uUlL]{0,2}\s*(?:[),;]|$)|\b(?:len|length|count|size|abs|fabs|strlen)\b[^=<>&|]{0,40}>\s*-\s*1\b|(?:\bto(?:Contain|Match|Include)|\bto\s+(?:include|match|start_with|end_with)|\bassert\w*(?:\.|::)?\w*(?:Contain|Match|Regex|Include)\w*|\bassertThat\(.*\)\.(?:contains|matches|startsWith)|->toContain|->toMatch)\w*\s*\(?\s*(?:\w+\s*,\s*)*(?:""|''|/\.\*/|/\^/|/\(\?:\)/)\s*(?:[),;]|$)|\bassert\s+(?:""|'')\s+in\b|(?:\|\|\s*(?:true|1)|\bor\s+(?:True|true|1))\s*(?:[),;:{]|$)"#
    );
    pattern!(ASSERTS, r"(?i)assert|expect|require|check|should|ensure|must|\bt\.(?:ok|true)|refute");
    BOUND.is_match(line) && ASSERTS.is_match(line)
}

fn matches(pattern: Option<&Regex>, line: &str) -> bool {
    pattern.is_some_and(|pattern| pattern.is_match(line))
}

fn first_group(pattern: Option<&Regex>, line: &str) -> Option<String> {
    let found = pattern?.captures(line)?;
    found.iter().skip(1).flatten().next().map(|name| name.as_str().to_owned())
}

/// Whether both sides of a comparison are the same name or call.
fn compares_with_itself(line: &str) -> bool {
    pattern!(
        PAIR,
        r#"(?i)\bassert\w*!?(?:\.\w+)?\s*\(\s*(?:t\s*,\s*)?([\w.$>\[\]"-]+)\s*,\s*([\w.$>\[\]"-]+)\s*[,)]|\b(?:EXPECT|ASSERT|CHECK)_\w+\(\s*([\w.]+)\s*,\s*([\w.]+)\s*\)|\b(?:require|s|suite)\.\w+\(\s*(?:t\s*,\s*)?([\w.]+)\s*,\s*([\w.]+)\s*[,)]|\b(?:assert!?|REQUIRE|CHECK)[\s(]+([\w.]+)\s*={2,3}\s*([\w.]+)\s*(?:[,);]|$)|\bexpect\(\s*([\w.$]+)\s*\)(?:\.to\w*(?:\.\w+)*|\.to\s+eql?|->to\w+)\(\s*([\w.$]+)\s*\)|\bassert_equal\s+([\w.]+)\s*,\s*([\w.]+)\s*$|\[\[?\s+"?(\$\{?\w+\}?)"?\s+(?:!=|==?)\s+"?(\$\{?\w+\}?)"?\s+\]|\bif\s+([\w.]+)\s*!=\s*([\w.]+)\s*\{|assertThat\(\s*([\w.]+)\s*\)\.is\w+\(\s*([\w.]+)\s*\)|assert(?:Equals|Same)\s+"?(\$\w+)"?\s+"?(\$\w+)"?\s*$"#
    );
    let same = |found: regex::Captures<'_>| {
        let mut groups = found.iter().skip(1).flatten().map(|group| group.as_str());
        groups.next().is_some_and(|left| groups.next() == Some(left))
    };
    PAIR.captures(line).is_some_and(same) || has_equal_sides(line) || has_equal_arguments(line)
}

/// Whether a statement names a value, as assertions of a fluent library begin, and asks nothing about it.
fn asks_nothing(line: &str) -> bool {
    pattern!(NAMED, r"^\s*(?:Assertions\.|Truth\.)?(?:assertThat|expect)\(");
    pattern!(DESCRIBED, r"^\.(?:as|describedAs|withFailMessage|overridingErrorMessage)\(");
    let Some(call) = NAMED.find(line) else { return false };
    let arguments = arguments(&line[call.end()..]);
    let Some(mut rest) = after_call(&line[call.end()..]).filter(|_| arguments.len() == 1) else { return false };
    while let Some(described) = DESCRIBED.find(rest) {
        let Some(after) = after_call(&rest[described.end()..]) else { return false };
        rest = after;
    }
    rest.trim() == ";"
}

/// Returns the text after the bracket that ends a call. `text` is the text after the opening bracket.
fn after_call(text: &str) -> Option<&str> {
    let mut depth = 1_i32;
    let closes = |(_, c): &(usize, char)| {
        depth += i32::from(matches!(c, '(' | '[' | '{')) - i32::from(matches!(c, ')' | ']' | '}'));
        depth == 0
    };
    text.char_indices().find(closes).map(|(at, _)| &text[at + 1..])
}

/// Whether an assertion has the same text on both sides of `==`.
fn has_equal_sides(line: &str) -> bool {
    let Some((left, right)) = line.split_once("===").or_else(|| line.split_once("==")) else { return false };
    let left = left.trim_end();
    let mut right = right.trim().trim_end_matches([';', '{', ':']).trim_end();
    loop {
        let before = left.strip_suffix(right).filter(|_| right.len() > 1).map(str::trim_end);
        if before.is_some_and(|before| before.contains("assert") && before.ends_with(['t', '(', '!'])) {
            return true;
        }
        match right.strip_suffix(')') {
            Some(shorter) => right = shorter.trim_end(),
            None => return false,
        }
    }
}

/// Whether an assertion of equality has two equal arguments.
fn has_equal_arguments(line: &str) -> bool {
    pattern!(EQUALITY, r"(?i)\b(?:\w*assert|\w*expect|require|check)\w*!?(?:\.|::)?\w*eq\w*!?(?:::\w+)?\(");
    let Some(call) = EQUALITY.find(line) else { return false };
    let arguments = arguments(&line[call.end()..]);
    let first = usize::from(arguments.first().is_some_and(|first| first == "t"));
    let side = |at: usize| arguments.get(at).filter(|argument| !argument.is_empty());
    side(first).is_some() && side(first) == side(first + 1)
}

/// Splits the arguments of a call. `text` is the text after the opening bracket.
pub(super) fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut arguments, mut quoted) = (0_usize, vec![String::new()], None);
    for c in text.chars() {
        match (quoted, c) {
            (Some(quote), _) if quote == c => quoted = None,
            (None, '"' | '\'' | '`') => quoted = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') if depth == 0 => break,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                arguments.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(argument) = arguments.last_mut() {
            argument.push(c);
        }
    }
    arguments.iter().map(|argument| argument.trim().to_owned()).collect()
}

/// Whether a line disables a test with a word that several frameworks share, or that a project may define itself: as an
/// annotation, as a call at the beginning of a line, or as an option.
pub(super) fn is_skip_word(line: &str) -> bool {
    pattern!(
        SKIP_WORD,
        r#"(?x)^\s*(?:@|\#\[|\*\s*@|//\s*@|\[)[\w.:\\]*(?i:skip|ignore\b|ignored|disable|xfail|expected_?failure|pending|todo|quarantine|broken|muted?\b|fixme|wip\b
            |known_?(?:issue|failure|bug)|not_?implemented|exclude|manual\b|incomplete|unstable|nightly)\w*
        | ^\s*(?:(?:return|throw|raise|await|new|yield)\s+)*(?:[\w$]+(?:\(\))?(?:\.|::|->))*(?i:skip|pending|todo|xfail|omit|inconclusive|incomplete|assum|precondition|prop_assume|mark_?(?:as_?)?(?:skip|pend|incomp))\w*!?\s*(?:[(;]|\s["'\w]|$)
        | [{,(]\s*(?:skip|skipped|disabled?|ignored?|todo|pending|xfail|failing)\s*(?::|=>|=)\s*(?:true|True|1|["'])
        | \bexit\s+77\b | \breturn\s+77\b | \bdisabled?\s*=\s*(?:true|True)\b"#
    );
    SKIP_WORD.is_match(line)
}

/// Whether a line puts a test into a group that a runner may exclude.
pub(super) fn is_group(line: &str) -> bool {
    pattern!(
        GROUP,
        r#"^\s*#\[cfg\((?:not|all|any|target|feature|unix|windows|debug|miri)|^\s*@(?:Tags?|Category|Categories|Group|Label|tag)\b|^\s*@pytest\.mark\.(\w+)|^\s*\*?\s*@group\s|^\s*#\[(?:[\w\\]*\\)?Group\(|\btags?:\s*\[?\s*['":]|->group\(|^\s*@(?:integration|slow|nightly|flaky|manual)\b|^#\s*bats\s+(?:test|file)_tags|,\s*:(?:slow|integration|flaky|wip|broken|manual|external|nightly)\b|^\s*@(?:Flaky|Retry\w*|Repeat\w*|RetryingTest|flaky|retry)\b"#
    );
    static KNOWN: [&str; 14] = [
        "parametrize",
        "usefixtures",
        "asyncio",
        "django_db",
        "filterwarnings",
        "timeout",
        "anyio",
        "trio",
        "vcr",
        "xdist_group",
        "benchmark",
        "skip",
        "skipif",
        "xfail",
    ];
    let known = |found: regex::Captures<'_>| found.get(1).is_some_and(|mark| KNOWN.contains(&mark.as_str()));
    GROUP.captures(line).is_some_and(|found| !known(found))
}

/// Whether a line prevents all other tests from running.
pub(super) fn excludes_others(line: &str) -> bool {
    ONLY.is_match(line)
}

/// Whether a line belongs to a table-driven test.
pub(super) fn is_table(line: &str) -> bool {
    TABLE.is_match(line)
}

/// Whether runners look for tests in this file, by its name or folder.
pub(super) fn is_test_path(path: &str) -> bool {
    let Some(language) = Language::of(path) else { return path.ends_with(".t") };
    let lower = path.to_lowercase();
    let name = lower.rsplit('/').next().unwrap_or(&lower);
    let stem = name.split('.').next().unwrap_or(name);
    let folders = [
        "tests",
        "test",
        "__tests__",
        "spec",
        "specs",
        "e2e",
        "testing",
        "t",
        "regress",
        "regression",
        "conformance",
        "smoke",
        "acceptance",
        "functional",
        "selftest",
        "selftests",
        "testcases",
        "unittests",
        "unit_tests",
        "integration_tests",
        "integration-tests",
        "functional-tests",
        "cypress",
    ];
    // Folders of functions that tests of Go call.
    const GO_HELPERS: [&str; 5] = ["testutil", "testutils", "testhelper", "testhelpers", "testsupport"];
    let top = ["integration/", "acceptance/", "integration-tests/", "integration_tests/", "e2e-tests/", "testsuite/"];
    let steps = ["features/bootstrap/", "features/step_definitions/", "features/steps/", "features/support/"];
    // Files that runners load before the tests.
    pattern!(
        SUPPORT,
        r"^(?:jest|vitest|mocha|karma|tests?)[._-]?(?:setup|globals?|init|bootstrap|helpers?|support|main)|^set_?up[._-]?tests?\b|^setuptests|^global-?(?:setup|teardown)|^(?:g?test|spec|rails)_(?:helper|support|main)"
    );
    // Source sets of Gradle and Kotlin: `androidTest`, `commonTest`, `testFixtures`.
    pattern!(SOURCE_SET, r"(?:^|/)src/(?:\w+Test|test[A-Z]\w*)/");
    let in_folder = lower.rsplit('/').skip(1).any(|folder| folders.contains(&folder))
        || (language != Language::Go && SUPPORT.is_match(name))
        || top.iter().any(|folder| lower.starts_with(folder))
        || steps.iter().any(|folder| lower.contains(folder));
    match language {
        Language::Go => stem.ends_with("_test") || lower.rsplit('/').skip(1).any(|folder| GO_HELPERS.contains(&folder)),
        Language::Rust => {
            let named = stem == "tests"
                || stem == "test"
                || stem.ends_with("_test")
                || stem.ends_with("_tests")
                || stem.starts_with("test_");
            in_folder || named
        }
        Language::Jvm => in_folder || language.collects(path) || SOURCE_SET.is_match(path),
        _ => in_folder || language.collects(path),
    }
}
