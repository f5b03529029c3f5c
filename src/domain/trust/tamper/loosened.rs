//! Thresholds that a diff lowers.

use std::sync::LazyLock;

use regex::Regex;

use super::config::{is_check_config, is_check_script};
use super::diff::{DiffLine, FileDiff, LineChange};
use super::language::{Language, is_test_path};
use super::tests_lost::DiffSummary;
use super::{Findings, TamperKind};

static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d+(?:\.\d+)?").expect("constant pattern"));

/// Words next to a number that must not decrease, outside of program code.
static AT_LEAST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)fail[_-]?under|\bcov(?:erage)?[\w-]*|mutation[_-]?score|break_?at").expect("constant pattern")
});

/// Settings of coverage in helpers of tests.
static AT_LEAST_IN_TESTS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"minimum_coverage|fail_?[uU]nder|coverageThreshold").expect("constant pattern"));

/// Words next to a number that must not decrease, in files that configure checks.
static AT_LEAST_IN_CONFIG: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)threshold|\bmin(?:imum)?\w*|\b(?:branches|functions|lines|statements)\b|\bscore\b|\btarget\b"#)
        .expect("constant pattern")
});

/// Words next to a number that must not increase.
static AT_MOST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)max[_-]?(?:warnings?|errors?|failures?|complexity)|allowed[_-]?(?:failures|errors)|\bmaxfail\b|--retries?\b|--reruns?\b")
        .expect("constant pattern")
});

/// Searches one file for loosened thresholds.
pub(super) fn scan(file: &FileDiff, findings: &mut Findings) {
    let config = file.paths().any(|path| is_check_config(path) || carries_checks(path) || is_check_script(path));
    for hunk in &file.hunks {
        thresholds(file, &hunk.lines, config, findings);
    }
}

/// Reports a comparison that decides how a script ends, and that holds in more cases now.
pub(super) fn exits(file: &FileDiff, whole: &DiffSummary, findings: &mut Findings) {
    static DECIDES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?:\bexit|\breturn|\braise|\bthrow|\bSystem\.exit|\bsys\.exit|\bos\.Exit)\b.*(?:[<>]=?|[=!]=)|^\s*(?:\[\[?|test)\s.*(?:-(?:eq|ne|lt|le|gt|ge)|[=<>])|^\s*(?:if|unless)\b.*(?:[<>]=?|[=!]=|-(?:eq|ne|lt|le|gt|ge))|^\s*\(\(.*[<>=]")
            .expect("constant pattern")
    });
    static PLACE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?:^|/)(?:scripts?|tools?|ci|\.ci|hack|bin|build|tests?|checks?)/").expect("constant pattern")
    });
    if file.is_new() || !PLACE.is_match(file.path()) || Language::of(file.path()).is_none() || is_test_path(file.path())
    {
        return;
    }
    for hunk in &file.hunks {
        let of = |change| hunk.lines.iter().filter(move |line| line.change == change && DECIDES.is_match(&line.text));
        for old in of(LineChange::Removed).filter(|old| !whole.has(&old.text)) {
            let alike = |new: &&DiffLine| super::lexis::Difference::between(&old.text, &new.text).similarity;
            let Some(new) = of(LineChange::Added).max_by(|a, b| alike(a).total_cmp(&alike(b))) else { continue };
            if alike(&new) >= 0.5 && alike(&new) < 1.0 {
                let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
                let tuned = shape(&old.text) == shape(&new.text);
                findings.add_graded(file.path(), Some(new.number), TamperKind::ThresholdLowered, &evidence, !tuned);
            }
        }
    }
}

/// Files that hold bounds of checks among other things.
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
    let added: Vec<&DiffLine> = lines.iter().filter(|line| line.change == LineChange::Added).collect();
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
        match added.iter().find(|new| shape(&new.text) == shape(old)) {
            Some(new) => {
                let pairs = numbers(old).into_iter().zip(numbers(&new.text));
                let worse = pairs.into_iter().any(|(old, new)| if rises { new > old } else { new < old });
                if worse {
                    let evidence = format!("{} -> {}", old.trim(), new.text.trim());
                    findings.add(file.path(), Some(new.number), TamperKind::ThresholdLowered, &evidence);
                }
            }
            None => removed_bound(file, line, &added, findings),
        }
    }
}

/// Whether a file has bounds of coverage and little else.
fn about_coverage(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    ["cov", "stryker", "mutation", "infection"].iter().any(|word| name.contains(word))
}

/// A bound that is not there any more, or stands in a line that changed otherwise too.
fn removed_bound(file: &FileDiff, old: &DiffLine, added: &[&DiffLine], findings: &mut Findings) {
    static BOUND: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?i)((?:cov-)?fail[_-]under|max[_-]warnings|min_?coverage|coverageThreshold)\D{0,4}(\d+(?:\.\d+)?)",
        )
        .expect("constant pattern")
    });
    let value = |text: &str| {
        let found = BOUND.captures(text)?;
        Some((found[1].to_lowercase(), found[2].parse::<f64>().ok()?))
    };
    let Some((word, before)) = value(&old.text) else { return };
    let after = added.iter().filter_map(|new| value(&new.text)).find(|(other, _)| *other == word);
    let worse = match after {
        Some((_, after)) if word.starts_with("max") => after > before,
        Some((_, after)) => after < before,
        None => true,
    };
    if worse {
        let evidence = format!("was: {}", old.text.trim());
        findings.add(file.path(), Some(old.number), TamperKind::ThresholdLowered, &evidence);
    }
}

/// A line with its numbers left out, for finding its other version.
fn shape(line: &str) -> String {
    NUMBER.replace_all(line.trim().trim_end_matches(','), "#").into_owned()
}

fn numbers(line: &str) -> Vec<f64> {
    NUMBER.find_iter(line).filter_map(|found| found.as_str().parse().ok()).collect()
}

/// Whether a line says how many cases a test generates.
pub(super) fn bounds_generated_input(line: &str) -> bool {
    static GENERATED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(?:max_examples|with_cases|numRuns|maxExamples|minSuccessful|MaxCount|tries)\b")
            .expect("constant pattern")
    });
    GENERATED.is_match(line)
}
