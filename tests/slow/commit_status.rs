//! The status of the branch's commit, which protection of a branch can require.

use std::time::Duration;

use fake_forge::{Dialect, FakeFault};
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::ids::Sha;

use crate::harness::{Setup, World, on_both_forges, on_one_forge, story};

on_both_forges!(commit_status_follows_the_loop);
on_one_forge!(missing_permission_for_statuses_changes_nothing_else);

/// Returns the bot's statuses, oldest first: commit, state and description.
fn statuses(world: &World) -> Vec<(Sha, String, String)> {
    world.forge.with(|state| {
        let all = &state.repo(world.repo).expect("the repository").statuses;
        let ours = all.iter().filter(|status| status.context == "ralph/verified");
        ours.map(|status| (status.sha.clone(), status.state.clone(), status.description.clone())).collect()
    })
}

/// The second iteration is paused before it ends, and fixes the task after it is resumed.
async fn commit_status_follows_the_loop(dialect: Dialect) {
    let agent = r#"case $RALPH_ITERATION in
1) echo 43 >answer.txt ;;
*) echo 42 >answer.txt ;;
esac
"#;
    story(Setup::new(dialect).agent(agent), async |world| {
        world.label().await;
        world.settle_until("the first iteration", |l| l.spent.iterations == 1 && l.branch.pushed.is_some()).await;
        world.comment("/ralph pause").await;
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        let first = paused.branch.pushed.clone().expect("pushed");
        let seen = statuses(world);
        let (commit, state, description) = seen.last().expect("a status");
        assert_eq!((commit, state.as_str()), (&first, "failure"), "{description}");
        assert!(description.starts_with("Paused: "), "{description}");

        world.comment("/ralph resume").await;
        world.settle().await;
        world.advance(Duration::from_secs(60)).await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let head = done.branch.pushed.clone().expect("pushed");
        let of = |wanted: &Sha| -> Vec<(String, String)> {
            statuses(world)
                .into_iter()
                .filter(|(sha, ..)| sha == wanted)
                .map(|(_, state, text)| (state, text))
                .collect()
        };
        let last = of(&head).pop().expect("a status of the head");
        assert_eq!(last, ("success".to_owned(), "All 1 checks pass in a fresh checkout.".to_owned()));
        assert_ne!(head, first);
        let earlier: Vec<_> = of(&first);
        assert!(earlier.iter().all(|(state, _)| state != "success"), "only verified work succeeds: {earlier:?}");
        assert_ne!(earlier.last().map(|(state, _)| state.as_str()), Some("pending"), "left pending: {earlier:?}");
        let again = statuses(world).len();
        world.reconcile().await;
        world.settle().await;
        assert_eq!(statuses(world).len(), again, "repeated without a change");
    })
    .await;
}

async fn missing_permission_for_statuses_changes_nothing_else(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.forge.faults().next(1_000, "POST", r"/statuses/", FakeFault::status(403)).expect("a pattern");
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(statuses(world).is_empty());
        let receipts = world.receipts().await;
        assert!(receipts.iter().all(|row| row.state == "done" || row.state == "cancelled"), "{receipts:?}");
    })
    .await;
}
