//! Annotations: lines of files mentioned in failing checks' output.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;

use crate::domain::model::task::CheckReport;

/// Maximum number of annotations. Forges accept at most 50 per request.
pub const MAX_ANNOTATIONS: usize = 50;
/// Maximum length of a message, in characters.
const MESSAGE_CHARACTERS: usize = 400;

/// Line of a file mentioned by a failing check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLine {
    /// Path relative to the repository's root, as printed by the check. The file may not exist.
    pub path: String,
    /// 1-based line number. The line may not exist.
    pub line: u64,
    /// Output line that mentions the file's line.
    pub message: String,
    /// Name of the check.
    pub check: String,
}

/// Returns the distinct lines mentioned by failing checks, in output order.
pub fn named_lines(report: &CheckReport) -> Vec<NamedLine> {
    let failing = report.outcomes.iter().filter(|outcome| !outcome.holds);
    named_lines_of(failing.map(|outcome| (outcome.name.as_str(), outcome.output.as_str())))
}

/// Returns the distinct lines mentioned in outputs, in output order. Each item of `outputs` is a check's name and output.
pub fn named_lines_of<'a>(outputs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<NamedLine> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for (check, output) in outputs {
        for text in output.lines() {
            for place in PLACE.captures_iter(text) {
                let part = |names: [&str; 2]| names.into_iter().find_map(|name| place.name(name)).map(|m| m.as_str());
                let (Some(path), Some(line)) = (part(["path", "python"]), part(["line", "python_line"])) else {
                    continue;
                };
                let path = path.strip_prefix("./").unwrap_or(path);
                let outside = path.starts_with('/') || path.split('/').any(|part| matches!(part, "" | "." | ".."));
                let Some(line) = line.parse::<u64>().ok().filter(|line| *line > 0 && !outside) else { continue };
                if found.len() < MAX_ANNOTATIONS && seen.insert((path.to_owned(), line)) {
                    let message = text.trim().chars().filter(|c| !c.is_control()).take(MESSAGE_CHARACTERS).collect();
                    found.push(NamedLine { path: path.to_owned(), line, message, check: check.to_owned() });
                }
            }
        }
    }
    found
}

/// Location in a file: `path:line`, with or without a column, or in Python's format.
static PLACE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"File "(?P<python>[^"\n]+)", line (?P<python_line>\d{1,7})|(?:^|[\s("'\[=])(?P<path>[\w@+./-]+\.\w+):(?P<line>\d{1,7})\b"#,
    )
    .expect("pattern")
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::task::CheckOutcome;

    fn report(output: &str, holds: bool) -> CheckReport {
        let outcome = CheckOutcome {
            name: "test".into(),
            command: "make test".into(),
            holds,
            output: output.into(),
            ..CheckOutcome::default()
        };
        CheckReport { outcomes: vec![outcome] }
    }

    #[test]
    fn source_locations_in_tool_output_are_found_once() {
        let output = "error[E0308]: mismatched types\n  --> src/lib.rs:12:5\nsrc/lib.rs:12: again\n\
                      tests/test_a.py:7: AssertionError\n  File \"app/main.py\", line 33, in f\n\
                      ./pkg/x.go:4:2: undefined: y\nat run (web/app.test.ts:10:3)\n\
                      http://localhost:8080 12:30:45 /etc/passwd:1 ../up.c:3 a.c:0\n";
        let found: Vec<String> =
            named_lines(&report(output, false)).iter().map(|one| format!("{}:{}", one.path, one.line)).collect();
        assert_eq!(found, ["src/lib.rs:12", "tests/test_a.py:7", "app/main.py:33", "pkg/x.go:4", "web/app.test.ts:10"]);
        assert_eq!(named_lines(&report(output, true)), [], "a passing check names nothing that is wrong");
        let many: String = (1..200).map(|line| format!("a.c:{line}: x\n")).collect();
        assert_eq!(named_lines(&report(&many, false)).len(), MAX_ANNOTATIONS);
    }
}
