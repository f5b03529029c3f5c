//! Deliveries that are signed and damaged: a field is missing, null or of another type, or the action is unknown. Each gets an
//! answer, and none is obeyed.
//!
//! Seen to fail without the defence: where `agrees` in `crates/engine/src/engine/intake/confirm.rs` returns `Ok` at once, a
//! comment that the forge does not have starts a loop.

use fake_forge::{Dialect, each_damage};
use serde_json::{Value, json};

use crate::harness::deliveries::deliver;
use crate::harness::{Setup, World, story};

/// Every so manyth damage is sent, so that the test takes seconds; the parser is tested with all of them.
const STRIDE: usize = 9;

/// Recorded deliveries of Gitea: name, event header, body.
fn recorded() -> Vec<(String, String, Value)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/contracts/gitea-recorded/webhooks");
    let files = std::fs::read_dir(folder).expect("the recorded deliveries").flatten().map(|entry| entry.path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a file");
        let recorded: Value = serde_json::from_str(&text).expect("JSON");
        let event = recorded["headers"]["X-Gitea-Event"].as_str().expect("an event").to_owned();
        (path.display().to_string(), event, recorded["body"].clone())
    };
    files.into_iter().map(read).collect()
}

/// Makes a recorded delivery one about the world's repository and issue, by its maintainer, with a command.
fn about(world: &World, mut body: Value) -> Value {
    let (maintainer, repo) = (&world.maintainer, world.repo);
    for place in ["/repository", "/pull_request/base/repo", "/pull_request/head/repo"] {
        if let Some(found) = body.pointer_mut(place) {
            found["id"] = json!(repo.0);
            found["name"] = json!("app");
            found["full_name"] = json!("mira/app");
            found["owner"]["login"] = json!("mira");
        }
    }
    for place in ["/sender", "/comment/user", "/issue/user"] {
        if let Some(found) = body.pointer_mut(place) {
            found["id"] = json!(maintainer.id.0);
            found["login"] = json!(maintainer.login);
        }
    }
    for (place, value) in [
        ("/issue/number", json!(world.issue.0)),
        ("/number", json!(world.issue.0)),
        ("/comment/body", json!("/ralph run")),
        ("/review/content", json!("/ralph run")),
        ("/issue/labels", json!([{"id": 1, "name": "ralph:run"}])),
    ] {
        if let Some(found) = body.pointer_mut(place) {
            *found = value;
        }
    }
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_deliveries_are_answered_and_start_no_loop() {
    story(Setup::new(Dialect::Gitea), async |world| {
        world.settle().await;
        let (mut count, mut accepted) = (0, 0);
        for (name, event, body) in recorded() {
            let body = about(world, body);
            let mut damaged: Vec<(String, Value)> = Vec::new();
            let mut number = 0;
            each_damage(&body, 2, &mut |path, copy| {
                number += 1;
                if number % STRIDE == 0 {
                    damaged.push((path.to_owned(), copy.clone()));
                }
            });
            for action in ["", "unknown", "label_updated "] {
                let mut other = body.clone();
                other["action"] = json!(action);
                damaged.push((format!("/action = {action:?}"), other));
            }
            for (path, copy) in damaged {
                count += 1;
                let id = format!("damaged-{count}");
                let status = deliver(world, &id, &event, copy.to_string().as_bytes()).await;
                assert!((200..300).contains(&status) || (400..500).contains(&status), "{name} {path}: {status}");
                accepted += usize::from(status < 300);
            }
            world.settle().await;
        }
        // A postponed request is repeated and then completed.
        world.recover().await;
        assert!(count > 2_000 && accepted > 1_000, "{count} sent, {accepted} accepted");
        assert!(world.all_loops().await.is_empty(), "a damaged delivery was obeyed");
        let writes: Vec<_> = world.forge.ops().into_iter().filter(|op| op.actor.id == world.bot.id).collect();
        assert!(writes.is_empty(), "the service answered people: {writes:#?}");
        // An honest label still acts.
        assert_eq!(world.run().await.state, ralph_bot::domain::loops::LoopState::Review);
    })
    .await;
}
