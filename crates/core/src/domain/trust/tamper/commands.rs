//! Commands that run checks, in scripts and files of other tools that the run with the base's tests cannot replace. Reports
//! commands that were removed or changed, and exit codes that are ignored.

use std::collections::HashSet;

use super::diff::{DiffLine, FileDiff, LineChange};
use super::findings::Findings;
use super::language::Language;
use super::summary::DiffSummary;
use crate::domain::model::task::TamperKind;

// Runs tests, linters or type checkers.
pattern!(
    RUNNER,
    r#"(?i)(?:^|[\s"'`=:;&|(/@!,\[-])(?:py\.?test|python[\d.]*\s+-m\s+(?:pytest|unittest|nose2?|doctest|coverage|mypy|tox|flake8)|nose(?:2|tests)|tox|nox|coverage\s+(?:run|report)|manage\.py\s+test|mypy|pyright|ruff|flake8|pylint|black|jest|vitest|mocha|ava|c8|nyc|karma|jasmine|cypress|playwright|wdio|node\s+(?:\S+\s+)*--test|node\s+\S*(?:test|spec)\S*|deno\s+(?:test|lint|check)|bun\s+test|tsc|eslint|biome|stylelint|(?:npm|yarn|pnpm|bun)\s+(?:run\s+|-\S+\s+)*(?:t|tst|test|lint|check|typecheck|verify|ci)\b[\w:.-]*|cargo\s+(?:\+\S+\s+)?(?:-\S+\s+)*(?:test|t|nextest|clippy|check|fmt|deny|tarpaulin|llvm-cov|miri|hack)|go\s+(?:test|vet)|gotestsum|golangci-lint|staticcheck|ginkgo|mvnw?|gradlew?|sbt|lein|phpunit|pest|paratest|codecept|behat|phpspec|phpstan|psalm|phpcs|php-cs-fixer|infection|composer\s+(?:run(?:-script)?\s+)?(?:test|check|lint|stan|cs|qa)\S*|artisan\s+test|rspec|rake\s+\S+|rails\s+test|cucumber|rubocop|standardrb|ctest|(?:\$\(MAKE\)|make)\s+(?:-\S+\s+)*(?:check|test|distcheck|lint|verify)\S*|meson\s+test|ninja\s+(?:-\S+\s+)*test|bazel\s+test|bats|shellcheck|shellspec|shunit2|prove|(?:ba|z|da)?sh\s+(?:-\w+\s+)*["']?\S*(?:test|check|spec|\$t)\S*|\.{1,2}/\S*(?:test|check|spec|e2e|smoke|integration|regress)\S*|valgrind|dotnet\s+test|clang-tidy|cppcheck)(?:$|[\s"'`;&|)\],:])"#
);
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
// Ends of a command line that ignore its failure.
pattern!(
    SWALLOWED,
    r"^\s*(?:exit\s+0|true|:|set\s+\+e|set\s+\+o\s+(?:errexit|pipefail)|set\s+\+eu?o?\s*\w*)\s*(?:#.*)?$|^\s*true\s*(?:#|&&)|\|\|\s*(?:/bin/)?(?:true|:|exit\s+0|return\s+0|echo\b|printf\b|continue\b|cat\b|test\s+1|ret(?:val)?=0|rc=0|status=0)|;\s*(?:true|:|exit\s+0|return\s+0)\s*[\x22']?[,)}]?\s*$|--(?:passWithNoTests|exit-zero|allow-failure|deselect|no-fail)\b|^\s*-?\s*(?:continue-on-error|continueOnError|allow_failure|ignore_errors|soft_fail):\s*(?:true|yes)|^\s*return\s+0\s*$|^\s*trap\s+.*(?:exit\s+0|true|:)|^\s*(?:rc|ret|retval|status|failed|failures|errors|result|code|exit_code|exitcode)=0\s*$|^\t[@+]*-\s*\w|^\s*\.IGNORE\b|^\s*MAKEFLAGS\s*\+?=(?:.*\s)?-[A-Za-z]*[ik]\b|^\s*exit\s+\$\(\(\s*0|(?:^|\s)check\s*=\s*False|\$\?\s*;?\s*true|\bexit\s+\$\{\w+:-0\}|\bcatchError\b|\bunstable\(|returnStatus:\s*true|\ballow_failures?:|\bsoft_fail\b|\bfailure:\s*ignore|propagate:\s*false|currentBuild\.\w+\s*=\s*['\x22]SUCCESS"
);

/// Counts the options in a text that make a command run fewer checks or ignore a failure.
pub(super) fn narrows(text: &str) -> usize {
    text.lines().map(|line| NARROWS.find_iter(line).count() + SWALLOWED.find_iter(line).count()).sum()
}

/// Whether `name` is a command that runs checks.
pub(super) fn is_runner(name: &str) -> bool {
    RUNNER.is_match(name)
}

/// Searches one file for commands that check less.
pub(super) fn scan(file: &FileDiff, diff: &DiffSummary, findings: &mut Findings) {
    if file.is_new() || file.is_deleted() || !has_commands(file.path()) {
        return;
    }
    let added: HashSet<&str> = file.lines(LineChange::Added).map(str::trim).collect();
    let removed = file.numbered(LineChange::Removed);
    let mut gone = removed.filter(|line| is_runner(&line.text) && !is_comment(&line.text));
    if let Some(line) = gone.find(|line| !added.contains(line.text.trim())) {
        let evidence = format!("was: {}", line.text.trim());
        return findings.add(file.path(), Some(line.number), TamperKind::CheckConfigEdited, &evidence);
    }
    let lines: Vec<&DiffLine> = file.hunks.iter().flat_map(|hunk| &hunk.lines).collect();
    let runs = lines.iter().any(|line| is_runner(&line.text));
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.change == LineChange::Added && runs) {
        let following =
            lines[at..].iter().filter(|line| line.change != LineChange::Removed).map(|line| line.text.as_str());
        let hides = SWALLOWED.is_match(&line.text) && !diff.had(&line.text) && !is_comment(&line.text);
        // An assignment may start a counter.
        if hides && !line.text.trim().ends_with("=0") && !prepares(&line.text) && !reads_status(following) {
            let evidence = format!("hides a failure: {}", line.text.trim());
            findings.add(file.path(), Some(line.number), TamperKind::CheckConfigEdited, &evidence);
        }
    }
}

/// Whether a file consists of commands: a script, a container file, or a file of tasks.
fn has_commands(path: &str) -> bool {
    const TASKS: [&str; 7] =
        ["tasks.py", "dodo.py", "fabfile.py", "gulpfile.js", "Gruntfile.js", "magefile.go", "runtests.py"];
    let name = path.rsplit('/').next().unwrap_or(path);
    let other = || name.starts_with("Dockerfile") || name.starts_with("Jenkinsfile") || name.contains("compose.y");
    Language::of(path) == Some(Language::Shell) || TASKS.contains(&name) || other()
}

fn is_comment(text: &str) -> bool {
    text.trim_start().starts_with(['#', ';']) || text.trim_start().starts_with("//")
}

/// Whether these lines of a shell script disable `set -e` only to examine the exit code of the next command.
fn reads_status<'a>(mut lines: impl Iterator<Item = &'a str>) -> bool {
    let lets = lines.next().is_some_and(|line| line.trim_start().starts_with("set +e"));
    lets && lines.take(5).any(|line| line.contains("$?") || line.contains("PIPESTATUS"))
}

/// Whether a shell command only prepares or cleans up, so that its failure is no evidence about the program.
fn prepares(command: &str) -> bool {
    pattern!(
        PREPARES,
        r#"^\s*[-@+]*[({]?\s*(?:sudo|rm|kill\w*|mkdir|umount|mount|wait|docker|git|apt\S*|brew|cp|mv|gpgconf|popd|pushd|cd|test_when_finished|trap\s+["']rm)\b|=["']?\$\(|^\s*test\s+-[nz]\s.*\|\|\s*(?:return|exit)"#
    );
    PREPARES.is_match(command)
}
