//! Remaining work on a loop's newest commit.

use super::StepContext;
use crate::domain::loops::Loop;
use crate::domain::model::ids::Sha;

/// Whether every check passed on the newest commit, the commit is pushed, and no further changes were requested.
pub(super) fn only_verification_is_left(next: &Loop) -> bool {
    let held = next.retained_iterations().next_back().is_some_and(|last| {
        let at_head = last.commit.as_ref().unwrap_or(&last.parent);
        last.checks.all_hold() && next.branch.head.as_ref() == Some(at_head)
    });
    nobody_wants_more(next) && held
}

/// Whether the branch has commits, all of them are pushed, and no further changes were requested.
pub(super) fn nobody_wants_more(next: &Loop) -> bool {
    let unasked = !next.requests.has_open() && next.branch.merge.is_none() && next.run.pause_wanted.is_none();
    unasked
        && next.branch.head.is_some()
        && next.branch.head != next.branch.base
        && next.branch.head == next.branch.pushed
}

/// Returns the head if it is an iteration's commit that was not pushed, because the push was rejected or interrupted.
pub(super) fn unpushed(turn: &StepContext) -> Option<Sha> {
    let head = turn.next.branch.head.as_ref().filter(|head| turn.next.branch.pushed.as_ref() != Some(*head))?;
    let counts = turn.next.current().is_some_and(|last| !last.discarded);
    (counts && turn.next.retained_iterations().any(|i| i.commit.as_ref() == Some(head))).then(|| head.clone())
}
