//! Loops on existing pull requests: starts of iterations, ends of loops, and the author's rights.

use super::ci::failure;
use super::*;
use crate::domain::model::task::{TamperFinding, TamperKind};

/// Head of the branch when the loop starts, on top of the base `sha(1)`.
const HEAD: u64 = 7;

impl LoopRun {
    fn on_pull(change: impl FnOnce(&mut LoopStart)) -> Self {
        Self::with(|start| {
            start.existing = Some(ExistingPull {
                branch: "deps/left-pad".into(),
                base_branch: "main".into(),
                fork: None,
                found: None,
            });
            start.task.author = Some(User { kind: AccountKind::Bot, ..user("dependabot") });
            change(start);
        })
    }

    fn finds(&mut self, problems: PullProblems) -> &mut Self {
        self.tell(TimerInput::SlotGranted).prepared(|tree| {
            tree.head = sha(HEAD);
            tree.remote = Some(sha(HEAD));
            tree.problems = Some(problems);
        })
    }

    fn red() -> Self {
        let mut run = Self::on_pull(|_| {});
        run.finds(PullProblems { failed: vec![failure("build")], ..PullProblems::default() });
        run.is(LoopState::Running, LoopStep::Baseline);
        run
    }

    fn changes_pull(&self) -> bool {
        self.has(Effect::changes_pull)
    }
}

#[test]
fn red_ci_is_repaired_on_the_branch_without_changing_the_pull_request() {
    let mut run = LoopRun::red();
    assert_eq!((run.current.branch.name.as_str(), run.current.branch.base_branch.as_str()), ("deps/left-pad", "main"));
    assert_eq!(run.current.pull.opened.as_ref().map(|pull| pull.number), Some(Number(42)));
    assert_eq!(run.current.branch.pushed, Some(sha(HEAD)));
    run.checked(true).is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.current().map(|iteration| iteration.guidance.clone()), Some(vec![failure("build")]));
    run.agent(AgentEnd::Finished).committed(|_| {}).is(LoopState::Running, LoopStep::Push);
    run.pushed();
    assert!(!run.changes_pull(), "no pull request is opened: {:?}", run.effects);
    run.checked(true).checked(true).is(LoopState::Review, LoopStep::Idle);
    assert!(!run.changes_pull(), "it is not marked as ready: {:?}", run.effects);
    assert!(
        run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Comment { on: Number(42), .. }))),
        "a comment says what was done"
    );
    assert_eq!(run.current.app_that_rebases(), Some("dependabot"));
    run.tell(ForgeInput::PullMerged).is(LoopState::Merged, LoopStep::Idle);
    assert!(run.has(|effect| *effect == Effect::Work(WorkEffect::Release { delete_branch: false })));
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));
}

#[test]
fn later_red_ci_keeps_the_draft_state() {
    let mut run = LoopRun::red();
    run.checked(false).iteration(true).checked(true).is(LoopState::Review, LoopStep::Idle);
    let commit = run.current.branch.pushed.clone().expect("pushed");
    let (failed, progress) = (vec![failure("lint")], CiProgress::default());
    run.tell(ForgeInput::Inspected(CiInspection {
        commit,
        failed,
        progress,
        pending: 0,
        conflict: false,
        on_base: Vec::new(),
    }));
    run.is(LoopState::Queued, LoopStep::Idle);
    assert!(!run.changes_pull() && run.guidance() == ["log of lint"], "{:?}", run.effects);
}

#[test]
fn conflict_is_merged_before_the_agent_runs() {
    let mut run = LoopRun::on_pull(|_| {});
    run.finds(PullProblems { conflict: true, ..PullProblems::default() });
    run.checked(true).is(LoopState::Running, LoopStep::Merge);
}

#[test]
fn pull_request_without_problems_ends_with_a_sentence() {
    for (pending, on_base, words) in [
        (0, vec![], "no failed CI, and no open"),
        (2, vec![], "no failed CI (2 checks have not finished), and no open"),
        (0, vec!["build"], "no failed CI except `build`, which fails on `main` as well, and no open"),
    ] {
        let mut run = LoopRun::on_pull(|_| {});
        let failed = on_base.iter().map(|name| failure(name)).collect();
        let on_base = on_base.iter().map(|name| (*name).to_owned()).collect();
        run.finds(PullProblems { pending, failed, on_base, ..PullProblems::default() });
        run.is(LoopState::Closed, LoopStep::Idle);
        assert!(run.current.why.contains(words), "{}", run.current.why);
        assert!(run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Comment { key, .. }) if key == "end")));
        assert!(!run.has(|effect| matches!(effect, Effect::Work(WorkEffect::Agent { .. } | WorkEffect::Check { .. }))));
        assert!(run.current.found_nothing_to_do());
    }
}

#[test]
fn guidance_or_remarks_start_an_iteration() {
    let mut asked = LoopRun::on_pull(|start| start.request = "fix the flaky test".into());
    asked.finds(PullProblems::default()).is(LoopState::Running, LoopStep::Baseline);
    assert_eq!(asked.guidance(), ["fix the flaky test"]);

    let mut reviewed = LoopRun::on_pull(|_| {});
    let remark = Guidance { who: "olaf".into(), source: GuidanceSource::Review, path: None, ..failure("a line") };
    let items = vec![("review/3".to_owned(), remark)];
    reviewed.tell(CommandInput::Reviewed { by: user("olaf"), items, suggestions: Vec::new() });
    reviewed.finds(PullProblems::default()).is(LoopState::Running, LoopStep::Baseline);
}

#[test]
fn deleted_branch_ends_the_loop() {
    let mut run = LoopRun::on_pull(|start| start.request = "fix it".into());
    run.tell(TimerInput::SlotGranted).prepared(|tree| tree.remote = None).is(LoopState::Closed, LoopStep::Idle);
    assert_eq!(run.current.why, "the branch `deps/left-pad` of the pull request no longer exists");
}

#[test]
fn tests_that_the_author_changed_cause_no_finding() {
    let mut run = LoopRun::red();
    let found = TamperFinding::new("tests/a.py", TamperKind::TestsChanged, "+9 -1");
    let finding = BranchFinding { found, mark: "m".into(), pushed: false };
    run.tell(ForgeInput::TestsFound { commit: sha(HEAD), findings: vec![finding] });
    let version = run.current.checks.guard.accepted_tests("tests/a.py").map(|(commit, _)| commit.clone());
    assert_eq!(version, Some(sha(HEAD)), "the version of the author counts as the base's");
    run.checked(false);
    // The counts of tests are compared with the branch as it was found, not with its base.
    assert_eq!(run.current.checks.baseline_commit(), run.current.branch.base.as_ref());
    assert_eq!(run.current.branch.base, Some(sha(1)));
}

#[test]
fn concurrent_commits_of_the_author_are_merged_after_a_resume() {
    let mut run = LoopRun::red();
    run.checked(false).agent(AgentEnd::Finished).committed(|_| {});
    let (ticket, reason) = (run.current.run.ticket, "moved".to_owned());
    let refusal = PushRefusal::Other;
    run.tell(LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::PushRejected { remote: Some(sha(70)), reason, refusal },
    });
    run.is(LoopState::Paused, LoopStep::Idle);
    assert_eq!(run.current.branch.merge_wanted(), Some(&MergeWith::Pushed(sha(70))));
}

#[test]
fn merge_when_ready_is_refused() {
    let mut run = LoopRun::red();
    run.command(LoopCommand::MergeWhenReady(command::MergeWhenReady { on: true }));
    assert!(run.current.pull.merge_wish.is_none(), "{:?}", run.reasons);
    assert!(run.reasons.iter().any(|why| why.contains("its author or a maintainer merges it")), "{:?}", run.reasons);
}

#[test]
fn closed_pull_request_ends_the_loop_at_once() {
    let mut run = LoopRun::red();
    run.checked(false).tell(ForgeInput::PullClosed).is(LoopState::Closed, LoopStep::Idle);
    assert!(run.has(|effect| *effect == Effect::Store(StoreEffect::CancelWork)) && !run.current.found_nothing_to_do());
}
