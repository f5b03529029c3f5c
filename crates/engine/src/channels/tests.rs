//! Tests of delivery attempts against a real server on loopback: the request and the handling of the response.

#[cfg(feature = "mail")]
mod mail;
mod messages;

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::*;
use crate::domain::report::notice::Occasion;
use crate::domain::report::notice::samples::notice;
use crate::domain::trust::outbound::OutboundFilter;

const KEY: &str = "a-signing-key-of-at-least-32-bytes";
const NOW: Timestamp = Timestamp(1_790_000_000_123);
const PATIENCE: Duration = Duration::from_millis(400);

type Request = (HeaderMap, Uri, Bytes);

/// Server whose response depends on the request path; records every request.
struct Server {
    address: SocketAddr,
    seen: UnboundedReceiver<Request>,
    /// Task of the server, aborted when dropped.
    _task: JoinSet<()>,
}

async fn server() -> Server {
    let (tell, seen) = unbounded_channel();
    let router = Router::new().fallback(answer).with_state(tell);
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut task = JoinSet::new();
    task.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    Server { address, seen, _task: task }
}

async fn answer(State(tell): State<UnboundedSender<Request>>, headers: HeaderMap, uri: Uri, body: Bytes) -> Response {
    let echoed = String::from_utf8_lossy(&body).into_owned();
    let path = uri.path().to_owned();
    tell.send((headers, uri, body)).expect("somebody listens");
    let status = StatusCode::from_u16(path.rsplit('/').next().and_then(|s| s.parse().ok()).unwrap_or(200)).expect("ok");
    match path.split('/').nth(1) {
        Some("part") => (status, path.rsplit('/').nth(1).unwrap_or_default().to_owned()).into_response(),
        Some("hang") => std::future::pending().await,
        Some("wait") => (status, [(RETRY_AFTER, "7.5")]).into_response(),
        Some("echo") => (status, format!("what is {path}?{echoed}")).into_response(),
        Some("away") => (status, [("location", "/200")]).into_response(),
        _ => status.into_response(),
    }
}

fn channel(kind: ChannelKind, url: &str, allow_private: bool) -> Channel {
    let secret = match kind {
        ChannelKind::Slack | ChannelKind::Discord | ChannelKind::Mail => None,
        ChannelKind::SlackBot | ChannelKind::PagerDuty | ChannelKind::Generic => Some(SecretString::from(KEY)),
    };
    let levels = vec![EscalationLevel::Critical];
    let url = SecretString::from(url);
    let room = (kind == ChannelKind::SlackBot).then(|| "C0123456789".to_owned());
    let settings = ChannelSettings { name: "one".into(), kind, url, secret, levels, allow_private, room, mail: None };
    Channel::new(settings, OutboundFilter::default()).expect("a channel")
}

fn sending<'n>(notice: &'n Notice, posted: Option<&'n PostedMessage>) -> NoticeDelivery<'n> {
    NoticeDelivery { notice, delivery: "d-1", answer: None, posted, again: false }
}

fn delivered(status: u16) -> SendOutcome {
    SendOutcome::Delivered { status, how: String::new(), posted: None }
}

async fn send(channel: &Channel) -> SendOutcome {
    channel.send(sending(&notice(), None), PATIENCE, NOW).await
}

/// Performs one attempt against a path on the server.
async fn at(server: &Server, path: &str) -> SendOutcome {
    send(&channel(ChannelKind::Generic, &format!("http://{}{path}", server.address), true)).await
}

#[tokio::test]
async fn receiver_can_verify_signature() {
    let mut server = server().await;
    let url = format!("http://{}/in/200", server.address);
    assert_eq!(send(&channel(ChannelKind::Generic, &url, true)).await, delivered(200));
    let (headers, _, body) = server.seen.recv().await.expect("a request");
    let value = |name: &str| headers[name].to_str().expect("text").to_owned();
    let (timestamp, signature) = (value(TIMESTAMP_HEADER), value(SIGNATURE_HEADER));
    assert_eq!((timestamp.as_str(), value(DELIVERY_HEADER).as_str()), ("1790000000", "d-1"));
    assert!(verify(&SecretString::from(KEY), &timestamp, &body, &signature));
    assert!(!verify(&SecretString::from(KEY), "1790000001", &body, &signature), "the time is signed too");
    assert!(!verify(&SecretString::from(KEY), &timestamp, &body[1..], &signature));
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((body["version"].as_u64(), body["id"].as_str()), (Some(1), Some("d-1")));
}

#[tokio::test]
async fn each_service_gets_its_own_format() {
    let mut server = server().await;
    let url = format!("http://{}/in/204", server.address);
    for kind in [ChannelKind::Slack, ChannelKind::Discord, ChannelKind::PagerDuty] {
        assert_eq!(send(&channel(kind, &url, true)).await, delivered(204));
        let (headers, _, body) = server.seen.recv().await.expect("a request");
        assert!(headers.get(SIGNATURE_HEADER).is_none() && headers[CONTENT_TYPE] == "application/json", "{kind:?}");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let key = body.get("routing_key").and_then(Value::as_str);
        assert_eq!(key, (kind == ChannelKind::PagerDuty).then_some(KEY), "{kind:?}");
    }
    let resolved = Notice { occasion: Occasion::Resolved, ..notice() };
    let outcome = channel(ChannelKind::Slack, &url, true).send(sending(&resolved, None), PATIENCE, NOW).await;
    assert!(matches!(outcome, SendOutcome::Rejected { .. }), "{outcome:?}");
}

#[tokio::test]
async fn response_status_determines_retry() {
    let server = server().await;
    for status in [408, 429, 500, 502, 503] {
        let outcome = at(&server, &format!("/in/{status}")).await;
        assert_eq!(outcome, SendOutcome::Retry { after_ms: None, why: format!("HTTP {status}") });
    }
    for status in [400, 401, 403, 404, 410, 422] {
        let outcome = at(&server, &format!("/in/{status}")).await;
        assert_eq!(outcome, SendOutcome::Rejected { why: format!("HTTP {status}") });
    }
    let hangs = at(&server, "/hang").await;
    assert!(matches!(&hangs, SendOutcome::Retry { after_ms: None, why } if why.contains("no answer")), "{hangs:?}");
    let refused_connection = send(&channel(ChannelKind::Generic, "http://127.0.0.1:1/", true)).await;
    assert!(matches!(refused_connection, SendOutcome::Retry { after_ms: None, .. }), "{refused_connection:?}");
}

#[tokio::test]
async fn requested_pause_is_observed() {
    let server = server().await;
    let channel = channel(ChannelKind::Generic, &format!("http://{}/wait/429", server.address), true);
    assert!(!channel.is_paused(NOW));
    assert_eq!(send(&channel).await, SendOutcome::Retry { after_ms: Some(7_500), why: "HTTP 429".into() });
    assert!(channel.is_paused(NOW.plus_ms(7_499)) && !channel.is_paused(NOW.plus_ms(7_500)));
    let value = |text: &str| retry_after_ms(&HeaderValue::from_str(text).expect("a value"), NOW);
    assert_eq!(value("Mon, 21 Sep 2026 14:13:30 GMT"), Some(9_877));
    assert_eq!((value("0"), value("-1"), value("soon"), value("NaN")), (Some(0), None, None, None));
    assert_eq!(value("1e300"), Some(604_800_000));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let mut server = server().await;
    for status in [301, 302, 303, 307, 308] {
        let outcome = at(&server, &format!("/away/{status}")).await;
        assert!(matches!(&outcome, SendOutcome::Rejected { why } if why.contains("redirect")), "{outcome:?}");
        let (_, uri, _) = server.seen.recv().await.expect("a request");
        assert!(uri.path().starts_with("/away/") && server.seen.try_recv().is_err(), "it went on to {uri}");
    }
}

#[tokio::test]
async fn private_address_gets_no_connection() {
    let mut server = server().await;
    let port = server.address.port();
    let hosts = ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0.0.0.0"];
    for host in hosts {
        let outcome = send(&channel(ChannelKind::Generic, &format!("http://{host}:{port}/in/200"), false)).await;
        assert!(matches!(&outcome, SendOutcome::Rejected { why } if why.contains("not public")), "{host}: {outcome:?}");
        assert!(server.seen.try_recv().is_err(), "{host} was connected to");
    }
    let url = format!("http://localhost:{port}/in/200");
    assert_eq!(send(&channel(ChannelKind::Generic, &url, true)).await, delivered(200));
    assert!(channel(ChannelKind::Generic, &url, false).addresses().await.is_err());
    assert!(channel(ChannelKind::Generic, &url, true).addresses().await.is_ok_and(|found| !found.is_empty()));
}

#[tokio::test]
async fn secrets_are_not_in_errors() {
    let server = server().await;
    let part = format!("http://{}/part/xoxSECRETxox/400", server.address);
    assert_eq!(
        send(&channel(ChannelKind::Slack, &part, true)).await,
        SendOutcome::Rejected { why: "HTTP 400: ***".into() }
    );
    let url = format!("http://{}/echo/T0001/B0002/xoxSECRETxox/400", server.address);
    for kind in [ChannelKind::Slack, ChannelKind::PagerDuty, ChannelKind::Generic] {
        let channel = channel(kind, &url, true);
        let SendOutcome::Rejected { why } = send(&channel).await else { panic!("it was taken") };
        assert!(why.contains("what is") && !why.contains("xoxSECRETxox") && !why.contains(KEY), "{why}");
        let unreachable = self::channel(kind, "http://127.0.0.1:1/T0001/xoxSECRETxox", true);
        let SendOutcome::Retry { why, .. } = send(&unreachable).await else { panic!("it was taken") };
        assert!(!why.contains("xoxSECRETxox"), "{why}");
        assert!(!format!("{channel:?}").contains("SECRET") && !channel.host().contains("SECRET"));
    }
}
