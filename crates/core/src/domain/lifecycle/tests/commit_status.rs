//! Titles of the commit's status by state.

use super::*;
use crate::domain::report::commit_status;
use crate::domain::report::view::CommitState;

#[test]
fn title_of_each_state_names_wait_or_progress() {
    let shown = |state: LoopState| {
        let mut run = LoopRun::in_state(LoopState::Review);
        run.current.state = state;
        run.current.branch.verified = None;
        run.current.why = "the reason".to_owned();
        commit_status(&run.current).map(|view| (view.state, view.title))
    };
    let of = |state, title: &str| Some((state, title.to_owned()));
    assert_eq!(shown(LoopState::Queued), of(CommitState::Queued, "Waits for a free slot."));
    assert_eq!(shown(LoopState::Waiting), of(CommitState::Queued, "Waits for its backend."));
    let criteria = "Waits for a check that measures completion.";
    assert_eq!(shown(LoopState::NeedsCriteria), of(CommitState::Queued, criteria));
    assert_eq!(shown(LoopState::NeedsConfirm), of(CommitState::Queued, "Waits for a confirmation of the task."));
    for state in [LoopState::NeedsApproval, LoopState::NeedsAnswer] {
        assert_eq!(shown(state), of(CommitState::Queued, "Waits for the approval of its plan."));
    }
    assert_eq!(shown(LoopState::Paused), of(CommitState::Failure, "Paused: the reason."));
    assert_eq!(shown(LoopState::LimitReached), of(CommitState::Failure, "Limit reached: the reason."));
    assert_eq!(shown(LoopState::Failed), of(CommitState::Failure, "Failed: the reason."));
    assert_eq!(shown(LoopState::Closed), of(CommitState::Cancelled, "Closed: the reason."));
    assert_eq!(shown(LoopState::Aborted), of(CommitState::Cancelled, "Aborted: the reason."));
    assert_eq!(shown(LoopState::Merged), None);
}

#[test]
fn title_of_running_work_has_iteration_checks_and_completion() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.current.state = LoopState::Running;
    run.current.branch.verified = None;
    let (most, all) = (run.current.limits.iterations, run.current.checks.list.len());
    let view = commit_status(&run.current).expect("a status");
    let expected = format!("Iteration 1 of {most}: {all} of {all} checks pass, completion 100 %.");
    assert_eq!((view.state, view.title), (CommitState::Running, expected));
    run.current.limits.iterations = IterationLimit::UNLIMITED;
    let unlimited = commit_status(&run.current).expect("a status");
    assert_eq!(unlimited.title, format!("Iteration 1: {all} of {all} checks pass, completion 100 %."));
    run.current.branch.pushed = None;
    assert_eq!(commit_status(&run.current), None, "the forge has no commit");
    run = LoopRun::in_state(LoopState::Review);
    let view = commit_status(&run.current).expect("a status");
    assert_eq!((view.state, view.title), (CommitState::Success, format!("All {all} checks pass in a fresh checkout.")));
}
