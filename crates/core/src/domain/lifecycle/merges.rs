//! Merging of the pull request by the forge, at the request of a maintainer. The bot never bypasses a rule: it passes the request
//! on when the pull request is ready and its CI has passed, and the forge merges once its own rules are satisfied. If the pull
//! request is no longer ready, the request is withdrawn, so that a later commit is not merged without a new request.

use super::StepContext;
use crate::domain::lifecycle::effect::ForgeEffect;
use crate::domain::loops::{CiInspection, CiProgress, LoopState, MergeAnswer, MergeWish, check_names};
use crate::domain::model::ids::{Number, Sha, User};
use crate::domain::report;

/// Time for CI to start on a pull request that became ready, in milliseconds, if neither workflows nor the base's checks show that
/// the repository has CI.
pub(super) const CI_BEGINS_MS: i64 = 120_000;

/// First interval before the service repeats a request to a forge that may lose it, in milliseconds. Later intervals equal the
/// time since the request, which limits the number of requests while the pull request waits for an approval.
pub(super) const ASK_AGAIN_MS: i64 = 180_000;
/// Maximum interval for asking the forge again, in milliseconds.
const ASK_AGAIN_MAX_MS: i64 = 3_600_000;

/// Stores the request of a maintainer. If the pull request is ready, reads its CI.
pub(super) fn wish(turn: &mut StepContext, by: User, on: Number) {
    turn.because(format!("{} asked for a merge when it is ready", by.login));
    let known = turn.next.pull.merge_wish.as_ref();
    let (accepted, ask_again) = known.map_or((false, None), |wish| (wish.accepted, wish.ask_again));
    turn.next.pull.merge_wish = Some(MergeWish { by, on, since: turn.now, accepted, ask_again });
    if let Some(commit) = turn.next.branch.pushed.clone().filter(|_| turn.next.state == LoopState::Review) {
        turn.push(ForgeEffect::Inspect { commit, base_moved: false });
    }
    turn.push(ForgeEffect::Status { fresh: false });
}

/// Withdraws the request of a maintainer, also on the forge.
pub(super) fn withdraw(turn: &mut StepContext, why: &str) {
    turn.next.pull.merge_wish = None;
    turn.because(format!("the merge is withdrawn: {why}"));
    revoke(turn);
    turn.push(ForgeEffect::Status { fresh: false });
}

fn revoke(turn: &mut StepContext) {
    if turn.next.pull.merge_ordered.is_some() {
        turn.push(ForgeEffect::WithdrawMerge);
    }
}

/// Handles a change of the loop's state. If the pull request is no longer ready, the request is withdrawn. A request that was
/// made before the pull request became ready is kept.
pub(super) fn changed(turn: &mut StepContext, from: LoopState, to: LoopState, why: &str) {
    if let (LoopState::Review, Some(wish)) = (to, turn.next.pull.merge_wish.as_mut()) {
        wish.since = turn.now;
    }
    if from != LoopState::Review || matches!(to, LoopState::Review | LoopState::Merged) {
        return;
    }
    if let Some(wish) = turn.next.pull.merge_wish.take()
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

/// Passes the request on to the forge if the pull request is ready and its CI has passed. Asks again if the forge may have
/// forgotten the request.
pub(super) fn looked(turn: &mut StepContext, seen: &CiInspection) {
    let ready = turn.next.state == LoopState::Review && turn.next.branch.pushed.as_ref() == Some(&seen.commit);
    let Some(wish) = turn.next.pull.merge_wish.as_mut().filter(|_| ready && seen.is_green()) else { return };
    if let Some(ordered) = &turn.next.pull.merge_ordered {
        if *ordered == seen.commit && wish.ask_again.is_some_and(|at| turn.now >= at) {
            wish.ask_again = None;
            turn.because("the forge has not merged the pull request, although CI has passed: the service asks again");
            turn.push(ForgeEffect::MergeWhenReady { commit: seen.commit.clone() });
        }
        return;
    }
    let (waited, on, progress) = (turn.now.since(wish.since), wish.on, &seen.progress);
    if !progress.awaited.is_empty() && waited < turn.next.settings.policy.ci_wait_ms() {
        return turn.because(format!("the merge waits for CI to start: {}", check_names(&progress.awaited)));
    }
    if !progress.begun && waited < turn.next.settings.policy.ci_wait_ms().min(CI_BEGINS_MS) {
        return turn.because("the merge waits for CI to start");
    }
    if !progress.skipped.is_empty() || !progress.awaited.is_empty() {
        let key = format!("merge-unrun/{}", seen.commit.short());
        turn.comment_on(on, &key, report::reply(true, unrun_lines(progress)));
    }
    turn.next.pull.merge_ordered = Some(seen.commit.clone());
    turn.push(ForgeEffect::MergeWhenReady { commit: seen.commit.clone() });
}

/// Returns the sentences about checks that never ran on a commit that is merged.
fn unrun_lines(progress: &CiProgress) -> Vec<String> {
    let mut lines = Vec::new();
    if !progress.skipped.is_empty() {
        lines.push(format!(
            "CI passed, but these jobs never ran (skipped or neutral): {}.",
            check_names(&progress.skipped)
        ));
    }
    if !progress.awaited.is_empty() {
        lines.push(format!("These have not started within the wait for CI: {}.", check_names(&progress.awaited)));
    }
    lines.push("The merge was requested anyway; `/ralph merge-when-ready off` withdraws it.".to_owned());
    lines
}

/// Handles the forge's answer to the request.
pub(super) fn answered(turn: &mut StepContext, commit: &Sha, answer: MergeAnswer) {
    let wanted = turn.next.state == LoopState::Review && turn.next.branch.pushed.as_ref() == Some(commit);
    let accepted = turn.next.pull.merge_wish.as_ref().is_some_and(|wish| wish.accepted);
    match answer {
        MergeAnswer::Accepted | MergeAnswer::MayForget => {
            let Some(wish) = turn.next.pull.merge_wish.as_mut().filter(|_| wanted) else {
                // It was withdrawn while the forge was asked.
                turn.next.pull.merge_ordered = Some(commit.clone());
                turn.because("the forge accepted a merge that was withdrawn meanwhile");
                return turn.push(ForgeEffect::WithdrawMerge);
            };
            wish.accepted = true;
            let forgets = answer == MergeAnswer::MayForget;
            let after = turn.now.since(wish.since).clamp(ASK_AGAIN_MS, ASK_AGAIN_MAX_MS);
            wish.ask_again = forgets.then(|| turn.now.plus_ms(after));
            turn.because("the forge merges the pull request once its rules are satisfied");
        }
        MergeAnswer::NotYet { why } => {
            turn.next.pull.merge_ordered = None;
            return turn.because(format!("the merge waits: {why}"));
        }
        MergeAnswer::Refused { why, advice } => {
            turn.because(format!("the forge does not merge: {why}"));
            if accepted {
                revoke(turn);
            } else {
                turn.next.pull.merge_ordered = None;
            }
            let Some(wish) = turn.next.pull.merge_wish.take() else { return };
            let lines = vec![format!("The pull request is not merged when it is ready: {why}."), format!("{advice}.")];
            let key = format!("merge-refused/{}", turn.next.version);
            turn.comment_on(wish.on, &key, report::reply(false, lines));
        }
    }
    turn.push(ForgeEffect::Status { fresh: false });
}

/// Handles that the forge will no longer merge the pull request.
pub(super) fn withdrawn(turn: &mut StepContext) {
    turn.next.pull.merge_ordered = None;
    turn.because("the forge does not merge the pull request by itself");
}
