//! Replacements: test doubles of the code under test, files that shadow a module or a runner, assertions with a changed meaning,
//! and program code that behaves differently in tests.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::blocks::{TestFile, TestLine, indent};
use super::diff::{FileDiff, LineChange};
use super::doubles::{Doubles, TestedNames, injected};
use super::language::{Language, is_test_path};
use super::marks::subject;
use super::summary::DiffSummary;
use super::{Findings, TamperKind};

/// Maximum length of a line that is read, in bytes. Longer lines are generated.
const LONGEST: usize = 400;

// Gives an assertion of a framework, or the report of a failure, another meaning.
pattern!(
    REDEFINES,
    r#"^\s*#\s*define\s+(?:ASSERT|EXPECT|CHECK|REQUIRE|TEST|assert|ck_assert|FAIL|CU_ASSERT|BOOST_\w+|cr_assert|TEST_ASSERT|GTEST_\w+)\w*\s*\(|^\s*#\s*undef\s+(?:assert|EXPECT|ASSERT|CHECK|REQUIRE)\w*|^\s*macro_rules!\s+(?:assert|panic|debug_assert|prop_assert)\w*|^\s*(?:pub\s+)?use\s+\S*(?:noop|fake|stub|lenient|soft|quiet)\S*assert\S*|\b(?:unittest\.)?TestCase\.\w*(?:assert|fail)\w*\s*=|\bsetattr\([^)]*[\x22'](?:assert|fail)\w*[\x22']|^\s*(?:pytest|self|cls|assert|expect|chai|t|console|global|globalThis|window|Assert|unittest|builtins)\.(?:\w+\.)*(?:assert\w*|fail\w*|raises|expect\w*|equal\w*|deepEqual|strictEqual|ok|throws|error)\s*=\s*[^=]|^\s*(?:global(?:This)?\.)?(?:expect|assert|should|fail)\s*=\s*[^=>]|^\s*(?:const|let|var|function|async\s+function)\s+(?:expect|assert|should|fail|it|test|describe)\b\s*[=(]|\bexpect\.extend\(|\bprocess\.(?:exit|exitCode|on)\s*=|\bprocess\.on\(\s*['\x22](?:exit|uncaughtException|unhandledRejection)|^\s*alias\s+(?:fail|assert|test|diff|cmp|grep|exit)\w*=|^\s*(?:function\s+)?(?:assert\w*|fail|run|exit|test|diff|cmp|die|skip|refute\w*|ok|is|not_ok|grep|\[)\s*\(\s*\)\s*\{|^\s*def\s+(?:assert(?:_\w+)?|refute\w*|expect|flunk|raise|fail)\b|^\s*(?:(?:public|private|protected|static|final)\s+)+\w+\s+(?:assert(?:Equals|True|False|That|Same|Null|NotNull|Throws)|fail)\s*\(|^\s*(?:(?:public|protected|static|final)\s+)*function\s+(?:assert(?:Same|Equals|True|False|Count|Null|That|Contains|Instance\w*)|fail|expectException\w*)\s*\(|^\s*func\s+(?:assert|require|check|must|expect)\w*\(|^\s*(?:alias|alias_method|define_method)\s*\(?\s*:?(?:assert|expect|refute)|\bAssertionError\s*=|\b(?:prepend|include)\s+\w*(?:Assert|Expect|Lenient|Quiet)\w*|^\s*from\s+\S+\s+import\s+.*\bas\s+(?:raises|approx|assert\w+)"#
);
// Says that everything equals everything.
pattern!(
    EQUALS_ALL,
    r"\bdef\s+__(?:eq|ne|lt|gt|le|ge|contains|bool)__\(|\bdef\s+(?:==|eql\?|===)\s*\(?|\bbool(?:ean)?\s+(?:operator\s*==|equals\s*\()|\bfn\s+eq\s*\(|\bfun\s+equals\s*\(|\bfunc\s+\([^)]*\)\s+Equal\(|\bpublic\s+function\s+equals\(|\bequals\(Object\b"
);
pattern!(
    TRUE_ONLY,
    r"(?:return\s+(?:true|True|1)\b\s*;?\s*\}?\s*$|\{\s*true\s*\}|=\s*true\s*;?\s*$|^\s*true\s*$|->\s*true|=>\s*true|^\s*return\s+(?:\w+\s+instanceof\s+\w+|isinstance\(\w+,\s*\w+\)|\w+\s+is\s+\w+|type\(\w+\).*|\w+\.getClass\(\)\s*==\s*\w+\.getClass\(\))\s*;?\s*$)"
);
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

/// Reports code, in a file of a known language, that replaces what a test checks.
pub(super) fn scan(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    if tests.file.is_deleted() {
        return;
    }
    let path = tests.file.path();
    let inline = tests.language == Language::Rust && tests.lines.iter().any(|line| line.in_test_module);
    let read = (tests.is_test || inline) && !tests.file.is_new();
    let names = if read { TestedNames::of(tests) } else { TestedNames::default() };
    if tests.is_test && !tests.file.is_new() {
        super::computed::rows(tests, &names.called, diff, findings);
    }
    let (doubles, helpers) = (Doubles::of(tests), Helpers::of(tests));
    for (at, line) in tests.lines.iter().enumerate().filter(|(_, line)| line.change == LineChange::Added) {
        if line.text.len() > LONGEST
            || diff.had(line.text)
            || tests.language.is_comment(line.text) && !OTHER_BUILD.is_match(line.text)
        {
            continue;
        }
        if tests.is_about_tests(line) {
            if !tests.file.is_new() {
                doubles.scan(line, &names, findings);
                injected(tests, at, findings);
                prepared(tests, line, diff, findings);
            }
            redefined(tests, at, diff, findings);
            if read && (tests.is_test || line.in_test_module) {
                reimplemented(tests, at, &names, diff, findings);
            }
        } else if !(tests.language == Language::Shell && super::commands::is_runner(line.text)) {
            asks(tests, at, &helpers, findings);
        }
        if TRUE_ONLY.is_match(line.text) && is_equality(tests, at) {
            let evidence = format!("equals everything: {}", line.text.trim());
            findings.add(path, Some(line.number), TamperKind::CodeReplaced, &evidence);
        }
    }
}

/// Whether the added line replaces the last statement of a function that compares two values for equality.
fn is_equality(tests: &TestFile<'_>, at: usize) -> bool {
    let line = &tests.lines[at];
    let around = tests.lines[..=at].iter().rev().take(10).take_while(|other| other.hunk == line.hunk);
    let mut outer =
        around.filter(|other| other.change != LineChange::Removed && indent(other.text) <= indent(line.text));
    let named = outer.find(|other| EQUALS_ALL.is_match(other.text)).is_some()
        || EQUALS_ALL.is_match(&tests.file.hunks[line.hunk].heading);
    let last =
        tests.lines[at + 1..].iter().find(|next| next.change != LineChange::Removed && !next.text.trim().is_empty());
    let ends = last.is_none_or(|next| indent(next.text) < indent(line.text));
    // A first check of identity stays honest: something compares after it.
    let near = &tests.lines[at.saturating_sub(4)..tests.lines.len().min(at + 5)];
    let replaces = near.iter().any(|other| other.hunk == line.hunk && other.change == LineChange::Removed);
    let code = |other: &&TestLine<'_>| {
        other.change != LineChange::Removed && !other.text.trim().is_empty() && !tests.language.is_comment(other.text)
    };
    let before = tests.lines[..at].iter().rev().find(code);
    let first = before.is_some_and(|before| EQUALS_ALL.is_match(before.text));
    named && ends && (replaces || first)
}

/// Reports program code that checks whether it runs in a test.
fn asks(tests: &TestFile<'_>, at: usize, helpers: &Helpers<'_>, findings: &mut Findings) {
    let line = &tests.lines[at];
    let text = line.text;
    let path = tests.file.path();
    let sure = tests.language.asks_for_tests(text);
    let other_build = OTHER_BUILD.is_match(text) && !line.in_test_module && {
        let next = tests.lines[at + 1..].iter().find(|next| next.change != LineChange::Removed);
        next.is_some_and(|next| !next.text.contains("mod ") && !next.text.trim_start().starts_with("use "))
            || tests.language == Language::Go
            || text.contains("path")
    };
    let asked = ASKS.is_match(text) && TESTED.is_match(text);
    let named = FRAMEWORK.is_match(text) && !IMPORTS.is_match(text);
    // How much is logged decides nothing that a test expects.
    pattern!(LOGS, r"(?i)\blog|logg|silent|verbos|['\x22](?:debug|info|warn)['\x22]");
    if sure || other_build {
        let weak = sure && LOGS.is_match(text) || other_build && helpers.is_only_for_tests(at);
        findings.add_graded(path, Some(line.number), TamperKind::CodeReplaced, text, weak);
    } else if path.ends_with("setup.py") || path.ends_with("build.rs") || path.contains(".config.") {
        // It names the frameworks as dependencies.
    } else if NAMES_TESTS.is_match(text) && !tests.file.is_new() {
        let weak = !decides(text) && !ASKS.is_match(text);
        findings.add_graded(path, Some(line.number), TamperKind::CodeReplaced, text, weak);
    } else if !tests.file.is_new() && (named || asked && !text.contains("mod ")) {
        findings.add_graded(path, Some(line.number), TamperKind::CodeReplaced, text, !decides(text));
    }
}

/// Functions of a file, by the conditions under which they are compiled.
struct Helpers<'a> {
    tests: &'a TestFile<'a>,
    /// Number of lines that begin a function of each name.
    names: OnceCell<HashMap<String, usize>>,
    /// Whether something is left out of tests.
    has_other_version: OnceCell<bool>,
}

impl<'a> Helpers<'a> {
    fn of(tests: &'a TestFile<'a>) -> Self {
        Self { tests, names: OnceCell::new(), has_other_version: OnceCell::new() }
    }

    /// Whether a line with conditional compilation is followed by a new function that has no other version.
    fn is_only_for_tests(&self, at: usize) -> bool {
        let (lines, language) = (&self.tests.lines, self.tests.language);
        let remains = |line: &&TestLine<'_>| line.change != LineChange::Removed;
        let Some(next) = lines[at + 1..].iter().find(remains) else { return false };
        let Some(name) = language.helper_name(next.text).filter(|_| next.change == LineChange::Added) else {
            return false;
        };
        let names = self.names.get_or_init(|| {
            let mut counts = HashMap::new();
            let names = lines.iter().filter_map(|line| language.helper_name(line.text));
            names.for_each(|name| *counts.entry(name).or_default() += 1);
            counts
        });
        let other = || lines.iter().filter(remains).any(|line| line.text.contains("not(test)"));
        lines[at].text.contains("cfg(test)")
            && names.get(&name) == Some(&1)
            && !*self.has_other_version.get_or_init(other)
    }
}

/// Reports code that replaces functions or classes of the program, in a file that runs before the tests.
fn prepared(tests: &TestFile<'_>, line: &TestLine<'_>, diff: &DiffSummary, findings: &mut Findings) {
    pattern!(
        REPLACES,
        r"^\s*\*?(?:[\w$@]+(?:\.|::|->))*[\w$]+\s*=\s*(?:async\s+)?(?:func\s*\(|function\b|lambda\b|\(?[\w\s,:]*\)?\s*=>|->\s*[({]|proc\b|&?fake\w*|(?:Magic)?Mock\(|stub\w*\(|jest\.fn|vi\.fn|sinon\.)|\beval\(|\bclass_alias\(|\b(?:runkit7?|uopz)_\w+|\boverride_function\(|\bObject\.define(?:Property|Properties)\(|\bReflect\.set|\btypes\.ModuleType\(|\bspec_from_file|\bclass_eval\b|\binstance_eval\b|\bmodule_eval\b|\bdefine_method\b|\bremove_method\b|\bundef_method\b|\.prepend\b|\brefine\s|\bClass\.new\b.*=|\bstub_const\b|\bset_fake|__attribute__\(\(\s*(?:weak|alias)|\b(?:dlsym|LD_PRELOAD|--wrap)\b|\bPatchwork\b|\bAspectMock\b|\bPowerMock\w*|\bmockStatic\(|\bexport\s+-f\b|\bPATH=\S*:|^\s*#\s*define\s+[a-z]\w*\s*\(?\w*\)?\s+\w*(?:fake|stub|mock)\w*"
    );
    pattern!(
        BEFORE,
        r"(?i)setup|helper|bootstrap|support|conftest|common|init|global|export_test|main|base|env|hooks?|TestCase"
    );
    pattern!(HOOK, r"(?i)^(?:init|main|testmain|setup\w*|before\w*|set_up\w*)$");
    let file = tests.file.path().rsplit('/').next().unwrap_or_default();
    let in_hook = line.new.is_some_and(|at| HOOK.is_match(&tests.new[at].name));
    let in_new_test = tests.is_in_new_test(line) && !in_hook;
    let mocks = tests.language.mocked(line.text).is_some() && BEFORE.is_match(file);
    // A function of the program's, defined again beside the tests.
    pattern!(DOUBLES, r"(?i)stub|mock|fake|double|shim|dummy");
    pattern!(ONE_LINE, r"^(?:\w+[\s*]+)+\w+\([^)]*\)\s*\{.*\}\s*$");
    let begins = tests.language.begins_function(line.text) || ONE_LINE.is_match(line.text);
    let defines = DOUBLES.is_match(file) && begins && indent(line.text) == 0;
    // A class that is there before the program's own is loaded.
    pattern!(
        CLASS,
        r"^\s*(?:(?:final|abstract|export|default|public)\s+)*(?:class|namespace\s+\w+\\?[\w\\]*\s*\{|module)\b"
    );
    pattern!(LOADS, r"(?i)bootstrap|setup|\binit\b");
    // A class of the program's, opened again in Ruby.
    pattern!(REOPENS, r"^\s*(?:class|module)\s+([A-Z]\w*)(?:::[A-Z]\w*)+\s*$");
    pattern!(OF_FRAMEWORK, r"^(?:Mini[tT]est|Test|RSpec|ActiveSupport|ActionDispatch|ActionController|Capybara|Spec)$");
    let reopens = REOPENS.captures(line.text).is_some_and(|found| !OF_FRAMEWORK.is_match(&found[1]));
    if tests.language == Language::Ruby && reopens && BEFORE.is_match(file) {
        let kind = TamperKind::CodeReplaced;
        findings.add_graded(tests.file.path(), Some(line.number), kind, line.text, diff.changes_code);
    }
    let classes = LOADS.is_match(file) && CLASS.is_match(line.text) && !tests.language.is_suite(line.text);
    if classes {
        findings.notice(tests.file.path(), Some(line.number), TamperKind::CodeReplaced, line.text);
    }
    if REPLACES.is_match(line.text) && (BEFORE.is_match(file) || in_hook) && !in_new_test || mocks || defines {
        findings.add_graded(
            tests.file.path(),
            Some(line.number),
            TamperKind::CodeReplaced,
            line.text,
            diff.changes_code,
        );
    }
}

/// Whether a line contains a condition.
fn decides(text: &str) -> bool {
    pattern!(DECIDES, r"\b(?:if|unless|elif|when|while|case|switch|return|match)\b|&&|\|\||\?|\[\[?\s|[!=]==?|\*\)");
    DECIDES.is_match(text)
}

/// Reports an assertion of a framework, or a helper with assertions, whose new definition checks less.
fn redefined(tests: &TestFile<'_>, at: usize, diff: &DiffSummary, findings: &mut Findings) {
    let line = &tests.lines[at];
    let path = tests.file.path();
    if !REDEFINES.is_match(line.text) {
        return;
    }
    let body: Vec<&TestLine<'_>> = tests.lines[at + 1..]
        .iter()
        .filter(|other| other.change != LineChange::Removed && !other.text.trim().is_empty())
        .take(12)
        .take_while(|other| other.hunk == line.hunk && indent(other.text) > indent(line.text))
        .collect();
    // What does nothing, or says that all is well.
    pattern!(
        NOTHING,
        r"(?i)^\s*[{(]*\s*(?:pass|return(?:\s+(?:0|true|nil|null|none|self|\$this|this|\w+))?|true|nil|:|\.\.\.|0|yield|unit|ok\(\(\)\)|\(\)|\(\(void\)\s*0\)|do\s*\{?\s*\}?\s*while.*|print\w*\b.*|puts\b.*|echo\b.*|console\..*|log\w*[.(!].*|eprintln!.*|println!.*|warn\w*\b.*|std::c.*|fmt\.print.*|system\.out.*|error_log.*|t\.log.*|expect\(true.*|\}|end|fi|\)|\};?|\{)?\s*[;})]*\s*$"
    );
    pattern!(
        INLINE,
        r"(?i)(?:=>|->|lambda[^:]*:|=)\s*(?:\(\)|\{\s*\}|none|null|undefined|true|void 0|nil|0|jest\.fn\(\)|vi\.fn\(\)|sinon\.stub\(\)|(?:magic)?mock\(.*\)|\(?[^()]*\)?\s*=>\s*(?:\{[^{}]*\}|\w+)|lambda[^:]*:\s*(?:none|true)|noop|function\s*\(.*\)\s*\{\s*\})\s*;?\s*$|\{\s*(?::|true|return(?:\s+0)?|echo[^;]*)?\s*;?\s*\}\s*$|\)\s*(?:\(\(void\)\s*\(?0?.*|do\s*\{\s*\}\s*while\s*\(0\)|)\s*$|^\s*#\s*undef|^\s*alias|\bexpect\.extend\(|process\.on\("
    );
    let trivial = match body.is_empty() {
        true => INLINE.is_match(line.text),
        false => body.iter().all(|other| NOTHING.is_match(other.text)),
    };
    pattern!(
        MATCHER,
        r"^\s*(?:async\s+)?(?:toBe|toEqual|toStrictEqual|toMatch|toMatchObject|toMatchSnapshot|toContain|toThrow|toHaveLength|toHaveBeenCalled\w*|toBe(?:Defined|Truthy|Null|CloseTo|GreaterThan|LessThan))\s*[(:]"
    );
    let near = tests.lines[at + 1..].iter().take(12).take_while(|other| other.hunk == line.hunk);
    let overrides = line.text.contains("expect.extend(")
        && near.filter(|other| other.change == LineChange::Added).any(|other| MATCHER.is_match(other.text));
    let script = tests.language != Language::JavaScript && line.text.trim_start().starts_with("let it ");
    // A name that a framework has: it takes the place of the framework's own.
    pattern!(
        OWN,
        r"^\s*macro_rules!\s+(?:assert|assert_eq|assert_ne|panic|assert_matches)\b|^\s*#\s*define\s+(?:assert|(?:ASSERT|EXPECT|REQUIRE|CHECK|TEST_ASSERT|ck_assert|BOOST_(?:CHECK|REQUIRE))\w*)\s*\(|^\s*(?:function\s+)?(?:assert_(?:output|success|failure|line|equal|regex|file_\w+)|refute\w*|assert(?:Equals|True|False|Null|NotNull|Same|NotSame|Contains)|diff|cmp|grep|exit|test)\s*\(\s*\)\s*\{|^\s*(?:(?:public|protected|static|final)\s+)*function\s+assert(?:Same|Equals|True|False|Count|Null|That)\s*\(|^\s*def\s+(?:assert_equal|assert|refute|assert_raises|expect|assertEqual|assertTrue|assertRaises)\b"
    );
    pattern!(
        CAN_FAIL,
        r"(?i)\b(?:fail\w*|raise|throws?|panic\w*|exit\s*\(?[1-9]|return\s+[1-9$]|die|abort|fatal\w*|flunk|super|longjmp|parent::|assert_failed|command\s+\w+\s*;?\s*$|batslib\w*)"
    );
    let in_one_line = body.is_empty() && line.text.contains("=>") && !CAN_FAIL.is_match(line.text);
    // A macro may call other assertions.
    let asserts = |text: &str| tests.language == Language::Cpp && tests.language.asserts(text);
    let can_fail = |other: &&TestLine<'_>| CAN_FAIL.is_match(other.text) || asserts(other.text);
    let in_body = !body.is_empty() && !body.iter().any(can_fail);
    let cannot_fail = OWN.is_match(line.text) && (in_one_line || in_body);
    pattern!(GLOBAL, r"\b(?:global|globalThis|window)\.(?:expect|assert|it|test|describe)\s*=[^=]");
    if (trivial && !script) || cannot_fail || overrides || GLOBAL.is_match(line.text) {
        let evidence = format!("an assertion means less: {}", line.text.trim());
        let weak = tests.file.is_new() && diff.changes_code;
        findings.add_graded(path, Some(line.number), TamperKind::CodeReplaced, &evidence, weak);
    }
}

/// Reports a function or class that a test file now defines itself, although its assertions checked the program's one before.
fn reimplemented(
    tests: &TestFile<'_>,
    at: usize,
    names: &TestedNames<'_>,
    diff: &DiffSummary,
    findings: &mut Findings,
) {
    pattern!(
        DEFINES,
        r"^(?:export\s+)?(?:(?:async\s+)?(?:def|function|fn|func|fun)\s+(?:self\.)?(\w+)\s*[(<]|(?:const|let|var|auto|val)\s+(\w+)\s*=\s*(?:async\s*)?(?:\(?[\w\s,:{}]*\)?\s*=>|function\b|\[[^\]]*\]\s*\()|(\w+)\s*=\s*lambda\b|(?:static\s+|inline\s+)*(?:unsigned\s+|const\s+)*\w+[\s*&]+(\w+)\s*\([^;]*\{.*$|(\w+)\s*\(\)\s*\{|(?:final\s+|abstract\s+|public\s+|data\s+)*(?:class|module|struct|object)\s+(\w+))"
    );
    let line = &tests.lines[at];
    // In a module of tests, it takes the place of what `use super::*` brings.
    let inner = tests.language == Language::Rust && line.in_test_module;
    let text = if inner { line.text.trim_start() } else { line.text };
    let Some(found) = DEFINES.captures(text) else { return };
    let Some(name) = found.iter().skip(1).flatten().next().map(|name| name.as_str()) else { return };
    let path = tests.file.path();
    let own = tests.language.test_name(line.text, false).is_some() || tests.language.is_suite(line.text);
    // A fixture has the name of what it makes.
    let mut before = tests.lines[..at].iter().rev();
    let above = before.find(|other| other.change != LineChange::Removed && !other.text.trim().is_empty());
    let decorated = above.is_some_and(|above| above.hunk == line.hunk && above.text.trim_start().starts_with('@'));
    let own = own || inner && line.new.is_some();
    if name.len() < 3 || own || decorated || diff.removed_text_defines(name) {
        return;
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    let about = name.to_lowercase().replace('_', "") == subject(file);
    let known = about || names.imported.contains(name);
    if known || names.called.contains(name) {
        let evidence = format!("a test defines what it is about: {}", line.text.trim());
        let weak = (diff.changes_code || !known) && !inner;
        findings.add_graded(path, Some(line.number), TamperKind::CodeReplaced, &evidence, weak);
    }
}

/// Reports dependencies that are now taken from a folder of the repository, and edited test libraries.
pub(super) fn dependencies(file: &FileDiff, diff: &DiffSummary, findings: &mut Findings) {
    pattern!(
        LOCAL,
        r#"=>\s*\.{1,2}/|\bpath\s*=\s*"[^"]*(?:stub|fake|mock|dummy|shim|patched|local)|"(?:file|link|portal):|\bpath:\s*["']|"type"\s*:\s*"path"|^\s*"(?:[A-SU-Z]|T[^e])\w*(?:\\\\\w*)*"\s*:\s*"[^"]*(?:tests?|doubles?|stubs?|fakes?|mocks?)/|<systemPath>|\bincludeBuild\b|^\s*(?:-e\s+)?\.{1,2}/|@\s*file:|"(?:overrides|resolutions)"\s*:"#
    );
    pattern!(DOUBLE, r"(?i)stub|fake|mock|dummy|shim|patched|double");
    pattern!(
        VENDORED,
        r"(?i)(?:^|/)(?:vendor|node_modules|third_party|external|site-packages|extern|deps|contrib)/(?:.*/)?(?:testify|gotest\w*|jest\w*|vitest|mocha|chai|expect|assert\w*|googletest|gtest|gmock|catch2?|doctest|unity|cmocka|rspec\w*|minitest|test-unit|phpunit|pest|bats\w*|pytest|_pytest|unittest|shunit2|junit\w*|hamcrest|assertj)[/._-]"
    );
    /// Number of changed lines above which a library counts as updated, not edited.
    const FEW: usize = 20;
    let path = file.path();
    let name = path.rsplit('/').next().unwrap_or(path);
    let changed = |line: &&str| !line.trim().is_empty();
    if VENDORED.is_match(path) && !file.is_new() && !file.is_deleted() {
        let lines = file.lines(LineChange::Added).filter(changed).count();
        findings.add_graded(path, None, TamperKind::CodeReplaced, "a library of tests was edited", lines > FEW);
    }
    const MANIFESTS: [&str; 9] = [
        "go.mod",
        "Cargo.toml",
        "package.json",
        "Gemfile",
        "composer.json",
        "pom.xml",
        "settings.gradle",
        "pyproject.toml",
        "build.gradle",
    ];
    if !MANIFESTS.contains(&name) && !name.starts_with("requirements") || file.is_new() {
        return;
    }
    let local = |line: &&super::diff::DiffLine| LOCAL.is_match(&line.text) && !diff.had(&line.text);
    if let Some(line) = file.numbered(LineChange::Added).find(local) {
        let weak = name == "Cargo.toml" || !DOUBLE.is_match(&line.text);
        findings.add_graded(path, Some(line.number), TamperKind::CodeReplaced, &line.text, weak);
    }
}

/// Reports a new file that is found in place of a runner, a library, or a module under test.
pub(super) fn shadows(file: &FileDiff, diff: &DiffSummary, findings: &mut Findings) {
    // Files that runners load by themselves, and names of runners and libraries of tests.
    pattern!(
        LOADED,
        r"(?i)^(?:sitecustomize|usercustomize|conftest|pytest|unittest|nose|_pytest|doctest|hypothesis|mock|tox|coverage)\.py$|\.pth$|^(?:jest|vitest|mocha|chai|expect|assert|sinon|ava|tap|supertest)\.(?:[cm]?[jt]s|json)$|^(?:gtest|gmock|catch|catch2|doctest|unity|check|cmocka|assert|munit|criterion|greatest|minunit|acutest|cutest)\.(?:h|hpp)$|^(?:minitest|rspec|test_unit|test-unit)\.rb$|^(?:GNUmakefile|makefile)$"
    );
    // Names of programs, of which a script can take the place.
    pattern!(
        COMMAND,
        r"^(?:pytest|jest|vitest|mocha|phpunit|pest|rspec|rake|bats|cargo|go|mvn|gradle|npm|npx|yarn|pnpm|node|python3?|make|ctest|ruby|php|bundle|composer|prove|tox|diff|cmp|grep|test)$"
    );
    pattern!(MOCK_FOLDER, r"(?:^|/)(?:__mocks__|node_modules|vendor/bin|site-packages|\.venv|third_party)/");
    pattern!(
        HOOKS,
        r"(?i)pytest_runtest|makereport|collection_modifyitems|ignore_collect|_exit|sys\.modules|setattr|exitstatus|outcome|sys\.path|skip|xfail|\bpatch\b"
    );
    // A fixture of each test, which sets up and replaces nothing.
    pattern!(EACH_TEST, r"autouse|monkeypatch");
    let path = file.path();
    let name = path.rsplit('/').next().unwrap_or(path);
    // A file that was renamed takes a place as a new one does.
    let renamed = file.new.is_some() && file.old.is_some() && file.old != file.new;
    if !file.is_new() && !renamed {
        return;
    }
    if let Some(module) = super::starts::shadowed_module(path) {
        let evidence = format!("takes the place of a module of Python: {module}");
        findings.add(path, None, TamperKind::CodeReplaced, &evidence);
        return;
    }
    // A wrapper of the name of a command that runs checks.
    let folder = ["bin/", "tools/", "scripts/", "shims/", ".bin/"].iter().any(|folder| path.contains(folder));
    if folder
        && Language::of(path).is_none_or(|language| language == Language::Shell)
        && super::commands::is_runner(name.trim_end_matches(".sh"))
    {
        findings.add(path, None, TamperKind::CodeReplaced, &format!("takes the place of a command: {name}"));
        return;
    }
    let beside = || path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let conftest = name == "conftest.py" && !file.lines(LineChange::Added).any(|line| HOOKS.is_match(line));
    if conftest && let Some(line) = file.numbered(LineChange::Added).find(|line| EACH_TEST.is_match(&line.text)) {
        findings.notice(path, Some(line.number), TamperKind::CheckConfigEdited, &line.text);
    }
    // A package of the name of a library of tests.
    pattern!(
        PACKAGE,
        r"(?:^|/)(?:hypothesis|pytest|_pytest|unittest|mock|nose|numpy|requests|testify|gtest|gmock|catch2|minitest|rspec|mocha|chai|jest|vitest|sinon|junit|mockito|PHPUnit|phpunit|bats-assert|bats-support)/[^/]+(?:/[^/]+)?$"
    );
    let package = PACKAGE.is_match(path)
        && is_test_path(path)
        && Language::of(path).is_some_and(|language| !language.collects(path));
    if package {
        findings.add(path, None, TamperKind::CodeReplaced, &format!("takes the place of a library: {path}"));
        return;
    }
    let command =
        COMMAND.is_match(name) && file.lines(LineChange::Added).next().is_some_and(|line| line.starts_with("#!"));
    if (LOADED.is_match(name) || command || MOCK_FOLDER.is_match(path)) && !conftest {
        let kind = if MOCK_FOLDER.is_match(path) { TamperKind::CodeReplaced } else { TamperKind::CheckConfigEdited };
        findings.add(path, None, kind, &format!("takes the place of another file: {name}"));
        return;
    }
    // A program's module in a folder of tests: it has no tests, and the name of what tests import.
    let in_tests = is_test_path(path) && Language::of(path).is_some_and(|language| !language.collects(path));
    let stem = name.split('.').next().unwrap_or(name);
    let helper = [
        "helper", "util", "fixture", "common", "setup", "support", "init", "factory", "mock", "test", "spec", "data",
        "mod", "main",
    ];
    let plain = helper.iter().all(|word| !stem.to_lowercase().contains(word));
    // Only code is imported: data of the same name says nothing about a module.
    let tested = diff.has_other_source(&stem.to_lowercase().replace(['_', '-'], ""), name);
    if in_tests && plain && Language::of(path) != Some(Language::Rust) {
        let evidence = format!("a module of the program's name in {}: {name}", beside());
        findings.add_graded(path, None, TamperKind::CodeReplaced, &evidence, !tested);
    }
}
