//! Recorded expectations and test data: snapshots, golden files, fixtures, expected output. Legitimate work changes them together
//! with the program. A change of them alone may only adapt them to the program's output.

use std::sync::LazyLock;

use regex::Regex;

use super::diff::{FileDiff, LineChange};
use super::language::Language;
use super::marks::is_test_data;
use super::summary::DiffSummary;
use super::{Findings, TamperKind, is_test_file};

/// Names of files that contain expectations of tests.
static EXPECTATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\.(?:snap|snapshot|ambr|golden|expect|expected|exp|approved(?:\.\w+)?|verified(?:\.\w+)?|stderr|stdout|stdout_expected|out|ok|ref|reference|result|baseline|want|txtar|feature|robot|cassette|snap\.\w+)$|(?:^|/)(?:__snapshots__|snapshots?|golden\w*|expected\w*|expectations?|baselines?|approvals?|references?|cassettes|__image_snapshots__|vcr\w*|recordings?|results)/|(?:^|[/_.-])(?:expected|golden|approved|snapshot|baseline|reference|want)[\w.-]*\.\w+$")
        .expect("constant pattern")
});

/// Names of lists of tests that are skipped or may fail.
static SKIP_LIST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:^|[/_.-])(?:skip(?:ped|list|_list|s)?|exclu(?:de|ded|sions?)|known[_-]?(?:fail\w*|issues)|expected[_-]?fail\w*|xfail\w*|quarantine\w*|flaky|disabled|blocklist|denylist|blacklist|todo[_-]?tests)(?:[_-]?tests?)?\.(?:txt|json|ya?ml|toml|list|conf|cfg|csv|xml)$")
        .expect("constant pattern")
});

/// Tags of scenarios that runners skip.
static SKIP_TAG: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)^\s*(?:@|\[Tags\].*)(?:wip|skip\w*|pending|ignored?|todo|broken|manual|disabled|flaky|quarantine\w*|not[_-]?implemented)\b")
        .expect("constant pattern")
});

/// Files in folders of tests that are neither test data nor read by tests.
static PROSE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\.(?:md|rst|adoc|lock|sum|gitignore|mod)$|(?:^|/)(?:README|LICENSE|\.git\w+|CMakeLists\.txt|package(?:-lock)?\.json|tsconfig\w*\.json|requirements\S*\.txt|Cargo\.toml|go\.mod|Makefile\S*|meson\.build|BUILD\S*)$").expect("constant pattern")
});

/// Searches one file for changes of recorded expectations or test data.
pub(super) fn scan(file: &FileDiff, diff: &DiffSummary, findings: &mut Findings) {
    let path = file.path();
    if SKIP_LIST.is_match(path) && Language::of(path).is_none() {
        if let Some(line) = file.numbered(LineChange::Added).find(|line| !line.text.trim().is_empty()) {
            findings.add_graded(path, Some(line.number), TamperKind::TestSkipped, &line.text, diff.changes_code);
        }
        return;
    }
    let scenario = path.ends_with(".feature") || path.ends_with(".robot");
    let tagged = |line: &&super::diff::DiffLine| SKIP_TAG.is_match(&line.text) && !diff.had(&line.text);
    if scenario
        && !file.is_new()
        && let Some(line) = file.numbered(LineChange::Added).find(tagged)
    {
        findings.add_graded(path, Some(line.number), TamperKind::TestSkipped, &line.text, diff.changes_code);
    }
    let expectation = file.paths().any(|path| EXPECTATION.is_match(path)) && is_about_tests(path);
    let data = file.paths().any(is_test_data);
    if file.is_new() || !(expectation || data) || PROSE.is_match(path) {
        return;
    }
    let kind = if file.is_deleted() && !expectation { TamperKind::TestDeleted } else { TamperKind::ExpectationChanged };
    if file.is_deleted() {
        let moved = file.lines(LineChange::Removed).take(20).all(|line| line.trim().is_empty() || diff.has(line));
        if !moved {
            findings.add_graded(path, None, kind, "data of tests deleted", diff.changes_code);
        }
        return;
    }
    let mut removed = file.numbered(LineChange::Removed);
    let Some(old) = removed.find(|line| !line.text.trim().is_empty()) else { return };
    let shrinks = data && !expectation && !file.lines(LineChange::Added).any(|line| !line.trim().is_empty());
    let kind = if shrinks { TamperKind::TestDeleted } else { kind };
    let new = file.lines(LineChange::Added).find(|line| !line.trim().is_empty()).unwrap_or("removed");
    let evidence = format!("{} -> {}", old.text.trim(), new.trim());
    findings.add_graded(path, Some(old.number), kind, &evidence, diff.changes_code);
}

/// Whether a file of recorded output belongs to tests, either by its folder or because only tests have such files.
fn is_about_tests(path: &str) -> bool {
    static ALWAYS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)\.(?:snap|ambr|golden|approved(?:\.\w+)?|verified(?:\.\w+)?|feature|robot|txtar)$|(?:^|/)(?:__snapshots__|golden\w*|cassettes)/")
            .expect("constant pattern")
    });
    is_test_file(path) || ALWAYS.is_match(path) || path.to_lowercase().contains("test") || path.contains("spec/")
}
