//! Escalations on channels outside of the forge: real HTTP to receivers on loopback that accept, refuse, hang, or ask for a
//! delay.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use fake_forge::Dialect;
use ralph_bot::channels;
use ralph_bot::domain::loops;
use ralph_bot::store::outbox;
use secrecy::SecretString;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::harness::service::{Service, stop};
use crate::harness::{SECRET, Setup, World, live_story, on_one_forge, story};

on_one_forge!(
    channels_are_notified_independently,
    failed_notification_is_retried_for_a_day,
    strategy_change_is_sent_to_warning_channels,
);

/// A message to a channel, whose receiver has a separate path.
#[derive(Debug, Clone)]
struct ReceivedMessage {
    delivery: String,
    signed: bool,
    timestamp: String,
    body: Value,
}

/// Response of a path.
#[derive(Clone, Copy)]
enum ChannelResponse {
    Status(u16, Option<u32>),
    /// Refuses, and returns the received body.
    Echo,
    Hang,
}

#[derive(Default)]
struct ReceiverState {
    answers: HashMap<String, ChannelResponse>,
    received: HashMap<String, Vec<ReceivedMessage>>,
}

#[derive(Clone)]
struct Receiver {
    inside: Arc<Mutex<ReceiverState>>,
    address: SocketAddr,
    /// Task of the receiver, aborted on drop.
    _task: Arc<JoinSet<()>>,
}

impl Receiver {
    async fn start() -> Self {
        let inside = Arc::<Mutex<ReceiverState>>::default();
        let router = Router::new().fallback(hear).with_state(inside.clone());
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { inside, address, _task: Arc::new(task) }
    }

    fn answers(&self, path: &str, answer: ChannelResponse) {
        self.inside.lock().expect("no panic in here").answers.insert(path.to_owned(), answer);
    }

    fn received(&self, path: &str) -> Vec<ReceivedMessage> {
        self.inside.lock().expect("no panic in here").received.get(path).cloned().unwrap_or_default()
    }

    /// Events of a path, oldest first.
    fn events(&self, path: &str) -> Vec<String> {
        let text = |message: &ReceivedMessage| {
            let body = &message.body;
            body["event"].as_str().or(body["event_action"].as_str()).unwrap_or_default().to_owned()
        };
        self.received(path).iter().map(text).collect()
    }

    /// An entry of `escalation.channels`.
    fn channel(&self, name: &str, kind: &str) -> String {
        let address = self.address;
        format!(
            "{{ name: {name}, kind: {kind}, url: 'http://{address}/{name}', secret_env: SECRET, allow_private: true }}"
        )
    }
}

async fn hear(State(inside): State<Arc<Mutex<ReceiverState>>>, headers: HeaderMap, uri: Uri, body: Bytes) -> Response {
    let path = uri.path().trim_start_matches('/').to_owned();
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let (timestamp, signature) = (header(channels::TIMESTAMP_HEADER), header(channels::SIGNATURE_HEADER));
    let echoed = String::from_utf8_lossy(&body).into_owned();
    let message = ReceivedMessage {
        delivery: header(channels::DELIVERY_HEADER),
        signed: channels::verify(&SecretString::from(SECRET), &timestamp, &body, &signature),
        timestamp,
        body: serde_json::from_slice(&body).expect("JSON"),
    };
    let answer = {
        let mut inside = inside.lock().expect("no panic in here");
        inside.received.entry(path.clone()).or_default().push(message);
        inside.answers.get(&path).copied().unwrap_or(ChannelResponse::Status(200, None))
    };
    match answer {
        ChannelResponse::Hang => std::future::pending().await,
        ChannelResponse::Echo => {
            (axum::http::StatusCode::BAD_REQUEST, format!("not understood: {echoed}")).into_response()
        }
        ChannelResponse::Status(status, after) => {
            let status = axum::http::StatusCode::from_u16(status).expect("a status");
            let headers: HeaderMap = after.into_iter().map(|s| (axum::http::header::RETRY_AFTER, s.into())).collect();
            (status, headers).into_response()
        }
    }
}

/// Agent that passes the check in its third run, with a limit of two iterations.
fn too_few_iterations(dialect: Dialect, channels: &[String]) -> Setup {
    let agent = "if [ $RALPH_ITERATION -ge 3 ]; then echo 42 >answer.txt; else echo $RALPH_ITERATION >answer.txt; fi\n";
    let channels = channels.join(", ");
    Setup::new(dialect)
        .agent(agent)
        .config("limits: { iterations: 2, comments_per_hour: 1000, comments_per_day: 1000 }")
        .config(&format!("escalation: {{ channels: [{channels}] }}"))
}

/// Receipts of a channel from the audit log of the newest loop: key and receipt.
async fn audit(world: &World, channel: &str) -> Vec<(String, String, String)> {
    let all = world.receipts().await.into_iter().filter(|r| r.key.starts_with(&format!("notify/{channel}/")));
    all.map(|r| (r.key, r.state, r.receipt.unwrap_or_default())).collect()
}

async fn channels_are_notified_independently(dialect: Dialect) {
    let receiver = Receiver::start().await;
    receiver.answers("stuck", ChannelResponse::Hang);
    let channels = [("stuck", "generic"), ("own", "generic"), ("duty", "pagerduty"), ("quiet", "generic")];
    let mut channels: Vec<_> = channels.iter().map(|(name, kind)| receiver.channel(name, kind)).collect();
    let wants_worse = channels[3].replace("allow_private", "levels: [warning, emergency], allow_private");
    channels[3] = wants_worse;
    story(too_few_iterations(dialect, &channels), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, loops::LoopState::LimitReached, "{}", stopped.why);
        let [issue] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        let [message] = &receiver.received("own")[..] else { panic!("one message: {:?}", receiver.events("own")) };
        assert!(message.signed && message.delivery.len() == 32, "{}", message.delivery);
        let body = &message.body;
        assert_eq!((body["event"].as_str(), body["level"].as_str()), (Some("escalation.raised"), Some("critical")));
        assert_eq!(
            (body["cause"].as_str(), body["id"].as_str()),
            (Some("limit_iterations"), Some(message.delivery.as_str()))
        );
        assert_eq!(body["loop"].as_str(), Some(stopped.id.as_str()));
        assert_eq!(body["issue"]["title"], "The answer is wrong");
        let answer = body["escalation_url"].as_str().expect("where to answer");
        assert!(answer.ends_with(&format!("/{issue}")), "{answer}");
        assert!(body["replies"].to_string().contains("/ralph resume --max-iterations"), "{body}");
        assert_eq!(receiver.events("duty"), ["trigger"]);
        assert_eq!(receiver.events("quiet"), [""; 0]);
        assert_eq!(receiver.events("stuck").len(), 1, "it hangs, and is tried again after a while");

        // The loop continues whether or not messages were delivered; only incidents are resolved.
        world.comment("/ralph resume --max-iterations 5").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (loops::LoopState::Review, 3), "{}", done.why);
        assert_eq!(receiver.events("own"), ["escalation.raised"]);
        assert_eq!(receiver.events("duty"), ["trigger", "resolve"]);
        let keys: HashSet<_> = receiver.received("duty").iter().map(|m| m.body["dedup_key"].to_string()).collect();
        assert_eq!(keys.len(), 1, "one incident: {keys:?}");
        world.advance(Duration::from_secs(60)).await;
        assert_eq!(receiver.events("own").len() + receiver.events("duty").len(), 3, "a message was sent twice");
        receiver.answers("stuck", ChannelResponse::Status(204, None));
        world.advance(Duration::from_secs(60)).await;
        let tries = receiver.received("stuck");
        assert!(tries.len() >= 3 && tries.iter().all(|m| m.signed && m.delivery == tries[0].delivery));
        let [(_, state, receipt)] = &audit(world, "stuck").await[..] else { panic!("one message") };
        assert!(state == "done" && receipt.starts_with("HTTP 204"), "{state}: {receipt}");
    })
    .await;
}

async fn failed_notification_is_retried_for_a_day(dialect: Dialect) {
    let receiver = Receiver::start().await;
    receiver.answers("busy", ChannelResponse::Status(500, None));
    receiver.answers("wrong", ChannelResponse::Status(400, None));
    receiver.answers("broken", ChannelResponse::Status(503, None));
    let mut channels: Vec<_> = ["busy", "wrong", "broken", "own"].map(|n| receiver.channel(n, "generic")).to_vec();
    channels.push(receiver.channel("duty", "pagerduty"));
    // A name that is public by its looks.
    channels.push("{ name: inside, kind: generic, url: 'https://localhost:1/', secret_env: SECRET }".into());
    story(too_few_iterations(dialect, &channels), async |world| {
        world.run().await;
        assert_eq!(receiver.received("busy").len(), 1);
        // A refusal without `Retry-After` is not retried immediately.
        receiver.answers("broken", ChannelResponse::Status(429, Some(0)));
        world.settle().await;
        assert_eq!(receiver.received("broken").len(), 1);
        receiver.answers("busy", ChannelResponse::Status(429, Some(90)));
        world.advance(Duration::from_secs(2)).await;
        assert_eq!(receiver.received("busy").len(), 2);

        // It asked for 90 s; a restart in between makes no difference.
        receiver.answers("busy", ChannelResponse::Status(200, None));
        world.restart().await;
        world.advance(Duration::from_secs(80)).await;
        assert_eq!(receiver.received("busy").len(), 2, "the channel was called within its Retry-After");
        world.advance(Duration::from_secs(11)).await;
        let tries = receiver.received("busy");
        assert_eq!(tries.len(), 3);
        assert!(
            tries.iter().all(|m| m.signed && m.delivery == tries[0].delivery && m.body["key"] == tries[0].body["key"])
        );
        assert!(tries[0].timestamp < tries[2].timestamp, "the time of sending is that of the try");
        assert_eq!(receiver.received("own").len(), 1, "what was delivered is not sent again");

        // A permanent refusal is not retried and is visible.
        assert_eq!(receiver.received("wrong").len(), 1);
        for (channel, why) in [("wrong", "given up: HTTP 400"), ("inside", "not public")] {
            let [(_, state, receipt)] = &audit(world, channel).await[..] else { panic!("one message to {channel}") };
            assert!(state == "rejected" && receipt.contains(why), "{channel}: {state}: {receipt}");
        }

        // Without an answer for a day there is one reminder, and none on channels with incidents: a person may have resolved
        // the incident, and another event would page people again. The other channel has refused its message for a day.
        world.advance(Duration::from_secs(24 * 3600)).await;
        assert_eq!(receiver.events("own"), ["escalation.raised", "escalation.reminder"]);
        let messages = receiver.received("own");
        assert!(messages[0].body["key"] == messages[1].body["key"] && messages[0].delivery != messages[1].delivery);
        assert_eq!(receiver.events("duty"), ["trigger"]);
        let broken = audit(world, "broken").await;
        assert!(broken[0].1 == "rejected" && broken[0].2.contains("not accepted within 24 h"), "{broken:?}");
        world.advance(Duration::from_secs(3 * 24 * 3600)).await;
        assert_eq!((receiver.events("own").len(), receiver.events("duty").len()), (2, 1), "one reminder, no more");
        let broken = audit(world, "broken").await;
        assert!(broken.len() == 2 && broken.iter().all(|(_, state, _)| state == "rejected"), "{broken:?}");
        world.comment("/ralph abort").await;
        world.settle().await;
        assert_eq!(receiver.events("duty"), ["trigger", "resolve"], "the incident is ended with the loop");
    })
    .await;
}

async fn strategy_change_is_sent_to_warning_channels(dialect: Dialect) {
    let receiver = Receiver::start().await;
    let warned = |name: &str, kind: &str| {
        receiver.channel(name, kind).replace("allow_private", "levels: [warning, critical, emergency], allow_private")
    };
    let channels = [warned("all", "generic"), warned("duty", "pagerduty"), receiver.channel("usual", "generic")];
    let agent =
        "case \"$(cat)\" in *'forty two'*) echo 42 >answer.txt ;; *) echo \"$RALPH_ITERATION\" >answer.txt ;; esac\n";
    let limits = "limits: { iterations: 30, comments_per_hour: 1000, comments_per_day: 1000 }";
    let setup = Setup::new(dialect).agent(agent).config(limits);
    story(setup.config(&format!("escalation: {{ channels: [{}] }}", channels.join(", "))), async |world| {
        let paused = world.run().await;
        assert_eq!(paused.state, loops::LoopState::Paused, "{}", paused.why);
        let all = receiver.received("all");
        let of =
            |message: &ReceivedMessage| [&message.body["level"], &message.body["cause"]].map(|text| text.to_string());
        let (last, before) = all.split_last().expect("messages");
        assert_eq!(of(last), ["\"critical\"", "\"stuck\""]);
        assert!(
            !before.is_empty() && before.iter().all(|m| of(m) == ["\"warning\"", "\"redirect_stuck\""]),
            "{before:?}"
        );
        let body = &before[0].body;
        assert!(
            body["what_happened"].to_string().contains("the loop continues") && body["escalation_url"].is_null(),
            "{body}"
        );
        assert_eq!(receiver.received("usual").len(), 1, "a warning was sent to a channel that does not want warnings");
        // One issue, and two incidents: an earlier warning does not suppress the message about the pause.
        assert_eq!(world.escalations().len(), 1);
        let keys: HashSet<_> = receiver.received("duty").iter().map(|m| m.body["dedup_key"].to_string()).collect();
        assert_eq!(keys.len(), 2, "{keys:?}");
        world.comment("/ralph resume It is forty two.").await;
        world.settle().await;
        let ended = receiver.received("duty").into_iter().filter(|m| m.body["event_action"] == "resolve");
        assert_eq!(ended.map(|m| m.body["dedup_key"].to_string()).collect::<HashSet<_>>(), keys, "both are over");
    })
    .await;
}

/// Live service: a hanging channel delays neither the other channels nor the stop of the service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_channel_does_not_delay_service() {
    let receiver = Receiver::start().await;
    receiver.answers("stuck", ChannelResponse::Hang);
    let channels = [receiver.channel("stuck", "generic"), receiver.channel("own", "generic")];
    live_story(too_few_iterations(Dialect::Gitea, &channels), async |world| {
        world.label().await;
        world.until("the limit", |l| l.state == loops::LoopState::LimitReached).await;
        let both = async {
            while receiver.received("own").is_empty() || receiver.received("stuck").is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), both).await.expect("both channels are notified");
        world.stop().await;
        receiver.answers("stuck", ChannelResponse::Status(200, None));
        world.start().await;
        let delivered = async {
            while audit(world, "stuck").await.iter().any(|(_, state, _)| state != "done") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), delivered).await.expect("it is delivered after the restart");
        let tries = receiver.received("stuck");
        assert!(tries.len() > 1 && tries.iter().all(|m| m.delivery == tries[0].delivery));
        assert_eq!(receiver.received("own").len(), 1);
    })
    .await;
}

/// The real binary is killed while a channel hangs: the message is sent again with the same delivery id. A secret that a
/// channel echoes reaches neither the log nor the database, which the invariants check.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_service_resends_notification() {
    let receiver = Receiver::start().await;
    receiver.answers("stuck", ChannelResponse::Hang);
    receiver.answers("echo", ChannelResponse::Echo);
    let channels = [receiver.channel("stuck", "generic"), receiver.channel("echo", "pagerduty")];
    let service = Service::new(too_few_iterations(Dialect::Gitea, &channels), false).await;
    let mut first = service.spawn("all", None);
    service.until("a listener", async || service.listens().await).await;
    service.world.label().await;
    service
        .until("both channels are notified", async || {
            !receiver.received("stuck").is_empty() && !receiver.received("echo").is_empty()
        })
        .await;
    let refused = async || {
        let (Some(store), Some(current)) = (service.store().await, service.newest().await) else { return false };
        let effects = store.read(move |c| outbox::of_subject(c, current.id.as_str())).await.expect("receipts");
        effects.iter().any(|r| r.key.starts_with("notify/echo/") && r.state == "rejected")
    };
    service.until("the refusal", refused).await;
    assert!(receiver.received("echo")[0].body["routing_key"] == SECRET && service.has_logged("not understood"));
    first.kill().await.expect("killed");
    receiver.answers("stuck", ChannelResponse::Status(200, None));
    let mut second = service.spawn("all", None);
    service.until("the message", async || receiver.received("stuck").len() > 1).await;
    service.wait_until_idle().await;
    let tries = receiver.received("stuck");
    assert!(tries.len() == 2 && tries.iter().all(|m| m.signed && m.delivery == tries[0].delivery), "{}", tries.len());
    assert_eq!(receiver.received("echo").len(), 1);
    stop(&mut second).await;
    service.finish().await;
}
