//! Hooks of the operator: runs them as work of the loop, and handles their objections.

use super::StepContext;
use super::waits::give_back;
use crate::domain::lifecycle::effect::WorkEffect;
use crate::domain::loops::{EscalationCause, HookQuestion, Loop, LoopState, LoopStep, LoopStopReason};
use crate::domain::model::hook::{HookEvent, HookObjection};
use crate::domain::model::ids::Sha;

/// Returns the step in which the hooks of an event run; `None` if the loop does not wait for them.
fn step_of(event: HookEvent) -> Option<LoopStep> {
    match event {
        HookEvent::BeforeAgent => Some(LoopStep::HooksBeforeAgent),
        HookEvent::AfterIteration => Some(LoopStep::HooksAfterIteration),
        HookEvent::BeforeReady => Some(LoopStep::HooksBeforeReady),
        HookEvent::AfterEnd => None,
    }
}

/// Runs the hooks of an event. Returns `false` if there are no such hooks, so that the loop continues at once.
pub(super) fn ask(turn: &mut StepContext, event: HookEvent) -> bool {
    let Some(step) = step_of(event).filter(|_| turn.next.settings.policy.has_hooks(event)) else { return false };
    turn.work(step, |ticket| WorkEffect::Hooks { ticket, event });
    true
}

/// Runs the hooks for the end of the loop's work. The loop does not wait for them.
pub(super) fn inform(turn: &mut StepContext, state: LoopState) {
    let ends = matches!(state, LoopState::Review | LoopState::LimitReached | LoopState::Failed) || !state.is_open();
    if ends && turn.next.settings.policy.has_hooks(HookEvent::AfterEnd) {
        turn.push(WorkEffect::HooksAfterEnd { version: turn.next.version });
    }
}

/// Consequence of the hooks' verdicts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HookConsequence {
    /// The loop continues.
    Proceed,
    /// Another iteration follows, whose prompt contains this text.
    Iterate(String),
    /// The loop waits for a person, or the verdicts are outdated and nothing changed.
    Stay,
}

/// Updates a hook's question about the next agent run after the best state was restored for a pause. The question then refers to
/// the restored state, so that resuming the loop answers it.
pub(super) fn put_back(next: &mut Loop, commit: &Sha) {
    let paused = next.run.halting.as_ref().map(|halting| &halting.then);
    let asks = matches!(paused, Some(LoopStopReason::Paused { cause: Some(EscalationCause::Hook), .. }));
    if let Some(question) = next.run.hook_question.as_mut().filter(|one| asks && one.event == HookEvent::BeforeAgent) {
        question.commit = commit.clone();
    }
}

/// Handles the verdicts of the hooks of an event. Pauses the loop if a person is needed.
pub(super) fn answered(turn: &mut StepContext, event: HookEvent, objection: Option<HookObjection>) -> HookConsequence {
    if step_of(event) != Some(turn.next.run.step) {
        turn.because("an answer of hooks that were not running was ignored");
        return HookConsequence::Stay;
    }
    let (why, advice) = match objection {
        None => return HookConsequence::Proceed,
        Some(HookObjection::Block { hook, reason }) if event != HookEvent::BeforeAgent => {
            turn.because(format!("the hook `{hook}` blocked: {reason}"));
            turn.next.branch.verified = None;
            let text = format!("The hook `{hook}` of the operator rejected the state of the work: {reason}");
            return HookConsequence::Iterate(text);
        }
        Some(HookObjection::Block { hook, reason }) => {
            let advice = "remove the cause, then `/ralph resume`: the hook runs again";
            (format!("the hook `{hook}` does not allow the next run: {reason}"), advice)
        }
        Some(HookObjection::Ask { hook, question }) => {
            let asked = turn.next.branch.head.clone().map(|commit| HookQuestion { event, hook: hook.clone(), commit });
            if asked.is_some() && turn.next.run.hook_question == asked {
                turn.because(format!("the question of the hook `{hook}` was answered by resuming the loop"));
                return HookConsequence::Proceed;
            }
            turn.next.run.hook_question = asked;
            let advice = "`/ralph resume` answers yes; text after it is guidance for the next run";
            (format!("the hook `{hook}` asks: {question}"), advice)
        }
        Some(HookObjection::Broken { hook, problem }) => {
            let advice = "the operator has to fix the hook; then `/ralph resume` runs it again";
            (format!("the hook `{hook}` gave no verdict: {problem}"), advice)
        }
    };
    if event == HookEvent::BeforeAgent && turn.next.current().is_some_and(|current| current.attempt == 1) {
        give_back(turn);
    }
    turn.pause_and_ask(&why, EscalationCause::Hook, advice);
    HookConsequence::Stay
}
