//! Changes by people and forges to a loop's pull request and repository while it works.

use fake_forge::{Access, Dialect, Op, OpKind};
use ralph_bot::domain::loops::{Loop, LoopState, LoopStep};
use ralph_bot::domain::model::ids::Sha;

use crate::harness::{Setup, World, on_both_forges, on_one_forge, story};

on_both_forges!(
    manually_readied_pull_request_stays_ready,
    deleted_repository_is_not_called,
    retargeted_pull_request_is_followed,
);

on_one_forge!(merge_during_an_iteration_stops_pushes,);

/// Agent that passes the check in its third run, and makes a change in each run.
const SLOW: &str = "echo $RALPH_ITERATION >>notes.txt\n[ $RALPH_ITERATION -ge 3 ] && echo 42 >answer.txt\ntrue\n";

/// Runs a loop until its draft pull request is open and its second run is about to start.
async fn second_run(world: &World) -> Loop {
    world.label().await;
    let now = world.stop_at("the second run", |l| l.run.step == LoopStep::Agent && l.pull.opened.is_some()).await;
    assert!(world.is_draft(&world.the_pull().await), "the new pull request is not a draft");
    now
}

async fn made_ready(world: &World) {
    let (pull, by) = (world.the_pull().await, &world.maintainer);
    match pull.title.strip_prefix("WIP: ") {
        Some(ready) => world.forge.edit_issue(by, world.repo, pull.number, Some(ready), None).await.expect("edited"),
        None => world.forge.with(|state| state.set_ready(by.id, world.repo, pull.number)).expect("ready"),
    }
    assert!(!world.is_draft(&world.the_pull().await));
    world.settle_until("the news of it", |_| true).await;
}

/// See docs/research/faults.md#f15.
async fn manually_readied_pull_request_stays_ready(dialect: Dialect) {
    story(Setup::new(dialect).agent(SLOW), async |world| {
        let second = second_run(world).await;
        made_ready(world).await;
        let later = |l: &Loop| l.run.step == LoopStep::Agent && l.iterations.len() > second.iterations.len();
        let third = world.stop_at("the third run", later).await;
        assert!(!world.is_draft(&world.the_pull().await), "the pull request became a draft again");
        assert!(third.state.is_open(), "{}", third.why);
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 3), "{}", done.why);
        assert!(!world.is_draft(&world.the_pull().await));
    })
    .await;
}

/// Conflicts are resolved with the pull request's new base, found by its delivery or later by polling.
/// See docs/research/faults.md#f15.
async fn retargeted_pull_request_is_followed(dialect: Dialect) {
    for delivered in [true, false] {
        story(Setup::new(dialect), async |world| {
            let done = world.run().await;
            assert_eq!((done.state, done.branch.base_branch.as_str()), (LoopState::Review, "main"));
            let file = [("answer.txt", Some("40\n"), false)];
            world
                .forge
                .push_commit(&world.maintainer, world.repo, "stable", &file, "An older answer")
                .await
                .expect("another branch");
            let pull = world.the_pull().await.number;
            world.settle().await;
            world.forge.hooks().drop_next(u32::from(!delivered));
            world.forge.retarget(&world.maintainer, world.repo, pull, "stable").await.expect("retargeted");
            world.settle().await;
            if !delivered {
                assert_eq!(world.the_loop().await.branch.base_branch, "main");
                world.reconcile().await;
                world.settle().await;
            }
            let after = world.the_loop().await;
            assert_eq!(
                (after.state, after.branch.base_branch.as_str()),
                (LoopState::Review, "stable"),
                "{delivered}: {}",
                after.why
            );
            assert!(after.spent.iterations > done.spent.iterations, "{delivered}: the conflict was not resolved");
            let parents = world.parents(&after.branch.name);
            let tip = world.git(&["rev-parse", "refs/heads/stable"]);
            assert!(parents.iter().any(|parent| parent.as_str() == tip.trim()), "{delivered}: {parents:?} {tip}");
        })
        .await;
    }
}

/// See docs/research/faults.md#f15.
async fn merge_during_an_iteration_stops_pushes(dialect: Dialect) {
    story(Setup::new(dialect).agent(SLOW), async |world| {
        let before = second_run(world).await;
        made_ready(world).await;
        let pull = world.the_pull().await.number;
        let merged: Sha = world.forge.merge(&world.maintainer, world.repo, pull).await.expect("merged");
        let operation_count = world.forge.ops().len();
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Merged, before.spent.iterations), "{}", done.why);
        let ours =
            |op: &&Op| op.actor.id == world.bot.id && matches!(op.kind, OpKind::BranchPushed | OpKind::PullOpened);
        let ops = world.forge.ops();
        let after: Vec<&Op> = ops[operation_count..].iter().filter(ours).collect();
        assert!(after.is_empty(), "{after:?}");
        assert_eq!(world.forge.branch_sha(world.repo, "main").await, Some(merged));
    })
    .await;
}

/// The repository was deleted, or access was revoked; the API does not distinguish them.
/// See docs/research/faults.md#f12.
async fn deleted_repository_is_not_called(dialect: Dialect) {
    story(Setup::new(dialect).agent(SLOW), async |world| {
        second_run(world).await;
        world.forge.with(|state| state.repo_mut(world.repo).expect("the repository").private = true);
        world.forge.grant(world.repo, &world.bot, Access::None).expect("taken away");
        world.settle().await;
        world.advance(std::time::Duration::from_secs(600)).await;
        let stopped = world.the_loop().await;
        assert!(!stopped.state.holds_slot(), "{:?}: {}", stopped.state, stopped.why);
        assert!(
            world.receipts().await.iter().all(|r| r.attempts < 10),
            "an effect was retried too often: {:#?}",
            world.receipts().await
        );
        let request_count = world.forge.requests().len();
        world.advance(std::time::Duration::from_secs(600)).await;
        assert!(
            world.forge.requests().len() - request_count < 20,
            "the missing repository was requested again and again"
        );
        assert!(stopped.why.contains("cannot be read any more") && stopped.why.contains("give"), "{}", stopped.why);
        // Once the repository exists again, the loop continues by itself.
        world.forge.grant(world.repo, &world.bot, Access::Admin).expect("given back");
        world.reconcile().await;
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
    })
    .await;
}
