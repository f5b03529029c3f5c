//! Rights that are lost at every step of a loop, and more labels than slots.

use fake_forge::{Access, Dialect, OpKind};
use ralph_bot::domain::loops::{LoopState, LoopStep};

use crate::harness::{Setup, on_one_forge, story};

on_one_forge!(permission_lost_at_any_step_prevents_changes_on_the_forge, many_labels_respect_the_slots);

/// A person is downgraded or removed from the repository after a loop reached a step: the
/// branch stays where it is, no pull request is opened, and the forge merges nothing.
///
/// See docs/research/threats.md#p4 and docs/research/faults.md#inv9.
async fn permission_lost_at_any_step_prevents_changes_on_the_forge(dialect: Dialect) {
    let steps = [LoopStep::Prepare, LoopStep::Baseline, LoopStep::Agent, LoopStep::Commit, LoopStep::Push];
    for (number, step) in steps.into_iter().enumerate() {
        for left in [Access::Read, Access::None] {
            story(Setup::new(dialect), async |world| {
                let nora = world.person("nora", Access::Write);
                world.forge.label(&nora, world.repo, world.issue, "ralph:run").await.expect("labeled");
                let reached = world.stop_at("the step", |l| l.run.step == step).await;
                world.forge.grant(world.repo, &nora, left).expect("revoked");
                let before = world.forge.ops().len();
                world.settle().await;
                let paused = world.the_loop().await;
                assert_eq!(paused.state, LoopState::Paused, "{step:?} {left:?}: {}", paused.why);
                assert!(paused.why.contains("nora"), "{step:?} {left:?}: {}", paused.why);
                let agents = usize::from(number > 0);
                assert!(world.prompts().await.len() <= agents, "{step:?} {left:?}: further agents ran");
                assert_eq!(world.forge.branch_sha(world.repo, &reached.branch.name).await, None, "{step:?} {left:?}");
                let changes = [
                    OpKind::BranchPushed,
                    OpKind::BranchForced,
                    OpKind::PullOpened,
                    OpKind::PullMerged,
                    OpKind::AutoMergeEnabled,
                ];
                let done: Vec<_> =
                    world.forge.ops().into_iter().skip(before).filter(|op| changes.contains(&op.kind)).collect();
                assert!(done.is_empty(), "{step:?} {left:?}: {done:?}");
                // A person without the right cannot continue the loop either.
                let resume = world.forge.comment(&nora, world.repo, world.issue, "/ralph resume");
                resume.await.expect("the repository is public");
                world.settle().await;
                assert_eq!(world.the_loop().await.state, LoopState::Paused, "{step:?} {left:?}");
            })
            .await;
        }
    }
}

/// See docs/research/threats.md#p15.
async fn many_labels_respect_the_slots(dialect: Dialect) {
    const ISSUES: usize = 6;
    let limits = "limits: { loops: 2, loops_per_repository: 2, comments_per_hour: 1000, comments_per_day: 1000 }";
    story(Setup::new(dialect).config(limits), async |world| {
        for n in 0..ISSUES {
            let title = format!("Issue {n} of the flood");
            let labels = ["ralph:run"];
            world.forge.open_issue(&world.maintainer, world.repo, &title, "", &labels).await.expect("an issue");
        }
        let engine = world.engine();
        for _ in 0..2_000 {
            world.forge.flush().await;
            let mut any = engine.intake.intake_step().await.expect("intake");
            any |= engine.executor.loop_step().await.expect("loop");
            any |= engine.forge_effects.forge_effect_step().await.expect("talk");
            if !any {
                any = engine.work.work_step().await.expect("work");
            }
            let all = world.all_loops().await;
            let busy = all.iter().filter(|l| l.state.holds_slot()).count();
            assert!(busy <= 2, "{busy} loops run");
            if !any {
                break;
            }
        }
        let all = world.all_loops().await;
        assert_eq!(all.len(), ISSUES);
        for one in &all {
            assert_eq!(one.state, LoopState::Review, "{}", one.why);
        }
    })
    .await;
}
