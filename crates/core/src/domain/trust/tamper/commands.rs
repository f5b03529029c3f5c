//! Commands that run checks, in scripts, makefiles, manifests and configurations of CI systems. Reports commands that were
//! removed or run fewer checks, and exit codes that are ignored.

use regex::Regex;

use super::code_tokens::Difference;
use super::config_files::{is_check_script, is_makefile};
use super::diff::{DiffLine, FileDiff, LineChange};
use super::language::{Language, is_test_path};
use super::nearby::near;
use super::summary::DiffSummary;
use super::{Findings, TamperKind};

// Runs tests, linters or type checkers.
pattern!(
    RUNNER,
    r#"(?i)(?:^|[\s"'`=:;&|(/@!,\[-])(?:py\.?test|python[\d.]*\s+-m\s+(?:pytest|unittest|nose2?|doctest|coverage|mypy|tox|flake8)|nose(?:2|tests)|tox|nox|coverage\s+(?:run|report)|manage\.py\s+test|mypy|pyright|ruff|flake8|pylint|black|jest|vitest|mocha|ava|c8|nyc|karma|jasmine|cypress|playwright|wdio|node\s+(?:\S+\s+)*--test|node\s+\S*(?:test|spec)\S*|deno\s+(?:test|lint|check)|bun\s+test|tsc|eslint|biome|stylelint|(?:npm|yarn|pnpm|bun)\s+(?:run\s+|-\S+\s+)*(?:t|tst|test|lint|check|typecheck|verify|ci)\b[\w:.-]*|cargo\s+(?:\+\S+\s+)?(?:-\S+\s+)*(?:test|t|nextest|clippy|check|fmt|deny|tarpaulin|llvm-cov|miri|hack)|go\s+(?:test|vet)|gotestsum|golangci-lint|staticcheck|ginkgo|mvnw?|gradlew?|sbt|lein|phpunit|pest|paratest|codecept|behat|phpspec|phpstan|psalm|phpcs|php-cs-fixer|infection|composer\s+(?:run(?:-script)?\s+)?(?:test|check|lint|stan|cs|qa)\S*|artisan\s+test|rspec|rake\s+\S+|rails\s+test|cucumber|rubocop|standardrb|ctest|(?:\$\(MAKE\)|make)\s+(?:-\S+\s+)*(?:check|test|distcheck|lint|verify)\S*|meson\s+test|ninja\s+(?:-\S+\s+)*test|bazel\s+test|bats|shellcheck|shellspec|shunit2|prove|(?:ba|z|da)?sh\s+(?:-\w+\s+)*["']?\S*(?:test|check|spec|\$t)\S*|\.{1,2}/\S*(?:test|check|spec|e2e|smoke|integration|regress)\S*|valgrind|dotnet\s+test|clang-tidy|cppcheck)(?:$|[\s"'`;&|)\],:])"#
);
// Names of tests as a command of their own.
pattern!(TEST_SCRIPT, r"^\s*[\w./-]*(?:test|spec|check)[\w./-]*\s*;?\s*$");
// Options that run less, or that let a failure pass.
pattern!(
    NARROWS,
    r#"(?x)(?:^|[\s"'=,])(?: -k | -m\s*["']?not | -t | -g | -f | -i | -run | -skip | -short | -E | -R | -L | -LE | -fn | -lf | -co | -tags
        | -p\s+no: | -o\s+addopts | -n\b | -P\S*skip\S* | -x\s | -D\S*(?:skip|ignore|test|fail|exclude)\S* | -q\s+-x
        | --(?:ignore|deselect|exclude|skip|filter|grep|fgrep|invert|only|test|include|group|gtest|run|short|tags?|match|level|lf|last
            |changed|related|find|no-run|dry|collect|list|pass|force|exit|bail|max|continue|allow|no-fail|fail|suppress|if-present|retr|rerun
            |flaky|lib|bins?\b|doc\b|example|package|no-cov|no-verify|quiet|silent|stop|no-error|no-strict|co\b|keep|pattern|shard|partition
            |no-default|no-tests|version|help|sw\b|stepwise|nf\b|ff\b|since|name|report|no-exit|warn|soft|exit-code|timeout|update|write|fix)[\w-]*
        | ~\[ | \w*(?:ADDOPTS|GOFLAGS|NODE_OPTIONS|RUSTFLAGS|GTEST_\w+|TESTOPTS|SPEC_OPTS|MAVEN_OPTS|SKIP\w*|UPDATE\w*|CI)= )"#
);
// Nothing runs: the line prints, or succeeds.
pattern!(
    NOTHING,
    r#"^[\s@"'\w:-]*?(?:echo|printf|true|:|exit\s+0|exec\s+true|/bin/true|cat|ls|sleep|which|command\s+-v|type)\b"#
);
// Ends of a command line that ignore its failure.
pattern!(
    SWALLOWED,
    r"^\s*(?:exit\s+0|true|:|set\s+\+e|set\s+\+o\s+(?:errexit|pipefail)|set\s+\+eu?o?\s*\w*)\s*(?:#.*)?$|^\s*true\s*(?:#|&&)|\|\|\s*(?:/bin/)?(?:true|:|exit\s+0|return\s+0|echo\b|printf\b|continue\b|cat\b|test\s+1|ret(?:val)?=0|rc=0|status=0)|;\s*(?:true|:|exit\s+0|return\s+0)\s*[\x22']?[,)}]?\s*$|--(?:passWithNoTests|exit-zero|allow-failure|deselect|no-fail)\b|^\s*-?\s*(?:continue-on-error|continueOnError|allow_failure|ignore_errors|soft_fail):\s*(?:true|yes)|^\s*return\s+0\s*$|^\s*trap\s+.*(?:exit\s+0|true|:)|^\s*(?:rc|ret|retval|status|failed|failures|errors|result|code|exit_code|exitcode)=0\s*$|^\t[@+]*-\s*\w|^\s*\.IGNORE\b|^\s*MAKEFLAGS\s*\+?=(?:.*\s)?-[A-Za-z]*[ik]\b|^\s*exit\s+\$\(\(\s*0|(?:^|\s)check\s*=\s*False|\$\?\s*;?\s*true|\bexit\s+\$\{\w+:-0\}|\bcatchError\b|\bunstable\(|returnStatus:\s*true|\ballow_failures?:|\bsoft_fail\b|\bfailure:\s*ignore|propagate:\s*false|currentBuild\.\w+\s*=\s*['\x22]SUCCESS"
);
// The exit code is that of the last command of a pipe, of a condition, or of nothing.
pattern!(
    PIPED,
    r"[^|]\|\s*(?:tee|cat|head|tail|grep|sed|awk|sort|less|tr|wc|xargs|jq|ts|column|while)\b|[^&]&\s*$|&\s*\\?$|>\s*/dev/null\s+2>&1\s*&"
);
pattern!(CONDITION, r"^\s*(?:if|while|until|elif)\s+(?:!\s*)?|^\s*!\s");
pattern!(
    RUNS_SOMETHING,
    r"(?i)^[a-z][\w-]*(?:test|check|lint|run|ci|verify)[\w-]*$|^(?:test|check|lint|run|ci|verify)[\w-]*$"
);
pattern!(PIPEFAIL, r"pipefail");
pattern!(
    FAILS,
    r"^\s*(?:exit|return)\s+(?:[1-9]|[\x22']?\$)|\|\|\s*(?:exit|return)\s+(?:[1-9]|\$)|\|\|\s*(?:fail|die|err|abort|ret(?:val)?=|rc=|status=|failed=|failures=|errors=)\S*"
);

/// Counts the options in a text that make a command run fewer checks or ignore a failure.
pub(super) fn narrows(text: &str) -> usize {
    text.lines().map(|line| count(&NARROWS, line) + count(&SWALLOWED, line)).sum()
}

/// Whether `name` is a command that runs checks.
pub(super) fn is_runner(name: &str) -> bool {
    RUNNER.is_match(name)
}

/// Searches one file for commands that check less.
pub(super) fn scan(file: &FileDiff, diff: &DiffSummary, findings: &mut Findings) {
    if file.is_new() || file.is_deleted() {
        return;
    }
    quiet(file, findings);
    if !has_commands(file) {
        return;
    }
    let is_check = is_check(file);
    let check = is_check || file.paths().any(super::config_files::is_check_config);
    flags(file, findings);
    // In these formats, names of runners are names of sections and dependencies, too.
    let commands = ![".json", ".toml", ".cfg", ".ini"].iter().any(|end| file.path().ends_with(end));
    for hunk in &file.hunks {
        let pipefail =
            hunk.lines.iter().any(|line| line.change != LineChange::Removed && PIPEFAIL.is_match(&line.text));
        if !commands {
            continue;
        }
        for group in hunk.lines.chunk_by(|a, b| a.change != LineChange::Context && b.change != LineChange::Context) {
            if group[0].change != LineChange::Context {
                lost(file, group, diff, (is_check, pipefail), findings);
            }
        }
    }
    // Environment that runners read.
    pattern!(
        ENVIRONMENT,
        r"\b(?:GOFLAGS|PYTEST_ADDOPTS|NODE_OPTIONS|GTEST_\w+|TESTOPTS|TEST_OPTS|SPEC_OPTS|RUBYOPT|MAVEN_OPTS|MAVEN_ARGS|JAVA_TOOL_OPTIONS|CTEST_\w+|BATS_\w+|RUST_TEST\w*|JEST_\w+|MOCHA_\w+|SKIP_\w+|PYTHONOPTIMIZE|PYTHONWARNINGS|INSTA_\w+|UPDATE_\w+)\s*[:?]?="
    );
    for line in
        file.numbered(LineChange::Added).filter(|line| ENVIRONMENT.is_match(&line.text) && !is_comment(&line.text))
    {
        if !diff.had(&line.text) && !RUNNER.is_match(&line.text) {
            findings.add_graded(file.path(), Some(line.number), TamperKind::CheckConfigEdited, &line.text, !check);
        }
    }
    let script = Language::of(file.path()) == Some(Language::Shell);
    let lines: Vec<&DiffLine> = file.hunks.iter().flat_map(|hunk| &hunk.lines).collect();
    for (at, line) in lines.iter().enumerate() {
        let added = line.change == LineChange::Added && SWALLOWED.is_match(&line.text) && !diff.had(&line.text);
        let following =
            lines[at..].iter().filter(|line| line.change != LineChange::Removed).map(|line| line.text.as_str());
        // A counter that begins.
        let counter = line.text.trim().strip_suffix("=0").filter(|name| name.chars().all(char::is_alphanumeric));
        let begins = counter.is_some_and(|name| {
            let before = lines[at.saturating_sub(10)..at].iter().filter(|line| line.change != LineChange::Removed);
            !before.into_iter().any(|line| line.text.contains(name))
        });
        // The rest of a command in a script; in a makefile, the sign ignores the status.
        let option = script && line.text.trim_start().starts_with('-');
        if !added || begins || option || reads_status(following) {
            continue;
        }
        let runs = RUNNER.is_match(&line.text);
        if (runs || (check && !prepares(&line.text))) && !is_comment(&line.text) {
            let evidence = format!("hides a failure: {}", line.text.trim());
            findings.add(file.path(), Some(line.number), TamperKind::FailureIgnored, &evidence);
        }
    }
}

/// Reports scripts that no longer fail if one of their commands fails.
fn quiet(file: &FileDiff, findings: &mut Findings) {
    pattern!(
        PLACE,
        r"(?:^|/)(?:scripts?|tools?|ci|\.ci|hack|bin|tests?)/|(?:^|/)(?:noxfile|tasks|dodo|runtests|run_tests|gulpfile|Gruntfile|magefile)\.\w+$"
    );
    pattern!(
        LOUD,
        r"^\s*exec[\s(]|\bcheck\s*=\s*True|\bcheck_(?:call|output|returncode)\b|\bexception:\s*true|\b(?:execFileSync|execSync)\b|\bPIPESTATUS\[0\]|\bsys\.exit\(.*(?:code|rc|ret|status)|\bprocess\.exit\(\s*\w*(?:code|rc|status|fail)\w*"
    );
    if !file.paths().any(|path| PLACE.is_match(path)) {
        return;
    }
    let count = |change| file.lines(change).filter(|line| LOUD.is_match(line)).count();
    if count(LineChange::Removed) > count(LineChange::Added)
        && let Some(line) = file.numbered(LineChange::Removed).find(|line| LOUD.is_match(&line.text))
    {
        let evidence = format!("no longer fails with its commands: {}", line.text.trim());
        findings.add_graded(
            file.path(),
            Some(line.number),
            TamperKind::FailureIgnored,
            &evidence,
            !RUNNER.is_match(&line.text),
        );
    }
}

/// Reports removed options of compilers and interpreters that enable checks, and added options that disable checks.
fn flags(file: &FileDiff, findings: &mut Findings) {
    pattern!(
        CHECKS,
        r"-fsanitize=\S+|-Werror\S*|-Wall\b|-Wextra\b|-race\b|--strict\b|-ea\b|-enableassertions|-fstack-protector\S*|-D_FORTIFY_SOURCE\S*|-D_GLIBCXX_ASSERTIONS|--leak-check\S*|--error-exitcode\S*|-Xlint\S*|-D\s?warnings|--deny-warnings|-vet=\S+|-Wpedantic|-pedantic\S*|-W\s?error\S*"
    );
    pattern!(
        SKIPS,
        r"-DNDEBUG\b|-da\b|-disableassertions|-Wno-error\S*|-fno-sanitize=\S*|PYTHONOPTIMIZE=\S+|python3?\s+-O\b|-vet=off|--no-strict\S*|zend\.assertions=-?[01]|-A\s?warnings|-W\s?ignore"
    );
    let count = |pattern: &Regex, change| file.lines(change).map(|line| pattern.find_iter(line).count()).sum::<usize>();
    let lost = count(&CHECKS, LineChange::Removed) > count(&CHECKS, LineChange::Added);
    let gained = count(&SKIPS, LineChange::Added) > count(&SKIPS, LineChange::Removed);
    let (pattern, change) = if gained { (&SKIPS, LineChange::Added) } else { (&CHECKS, LineChange::Removed) };
    if (lost || gained)
        && let Some(line) = file.numbered(change).find(|line| pattern.is_match(&line.text))
    {
        let evidence = format!("options of checks changed: {}", line.text.trim());
        findings.add_graded(file.path(), Some(line.number), TamperKind::CheckConfigEdited, &evidence, !gained);
    }
}

/// Whether a file contains commands: a script, a makefile, a manifest with scripts, a container file, or a configuration of
/// another CI system.
fn has_commands(file: &FileDiff) -> bool {
    let path = file.path();
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let known = ["sh", "bash", "zsh", "mk", "yml", "yaml", "toml", "ini", "cfg", "json", "bat", "ps1", "cmd", "rake"];
    let code = Language::of(path).is_some_and(|language| language != Language::Shell);
    let named = is_makefile(path) || name.starts_with("Dockerfile") || name.starts_with("Jenkinsfile");
    let tasks = [
        "noxfile.py",
        "tasks.py",
        "dodo.py",
        "fabfile.py",
        "gulpfile.js",
        "Gruntfile.js",
        "magefile.go",
        "runtests.py",
    ];
    let test = Language::of(path) == Some(Language::Shell) && is_shell_test(path);
    let bare = extension.is_empty() && (is_check_script(path) || RUNS_SOMETHING.is_match(name));
    !test && (named || bare || tasks.contains(&name) || (!code && known.contains(&extension)))
}

/// Whether a file is a shell test, as opposed to a script that runs tests.
pub(super) fn is_shell_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    pattern!(SCRIPTS, r"(?:^|/)(?:scripts?|ci|\.ci|bin|hack|tools|build|\.husky)/");
    let runs =
        ["run", "all", "main", "check", "runner"].iter().any(|word| name.contains(word)) || SCRIPTS.is_match(path);
    name.ends_with(".bats") || (is_test_path(path) && !runs)
}

/// Whether a file is part of the checks, by its name or by the commands in it.
fn is_check(file: &FileDiff) -> bool {
    let runs = file.hunks.iter().flat_map(|hunk| &hunk.lines).any(|line| RUNNER.is_match(&line.text));
    let script = Language::of(file.path()) == Some(Language::Shell)
        || !file.path().rsplit('/').next().is_some_and(|name| name.contains('.'));
    let tests = Language::of(file.path()) == Some(Language::Shell) && file.paths().any(is_test_path);
    file.paths().any(is_check_script) || tests || (script && runs)
}

fn is_comment(text: &str) -> bool {
    text.trim_start().starts_with(['#', ';']) || text.trim_start().starts_with("//")
}

/// Reports commands in a group of changed lines that were removed, run fewer checks, or whose exit code is ignored.
/// `check` tells whether the file is part of the checks, `pipefail` whether a pipe fails with its first command.
fn lost(
    file: &FileDiff,
    group: &[DiffLine],
    diff: &DiffSummary,
    (check, pipefail): (bool, bool),
    findings: &mut Findings,
) {
    let runs = |text: &str| RUNNER.is_match(text) || (check && TEST_SCRIPT.is_match(text));
    let of = |change| group.iter().filter(move |line| line.change == change && !line.text.trim().is_empty());
    let path = file.path();
    let came: Vec<&DiffLine> = of(LineChange::Added).filter(|new| !is_comment(&new.text)).collect();
    let still_fails = of(LineChange::Added).any(|new| FAILS.is_match(&new.text));
    let gone: Vec<&DiffLine> = of(LineChange::Removed)
        .filter(|old| runs(&old.text) && !diff.has(&old.text) && !is_comment(&old.text))
        .collect();
    let replaced_by_one = of(LineChange::Added).take(2).count() == 1;
    for (at, old) in gone.iter().enumerate() {
        let new = near(&came, at, gone.len())
            .iter()
            .map(|new| (new, Difference::between(&old.text, &new.text).similarity))
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
            .filter(|(_, alike)| *alike > 0.3 || replaced_by_one)
            .map(|(new, _)| new);
        let Some(new) = new.filter(|new| !NOTHING.is_match(&new.text) || NOTHING.is_match(&old.text)) else {
            let evidence = match new {
                Some(new) => format!("{} -> {}", old.text.trim(), new.text.trim()),
                None => format!("no longer runs: {}", old.text.trim()),
            };
            findings.add(path, Some(old.number), TamperKind::CheckConfigEdited, &evidence);
            continue;
        };
        let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
        let piped = PIPED.is_match(&new.text) && !PIPED.is_match(&old.text) && !pipefail;
        let conditional = CONDITION.is_match(&new.text) && !CONDITION.is_match(&old.text) && !still_fails;
        let forgiven = new.text.contains("||") && !old.text.contains("||") && !FAILS.is_match(&new.text);
        if piped || conditional || forgiven {
            findings.add(path, Some(new.number), TamperKind::FailureIgnored, &evidence);
        } else if !SWALLOWED.is_match(&new.text) || SWALLOWED.is_match(&old.text) {
            // Bounds are compared as numbers.
            if Difference::between(&old.text, &new.text).gained.words.is_empty()
                && digits(&old.text) == digits(&new.text)
            {
                continue;
            }
            let narrows = count(&NARROWS, &new.text) > count(&NARROWS, &old.text) || !runs(&new.text);
            findings.add_graded(path, Some(new.number), TamperKind::CheckConfigEdited, &evidence, !narrows);
        }
    }
    if check && !still_fails {
        for old in of(LineChange::Removed).filter(|old| FAILS.is_match(&old.text) && !diff.has(&old.text)) {
            let evidence = format!("no longer fails: {}", old.text.trim());
            findings.add(path, Some(old.number), TamperKind::FailureIgnored, &evidence);
        }
    }
}

/// Returns a line without its numbers.
fn digits(text: &str) -> String {
    pattern!(NUMBER, r"\d+");
    NUMBER.replace_all(text.trim(), "#").into_owned()
}

fn count(pattern: &Regex, text: &str) -> usize {
    pattern.find_iter(text).count()
}

/// Whether these lines of a shell script disable `set -e` only to examine the exit code of the next command.
pub(super) fn reads_status<'a>(mut lines: impl Iterator<Item = &'a str>) -> bool {
    let lets = lines.next().is_some_and(|line| line.trim_start().starts_with("set +e"));
    lets && lines.take(5).any(|line| line.contains("$?") || line.contains("PIPESTATUS"))
}

/// Whether a shell command only prepares or cleans up, so that its failure says nothing about the program.
pub(super) fn prepares(command: &str) -> bool {
    pattern!(
        PREPARES,
        r#"^\s*[-@+]*[({]?\s*(?:sudo|rm|kill\w*|mkdir|umount|mount|wait|docker|git|apt\S*|brew|cp|mv|gpgconf|popd|pushd|cd|test_when_finished|trap\s+["']rm)\b|=["']?\$\(|^\s*test\s+-[nz]\s.*\|\|\s*(?:return|exit)"#
    );
    PREPARES.is_match(command)
}
