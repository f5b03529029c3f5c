//! Server of all wire formats on loopback that returns given replies in order, for tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, Uri};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Reply to a request.
#[derive(Debug, Clone)]
pub(crate) enum StubReply {
    /// Status, headers and body.
    Whole(u16, Vec<(&'static str, String)>, String),
    /// The start of a valid answer; then the connection is closed.
    Cut,
    /// A body of this number of bytes.
    Huge(usize),
    /// No answer.
    Hang,
}

impl StubReply {
    /// Returns a JSON document with status 200.
    pub(crate) fn json(document: Value) -> Self {
        Self::Whole(200, Vec::new(), document.to_string())
    }

    /// Returns an error without headers.
    pub(crate) fn error(status: u16, body: &str) -> Self {
        Self::Whole(status, Vec::new(), body.to_owned())
    }

    /// Returns an answer of the Messages API with this text.
    pub(crate) fn said(text: &str) -> Self {
        Self::json(json!({
            "model": "claude-stub", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 100, "output_tokens": 10},
        }))
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct StubRequest {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// The server; it stops when dropped.
pub(crate) struct Stub {
    pub(crate) url: String,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<StubReply>>,
    seen: Mutex<Vec<StubRequest>>,
}

impl Stub {
    pub(crate) async fn start(replies: impl IntoIterator<Item = StubReply>) -> Self {
        let shared = Arc::new(Shared { replies: Mutex::new(replies.into_iter().collect()), ..Shared::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared, _task: task }
    }

    /// Returns the requests so far.
    pub(crate) fn seen(&self) -> Vec<StubRequest> {
        self.shared.seen.lock().unwrap().clone()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    shared.seen.lock().unwrap().push(StubRequest { path, headers, body });
    let reply = shared.replies.lock().unwrap().pop_front();
    match reply {
        Some(StubReply::Whole(status, headers, body)) => {
            let start = Response::builder().status(status).header("content-type", "application/json");
            let start = headers.into_iter().fold(start, |response, (name, value)| response.header(name, value));
            start.body(body.into()).unwrap()
        }
        Some(StubReply::Cut) => {
            let begun = futures::stream::iter([Ok("{\"content\":[{\"type\":\"te")]);
            let cut = futures::stream::once(async {
                // The start is sent before the connection is closed.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut"))
            });
            Response::new(Body::from_stream(begun.chain(cut)))
        }
        Some(StubReply::Huge(bytes)) => Response::new("x".repeat(bytes).into()),
        Some(StubReply::Hang) => std::future::pending().await,
        None => Response::builder().status(418).body("nothing is left of the script".into()).unwrap(),
    }
}
