//! Tests of Slack app and Discord webhook messages that are posted once and edited later, with both services' documented
//! errors.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::http::Method;

use super::*;
use crate::domain::report::notice::samples::notice;

/// Request to the fake service: method, path with query, and body.
type ChatCall = (Method, String, Value);

#[derive(Default)]
struct ChatScript {
    calls: Vec<ChatCall>,
    /// Next responses: status, requested wait, body.
    answers: VecDeque<(u16, Option<&'static str>, Value)>,
    authorization: String,
}

struct FakeChat {
    address: SocketAddr,
    script: Arc<Mutex<ChatScript>>,
    _task: JoinSet<()>,
}

impl FakeChat {
    async fn start(answers: impl IntoIterator<Item = (u16, Option<&'static str>, Value)>) -> Self {
        let script =
            Arc::new(Mutex::new(ChatScript { answers: answers.into_iter().collect(), ..ChatScript::default() }));
        let router = Router::new().fallback(scripted).with_state(script.clone());
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { address, script, _task: task }
    }

    fn calls(&self) -> Vec<ChatCall> {
        std::mem::take(&mut self.script.lock().expect("no panic").calls)
    }

    /// Method and path of each call so far.
    fn paths(&self) -> Vec<String> {
        self.calls().into_iter().map(|(method, path, _)| format!("{method} {path}")).collect()
    }

    fn slack(&self) -> Channel {
        channel(ChannelKind::SlackBot, &format!("http://{}/api/", self.address), true)
    }

    fn discord(&self) -> Channel {
        channel(
            ChannelKind::Discord,
            &format!("http://{}/api/webhooks/77/tokenTOKENtoken?thread_id=5", self.address),
            true,
        )
    }
}

async fn scripted(
    State(script): State<Arc<Mutex<ChatScript>>>,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
    body: Bytes,
) -> Response {
    let mut script = script.lock().expect("no panic");
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    script.calls.push((method, uri.to_string(), body));
    script.authorization =
        headers.get("authorization").map(|v| v.to_str().expect("text").to_owned()).unwrap_or_default();
    let (status, wait, body) = script.answers.pop_front().expect("an answer is left");
    let status = StatusCode::from_u16(status).expect("a status");
    let wait: HeaderMap = wait.into_iter().map(|wait| (RETRY_AFTER, HeaderValue::from_static(wait))).collect();
    (status, wait, body.to_string()).into_response()
}

fn posted_slack(ts: &str) -> (u16, Option<&'static str>, Value) {
    (200, None, serde_json::json!({ "ok": true, "channel": "C0123456789", "ts": ts, "message": {} }))
}

fn slack_error(error: &str) -> (u16, Option<&'static str>, Value) {
    (200, None, serde_json::json!({ "ok": false, "error": error }))
}

fn posted_discord(id: &str) -> (u16, Option<&'static str>, Value) {
    (200, None, serde_json::json!({ "id": id, "type": 0, "content": "" }))
}

fn discord_error(status: u16, code: u32) -> (u16, Option<&'static str>, Value) {
    (status, None, serde_json::json!({ "message": "Unknown", "code": code }))
}

async fn step(channel: &Channel, notice: &Notice, posted: Option<&PostedMessage>) -> SendOutcome {
    channel.send(sending(notice, posted), PATIENCE, NOW).await
}

fn message(outcome: SendOutcome) -> PostedMessage {
    match outcome {
        SendOutcome::Delivered { posted: Some(posted), .. } => posted,
        other => panic!("no message: {other:?}"),
    }
}

fn with(occasion: Occasion, level: EscalationLevel) -> Notice {
    Notice { occasion, level, ..notice() }
}

#[tokio::test]
async fn slack_message_is_posted_changed_and_resolved() {
    let fake = FakeChat::start([posted_slack("1.5"), posted_slack("1.5"), posted_slack("1.5")]).await;
    let channel = fake.slack();
    let first = message(step(&channel, &notice(), None).await);
    assert_eq!((first.place.as_str(), first.id.as_str()), ("C0123456789", "1.5"));
    let reminded = message(step(&channel, &with(Occasion::Reminder, EscalationLevel::Critical), Some(&first)).await);
    let resolved = message(step(&channel, &with(Occasion::Resolved, EscalationLevel::Info), Some(&reminded)).await);
    assert_eq!((resolved.id.as_str(), resolved.occasion), ("1.5", Occasion::Resolved));
    let calls = fake.calls();
    let paths: Vec<_> = calls.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    assert_eq!(paths, ["POST /api/chat.postMessage", "POST /api/chat.update", "POST /api/chat.update"]);
    assert_eq!(calls[0].2["metadata"]["event_payload"]["delivery"], "d-1");
    assert!(calls.iter().all(|(.., body)| body["channel"] == "C0123456789" && body["blocks"].is_array()));
    assert!(calls[0].2["ts"].is_null() && calls[1].2["ts"] == "1.5");
    assert!(calls[2].2["text"].to_string().contains("Resolved: mira/app#42 (all 10"), "{}", calls[2].2["text"]);
    assert_eq!(fake.script.lock().expect("no panic").authorization, format!("Bearer {KEY}"));
}

#[tokio::test]
async fn deleted_slack_message_is_posted_again_unless_it_is_resolved() {
    for error in ["message_not_found", "cant_update_message", "edit_window_closed"] {
        let fake = FakeChat::start([slack_error(error), posted_slack("2.0"), slack_error(error)]).await;
        let channel = fake.slack();
        let gone = PostedMessage {
            place: "C0123456789".into(),
            id: "1.5".into(),
            level: EscalationLevel::Critical,
            occasion: Occasion::Raised,
        };
        let again = message(step(&channel, &with(Occasion::Reminder, EscalationLevel::Critical), Some(&gone)).await);
        assert_eq!(again.id, "2.0");
        let resolved = step(&channel, &with(Occasion::Resolved, EscalationLevel::Info), Some(&again)).await;
        assert!(matches!(resolved, SendOutcome::Nothing { .. }), "{resolved:?}");
        assert_eq!(fake.paths(), ["POST /api/chat.update", "POST /api/chat.postMessage", "POST /api/chat.update"]);
    }
}

#[tokio::test]
async fn slack_errors_determine_retries() {
    for (error, word) in [
        ("invalid_auth", "the bot token is not valid"),
        ("token_revoked", "the bot token is not valid"),
        ("channel_not_found", "invite the app"),
        ("not_in_channel", "invite the app"),
        ("is_archived", "is_archived"),
        ("missing_scope", "chat:write"),
        ("something_new", "something_new"),
    ] {
        let fake = FakeChat::start([slack_error(error)]).await;
        let outcome = step(&fake.slack(), &notice(), None).await;
        assert!(matches!(&outcome, SendOutcome::Rejected { why } if why.contains(word)), "{error}: {outcome:?}");
    }
    for error in ["ratelimited", "internal_error", "service_unavailable", "fatal_error", "request_timeout"] {
        let fake = FakeChat::start([slack_error(error)]).await;
        let outcome = step(&fake.slack(), &notice(), None).await;
        assert!(matches!(&outcome, SendOutcome::Retry { .. }), "{error}: {outcome:?}");
    }
    let limited =
        FakeChat::start([(429, Some("30"), serde_json::json!({ "ok": false, "error": "ratelimited" }))]).await;
    let channel = limited.slack();
    let outcome = step(&channel, &notice(), None).await;
    assert!(matches!(&outcome, SendOutcome::Retry { after_ms: Some(30_000), .. }), "{outcome:?}");
    assert!(channel.is_paused(NOW.plus_ms(29_999)));
    let page = FakeChat::start([(200, None, Value::from("a page of a proxy"))]).await;
    let outcome = step(&page.slack(), &notice(), None).await;
    assert!(
        matches!(&outcome, SendOutcome::Retry { why, .. } if why.contains("not an answer of Slack")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn slack_message_with_a_lost_answer_is_found_instead_of_posted_twice() {
    let ours = |delivery: &str| serde_json::json!({ "ts": "9.1", "metadata": { "event_type": "ralph_bot_notice", "event_payload": { "delivery": delivery } } });
    let history = |messages: Value| (200, None, serde_json::json!({ "ok": true, "messages": messages }));
    let again = async |fake: &FakeChat| {
        let notice = notice();
        fake.slack().send(NoticeDelivery { again: true, ..sending(&notice, None) }, PATIENCE, NOW).await
    };
    let found = FakeChat::start([history(serde_json::json!([{ "ts": "9.2", "text": "hello" }, ours("d-1")]))]).await;
    let outcome = again(&found).await;
    assert!(matches!(&outcome, SendOutcome::Delivered { how, .. } if how == "it had arrived before"), "{outcome:?}");
    assert_eq!(message(outcome).id, "9.1");
    assert_eq!(
        found.paths(),
        ["GET /api/conversations.history?channel=C0123456789&include_all_metadata=true&limit=50"]
    );
    // The message did not arrive, or the app may not search for it, so it is posted.
    for answer in [history(serde_json::json!([ours("another")])), slack_error("missing_scope")] {
        let fake = FakeChat::start([answer, posted_slack("9.3")]).await;
        assert_eq!(message(again(&fake).await).id, "9.3");
        assert_eq!(fake.paths()[1], "POST /api/chat.postMessage");
    }
}

#[tokio::test]
async fn discord_message_is_posted_changed_and_resolved() {
    let fake = FakeChat::start([posted_discord("900"), posted_discord("900"), posted_discord("900")]).await;
    let channel = fake.discord();
    let first = message(step(&channel, &notice(), None).await);
    assert_eq!((first.place.as_str(), first.id.as_str()), ("77", "900"));
    let reminded = message(step(&channel, &with(Occasion::Reminder, EscalationLevel::Critical), Some(&first)).await);
    let resolved = message(step(&channel, &with(Occasion::Resolved, EscalationLevel::Info), Some(&reminded)).await);
    assert_eq!(resolved.occasion, Occasion::Resolved);
    let calls = fake.calls();
    let paths: Vec<_> = calls.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    let changed = "PATCH /api/webhooks/77/tokenTOKENtoken/messages/900?thread_id=5";
    assert_eq!(paths, ["POST /api/webhooks/77/tokenTOKENtoken?thread_id=5&wait=true", changed, changed]);
    let embed = &calls[2].2["embeds"][0];
    assert!(embed["title"].to_string().contains("Resolved") && embed["color"] == 0x1a_7f_37, "{embed}");
}

#[tokio::test]
async fn repeated_discord_message_is_marked_until_it_is_changed() {
    let fake = FakeChat::start([posted_discord("900"), posted_discord("901"), posted_discord("901")]).await;
    let channel = fake.discord();
    let notice = notice();
    let outcome = channel.send(NoticeDelivery { again: true, ..sending(&notice, None) }, PATIENCE, NOW).await;
    let first = message(outcome);
    let reminder = with(Occasion::Reminder, EscalationLevel::Critical);
    channel.send(NoticeDelivery { again: true, ..sending(&reminder, Some(&first)) }, PATIENCE, NOW).await;
    message(step(&channel, &notice, None).await);
    let footers: Vec<Value> =
        fake.calls().iter().map(|(.., body)| body["embeds"][0]["footer"]["text"].clone()).collect();
    assert!(
        footers[0].as_str().is_some_and(|text| text.contains("a copy above this one is out of date")),
        "{footers:?}"
    );
    assert_eq!(footers[1..], [Value::from("no answer yet"), Value::Null]);
}

#[tokio::test]
async fn discord_errors_determine_retries_and_new_messages() {
    let posted = |fake: &FakeChat| PostedMessage {
        place: fake.discord().place.clone(),
        id: "900".into(),
        level: EscalationLevel::Critical,
        occasion: Occasion::Raised,
    };
    let reminder = with(Occasion::Reminder, EscalationLevel::Critical);
    let deleted = FakeChat::start([discord_error(404, 10_008), posted_discord("901")]).await;
    assert_eq!(message(step(&deleted.discord(), &reminder, Some(&posted(&deleted))).await).id, "901");
    // The webhook itself no longer exists, so no message can be posted.
    let gone = FakeChat::start([discord_error(404, 10_015)]).await;
    let outcome = step(&gone.discord(), &reminder, Some(&posted(&gone))).await;
    assert!(matches!(&outcome, SendOutcome::Rejected { why } if why.starts_with("HTTP 404")), "{outcome:?}");
    let limit = serde_json::json!({ "message": "You are being rate limited.", "retry_after": 1.5, "global": false });
    let limited = FakeChat::start([(429, Some("1.5"), limit)]).await;
    let outcome = step(&limited.discord(), &notice(), None).await;
    assert!(matches!(&outcome, SendOutcome::Retry { after_ms: Some(1_500), .. }), "{outcome:?}");
    // A service that returns no id: later notices are separate messages.
    let silent = FakeChat::start([(204, None, Value::Null)]).await;
    assert_eq!(step(&silent.discord(), &notice(), None).await, delivered(204));
    let echo = FakeChat::start([(400, None, Value::from("no: tokenTOKENtoken"))]).await;
    let outcome = step(&echo.discord(), &notice(), None).await;
    assert!(!format!("{outcome:?}").contains("TOKEN"), "{outcome:?}");
}

#[tokio::test]
async fn worsening_loop_gets_a_new_message_and_the_old_one_points_to_it() {
    let fake = FakeChat::start([posted_discord("2"), discord_error(500, 0), posted_discord("3")]).await;
    let channel = fake.discord();
    let warned = PostedMessage {
        place: "77".into(),
        id: "1".into(),
        level: EscalationLevel::Warning,
        occasion: Occasion::Raised,
    };
    let paused = message(step(&channel, &notice(), Some(&warned)).await);
    assert_eq!((paused.id.as_str(), paused.level), ("2", EscalationLevel::Critical));
    let calls = fake.calls();
    assert!(calls[1].1.contains("/messages/1") && calls[1].2.to_string().contains("newer message"), "{calls:?}");
    // After a resolution, the older message does not change.
    let resolved = PostedMessage { occasion: Occasion::Resolved, ..paused };
    assert_eq!(message(step(&channel, &notice(), Some(&resolved)).await).id, "3");
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn channel_check_sends_no_message() {
    let fake = FakeChat::start([
        (200, None, serde_json::json!({ "ok": true, "team": "Mira\u{1b}[1m", "user": "ralph" })),
        slack_error("invalid_auth"),
        (200, None, serde_json::json!({ "id": "77", "name": "ralph" })),
        discord_error(401, 50_027),
    ])
    .await;
    assert_eq!(fake.slack().probe(NOW).await.expect("accepted").as_deref(), Some("as `ralph` in `Mira [1m`"));
    assert!(fake.slack().probe(NOW).await.is_err_and(|why| why.to_string().contains("not valid")));
    assert_eq!(fake.discord().probe(NOW).await.expect("accepted").as_deref(), Some("webhook `ralph`"));
    assert!(fake.discord().probe(NOW).await.is_err_and(|why| why.to_string().contains("HTTP 401")));
    let unasked = channel(ChannelKind::Slack, "https://hooks.slack.com/x", false).probe(NOW).await;
    assert!(matches!(unasked, Ok(None)));
    let paths = fake.paths();
    assert!(paths[0] == "POST /api/auth.test" && paths[2].starts_with("GET /api/webhooks/77/"), "{paths:?}");
}
