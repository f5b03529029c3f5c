//! Program code that asks whether it runs in a test, so that it may behave differently there.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::commands::is_runner;
use super::diff::LineChange;
use super::language::Language;
use super::program_code::{CodeLine, ProgramCode};

// Asks the environment, the arguments, the stack, loaded modules or the build about something.
pattern!(
    ASKS,
    r#"(?i)\b(?:os\.environ\w*|getenv|std::env|env::var\w*|env!\(|option_env!|process\.env|import\.meta\.env|process\.argv|Deno\.env|os\.Getenv|os\.LookupEnv|os\.Args|flag\.Lookup|System\.getenv|System\.getProperty|Class\.forName|StackTraceElement|getStackTrace\w*|getClassName\(|StackWalker|sys\.modules|sys\.argv|sys\.gettrace|inspect\.(?:stack|currentframe|getouterframes)|traceback\.|sys\._getframe|ENV\[|ENV\.(?:fetch|key|include|has)\w*|\$PROGRAM_NAME|\$0|caller\b|caller_locations|defined\?|Object\.const_defined|\$_(?:ENV|SERVER)|debug_backtrace|PHP_SAPI|class_exists|defined\(|function_exists|new\s+Error\(\)\.stack|\.stack\b|runtime\.Callers?|debug\.Stack|Rails\.env|app\(\)->|App::|getppid|/proc/|program_invocation\w*|__progname|argv\[|BASH_SOURCE|FUNCNAME|\$\{?\w*(?:TEST|BATS|CI)\w*|\$\{#?BASH|typeof\s+(?:jest|describe|it|vi|expect|global\w*)|globalThis\.|global\.|NODE_ENV|dlsym|\benv\(|\bconfig\(|\benvironment\(|RUSTC\w*|current_exe|std::env::args|thread::current\(\)\.name|backtrace|cfg!\(|#\[cfg|^\s*#\s*(?:if|ifdef|ifndef|elif)\b|__FILE__|__name__|\$\{?\w+:-)"#
);
pattern!(
    TESTED,
    r#"(?i)pytest|py\.test|unittest|nose|_pytest|jest|vitest|mocha|jasmine|karma|cypress|playwright|rspec|minitest|test[_-]?unit|phpunit|pest\b|junit|testng|surefire|gradle[. ]test|mockito|\.test\b|test2?\.v|_test\b|testing|\b(?:is_?|in_?|under_?|run_?|unit_?|for_?)tests?(?:ing|s)?\b|["']test_|\btest(?:_?mode|_?env|_?run\w*)\b|["']tests?["']|=\s*tests?\b|\btest\b|gtest|catch2|catch_config|doctest|boost_test|bats|shunit|sharness|TEST_\w+|\w+_TEST\b|UNIT_?TEST\w*|\bCI\b|GITHUB_ACTIONS|HARNESS|prove\b|cargo[_-]test|nextest|RAILS_ENV|RACK_ENV|APP_ENV|/deps/|describe|\bit\b|\bvi\b|fakeTimers"#
);
// Names a framework of tests, or a function that says whether it is tested.
pattern!(
    NAMES_TESTS,
    r#"["'][^"']*(?:org\.junit|org/junit|pytest|PYTEST_|JEST_WORKER|VITEST\b|\brspec\b|phpunit|\bmocha\b|gtest|testing\.tRunner|_test\.go|\.test\.[jt]s|test_\*|/tests?/|\bbats\b)[^"']*["']|\bvar(?:_os)?\(\s*"(?:CARGO"|CARGO_(?:MANIFEST|BIN|PKG|TARGET_TMP)|NEXTEST|RUST_TEST)\w*|\b(?:\w*_)?(?:is|in|running)_?(?:being_?|running_?|under_?|in_?|a_?|unit_?)*tests?(?:ed|ing|s|_?mode|_?env\w*|_?run\w*|_?context)?\w{0,4}\s*\(|(?i:\b(?:is|in|running)(?:running|being)?(?:under|in|a|unit)*test(?:s|ed|ing|mode|env|environment)?\s*\()|\bunder_?[tT]ests?\b"#
);
// Names a framework of tests at all.
pattern!(
    FRAMEWORK,
    r"(?:^|[^a-z])(?:pytest|vitest|phpunit|PHPUnit|rspec|RSpec|junit|gtest|minitest|Minitest|testng|bats|shellspec|jest|mocha|jasmine)(?:$|[^a-z])"
);
pattern!(
    IMPORTS,
    r"^\s*(?:import|from|use|require|#\s*include|using|package|@import|export)\b|^\s*[\x22'][\w@/.-]+[\x22']\s*[:,]"
);
// Compiles another version of a function for tests.
pattern!(
    OTHER_BUILD,
    r"^\s*#\[cfg\((?:test|not\(test\)|any\([^)]*\btest\b)[^\]]*\)\]|^\s*#\[cfg_attr\(\s*(?:not\()?test\b|^//go:build\s.*\b(?:test\w*|ci)\b"
);

/// Questions of a program file about the tests.
pub(super) struct TestQuestions<'a> {
    code: &'a ProgramCode<'a>,
    /// Number of lines that start a function of each name.
    names: OnceCell<HashMap<String, usize>>,
    /// Whether something is left out of tests.
    has_other_version: OnceCell<bool>,
}

impl<'a> TestQuestions<'a> {
    pub fn of(code: &'a ProgramCode<'a>) -> Self {
        Self { code, names: OnceCell::new(), has_other_version: OnceCell::new() }
    }

    /// Whether the behavior of the program depends on an added line that asks about tests.
    pub fn decides(&self, at: usize) -> bool {
        // How much is logged decides nothing that a test expects.
        pattern!(LOGS, r"(?i)\blog|logg|silent|verbos|['\x22](?:debug|info|warn)['\x22]");
        let (lines, language) = (&self.code.lines, self.code.language);
        let (line, path, is_new) = (&lines[at], self.code.file.path(), self.code.file.is_new());
        let text = line.text;
        if language.is_comment(text) && !OTHER_BUILD.is_match(text) || language == Language::Shell && is_runner(text) {
            return false;
        }
        let sure = language.asks_for_tests(text);
        let other_build = OTHER_BUILD.is_match(text) && !line.in_test_module && {
            let next = lines[at + 1..].iter().find(|next| next.change != LineChange::Removed);
            next.is_some_and(|next| !next.text.contains("mod ") && !next.text.trim_start().starts_with("use "))
                || language == Language::Go
                || text.contains("path")
        };
        if sure || other_build {
            return !(sure && LOGS.is_match(text) || other_build && self.is_only_for_tests(at));
        }
        // These files name the frameworks as dependencies.
        if is_new || path.ends_with("setup.py") || path.ends_with("build.rs") || path.contains(".config.") {
            return false;
        }
        let asked = ASKS.is_match(text) && TESTED.is_match(text) && !text.contains("mod ");
        let named = FRAMEWORK.is_match(text) && !IMPORTS.is_match(text);
        match NAMES_TESTS.is_match(text) {
            true => has_condition(text) || ASKS.is_match(text),
            false => (named || asked) && has_condition(text),
        }
    }

    /// Whether a line with conditional compilation is followed by a new implementation or function that has no other version.
    fn is_only_for_tests(&self, at: usize) -> bool {
        let (lines, language) = (&self.code.lines, self.code.language);
        let remains = |line: &&CodeLine<'_>| line.change != LineChange::Removed;
        let Some(next) = lines[at + 1..].iter().find(remains) else { return false };
        let other = || lines.iter().filter(remains).any(|line| line.text.contains("not(test)"));
        if !lines[at].text.contains("cfg(test)") || *self.has_other_version.get_or_init(other) {
            return false;
        }
        if next.text.trim_start().starts_with("impl ") {
            return true;
        }
        let Some(name) = language.helper_name(next.text).filter(|_| next.change == LineChange::Added) else {
            return false;
        };
        let names = self.names.get_or_init(|| {
            let mut counts = HashMap::new();
            let names = lines.iter().filter_map(|line| language.helper_name(line.text));
            names.for_each(|name| *counts.entry(name).or_default() += 1);
            counts
        });
        names.get(&name) == Some(&1)
    }
}

/// Whether a line contains a condition.
fn has_condition(text: &str) -> bool {
    pattern!(DECIDES, r"\b(?:if|unless|elif|when|while|case|switch|return|match)\b|&&|\|\||\?|\[\[?\s|[!=]==?|\*\)");
    DECIDES.is_match(text)
}
