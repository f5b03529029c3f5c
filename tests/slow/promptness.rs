//! Commands are acknowledged before other effects.

use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::loops::{LoopState, LoopStep};

use crate::harness::{Setup, World, live_story, on_one_forge, story};

on_one_forge!(command_is_acknowledged_before_other_effects, command_is_acknowledged_during_backlog,);

/// With the pace of a real service, because Gitea needs no pause between two changes. The duration, from the label to the ready pull
/// request, is a figure of `benches/figures`, measured at rest: a row of docs/research/benchmarks.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_on_gitea_is_ready_without_pauses_between_changes() {
    let mut setup = Setup::new(Dialect::Gitea);
    setup.mutation_interval_ms = None;
    live_story(setup, async |world| {
        let begun = std::time::Instant::now();
        world.label().await;
        world.until("the review", |l| l.state == LoopState::Review).await;
        let ready = async {
            while !world.forge.with(|s| s.pulls(world.repo).iter().any(|(_, pull)| !pull.draft)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ready).await.expect("the pull request is ready");
        let (took, count) = (begun.elapsed(), changes(world).len() as u32);
        // With GitHub's pause of a second, each change would take at least that.
        assert!(took < Duration::from_secs(1) * count, "{count} changes took {took:?}");
        world.wait_until_idle().await;
    })
    .await;
}

/// Mutating requests to the forge, oldest first: method and path.
fn changes(world: &World) -> Vec<String> {
    let asked = world
        .forge
        .requests()
        .into_iter()
        .filter(|r| r.method != "GET" && !r.path.contains("git-") && !r.path.ends_with("graphql"));
    asked.map(|r| format!("{} {}", r.method, r.path)).collect()
}

async fn command_is_acknowledged_before_other_effects(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let engine = world.engine();
        world.label().await;
        world.forge.flush().await;
        engine.intake.intake_step().await.expect("intake");
        while engine.executor.loop_step().await.expect("loop") {}
        let waiting = world.receipts().await;
        assert!(waiting.iter().any(|r| r.state == "ready" && r.key == "status"), "{waiting:#?}");
        let comment = world.comment("/ralph guide It is 42.").await;
        world.forge.flush().await;
        engine.intake.intake_step().await.expect("intake");
        assert!(world.bot_comments().is_empty() && changes(world).is_empty(), "{:?}", changes(world));
        engine.forge_effects.forge_effect_step().await.expect("talk");
        assert_eq!(world.reactions(comment), ["eyes"]);
        assert!(world.bot_comments().is_empty(), "{:?}", world.bot_comments());
        world.settle().await;
        assert_eq!(world.reactions(comment), ["eyes", "rocket"]);
    })
    .await;
}

/// Live service, with a minimum time between two mutating requests.
async fn command_is_acknowledged_during_backlog(dialect: Dialect) {
    let mut setup = Setup::new(dialect).agent("sleep 600\n");
    // Longer than a busy machine takes to read a delivery: otherwise comments are posted before all of them are pending.
    setup.mutation_interval_ms = Some(400);
    live_story(setup, async |world| {
        world.label().await;
        world.until("the agent", |l| l.run.step == LoopStep::Agent).await;
        for n in 0..4 {
            let title = format!("Asked about ({n})");
            let opened =
                world.forge.open_issue(&world.maintainer, world.repo, &title, "", &[]).await.expect("an issue");
            for _ in 0..3 {
                world.forge.comment(&world.maintainer, world.repo, opened, "/ralph help").await.expect("commented");
            }
        }
        // Each of the twelve is to be answered; that they were seen is said by now.
        let begun = async {
            while world.waiting("talk").await < 12 || world.waiting("talk/seen").await > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), begun).await.expect("comments are pending");
        let comment = world.comment("/ralph guide It is 42.").await;
        let before = changes(world).len();
        let until_seen = async {
            while world.reactions(comment).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), until_seen).await.expect("it is seen");
        let since = changes(world).split_off(before);
        assert!(world.waiting("talk").await > 4, "no comments are pending");
        // In addition to requests that were running on its arrival.
        assert!(since.len() <= 4, "seen after {since:#?}");
        world.comment("/ralph abort").await;
        world.until("the end", |l| !l.state.is_open()).await;
        world.wait_until_idle().await;
    })
    .await;
}
