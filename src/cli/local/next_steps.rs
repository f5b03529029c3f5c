//! Suggested commands, which a person can copy after a run of `ralph-bot local`.

use crate::domain::loops::{Loop, LoopLimit, LoopState};
use crate::domain::model::ids::{Money, Timestamp};

/// Invocation of `local` that the suggested commands repeat.
#[derive(Debug, Clone, Default)]
pub(super) struct Invocation {
    /// Value of `--repo`.
    pub repo: String,
    /// Value of `--data`; `None` if it was not given.
    pub data: Option<String>,
    /// Value of `--config`; `None` if it was not given.
    pub config: Option<String>,
    /// Whether the loop can be resumed.
    pub lasting: bool,
}

impl Invocation {
    /// Returns the command that resumes a loop, with further arguments.
    pub(super) fn resume(&self, id: &str, more: &str) -> String {
        let mut command = "ralph-bot local".to_owned();
        let options = [("--config", &self.config), ("--repo", &Some(self.repo.clone())), ("--data", &self.data)];
        for (name, value) in options {
            if let Some(value) = value.as_ref().filter(|value| name != "--repo" || *value != ".") {
                command.push_str(&format!(" {name} {}", quoted(value)));
            }
        }
        format!("{command} --resume {id}{more}")
    }
}

/// A suggested command and its purpose.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct SuggestedCommand {
    /// Purpose, as an infinitive: `see the change`.
    pub purpose: String,
    /// Command for a POSIX shell.
    pub command: String,
}

fn step(purpose: &str, command: String) -> SuggestedCommand {
    SuggestedCommand { purpose: purpose.to_owned(), command }
}

/// Returns the suggestions for a loop that stopped. `from` is the branch on which the loop started.
pub(super) fn next_steps(current: &Loop, invocation: &Invocation, from: &str, now: Timestamp) -> Vec<SuggestedCommand> {
    let mut steps = Vec::new();
    let id = current.id.as_str();
    let branch = quoted(&current.branch.name);
    if current.branch.pushed.is_some() {
        steps.push(step("see the change", format!("git diff {}...{branch}", quoted(from))));
    }
    if current.state == LoopState::Review {
        steps.push(step("take it over", format!("git merge {branch}")));
    }
    if !invocation.lasting {
        return steps;
    }
    let guide = " --guide 'TEXT'";
    match current.state {
        LoopState::Review => steps.push(step("ask for more", invocation.resume(id, guide))),
        LoopState::NeedsCriteria => {
            steps.push(step("name a check", invocation.resume(id, " --check 'COMMAND'")));
        }
        LoopState::NeedsApproval => {
            steps.push(step("approve the plan", invocation.resume(id, "")));
            steps.push(step("approve it with changes", invocation.resume(id, guide)));
        }
        LoopState::NeedsAnswer => steps.push(step("approve the plan with answers", invocation.resume(id, guide))),
        state if state.is_open() => {
            if !current.open_findings().is_empty() {
                steps.push(step("accept the changes to tests", invocation.resume(id, " --accept-tests")));
            }
            let raised = raised_limit(current, now);
            steps.push(step("continue", invocation.resume(id, &raised)));
            steps.push(step("continue with guidance", invocation.resume(id, &format!("{raised}{guide}"))));
        }
        _ => {}
    }
    steps
}

/// Returns the options that raise the limit which the loop reached; empty if it reached none.
fn raised_limit(current: &Loop, now: Timestamp) -> String {
    let limits = &current.limits;
    match current.exhausted_limit(now) {
        Some(LoopLimit::Iterations) => format!(" --max-iterations {}", limits.iterations.plus(5)),
        Some(LoopLimit::Time) => format!(" --timeout {}m", limits.time_ms / 60_000 + 60),
        Some(_) => format!(" --budget {:.2}", Money(limits.cost.0.saturating_mul(2)).usd()),
        None => String::new(),
    }
}

/// Quotes a word for a POSIX shell where it is needed.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
