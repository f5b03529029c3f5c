//! Selection of the checks and facts of a task from their sources: options, issue, repository's file, detection.

use super::StepContext;
use crate::domain::checks::criteria;
use crate::domain::loops::{EscalationCause, Loop, LoopState, TaskStatements};
use crate::domain::model::event::names_label;
use crate::domain::model::stated_facts::StatedFacts;
use crate::domain::model::task::{Check, CheckSource};
use crate::domain::report;

/// Selects the checks and adopts the stated facts, until the first check has run. Returns `false` if the issue's `ralph` block is
/// invalid, so that the loop waits for a valid one.
pub(super) fn choose(turn: &mut StepContext, detected: Vec<Check>) -> bool {
    let next = &mut turn.next;
    if !next.checks.list.is_empty() && next.checks.baseline.is_some() {
        return true;
    }
    let given = !next.checks.list.is_empty() && !next.settings.options.checks.is_empty();
    // The text of an author without write access states nothing.
    let issue = match next.task.author_trusted {
        true => criteria::from_issue_with_facts(next.task.text.parts()),
        false => Ok(Default::default()),
    };
    let (checks, facts) = match issue {
        Ok(found) => found,
        // The issue's checks are not used.
        Err(_) if given => Default::default(),
        Err(problem) => {
            turn.go(LoopState::NeedsCriteria, "the issue's completion criteria are invalid");
            let view = report::needs_criteria(&turn.next, &[problem.to_string()]);
            turn.comment(&format!("criteria/{}", turn.next.version), view);
            return false;
        }
    };
    next.take_statements(facts);
    if given {
        return true;
    }
    let commands = next.settings.options.to_checks();
    let detected = if next.settings.policy.detect_checks { detected } else { Vec::new() };
    let (checks, from) = criteria::choose(commands, checks, next.settings.policy.checks.clone(), detected);
    next.checks.source = (!checks.is_empty()).then_some(from);
    next.checks.list = checks;
    true
}

/// Handles checks that all pass before any change. If the checks were stated for this task, the task is already done. Checks of
/// the repository do not show completion, so the loop asks people for another check.
pub(super) fn hold_before_any_change(turn: &mut StepContext) {
    let flaky = turn.next.flaky_checks();
    if !flaky.is_empty() {
        let why = format!("{} failed at the base once and passed on a second run: flaky", quoted(&flaky));
        return ask_for_others(turn, &why);
    }
    if matches!(turn.next.checks.source, Some(CheckSource::Command | CheckSource::Issue)) {
        return turn.end(LoopState::Closed, "every check already passes, before any change");
    }
    ask_for_others(turn, "every check passes before any change, so none shows when the task is done");
}

/// Asks for another check if every check passes although the branch has no change and no more work was requested. Returns whether it
/// did.
pub(super) fn pass_without_change(turn: &mut StepContext) -> bool {
    let next = &turn.next;
    let wants_more = next.requests.has_open() || next.branch.merge.is_some() || next.run.pause_wanted.is_some();
    let holds = next.current().is_some_and(|current| current.checks.all_hold());
    let failed = next.checks.baseline_report().is_some_and(|start| !start.all_hold());
    if wants_more || !holds || !failed || !next.is_unchanged() {
        return false;
    }
    let flaky = quoted(&next.flaky_checks());
    ask_for_others(turn, &format!("{flaky} failed at the base once and passes now without any change: flaky"));
    true
}

/// Asks people for a check, because there is none. The request lists the proposals.
pub(super) fn ask_for_any(turn: &mut StepContext) {
    turn.go(LoopState::NeedsCriteria, "no check was found");
    let view = report::needs_criteria(&turn.next, &[]);
    turn.comment(&format!("criteria/{}", turn.next.version), view);
}

/// Asks people for a check that shows when the task is done.
fn ask_for_others(turn: &mut StepContext, why: &str) {
    turn.go(LoopState::NeedsCriteria, why);
    let view = report::needs_criteria(&turn.next, &[]);
    turn.comment(&format!("criteria/{}", turn.next.version), view);
    // They are chosen and run again when the loop continues.
    turn.next.checks.baseline = None;
}

/// Pauses verified work if a check failed in an earlier fresh checkout of the same commit, unless people were already asked about
/// it. Returns whether it did.
pub(super) fn asks_about_flaky(turn: &mut StepContext) -> bool {
    let failed = turn.next.failed_in_fresh_checkout();
    let asked = turn.next.checks.guard.asked_about_flaky.is_some()
        && turn.next.checks.guard.asked_about_flaky == turn.next.branch.head;
    if failed.is_empty() || asked {
        return false;
    }
    let why = format!("{} failed once and passed once in fresh checkouts of the same commit: flaky", quoted(failed));
    turn.next.checks.guard.asked_about_flaky = turn.next.branch.head.clone();
    turn.next.branch.verified = None;
    let advice = "`/ralph resume` verifies it once more and accepts the result; \
                  `/ralph resume --check \"COMMAND\"` verifies by another check; text after it is guidance for the agent";
    turn.pause_and_ask(&why, EscalationCause::FlakyCheck, advice);
    true
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Loop {
    /// Adopts the facts that the repository's file states, for every task and by label, and the issue's facts.
    fn take_statements(&mut self, issue: StatedFacts) {
        let named = self.settings.policy.task_labels.iter().filter(|(name, _)| names_label(&self.task.labels, name));
        let labels = named.fold(StatedFacts::default(), |sum, (_, facts)| sum.and(facts));
        let plan = std::mem::take(&mut self.knowledge.stated.plan);
        self.knowledge.stated = TaskStatements { plan, issue, labels, file: self.settings.policy.task.clone() };
    }
}
