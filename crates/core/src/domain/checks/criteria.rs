//! Completion criteria: sources of checks, their precedence, and their validation.

mod detect;
mod issue;
mod judge;
mod kind;
mod propose;
mod spec;
mod test_runs;

use std::collections::HashSet;

use ralph_types::failure::Failure;
use regex::{Regex, RegexBuilder};

use crate::domain::model::path_patterns::path_globs;
use crate::domain::model::task::{Check, CheckRule, CheckSource};

pub use detect::detect;
pub use issue::{from_issue, from_issue_with_facts};
pub use judge::{CheckVerdict, judge};
pub use kind::{TaskType, task_type};
pub use propose::{MAX_PROPOSED, propose, trial};
pub use spec::check_from_value;
pub use test_runs::{counted_unit, may_run_none, objection, passes_by_exit_code, ran_none, understood, written_report};

/// Maximum time limit of one run, in seconds (6 h).
pub const MAX_TIMEOUT_S: u64 = 6 * 3600;
/// Maximum number of checks from one source.
pub const MAX_CHECKS: usize = 20;
/// Maximum length of a check's name, in characters.
pub const MAX_NAME: usize = 60;
/// Maximum length of a command, in bytes.
pub const MAX_COMMAND: usize = 4096;
/// Maximum length of a pattern, in bytes.
const MAX_PATTERN: usize = 500;
/// Maximum size of a compiled pattern, in bytes.
const PATTERN_BYTES: usize = 1 << 20;

/// Reason why the stated criteria cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CriteriaError {
    /// The fenced block cannot be parsed.
    #[error("the `ralph` block cannot be read: {0}")]
    Block(String),
    /// A check is invalid.
    #[error("check `{name}`: {reason}")]
    Invalid {
        /// Name of the check.
        name: String,
        /// Problem and how to fix it.
        reason: String,
    },
    /// There are too many checks; the value is their number.
    #[error("too many checks ({0}, maximum {MAX_CHECKS}); combine some in a script")]
    TooMany(usize),
}

/// Creates a check that passes if `command` exits with code 0. Its name is derived from the command.
pub fn plain(command: &str, source: CheckSource) -> Check {
    Check {
        name: name_of(command),
        command: command.to_owned(),
        rule: CheckRule::ExitCode,
        source,
        timeout_s: None,
        counts: None,
        junit: None,
    }
}

/// Returns the checks of the first source that has any, in this order: command, issue, repository file, detection. Sets
/// their `source` and makes their names unique. Without any checks, returns an empty list and `Detected`.
pub fn choose(
    command: Vec<Check>,
    issue: Vec<Check>,
    file: Vec<Check>,
    detected: Vec<Check>,
) -> (Vec<Check>, CheckSource) {
    let (checks, source) = [
        (command, CheckSource::Command),
        (issue, CheckSource::Issue),
        (file, CheckSource::RepositoryFile),
        (detected, CheckSource::Detected),
    ]
    .into_iter()
    .find(|(checks, _)| !checks.is_empty())
    .unwrap_or((Vec::new(), CheckSource::Detected));
    let mut taken = HashSet::new();
    let mut unique: Vec<Check> = Vec::new();
    for mut check in checks {
        check.source = source;
        if unique.iter().any(|other| other.command == check.command && other.rule == check.rule) {
            continue;
        }
        check.name = free_name(&check.name, &taken);
        taken.insert(check.name.clone());
        unique.push(check);
    }
    (unique, source)
}

/// Validates a check. The error is one sentence for the check's author.
pub fn validate(check: &Check) -> Result<(), Failure> {
    if check.name.trim().is_empty() {
        return Err(Failure::new("the name is empty"));
    }
    if check.name.chars().any(char::is_control) || check.name.chars().count() > MAX_NAME {
        return Err(Failure::new(format!("the name must be one line of at most {MAX_NAME} characters")));
    }
    if check.command.trim().is_empty() {
        return Err(Failure::new("the command is empty"));
    }
    if check.command.contains('\0') {
        return Err(Failure::new("the command contains a NUL character"));
    }
    if check.command.len() > MAX_COMMAND {
        return Err(Failure::new(format!(
            "the command is longer than {MAX_COMMAND} bytes; put it into a script in the repository"
        )));
    }
    if let Some(seconds) = check.timeout_s.filter(|seconds| !(1..=MAX_TIMEOUT_S).contains(seconds)) {
        return Err(Failure::new(format!("the timeout is {seconds} s; it must be between 1 s and {MAX_TIMEOUT_S} s")));
    }
    if let Some(pattern) = &check.counts {
        let compiled = compile(pattern)?;
        let named: Vec<&str> = compiled.capture_names().flatten().collect();
        if !named.iter().any(|name| matches!(*name, "passed" | "failed")) {
            return Err(Failure::new("the pattern in `counts` needs a group `(?P<passed>…)` or `(?P<failed>…)`"));
        }
    }
    if let Some(glob) = &check.junit {
        report_path(glob).map_err(|reason| Failure::new(format!("`junit`: {reason}")))?;
    }
    match &check.rule {
        CheckRule::ExitCode | CheckRule::EmptyOutput => Ok(()),
        CheckRule::Coverage { pattern, min } => {
            one_group(pattern)?;
            if (0.0..=100.0).contains(&min.0) {
                Ok(())
            } else {
                Err(Failure::new(format!("`min` is {}; it must be 0 to 100", min.0)))
            }
        }
        CheckRule::Count { pattern, at_least, at_most, .. } => {
            one_group(pattern)?;
            bounds(*at_least, *at_most)
        }
    }
}

/// Validates the glob of a check's JUnit files. The error is one sentence for the check's author.
pub fn report_path(glob: &str) -> Result<(), Failure> {
    let inside = !glob.starts_with('/') && glob.split('/').all(|part| part != "..");
    match path_globs(&[glob]) {
        Ok(_) if inside && !glob.is_empty() && glob.len() <= MAX_PATTERN => Ok(()),
        Ok(_) => Err(Failure::new("expected a path from the root of the tree, in which `*` and `**` are allowed")),
        Err(error) => Err(Failure::new(format!("not a pattern: {}", error.kind()))),
    }
}

fn bounds(at_least: Option<f64>, at_most: Option<f64>) -> Result<(), Failure> {
    if at_least.into_iter().chain(at_most).any(|bound| !bound.is_finite()) {
        return Err(Failure::new("`at_least` and `at_most` must be finite numbers"));
    }
    match (at_least, at_most) {
        (None, None) => Err(Failure::new("a `count` check needs `at_least` or `at_most`")),
        (Some(low), Some(high)) if low > high => {
            Err(Failure::new(format!("`at_least` ({low}) is above `at_most` ({high})")))
        }
        _ => Ok(()),
    }
}

fn one_group(pattern: &str) -> Result<(), Failure> {
    if compile(pattern)?.captures_len() < 2 {
        return Err(Failure::new(format!(
            "the pattern `{pattern}` needs a group around the number, as in `(\\d+) errors`"
        )));
    }
    Ok(())
}

/// Compiles a pattern in multi-line mode, with limits on its length and compiled size.
pub fn compile(pattern: &str) -> Result<Regex, Failure> {
    if pattern.len() > MAX_PATTERN {
        return Err(Failure::new(format!("the pattern is longer than {MAX_PATTERN} bytes")));
    }
    let built = RegexBuilder::new(pattern).multi_line(true).size_limit(PATTERN_BYTES).build();
    built.map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Failure::new(format!("the pattern `{pattern}` is not a regular expression: {last}"))
    })
}

/// Derives a name from a command: its first line, at most `MAX_NAME` characters.
fn name_of(command: &str) -> String {
    let line: String = command.trim().lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    cut(line.trim(), MAX_NAME)
}

fn cut(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(characters.saturating_sub(1)).collect();
    short.push('…');
    short
}

fn free_name(name: &str, taken: &HashSet<String>) -> String {
    if !taken.contains(name) {
        return name.to_owned();
    }
    (2..)
        .map(|n| {
            let tail = format!(" ({n})");
            format!("{}{tail}", cut(name, MAX_NAME - tail.len()))
        })
        .find(|candidate| !taken.contains(candidate))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
