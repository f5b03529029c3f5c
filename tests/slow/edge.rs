//! The webhook endpoint: authentication, replays, malformed and oversized requests, slow clients, and a store that
//! fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fake_forge::{Dialect, Outgoing};
use ralph_bot::config::{Config, Env};
use ralph_bot::domain::loops::LoopState;
use ralph_bot::forge::signature::sign;
use secrecy::SecretString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::deliveries::{DeliveryHeaders, address, deliver, digest, headers, post, signature_header, signed};
use crate::harness::{SECRET, Setup, World, on_both_forges, on_one_forge, story};

on_both_forges!(
    forged_signature_is_rejected,
    outdated_label_delivery_is_ignored,
    wrong_event_header_starts_nothing,
    forge_is_chosen_by_path_not_header,
    malformed_bodies_are_ignored_with_reason,
);

on_one_forge!(
    replayed_delivery_starts_one_loop,
    short_webhook_secret_is_refused_at_start,
    repeated_body_with_new_ids_starts_one_loop,
    unlisted_repository_is_ignored,
    origin_headers_do_not_affect_authentication,
    oversized_or_unsupported_bodies_are_rejected,
    delivery_of_maximum_size_is_accepted,
    unknown_paths_and_methods_are_rejected,
    slow_clients_are_disconnected_and_memory_stays_bounded,
    full_store_answers_503_and_loses_nothing,
    closed_store_answers_503_and_loses_nothing,
);

/// Sets the label and returns its delivery, which the service has not received.
async fn label_delivery(world: &World) -> Outgoing {
    world.settle().await;
    world.forge.hooks().hold();
    world.label().await;
    let mut taken = None;
    world.forge.hooks().release(|held| {
        taken = held.drain(..).find(|one| one.event.0 == "issues");
    });
    taken.expect("the label's delivery")
}

/// Sends raw bytes: `head`, then `chunk` up to `times` times; returns the status of the answer, or 0.
async fn raw(address: &str, head: &str, chunk: &[u8], times: usize) -> u16 {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut reader, mut writer) = stream.into_split();
    writer.write_all(head.as_bytes()).await.expect("the head is taken");
    let sending = async move {
        for _ in 0..times {
            if writer.write_all(chunk).await.is_err() {
                break;
            }
        }
        writer
    };
    let reading = async {
        let mut answer = Vec::new();
        let mut part = [0_u8; 1024];
        while !answer.windows(4).any(|w| w == b"\r\n\r\n") {
            match reader.read(&mut part).await {
                Ok(n) if n > 0 => answer.extend_from_slice(&part[..n]),
                _ => break,
            }
        }
        answer
    };
    let (answer, _writer) = tokio::join!(reading, sending);
    let text = String::from_utf8_lossy(&answer);
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn head(method: &str, path: &str, headers: &DeliveryHeaders) -> String {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: service\r\n{lines}\r\n")
}

/// Asserts that nothing is stored except the deliveries that the forge sends for a new webhook.
async fn nothing_stored(world: &World) {
    world.forge.flush().await;
    let outcomes = world.delivery_outcomes().await;
    let delivery_count = world.forge.hooks().log().len();
    assert!(outcomes.len() <= delivery_count, "{outcomes:?}");
    world.settle().await;
    assert!(world.all_loops().await.is_empty());
}

/// See docs/research/threats.md#w1.
async fn forged_signature_is_rejected(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await;
        let before = world.delivery_outcomes().await.len();
        let body = genuine.body.as_bytes();
        let right = digest(body);
        let (name, prefix) = signature_header(dialect);
        let mut forged: Vec<Vec<(&str, String)>> = Vec::new();
        for at in 0..right.len() {
            let flipped: String = right
                .char_indices()
                .map(
                    |(n, c)| {
                        if n == at { char::from_digit(c.to_digit(16).expect("hex") ^ 1, 16).expect("hex") } else { c }
                    },
                )
                .collect();
            forged.push(vec![(name, format!("{prefix}{flipped}"))]);
        }
        for bad in
            [&right[1..], &format!("{right}0"), &right.to_uppercase(), "", &"0".repeat(64), &format!(" {right}x")]
        {
            forged.push(vec![(name, format!("{prefix}{bad}"))]);
        }
        forged.push(vec![(name, if prefix.is_empty() { format!("sha256={right}") } else { right.clone() })]);
        forged.push(vec![("X-Hub-Signature-256", "sha256=".into())]);
        forged.push(vec![("X-Hub-Signature", format!("sha1={}", &right[..40]))]);
        forged.push(vec![("X-Hub-Signature", format!("sha256={right}"))]);
        forged.push(vec![(name, format!("{prefix}{right}")), (name, format!("{prefix}{right}"))]);
        forged.push(vec![(name, format!("{prefix}{}", "0".repeat(64))), (name, format!("{prefix}{right}"))]);
        forged.push(Vec::new());
        let bare = headers(dialect, "forged", &genuine.event.0);
        for signature in forged {
            let mut all = bare.clone();
            all.extend(signature.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
            let status = post(world, "/webhooks/forge", &all, body.to_vec()).await;
            assert_eq!(status, 401, "{signature:?}");
        }
        // A valid signature of another body, and a signature with another secret.
        let mut other = body.to_vec();
        other.push(b' ');
        let status = post(world, "/webhooks/forge", &signed(dialect, "other", &genuine.event.0, body), other).await;
        assert_eq!(status, 401);
        let foreign = sign(&SecretString::from("another-secret-of-somebody-else-0123456789".to_owned()), body);
        let mut all = bare;
        all.push((name.to_owned(), format!("{prefix}{foreign}")));
        assert_eq!(post(world, "/webhooks/forge", &all, body.to_vec()).await, 401);
        world.settle().await;
        assert_eq!(world.delivery_outcomes().await.len(), before, "nothing was stored");
        assert!(world.all_loops().await.is_empty());

        assert_eq!(deliver(world, "genuine", &genuine.event.0, body).await, 202);
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// See docs/research/threats.md#w2.
async fn short_webhook_secret_is_refused_at_start(dialect: Dialect) {
    let kind = if dialect == Dialect::Gitea { "gitea" } else { "github" };
    let text = format!(
        "forges:\n  - {{ name: forge, kind: {kind}, url: \"https://forge.example\", token_env: TOKEN, webhook_secret_env: SECRET }}\nbackends:\n  mine: {{ type: script, command: [\"/bin/true\"], roles: [agent] }}\n"
    );
    let parse = |secret: Option<&str>| {
        let mut all = vec![("TOKEN", "a-token")];
        all.extend(secret.map(|secret| ("SECRET", secret)));
        Config::parse(std::path::Path::new("ralph-control.yaml"), &text, &Env::of(all))
    };
    for bad in [None, Some(""), Some(" "), Some("short"), Some("0123456789012345678901234567890")] {
        let problems = parse(bad).err().unwrap_or_else(|| panic!("{bad:?} was taken")).to_string();
        assert!(problems.contains("SECRET") || problems.contains("secret"), "{problems}");
        assert!(bad.is_none_or(|bad| bad.trim().is_empty() || !problems.contains(bad)), "{problems}");
    }
    assert!(parse(Some(SECRET)).is_ok());
}

/// See docs/research/threats.md#w4.
async fn replayed_delivery_starts_one_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await;
        let before = world.delivery_outcomes().await.len();
        for round in 0..4 {
            for _ in 0..25 {
                assert_eq!(deliver(world, "the-same", &genuine.event.0, genuine.body.as_bytes()).await, 202);
            }
            world.settle().await;
            // Counts this delivery only, not those caused by the service's own changes.
            let rows = world.engine().store.read(|c| {
                Ok(c.query_row("SELECT count(*) FROM inbox WHERE delivery = 'the-same'", [], |row| {
                    row.get::<_, i64>(0)
                })?)
            });
            assert_eq!(rows.await.expect("rows"), 1);
            assert_eq!(world.all_loops().await.len(), 1, "round {round}");
            world.restart().await;
        }
        assert!(world.delivery_outcomes().await.len() > before);
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// See docs/research/threats.md#w5.
async fn repeated_body_with_new_ids_starts_one_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await;
        for n in 0..25 {
            assert_eq!(deliver(world, &format!("early-{n}"), &genuine.event.0, genuine.body.as_bytes()).await, 202);
        }
        world.settle().await;
        let first = world.the_loop().await;
        assert_eq!(first.state, LoopState::Review);
        for n in 0..25 {
            assert_eq!(deliver(world, &format!("late-{n}"), &genuine.event.0, genuine.body.as_bytes()).await, 202);
        }
        world.settle().await;
        let all = world.all_loops().await;
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].state, all[0].iterations.len()), (LoopState::Review, 1));
    })
    .await;
}

/// See docs/research/threats.md#w6.
async fn outdated_label_delivery_is_ignored(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await;
        let stale = async |id: &str| {
            assert_eq!(deliver(world, id, &genuine.event.0, genuine.body.as_bytes()).await, 202);
            world.settle().await;
            let id = id.to_owned();
            let name = ralph_bot::domain::model::ids::ForgeName::new("forge");
            let outcome = world.engine().store.read(move |c| ralph_bot::store::inbox::outcome(c, &name, &id)).await;
            let (state, reason) = outcome.expect("read").expect("a delivery");
            let reason = reason.unwrap_or_default();
            let old = reason.contains("stale") || reason.contains("did not change");
            assert!(matches!(state.as_str(), "refused" | "ignored") && old, "{state}: {reason}");
        };
        world.forge.unlabel(&world.maintainer, world.repo, world.issue, "ralph:run").await.expect("unlabeled");
        world.settle().await;
        stale("after-the-label-went").await;
        assert!(world.all_loops().await.is_empty());

        world.run().await;
        world.comment("/ralph abort").await;
        world.settle().await;
        stale("after-the-end").await;
        assert_eq!(world.all_loops().await.len(), 1);

        world.label().await;
        world.forge.close_issue(&world.maintainer, world.repo, world.issue).await.expect("closed");
        world.settle().await;
        stale("after-the-issue-was-closed").await;
        world.forge.delete_issue(&world.maintainer, world.repo, world.issue).await.expect("deleted");
        world.settle().await;
        stale("after-the-issue-was-deleted").await;
        let open = world.all_loops().await.iter().filter(|l| l.state.is_open()).count();
        assert_eq!(open, 0);
    })
    .await;
}

/// See docs/research/threats.md#w8.
async fn unlisted_repository_is_ignored(dialect: Dialect) {
    story(Setup::new(dialect).config("repositories: [\"forge:mira/other*\"]"), async |world| {
        world.label().await;
        world.settle().await;
        world.reconcile().await;
        assert!(world.all_loops().await.is_empty());
        assert!(world.bot_comments().is_empty());
        let outcomes = world.delivery_outcomes().await;
        assert!(outcomes.iter().all(|(state, why)| state == "ignored" && !why.is_empty()), "{outcomes:?}");
        assert!(outcomes.iter().any(|(_, why)| why.contains("not watched")), "{outcomes:?}");
        // The name of this repository is listed, but the token cannot see it.
        let genuine = label_delivery_again(world).await;
        let body = genuine.body.replace("mira/app", "mira/other").replace("\"name\":\"app\"", "\"name\":\"other\"");
        assert_eq!(deliver(world, "elsewhere", &genuine.event.0, body.as_bytes()).await, 202);
        world.settle().await;
        assert!(world.all_loops().await.is_empty());
    })
    .await;
}

/// Returns the same as `label_delivery`, for an issue that already has the label.
async fn label_delivery_again(world: &World) -> Outgoing {
    world.forge.unlabel(&world.maintainer, world.repo, world.issue, "ralph:run").await.expect("unlabeled");
    label_delivery(world).await
}

/// See docs/research/threats.md#w7.
async fn wrong_event_header_starts_nothing(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await;
        for event in ["ping", "push", "star", "issue_comment", "pull_request", "x\u{e9}".trim_end_matches('\u{e9}')] {
            let status = deliver(world, &format!("swapped-{event}"), event, genuine.body.as_bytes()).await;
            assert!(status == 202 || status == 400, "{event}: {status}");
        }
        // A body that starts nothing starts nothing under another event name.
        let push = genuine.body.replace("\"issue\"", "\"no_issue\"");
        assert_eq!(deliver(world, "a-push", "issues", push.as_bytes()).await, 202);
        assert_eq!(deliver(world, "unknown", "something_new", b"{\"action\":\"created\"}").await, 202);
        world.settle().await;
        assert_eq!(deliver(world, "genuine", &genuine.event.0, genuine.body.as_bytes()).await, 202);
        world.settle().await;
        assert_eq!(world.all_loops().await.len(), 1);
        for (state, why) in world.delivery_outcomes().await {
            assert!(matches!(state.as_str(), "done" | "ignored" | "refused") && !why.is_empty(), "{state}: {why}");
        }
    })
    .await;
}

/// See docs/research/threats.md#w7.
async fn forge_is_chosen_by_path_not_header(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await;
        let body = genuine.body.as_bytes();
        let before = world.delivery_outcomes().await.len();
        let (own, other) = match dialect {
            Dialect::Gitea => (Dialect::Gitea, Dialect::GitHub),
            Dialect::GitHub => (Dialect::GitHub, Dialect::Gitea),
        };
        let path = |d: Dialect| if d == Dialect::Gitea { "/webhooks/gitea" } else { "/webhooks/github" };
        let event = &genuine.event.0;
        // The path of the other forge does not exist, independently of the headers.
        assert_eq!(post(world, path(other), &signed(own, "a", event, body), body.to_vec()).await, 404);
        assert_eq!(post(world, path(other), &signed(other, "b", event, body), body.to_vec()).await, 404);
        // The headers of the other forge carry no id and no event on this path.
        assert_eq!(post(world, path(own), &signed(other, "c", event, body), body.to_vec()).await, 400);
        world.settle().await;
        assert_eq!(world.delivery_outcomes().await.len(), before);
        // The path may name the forge's kind. Gitea sends the headers of both families.
        let mut both = signed(own, "d", event, body);
        both.extend(headers(other, "e", "ping").into_iter().skip(1));
        assert_eq!(post(world, path(own), &both, body.to_vec()).await, 202);
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// There is no address allow list to circumvent: only the signature authenticates a delivery.
/// See docs/research/threats.md#w11.
async fn origin_headers_do_not_affect_authentication(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await;
        let (event, body) = (&genuine.event.0, genuine.body.as_bytes());
        let before = world.delivery_outcomes().await.len();
        let origins = [
            ("X-Forwarded-For", "140.82.112.1"),
            ("X-Forwarded-For", "127.0.0.1, 140.82.112.1"),
            ("X-Forwarded-For", "not an address"),
            ("Forwarded", "for=140.82.112.1;proto=https;host=github.com"),
            ("X-Real-IP", "127.0.0.1"),
            ("True-Client-IP", "127.0.0.1"),
            ("CF-Connecting-IP", "127.0.0.1"),
            ("X-Forwarded-Host", "localhost"),
            ("X-Original-URL", "/healthz"),
        ];
        for (name, value) in origins {
            let mut unsigned = headers(dialect, "unsigned", event);
            unsigned.push((name.into(), value.into()));
            assert_eq!(post(world, "/webhooks/forge", &unsigned, body.to_vec()).await, 401, "{name}: {value}");
            let mut forged = signed(dialect, "forged", event, b"another body");
            forged.push((name.into(), value.into()));
            assert_eq!(post(world, "/webhooks/forge", &forged, body.to_vec()).await, 401, "{name}: {value}");
        }
        assert_eq!(world.delivery_outcomes().await.len(), before);
        // A signed delivery with such headers is accepted.
        let mut genuine = signed(dialect, "genuine", event, body);
        genuine.extend(origins.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(post(world, "/webhooks/forge", &genuine, body.to_vec()).await, 202);
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// See docs/research/threats.md#w9.
async fn oversized_or_unsupported_bodies_are_rejected(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let at = address(world);
        let large = 26 * 1024 * 1024 + 1;
        let mut announced = headers(dialect, "large", "issues");
        announced.push(("Content-Length".into(), large.to_string()));
        assert_eq!(raw(&at, &head("POST", "/webhooks/forge", &announced), b"", 0).await, 413);
        let mut streamed = headers(dialect, "streamed", "issues");
        streamed.push(("Transfer-Encoding".into(), "chunked".into()));
        let chunk = [b"100000\r\n".to_vec(), vec![b' '; 0x0010_0000], b"\r\n".to_vec()].concat();
        assert_eq!(raw(&at, &head("POST", "/webhooks/forge", &streamed), &chunk, 27).await, 413);

        let body = b"payload=%7B%7D".to_vec();
        for kind in ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""] {
            let mut all = signed(dialect, "form", "issues", &body);
            all[0].1 = kind.into();
            assert_eq!(post(world, "/webhooks/forge", &all, body.clone()).await, 415, "{kind}");
        }
        for packed in ["gzip", "deflate", "br", "zstd", "gzip, identity"] {
            let mut all = signed(dialect, "packed", "issues", &body);
            all.push(("Content-Encoding".into(), packed.into()));
            assert_eq!(post(world, "/webhooks/forge", &all, body.clone()).await, 415, "{packed}");
        }
        for bad in [String::new(), "x".repeat(300)] {
            let all = signed(dialect, &bad, "issues", &body);
            assert_eq!(post(world, "/webhooks/forge", &all, body.clone()).await, 400, "{} bytes", bad.len());
        }
        nothing_stored(world).await;
    })
    .await;
}

/// See docs/research/threats.md#w9.
async fn delivery_of_maximum_size_is_accepted(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let frame = r#"{"action":"opened","padding":""}"#;
        let body = frame.replace("\"\"", &format!("\"{}\"", "x".repeat(26 * 1024 * 1024 - frame.len())));
        assert_eq!(body.len(), 26 * 1024 * 1024);
        assert_eq!(deliver(world, "large", "issues", body.as_bytes()).await, 202);
        world.settle().await;
        let (state, why) = world.delivery_outcomes().await.pop().expect("it was stored");
        assert_eq!(state, "refused", "{why}");
        // Later deliveries are processed.
        assert_eq!(world.run().await.state, LoopState::Review);
    })
    .await;
}

/// See docs/research/threats.md#w9 and docs/research/faults.md#f9.
async fn malformed_bodies_are_ignored_with_reason(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await.body;
        let mut cut = genuine.clone();
        cut.truncate(genuine.len() / 2);
        let twice = format!("{{\"action\":\"deleted\",{}", &genuine[1..]);
        let mut not_utf8 = genuine.clone().into_bytes();
        let at = genuine.find("The answer").expect("the title");
        not_utf8[at] = 0xff;
        let mut nul = genuine.clone().into_bytes();
        nul[at] = 0;
        let many = format!("{{\"labels\":[{}0],{}", "0,".repeat(1_000_000), &genuine[1..]);
        let deep = format!("{{\"deep\":{}{},{}", "[".repeat(10_000), "]".repeat(10_000), &genuine[1..]);
        let table: Vec<(&str, Vec<u8>)> = vec![
            ("empty", Vec::new()),
            ("cut", cut.into_bytes()),
            ("no-object", b"[]".to_vec()),
            ("null", b"null".to_vec()),
            ("number", b"1e999".to_vec()),
            ("twice", twice.into_bytes()),
            ("not-utf8", not_utf8),
            ("nul", nul),
            ("deep", deep.into_bytes()),
            ("open-deep", "[".repeat(10_000).into_bytes()),
            ("many", many.into_bytes()),
            ("bom", [b"\xef\xbb\xbf".to_vec(), genuine.clone().into_bytes()].concat()),
            ("twofold", format!("{genuine}{genuine}").into_bytes()),
            ("other-types", genuine.replace("\"action\":\"", "\"action\":[\"").into_bytes()),
        ];
        let before = world.delivery_outcomes().await.len();
        let count = table.len();
        for (name, body) in table {
            let status = deliver(world, name, "issues", &body).await;
            assert_eq!(status, 202, "{name}");
            world.settle().await;
            assert!(world.all_loops().await.is_empty(), "{name}");
        }
        let outcomes = world.delivery_outcomes().await.split_off(before);
        assert_eq!(outcomes.len(), count);
        for (state, why) in outcomes {
            assert!(matches!(state.as_str(), "ignored" | "refused"), "{state}: {why}");
            assert!(!why.is_empty() && why.len() < 1000, "{why}");
        }
        assert_eq!(deliver(world, "whole", "issues", genuine.as_bytes()).await, 202);
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// See docs/research/threats.md#w12.
async fn unknown_paths_and_methods_are_rejected(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let at = address(world);
        let none = DeliveryHeaders::new();
        let table = [
            ("GET", "/webhooks/forge", 405),
            ("PUT", "/webhooks/forge", 405),
            ("DELETE", "/webhooks/forge", 405),
            ("POST", "/webhooks/nobody", 404),
            ("POST", "/webhooks/", 404),
            ("POST", "/webhooks", 404),
            ("POST", "/webhooks/forge/", 404),
            ("POST", "/webhooks/forge/more", 404),
            ("POST", "/webhooks/../admin", 404),
            ("POST", "/webhooks/%2e%2e/admin", 404),
            ("POST", "/webhooks/forge%2f..%2fadmin", 404),
            ("POST", "//webhooks/forge", 404),
            ("POST", "/Webhooks/forge", 404),
            ("GET", "/admin", 404),
            ("POST", "/healthz", 405),
        ];
        for (method, path, expected) in table {
            let mut all = none.clone();
            all.push(("Content-Length".into(), "0".into()));
            assert_eq!(raw(&at, &head(method, path, &all), b"", 0).await, expected, "{method} {path}");
        }
        let get = async |path: &str| {
            let client = reqwest::Client::builder().no_proxy().build().expect("a client");
            let answer = client.get(format!("http://{at}{path}")).send().await.expect("an answer");
            (answer.status().as_u16(), answer.text().await.expect("a text"))
        };
        assert_eq!(get("/healthz").await.0, 200);
        assert_eq!(get("/readyz").await.0, 200);
        let (status, text) = get("/metrics").await;
        assert_eq!(status, 200);
        assert!(text.contains("refused") && text.contains("# TYPE ralph_deliveries_total counter\n"), "{text}");
        nothing_stored(world).await;
    })
    .await;
}

/// Resident memory of this process in MiB.
fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") / 1024
}

/// See docs/research/threats.md#w9 and docs/research/threats.md#w10.
async fn slow_clients_are_disconnected_and_memory_stays_bounded(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let at = address(world);
        // Connections that announce a large body and send nothing.
        let mut large_body_headers = headers(dialect, "silent", "issues");
        large_body_headers.push(("Content-Length".into(), (25 * 1024 * 1024).to_string()));
        let mut silent = Vec::new();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(&at).await.expect("a connection");
            stream
                .write_all(head("POST", "/webhooks/forge", &large_body_headers).as_bytes())
                .await
                .expect("the head is taken");
            silent.push(stream);
        }
        let genuine = label_delivery(world).await;
        let began = Instant::now();
        assert_eq!(deliver(world, "in-between", &genuine.event.0, genuine.body.as_bytes()).await, 202);
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
        // Others fill the memory for bodies and then send nothing. A genuine large body takes their place.
        for _ in 0..45 {
            let mut stream = TcpStream::connect(&at).await.expect("a connection");
            let request = head("POST", "/webhooks/forge", &large_body_headers);
            stream.write_all(request.as_bytes()).await.expect("the head is taken");
            // Ends early for those that are dropped.
            let _ = stream.write_all(&vec![b' '; 2 * 1024 * 1024]).await;
            silent.push(stream);
        }
        let large = format!("{{\"x\":\"{}\"}}", "y".repeat(1024 * 1024));
        let began = Instant::now();
        assert_eq!(deliver(world, "large-in-between", "issues", large.as_bytes()).await, 202);
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
        drop(silent);

        let before = resident_mib();
        let done = Arc::new(AtomicBool::new(false));
        let watch = done.clone();
        let watcher = std::thread::spawn(move || {
            let mut most = 0;
            while !watch.load(Ordering::SeqCst) {
                most = most.max(resident_mib());
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let (request, chunk) = (head("POST", "/webhooks/forge", &large_body_headers), vec![b' '; 64 * 1024]);
        let all = (0..20).map(|_| raw(&at, &request, &chunk, 25 * 16));
        let statuses = futures::future::join_all(all).await;
        done.store(true, Ordering::SeqCst);
        let most = watcher.join().expect("the watcher");
        // Without a signature the answer is 401, or the connection is closed.
        assert!(statuses.iter().all(|status| matches!(status, 401 | 408 | 503)), "{statuses:?}");
        assert!(most.saturating_sub(before) < 250, "from {before} to {most} MiB, where all at once are 500");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// Incompressible body that is stored and ignored.
fn noise(n: usize) -> Vec<u8> {
    let digit = |i: usize| char::from(b'!' + ((i + n).wrapping_mul(2_654_435_761) >> 13) as u8 % 90);
    let text: String = (0..40_000).map(digit).filter(|c| !matches!(c, '"' | '\\')).collect();
    format!("{{\"noise\":\"{text}\"}}").into_bytes()
}

/// See docs/research/faults.md#d1.
async fn full_store_answers_503_and_loses_nothing(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await;
        let before = world.delivery_outcomes().await.len();
        let limit = |pages: Option<i64>| {
            world.engine().store.write(move |c| {
                let now: i64 = c.query_row("PRAGMA page_count", [], |row| row.get(0))?;
                let most = pages.unwrap_or(now + 20);
                Ok(c.query_row(&format!("PRAGMA max_page_count = {most}"), [], |row| row.get::<_, i64>(0))?)
            })
        };
        limit(None).await.expect("the limit is set");
        let mut taken = 0;
        let mut refused = 0;
        for n in 0..30 {
            match deliver(world, &format!("noise-{n}"), "issues", &noise(n + 10)).await {
                202 => taken += 1,
                503 => refused += 1,
                other => panic!("{other}"),
            }
        }
        assert!(refused > 0, "the store is full");
        assert_eq!(world.delivery_outcomes().await.len(), before + taken, "what was taken is there");
        limit(Some(1_000_000)).await.expect("there is room again");
        assert_eq!(deliver(world, "genuine", &genuine.event.0, genuine.body.as_bytes()).await, 202);
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// See docs/research/faults.md#d2.
async fn closed_store_answers_503_and_loses_nothing(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let genuine = label_delivery(world).await;
        let (event, body) = (genuine.event.0.clone(), genuine.body.into_bytes());
        world.engine().store.close().await;
        assert_eq!(deliver(world, "again-later", &event, &body).await, 503);
        let ready = reqwest::Client::builder().no_proxy().build().expect("a client");
        let ready = ready.get(format!("http://{}/readyz", address(world))).send().await.expect("an answer");
        assert_eq!(ready.status().as_u16(), 503);
        world.restart().await;
        // The same id is accepted, as the refused delivery was not stored.
        assert_eq!(deliver(world, "again-later", &event, &body).await, 202);
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}
