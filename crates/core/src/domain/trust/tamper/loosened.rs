//! Thresholds that a change lowers.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

use super::bounds::numbers;
use super::code_tokens::Difference;
use super::config_files::{is_check_config, is_check_script};
use super::diff::{DiffLine, FileDiff, LineChange};
use super::language::{Language, is_test_path};
use super::nearby::near;
use super::summary::DiffSummary;
use super::{Findings, TamperKind};

static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"-?\d+(?:\.\d+)?").expect("constant pattern"));

/// Words beside a number that must not decrease, in any file other than program code.
static AT_LEAST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)fail[_-]?under|\bcov(?:erage)?[\w-]*|mutation[_-]?score|break_?at").expect("constant pattern")
});

/// Coverage settings in test helpers.
static AT_LEAST_IN_TESTS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"minimum_coverage|fail_?[uU]nder|coverageThreshold").expect("constant pattern"));

/// Words beside a number that must not decrease, in files that configure checks.
static AT_LEAST_IN_CONFIG: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)threshold|\bmin(?:imum)?\w*|\b(?:branches|functions|lines|statements)\b|\bscore\b|\btarget\b"#)
        .expect("constant pattern")
});

/// Words beside a number that must not increase.
static AT_MOST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)max[_-]?(?:warnings?|errors?|failures?|complexity)|allowed[_-]?(?:failures|errors)|\bmaxfail\b|--retries?\b|--reruns?\b")
        .expect("constant pattern")
});

/// Searches one file for thresholds that became looser.
pub(super) fn scan(file: &FileDiff, findings: &mut Findings) {
    let config = file.paths().any(|path| is_check_config(path) || carries_checks(path) || is_check_script(path));
    for hunk in &file.hunks {
        thresholds(file, &hunk.lines, config, findings);
    }
}

/// Reports comparisons in scripts that decide the exit code and now succeed in more cases.
pub(super) fn exits(file: &FileDiff, diff: &DiffSummary, findings: &mut Findings) {
    static DECIDES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?:\bexit|\breturn|\braise|\bthrow|\bSystem\.exit|\bsys\.exit|\bos\.Exit)\b.*(?:[<>]=?|[=!]=)|^\s*(?:\[\[?|test)\s.*(?:-(?:eq|ne|lt|le|gt|ge)|[=<>])|^\s*(?:if|unless)\b.*(?:[<>]=?|[=!]=|-(?:eq|ne|lt|le|gt|ge))|^\s*\(\(.*[<>=]")
            .expect("constant pattern")
    });
    static PLACE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?:^|/)(?:scripts?|tools?|ci|\.ci|hack|bin|build|tests?|checks?|xtask|dev|qa|bench(?:es|marks?)?|perf)/",
        )
        .expect("constant pattern")
    });
    if file.is_new() || !PLACE.is_match(file.path()) || Language::of(file.path()).is_none() || is_test_path(file.path())
    {
        return;
    }
    programs(file, diff, findings);
    for hunk in &file.hunks {
        let of = |change| hunk.lines.iter().filter(move |line| line.change == change && DECIDES.is_match(&line.text));
        let added: Vec<_> = of(LineChange::Added).collect();
        let removed: Vec<_> = of(LineChange::Removed).filter(|old| !diff.has(&old.text)).collect();
        for (at, old) in removed.iter().enumerate() {
            let near = near(&added, at, removed.len()).iter();
            let alike = near.map(|new| (new, Difference::between(&old.text, &new.text).similarity));
            let Some((new, alike)) = alike.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            if (0.5..1.0).contains(&alike) {
                let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
                let tuned = shape(&old.text) == shape(&new.text);
                findings.add_graded(file.path(), Some(new.number), TamperKind::ThresholdLowered, &evidence, !tuned);
            }
        }
    }
}

/// Reports programs that run a check and no longer fail, or that have a looser bound.
fn programs(file: &FileDiff, diff: &DiffSummary, findings: &mut Findings) {
    static FAILS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(?:exitCode|exit_code|exitcode|status|rc|ret)\s*=\s*(?:[1-9]|EXIT_FAILURE)|\bexit\w*!?\(?\s*(?:[1-9]|EXIT_FAILURE|false|\w*(?i:fail|err|status|code)\w*)|\breturn\s+(?:[1-9]\d*\b|EXIT_FAILURE|ExitCode::FAILURE|Err\b)|\b(?:raise|throw|abort)\b|\b(?:bail|ensure|panic|assert\w*)!|\bassert\b|\bdie\b|\blog\.Fatal|\bprocess\.exit\(\s*[1-9\w]")
            .expect("constant pattern")
    });
    static CHECKS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)check|verify|lint|test|validat|guard|audit|conform|size|budget|codegen|ensure|compare|/ci\b")
            .expect("constant pattern")
    });
    static BOUND: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)^\s*(?:(?:const|let|var|pub|static|final|readonly|export|private|public)\s+)*([\w$:]*(limit|max|budget|allow|toleran|ceiling|threshold|min|floor|least)\w*)\s*(?::\s*[\w<>]+\s*)?:?=\s*(?:\d|\$\(\(|[\w.:]*(?:MAX|INF|Infinity|inf)\w*)")
            .expect("constant pattern")
    });
    static UNLIMITED: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"=\s*[\w.:]*(?:MAX|INF|Infinity|inf)\w*\b").expect("constant pattern"));
    let sure = CHECKS.is_match(file.path());
    let row = |line: &&DiffLine| super::rows::is_row(&line.text) && !line.text.trim().starts_with(['}', ']', ')']);
    let rows = |change| file.numbered(change).filter(row).count();
    let gone = file.numbered(LineChange::Removed).filter(row).find(|line| !diff.has(&line.text));
    if let Some(old) = gone.filter(|_| sure && rows(LineChange::Removed) > rows(LineChange::Added)) {
        let evidence = format!("fewer cases: {}", old.text.trim());
        let other = !super::starts::is_script_about_checks(file.path());
        findings.add_graded(file.path(), Some(old.number), TamperKind::TestDeleted, &evidence, other);
    }
    for hunk in &file.hunks {
        for group in hunk.lines.chunk_by(|a, b| a.change != LineChange::Context && b.change != LineChange::Context) {
            let of = |change, pattern: &'static Regex| {
                group.iter().filter(move |line| line.change == change && pattern.is_match(&line.text))
            };
            let (lost, added) = (of(LineChange::Removed, &FAILS), of(LineChange::Added, &FAILS));
            let (failures, failures_added) = (lost.clone().count(), added.count());
            // A script that was written anew is no weaker for it.
            let sure = sure && failures_added == 0 && group.len() <= 12;
            let gone = || lost.clone().find(|old| !diff.has(&old.text));
            if let Some(old) = gone().filter(|_| failures > failures_added) {
                let evidence = format!("no longer fails: {}", old.text.trim());
                let asserts = Language::of(file.path()).is_some_and(|language| language.asserts(&old.text));
                let kind = if asserts { TamperKind::AssertionRemoved } else { TamperKind::FailureIgnored };
                findings.add_graded(file.path(), Some(old.number), kind, &evidence, !sure);
            }
            for old in of(LineChange::Removed, &BOUND).take(20) {
                let group = |text: &str, at: usize| BOUND.captures(text).map(|found| found[at].to_owned());
                let same = |new: &&DiffLine| group(&new.text, 1) == group(&old.text, 1);
                let Some(new) = of(LineChange::Added, &BOUND).find(same) else { continue };
                let rises = !group(&old.text, 2)
                    .is_some_and(|word| ["min", "floor", "least", "threshold"].contains(&word.to_lowercase().as_str()));
                let mut pairs = numbers(&old.text).into_iter().zip(numbers(&new.text));
                let unlimited = UNLIMITED.is_match(&new.text) && !UNLIMITED.is_match(&old.text);
                if unlimited || pairs.any(|(was, is)| if rises { is > was } else { is < was }) {
                    let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
                    findings.add_graded(file.path(), Some(new.number), TamperKind::ThresholdLowered, &evidence, !sure);
                }
            }
        }
    }
}

/// Whether a file contains bounds of checks among other things.
fn carries_checks(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    [
        "package.json",
        "pyproject.toml",
        "setup.cfg",
        "pom.xml",
        "build.gradle",
        "build.gradle.kts",
        "sonar-project.properties",
    ]
    .contains(&name)
        || name.contains("codecov")
        || name.contains("stryker")
}

fn thresholds(file: &FileDiff, lines: &[DiffLine], config: bool, findings: &mut Findings) {
    let extension = file.path().rsplit('.').next().unwrap_or_default();
    let prose = ["md", "rst", "txt", "html", "css", "svg", "csv", "lock", "adoc"].contains(&extension);
    // In program code such words mean anything; the values of its own checks are in its configuration.
    let program = Language::of(file.path()).is_some() && !config && !is_check_script(file.path());
    if prose || (program && !is_test_path(file.path())) {
        return;
    }
    // First added line of each shape, and first value that a line gives to each bound.
    let mut by_shape: HashMap<String, &DiffLine> = HashMap::new();
    let mut bounds: HashMap<String, f64> = HashMap::new();
    for new in lines.iter().filter(|line| line.change == LineChange::Added) {
        by_shape.entry(shape(&new.text)).or_insert(new);
        if let Some((word, value)) = bound(&new.text) {
            bounds.entry(word).or_insert(value);
        }
    }
    for line in lines.iter().filter(|line| line.change == LineChange::Removed) {
        let old = line.text.as_str();
        if program && !AT_LEAST_IN_TESTS.is_match(old) {
            continue;
        }
        let sinks = program
            || AT_LEAST.is_match(old)
            || (config && (AT_LEAST_IN_CONFIG.is_match(old) || about_coverage(file.path())));
        let rises = AT_MOST.is_match(old);
        if !(sinks || rises) || !NUMBER.is_match(old) {
            continue;
        }
        match by_shape.get(&shape(old)) {
            Some(new) => {
                let mut pairs = numbers(old).into_iter().zip(numbers(&new.text));
                // A number of warnings or failures below zero is no limit.
                let more = |old: f64, new: f64| new > old || (new < 0.0 && old >= 0.0);
                let worse = pairs.any(|(old, new)| if rises { more(old, new) } else { new < old });
                if worse {
                    let evidence = format!("{} -> {}", old.trim(), new.text.trim());
                    findings.add(file.path(), Some(new.number), TamperKind::ThresholdLowered, &evidence);
                }
            }
            None => removed_bound(file, line, &bounds, findings),
        }
    }
}

/// Whether a file, according to its name, only configures coverage or mutation testing.
fn about_coverage(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    ["cov", "stryker", "mutation", "infection"].iter().any(|word| name.contains(word))
}

/// Returns the bound that a line sets, in lower case, and its value; `None` if the line sets none.
fn bound(text: &str) -> Option<(String, f64)> {
    static BOUND: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?i)((?:cov-)?fail[_-]under|max[_-]warnings|min(?:imum)?_?coverage|coverageThreshold)[^\d-]{0,12}(-?\d+(?:\.\d+)?)",
        )
        .expect("constant pattern")
    });
    let found = BOUND.captures(text)?;
    Some((found[1].to_lowercase(), found[2].parse().ok()?))
}

/// Reports a bound that was removed, or whose line also changed in other ways. `bounds` has the values after the change.
fn removed_bound(file: &FileDiff, old: &DiffLine, bounds: &HashMap<String, f64>, findings: &mut Findings) {
    let Some((word, before)) = bound(&old.text) else { return };
    let worse = match bounds.get(&word).copied() {
        Some(after) if word.starts_with("max") => after > before || (after < 0.0 && before >= 0.0),
        Some(after) => after < before,
        None => true,
    };
    if worse {
        let evidence = format!("was: {}", old.text.trim());
        findings.add(file.path(), Some(old.number), TamperKind::ThresholdLowered, &evidence);
    }
}

/// Returns a line without its numbers, for finding its other version.
fn shape(line: &str) -> String {
    NUMBER.replace_all(line.trim().trim_end_matches(','), "#").into_owned()
}

/// Whether a line states how many cases a test generates.
pub(super) fn bounds_generated_input(line: &str) -> bool {
    static GENERATED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(?:max_examples|with_cases|numRuns|maxExamples|minSuccessful|MaxCount|tries)\b")
            .expect("constant pattern")
    });
    GENERATED.is_match(line)
}
