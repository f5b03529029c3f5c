//! Models behind an HTTP interface: one neutral call, three wire formats.
//!
//! One call is one request. The only retry is of a connection that broke before a byte of the answer came, once; when
//! to call again, and whom instead, is for the callers. The key is in one header and nowhere else: whatever a server
//! says is masked before anybody sees it.

pub mod assistant;
mod shape;
mod wire;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use futures::future::BoxFuture;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

pub use wire::Wire;

use crate::clock::Clock;
use crate::domain::model::error_chain::error_chain;
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::chat::{CallError, ChatAnswer, ChatRequest};
use crate::domain::providers::limit::LimitSignals;
use crate::net::client_of_model;
use crate::process::Masker;
use wire::Unread;
use wire::fault::{self, ProviderError};

/// Largest answer that is read, in bytes.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// What is read of an answer that tells of an error, in bytes.
const MAX_COMPLAINT: usize = 64 * 1024;
/// Longest wait for a list of models.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
/// Version of the Messages interface.
const MESSAGES_VERSION: &str = "2023-06-01";

/// An endpoint as configured; everything is resolved by the caller.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// The operator's name for it, for messages.
    pub name: String,
    /// Its address: `https://api.anthropic.com`, `https://api.openai.com/v1`, `http://localhost:11434`. A version is
    /// added where it has none: to any address for `Messages`, to one without a path for the others. An address that
    /// ends with the interface's own path is taken as it is.
    pub url: String,
    /// Its key; local servers mostly have none.
    pub key: Option<SecretString>,
    /// What it speaks.
    pub wire: Wire,
    /// Its names of models by the operator's; others are sent as they are.
    pub models: BTreeMap<String, String>,
    /// Longest wait for an answer, whatever a request allows.
    pub timeout: Duration,
}

/// A client of one endpoint, with connections of its own.
pub struct ApiClient {
    name: String,
    host: String,
    calls: Url,
    list: Url,
    vendor: bool,
    wire: Wire,
    models: BTreeMap<String, String>,
    timeout: Duration,
    client: reqwest::Client,
    masker: Masker,
    clock: Clock,
    /// It refused a request for its schema once; from then on it gets none.
    knows_no_schemas: AtomicBool,
}

impl ApiClient {
    /// A client for the endpoint; nothing is sent yet.
    ///
    /// # Errors
    /// A sentence for the operator, without secrets: the address is none, the key cannot be a header, no TLS roots.
    pub fn new(settings: ApiSettings, clock: Clock) -> Result<Self, String> {
        let ApiSettings { name, url, key, wire, models, timeout } = settings;
        let base = base(&url).map_err(|problem| format!("backend {name}: `url`: {problem}"))?;
        let headers = headers(wire, key.as_ref()).map_err(|problem| format!("backend {name}: {problem}"))?;
        let client = client_of_model(&base)
            .default_headers(headers)
            .build()
            .map_err(|error| format!("backend {name}: {}", error_chain(&error.without_url())))?;
        let host = base.host_str().unwrap_or_default().to_owned();
        let (calls, list) = addresses(&base, wire);
        // A query may hold a key as well.
        let query = base.query_pairs().map(|(_, value)| value.into_owned()).collect::<Vec<_>>();
        let masker = Masker::new(key.iter().map(ExposeSecret::expose_secret).chain(query.iter().map(String::as_str)));
        let vendor = host == "api.openai.com" || host.ends_with(".openai.azure.com");
        Ok(Self {
            name,
            host,
            calls,
            list,
            vendor,
            wire,
            models,
            timeout,
            client,
            masker,
            clock,
            knows_no_schemas: AtomicBool::new(false),
        })
    }

    /// The operator's name for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One call. The request's model is the operator's name of one, or the provider's.
    ///
    /// # Errors
    /// Whatever keeps an answer from us, with what can tell of a limit.
    pub async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        let mut request = request.clone();
        if let Some(model) = self.models.get(&request.model) {
            request.model.clone_from(model);
        }
        if self.knows_no_schemas.load(Ordering::Relaxed) {
            request.schema = None;
        }
        let answer = self.answer(&request).await;
        if let Err(error) = &answer
            && request.schema.is_some()
            && is_about_schemas(&error.signals)
        {
            self.knows_no_schemas.store(true, Ordering::Relaxed);
        }
        answer
    }

    async fn answer(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        let body = serde_json::to_vec(&self.wire.body(request, self.vendor))
            .map_err(|error| self.failed(&format!("the request cannot be written: {error}"), false, None))?;
        let post = || self.client.post(self.calls.clone()).header(CONTENT_TYPE, "application/json").body(body.clone());
        let wait = request.timeout.min(self.timeout);
        let bytes = self.bounded(wait, self.exchange(post)).await?;
        let document = serde_json::from_slice::<Value>(&bytes).map_err(|error| {
            let start = fault::of_body(&bytes[..bytes.len().min(200)]).said();
            self.failed(&format!("the answer is no JSON ({error}); it begins: {start}"), false, Some(200))
        })?;
        self.wire.answer(request, &document).map_err(|unread| match unread {
            Unread::Provider(fault) => self.complaint(200, &HeaderMap::new(), fault),
            Unread::Foreign(problem) => {
                let problem = format!("the answer is none of the interface `{}`: {problem}", self.wire.name());
                self.failed(&problem, false, Some(200))
            }
        })
    }

    /// The models that it offers, by its own names.
    ///
    /// # Errors
    /// Whatever keeps the list from us; a server may have none and still serve.
    pub async fn offered(&self) -> Result<Vec<String>, CallError> {
        let bytes = self.bounded(PROBE_TIMEOUT, self.exchange(|| self.client.get(self.list.clone()))).await?;
        let document = serde_json::from_slice::<Value>(&bytes).unwrap_or_default();
        let list = document["data"].as_array().ok_or_else(|| self.failed("it gives no list of models", false, None))?;
        Ok(list.iter().filter_map(|model| model["id"].as_str()).map(str::to_owned).collect())
    }

    /// [`complete`](Self::complete) as a function, for those who know nothing of clients.
    pub fn into_function(
        self: Arc<Self>,
    ) -> impl Fn(ChatRequest) -> BoxFuture<'static, Result<ChatAnswer, CallError>> + Send + Sync + 'static {
        move |request| {
            let client = Arc::clone(&self);
            Box::pin(async move { client.complete(&request).await })
        }
    }

    async fn bounded<T>(
        &self,
        wait: Duration,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        tokio::time::timeout(wait, work).await.unwrap_or_else(|_| {
            Err(self.failed(&format!("there was no whole answer in {} s", wait.as_secs_f64()), true, None))
        })
    }

    /// Sends a request and reads the body of its good answer.
    async fn exchange(&self, request: impl Fn() -> reqwest::RequestBuilder) -> Result<BytesMut, CallError> {
        let response = match request().send().await {
            Ok(response) => response,
            // Not a byte came: the connection was refused, or an idle one was closed under us.
            Err(_) => request().send().await.map_err(|error| {
                self.failed(&format!("no connection: {}", error_chain(&error.without_url())), true, None)
            })?,
        };
        let status = response.status();
        let headers = response.headers().clone();
        if status.is_success() {
            return self.body(response, status.as_u16()).await;
        }
        if status.is_redirection() {
            let problem = format!("HTTP {status}: it sends us elsewhere; give the address of the interface itself");
            return Err(self.failed(&problem, false, Some(status.as_u16())));
        }
        let complaint = beginning(response).await;
        Err(self.complaint(status.as_u16(), &headers, fault::of_body(&complaint)))
    }

    async fn body(&self, mut response: reqwest::Response, status: u16) -> Result<BytesMut, CallError> {
        let mut body = BytesMut::new();
        loop {
            match response.chunk().await {
                Ok(None) => return Ok(body),
                Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ANSWER => {
                    let problem = format!("the answer is larger than {} MiB", MAX_ANSWER / 1024 / 1024);
                    return Err(self.failed(&problem, false, Some(status)));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Err(error) => {
                    let problem = format!("the answer broke off: {}", error_chain(&error.without_url()));
                    return Err(self.failed(&problem, true, Some(status)));
                }
            }
        }
    }

    /// An error of ours or of the connection.
    fn failed(&self, problem: &str, retryable: bool, status: Option<u16>) -> CallError {
        let what = self.masker.mask(&format!("{} ({}): {problem}", self.name, self.host)).into_owned();
        CallError {
            signals: LimitSignals { status, messages: vec![what.clone()], ..LimitSignals::default() },
            retryable,
            what,
        }
    }

    /// An error that the server tells of.
    fn complaint(&self, status: u16, headers: &HeaderMap, fault: ProviderError) -> CallError {
        let passes = matches!(status, 408 | 409 | 425 | 429 | 500..=599) || fault.is_trouble();
        let paid = |code: &str| code.contains("quota") || code.contains("billing");
        let what = format!("{} ({}): HTTP {status}: {}", self.name, self.host, fault.said());
        let what = self.masker.mask(&what).into_owned();
        let in_ms = fault.resets_in.map(|seconds| (seconds * 1e3) as i64);
        let resets_at = fault
            .resets_at
            .and_then(|seconds| seconds.checked_mul(1_000))
            .or(in_ms.map(|ms| self.clock.now().0.saturating_add(ms)));
        let signals = LimitSignals {
            status: Some(status),
            resets_at: resets_at.map(Timestamp),
            headers: telling(headers, &self.masker),
            messages: fault.messages.iter().map(|message| self.masker.mask(message).into_owned()).collect(),
            code: fault.code.as_deref().map(|code| self.masker.mask(code).into_owned()),
            ..LimitSignals::default()
        };
        let retryable = passes && !fault.code.as_deref().is_some_and(paid);
        CallError { signals, retryable, what }
    }
}

/// Whether a request was refused because the server does not know the fields by which we ask for a schema.
fn is_about_schemas(signals: &LimitSignals) -> bool {
    let fields = ["response_format", "json_schema", "text.format", "tool_choice"];
    matches!(signals.status, Some(400 | 422))
        && signals.messages.iter().any(|message| fields.iter().any(|field| message.contains(field)))
}

/// What an error's body begins with; what could be read of it, where it broke off.
async fn beginning(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = MAX_COMPLAINT.saturating_sub(body.len());
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() >= MAX_COMPLAINT {
            break;
        }
    }
    body
}

/// The headers that can tell of a limit.
fn telling(headers: &HeaderMap, masker: &Masker) -> Vec<(String, String)> {
    let tells = |name: &str| {
        name.starts_with("retry-after")
            || name.contains("ratelimit")
            || name.contains("rate-limit")
            || name.starts_with("x-codex-")
            || name == "date"
    };
    headers
        .iter()
        .filter(|(name, _)| tells(name.as_str()))
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), masker.mask(value.to_str().ok()?).into_owned())))
        .collect()
}

fn headers(wire: Wire, key: Option<&SecretString>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    if wire == Wire::Messages {
        headers.insert("anthropic-version", HeaderValue::from_static(MESSAGES_VERSION));
    }
    let Some(key) = key else { return Ok(headers) };
    let key = key.expose_secret().trim();
    let (name, value) = match wire {
        Wire::Messages => (HeaderName::from_static("x-api-key"), key.to_owned()),
        Wire::Responses | Wire::Chat => (AUTHORIZATION, format!("Bearer {key}")),
    };
    let mut value = HeaderValue::from_str(&value)
        .map_err(|_| "the key holds characters that no key has (a line break?)".to_owned())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(headers)
}

/// The configured address, checked. Its words are not repeated where they may hold a password.
fn base(url: &str) -> Result<Url, String> {
    let base = Url::parse(url.trim()).map_err(|error| format!("it is no address ({error})"))?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
        return Err("an address with http:// or https:// is needed".to_owned());
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err("it holds a user or a password; give the key apart from it".to_owned());
    }
    Ok(base)
}

/// Where calls and the list of models are.
fn addresses(base: &Url, wire: Wire) -> (Url, Url) {
    let mut parts: Vec<&str> = base.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let endpoint = wire.endpoint();
    if parts.ends_with(endpoint) {
        parts.truncate(parts.len() - endpoint.len());
    } else {
        let version =
            |part: &&str| part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let versioned = match wire {
            Wire::Messages => parts.last().is_some_and(version),
            Wire::Responses | Wire::Chat => !parts.is_empty(),
        };
        if !versioned {
            parts.push("v1");
        }
    }
    let with = |tail: &[&str]| {
        let mut address = base.clone();
        address.set_fragment(None);
        // Percent-encoded parts stay as they are.
        address.set_path(&parts.iter().chain(tail).copied().collect::<Vec<_>>().join("/"));
        address
    };
    (with(endpoint), with(&["models"]))
}
