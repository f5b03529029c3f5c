//! Conflicts with the base: commits with markers are not kept, and people are asked after two attempts.

use super::*;
use crate::domain::loops::ConflictingCommit;

impl LoopRun {
    /// Merges the base, which conflicts in `a.rs`.
    fn merge_conflicts(&mut self) -> &mut Self {
        let cause = ConflictingCommit { commit: sha(88), author: "Olaf Berg".into() };
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::Merged {
                other: sha(89),
                conflicts: vec!["a.rs".into()],
                cause: Some(cause),
                up_to_date: false,
                base: None,
            },
        })
    }

    fn conflicting() -> Self {
        let mut run = Self::in_state(LoopState::Review);
        let commit = run.current.branch.pushed.clone().expect("pushed");
        let (failed, progress, on_base) = (Vec::new(), CiProgress::default(), Vec::new());
        run.tell(ForgeInput::Inspected(CiInspection { commit, failed, progress, pending: 0, conflict: true, on_base }));
        run.working().is(LoopState::Running, LoopStep::Merge);
        run.merge_conflicts().is(LoopState::Running, LoopStep::Agent);
        run
    }

    fn leaves_markers(&mut self) -> &mut Self {
        self.agent(AgentEnd::Finished).committed(|change| change.conflict_markers = vec!["a.rs".into()])
    }
}

#[test]
fn commit_with_markers_is_never_pushed_and_people_get_two_options() {
    let mut run = LoopRun::conflicting();
    let (head, base) = (run.current.branch.head.clone(), run.current.branch.base.clone());
    run.leaves_markers().is(LoopState::Running, LoopStep::Merge);
    assert!(!run.has(|effect| matches!(effect, Effect::Work(WorkEffect::Push { .. } | WorkEffect::Check { .. }))));
    assert_eq!((&run.current.branch.head, &run.current.branch.base), (&head, &base), "the branch is as before");
    run.merge_conflicts();
    let told = run.current.current().map(|iteration| iteration.guidance.clone()).unwrap_or_default();
    assert!(told.iter().any(|one| one.text.contains("still contained conflict markers: a.rs")), "{told:?}");
    run.leaves_markers().is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("conflict"));
    assert_eq!(
        run.current.why,
        "the branch conflicts with `main` in `a.rs` (changed there by 00000000 of Olaf Berg), and the agent did not resolve it"
            .replace("00000000", sha(88).short())
    );
    assert_eq!(run.current.branch.head, head);
    // With guidance the agent tries again, and pauses again at once.
    run.command(LoopCommand::Resume(command::Resume {
        options: RunOptions::default(),
        guidance: "keep the names of the base".into(),
    }));
    run.working().is(LoopState::Running, LoopStep::Merge);
    run.merge_conflicts().leaves_markers().is(LoopState::Paused, LoopStep::Idle);
}

#[test]
fn resolved_conflict_is_pushed_although_other_files_contain_markers() {
    let mut run = LoopRun::conflicting();
    run.leaves_markers();
    run.merge_conflicts();
    run.agent(AgentEnd::Finished).committed(|change| change.conflict_markers = vec!["docs/git.md".into()]);
    run.is(LoopState::Running, LoopStep::Push);
    assert_eq!((run.current.branch.base.clone(), run.current.branch.merge.clone()), (Some(sha(89)), None));
}
