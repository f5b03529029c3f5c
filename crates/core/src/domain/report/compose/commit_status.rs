//! Status of the branch's commit, which forges display beside the commit.

use super::{counts, sentence};
use crate::domain::loops::{Loop, LoopState};
use crate::domain::report::view::{CommitState, CommitStatusView};

/// Returns the status of the branch's commit. `None` if no commit was pushed, or if the pull request was merged.
pub fn commit_status(current: &Loop) -> Option<CommitStatusView> {
    let commit = current.branch.pushed.clone()?;
    let is_verified = current.branch.verified.as_ref() == Some(&commit);
    let (passed, all) = counts(current.latest_checks(), current);
    let stopped = |word: &str| sentence(&format!("{word}: {}", current.why));
    let (state, title) = match current.state {
        LoopState::Merged => return None,
        LoopState::Queued => (CommitState::Queued, "Waits for a free slot.".to_owned()),
        LoopState::NeedsCriteria => (CommitState::Queued, "Waits for a check that measures completion.".to_owned()),
        LoopState::NeedsConfirm => (CommitState::Queued, "Waits for a confirmation of the task.".to_owned()),
        LoopState::NeedsApproval | LoopState::NeedsAnswer => {
            (CommitState::Queued, "Waits for the approval of its plan.".to_owned())
        }
        LoopState::Waiting => (CommitState::Queued, "Waits for its backend.".to_owned()),
        LoopState::Review if is_verified => {
            (CommitState::Success, format!("All {all} checks pass in a fresh checkout."))
        }
        LoopState::Running | LoopState::Review => {
            let iteration = current.limits.iterations.progress(current.spent.iterations.max(1));
            let completion = current.completion().whole_percent();
            let title = format!("Iteration {iteration}: {passed} of {all} checks pass, completion {completion} %.");
            (CommitState::Running, title)
        }
        LoopState::Paused => (CommitState::Failure, stopped("paused")),
        LoopState::LimitReached => (CommitState::Failure, stopped("limit reached")),
        LoopState::Failed => (CommitState::Failure, stopped("failed")),
        LoopState::Closed => (CommitState::Cancelled, stopped("closed")),
        LoopState::Aborted => (CommitState::Cancelled, stopped("aborted")),
    };
    let url = current.pull.opened.as_ref().map_or(&current.task.url, |pull| &pull.url).clone();
    Some(CommitStatusView { commit, state, title, url })
}
