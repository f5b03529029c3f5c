//! CI of the pull request, and conflicts with its base. If CI fails, the pull request becomes a draft again and the agent gets
//! the failures. Failures that the base has as well, and those that a second run does not repeat, are handled separately.

use super::{StepContext, judge};
use crate::domain::lifecycle::effect::ForgeEffect;
use crate::domain::loops::{
    BranchMerge, CiInspection, EscalationCause, FailedCi, Guidance, GuidanceSource, LoopState, MergeWith, check_names,
};
use crate::domain::model::ids::Sha;

/// Continues the loop if CI failed for the head of the pull request, or if the pull request conflicts with its base.
pub(super) fn inspected(turn: &mut StepContext, seen: &CiInspection) {
    let CiInspection { commit, failed, on_base, pending, conflict, .. } = seen;
    if turn.next.branch.pushed.as_ref() != Some(commit) || !turn.next.reads_ci() {
        return turn.because("CI reported on a commit other than the one in review");
    }
    if *conflict && turn.next.state == LoopState::Review && turn.next.branch.merge.is_none() {
        turn.next.branch.merge = Some(BranchMerge::wanted(MergeWith::Base));
        return turn.another_round("the branch conflicts with its base");
    }
    if *pending > 0 {
        return turn.because("CI has not finished");
    }
    let names = failed.iter().map(name);
    if turn.next.pull.failed_ci.as_ref().is_some_and(|known| known.is_about(commit, names)) {
        return turn.because("this failure of CI is known");
    }
    let (found, on_head) = partition(commit, failed, on_base);
    if on_head.is_empty() { passed(turn, found) } else { failed_on_head(turn, found, on_head) }
}

/// Separates failed checks that also fail on the base. Returns the failed CI and the failures that concern the agent.
pub(super) fn partition(commit: &Sha, failed: &[Guidance], on_base: &[String]) -> (FailedCi, Vec<Guidance>) {
    let (on_base, on_head): (Vec<_>, Vec<_>) =
        failed.iter().cloned().partition(|one| on_base.iter().any(|base| base == name(one)));
    let names = |list: &[Guidance]| list.iter().map(|one| name(one).to_owned()).collect::<Vec<_>>();
    let found = FailedCi { commit: commit.clone(), names: names(&on_head), on_base: names(&on_base) };
    (found, on_head)
}

fn name(failure: &Guidance) -> &str {
    failure.path.as_deref().unwrap_or_default()
}

/// Passes the failures to the agent, and makes the pull request a draft again.
fn failed_on_head(turn: &mut StepContext, found: FailedCi, failures: Vec<Guidance>) {
    let why = format!("CI failed on the pull request: {}", check_names(&found.names));
    turn.next.pull.failed_ci = Some(found);
    turn.next.branch.verified = None;
    if turn.next.state == LoopState::Paused {
        // People decide about the newest result.
        turn.because(why);
        return turn.push(ForgeEffect::Status { fresh: false });
    }
    turn.next.requests.guidance.retain(|one| one.source != GuidanceSource::Ci);
    turn.next.requests.guidance.extend(failures);
    turn.push(ForgeEffect::DraftPull);
    if turn.next.state == LoopState::Review {
        return turn.another_round(&why);
    }
    turn.because(format!("{why}; the next iteration gets the failures"));
    turn.push(ForgeEffect::Status { fresh: false });
}

/// Handles CI without failures of the loop's own: every check passed, or the failed checks also fail on the base.
fn passed(turn: &mut StepContext, found: FailedCi) {
    let was_red = turn.next.red_ci().is_some();
    let on_base = Some(found).filter(|found| !found.on_base.is_empty());
    let names = on_base.as_ref().map(|found| check_names(&found.on_base));
    if names.is_none() && turn.next.pull.failed_ci.is_none() {
        return turn.because("CI requires no change");
    }
    turn.next.pull.failed_ci = on_base;
    let message = match names {
        Some(names) => format!("CI fails on the base, too: {names}"),
        None => "CI passed at a re-run".to_owned(),
    };
    if was_red {
        turn.next.requests.guidance.retain(|one| one.source != GuidanceSource::Ci);
    }
    match turn.next.state {
        LoopState::Paused if was_red && turn.next.run.escalated == Some(EscalationCause::Ci) => {
            judge::resumed(turn, "CI");
            turn.queue(&message);
        }
        LoopState::Review | LoopState::Queued | LoopState::Waiting => {
            let why = if turn.next.state == LoopState::Review {
                format!("every check passed in a fresh checkout; {message}")
            } else {
                message
            };
            turn.next.why.clone_from(&why);
            turn.because(why);
            turn.push(ForgeEffect::Status { fresh: false });
        }
        _ => turn.because(message),
    }
}

/// Pauses the loop and asks people if the CI of the verified head failed and the last iteration changed nothing about it. Returns
/// whether it did.
pub(super) fn asks_about_red(turn: &mut StepContext) -> bool {
    let Some(red) = turn.next.red_ci() else { return false };
    let why =
        format!("CI fails on the pull request, and the last iteration changed nothing: {}", check_names(&red.names));
    let advice = "if the failure is not the change's, run CI again; the loop continues when it passes. \
        `/ralph resume` with guidance gives the failures to the agent again";
    turn.pause_and_ask(&why, EscalationCause::Ci, advice);
    true
}

impl StepContext {
    /// Passes the CI failures of the head to the agent again, after a person resumed the loop.
    pub(super) fn repeat_ci_failures(&mut self) {
        let has_guidance = self.next.requests.guidance.iter().any(|one| one.source == GuidanceSource::Ci);
        if self.next.red_ci().is_some() && !has_guidance {
            let failures = self.next.told_ci_failures();
            self.next.requests.guidance.extend(failures);
        }
    }
}
