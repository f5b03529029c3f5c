//! Bypassed tests: they end before their assertions, their failures are caught, or something replaces the code under test.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};

use regex::Regex;

use super::blocks::{TestBlock, TestFile, TestLine, indent};
use super::commands::{is_shell_test, prepares, reads_status};
use super::config_files::is_check_script;
use super::diff::LineChange;
use super::flow;
use super::language::Language;
use super::summary::DiffSummary;
use super::tests_lost::is_guarded;
use super::{Findings, TamperKind};

/// Maximum number of lines after a command that are searched for a look at its status.
const REACH: usize = 100;

pattern!(
    FAILS,
    r"^\s*(?:exit|return)\s+(?:[1-9]|[\x22']?\$)|^\s*(?:os\.Exit|sys\.exit|process\.exit|exit)\(\s*\w+[^0)]|\bnot ok\b|\breturn\s+\w*(?:test|check|spec)\w*\(|\breturn\s+(?:(?:RUN_ALL_TESTS|UNITY_END|[\w:.]+\.run)\(|!?\(?\w*(?i:fail|err|status|result|rc|ret)\w*)|^\s*\w*(?i:fail|err)\w*\s*(?:\+\+|\+=|=\$\(\()|^\s*\+\+\w*(?i:fail|err)\w*|\bEXIT_FAILURE\b|^\s*\(\(\s*\w*(?i:fail|err)\w*\s*\+"
);
pattern!(COUNTS, r"^\s*[\w.>-]*(?i:fail|err|bad|broken)\w*\s*(?:\+\+|\+=)|^\s*\+\+\w*(?i:fail|err)\w*");
// The status of the command is that of the declaration.
pattern!(HIDES_STATUS, r#"^\s*(?:local|declare|typeset|export|readonly)\s+\w+=["']?\$\("#);
pattern!(
    SUCCEEDS,
    r"^\s*(?:exit|return)\s+(?:0|EXIT_SUCCESS|true)\s*;?$|^\s*(?:os\.Exit|sys\.exit|process\.exit|exit)\(\s*0\s*\)|^\s*(?:exit|return)\s*$"
);
pattern!(STRICT, r"^\s*set\s+-\w*e\w*\b|^\s*set\s+-o\s+(?:errexit|pipefail)");
pattern!(
    TEST_CALL,
    r"^\s*(?:[\w./-]*(?:test|spec|check|suite)[\w./-]*\s*(?:\(\s*\))?\s*;?|(?:pytest|cargo|npm|go|make|bats|prove|phpunit|sh|bash)\s.*(?:test|check|spec).*)\s*$"
);
pattern!(
    REGISTERED,
    r"^\s*(?:\w*unit_test\w*|RUN_TEST|tcase_add_test|suite_add_tcase|UNIT_TEST|TEST_ENTRY|TEST_DECLARE|MU_RUN_TEST|CU_add_test|g_test_add\w*|RUN_TEST_CASE|RUN_TEST_GROUP|TEST_CASE_REGISTER|REGISTER_TEST\w*)\s*\(|\b(?:suite|runner|loader|s)\.(?:add\w*|Run)\s*\(|\badd_?[tT]est(?:s|Suite|File|Case|_case)?\s*\(|\bsuite\.Run\(|\bm\.Run\(\)|SuiteClasses|SelectClasses|SelectPackages|^\s*(?:import|require|require_relative|load|source)\s*\(?\s*['\x22][^'\x22]*(?:[._-]tests?|[._-]spec|tests?/)[^'\x22]*['\x22]\s*\)?;?\s*$|^\s*\w+\.class,?\s*$|^\s*(?:it_behaves_like|it_should_behave_like|include_examples)\b|\bdefaultTestLoader\b|\bRUN_ALL_TESTS\b|^\s*(?:run_test|run|check|t)_?\w*\s+\S*test\S*\s*$|\bunittest\.main\(|^\s*\w*tests?\w*\(\);?\s*$"
);
pattern!(LOOP, r"^\s*for\s+\w+\s+in\s.*(?:test|spec|check)");
pattern!(NO_ASSERTS, r"^\s*#\s*define\s+(?:NDEBUG|assert\s*\()");

/// Searches one file for bypassed tests.
pub(super) fn scan(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    if tests.file.is_deleted() {
        return;
    }
    let runner = |path: &str| is_check_script(path) && !is_shell_test(path);
    let script = tests.language == Language::Shell && tests.file.paths().any(runner);
    for (at, line) in tests.lines.iter().enumerate().filter(|(_, line)| line.change == LineChange::Added) {
        let path = tests.file.path();
        let fresh = !diff.had(line.text);
        if tests.is_about_tests(line) || script {
            hooks(tests, line, diff, findings);
            if tests.language.exits(line.text) && fresh && ends_run(tests, line) {
                let weak = is_guarded(tests, line);
                findings.add_graded(path, Some(line.number), TamperKind::EarlyExit, line.text, weak);
            }
            if fresh && let Some(weak) = ignores_failure(tests, at, script, diff) {
                findings.add_graded(path, Some(line.number), TamperKind::FailureIgnored, line.text, weak);
            }
        }
    }
    pattern!(
        MAIN,
        r"\bRUN_ALL_TESTS\b|\bm\.Run\(\)|\bunittest\.main\(|\bUNITY_END\(|\bCatch::Session|\bdoctest::Context|\bMinitest\.run|\bRSpec::Core::Runner|\brun_\w*tests?\b|\bsrunner_\w+"
    );
    let runs = tests.lines.iter().any(|line| line.change == LineChange::Removed && MAIN.is_match(line.text));
    if tests.is_test || script || runs {
        harmless(tests, diff, findings);
    }
}

/// Reports test code that makes the runner skip tests, repeat them, or ignore failures.
fn hooks(tests: &TestFile<'_>, line: &TestLine<'_>, diff: &DiffSummary, findings: &mut Findings) {
    pattern!(
        HOOKS,
        r#"(?x)\bretryTimes\( | \bthis\.retries\( | \bdescribe\.configure\( | \bretr(?:y|ies)\s*:\s*[1-9]
        | \b\w{1,12}\.around\b | \bconfig\.(?:filter_\w+|fail_\w+|exclusion_filter|inclusion_filter|failure_exit_code|error_exit_code|run_all_when\w*|default_retry_count|define_derived\w*)
        | ^\s*def\s+(?:pytest_(?:collection\w*|ignore_collect|runtest_\w+|pyfunc_call|session\w+|collect_file|pycollect\w+|report_\w+|exception\w+|itemcollected|generate_tests|cmdline\w*|load_initial_conftests)|load_tests)\b
        | \bcollect_ignore\w*\b | \bcollect_ignore_glob\b | \bitems\[:\]\s*= | \bitems\.(?:clear|remove|pop)\( | \bsession\.(?:exitstatus|testsfailed|shouldfail|shouldstop)\s*= | \b(?:report|rep|outcome|result)\.(?:outcome|failed|passed|wasxfail)\s*=
        | \bflag\.Set\( | \bGTEST_FLAG | ::testing::FLAGS | \btesting::(?:FLAGS|GTEST)\w* | \bCatch::Session | \bapplyCommandLine | \bcontext\.(?:setOption|addFilter)\(
        | \bMinitest\.(?:after_run|extensions|reporter|run) | \bregister_shutdown_function | \bset_(?:error|exception)_handler\( | \berror_reporting\((?:\s*0|[^)]*~) | \bassert_options\( | \bzend\.assertions
        | \bpanic::set_hook | \bsetDefaultUncaughtExceptionHandler | \bprocess\.on\(\s*['"](?:exit|uncaught|unhandled|beforeExit) | \bunittest\.main\(.*exit\s*=\s*False
        | \bTestExecutionExceptionHandler\b | \bInvocationInterceptor\b | \bExecutionCondition\b | \bIRetryAnalyzer\b | \bretryAnalyzer\b | \bIAnnotationTransformer\b | \bIInvokedMethodListener\b | \bTestNGListener | \bhandleTestExecutionException
        | \bBATS_TEST_RETRIES= | \bexpect\.assertions\(\s*0 | \.plan\(\s*0\s*\) | \bplan\s+skip_all | \bglobalThis\.(?:expect|it|test|describe)\s*= | \bdisableConsoleIntercept | \ballowUncaught | \bautofail | \bcheckLeaks\s*:\s*false"#
    );
    // Leaves tests out.
    pattern!(
        SELECTS,
        r#"\bflag\.(?:Set|Lookup)\(\s*"test\.|\.Value\.Set\(|\bGTEST_FLAG|::testing::FLAGS|\btesting::(?:FLAGS|GTEST)\w*|\bcontext\.(?:setOption|addFilter)\(|\bapplyCommandLine|\bitems\.(?:clear|remove|pop)\(|\bitems\[:\]\s*=|\bcollect_ignore|\bfilter_run|exclusion_filter|inclusion_filter|\bload_tests\b|\brunnable_methods\b|\btest_methods\b|\bgetTestMethods\b"#
    );
    // Takes a failure back.
    pattern!(
        FORGIVES,
        r#"(?x)\binstance_variable_set\(\s*:@(?:exception|failures?|error|status) | \b(?:exception|failures?|errors)\s*=\s*(?:nil|\[\])\s*$ | \bfailures\.(?:clear|pop|delete) | \b(?:report|rep|outcome|result)\.(?:outcome|failed|passed|wasxfail)\s*= | \bsession\.(?:exitstatus|testsfailed)\s*=
        | ^\s*(?:(?:public|protected|private|static|final|override|virtual|async)\s+)*(?:function|def|void|fun|func|\w+)\s+(?:runTest|runBare|onNotSuccessfulTest|run_one_method|capture_exceptions|invokeTestMethod|handleTestExecutionException|_callTestMethod|runTestMethod|with_info_handler|run_test|TestBody|interceptTestMethod|pytest_runtest_\w+|addFailure|addError)\s*\(
        | \bexit_?[cC]ode\s*=\s*0\b | \bprocess\.exitCode\s*=\s*0 | \bfailure_exit_code\s*=\s*0 | \berror_exit_code\s*=\s*0 | \bset_terminate\( | \bCypress\.on\(\s*['"](?:fail|uncaught:exception) | \bsignal\(\s*SIG(?:ABRT|SEGV) | \bexample\.exception\b | \bpanic::set_hook | \bsetDefaultUncaughtExceptionHandler"#
    );
    let selects = SELECTS.is_match(line.text);
    let forgives = FORGIVES.is_match(line.text);
    if (selects || forgives || HOOKS.is_match(line.text))
        && !diff.had(line.text)
        && !tests.language.is_comment(line.text)
    {
        let kind = match (selects, forgives) {
            (_, true) => TamperKind::FailureIgnored,
            (true, _) => TamperKind::TestSkipped,
            (false, false) => TamperKind::CheckConfigEdited,
        };
        let path = tests.file.path();
        // Nothing else than a hidden failure needs one to be taken back.
        let explained = diff.changes_code && !forgives;
        findings.add_graded(path, Some(line.number), kind, line.text, explained || tests.is_in_new_test(line));
    }
}

/// Whether an exit ends the test run. An exit in a program that a new test starts does not.
fn ends_run(tests: &TestFile<'_>, line: &TestLine<'_>) -> bool {
    let at_top = indent(line.text) == 0;
    let quoted = matches!(line.text.trim_start().as_bytes().first(), Some(b'"' | b'\'' | b'`'));
    if tests.language == Language::Shell {
        let in_new_test = tests.is_in_new_test(line);
        return !tests.file.is_new()
            && !in_new_test
            && (at_top || line.text.contains("trap") || is_guarded(tests, line));
    }
    let moved_in = tests.is_in_new_test(line) || line.owner_is_new;
    !quoted && (!tests.file.is_new() || at_top) && !moved_in || is_hook(tests, line)
}

/// Whether a line belongs to a function that the runner calls by its name.
fn is_hook(tests: &TestFile<'_>, line: &TestLine<'_>) -> bool {
    let ends = ["_exit(", "exit!", "halt(", "at_exit", "atexit"].iter().any(|word| line.text.contains(word));
    let helper = line.new.is_none_or(|at| tests.new[at].helper);
    // Functions that run by themselves.
    pattern!(BY_ITSELF, r"^(?:init|TestMain|main|setUp(?:Class)?|set_up|before\w*|setup)$");
    // A new file of Go has them for the tests of the whole package.
    let shared = !tests.file.is_new() || tests.language == Language::Go;
    let by_itself = shared && line.new.is_some_and(|at| BY_ITSELF.is_match(&tests.new[at].name));
    by_itself || ends && (tests.file.path().ends_with("conftest.py") || (helper && !tests.file.is_new()))
}

/// Determines whether a line catches failures and ignores them. `Some(true)` is weak evidence, `Some(false)` is strong evidence,
/// and `None` is no evidence.
fn ignores_failure(tests: &TestFile<'_>, at: usize, script: bool, diff: &DiffSummary) -> Option<bool> {
    let line = &tests.lines[at];
    if !tests.language.swallows(line.text) || tests.file.is_new() {
        return None;
    }
    if tests.language == Language::Shell {
        let text = line.text.trim_start();
        let counts = text.contains("|| echo")
            || reads_status(
                tests.lines[at..].iter().filter(|line| line.change != LineChange::Removed).map(|line| line.text),
            );
        return (!script && !counts && !prepares(text) && !tests.is_in_new_test(line)).then_some(false);
    }
    flow::drops_failure(tests, at, diff)
}

/// Reports parts of test runners that no longer fail: removed exit codes and settings, and calls of tests that are left out.
fn harmless(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let replaced = ReplacedTests::default();
    let mut start = 0;
    for lines in tests
        .lines
        .chunk_by(|a, b| a.hunk == b.hunk && a.change != LineChange::Context && b.change != LineChange::Context)
    {
        let adds = lines.iter().any(|line| line.change == LineChange::Added);
        let group = RunnerGroup {
            tests,
            replaced: &replaced,
            lines,
            start,
            first: RefCell::default(),
            adds,
            registers_fewer: OnceCell::new(),
            run: OnceCell::new(),
        };
        start += lines.len();
        for old in group.of(LineChange::Removed).filter(|line| !diff.has(line.text)) {
            group.exit_code(old, findings);
            group.registration(old, diff, findings);
            group.call(old, findings);
            group.unread_status(old, findings);
            group.failure_of_helper(old, findings);
        }
        if tests.language == Language::Cpp
            && !tests.file.is_new()
            && let Some(new) = group.first_added(&NO_ASSERTS)
        {
            let evidence = format!("switches assertions off: {}", new.text.trim());
            findings.add(tests.file.path(), Some(new.number), TamperKind::AssertionRemoved, &evidence);
        }
    }
}

/// State of the tests that a file no longer registers.
#[derive(Default)]
struct ReplacedTests {
    /// Whether the file has at least as many new tests as calls of tests that went.
    all: OnceCell<bool>,
    /// Names of removed tests that are about code that was removed.
    about_removed_code: OnceCell<HashSet<String>>,
}

/// Adjacent changed lines of one file that runs tests.
struct RunnerGroup<'a> {
    tests: &'a TestFile<'a>,
    replaced: &'a ReplacedTests,
    lines: &'a [TestLine<'a>],
    /// Index of the first of these lines in the file.
    start: usize,
    /// First added line that matches a pattern, by the pattern's address.
    first: RefCell<HashMap<*const Regex, Option<&'a TestLine<'a>>>>,
    /// Whether one of the lines was added.
    adds: bool,
    /// Whether fewer tests are registered after the change.
    registers_fewer: OnceCell<bool>,
    /// Indices of the added lines in the file by the command that they run with `run` of bats.
    run: OnceCell<HashMap<&'a str, usize>>,
}

impl<'a> RunnerGroup<'a> {
    fn of(&self, change: LineChange) -> impl Iterator<Item = &'a TestLine<'a>> {
        self.lines.iter().filter(move |line| line.change == change)
    }

    fn first_added(&self, pattern: &'static Regex) -> Option<&'a TestLine<'a>> {
        let search = || self.of(LineChange::Added).find(|line| pattern.is_match(line.text));
        *self.first.borrow_mut().entry(std::ptr::from_ref(pattern)).or_insert_with(search)
    }

    fn is_shell(&self) -> bool {
        self.tests.language == Language::Shell
    }

    /// Reports a removed line that made the run fail, if it is replaced by one that succeeds or by none.
    fn exit_code(&self, old: &TestLine<'_>, findings: &mut Findings) {
        let (path, kind, shell) = (self.tests.file.path(), TamperKind::FailureIgnored, self.is_shell());
        let fails = FAILS.is_match(old.text);
        let lost = fails && (shell || self.tests.language == Language::Cpp || old.text.contains("os.Exit"));
        let succeeds = self.first_added(&SUCCEEDS);
        if lost && let Some(new) = succeeds {
            let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
            findings.add(path, Some(new.number), kind, &evidence);
        }
        let helper = old.old.is_none_or(|at| self.tests.old[at].helper && self.tests.old[at].other.is_some());
        let counts = shell || COUNTS.is_match(old.text);
        if counts && helper && fails && self.first_added(&FAILS).is_none() && succeeds.is_none() {
            findings.add(path, Some(old.number), kind, &format!("no longer fails: {}", old.text.trim()));
        }
        let plain = shell && old.text.contains("=$(") && !HIDES_STATUS.is_match(old.text);
        if plain && let Some(new) = self.first_added(&HIDES_STATUS) {
            let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
            findings.add(path, Some(new.number), kind, &evidence);
        }
        if shell && STRICT.is_match(old.text) && self.first_added(&STRICT).is_none() {
            findings.add(path, Some(old.number), kind, &format!("removed: {}", old.text.trim()));
        }
    }

    /// Reports a test that is no longer registered with the runner.
    fn registration(&self, old: &TestLine<'_>, diff: &DiffSummary, findings: &mut Findings) {
        let (tests, path) = (self.tests, self.tests.file.path());
        let registered =
            REGISTERED.is_match(old.text) && !old.text.contains("helper") && !tests.language.asserts(old.text);
        let top = old.old.is_none_or(|at| tests.old[at].helper);
        let count = |change| self.of(change).filter(|line| REGISTERED.is_match(line.text)).count();
        let fewer = || *self.registers_fewer.get_or_init(|| count(LineChange::Removed) > count(LineChange::Added));
        if registered && (top || tests.language == Language::Cpp) && fewer() {
            let evidence = format!("no longer registered: {}", old.text.trim());
            let explained = self.are_all_replaced() || self.is_about_removed_code(old, diff);
            let weak = diff.changes_code && tests.language != Language::Cpp || explained;
            findings.add_graded(path, Some(old.number), TamperKind::TestDeleted, &evidence, weak);
        }
    }

    /// Reports a test that a script or a main function no longer calls, and a loop that runs fewer tests.
    fn call(&self, old: &TestLine<'_>, findings: &mut Findings) {
        let (tests, path, shell) = (self.tests, self.tests.file.path(), self.is_shell());
        pattern!(LOOP_OVER_FILES, r"^\s*for\s+\w+\s+in\s.*\*");
        let of_tests = LOOP.is_match(old.text);
        let looped = shell && LOOP_OVER_FILES.is_match(old.text) && (of_tests || tests.is_test);
        if looped && let Some(new) = self.first_added(&LOOP_OVER_FILES).or_else(|| self.first_added(&LOOP)) {
            let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
            // A folder more in the path, or a longer pattern, is found less often.
            let sure = of_tests || new.text.len() > old.text.len();
            findings.add_graded(path, Some(new.number), TamperKind::CheckConfigEdited, &evidence, !sure);
        }
        pattern!(PIPED_LOOP, r"\|\s*while\b.*\bread\b");
        if shell
            && old.text.trim_start().starts_with("for ")
            && let Some(new) = self.first_added(&PIPED_LOOP)
        {
            let evidence = format!("counts in a subshell: {} -> {}", old.text.trim(), new.text.trim());
            findings.notice(path, Some(new.number), TamperKind::FailureIgnored, &evidence);
        }
        let in_test = old.old.is_some_and(|at| !tests.old[at].helper);
        let plain = !in_test && (shell || tests.language == Language::Cpp && old.text.contains("();"));
        if plain && !self.adds && !tests.language.asserts(old.text) && TEST_CALL.is_match(old.text) {
            let kind = if shell { TamperKind::CheckConfigEdited } else { TamperKind::TestDeleted };
            let evidence = format!("no longer called: {}", old.text.trim());
            findings.add_graded(path, Some(old.number), kind, &evidence, !shell && self.are_all_replaced());
        }
    }

    /// Whether the file has at least as many new tests as calls of tests that went: a framework finds tests by itself.
    fn are_all_replaced(&self) -> bool {
        let tests = self.tests;
        let count = || {
            let calls = |line: &&TestLine<'_>| line.change == LineChange::Removed && REGISTERED.is_match(line.text);
            let is_new = |block: &&TestBlock| block.other.is_none() && block.header.is_some() && !block.helper;
            let came = tests.new.iter().filter(is_new).filter(|block| block.assertions > 0).count();
            came > 0 && came >= tests.lines.iter().filter(calls).count()
        };
        *self.replaced.all.get_or_init(count)
    }

    /// Whether a line names a test that went with the code that it was about.
    fn is_about_removed_code(&self, line: &TestLine<'_>, diff: &DiffSummary) -> bool {
        let tests = self.tests;
        let names = || {
            let gone = tests.old.iter().filter(|block| block.other.is_none() && block.header.is_some());
            let about =
                gone.filter(|block| block.lines.iter().any(|at| diff.names_removed_code(tests.lines[*at].text)));
            about.map(|block| block.name.clone()).collect()
        };
        let known = self.replaced.about_removed_code.get_or_init(names);
        line.text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| known.contains(word))
    }

    /// Reports a helper of tests that failed, and now prints something or goes on in its place.
    fn failure_of_helper(&self, old: &TestLine<'_>, findings: &mut Findings) {
        pattern!(
            FAILURE,
            r"^\s*(?:panic!\s*\(|(?:pytest\.|self\.|t\.|Assert\.|Assertions\.|\$this->|\$)?(?:fail|flunk|Fatalf?|FailNow|Errorf?)\s*[(!]|throw\s|raise\s|abort\(\)|std::abort\(\)|unreachable!\s*\()"
        );
        pattern!(
            GOES_ON,
            r"(?i)^\s*(?:e?print\w*!?\s*[( ]|echo\b|puts\b|warn\w*\b|console\.|log\w*[.(!]|tracing::|std::c(?:err|out)|fmt\.Print|t\.Log|System\.(?:out|err)|error_log|error_?Log|break\b|continue\b|return\s*(?:;|$|true|True|nil|None|null|0|ok)|pass\b|next\b)"
        );
        let tests = self.tests;
        let in_test = old.old.is_some_and(|at| !tests.old[at].helper);
        let stays = old.old.is_none_or(|at| tests.old[at].other.is_some());
        if in_test || !stays || !tests.is_test || !FAILURE.is_match(old.text) || self.first_added(&FAILURE).is_some() {
            return;
        }
        if let Some(new) = self.first_added(&GOES_ON) {
            let evidence = format!("no longer fails: {} -> {}", old.text.trim(), new.text.trim());
            findings.add(tests.file.path(), Some(new.number), TamperKind::FailureIgnored, &evidence);
        }
    }

    /// Reports a command of a bats test that now runs under `run`, if nothing reads its status.
    fn unread_status(&self, old: &TestLine<'_>, findings: &mut Findings) {
        pattern!(READS, r"\b(?:status|output|lines|stderr)\b|\b(?:assert|refute)_\w+");
        let tests = self.tests;
        if !self.is_shell() || !tests.language.asserts(old.text) && !tests.existing_before(old) {
            return;
        }
        let run = self.run.get_or_init(|| {
            let added = self.lines.iter().enumerate().filter(|(_, line)| line.change == LineChange::Added);
            let commands = added.filter_map(|(at, line)| Some((at, line.text.trim().strip_prefix("run ")?)));
            commands.map(|(at, command)| (command.trim_start(), self.start + at)).collect()
        });
        let Some(at) = run.get(old.text.trim()).copied() else { return };
        let new = &tests.lines[at];
        let after = tests.lines[at + 1..].iter().take(REACH).filter(|line| line.change != LineChange::Removed);
        let mut after = after.take_while(|line| line.new == new.new);
        if new.new.is_some() && !after.any(|line| READS.is_match(line.text)) {
            let evidence = format!("nothing reads the status: {} -> {}", old.text.trim(), new.text.trim());
            findings.add(tests.file.path(), Some(new.number), TamperKind::FailureIgnored, &evidence);
        }
    }
}
