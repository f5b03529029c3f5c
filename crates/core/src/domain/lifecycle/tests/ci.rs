//! CI of the pull request: failures that make it a draft again, failures that pause the loop, and failures of the base.

use super::*;

pub(super) fn failure(name: &str) -> Guidance {
    Guidance {
        who: String::new(),
        source: GuidanceSource::Ci,
        text: format!("log of {name}"),
        path: Some(name.into()),
        remember: false,
    }
}

impl LoopRun {
    /// Returns the input for finished CI of the pushed commit. `on_base` has the names of the failed checks that also fail on the
    /// base.
    fn ci(&mut self, failed: &[&str], on_base: &[&str]) -> &mut Self {
        let commit = self.current.branch.pushed.clone().expect("pushed");
        let failed = failed.iter().map(|name| failure(name)).collect();
        let on_base = on_base.iter().map(|name| (*name).to_owned()).collect();
        self.tell(ForgeInput::Inspected(CiInspection {
            commit,
            failed,
            progress: CiProgress::default(),
            pending: 0,
            conflict: false,
            on_base,
        }))
    }

    /// Verifies the head again after an iteration without a change.
    fn changes_nothing(&mut self) -> &mut Self {
        self.agent(AgentEnd::Finished).committed(|change| change.commit = None).checked(true).checked(true)
    }

    fn drafts(&self) -> bool {
        self.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::DraftPull)))
    }
}

#[test]
fn red_ci_withdraws_pull_request_and_starts_iteration() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.ci(&["build", "lint"], &[]).is(LoopState::Queued, LoopStep::Idle);
    assert!(run.drafts() && run.current.branch.verified.is_none());
    assert_eq!(run.current.why, "CI failed on the pull request: `build`, `lint`");
    assert_eq!(run.guidance(), ["log of build", "log of lint"]);
    run.working().iteration(true).checked(true).is(LoopState::Review, LoopStep::Idle);
    assert!(run.current.red_ci().is_none(), "the new commit has no CI yet");
}

#[test]
fn red_ci_of_an_unchanged_commit_pauses_until_it_passes() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.ci(&["build"], &[]).working().changes_nothing().is(LoopState::Paused, LoopStep::Idle);
    assert!(
        run.escalates("ci")
            && !run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Pull { ready: true, .. })))
    );
    assert_eq!(run.current.why, "CI fails on the pull request, and the last iteration changed nothing: `build`");
    // The same failure and a pause that a person asked for change nothing.
    run.ci(&["build"], &[]).is(LoopState::Paused, LoopStep::Idle);
    run.command(resume());
    assert_eq!(run.guidance(), ["log of build"], "whoever resumes it gives the failure to the agent again");
    run.working().changes_nothing().is(LoopState::Paused, LoopStep::Idle);
    run.ci(&[], &[]).is(LoopState::Queued, LoopStep::Idle);
    run.working().is(LoopState::Running, LoopStep::Verify);
    run.checked(true).is(LoopState::Review, LoopStep::Idle);
}

#[test]
fn ci_does_not_end_a_pause_for_another_reason() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.ci(&["build"], &[]);
    run.command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    run.ci(&[], &[]).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.current.pull.failed_ci.is_none());
}

#[test]
fn rerun_that_passes_in_time_needs_no_iteration() {
    let mut run = LoopRun::in_state(LoopState::Review);
    let before = run.current.spent.iterations;
    run.ci(&["build"], &[]).ci(&[], &[]).is(LoopState::Queued, LoopStep::Idle);
    assert_eq!((run.guidance().len(), run.current.why.as_str()), (0, "CI passed at a re-run"));
    run.working().checked(true).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.current.spent.iterations, before);
}

#[test]
fn failure_shared_with_base_is_only_reported() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.ci(&["build"], &["build"]).is(LoopState::Review, LoopStep::Idle);
    assert!(!run.drafts() && run.current.branch.verified.is_some());
    assert_eq!(run.current.why, "every check passed in a fresh checkout; CI fails on the base, too: `build`");
    // Another check that fails only here is the loop's.
    run.ci(&["build", "lint"], &["build"]).is(LoopState::Queued, LoopStep::Idle);
    assert_eq!(run.guidance(), ["log of lint"]);
}

#[test]
fn red_ci_of_the_verified_commit_starts_an_iteration_before_review() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.iteration(true).is(LoopState::Running, LoopStep::Verify);
    run.ci(&["build"], &[]).is(LoopState::Running, LoopStep::Verify);
    run.checked(true).is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.current().map(|iteration| iteration.guidance.len()), Some(1));
}

#[test]
fn stored_loops_and_inputs_without_ci_can_be_read() {
    let run = LoopRun::in_state(LoopState::Review);
    let mut stored = serde_json::to_value(&run.current).expect("stored");
    stored["ci_seen"] = serde_json::json!("0123456789012345678901234567890123456789");
    assert_eq!(serde_json::from_value::<Loop>(stored).expect("read"), run.current);
    let input = serde_json::json!({
        "input": "inspected", "commit": run.current.branch.pushed, "failed": [], "pending": 0, "conflict": false,
    });
    assert!(
        matches!(serde_json::from_value(input), Ok(LoopInput::Forge(ForgeInput::Inspected(CiInspection { on_base, .. }))) if on_base.is_empty())
    );
    let lost = serde_json::json!({ "input": "authority_lost", "who": "maja" });
    assert!(
        matches!(serde_json::from_value(lost), Ok(LoopInput::Forge(ForgeInput::AuthorityLost { hidden_teams, .. })) if hidden_teams.is_empty())
    );
}
