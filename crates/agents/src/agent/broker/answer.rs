//! Passes responses of a model to the agent: counts their usage, and removes all forms of the key and headers that
//! could contain it.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, DATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;

use super::events::EventRedactor;
use super::formats::WireFormat;
use super::meter::OpenCall;
use super::request::RefusedRequest;
use super::usage::{EventReader, read_body};
use crate::domain::model::error_chain::error_chain;
use crate::domain::providers::limit::LimitSignals;
use crate::domain::trust::bounds::BROKER_BODY_BYTES;
use crate::domain::trust::secret_forms::SecretForms;

/// Text that replaces a key.
pub(super) const MARK: &[u8] = b"[key removed]";
/// Maximum size of an error response that is searched for signs of a limit, in bytes.
const MAX_ERROR: usize = 64 * 1024;

/// Response whose headers were received.
pub(super) struct ModelAnswer {
    pub(super) upstream: reqwest::Response,
    /// Wire format of the response.
    pub(super) format: &'static WireFormat,
    /// Reservation of the request's cost; `None` if the request is free.
    pub(super) call: Option<OpenCall>,
    pub(super) forms: Arc<SecretForms>,
}

impl ModelAnswer {
    /// Converts the response for the agent. `note` is called with the signs of a limit if the model refused the
    /// request.
    ///
    /// # Errors
    /// An error response for the agent, if the model's response cannot be passed on.
    pub(super) async fn into_response(
        mut self,
        note: impl FnOnce(Option<LimitSignals>),
    ) -> Result<Response, RefusedRequest> {
        let status = self.upstream.status();
        let headers = self.upstream.headers().clone();
        if let Some(call) = self.call.as_mut().filter(|_| !status.is_success()) {
            call.refused();
        }
        let is_encoded = headers.get_all(CONTENT_ENCODING).iter().any(|value| value != "identity" && !value.is_empty());
        if is_encoded {
            return Err(broken("the model answered with a compressed body, which the broker did not request"));
        }
        if status.is_informational() || status.is_redirection() {
            return Err(broken("the model answered with a redirection or another protocol"));
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        *response.headers_mut() = clean_headers(&headers, &self.forms);
        let is_stream = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/event-stream"));
        if status.is_success() && is_stream {
            note(None);
            *response.body_mut() = Body::from_stream(self.stream());
            return Ok(response);
        }
        let body = self.whole().await?;
        note((!status.is_success()).then(|| signals(status, &headers, &body, &self.forms)));
        if let Some(call) = self.call.take() {
            call.record_usage(|told| read_body(self.format.usage, &body, told));
            call.settle().await;
        }
        *response.body_mut() = Body::from(EventRedactor::whole(self.forms, MARK, &body));
        Ok(response)
    }

    /// Reads the complete body.
    async fn whole(&mut self) -> Result<Vec<u8>, RefusedRequest> {
        let mut body = Vec::new();
        loop {
            match self.upstream.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= BROKER_BODY_BYTES => body.extend_from_slice(&chunk),
                Ok(Some(_)) => return Err(broken("the answer of the model is larger than 32 MiB")),
                Ok(None) => return Ok(body),
                Err(error) => {
                    let why = format!("the answer of the model is incomplete: {}", error_chain(&error.without_url()));
                    return Err(broken(&why));
                }
            }
        }
    }

    /// Returns the body of a streamed response as it arrives.
    fn stream(self) -> BoxStream<'static, Result<Bytes, std::io::Error>> {
        let Self { upstream, format, call, forms } = self;
        let state = StreamState {
            upstream: upstream.bytes_stream().boxed(),
            format,
            call,
            events: EventReader::default(),
            redactor: EventRedactor::new(forms, MARK),
            is_over: false,
        };
        stream::unfold(state, |mut state| async move { Some((state.next().await?, state)) }).boxed()
    }
}

struct StreamState {
    upstream: BoxStream<'static, reqwest::Result<Bytes>>,
    format: &'static WireFormat,
    call: Option<OpenCall>,
    events: EventReader,
    redactor: EventRedactor,
    is_over: bool,
}

impl StreamState {
    /// Returns the next bytes for the agent; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        while !self.is_over {
            let clean = match self.upstream.next().await {
                Some(Ok(chunk)) => {
                    if let Some(call) = &self.call {
                        call.record_usage(|told| self.events.read(self.format.usage, &chunk, told));
                    }
                    self.redactor.push(&chunk)
                }
                Some(Err(error)) => {
                    self.is_over = true;
                    self.call = None;
                    let why = format!(
                        "the connection to the model broke off during its answer: {}",
                        error_chain(&error.without_url())
                    );
                    return Some(Err(std::io::Error::other(why)));
                }
                None => {
                    self.is_over = true;
                    // The request is booked before the agent sees the end and sends the next one.
                    if let Some(call) = self.call.take() {
                        call.record_usage(|told| told.is_whole = true);
                        call.settle().await;
                    }
                    self.redactor.finish()
                }
            };
            if !clean.is_empty() {
                return Some(Ok(clean.into()));
            }
        }
        None
    }
}

fn broken(why: &str) -> RefusedRequest {
    RefusedRequest { status: StatusCode::BAD_GATEWAY, kind: "api_error", why: why.to_owned() }
}

/// Whether a response header is passed to the agent.
fn is_passed(name: &HeaderName) -> bool {
    let text = name.as_str();
    [CONTENT_TYPE, DATE, CACHE_CONTROL].contains(name)
        || text.starts_with("retry-after")
        || text.ends_with("request-id")
        || text.contains("ratelimit")
        || text.contains("rate-limit")
        || text.starts_with("x-codex-")
        || text.starts_with("anthropic-")
        || text.starts_with("openai-")
        || text == "x-should-retry"
}

/// Returns the headers for the agent. If they contain the key, even in parts, only the content type is returned.
fn clean_headers(headers: &HeaderMap, forms: &SecretForms) -> HeaderMap {
    let passed: HeaderMap =
        headers.iter().filter(|(name, _)| is_passed(name)).map(|(name, value)| (name.clone(), value.clone())).collect();
    let of = |with_names: bool| {
        let parts = passed.iter().map(|(name, value)| {
            if with_names { [name.as_str().as_bytes(), value.as_bytes()] } else { [b"", value.as_bytes()] }
        });
        parts.flatten().flatten().copied().collect::<Vec<u8>>()
    };
    if !forms.is_in(&of(false)) && !forms.is_in(&of(true)) {
        return passed;
    }
    let is_stream = passed.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    let kind = if is_stream { "text/event-stream" } else { "application/json" };
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))])
}

/// Returns the signs of a limit in a refused request's response.
fn signals(status: StatusCode, headers: &HeaderMap, body: &[u8], forms: &Arc<SecretForms>) -> LimitSignals {
    let headers = clean_headers(headers, forms);
    let headers = headers.iter().filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
    let mut signals =
        LimitSignals { status: Some(status.as_u16()), headers: headers.collect(), ..LimitSignals::default() };
    let body = forms.redact(&body[..body.len().min(MAX_ERROR)], MARK);
    match serde_json::from_slice::<Value>(&body) {
        Ok(body) => {
            signals.learn_body(&body);
            let said = [&body["error"]["message"], &body["message"], &body["error"]];
            said.into_iter().filter_map(Value::as_str).take(1).for_each(|said| signals.add_message(said));
        }
        Err(_) => signals.add_message(&String::from_utf8_lossy(&body)),
    }
    signals.answer = signals.messages.first().cloned().unwrap_or_default();
    // The status of the answer counts, not one in its text.
    signals.status = Some(status.as_u16());
    signals
}
