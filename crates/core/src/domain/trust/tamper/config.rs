//! Configuration of test runners, type checkers and linters in build files and other files that the run with the base's tests cannot
//! replace, because honest work changes them with the program.

use std::collections::HashSet;

use super::diff::{DiffLine, FileDiff, LineChange};
use super::findings::Findings;
use super::summary::DiffSummary;
use crate::domain::model::task::TamperKind;

pattern!(
    STRICT_KEY,
    r#"^\s*"(strict\w*|noImplicit\w+|noUnused\w+|noUnchecked\w+|noFallthrough\w+|noEmitOnError|exactOptional\w+|alwaysStrict|useUnknownInCatchVariables|checkJs)"\s*:\s*(true|false)"#
);
pattern!(
    LOOSE_KEY,
    r#"^\s*"(?:skipLibCheck|noCheck|suppress\w+|allowJs|allowUnreachableCode|allowUnusedLabels)"\s*:\s*true|^\s*"(?:exclude|paths)"\s*:"#
);
// Settings of build tools that leave tests out or ignore their failures.
pattern!(
    BUILD_OFF,
    r#"-D(?:skip|maven\.test)\S*|\bmaven\.test\.(?:skip|failure)\S*|<(?:excludes?|excludedGroups|groups|skip\w*|testFailureIgnore|maven\.test\.(?:skip|failure\.ignore)[\w.]*|includes?|rerunFailingTestsCount|failIfNo\w*|fail\w*|failOn\w*|suiteXmlFiles?|testSourceDirectory|test|enableAssertions|trimStackTrace|haltOnFailure|surefire\.\w+|failsafe\.\w+|checkstyle\.skip|jacoco\.skip|\w+\.skip|classpathDependencyExclude\w*|phase)>|\b(?:failFast|filter\s*\{|maxRetries|maxFailures|retry\s*\{|failOn\w+|isFailOn\w+|isIgnoreFailures|isEnabled|enableAssertions|testClassesDirs|excludeGroups|includeGroups|setExcludes|setIncludes|scanForTestClasses|testFramework|haltonfailure|failonerror|failureproperty|errorproperty|Tests\.Filter|Tests\.Argument|excludeFilter|testOptions|unmanagedSources|sourceSets|exclusions|excludedClassFilters|minimumBound)\b|\bskip\s*(?::=|in)|\bTest\s*/\s*\w+\s*:?=|\b(?:ignoreFailures|ignoreExitValue|setIgnoreFailures)\b|\b(?:excludeTags|includeTags|excludeTestsMatching|includeTestsMatching|excludeCategories|exclude)\b\s*[('"]|^\s*(?:\w+[.(].*)?(?:enabled\s*=\s*false|enabled\(false|onlyIf\b)|-x\s+\w*(?:test|check)\b|isEnabled\s*=\s*false|jvmArgs?\b.*-da\b|dependsOn\s*\(?\s*\[\]|setDependsOn|systemProperty\b.*(?:skip|ignore|exclude)"#
);
// CMake and Meson: tests that must fail, and tests that are left out.
pattern!(
    CTEST_OFF,
    r"(?i)\bWILL_FAIL\b|\x22exclude\x22\s*:|\bDISABLED\s+(?:TRUE|ON|1|YES)|\bEXCLUDE_FROM_ALL\b|\bCTEST_CUSTOM_\w+|\bSKIP_\w+|\bTEST_(?:FILTER|EXCLUDE)\w*|\bEXCLUDE\s+REGEX|list\(\s*(?:REMOVE_ITEM|FILTER)\b.*|\bCOMMAND\s+(?:true|echo|\$\{CMAKE_COMMAND\}\s+-E\s+(?:true|echo)|sh\s+-c)|-DNDEBUG|\bNDEBUG\b|BUILD_TESTING\b.*\bOFF|if\s*\(\s*(?:FALSE|0|OFF)\s*\)|option\(\s*\w*(?:build|enable|with|run)\w*test\w*.*\bOFF|\bFAIL_REGULAR_EXPRESSION\b|\|\|\s*true|--no-suite|\btimeout\s*:\s*0|\bLABELS\b|TIMEOUT\s+\d|--repeat|^\s*return\s*\(\s*\)|^\s*if\s*\(\s*\w*TEST\w*|\bSKIP_RE(?:TURN_CODE|GULAR_EXPRESSION)\b|\bPASS_REGULAR_EXPRESSION\b|--gtest_filter|\bshould_fail\s*:|(?:ctest|CMAKE_CTEST_ARGUMENTS).*\s-E\s"
);
pattern!(
    CTEST_ADDED,
    r"(?i)^\s*(?:add_test|gtest_discover_tests|gtest_add_tests|catch_discover_tests|doctest_discover_tests|enable_testing|include\s*\(\s*CTest|test|add_subdirectory\s*\(\s*\S*test\S*|target_sources|add_executable\s*\(\s*\w*test\w*|add_\w*test\w*)\s*[()]|^\s*['\x22]?[\w./-]*(?:test|spec)[\w./-]*\.(?:c|cc|cpp|cxx)\b|^\s*\w*(?:test|spec)\w*\s*$"
);
pattern!(
    RAKE_TEST,
    r"\b(?:pattern|test_files|exclude_pattern|rspec_opts|TestTask|RakeTask|fail_on_error|exclude|abort|failure_message)\b|\btask\s+(?::default|default:|:test|test:|:spec|spec:|:check|:ci)|\bsh\b.*(?:test|spec)|\bruby_opts\b|\brescue\s+nil|\|\|\s*true|\bTESTOPTS\b|\bSPEC_OPTS\b"
);
// Settings of runners, coverage and linters in makefiles of autotools, gems and other files of the build.
pattern!(
    AUTOMAKE,
    r"^\s*(?:XFAIL_TESTS|TESTS|check_PROGRAMS|check_SCRIPTS|AM_TESTS_ENVIRONMENT|TESTS_ENVIRONMENT|LOG_COMPILER|SUBDIRS|DISABLE_HARD_ERRORS)\b|^\s*[\w./-]*test[\w./-]*\s*\\$"
);
// Whole files that a linter or type checker ignores by a directive.
pattern!(
    SILENCED,
    r"^\s*(?:#!\[allow\((?:clippy::all|warnings|unused|clippy::pedantic)|//\s*@ts-nocheck|/\*\s*eslint-disable\s*\*/|#\s*(?:mypy:\s*ignore-errors|flake8:\s*noqa|ruff:\s*noqa|pylint:\s*skip-file|type:\s*ignore\s*$)|//\s*nolint\s*$|#\s*shellcheck\s+disable=all|#\s*rubocop:disable\s+all|//\s*phpcs:ignoreFile|//\s*@codingStandardsIgnoreFile)"
);

// Keys of the part of a build tool's configuration that is about tests.
pattern!(
    TEST_KEY,
    r#"^\s*["']?(?:include|exclude|passWithNoTests|retry|bail|coverage|thresholds?|setupFiles|globalSetup|testTimeout|lines|branches|functions|statements)["']?\s*:|["']\^?(?:test|lint|check|verify|typecheck|type-check)(?::[\w-]+)?["']"#
);

/// Describes the change of a file in one line. Used for files of which every change matters.
pub(super) fn summary(file: &FileDiff) -> String {
    if file.is_deleted() {
        return "file deleted".to_owned();
    }
    let first_line = |mark: &str, change: LineChange| {
        let line = file.lines(change).find(|line| !line.trim().is_empty())?;
        Some(format!("{mark} {}", line.trim()))
    };
    let line = first_line("+", LineChange::Added).or_else(|| first_line("-", LineChange::Removed));
    match (line, &file.old, &file.new) {
        (Some(line), _, _) => line,
        (None, Some(old), Some(new)) if old != new => format!("renamed from {old} to {new}"),
        (None, None, _) => "file added".to_owned(),
        _ => "file changed".to_owned(),
    }
}

/// Searches one file for edited check configuration.
pub(super) fn scan(file: &FileDiff, diff: &DiffSummary, findings: &mut Findings) {
    let name = file.path().rsplit('/').next().unwrap_or_default();
    let line = match name {
        "pom.xml" | "build.gradle" | "build.gradle.kts" | "build.xml" | "build.sbt" | "project.clj" => jvm(file),
        "Makefile.am" | "configure.ac" => changed(file, |line| AUTOMAKE.is_match(line)),
        "CMakeLists.txt" | "meson.build" | "meson_options.txt" => added(file, |line| CTEST_OFF.is_match(line))
            .or_else(|| removed(file, |line| CTEST_ADDED.is_match(line)).filter(|_| !file.is_deleted())),
        _ if name.ends_with(".rake") => changed(file, |line| RAKE_TEST.is_match(line)),
        "turbo.json" | "nx.json" | "lerna.json" | "angular.json" | "project.json" | "moon.yml" => {
            changed(file, |line| TEST_KEY.is_match(line))
        }
        _ if name.starts_with("vite.config") || name.starts_with("webpack.config") => {
            changed(file, |line| TEST_KEY.is_match(line))
        }
        _ if name.starts_with("tsconfig") && name.ends_with(".json") => typescript(file),
        _ => added(file, |line| SILENCED.is_match(line)).filter(|_| !file.is_new()),
    };
    super::stricter::fewer_parts(file, diff, findings);
    // Settings that honest work changes as often.
    pattern!(
        HONEST,
        r"required-features|default-members|^\s*exclude\s*=|\[patch|\[profile|\bLABELS\b|TIMEOUT\s+\d|\blist\(|<phase>|<test>|<groups>|testOptions|sourceSets|unmanagedSources|\bSUBDIRS\b|target_sources|add_executable|\bmembers\b|^\s*if\s*\("
    );
    if let Some(text) = line.filter(|text| !HONEST.is_match(text) && !super::stricter::is_stricter(file)) {
        let changed = file.hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.change != LineChange::Context);
        let number = changed.clone().find(|line| text.contains(line.text.trim()) && !line.text.trim().is_empty());
        findings.add(file.path(), number.map(|line| line.number), TamperKind::CheckConfigEdited, &text);
    }
    if let Some(line) = local_double(file, diff) {
        findings.add(file.path(), Some(line.number), TamperKind::CheckConfigEdited, &line.text);
    }
}

/// Returns a new line by which a manifest takes a dependency from a folder of the repository that is named like a test double.
fn local_double<'a>(file: &'a FileDiff, diff: &DiffSummary) -> Option<&'a DiffLine> {
    pattern!(
        LOCAL,
        r#"=>\s*\.{1,2}/|\bpath\s*=\s*"[^"]*(?:stub|fake|mock|dummy|shim|patched|local)|"(?:file|link|portal):|\bpath:\s*["']|"type"\s*:\s*"path"|^\s*"(?:[A-SU-Z]|T[^e])\w*(?:\\\\\w*)*"\s*:\s*"[^"]*(?:tests?|doubles?|stubs?|fakes?|mocks?)/|<systemPath>|\bincludeBuild\b|^\s*(?:-e\s+)?\.{1,2}/|@\s*file:|"(?:overrides|resolutions)"\s*:"#
    );
    pattern!(DOUBLE, r"(?i)stub|fake|mock|dummy|shim|patched|double");
    const MANIFESTS: [&str; 8] = [
        "go.mod",
        "package.json",
        "Gemfile",
        "composer.json",
        "pom.xml",
        "settings.gradle",
        "pyproject.toml",
        "build.gradle",
    ];
    let name = file.path().rsplit('/').next().unwrap_or_default();
    if !MANIFESTS.contains(&name) && !name.starts_with("requirements") || file.is_new() {
        return None;
    }
    let is_double = |text: &str| LOCAL.is_match(text) && DOUBLE.is_match(text) && !diff.had(text);
    file.numbered(LineChange::Added).find(|line| is_double(&line.text))
}

/// Returns the first line that satisfies `is` and was added, removed or changed; `None` in a new file.
fn changed(file: &FileDiff, is: impl Fn(&str) -> bool) -> Option<String> {
    if file.is_new() {
        return None;
    }
    let gone = || {
        let new: HashSet<&str> = file.lines(LineChange::Added).map(str::trim).collect();
        let line = file.lines(LineChange::Removed).find(|line| is(line) && !new.contains(line.trim()));
        line.map(|line| format!("was: {}", line.trim()))
    };
    added(file, &is).or_else(gone)
}

/// Returns a change to the build of a JVM project that leaves tests out, or that removes a part that ran checks.
fn jvm(file: &FileDiff) -> Option<String> {
    pattern!(
        CHECKS,
        r"<goal>\s*(?:test|check|verify|integration-test|report)\s*</goal>|<artifactId>\s*(?:maven-surefire|maven-failsafe|maven-checkstyle|jacoco-maven|spotbugs-maven|maven-pmd|maven-enforcer)[\w-]*\s*</artifactId>|\bdependsOn\b.*(?i:test|check|verif|lint)|\buseJUnit\w*|\buseTestNG\b|\bfinalizedBy\b|^\s*(?:id|apply)\b.*(?:checkstyle|jacoco|pmd|spotbugs|detekt|ktlint)"
    );
    // Settings that are switched on again.
    pattern!(ON, r"(?i)(?:ignore_?failures|failure_?ignore|ignore_?exit_?value|\bskip\w*)[\s=(:>]*false\b");
    let off = |line: &str| BUILD_OFF.is_match(line) && !ON.is_match(line);
    added(file, off).or_else(|| removed(file, |line| CHECKS.is_match(line)).filter(|_| !file.is_deleted()))
}

/// Returns the first added line that satisfies `is` and is new.
fn added(file: &FileDiff, is: impl Fn(&str) -> bool) -> Option<String> {
    let old: HashSet<&str> = file.lines(LineChange::Removed).map(str::trim).collect();
    file.lines(LineChange::Added).find(|line| is(line) && !old.contains(line.trim())).map(str::to_owned)
}

/// Returns the first removed line that satisfies `is`, if fewer such lines were added than removed.
fn removed(file: &FileDiff, is: impl Fn(&str) -> bool) -> Option<String> {
    let before = file.lines(LineChange::Removed).filter(|line| is(line)).count();
    let after = file.lines(LineChange::Added).filter(|line| is(line)).count();
    let line = file.lines(LineChange::Removed).find(|line| is(line))?;
    (after < before).then(|| format!("was: {}", line.trim()))
}

/// Returns a change that makes the TypeScript compiler check less: a strict option that is removed or disabled, or fewer files.
fn typescript(file: &FileDiff) -> Option<String> {
    if file.is_new() {
        return None;
    }
    pattern!(INCLUDE, r#"^\s*"(?:include|files|references)"\s*:"#);
    let key = |line: &str| STRICT_KEY.captures(line).map(|found| (found[1].to_owned(), &found[2] == "true"));
    let now: HashSet<(String, bool)> = file.lines(LineChange::Added).filter_map(key).collect();
    let off = file.lines(LineChange::Removed).find(|line| match key(line) {
        Some((name, true)) => !now.contains(&(name, true)),
        _ => false,
    });
    let switched = || file.lines(LineChange::Added).find(|line| matches!(key(line), Some((_, false))));
    // Fewer files are looked at.
    let files = |change| file.lines(change).find(|line| INCLUDE.is_match(line));
    let fewer = || {
        let (old, new) = (files(LineChange::Removed)?, files(LineChange::Added)?);
        (new.matches('"').count() < old.matches('"').count()).then(|| format!("{} -> {}", old.trim(), new.trim()))
    };
    off.map(|line| format!("was: {}", line.trim()))
        .or_else(fewer)
        .or_else(|| switched().map(str::to_owned))
        .or_else(|| added(file, |line| LOOSE_KEY.is_match(line)))
}
