//! The main story, and the ways it can turn.

use ralph_bot::domain::lifecycle::State;
use ralph_bot::fake::Dialect;

use crate::harness::{Setup, World};

/// Runs a story on each forge.
macro_rules! on_both_forges {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        mod gitea {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(super::Dialect::Gitea).await })+
        }
        mod github {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(super::Dialect::GitHub).await })+
        }
    };
}
pub(crate) use on_both_forges;

on_both_forges!(from_label_to_merge);

async fn from_label_to_merge(dialect: Dialect) {
    let world = World::new(Setup::new(dialect)).await;
    let done = world.run().await;
    assert_eq!(done.state, State::Review, "{}", done.why);
    assert_eq!(world.state_labels(), ["review"]);
    assert_eq!(world.file(&done.branch, "answer.txt").await.as_deref(), Some("42\n"));
    let pull = done.pull.expect("a pull request").number;
    world.forge.merge(&world.maintainer, world.repo, pull).await.expect("merged");
    world.settle().await;
    let done = world.the_loop().await;
    assert_eq!(done.state, State::Merged);
    assert_eq!(world.state_labels(), ["merged"]);
    world.finish().await;
}
