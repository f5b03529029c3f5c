//! What GitHub does that other forges do not: tokens that are not known at once, refused pushes, installations that change.

use fake_forge::{Dialect, OpKind};
use ralph_bot::domain::loops::LoopState;
use ralph_bot::forge::github::{EVENTS, PERMISSIONS};

use crate::harness::{Setup, World, prepared_story};

/// Makes the service an App that receives its deliveries from the repository's webhook.
fn as_app(world: &mut World) {
    let app = world.forge.add_app("Ralph Bot", PERMISSIONS, EVENTS, "", "");
    world.bot = app.bot;
    world.setup.credential = format!("app_id: {}, private_key_env: KEY", app.app_id);
    world.setup.env.push(("KEY", app.private_key_pem));
}

/// Number of operations of the bot of a kind.
fn done_by_bot(world: &World, kind: OpKind) -> usize {
    world.forge.ops().iter().filter(|op| op.kind == kind && op.actor.id == world.bot.id).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_that_is_not_known_yet_delays_and_loses_nothing() {
    for status in [401, 404] {
        let unknown = |world: &mut World| {
            as_app(world);
            world.forge.with(|state| state.new_token_refusals = Some((2, status)));
        };
        prepared_story(Setup::new(Dialect::GitHub), unknown, async |world| {
            let done = world.run().await;
            assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{status}: {}", done.why);
            let receipts = world.receipts().await;
            assert!(receipts.iter().all(|r| r.state == "done" && r.attempts <= 1), "{status}: {receipts:#?}");
            assert_eq!(done_by_bot(world, OpKind::PullOpened), 1);
        })
        .await;
    }
}
