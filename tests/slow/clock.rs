//! Changes of the machine's clock while the service works.

use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::loops::{LoopState, LoopStep};

use crate::harness::{Setup, on_one_forge, story};

on_one_forge!(
    clock_jump_during_a_run_changes_nothing,
    clock_set_ahead_by_years_ends_no_loop,
    wait_ends_despite_clock_set_back,
);

const HOUR_MS: i64 = 3_600_000;

/// The clock jumps forward by less than a loop's time limit, back by a month, and is corrected later.
/// See docs/research/faults.md#d6.
async fn clock_jump_during_a_run_changes_nothing(dialect: Dialect) {
    for jump in [HOUR_MS, -30 * 24 * HOUR_MS] {
        let agent = "echo 42 >answer.txt\necho $RALPH_ITERATION >>notes.txt\n";
        story(Setup::new(dialect).agent(agent), async |world| {
            world.label().await;
            let before = world.stop_at("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
            let used = before.spent.time_at(world.clock.now());
            world.clock.advance_ms(jump);
            world.settle().await;
            let first = world.the_loop().await;
            assert_eq!((first.state, first.spent.iterations), (LoopState::Review, 1), "{jump}: {}", first.why);
            assert_eq!(first.iterations[0].attempt, 1, "{jump}: the run was taken for lost");
            assert!(first.spent.time_ms >= used, "{jump}: {} ms after {used}", first.spent.time_ms);
            assert!(first.iterations.iter().all(|i| i.ended_at.is_some()), "{jump}");
            world.clock.advance_ms(-jump);
            world.reconcile().await;
            let comment = world.comment("/ralph guide Add a note, please.").await;
            world.settle().await;
            let second = world.the_loop().await;
            assert_eq!((second.state, second.spent.iterations), (LoopState::Review, 2), "{jump}: {}", second.why);
            assert!(world.reactions(comment).contains(&"rocket".to_owned()), "{jump}: {:?}", world.reactions(comment));
            assert!(second.spent.time_ms >= first.spent.time_ms, "{jump}");
            assert_eq!(world.all_loops().await.len(), 1, "{jump}");
        })
        .await;
    }
}

/// A jump of ten years does not count as a loop's time, abandons no call, and removes no data because of its age. See
/// docs/research/faults.md#d6.
async fn clock_set_ahead_by_years_ends_no_loop(dialect: Dialect) {
    const YEARS_MS: i64 = 10 * 365 * 24 * HOUR_MS;
    let agent = "touch begun\nwhile [ ! -e go ]; do sleep 0.02; done\n\
                 if [ \"$RALPH_ITERATION\" -ge 2 ]; then echo 42 >answer.txt; fi\n";
    story(Setup::new(dialect).agent(agent), async |world| {
        world.label().await;
        world.stop_at("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        let (engine, tree) = (world.engine(), world.tree().await);
        let meanwhile = async {
            while !tree.join("begun").exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            world.clock.advance_ms(5_000);
            world.clock.set_ahead_ms(YEARS_MS);
            assert!(!engine.work.work_step().await.expect("work"), "what is under way is not begun again");
            std::fs::write(tree.join("go"), "").expect("written");
        };
        let (work, ()) = tokio::join!(engine.work.work_step(), meanwhile);
        assert!(work.expect("work"));
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert!((5_000..HOUR_MS).contains(&done.spent.time_ms), "{} ms", done.spent.time_ms);
        let known = world.inbox().await;
        world.reconcile().await;
        assert_eq!(world.inbox().await, known, "deliveries are still known when they come again");
    })
    .await;
}

/// A delay that was set while the clock was ahead is shortened after the clock is set back. See docs/research/faults.md#d6.
async fn wait_ends_despite_clock_set_back(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world
            .forge
            .faults()
            .next(2, "GET", "/collaborators/[^/]+/permission$", fake_forge::FakeFault::status(503))
            .expect("a rule");
        world.label().await;
        world.settle().await;
        assert!(world.all_loops().await.is_empty(), "it is put off");
        world.clock.advance_ms(-24 * HOUR_MS);
        for _ in 0..20 {
            world.advance(Duration::from_secs(60)).await;
        }
        assert!(world.all_loops().await.is_empty(), "by the clock it is not due for a day");
        world.reconcile().await;
        world.recover().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "it waits for yesterday to pass");
    })
    .await;
}
