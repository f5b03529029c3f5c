//! Changes that the forge refused permanently. People are notified once about the missing change, the reason and the remedy. A change that is
//! refused again is not reported again, even if the forge's answer differs.

use super::StepContext;
use crate::domain::lifecycle::effect::{ChannelEffect, ForgeEffect};
use crate::domain::loops::{EscalationCause, ForgeChange, LoopState, RefusedChange};
use crate::domain::report;
use crate::domain::report::notice::Notice;

/// Reports a refused change to people. Pauses the loop if its pull request cannot be opened, or if it cannot ask for a decision.
pub(super) fn refused(turn: &mut StepContext, change: ForgeChange, detail: String) {
    let new = RefusedChange { change, detail };
    turn.because(new.sentence());
    if let Some(known) = turn.next.pull.refused.iter_mut().find(|known| known.change == change) {
        *known = new;
    } else {
        let notice = Notice::refused(&turn.next, &new, turn.now);
        turn.next.pull.refused.push(new);
        turn.push(ChannelEffect::Warn { notice: Box::new(notice) });
        if change == ForgeChange::Escalation && turn.next.state.is_open() {
            ask_at_home(turn);
        }
        turn.push(ForgeEffect::Status { fresh: false });
    }
    match (change, turn.next.state) {
        (ForgeChange::OpenPull, LoopState::Review) => {
            pauses_without_pull(turn);
        }
        (ForgeChange::Escalation, LoopState::Running | LoopState::Queued | LoopState::Waiting) => {
            turn.pause_at_best("could not ask for a decision: the forge refused to open the issue");
        }
        _ => {}
    }
}

/// Removes a refusal, because the change was made.
pub(super) fn made(turn: &mut StepContext, change: ForgeChange) {
    let before = turn.next.pull.refused.len();
    turn.next.pull.refused.retain(|known| known.change != change);
    if turn.next.pull.refused.len() == before {
        return turn.because("the forge made a change that it had not refused");
    }
    turn.because(format!("the forge made a change that it had refused before: {}", change.name()));
    turn.push(ForgeEffect::Status { fresh: false });
}

/// Asks the question in the loop's own issue, because the escalation issue cannot be opened.
fn ask_at_home(turn: &mut StepContext) {
    let Some(cause) = turn.next.run.escalated.clone() else { return };
    let view = report::escalation(&turn.next, &cause, ForgeChange::Escalation.advice(), turn.now);
    turn.comment(&format!("escalation-refused/{}", turn.next.version), report::at_home(view));
}

/// Pauses the loop and asks people if the bot could not open the pull request. Returns whether it did.
pub(super) fn pauses_without_pull(turn: &mut StepContext) -> bool {
    let refused = turn.next.pull.refused.iter().find(|known| known.change == ForgeChange::OpenPull);
    let Some(refused) = refused.filter(|_| turn.next.pull.opened.is_none()).cloned() else { return false };
    turn.pause_and_ask(&refused.sentence(), EscalationCause::PullRefused, refused.change.advice());
    true
}

/// Retries the refused changes after a person asked for it, except changes that the loop repeats without a retry.
pub(super) fn repeat(turn: &mut StepContext) {
    let refused = std::mem::take(&mut turn.next.pull.refused);
    if refused.is_empty() {
        return;
    }
    let is_refused = |change| refused.iter().any(|known: &RefusedChange| known.change == change);
    let ready = turn.next.state == LoopState::Review;
    let of_pull = [ForgeChange::OpenPull, ForgeChange::PullText, ForgeChange::ReadyPull, ForgeChange::Reviewers];
    if of_pull.into_iter().any(is_refused) {
        let reviewers = if ready { turn.next.reviewers() } else { Vec::new() };
        turn.push(ForgeEffect::Pull { ready, reviewers });
    }
    if is_refused(ForgeChange::DraftPull) {
        turn.push(ForgeEffect::DraftPull);
    }
    if is_refused(ForgeChange::WithdrawMerge) && turn.next.pull.merge_ordered.is_some() {
        turn.push(ForgeEffect::WithdrawMerge);
    }
    if is_refused(ForgeChange::StateLabel) {
        turn.push(ForgeEffect::StateLabel { state: Some(turn.next.state) });
    }
    turn.push(ForgeEffect::Status { fresh: false });
}
