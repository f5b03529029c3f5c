//! Bounds of coverage, warnings and the like that became looser, in build files that the run with the base's tests cannot replace.

use std::collections::HashMap;

use super::diff::{DiffLine, FileDiff, LineChange};
use super::findings::Findings;
use crate::domain::model::task::TamperKind;

pattern!(NUMBER, r"-?\d+(?:\.\d+)?");
// Words beside a number that must not decrease.
pattern!(
    AT_LEAST,
    r#"(?i)fail[_-]?under|\bcov(?:erage)?[\w-]*|mutation[_-]?score|break_?at|threshold|\bmin(?:imum)?\w*|\b(?:branches|functions|lines|statements)\b|\bscore\b|\btarget\b"#
);
// Words beside a number that must not increase.
pattern!(
    AT_MOST,
    r"(?i)max[_-]?(?:warnings?|errors?|failures?|complexity)|allowed[_-]?(?:failures|errors)|\bmaxfail\b|--retries?\b|--reruns?\b"
);
/// Files that contain bounds of checks among other things.
const BUILD_FILES: [&str; 4] = ["pom.xml", "build.gradle", "build.gradle.kts", "sonar-project.properties"];

/// Searches one file for bounds that became looser.
pub(super) fn scan(file: &FileDiff, findings: &mut Findings) {
    if !file.path().rsplit('/').next().is_some_and(|name| BUILD_FILES.contains(&name)) {
        return;
    }
    for hunk in &file.hunks {
        // First added line of each shape, and first value that a line gives to each bound.
        let mut by_shape: HashMap<String, &DiffLine> = HashMap::new();
        let mut bounds: HashMap<String, f64> = HashMap::new();
        for new in hunk.lines.iter().filter(|line| line.change == LineChange::Added) {
            by_shape.entry(shape(&new.text)).or_insert(new);
            if let Some((word, value)) = bound(&new.text) {
                bounds.entry(word).or_insert(value);
            }
        }
        for old in hunk.lines.iter().filter(|line| line.change == LineChange::Removed) {
            let loosened = match by_shape.get(&shape(&old.text)) {
                Some(new) => {
                    loosened(&old.text, &new.text).then(|| format!("{} -> {}", old.text.trim(), new.text.trim()))
                }
                None => is_lost(&old.text, &bounds).then(|| format!("was: {}", old.text.trim())),
            };
            if let Some(evidence) = loosened {
                findings.add(file.path(), Some(old.number), TamperKind::CheckConfigEdited, &evidence);
            }
        }
    }
}

/// Whether a bound has a looser number than before.
fn loosened(old: &str, new: &str) -> bool {
    let rises = AT_MOST.is_match(old);
    // A number of warnings or failures below zero is not a limit.
    let worse = |(old, new): (f64, f64)| if rises { new > old || (new < 0.0 && old >= 0.0) } else { new < old };
    (rises || AT_LEAST.is_match(old)) && numbers(old).zip(numbers(new)).any(worse)
}

fn numbers(text: &str) -> impl Iterator<Item = f64> {
    NUMBER.find_iter(text).filter_map(|number| number.as_str().parse().ok())
}

/// Returns the bound that a line sets, in lower case, and its value; `None` if the line sets none.
fn bound(text: &str) -> Option<(String, f64)> {
    pattern!(
        BOUND,
        r"(?i)((?:cov-)?fail[_-]under|max[_-]warnings|min(?:imum)?_?coverage|coverageThreshold)[^\d-]{0,12}(-?\d+(?:\.\d+)?)"
    );
    let found = BOUND.captures(text)?;
    Some((found[1].to_lowercase(), found[2].parse().ok()?))
}

/// Whether a bound was removed or loosened, in a line that also changed in other ways. `bounds` has the values after the change.
fn is_lost(old: &str, bounds: &HashMap<String, f64>) -> bool {
    let Some((word, before)) = bound(old) else { return false };
    match bounds.get(&word).copied() {
        Some(after) if word.starts_with("max") => after > before || (after < 0.0 && before >= 0.0),
        Some(after) => after < before,
        None => true,
    }
}

/// Returns a line without its numbers, for finding its other version.
fn shape(line: &str) -> String {
    NUMBER.replace_all(line.trim().trim_end_matches(','), "#").into_owned()
}
