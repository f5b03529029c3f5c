//! Refused pushes: because of commits by others, a deleted branch, rules of the forge, or secrets that the forge found.

use super::StepContext;
use crate::domain::loops::{BranchMerge, EscalationCause, Loop, LoopState, LoopStopReason, MergeWith, PushRefusal};
use crate::domain::model::ids::Sha;

/// Maximum number of consecutive iterations whose commits are removed because of a secret, before the loop asks people.
const MAX_TAKEN_BACK: usize = 2;

/// Handles a push that the forge rejected.
pub(super) fn rejected(turn: &mut StepContext, remote: Option<Sha>, reason: &str, refusal: &PushRefusal) {
    turn.close_open_iteration(reason);
    if turn.next.run.halting.is_some() {
        if let Some(theirs) = remote.filter(|remote| turn.next.branch.pushed.as_ref() != Some(remote)) {
            turn.next.branch.merge = Some(BranchMerge::wanted(MergeWith::Pushed(theirs.clone())));
            turn.next.branch.pushed = Some(theirs);
        }
        return turn.halt_without(reason);
    }
    match remote {
        Some(remote) if turn.next.branch.pushed.as_ref() == Some(&remote) => refused(turn, reason, refusal),
        Some(remote) => {
            let why = format!("somebody else pushed {} to `{}`", remote.short(), turn.next.branch.name);
            turn.stop(LoopState::Paused, &why);
            turn.next.branch.merge = Some(BranchMerge::wanted(MergeWith::Pushed(remote.clone())));
            turn.next.branch.pushed = Some(remote);
            turn.escalate(
                EscalationCause::BranchMoved,
                "`/ralph resume` merges their commits and continues from there",
            );
        }
        None if turn.next.branch.pushed.is_some() => {
            let why = format!("the branch `{}` was deleted on the forge", turn.next.branch.name);
            turn.stop(LoopState::Paused, &why);
            turn.next.branch.pushed = None;
            turn.escalate(
                EscalationCause::BranchDeleted,
                "`/ralph resume` pushes the work there again; `/ralph abort` ends the loop",
            );
        }
        None => refused(turn, reason, refusal),
    }
}

fn refused(turn: &mut StepContext, reason: &str, refusal: &PushRefusal) {
    let Some(sentence) = refusal.sentence(&turn.next.branch.name) else {
        // The restored state could not be pushed either.
        let (why, advice) = (format!("the push was refused: {reason}"), refusal.advice().to_owned());
        return turn.finish(LoopStopReason::Failed { why, advice }, "");
    };
    let why = format!("the push was refused: {sentence}");
    let is_secret = matches!(refusal, PushRefusal::Secrets { .. });
    if is_secret && may_take_back(&turn.next) {
        return take_back(turn, &sentence, refusal);
    }
    turn.stop(LoopState::Paused, &why);
    if let Some(text) = refusal.for_agent() {
        turn.tell_next_run(text);
    }
    let of_change = is_secret || matches!(refusal, PushRefusal::TooLarge { .. });
    let cause = if of_change { EscalationCause::BlockedChange } else { EscalationCause::PushRefused };
    turn.escalate(cause, refusal.advice());
}

/// Whether the newest commit can be removed from the branch: it is the only unpushed commit, and fewer than `MAX_TAKEN_BACK`
/// commits were removed directly before.
fn may_take_back(next: &Loop) -> bool {
    let Some(newest) = next.iterations.last().filter(|newest| !newest.discarded && !newest.merged) else {
        return false;
    };
    let only = newest.commit.is_some() && newest.commit == next.branch.head;
    let known = next.branch.pushed.as_ref().or(next.branch.base.as_ref()) == Some(&newest.parent);
    let before = next.iterations.iter().rev().skip(1).take_while(|iteration| iteration.taken_back).count();
    only && known && before < MAX_TAKEN_BACK
}

/// Removes the newest commit from the branch, so that no push contains the secret, and repeats its work.
fn take_back(turn: &mut StepContext, sentence: &str, refusal: &PushRefusal) {
    turn.drop_work();
    let Some(newest) = turn.next.iterations.last_mut() else { return };
    let parent = newest.parent.clone();
    (newest.commit, newest.tree, newest.taken_back) = (None, None, true);
    let guidance = newest.guidance.clone();
    turn.next.branch.head = Some(parent);
    turn.next.agent.session = None;
    // The next run has the same requests.
    turn.next.requests.guidance.splice(0..0, guidance);
    if let Some(text) = refusal.for_agent() {
        turn.tell_next_run(text);
    }
    turn.another_round(&format!("{sentence}; the commit was taken out of the branch"));
}
