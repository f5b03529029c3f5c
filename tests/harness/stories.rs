//! Declares stories as tests, on both forges or on one of them, and runs them on a new world.

use fake_forge::Dialect;

use super::parts::setting;
use super::setup::Setup;
use super::world::World;

/// Runs a story on a new world whose service is stepped by hand, then checks the invariants. Returns the scenario's
/// result.
pub async fn story<T>(setup: Setup, scenario: impl AsyncFnOnce(&mut World) -> T) -> T {
    prepared_story(setup, |_| {}, scenario).await
}

/// Runs a story as `story` does, on a world that `prepare` changes before the service starts.
pub async fn prepared_story<T>(
    setup: Setup,
    prepare: impl FnOnce(&mut World),
    scenario: impl AsyncFnOnce(&mut World) -> T,
) -> T {
    run(World::without_service(setup, false).await, prepare, scenario).await
}

/// Runs a story on a new world whose service runs by itself, then checks the invariants. Returns the scenario's result.
pub async fn live_story<T>(setup: Setup, scenario: impl AsyncFnOnce(&mut World) -> T) -> T {
    run(World::without_service(setup, true).await, |_| {}, scenario).await
}

async fn run<T>(mut world: World, prepare: impl FnOnce(&mut World), scenario: impl AsyncFnOnce(&mut World) -> T) -> T {
    prepare(&mut world);
    world.start().await;
    world.hook().await;
    let result = scenario(&mut world).await;
    world.finish().await;
    result
}

/// Declares stories that run on Gitea and on GitHub, because the two forges display different things.
macro_rules! on_both_forges {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        mod gitea {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name(fake_forge::Dialect::Gitea).await
            })+
        }
        mod github {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name(fake_forge::Dialect::GitHub).await
            })+
        }
    };
}
pub(crate) use on_both_forges;

/// Declares stories that run on one forge, because they do not depend on it: see `forge_of`.
macro_rules! on_one_forge {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        mod one_forge {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name($crate::harness::stories::forge_of(stringify!($name))).await
            })+
        }
    };
}
pub(crate) use on_one_forge;

/// Forge that a story runs on, chosen by a hash of its name. `RALPH_TEST_FORGE=gitea` or `github` chooses one for all.
pub fn forge_of(story: &str) -> Dialect {
    match setting("RALPH_TEST_FORGE").as_deref() {
        Some("gitea") => Dialect::Gitea,
        Some("github") => Dialect::GitHub,
        Some(other) => panic!("RALPH_TEST_FORGE is `{other}`, expected `gitea` or `github`"),
        None if story.bytes().fold(0_u32, |sum, byte| sum * 31 % 65_521 + u32::from(byte)) % 2 == 0 => Dialect::Gitea,
        None => Dialect::GitHub,
    }
}
