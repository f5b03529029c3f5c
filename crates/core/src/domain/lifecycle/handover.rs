//! Handover for review: after the checks passed, the commit is verified in a fresh checkout, the operator's hooks run, and the
//! pull request is marked as ready.

use super::next_iteration::next_iteration;
use super::{StepContext, hooks, refusals};
use crate::domain::lifecycle::effect::{CheckPurpose, ForgeEffect, WorkEffect};
use crate::domain::loops::{LoopState, LoopStep, remark_of};
use crate::domain::model::hook::HookEvent;
use crate::domain::report;

/// Runs the checks of the head in a fresh checkout.
pub(super) fn verify(turn: &mut StepContext) {
    let Some(commit) = turn.next.branch.head.clone() else {
        return turn.because("there is nothing to verify");
    };
    turn.work(LoopStep::Verify, |ticket| WorkEffect::Check { ticket, purpose: CheckPurpose::Clean, commit });
}

/// Hands verified work over for review, if the hooks allow it.
pub(super) fn before_ready(turn: &mut StepContext) {
    if !hooks::ask(turn, HookEvent::BeforeReady) {
        ready(turn);
    }
}

/// Hands verified work over for review.
pub(super) fn ready(turn: &mut StepContext) {
    // Requests of people during the hooks are work, too.
    if turn.next.requests.has_open() || turn.next.branch.verified != turn.next.branch.head {
        return next_iteration(turn);
    }
    if refusals::pauses_without_pull(turn) {
        return;
    }
    turn.next.supervision.opinions.before = None;
    turn.go(LoopState::Review, "every check passed in a fresh checkout");
    let reviewers = turn.next.reviewers();
    turn.push(ForgeEffect::Pull { ready: true, reviewers });
    if let Some(commit) = turn.next.branch.pushed.clone() {
        // Remarks that have an answer are left alone when the effect is executed.
        let answers = turn.next.pull.reviews_seen.iter().filter_map(|key| remark_of(key));
        let answer =
            |comment| ForgeEffect::AnswerRemark { comment, commit: commit.clone(), applied: false, again: 0 }.into();
        let answers = answers.map(answer);
        turn.effects.extend(answers.collect::<Vec<_>>());
    }
    let key = format!("done/{}", turn.next.spent.iterations);
    let view = report::completion(&turn.next, turn.now);
    turn.next.pull.proposals.clear();
    turn.comment(&key, view);
    // CI may have failed before this, or may fail without an event.
    if let Some(commit) = turn.next.branch.pushed.clone() {
        turn.push(ForgeEffect::Inspect { commit, base_moved: false });
    }
}
