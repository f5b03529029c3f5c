//! Configuration of test runners, type checkers and linters, as whole files and as parts of others.

use std::sync::LazyLock;

use regex::Regex;

use super::diff::{FileDiff, Hunk, LineChange};
use super::{Findings, TamperKind};

macro_rules! pattern {
    ($name:ident, $text:literal) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("constant pattern"));
    };
}

// Names of files that hold nothing but the configuration of checks.
pattern!(
    WHOLE,
    r"^(?:pytest\.ini|\.pytest\.ini|tox\.ini|noxfile\.py|\.coveragerc|mypy\.ini|\.mypy\.ini|pyrightconfig\.json|\.?ruff\.toml|\.flake8|\.pylintrc|\.bandit|(?:jest|vitest|karma|playwright|cypress|ava|wdio|web-test-runner|eslint|stylelint|knip|c8)\.(?:config|conf|workspace)\.[a-z]+|\.(?:mocharc|eslintrc|stylelintrc|nycrc|c8rc|prettierrc)(?:\.[a-z]+)?|\.eslintignore|\.prettierignore|biome\.jsonc?|\.?clippy\.toml|\.?rustfmt\.toml|deny\.toml|nextest\.toml|tarpaulin\.toml|\.golangci\.(?:ya?ml|toml|json)|phpunit\.xml(?:\.dist)?|phpstan\.neon(?:\.dist)?|\.rspec|\.rubocop(?:_todo)?\.yml|\.?codecov\.ya?ml|\.pre-commit-config\.yaml|lefthook\.yml|sitecustomize\.py|usercustomize\.py|testng\.xml|CTestCustom\.cmake|(?:pytest|unittest|_pytest)\.py)$"
);
pattern!(
    WHOLE_PATH,
    r"(?:^|/)(?:\.config/nextest\.toml|\.cargo/config(?:\.toml)?|\.husky/[^/]+|node_modules/\.bin/[^/]+)$"
);
// Scripts that run checks.
pattern!(
    SCRIPT,
    r"(?i)(?:^|/)(?:(?:scripts?|ci|bin|hack|tools|build|\.husky|\.ci)/(?:.*/)?[\w.-]*|[\w.-]*(?:test|check|lint|verify|cov|ci)[\w.-]*\.(?:sh|bash))$"
);
pattern!(
    NPM_KEY,
    r#"^\s*"((?:pre|post)?(?:test|lint|check|typecheck|type-check|coverage|verify|ci)(?::[\w:.-]+)?|jest|vitest|ava|c8|nyc|mocha|coverageThreshold|testMatch|testRegex|testPathIgnorePatterns|collectCoverageFrom|eslintConfig|bail)"\s*:"#
);
pattern!(NEW_NPM_KEY, r#"^\s*"(?:pre|post)?test"\s*:|^\s*"(?:testPathIgnorePatterns|coverageThreshold)"\s*:"#);
pattern!(
    INI_KEY,
    r"^\s*(?:addopts|testpaths|norecursedirs|python_files|python_classes|python_functions|xfail_strict|fail_under|omit|exclude_lines|exclude_also|disallow_\w+|ignore_errors|ignore_missing_imports|per-file-ignores|extend-ignore|filterwarnings)\s*="
);
pattern!(
    INI_SECTION,
    r"^\s*\[\s*(?:tool[.:](?:pytest|coverage|mypy|ruff|pyright|tox|nox|pylint|flake8|hatch\.envs)|tool:pytest|pytest|coverage|mypy|flake8|testenv)"
);
pattern!(ANY_SECTION, r"^\s*\[");
pattern!(MAKE_TARGET, r"^([\w./ -]+?)\s*::?(?:[^=:]|$)");
pattern!(CHECK_TARGET, r"(?:^|[\s._-])(?:test|tests|check|checks|lint|verify|coverage|ci)(?:$|[\s._-])");
pattern!(
    STRICT_KEY,
    r#"^\s*"(strict\w*|noImplicit\w+|noUnused\w+|noUnchecked\w+|noFallthrough\w+|noEmitOnError|exactOptional\w+|alwaysStrict|useUnknownInCatchVariables|checkJs)"\s*:\s*(true|false)"#
);
pattern!(LOOSE_KEY, r#"^\s*"(?:skipLibCheck|noCheck|suppress\w+)"\s*:\s*true|^\s*"exclude"\s*:"#);
pattern!(
    CARGO_OFF,
    r#"^\s*(?:test|doctest|autotests|harness)\s*=\s*false|^\s*[\w:-]+\s*=\s*(?:"allow"|\{.*level\s*=\s*"allow")"#
);
pattern!(
    HOOK,
    r"\boutcome\s*=\s*[\x22']passed|\badd_marker\(|\bdeselected\b|\bsys\.modules\[|^\s*(?:def\s+pytest_(?:collection_modifyitems|ignore_collect|runtest_\w+|pyfunc_call|sessionfinish|collect_file)|collect_ignore(?:_glob)?(?:\s*\+?=\s*\[\s*[^\]\s]|\.(?:append|extend)\())|os\._exit\("
);
// Settings of build tools that leave tests out or ignore their failures.
pattern!(
    BUILD_OFF,
    r#"<(?:excludes?|excludedGroups|groups|skipTests|skip|testFailureIgnore|maven\.test\.(?:skip|failure\.ignore)|includes?|skipITs)>|\b(?:ignoreFailures|ignoreExitValue|setIgnoreFailures)\b|\b(?:excludeTags|includeTags|excludeTestsMatching|includeTestsMatching|excludeCategories|exclude)\b\s*[('"]|^\s*(?:test\.)?(?:enabled\s*=\s*false|onlyIf\s*\{\s*false)|-x\s+test\b"#
);
// CMake and Meson: tests that must fail, and tests that are left out.
pattern!(
    CTEST_OFF,
    r"(?i)\bWILL_FAIL\b|\bDISABLED\s+(?:TRUE|ON|1)|\bSKIP_RE(?:TURN_CODE|GULAR_EXPRESSION)\b|\bPASS_REGULAR_EXPRESSION\b|--gtest_filter|\bshould_fail\s*:\s*true|(?:ctest|CMAKE_CTEST_ARGUMENTS).*\s-E\s"
);
pattern!(
    CTEST_ADDED,
    r"(?i)^\s*(?:add_test|gtest_discover_tests|gtest_add_tests|catch_discover_tests|doctest_discover_tests|enable_testing|test)\s*\("
);
pattern!(RAKE_TEST, r"\b(?:pattern|test_files|exclude_pattern|rspec_opts|TestTask|RakeTask)\b");
// Whole files that a linter or type checker is told to leave alone.
pattern!(
    SILENCED,
    r"^\s*(?:#!\[allow\((?:clippy::all|warnings|unused|clippy::pedantic)|//\s*@ts-nocheck|/\*\s*eslint-disable\s*\*/|#\s*(?:mypy:\s*ignore-errors|flake8:\s*noqa|ruff:\s*noqa|pylint:\s*skip-file|type:\s*ignore\s*$)|//\s*nolint\s*$)"
);

/// Whether every change of this file affects the checks.
pub(super) fn is_check_config(path: &str) -> bool {
    WHOLE.is_match(path.rsplit('/').next().unwrap_or(path)) || WHOLE_PATH.is_match(path)
}

/// Whether checks may run this script.
pub(super) fn is_check_script(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let script = matches!(name.rsplit_once('.').map(|(_, tail)| tail), None | Some("sh" | "bash" | "mk"));
    is_makefile(path) || name == "tox.ini" || name == "package.json" || (script && SCRIPT.is_match(path))
}

fn is_makefile(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "Makefile" | "makefile" | "GNUmakefile" | "justfile" | "Justfile" | "Taskfile.yml" | "Rakefile")
}

/// Returns the change of a file in one line, for files of which every change matters.
pub(super) fn summary(file: &FileDiff) -> String {
    if file.is_deleted() {
        return "file deleted".to_owned();
    }
    let said = |mark: &str, change: LineChange| {
        let line = file.lines(change).find(|line| !line.trim().is_empty())?;
        Some(format!("{mark} {}", line.trim()))
    };
    let line = said("+", LineChange::Added).or_else(|| said("-", LineChange::Removed));
    match (line, &file.old, &file.new) {
        (Some(line), _, _) => line,
        (None, Some(old), Some(new)) if old != new => format!("renamed from {old} to {new}"),
        (None, None, _) => "file added".to_owned(),
        _ => "file changed".to_owned(),
    }
}

/// Searches one file for edited check configuration.
pub(super) fn scan(file: &FileDiff, findings: &mut Findings) {
    if file.paths().any(is_check_config) {
        findings.add(file.path(), None, TamperKind::CheckConfigEdited, &summary(file));
        return;
    }
    let name = file.path().rsplit('/').next().unwrap_or_default();
    let line = match name {
        "package.json" | "composer.json" | "deno.json" => npm(file),
        "pom.xml" | "build.gradle" | "build.gradle.kts" => added(file, |line| BUILD_OFF.is_match(line)),
        "CMakeLists.txt" | "meson.build" => added(file, |line| CTEST_OFF.is_match(line))
            .or_else(|| removed(file, |line| CTEST_ADDED.is_match(line)).filter(|_| !file.is_deleted())),
        "Rakefile" => removed(file, |line| RAKE_TEST.is_match(line)),
        "pyproject.toml" | "setup.cfg" => ini(file),
        "Cargo.toml" => added(file, |line| CARGO_OFF.is_match(line)),
        "conftest.py" => added(file, |line| HOOK.is_match(line)),
        _ if is_makefile(file.path()) => file.hunks.iter().find_map(make),
        _ if name.starts_with("tsconfig") && name.ends_with(".json") => typescript(file),
        _ => added(file, |line| SILENCED.is_match(line)).filter(|_| !file.is_new()),
    };
    if let Some(text) = line {
        let changed = file.hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.change != LineChange::Context);
        let number = changed.clone().find(|line| text.contains(line.text.trim()) && !line.text.trim().is_empty());
        findings.add(file.path(), number.map(|line| line.number), TamperKind::CheckConfigEdited, &text);
    }
}

/// The first added line that is so and that was not there before.
fn added(file: &FileDiff, is: impl Fn(&str) -> bool) -> Option<String> {
    let old: Vec<&str> = file.lines(LineChange::Removed).map(str::trim).collect();
    file.lines(LineChange::Added).find(|line| is(line) && !old.contains(&line.trim())).map(str::to_owned)
}

/// The first removed line that is so and that has no other version now.
fn removed(file: &FileDiff, is: impl Fn(&str) -> bool) -> Option<String> {
    let before = file.lines(LineChange::Removed).filter(|line| is(line)).count();
    let after = file.lines(LineChange::Added).filter(|line| is(line)).count();
    let rewritten = file.path().ends_with("Rakefile");
    let line = file.lines(LineChange::Removed).find(|line| is(line))?;
    (rewritten || after < before).then(|| format!("was: {}", line.trim()))
}

/// Scripts and runner settings in package.json that changed or went; new scripts take nothing away, but for those that
/// run with `npm test`.
fn npm(file: &FileDiff) -> Option<String> {
    let plain = |line: &str| line.trim().trim_end_matches(',').to_owned();
    let new: Vec<String> = file.lines(LineChange::Added).map(plain).collect();
    let old: Vec<String> = file.lines(LineChange::Removed).map(plain).collect();
    let changed = file.lines(LineChange::Removed).find(|line| NPM_KEY.is_match(line) && !new.contains(&plain(line)));
    let came = || file.lines(LineChange::Added).find(|line| NEW_NPM_KEY.is_match(line) && !old.contains(&plain(line)));
    let replaced = |line: &str| {
        let key = NPM_KEY.captures(line).map(|found| found[1].to_owned());
        new.iter().find(|other| NPM_KEY.captures(other).map(|found| found[1].to_owned()) == key).cloned()
    };
    match changed {
        Some(line) => Some(format!("{} -> {}", line.trim(), replaced(line).unwrap_or_else(|| "removed".to_owned()))),
        None if file.is_new() => None,
        None => came().map(str::to_owned),
    }
}

/// Settings of test runners and checkers in files with sections.
fn ini(file: &FileDiff) -> Option<String> {
    if file.is_new() {
        return None;
    }
    for hunk in &file.hunks {
        let mut in_section = INI_SECTION.is_match(&hunk.heading);
        for line in &hunk.lines {
            let text = line.text.as_str();
            if ANY_SECTION.is_match(text) && !text.trim_end().ends_with("],") {
                in_section = INI_SECTION.is_match(text);
            }
            let matters = in_section || INI_KEY.is_match(text);
            let real = !text.trim().is_empty() && !text.trim_start().starts_with('#');
            if line.change != LineChange::Context && matters && real {
                return Some(text.to_owned());
            }
        }
    }
    None
}

/// The first changed line of a target that checks.
fn make(hunk: &Hunk) -> Option<String> {
    let target = |text: &str| MAKE_TARGET.captures(text).map(|found| CHECK_TARGET.is_match(found[1].trim()));
    let mut in_check = target(&hunk.heading).unwrap_or(false);
    for line in &hunk.lines {
        let text = line.text.as_str();
        if !text.starts_with(char::is_whitespace) {
            in_check = match target(text) {
                // A new target takes nothing away.
                Some(check) => check && (line.change != LineChange::Added || hunk_has_removed_target(hunk)),
                None => in_check && text.trim().is_empty(),
            };
        }
        let real = !text.trim().is_empty() && !text.trim_start().starts_with('#');
        if line.change != LineChange::Context && in_check && real {
            return Some(text.to_owned());
        }
    }
    None
}

fn hunk_has_removed_target(hunk: &Hunk) -> bool {
    hunk.lines.iter().any(|line| line.change == LineChange::Removed && MAKE_TARGET.is_match(&line.text))
}

/// Strictness that was switched off or went, and files that are left out now.
fn typescript(file: &FileDiff) -> Option<String> {
    if file.is_new() {
        return None;
    }
    let key = |line: &str| STRICT_KEY.captures(line).map(|found| (found[1].to_owned(), &found[2] == "true"));
    let now: Vec<(String, bool)> = file.lines(LineChange::Added).filter_map(key).collect();
    let off = file.lines(LineChange::Removed).find(|line| match key(line) {
        Some((name, true)) => !now.iter().any(|(other, on)| *other == name && *on),
        _ => false,
    });
    let switched = || file.lines(LineChange::Added).find(|line| matches!(key(line), Some((_, false))));
    off.map(|line| format!("was: {}", line.trim()))
        .or_else(|| switched().map(str::to_owned))
        .or_else(|| added(file, |line| LOOSE_KEY.is_match(line)))
}
