//! Syntax of tests, skips and assertions. This file has the rules that all languages share; the tokens of each language are in a
//! separate file.

mod cpp;
mod go;
mod javascript;
mod jvm;
mod php;
mod python;
mod ruby;
mod rust;
mod shell;
mod tokens;

use std::sync::LazyLock;

use regex::Regex;

use tokens::Tokens;

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
    function: Option<Regex>,
    exit: Option<Regex>,
    asks_for_tests: Option<Regex>,
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
        function: compiled(tokens.function),
        exit: compiled(tokens.exit),
        asks_for_tests: compiled(tokens.asks_for_tests),
        any_value: compiled(tokens.any_value),
        assertion_api: compiled(tokens.assertion_api),
        hard_exit: compiled(tokens.hard_exit),
        exit_hook: compiled(tokens.exit_hook),
        collected: compiled(tokens.collected),
    };
    LANGUAGES.iter().map(syntax).collect()
});

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

    /// Whether a function or class starts in a line, so that the test before it has ended.
    pub fn begins_function(self, line: &str) -> bool {
        matches(self.syntax().function.as_ref(), line) && !(self == Self::Jvm && line.contains(';'))
    }

    /// Returns the name of the function that starts in a line.
    pub fn function_name(self, line: &str) -> Option<String> {
        first_group(self.syntax().function.as_ref(), line)
    }

    /// Returns the name of the function that starts in a line; `None` for a class or suite.
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

    /// Whether a line is only a comment.
    pub fn is_comment(self, line: &str) -> bool {
        let line = line.trim_start();
        self.tokens().comments.iter().any(|mark| line.starts_with(mark))
    }

    /// Whether a line ends the process with success.
    pub fn exits(self, line: &str) -> bool {
        !self.is_comment(line) && matches(self.syntax().exit.as_ref(), line)
    }

    /// Whether a line introduces a value that equals every other value, or a library of test doubles.
    pub fn brings_any_value(self, line: &str) -> bool {
        matches(self.syntax().any_value.as_ref(), line)
    }

    /// Whether the run with the base's tests compares all fields instead of a new comparison of a class.
    pub fn has_stand_in(self) -> bool {
        matches!(self, Self::Python | Self::Jvm)
    }

    /// Whether a line changes the meaning of an assertion, a runner or an exit.
    pub fn replaces_assertion(self, line: &str) -> bool {
        matches(self.syntax().assertion_api.as_ref(), line)
    }

    /// Whether a line ends the process immediately, without the runner's handlers and report.
    pub fn exits_hard(self, line: &str) -> bool {
        matches(self.syntax().hard_exit.as_ref(), line)
    }

    /// Whether a line starts code that runs automatically, at the end of the process or before a test.
    pub fn begins_hook(self, line: &str) -> bool {
        matches(self.syntax().exit_hook.as_ref(), line)
    }

    /// Whether a line checks whether the program runs in a test.
    pub fn asks_for_tests(self, line: &str) -> bool {
        !self.is_comment(line) && matches(self.syntax().asks_for_tests.as_ref(), line)
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

fn matches(pattern: Option<&Regex>, line: &str) -> bool {
    pattern.is_some_and(|pattern| pattern.is_match(line))
}

fn first_group(pattern: Option<&Regex>, line: &str) -> Option<String> {
    let found = pattern?.captures(line)?;
    found.iter().skip(1).flatten().next().map(|name| name.as_str().to_owned())
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
