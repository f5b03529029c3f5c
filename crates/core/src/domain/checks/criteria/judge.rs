//! Judges a command's outcome by the rule of its check.

use std::sync::LazyLock;

use ralph_types::failure::Failure;
use regex::Regex;

use super::compile;
use crate::domain::model::task::CheckRule;

/// Verdict on one run of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckVerdict {
    /// Whether the check passed.
    pub holds: bool,
    /// Reason for the failure, in one sentence without a full stop; empty if the check passed.
    pub why: String,
    /// Number that the rule compares; `None` for `ExitCode`, or if the output has no such number.
    pub measured: Option<f64>,
    /// Required number; `None` if the check passed.
    pub wanted: Option<f64>,
}

/// Shell message about a missing program. dash prints `sh: 1: foo: not found`, bash prints `sh: line 1: foo: command not
/// found`.
static NOT_FOUND: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^[^:\n]*: (?:line )?\d+: ([^:\n]+): (?:command )?not found\s*$").expect("constant pattern")
});

/// Judges a finished command. `exit` is its exit code, or `None` if a signal ended it. `output` is its standard output and
/// error. A command that could not start (126, 127) or was killed never passes.
pub fn judge(rule: &CheckRule, exit: Option<i32>, output: &str) -> CheckVerdict {
    let no = |why: String| CheckVerdict { holds: false, why, measured: None, wanted: None };
    let off = |why, found, wanted| CheckVerdict { holds: false, why, measured: Some(found), wanted: Some(wanted) };
    match exit {
        None => return no("was ended by a signal".to_owned()),
        Some(127) => return no(not_found(output)),
        Some(126) => return no("a program could not be executed (exit code 126); is it executable?".to_owned()),
        // Exit codes of shells and sandboxes for signals.
        Some(code @ 129..=192) => return no(format!("was ended by signal {} (exit code {code})", code - 128)),
        Some(_) => {}
    }
    let code = exit.unwrap_or(-1);
    match rule {
        CheckRule::ExitCode if code == 0 => yes(None),
        CheckRule::ExitCode => no(format!("exit code {code}")),
        CheckRule::EmptyOutput if code != 0 => no(format!("exit code {code}")),
        CheckRule::EmptyOutput if output.trim().is_empty() => yes(None),
        CheckRule::EmptyOutput => {
            let lines = output.lines().filter(|line| !line.trim().is_empty()).count();
            let why = format!("printed {lines} line{}, must print nothing", if lines == 1 { "" } else { "s" });
            off(why, lines as f64, 0.0)
        }
        CheckRule::Coverage { pattern, min } => match last_number(pattern, output) {
            Err(_) if code != 0 => no(format!("exit code {code}")),
            Err(why) => no(why.to_string()),
            // If tests fail, their coverage is meaningless.
            Ok(found) if found >= min.0 && code != 0 => {
                CheckVerdict { measured: Some(found), ..no(format!("exit code {code}")) }
            }
            Ok(found) if found >= min.0 => yes(Some(found)),
            Ok(found) => off(format!("found {found} %, needs {} %", min.0), found, min.0),
        },
        CheckRule::Count { pattern, at_least, at_most, any_exit } => match last_number(pattern, output) {
            Err(_) if code != 0 && !any_exit => no(format!("exit code {code}")),
            Err(why) => no(why.to_string()),
            Ok(found) => match (at_least, at_most) {
                (Some(low), _) if found < *low => off(format!("found {found}, needs at least {low}"), found, *low),
                (_, Some(high)) if found > *high => off(format!("found {found}, needs at most {high}"), found, *high),
                // A command that printed the number and then failed is not finished.
                _ if code != 0 && !any_exit => {
                    CheckVerdict { measured: Some(found), ..no(format!("exit code {code}")) }
                }
                _ => yes(Some(found)),
            },
        },
    }
}

fn yes(measured: Option<f64>) -> CheckVerdict {
    CheckVerdict { holds: true, why: String::new(), measured, wanted: None }
}

fn not_found(output: &str) -> String {
    match NOT_FOUND.captures_iter(output).last() {
        Some(found) => format!("command not found: {}", found[1].trim()),
        None => "command not found (exit code 127)".to_owned(),
    }
}

/// Returns the number in the first group of the pattern's last match. Thousands may be separated by commas.
fn last_number(pattern: &str, output: &str) -> Result<f64, Failure> {
    let found = compile(pattern)?.captures_iter(output).last().and_then(|c| c.get(1)).map(|group| group.as_str());
    let Some(text) = found else {
        return Err(Failure::new(format!("the pattern `{pattern}` was not found in the output")));
    };
    let plain: String = text.trim().chars().filter(|c| !matches!(c, ',' | '_')).collect();
    match plain.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(Failure::new(format!("the pattern `{pattern}` found `{text}`, which is not a number"))),
    }
}
