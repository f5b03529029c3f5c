//! Merging by the forge: when it is asked for, withdrawn, and refused.

use super::*;
use crate::domain::lifecycle::merges::{ASK_AGAIN_MS, CI_BEGINS_MS};
use crate::domain::loops::{CiProgress, MergeAnswer};

fn merge(on: bool) -> LoopCommand {
    LoopCommand::MergeWhenReady(command::MergeWhenReady { on })
}

impl LoopRun {
    /// CI of the pushed commit as it is read; `passed` is the number of checks of the repository's workflows that passed.
    fn reads_ci(&mut self, passed: u32, pending: u32) -> &mut Self {
        self.reads_progress(CiProgress { begun: passed > 0, ..CiProgress::default() }, pending)
    }

    fn reads_progress(&mut self, progress: CiProgress, pending: u32) -> &mut Self {
        let commit = self.current.branch.pushed.clone().expect("pushed");
        let (failed, on_base) = (Vec::new(), Vec::new());
        self.tell(ForgeInput::Inspected(CiInspection { commit, failed, progress, pending, conflict: false, on_base }))
    }

    fn merge_answered(&mut self, answer: MergeAnswer) -> &mut Self {
        let commit = self.current.branch.pushed.clone().expect("pushed");
        self.tell(ForgeInput::MergeAnswered { commit, answer })
    }

    fn asks_to_merge(&self) -> bool {
        self.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::MergeWhenReady { .. })))
    }

    fn withdraws(&self) -> bool {
        self.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::WithdrawMerge)))
    }

    /// Returns the lines of the reply among the latest effects.
    fn replied(&self) -> String {
        let reply = self.effects.iter().find_map(|effect| match effect {
            Effect::Forge(ForgeEffect::Comment { view, .. }) => match &**view {
                View::Reply(reply) => Some(reply.lines.join(" ")),
                _ => None,
            },
            _ => None,
        });
        reply.unwrap_or_default()
    }

    fn ordered() -> Self {
        let mut run = Self::in_state(LoopState::Review);
        run.command(merge(true)).reads_ci(1, 0).merge_answered(MergeAnswer::Accepted);
        assert!(run.current.pull.merge_wish.as_ref().is_some_and(|wish| wish.accepted));
        run
    }
}

#[test]
fn merge_is_requested_after_ci_of_the_ready_pull_request_passes() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.reads_ci(1, 0);
    assert!(!run.asks_to_merge(), "nobody asked for it");
    run.command(merge(true));
    assert!(run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Inspect { .. }))) && !run.asks_to_merge());
    run.reads_ci(1, 2);
    assert!(!run.asks_to_merge(), "CI is pending");
    run.reads_ci(3, 0);
    assert!(run.asks_to_merge() && run.current.pull.merge_ordered == run.current.branch.pushed);
    run.reads_ci(3, 0);
    assert!(!run.asks_to_merge(), "it is asked once");
    run.merge_answered(MergeAnswer::not_yet("unstable"));
    assert!(run.current.pull.merge_ordered.is_none() && run.current.pull.merge_wish.is_some());
    run.reads_ci(3, 0);
    assert!(run.asks_to_merge(), "and again if it was too early");
}

#[test]
fn commit_without_ci_waits_for_ci_to_start() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.command(merge(true)).reads_ci(0, 0);
    assert!(!run.asks_to_merge());
    run.now = run.now.plus_ms(CI_BEGINS_MS);
    run.reads_ci(0, 0);
    assert!(run.asks_to_merge());
}

#[test]
fn checks_of_other_services_do_not_replace_ci() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.command(merge(true));
    let progress =
        CiProgress { awaited: vec!["build".to_owned()], skipped: vec!["test".to_owned()], ..CiProgress::default() };
    run.now = run.now.plus_ms(CI_BEGINS_MS);
    run.reads_progress(progress.clone(), 0);
    assert!(!run.asks_to_merge(), "the base's checks have not begun");
    run.now = run.now.plus_ms(run.current.settings.policy.ci_wait_ms() - CI_BEGINS_MS);
    run.reads_progress(progress, 0);
    assert!(run.asks_to_merge(), "the wait is over");
    assert_eq!(
        run.replied(),
        "CI passed, but these jobs never ran (skipped or neutral): `test`. These have not started within the wait for CI: \
         `build`. The merge was requested anyway; `/ralph merge-when-ready off` withdraws it."
    );
    let mut run = LoopRun::in_state(LoopState::Review);
    run.command(merge(true)).reads_ci(1, 0);
    assert!(run.asks_to_merge() && run.replied().is_empty());
}

#[test]
fn wait_for_ci_starts_at_the_review_of_a_running_loop() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.command(merge(true));
    assert!(!run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Inspect { .. }))));
    run.now = run.now.plus_ms(CI_BEGINS_MS);
    run.iteration(true).checked(true).is(LoopState::Review, LoopStep::Idle);
    run.reads_ci(0, 0);
    assert!(!run.asks_to_merge(), "CI of the new pull request has not begun");
    run.reads_ci(1, 0);
    assert!(run.asks_to_merge());
}

#[test]
fn red_ci_and_requests_withdraw_the_merge() {
    let mut run = LoopRun::ordered();
    let commit = run.current.branch.pushed.clone().expect("pushed");
    let failed = vec![Guidance {
        who: String::new(),
        source: GuidanceSource::Ci,
        text: "red".into(),
        path: Some("build".into()),
        remember: false,
    }];
    run.tell(ForgeInput::Inspected(CiInspection {
        commit,
        failed,
        progress: CiProgress::default(),
        pending: 0,
        conflict: false,
        on_base: Vec::new(),
    }));
    run.is(LoopState::Queued, LoopStep::Idle);
    assert!(run.withdraws() && run.current.pull.merge_wish.is_none());
    assert!(run.replied().contains("is withdrawn: CI failed on the pull request"), "{}", run.replied());
    assert!(run.current.pull.merge_ordered.is_some(), "until the forge has heard of it");
    run.tell(ForgeInput::MergeWithdrawn);
    assert!(run.current.pull.merge_ordered.is_none());

    let mut run = LoopRun::ordered();
    let asks = Guidance {
        who: "maja".into(),
        source: GuidanceSource::Review,
        text: "rename it".into(),
        path: None,
        remember: false,
    };
    run.tell(CommandInput::Reviewed {
        by: user("maja"),
        items: vec![("review/1".into(), asks)],
        suggestions: Vec::new(),
    });
    assert!(run.withdraws() && run.replied().contains("maja asked for changes"));
}

#[test]
fn command_withdraws_a_merge_once() {
    let mut run = LoopRun::ordered();
    run.command(merge(false));
    assert!(run.withdraws() && run.current.pull.merge_wish.is_none() && run.current.state == LoopState::Review);
    run.tell(ForgeInput::MergeWithdrawn).command(merge(false));
    assert!(!run.withdraws() && run.replied().contains("nothing to withdraw"));
}

#[test]
fn acceptance_after_a_withdrawal_is_revoked() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.command(merge(true)).reads_ci(1, 0).command(merge(false));
    assert!(run.withdraws());
    run.tell(ForgeInput::MergeWithdrawn).merge_answered(MergeAnswer::Accepted);
    assert!(run.withdraws() && run.current.pull.merge_ordered.is_some(), "an answer that came late is undone");
}

#[test]
fn refused_auto_merge_is_reported_with_advice_and_withdrawn() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.command(merge(true)).reads_ci(1, 0);
    run.merge_answered(MergeAnswer::refused("auto-merge is not allowed in acme/app", "Allow it in the settings"));
    assert_eq!(
        run.replied(),
        "The pull request is not merged when it is ready: auto-merge is not allowed in acme/app. Allow it in the settings."
    );
    assert!(run.current.pull.merge_wish.is_none() && run.current.pull.merge_ordered.is_none() && !run.withdraws());
    // Somebody pushed after the forge had accepted it.
    let mut run = LoopRun::ordered();
    run.merge_answered(MergeAnswer::refused("somebody else pushed", "Review it"));
    assert!(run.withdraws() && run.current.pull.merge_wish.is_none());
}

#[test]
fn merged_pull_request_cancels_no_merge() {
    let mut run = LoopRun::ordered();
    run.tell(ForgeInput::PullMerged).is(LoopState::Merged, LoopStep::Idle);
    assert!(!run.withdraws());
    let mut run = LoopRun::ordered();
    run.command(LoopCommand::Abort(command::Abort { reason: String::new() })).is(LoopState::Aborted, LoopStep::Idle);
    assert!(run.withdraws(), "the pull request of an aborted loop stays open");
}

#[test]
fn merge_request_is_repeated_on_forges_that_may_lose_it() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.command(merge(true)).reads_ci(1, 0).merge_answered(MergeAnswer::MayForget);
    assert!(run.current.pull.merge_wish.as_ref().is_some_and(|wish| wish.accepted));
    run.reads_ci(1, 0);
    assert!(!run.asks_to_merge(), "it has some minutes");
    run.now = run.now.plus_ms(ASK_AGAIN_MS);
    run.reads_ci(1, 1);
    assert!(!run.asks_to_merge(), "it waits for CI");
    run.reads_ci(1, 0);
    assert!(run.asks_to_merge() && run.current.pull.merge_ordered == run.current.branch.pushed);
    run.reads_ci(1, 0);
    assert!(!run.asks_to_merge(), "the question is under way");
    run.merge_answered(MergeAnswer::MayForget);
    run.now = run.now.plus_ms(ASK_AGAIN_MS - 1);
    run.reads_ci(1, 0);
    assert!(!run.asks_to_merge(), "the pause grows with the time since the wish");
    run.now = run.now.plus_ms(ASK_AGAIN_MS);
    run.command(merge(true)).reads_ci(1, 0);
    assert!(run.asks_to_merge(), "and again, also after another command");
    run.merge_answered(MergeAnswer::Accepted);
    run.now = run.now.plus_ms(ASK_AGAIN_MS);
    run.reads_ci(1, 0);
    assert!(!run.asks_to_merge(), "it does not forget");
}
