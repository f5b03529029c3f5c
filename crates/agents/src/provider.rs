//! Client for models on an HTTP API: one common call, three wire formats.
//!
//! A call is one request. It is retried once if the connection breaks before the first byte of the response; callers
//! perform all other retries. The key is sent in one header only, and secrets in the server's responses are masked.

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
use ralph_types::failure::Failure;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use crate::clock::Clock;
use crate::domain::model::error_chain::error_chain;
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::backends::WireName;
use crate::domain::providers::chat::{CallError, ChatAnswer, ChatRequest};
use crate::domain::providers::limit::LimitSignals;
use crate::domain::trust::bounds::ASSISTANT_ANSWER_BYTES;
use crate::net::client_of_model;
use crate::process::Masker;
use wire::fault::{self, ProviderError};
use wire::{AnswerError, WireCodec as _};

/// Maximum number of bytes of an error response that are read.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// Time limit for listing models.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
/// Version of the Messages API.
const MESSAGES_VERSION: &str = "2023-06-01";

/// Configuration of an endpoint, resolved by the caller.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Name in the configuration, for error messages.
    pub name: String,
    /// Address, such as `https://api.anthropic.com`, `https://api.openai.com/v1` or `http://localhost:11434`. A
    /// missing version is added: always for `Messages`, for the others only if the address has no path. An address
    /// that ends with the API's own path is not changed.
    pub url: String,
    /// API key; most local servers need none.
    pub key: Option<SecretString>,
    /// WireName format.
    pub wire: WireName,
    /// Provider's name of each model, by the operator's name. Other names are sent unchanged.
    pub models: BTreeMap<String, String>,
    /// Time limit for a response, even if a request allows more.
    pub timeout: Duration,
}

/// Client of one endpoint, with its own connections.
pub struct ApiClient {
    name: String,
    host: String,
    calls: Url,
    list: Url,
    vendor: bool,
    wire: WireName,
    models: BTreeMap<String, String>,
    timeout: Duration,
    client: reqwest::Client,
    masker: Masker,
    clock: Clock,
    /// Whether the endpoint rejected a request because of its schema. Schemas are then no longer sent.
    rejects_schemas: AtomicBool,
}

impl ApiClient {
    /// Creates a client for the endpoint. Sends nothing.
    ///
    /// # Errors
    /// A message for the operator without secrets: invalid address, invalid characters in the key, no TLS root
    /// certificates.
    pub fn new(settings: ApiSettings, clock: Clock) -> Result<Self, Failure> {
        let ApiSettings { name, url, key, wire, models, timeout } = settings;
        let named = || Failure::new(format!("backend {name}"));
        let base = base(&url).map_err(|problem| Failure::new(format!("backend {name}: `url`")).caused_by(problem))?;
        let headers = headers(wire, key.as_ref()).map_err(|problem| named().caused_by(problem))?;
        let client = client_of_model(&base)
            .default_headers(headers)
            .build()
            .map_err(|error| named().caused_by(error.without_url()))?;
        let host = base.host_str().unwrap_or_default().to_owned();
        let (calls, list) = addresses(&base, wire);
        // A query may contain a key as well.
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
            rejects_schemas: AtomicBool::new(false),
        })
    }

    /// Returns the name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends one request. Its model is the operator's or the provider's name.
    ///
    /// # Errors
    /// There is no valid response. The error contains signs of a limit, if any.
    pub async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        let mut request = request.clone();
        if let Some(model) = self.models.get(&request.model) {
            request.model.clone_from(model);
        }
        if self.rejects_schemas.load(Ordering::Relaxed) {
            request.schema = None;
        }
        let answer = self.answer(&request).await;
        if let Err(error) = &answer
            && request.schema.is_some()
            && is_about_schemas(&error.signals)
        {
            self.rejects_schemas.store(true, Ordering::Relaxed);
        }
        answer
    }

    async fn answer(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        let body = serde_json::to_vec(&self.wire.body(request, self.vendor))
            .map_err(|error| self.failed(&format!("cannot encode the request: {error}"), false, None))?;
        let post = || self.client.post(self.calls.clone()).header(CONTENT_TYPE, "application/json").body(body.clone());
        let wait = request.timeout.min(self.timeout);
        let bytes = self.bounded(wait, self.exchange(post)).await?;
        let document = serde_json::from_slice::<Value>(&bytes).map_err(|error| {
            let start = fault::of_body(&bytes[..bytes.len().min(200)]).summary();
            self.failed(&format!("the answer is not JSON ({error}); it starts with: {start}"), false, Some(200))
        })?;
        self.wire.answer(request, &document).map_err(|unread| match unread {
            AnswerError::Provider(fault) => self.server_error(200, &HeaderMap::new(), fault),
            AnswerError::Foreign(problem) => {
                let problem = format!("the answer does not have the format `{}`: {problem}", self.wire.as_str());
                self.failed(&problem, false, Some(200))
            }
        })
    }

    /// Returns the names of the models that the endpoint offers.
    ///
    /// # Errors
    /// The endpoint provides no list; it may still answer requests.
    pub async fn offered(&self) -> Result<Vec<String>, CallError> {
        let bytes = self.bounded(PROBE_TIMEOUT, self.exchange(|| self.client.get(self.list.clone()))).await?;
        let document = serde_json::from_slice::<Value>(&bytes).unwrap_or_default();
        let list =
            document["data"].as_array().ok_or_else(|| self.failed("it returns no list of models", false, None))?;
        Ok(list.iter().filter_map(|model| model["id"].as_str()).map(str::to_owned).collect())
    }

    /// Returns [`complete`](Self::complete) as a function, for callers that do not depend on clients.
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
            Err(self.failed(&format!("there was no complete answer within {} s", wait.as_secs_f64()), true, None))
        })
    }

    /// Sends a request and reads the body of a successful response.
    async fn exchange(&self, request: impl Fn() -> reqwest::RequestBuilder) -> Result<BytesMut, CallError> {
        let response = match request().send().await {
            Ok(response) => response,
            // No byte was received: the connection was refused, or an idle one was closed.
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
            let problem = format!("HTTP {status}: it redirects; configure the address of the API itself");
            return Err(self.failed(&problem, false, Some(status.as_u16())));
        }
        let error_body = beginning(response).await;
        Err(self.server_error(status.as_u16(), &headers, fault::of_body(&error_body)))
    }

    async fn body(&self, mut response: reqwest::Response, status: u16) -> Result<BytesMut, CallError> {
        let mut body = BytesMut::new();
        loop {
            match response.chunk().await {
                Ok(None) => return Ok(body),
                Ok(Some(chunk)) if body.len() + chunk.len() > ASSISTANT_ANSWER_BYTES => {
                    let problem = format!("the answer is larger than {} MiB", ASSISTANT_ANSWER_BYTES / 1024 / 1024);
                    return Err(self.failed(&problem, false, Some(status)));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Err(error) => {
                    let problem = format!("the answer is incomplete: {}", error_chain(&error.without_url()));
                    return Err(self.failed(&problem, true, Some(status)));
                }
            }
        }
    }

    /// Returns an error of the client or the connection.
    fn failed(&self, problem: &str, retryable: bool, status: Option<u16>) -> CallError {
        let what = self.masker.mask(&format!("{} ({}): {problem}", self.name, self.host)).into_owned();
        CallError {
            signals: LimitSignals { status, messages: vec![what.clone()], ..LimitSignals::default() },
            retryable,
            what,
        }
    }

    /// Returns an error that the server reported.
    fn server_error(&self, status: u16, headers: &HeaderMap, fault: ProviderError) -> CallError {
        let passes = matches!(status, 408 | 409 | 425 | 429 | 500..=599) || fault.is_temporary();
        let paid = |code: &str| code.contains("quota") || code.contains("billing");
        let what = format!("{} ({}): HTTP {status}: {}", self.name, self.host, fault.summary());
        let what = self.masker.mask(&what).into_owned();
        let in_ms = fault.resets_in.map(|seconds| (seconds * 1e3) as i64);
        let resets_at = fault
            .resets_at
            .and_then(|seconds| seconds.checked_mul(1_000))
            .or(in_ms.map(|ms| self.clock.now().0.saturating_add(ms)));
        let messages: Vec<_> = fault.messages.iter().map(|message| self.masker.mask(message).into_owned()).collect();
        let signals = LimitSignals {
            status: Some(status),
            resets_at: resets_at.map(Timestamp),
            headers: limit_headers(headers, &self.masker),
            answer: messages.first().cloned().unwrap_or_default(),
            messages,
            code: fault.code.as_deref().map(|code| self.masker.mask(code).into_owned()),
            ..LimitSignals::default()
        };
        let retryable = passes && !fault.code.as_deref().is_some_and(paid);
        CallError { signals, retryable, what }
    }
}

/// Whether a request was rejected because the server does not support the fields for a schema.
fn is_about_schemas(signals: &LimitSignals) -> bool {
    let fields = ["response_format", "json_schema", "text.format", "tool_choice"];
    matches!(signals.status, Some(400 | 422))
        && signals.messages.iter().any(|message| fields.iter().any(|field| message.contains(field)))
}

/// Reads the start of an error response's body, as far as it is received.
async fn beginning(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = MAX_ERROR_BODY.saturating_sub(body.len());
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() >= MAX_ERROR_BODY {
            break;
        }
    }
    body
}

/// Returns the headers that can contain information about a limit.
fn limit_headers(headers: &HeaderMap, masker: &Masker) -> Vec<(String, String)> {
    let is_about_limits = |name: &str| {
        name.starts_with("retry-after")
            || name.contains("ratelimit")
            || name.contains("rate-limit")
            || name.starts_with("x-codex-")
            || name == "date"
    };
    headers
        .iter()
        .filter(|(name, _)| is_about_limits(name.as_str()))
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), masker.mask(value.to_str().ok()?).into_owned())))
        .collect()
}

fn headers(wire: WireName, key: Option<&SecretString>) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    if wire == WireName::Messages {
        headers.insert("anthropic-version", HeaderValue::from_static(MESSAGES_VERSION));
    }
    let Some(key) = key else { return Ok(headers) };
    let key = key.expose_secret().trim();
    let (name, value) = match wire {
        WireName::Messages => (HeaderName::from_static("x-api-key"), key.to_owned()),
        WireName::Responses | WireName::Chat => (AUTHORIZATION, format!("Bearer {key}")),
    };
    let mut value =
        HeaderValue::from_str(&value).map_err(|_| "the key contains invalid characters (a line break?)".to_owned())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(headers)
}

/// Parses and checks the configured address. Errors do not contain the address, because it may include a password.
fn base(url: &str) -> Result<Url, Failure> {
    let base = Url::parse(url.trim()).map_err(|error| format!("it is not a valid address ({error})"))?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
        return Err(Failure::new("expected an address with http:// or https://"));
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err(Failure::new("it contains a user or a password; configure the key separately"));
    }
    Ok(base)
}

/// Returns the addresses for calls and for listing models.
fn addresses(base: &Url, wire: WireName) -> (Url, Url) {
    let mut parts: Vec<&str> = base.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let endpoint = wire.endpoint();
    if parts.ends_with(endpoint) {
        parts.truncate(parts.len() - endpoint.len());
    } else {
        let version =
            |part: &&str| part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let versioned = match wire {
            WireName::Messages => parts.last().is_some_and(version),
            WireName::Responses | WireName::Chat => !parts.is_empty(),
        };
        if !versioned {
            parts.push("v1");
        }
    }
    let with = |tail: &[&str]| {
        let mut address = base.clone();
        address.set_fragment(None);
        // Percent-encoded parts stay unchanged.
        address.set_path(&parts.iter().chain(tail).copied().collect::<Vec<_>>().join("/"));
        address
    };
    (with(endpoint), with(&["models"]))
}
