//! Describes a loop's checks, and fills the request for a check.

use super::who_may;
use crate::domain::loops::{Loop, ProposedCheck};
use crate::domain::model::task::{Check, CheckRule, CheckSource};
use crate::domain::report::view::{NeedsCriteriaView, PlannedCheck, ProposedLine, View};

fn source_words(source: CheckSource) -> &'static str {
    match source {
        CheckSource::Command => "command",
        CheckSource::Issue => "this issue",
        CheckSource::RepositoryFile => "the repository's file",
        CheckSource::Detected => "detected from the repository's files",
    }
}

/// Describes the condition under which a check passes.
pub fn rule_words(rule: &CheckRule) -> String {
    match rule {
        CheckRule::ExitCode => "exit code 0".into(),
        CheckRule::EmptyOutput => "exit code 0 and no output".into(),
        CheckRule::Coverage { min, .. } => format!("exit code 0 and coverage of at least {} %", min.0),
        CheckRule::Count { at_least, at_most, any_exit, .. } => {
            let count = match (at_least, at_most) {
                (Some(low), Some(high)) => format!("a count from {low} to {high}"),
                (Some(low), None) => format!("a count of at least {low}"),
                (None, Some(high)) => format!("a count of at most {high}"),
                (None, None) => "a count".into(),
            };
            if *any_exit { count } else { format!("exit code 0 and {count}") }
        }
    }
}

pub(super) fn planned_check(check: &Check) -> PlannedCheck {
    PlannedCheck {
        name: check.name.clone(),
        command: check.command.clone(),
        rule: rule_words(&check.rule),
        source: source_words(check.source).into(),
    }
}

/// Fills the comment that asks for a check. `problems` are errors in the completion criteria of the issue or the repository.
/// If it is empty and the checks have run, the comment reports that all of them already pass.
pub fn needs_criteria(current: &Loop, problems: &[String]) -> View {
    let mut looked_at = problems.to_vec();
    let holding: Vec<String> = match problems.is_empty() && current.checks.baseline.is_some() {
        true => current.checks.list.iter().map(|check| check.command.clone()).collect(),
        false => Vec::new(),
    };
    if problems.is_empty() && holding.is_empty() {
        if !current.task.author_trusted {
            looked_at.push("the text of this issue: ignored, because its author has no write access".into());
        } else {
            looked_at.push("this issue: no `ralph` block or completion criteria".into());
        }
        looked_at.push("the repository's file on the default branch: no checks".into());
        if current.settings.policy.detect_checks {
            looked_at.push("Cargo.toml, package.json, pyproject.toml, go.mod, Makefile: no known command that tests, lints or builds".into());
        }
    }
    let line = |proposal: &ProposedCheck| ProposedLine {
        command: proposal.command.clone(),
        result: if proposal.holds { "passes".into() } else { format!("fails ({})", proposal.why) },
    };
    let proposed = match problems.is_empty() && holding.is_empty() {
        true => current.checks.proposed.iter().map(line).collect(),
        false => Vec::new(),
    };
    View::NeedsCriteria(NeedsCriteriaView {
        proposed,
        loop_id: current.id.clone(),
        looked_at,
        holding,
        flaky: current.flaky_checks(),
        repository_file: ".ralph.yml".into(),
        who_may: who_may(&current.settings.policy),
    })
}
