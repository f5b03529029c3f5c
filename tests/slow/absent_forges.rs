//! A service that starts while a forge does not answer, or refuses its credential.

use std::time::Duration;

use fake_forge::{Dialect, FakeFault};
use ralph_bot::domain::loops::LoopState;

use crate::harness::dashboard::ServedPages;
use crate::harness::{Setup, World, on_both_forges, on_one_forge, prepared_story, story};

on_both_forges!(refused_credential_is_distinguished_from_a_forge_that_is_down);

on_one_forge!(
    forge_that_is_down_at_the_first_start_is_awaited,
    forge_that_is_down_at_a_later_start_is_awaited,
    unavailable_forge_does_not_delay_others,
);

/// Faults of a forge that is down; more than are ever asked for.
const ALWAYS: u32 = 1_000_000;

fn take_down(world: &World, fault: FakeFault) {
    world.forge.faults().next(ALWAYS, "", ".", fault).expect("a pattern");
}

/// Body of `/readyz`, which is 200.
async fn readyz(world: &World) -> String {
    let address = world.app().address.expect("the service listens");
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let answer = client.get(format!("http://{address}/readyz")).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200, "deliveries are accepted");
    answer.text().await.expect("a text")
}

/// First page and list of forges of the API, as the operator sees them.
async fn shown(world: &World) -> (String, serde_json::Value) {
    let pages = ServedPages::of(world, false).await;
    let forges = pages.get("/api/v1/forges").await.body;
    (pages.get("/").await.body, serde_json::from_str(&forges).expect("JSON"))
}

fn metric(world: &World, there: u8) -> bool {
    world.engine().context.metrics.encode().contains(&format!("ralph_forge_up{{forge=\"forge\"}} {there}"))
}

/// Lets the forge answer again, and waits until the service notices by itself.
async fn bring_back(world: &World) {
    world.forge.faults().clear();
    let back = async {
        while !world.engine().forges.absent_forges().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), back).await.expect("the forge is noticed");
    assert_eq!(readyz(world).await, "ready\n");
    assert!(metric(world, 1));
    let (page, forges) = shown(world).await;
    assert!(!page.contains("<h3>Forge forge"), "{page}");
    assert_eq!(forges["forges"][0]["state"], "there", "{forges}");
}

async fn forge_that_is_down_at_the_first_start_is_awaited(dialect: Dialect) {
    let down = |world: &mut World| take_down(world, FakeFault::Reset { apply: false });
    prepared_story(Setup::new(dialect), down, async |world| {
        let told = readyz(world).await;
        assert!(told.starts_with("ready\nforge forge is unavailable (") && told.contains("wait"), "{told}");
        assert!(metric(world, 0));
        let (page, forges) = shown(world).await;
        for words in ["<h3>Forge forge", "unavailable", "Its deliveries are stored and wait."] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(!page.contains("Nothing is waiting for a decision"), "{page}");
        let forge = &forges["forges"][0];
        assert!(forge["state"] == "absent" && forge["waits"] == true, "{forges}");
        // Deliveries are taken, and nothing is done before the service knows itself.
        world.label().await;
        let own = world.own_comment("/ralph abort").await;
        world.settle().await;
        if world.setup.updates != crate::harness::UpdateMode::Poll {
            assert!(world.inbox().await.get("new").is_some_and(|count| *count > 0), "{:?}", world.inbox().await);
        }
        assert!(world.newest().await.is_none());
        bring_back(world).await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "its own comment is no command: {}", done.why);
        world.forget_comment(own);
    })
    .await;
}

async fn forge_that_is_down_at_a_later_start_is_awaited(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        world.stop().await;
        take_down(world, FakeFault::Reset { apply: false });
        world.restart().await;
        let told = readyz(world).await;
        assert!(told.contains("forge forge is unavailable") && !told.contains("deliveries"), "{told}");
        let (page, _) = shown(world).await;
        assert!(page.contains("unavailable") && !page.contains("Its deliveries are stored"), "{page}");
        let comment = world.comment("/ralph status").await;
        let own = world.own_comment("/ralph abort").await;
        world.settle().await;
        bring_back(world).await;
        world.recover().await;
        assert_eq!(world.reactions(comment), ["eyes", "rocket"]);
        assert_eq!(world.the_loop().await.state, LoopState::Review, "its own comment is no command");
        world.forget_comment(own);
    })
    .await;
}

async fn refused_credential_is_distinguished_from_a_forge_that_is_down(dialect: Dialect) {
    let refuse = |world: &mut World| take_down(world, FakeFault::status(401));
    prepared_story(Setup::new(dialect), refuse, async |world| {
        let told = readyz(world).await;
        assert!(told.contains("forge forge refuses the credential (HTTP 401"), "{told}");
        let (page, forges) = shown(world).await;
        assert!(page.contains("refuses the credential") && page.contains("HTTP 401"), "{page}");
        assert_eq!(forges["forges"][0]["state"], "refused", "{forges}");
        world.label().await;
        world.settle().await;
        assert!(world.newest().await.is_none());
        bring_back(world).await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

async fn unavailable_forge_does_not_delay_others(dialect: Dialect) {
    let mut setup = Setup::new(dialect);
    setup.forges =
        "\n  - { name: other, kind: gitea, url: \"http://127.0.0.1:9\", token_env: TOKEN, webhook_secret_env: SECRET }"
            .into();
    story(setup, async |world| {
        let told = readyz(world).await;
        assert!(told.contains("forge other is unavailable") && told.lines().count() == 2, "{told}");
        let (page, _) = shown(world).await;
        assert!(page.contains("<h3>Forge other") && !page.contains("<h3>Forge forge"), "{page}");
        assert_eq!(world.run().await.state, LoopState::Review);
    })
    .await;
}
