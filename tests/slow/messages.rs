//! Messages in Slack and Discord that show the latest state of a loop: posted once, changed by later notices, also across
//! restarts and kills.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::service::{Service, stop, was_killed};
use crate::harness::{Setup, on_one_forge, story};

on_one_forge!(message_of_a_loop_shows_its_latest_state,);

/// Message of a room.
#[derive(Debug, Clone)]
struct RoomMessage {
    id: String,
    body: Value,
    changes: u32,
}

/// State of both services: rooms by service.
#[derive(Default)]
struct ChatState {
    slack: Vec<RoomMessage>,
    discord: Vec<RoomMessage>,
    posted: u32,
}

#[derive(Clone)]
struct Chat {
    state: Arc<Mutex<ChatState>>,
    address: SocketAddr,
    folder: Arc<tempfile::TempDir>,
    _task: Arc<JoinSet<()>>,
}

impl Chat {
    async fn start() -> Self {
        let state = Arc::<Mutex<ChatState>>::default();
        let router = Router::new().fallback(serve).with_state(state.clone());
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        std::fs::write(folder.path().join("url"), format!("http://{address}/api/webhooks/77/abcdefabcdefabcdef"))
            .expect("written");
        Self { state, address, folder, _task: Arc::new(task) }
    }

    fn slack(&self) -> Vec<RoomMessage> {
        self.state.lock().expect("no panic").slack.clone()
    }

    fn discord(&self) -> Vec<RoomMessage> {
        self.state.lock().expect("no panic").discord.clone()
    }

    /// The two entries of `escalation.channels`.
    fn channels(&self) -> [String; 2] {
        let (address, folder) = (self.address, self.folder.path().display());
        [
            format!(
                "{{ name: room, kind: slack, url: 'http://{address}/api/', secret_env: SECRET, room: C0123456789, allow_private: true }}"
            ),
            format!("{{ name: guild, kind: discord, url_file: '{folder}/url', allow_private: true }}"),
        ]
    }
}

async fn serve(State(state): State<Arc<Mutex<ChatState>>>, method: Method, uri: Uri, body: Bytes) -> Response {
    let mut state = state.lock().expect("no panic");
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let number = state.posted + 1;
    let path = uri.path();
    if let Some(call) = path.strip_prefix("/api/").filter(|call| !call.starts_with("webhooks")) {
        let ts = body["ts"].as_str().unwrap_or_default().to_owned();
        let answer = match call {
            "chat.postMessage" => {
                state.posted = number;
                let id = format!("{number}.000100");
                state.slack.push(RoomMessage { id: id.clone(), body, changes: 0 });
                json!({ "ok": true, "channel": "C0123456789", "ts": id })
            }
            "chat.update" => match state.slack.iter_mut().find(|message| message.id == ts) {
                Some(message) => {
                    let metadata = message.body["metadata"].take();
                    message.body = body;
                    message.body["metadata"] = metadata;
                    message.changes += 1;
                    json!({ "ok": true, "channel": "C0123456789", "ts": ts })
                }
                None => json!({ "ok": false, "error": "message_not_found" }),
            },
            "conversations.history" => {
                let all = state.slack.iter().rev();
                let all: Vec<_> =
                    all.map(|message| json!({ "ts": message.id, "metadata": message.body["metadata"] })).collect();
                json!({ "ok": true, "messages": all })
            }
            _ => json!({ "ok": false, "error": "unknown_method" }),
        };
        return axum::Json(answer).into_response();
    }
    if method == Method::POST {
        assert!(uri.query().is_some_and(|query| query.contains("wait=true")), "{uri}");
        state.posted = number;
        state.discord.push(RoomMessage { id: number.to_string(), body, changes: 0 });
        return axum::Json(json!({ "id": number.to_string() })).into_response();
    }
    let id = path.rsplit('/').next().unwrap_or_default().to_owned();
    match state.discord.iter_mut().find(|message| message.id == id) {
        Some(message) => {
            message.body = body;
            message.changes += 1;
            axum::Json(json!({ "id": id })).into_response()
        }
        None => {
            (StatusCode::NOT_FOUND, axum::Json(json!({ "message": "Unknown Message", "code": 10_008 }))).into_response()
        }
    }
}

/// Agent that passes the check in its third run, with a limit of two iterations.
fn limited(dialect: Dialect, channels: &[String]) -> Setup {
    let agent = "if [ $RALPH_ITERATION -ge 3 ]; then echo 42 >answer.txt; else echo $RALPH_ITERATION >answer.txt; fi\n";
    Setup::new(dialect)
        .agent(agent)
        .config("limits: { iterations: 2, comments_per_hour: 1000, comments_per_day: 1000 }")
        .config(&format!("escalation: {{ channels: [{}] }}", channels.join(", ")))
}

async fn message_of_a_loop_shows_its_latest_state(dialect: Dialect) {
    let chat = Chat::start().await;
    story(limited(dialect, &chat.channels()), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
        let ([slack], [discord]) = (&chat.slack()[..], &chat.discord()[..]) else { panic!("one message each") };
        for body in [&slack.body, &discord.body] {
            let text = body.to_string();
            assert!(text.contains("needs a decision") && text.contains("scalation"), "{text}");
        }

        // The reminder changes the message, also after a restart. A message that somebody deleted is posted again.
        chat.state.lock().expect("no panic").discord.clear();
        world.restart().await;
        world.advance(Duration::from_secs(24 * 3600)).await;
        let ([reminded], [again]) = (&chat.slack()[..], &chat.discord()[..]) else { panic!("one message each") };
        assert_eq!((reminded.id == slack.id, reminded.changes), (true, 1));
        assert!(reminded.body.to_string().contains("Reminder") && again.body.to_string().contains("Reminder"));
        assert!(again.id != discord.id && again.changes == 0);

        world.comment("/ralph resume --max-iterations 5").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        let ([done], [shown]) = (&chat.slack()[..], &chat.discord()[..]) else { panic!("one message each") };
        // Discord's title is escaped.
        for (body, says) in [(&done.body, "Resolved: "), (&shown.body, r"Resolved\\: ")] {
            assert!(body.to_string().contains(says), "{body}");
        }
        assert_eq!((done.changes, shown.changes), (2, 1));
    })
    .await;
}

/// The real binary is killed between a message and its record: Slack's message is found by the id of its delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_service_finds_its_message_in_slack() {
    let chat = Chat::start().await;
    let [room, _] = chat.channels();
    let service = Service::new(limited(Dialect::Gitea, &[room]), false).await;
    let mut first = service.spawn("all", Some("notice-sent"));
    service.until("a listener", async || service.listens().await).await;
    service.world.label().await;
    assert!(was_killed(first.wait().await.expect("it ends")), "{}", service.log());
    assert_eq!(chat.slack().len(), 1);
    let mut second = service.spawn("all", None);
    service.until("the record", async || service.has_logged("it had arrived before")).await;
    service.wait_until_idle().await;
    let [message] = &chat.slack()[..] else { panic!("one message: {:?}", chat.slack()) };
    assert_eq!(message.changes, 0);
    stop(&mut second).await;
    service.finish().await;
}

/// A Discord webhook cannot find the message, so there are two; the newer one is marked and gets all later changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_service_marks_its_repeated_discord_message() {
    let chat = Chat::start().await;
    let [_, guild] = chat.channels();
    let service = Service::new(limited(Dialect::Gitea, &[guild]), false).await;
    let mut first = service.spawn("all", Some("notice-sent"));
    service.until("a listener", async || service.listens().await).await;
    service.world.label().await;
    assert!(was_killed(first.wait().await.expect("it ends")), "{}", service.log());
    assert_eq!(chat.discord().len(), 1);
    let mut second = service.spawn("all", None);
    service.until("the second message", async || chat.discord().len() == 2).await;
    service.wait_until_idle().await;
    let [lost, kept] = &chat.discord()[..] else { panic!("two messages: {:?}", chat.discord()) };
    assert!(!lost.body.to_string().contains("out of date"), "{}", lost.body);
    assert!(kept.body["embeds"][0]["footer"]["text"].to_string().contains("out of date"), "{}", kept.body);
    service.world.comment("/ralph resume --max-iterations 5").await;
    service.until("the resolution", async || chat.discord()[1].changes == 1).await;
    let resolved = &chat.discord()[1].body;
    assert!(resolved.to_string().contains("Resolved") && !resolved.to_string().contains("out of date"), "{resolved}");
    assert_eq!((chat.discord().len(), chat.discord()[0].changes), (2, 0));
    service.wait_until_idle().await;
    stop(&mut second).await;
    service.finish().await;
}
