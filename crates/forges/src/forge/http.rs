//! Retries and rate limits: every call to a forge goes through a [`RequestLayer`].
//!
//! Invariants: no request is sent during a pause that the forge requested. Mutating requests are sent one at a time,
//! at the forge's pace, urgent ones first and decorations last. A request whose effect is unknown is not repeated; the
//! engine looks up the effect first.

mod budget;
mod etag;
mod limits;
mod meter;
mod mutation_queue;
mod reqwest;

#[cfg(test)]
mod tests;

use std::error::Error as _;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION};
use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use async_trait::async_trait;
use bytes::Bytes;
use ralph_types::failure::Failure;
use serde::de::DeserializeOwned;

use self::budget::MutationLog;
use self::etag::EtagCache;
use self::limits::{LimitSignal, RateLimits};
use self::mutation_queue::MutationQueue;
use super::{ForgeError, ForgeErrorKind, ForgeResult};
use crate::clock::Clock;

pub use self::budget::{MutationBudget, MutationPace};
pub use self::limits::jitter;
pub use self::meter::CallMeter;
pub use self::reqwest::ReqwestTransport;

/// Maximum size of a response body, in bytes; transports stop reading at this size.
pub const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Maximum number of redirects that a read request follows.
const MAX_REDIRECTS: usize = 3;
/// Delay before the first retry, in milliseconds; doubles with each retry.
const FIRST_BACKOFF_MS: u64 = 250;
/// Maximum length of a forge's error message in [`ForgeError::detail`], in characters.
const DETAIL_CHARS: usize = 500;

/// Transport for single requests. Returns responses with any status; does not follow redirects and does not retry.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends a request; the response body has at most [`MAX_ANSWER_BYTES`].
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError>;
}

/// Failure of a request that received no usable response.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail:#}")]
pub struct TransportError {
    /// Whether the request may have reached the server and taken effect.
    pub ambiguous: bool,
    /// Cause; contains no secret.
    #[source]
    pub detail: Failure,
}

/// Priority of a request, set as a request extension; `Normal` if it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestPriority {
    /// Acknowledgment of a command; sent before all waiting mutating requests.
    Urgent,
    /// Part of work in progress.
    #[default]
    Normal,
    /// Change that only shows state that is known elsewhere; sent after other mutating requests, and refused if the
    /// service's own quota of mutating requests is nearly used up.
    Decoration,
    /// Polling; refused if the forge's request quota is nearly used up.
    Background,
}

/// Request extension for a POST that changes nothing, such as a GraphQL query. The request needs no spacing, and its
/// failure is never ambiguous.
#[derive(Debug, Clone, Copy)]
pub struct ReadOnly;

/// Request extension that allows redirects to another host, without the request's headers, for downloads of logs.
#[derive(Debug, Clone, Copy)]
pub struct FollowCrossOrigin;

/// Timeouts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Time limit for connecting, including TLS.
    pub connect: Duration,
    /// Time limit between two reads.
    pub idle: Duration,
    /// Time limit for the whole exchange.
    pub total: Duration,
}

impl Timeouts {
    /// Default timeouts, which are long enough for a busy server.
    pub const USUAL: Self =
        Self { connect: Duration::from_secs(5), idle: Duration::from_secs(15), total: Duration::from_secs(60) };
}

/// Spacing, retries and timeouts of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSettings {
    /// Minimum time between two mutating requests, in milliseconds; `None` for the forge's pace, 0 for no limit.
    pub mutation_interval_ms: Option<i64>,
    /// Maximum time for which a mutating request without a response delays the next one.
    pub mutation_hold: Duration,
    /// Part of the forge's request quota that is reserved for commands. If only this part is left, background requests
    /// are refused.
    pub reserve: u32,
    /// Maximum number of attempts; the first one is always made.
    pub attempts: u32,
    /// Time after its creation, in milliseconds, for which some servers of the forge may not know a token. Refusals
    /// within this time are retried.
    pub settling_ms: i64,
    /// Timeouts of each attempt.
    pub timeouts: Timeouts,
}

impl Default for RateSettings {
    fn default() -> Self {
        Self {
            mutation_interval_ms: None,
            mutation_hold: Duration::from_secs(2),
            reserve: 100,
            attempts: 3,
            settling_ms: 10_000,
            timeouts: Timeouts::USUAL,
        }
    }
}

/// Layer that sends requests to one server with one credential.
pub struct RequestLayer {
    transport: Arc<dyn Transport>,
    clock: Clock,
    rates: RateSettings,
    pace: MutationPace,
    limits: Mutex<RateLimits>,
    cache: Mutex<EtagCache>,
    mutations: MutationQueue,
    sent: Mutex<MutationLog>,
    meter: Arc<CallMeter>,
}

impl RequestLayer {
    /// Creates a layer with an empty cache and no known limits. `pace` is the forge's pace, which `rates` can
    /// override.
    pub fn new(transport: Arc<dyn Transport>, clock: Clock, rates: RateSettings, pace: MutationPace) -> Self {
        Self {
            transport,
            clock,
            rates,
            pace: pace.with_interval(rates.mutation_interval_ms),
            limits: Mutex::new(RateLimits::default()),
            cache: Mutex::new(EtagCache::default()),
            mutations: MutationQueue::default(),
            sent: Mutex::default(),
            meter: Arc::default(),
        }
    }

    /// Sets the meter that counts requests.
    pub fn metered(self, meter: Arc<CallMeter>) -> Self {
        Self { meter, ..self }
    }

    /// Sends a request and returns a successful (2xx) response. `what` describes the operation and its object in error
    /// messages ("create a comment on acme/app#7").
    ///
    /// # Errors
    /// Other responses, and requests that were not sent, classified by [`ForgeErrorKind`].
    pub async fn call(&self, what: &str, request: Request<Bytes>) -> ForgeResult<Response<Bytes>> {
        let read_only = is_read_only(&request);
        if read_only {
            return self.attempts(what, request, true).await;
        }
        let priority = request.extensions().get::<RequestPriority>().copied().unwrap_or_default();
        let mut permit = self.mutations.acquire(priority, &self.clock, self.pace.interval_ms).await;
        self.check_budget(what, priority)?;
        permit.record_use(self.clock.now());
        let mut call = pin!(self.attempts(what, request, false));
        let held = tokio::time::timeout(self.rates.mutation_hold, &mut call).await;
        permit.record_use(self.clock.now());
        drop(permit);
        match held {
            Ok(answer) => answer,
            // Other requests do not wait for a server that does not respond.
            Err(_) => call.await,
        }
    }

    async fn attempts(&self, what: &str, request: Request<Bytes>, read_only: bool) -> ForgeResult<Response<Bytes>> {
        let mut attempt = 1;
        loop {
            let error = match self.attempt(what, request.clone(), read_only).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let retryable = matches!(error.kind, ForgeErrorKind::Transient { after_ms: None, ambiguous: false });
            if !retryable || attempt >= self.rates.attempts {
                return Err(error);
            }
            let ceiling = FIRST_BACKOFF_MS.saturating_mul(1 << (attempt - 1).min(6));
            tokio::time::sleep(Duration::from_millis(ceiling / 2 + limits::jitter(ceiling / 2))).await;
            attempt += 1;
        }
    }

    async fn attempt(&self, what: &str, mut request: Request<Bytes>, read_only: bool) -> ForgeResult<Response<Bytes>> {
        let cached = self.conditional(&mut request);
        let mut hops = 0;
        loop {
            self.check_limits(what, &request)?;
            let sent = self.transport.send(request.clone()).await;
            self.meter.count(sent.as_ref().ok().map(|response| response.status()));
            let response = sent.map_err(|error| ForgeError {
                kind: ForgeErrorKind::Transient { after_ms: None, ambiguous: error.ambiguous && !read_only },
                what: what.to_owned(),
                detail: error.to_string(),
                cause: Some(error.detail),
            })?;
            let signal = {
                let mut limits = lock(&self.limits);
                let signal = limits.observe(&response, self.clock.now());
                self.meter.note_remaining(limits.remaining());
                signal
            };
            let status = response.status();
            if is_redirect(status) {
                hops += 1;
                request = redirected(what, &request, &response, hops)?;
                continue;
            }
            if status == StatusCode::NOT_MODIFIED
                && let Some(cached) = cached
            {
                return Ok(cached);
            }
            if !status.is_success() {
                return Err(response_error(what, &response, signal, read_only));
            }
            if response
                .headers()
                .get("x-github-sso")
                .is_some_and(|value| value.as_bytes().starts_with(b"partial-results"))
            {
                tracing::warn!(
                    what,
                    "the answer leaves out organizations with single sign-on; authorize the token for them"
                );
            }
            if hops == 0 && request.method() == Method::GET && response.headers().contains_key(ETAG) {
                lock(&self.cache).insert(cache_key(&request), &response);
            }
            return Ok(response);
        }
    }

    /// Pauses all requests for a time, in milliseconds. Used for requests to pause that only the forge's adapter can
    /// parse.
    pub fn pause(&self, ms: i64) {
        lock(&self.limits).pause(self.clock.now(), ms);
    }

    /// Counts a mutating request; fails if the service's own quota of them is used up.
    fn check_budget(&self, what: &str, priority: RequestPriority) -> ForgeResult<()> {
        let Some(budget) = self.pace.budget else { return Ok(()) };
        let decoration = priority == RequestPriority::Decoration;
        let Some(after_ms) = lock(&self.sent).admit(budget, decoration, self.clock.now()) else { return Ok(()) };
        let detail = format!(
            "not sent: at most {} changes a minute and {} an hour are sent, so that the forge refuses none",
            budget.per_minute, budget.per_hour
        );
        Err(error(ForgeErrorKind::RateLimited { after_ms }, what, detail))
    }

    /// Fails during a pause that the forge requested, and for background requests if only the reserved quota is left.
    fn check_limits(&self, what: &str, request: &Request<Bytes>) -> ForgeResult<()> {
        let background = request.extensions().get::<RequestPriority>() == Some(&RequestPriority::Background);
        let reserve = if background { self.rates.reserve } else { 0 };
        let Some((after_ms, why)) = lock(&self.limits).wait(self.clock.now(), reserve) else { return Ok(()) };
        let after_ms = limits::spread(after_ms);
        Err(error(ForgeErrorKind::RateLimited { after_ms }, what, format!("not sent: {why}")))
    }

    /// Makes a GET conditional if its last response is cached, and returns that response.
    fn conditional(&self, request: &mut Request<Bytes>) -> Option<Response<Bytes>> {
        if request.method() != Method::GET || request.headers().contains_key(IF_NONE_MATCH) {
            return None;
        }
        let known = lock(&self.cache).get(&cache_key(request))?;
        let tag = known.headers().get(ETAG)?.clone();
        request.headers_mut().insert(IF_NONE_MATCH, tag);
        Some(known)
    }
}

/// Parses a JSON response.
///
/// # Errors
/// `Bug` for a web page (from a proxy or a wrong address) and for JSON with another structure.
pub fn json<T: DeserializeOwned>(what: &str, response: &Response<Bytes>) -> ForgeResult<T> {
    serde_json::from_slice(response.body()).map_err(|failure| {
        let detail = if is_web_page(response) {
            Failure::new("the response is a web page instead of JSON")
                .with_hint("check the forge's url, and whether a proxy with a login is in front of it")
        } else {
            let status = response.status().as_u16();
            Failure::new(format!("cannot parse the response (HTTP {status})")).caused_by(failure)
        };
        error(ForgeErrorKind::Bug, what, detail)
    })
}

/// Returns the `rel="next"` address of a `Link` header; `None` if there is none.
pub fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get("link")?.to_str().ok()?;
    links.split(',').find_map(|link| {
        let (address, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let next = parameters.split(';').any(|p| matches!(p.trim(), "rel=\"next\"" | "rel=next"));
        next.then(|| address.to_owned())
    })
}

/// Creates a [`ForgeError`].
pub fn error(kind: ForgeErrorKind, what: &str, detail: impl Into<Failure>) -> ForgeError {
    let detail = detail.into();
    let text = format!("{detail:#}");
    ForgeError { kind, what: what.to_owned(), detail: text, cause: Some(detail).filter(|of| of.source().is_some()) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Code under these locks only assigns, so the state is valid even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_read_only(request: &Request<Bytes>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) || request.extensions().get::<ReadOnly>().is_some()
}

fn cache_key(request: &Request<Bytes>) -> String {
    let accept = request.headers().get("accept").and_then(|v| v.to_str().ok()).unwrap_or_default();
    format!("{} {accept}", request.uri())
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 307 | 308)
}

/// Returns the request that follows a redirect.
///
/// # Errors
/// The redirect is not followed: invalid address, another host, too many redirects, or a mutating request.
fn redirected(
    what: &str,
    request: &Request<Bytes>,
    response: &Response<Bytes>,
    hops: usize,
) -> ForgeResult<Request<Bytes>> {
    let from = request.uri();
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let target = url::Url::parse(&from.to_string())
        .and_then(|base| base.join(location))
        .ok()
        .filter(|target| matches!(target.scheme(), "http" | "https"))
        .and_then(|target| Uri::try_from(target.as_str()).ok())
        .filter(|_| !location.is_empty());
    let Some(target) = target else {
        return Err(error(ForgeErrorKind::Bug, what, "the response is a redirect without a usable address"));
    };
    let host = target.host().unwrap_or_default().to_owned();
    if *request.method() != Method::GET {
        let detail =
            format!("the resource moved (HTTP {}); read the repository again by its id", response.status().as_u16());
        return Err(error(ForgeErrorKind::Moved, what, detail));
    }
    if hops > MAX_REDIRECTS {
        return Err(error(
            ForgeErrorKind::Bug,
            what,
            format!("more than {MAX_REDIRECTS} redirects, the last to {host}"),
        ));
    }
    let mut next = request.clone();
    next.headers_mut().remove(IF_NONE_MATCH);
    let same = origin(from) == origin(&target);
    if !same {
        let allowed =
            request.extensions().get::<FollowCrossOrigin>().is_some() && target.scheme_str() == from.scheme_str();
        if !allowed {
            let detail = format!("a redirect to another server ({host}) is not followed; check the forge's url");
            return Err(error(ForgeErrorKind::Bug, what, detail));
        }
        next.headers_mut().clear();
    }
    *next.uri_mut() = target;
    Ok(next)
}

/// Returns scheme, host and port of an address, which are the scope of a credential.
fn origin(uri: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    (uri.scheme_str(), uri.host().map(str::to_ascii_lowercase), uri.port_u16().or(Some(usual)))
}

/// Converts an unsuccessful response to an error.
fn response_error(what: &str, response: &Response<Bytes>, signal: LimitSignal, read_only: bool) -> ForgeError {
    let kind = match (response.status().as_u16(), signal) {
        (403 | 429, LimitSignal::Limited { after_ms }) => {
            ForgeErrorKind::RateLimited { after_ms: limits::spread(after_ms) }
        }
        (401, _) => ForgeErrorKind::Unauthorized,
        (403 | 451, _) => ForgeErrorKind::Denied,
        (404 | 410, _) => ForgeErrorKind::NotFound,
        (409 | 412 | 423, _) => ForgeErrorKind::Conflict,
        (422, _) if reports_existing(response.body()) => ForgeErrorKind::Conflict,
        (408, _) => ForgeErrorKind::Transient { after_ms: None, ambiguous: !read_only },
        (500..=599, LimitSignal::Limited { after_ms }) => {
            ForgeErrorKind::Transient { after_ms: Some(limits::spread(after_ms)), ambiguous: !read_only }
        }
        (500..=599, LimitSignal::Plain) => ForgeErrorKind::Transient { after_ms: None, ambiguous: !read_only },
        _ => ForgeErrorKind::Bug,
    };
    let sign_on = sign_on_address(response.headers())
        .map(|address| format!("; the organization requires single sign-on: authorize the token at {address}"));
    let message = error_message(response);
    error(kind, what, format!("HTTP {}{message}{}", response.status().as_u16(), sign_on.unwrap_or_default()))
}

/// Returns the address, as GitHub reports it, at which a token can be authorized for an organization with single
/// sign-on.
fn sign_on_address(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get("x-github-sso")?.to_str().ok()?;
    let address = value.strip_prefix("required")?.trim_start_matches([';', ' ']).strip_prefix("url=")?;
    address.starts_with("https://").then_some(address)
}

fn reports_existing(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    text.contains("already exist") || text.contains("already_exist")
}

/// Returns the forge's error message with a leading colon; empty if there is none.
fn error_message(response: &Response<Bytes>) -> String {
    if is_web_page(response) {
        return ": the response is a web page".to_owned();
    }
    let body = response.body();
    let text = match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(value) => {
            let message = value.get("message").and_then(|m| m.as_str()).unwrap_or_default().to_owned();
            match value.get("errors") {
                Some(errors) if !errors.is_null() => format!("{message} {errors}"),
                _ => message,
            }
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let message: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(DETAIL_CHARS).collect();
    if message.trim().is_empty() { String::new() } else { format!(": {}", message.trim()) }
}

fn is_web_page(response: &Response<Bytes>) -> bool {
    let declared = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    declared.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
        || response.body().trim_ascii_start().starts_with(b"<")
}
