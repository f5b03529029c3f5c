//! Merging by the forge, where a maintainer asked for it. The bot never merges past a rule: it hands over a pull request that is
//! ready and whose CI has passed, and the forge merges it when its own rules are satisfied. What makes the pull request unready
//! withdraws it, so that nobody's merge takes in a commit that came later.

use super::StepContext;
use super::ci::Inspection;
use crate::domain::lifecycle::effect::Effect;
use crate::domain::loops::{LoopState, MergeAnswer, MergeWish};
use crate::domain::model::ids::{Number, Sha, User};
use crate::domain::report;

/// Time that CI gets to begin on a pull request that became ready, in milliseconds. After it, a commit without any CI counts as
/// one of a repository without CI.
pub(super) const CI_BEGINS_MS: i64 = 120_000;

/// Time after which a forge that may forget a merge is asked again, in milliseconds. Later it is the time since the wish, so that
/// a pull request that waits for an approval is not asked about without end.
pub(super) const ASK_AGAIN_MS: i64 = 180_000;
/// Maximum of that time, in milliseconds.
const ASK_AGAIN_MAX_MS: i64 = 3_600_000;

/// Keeps the wish of a maintainer, and looks at CI if the pull request is ready.
pub(super) fn wish(turn: &mut StepContext, by: User, on: Number) {
    turn.because(format!("{} asked for a merge when it is ready", by.login));
    let known = turn.next.merge_wish.as_ref();
    let (accepted, ask_again) = known.map_or((false, None), |wish| (wish.accepted, wish.ask_again));
    turn.next.merge_wish = Some(MergeWish { by, on, since: turn.now, accepted, ask_again });
    if let Some(commit) = turn.next.pushed.clone().filter(|_| turn.next.state == LoopState::Review) {
        turn.effects.push(Effect::Inspect { commit, base_moved: false });
    }
    turn.effects.push(Effect::Status { fresh: false });
}

/// Withdraws the wish, and the order if the forge has one.
pub(super) fn withdraw(turn: &mut StepContext, why: &str) {
    turn.next.merge_wish = None;
    turn.because(format!("the merge is withdrawn: {why}"));
    revoke(turn);
    turn.effects.push(Effect::Status { fresh: false });
}

fn revoke(turn: &mut StepContext) {
    if turn.next.merge_ordered.is_some() {
        turn.effects.push(Effect::WithdrawMerge);
    }
}

/// Handles a change of the loop's state. A pull request that is no longer ready is not merged: a wish that was given before it
/// became ready stays.
pub(super) fn changed(turn: &mut StepContext, from: LoopState, to: LoopState, why: &str) {
    if let (LoopState::Review, Some(wish)) = (to, turn.next.merge_wish.as_mut()) {
        wish.since = turn.now;
    }
    if from != LoopState::Review || matches!(to, LoopState::Review | LoopState::Merged) {
        return;
    }
    if let Some(wish) = turn.next.merge_wish.take()
        && to.is_open()
    {
        let lines = vec![
            format!("The merge that {} asked for is withdrawn: {}.", wish.by.login, why.trim_end_matches('.')),
            "Comment `/ralph merge-when-ready` again to merge the next state once it is ready.".to_owned(),
        ];
        let key = format!("merge-withdrawn/{}", turn.next.version);
        turn.comment_on(wish.on, &key, report::reply(false, lines));
    }
    revoke(turn);
}

/// Asks the forge for the merge if somebody wants it and CI of the ready pull request has passed; again if it may have forgotten it.
pub(super) fn looked(turn: &mut StepContext, seen: &Inspection) {
    let ready = turn.next.state == LoopState::Review && turn.next.pushed.as_ref() == Some(&seen.commit);
    let Some(wish) = turn.next.merge_wish.as_mut().filter(|_| ready && seen.is_green()) else { return };
    if let Some(ordered) = &turn.next.merge_ordered {
        if *ordered == seen.commit && wish.ask_again.is_some_and(|at| turn.now >= at) {
            wish.ask_again = None;
            turn.because("the forge has not merged the pull request, although CI has passed: it is asked again");
            turn.effects.push(Effect::MergeWhenReady { commit: seen.commit.clone() });
        }
        return;
    }
    if seen.passed == 0 && turn.now.since(wish.since) < CI_BEGINS_MS {
        return turn.because("the merge waits for CI to begin");
    }
    turn.next.merge_ordered = Some(seen.commit.clone());
    turn.effects.push(Effect::MergeWhenReady { commit: seen.commit.clone() });
}

/// Handles the answer of the forge.
pub(super) fn answered(turn: &mut StepContext, commit: &Sha, answer: MergeAnswer) {
    let wanted = turn.next.state == LoopState::Review && turn.next.pushed.as_ref() == Some(commit);
    let accepted = turn.next.merge_wish.as_ref().is_some_and(|wish| wish.accepted);
    match answer {
        MergeAnswer::Accepted | MergeAnswer::MayForget => {
            let Some(wish) = turn.next.merge_wish.as_mut().filter(|_| wanted) else {
                // It was withdrawn while the forge was asked.
                turn.next.merge_ordered = Some(commit.clone());
                turn.because("the forge accepted a merge that was withdrawn meanwhile");
                return turn.effects.push(Effect::WithdrawMerge);
            };
            wish.accepted = true;
            let forgets = answer == MergeAnswer::MayForget;
            let after = turn.now.since(wish.since).clamp(ASK_AGAIN_MS, ASK_AGAIN_MAX_MS);
            wish.ask_again = forgets.then(|| turn.now.plus_ms(after));
            turn.because("the forge merges the pull request once its rules are satisfied");
        }
        MergeAnswer::NotYet { why } => {
            turn.next.merge_ordered = None;
            return turn.because(format!("the merge waits: {why}"));
        }
        MergeAnswer::Refused { why, advice } => {
            turn.because(format!("the forge does not merge: {why}"));
            if accepted {
                revoke(turn);
            } else {
                turn.next.merge_ordered = None;
            }
            let Some(wish) = turn.next.merge_wish.take() else { return };
            let lines = vec![format!("The pull request is not merged when it is ready: {why}."), format!("{advice}.")];
            let key = format!("merge-refused/{}", turn.next.version);
            turn.comment_on(wish.on, &key, report::reply(false, lines));
        }
    }
    turn.effects.push(Effect::Status { fresh: false });
}

/// Handles that the forge no longer merges the pull request.
pub(super) fn withdrawn(turn: &mut StepContext) {
    turn.next.merge_ordered = None;
    turn.because("the forge does not merge the pull request by itself");
}
