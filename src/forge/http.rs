//! The one retry and pacing layer: every call to any forge goes through a `Caller`.
//!
//! Invariants: no request is sent inside a window the forge asked us to wait; one mutating request at a time, at least
//! `mutation_interval_ms` apart, urgent ones first; nothing whose effect is unknown is sent twice from here (the engine
//! looks it up first).

mod etag;
mod limits;
mod reqwest;
mod turns;

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION};
use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use async_trait::async_trait;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use self::etag::EtagCache;
use self::limits::{Answer, Limits};
use self::turns::Turns;
use super::{ForgeError, ForgeErrorKind, ForgeResult};
use crate::clock::Clock;

pub use self::limits::jitter;
pub use self::reqwest::ReqwestTransport;

/// Largest body of an answer that is taken, in bytes; transports stop reading there.
pub const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Redirects that are followed for one reading call.
const MAX_REDIRECTS: usize = 3;
/// First pause before a call is tried again; doubles each time.
const FIRST_BACKOFF_MS: u64 = 250;
/// What of a forge's complaint is kept for people, in characters.
const DETAIL_CHARS: usize = 500;

/// Sends one request and returns whatever came back, of any status, without following redirects or trying again.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends; the body of the answer has at most `MAX_ANSWER_BYTES`.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError>;
}

/// Nothing usable came back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct TransportError {
    /// Whether bytes may have reached the server, so that it may have acted.
    pub ambiguous: bool,
    /// What failed; holds no secret.
    pub detail: String,
}

/// How urgent a call is; a request extension, `Normal` when absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// A command was just seen: it goes before all changes that wait their turn.
    Urgent,
    /// Somebody waits for it.
    #[default]
    Normal,
    /// Polling; refused when the forge's budget is nearly used up.
    Background,
}

/// Request extension: this POST changes nothing (a GraphQL query), so it is neither paced nor ambiguous.
#[derive(Debug, Clone, Copy)]
pub struct ReadOnly;

/// Request extension: a redirect to another host is followed, without any of our headers (downloads of logs).
#[derive(Debug, Clone, Copy)]
pub struct FollowAbroad;

/// How long an answer is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time to connect, TLS included.
    pub connect: Duration,
    /// Time in which the next bytes must come.
    pub idle: Duration,
    /// Time for the whole exchange.
    pub total: Duration,
}

impl Patience {
    /// A busy server answers within this; one that does not may have acted all the same.
    pub const USUAL: Self =
        Self { connect: Duration::from_secs(5), idle: Duration::from_secs(15), total: Duration::from_secs(60) };
}

/// How calls are spaced, and how long they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Least time between two mutating calls, in milliseconds.
    pub mutation_interval_ms: i64,
    /// How long a mutating call that gets no answer keeps the next one waiting.
    pub turn: Duration,
    /// Requests of the forge's budget that are kept for people's commands; background calls are refused below it.
    pub reserve: u32,
    /// How often a call is tried in all, at least once.
    pub attempts: u32,
    /// How long an answer is waited for.
    pub patience: Patience,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            mutation_interval_ms: 1_000,
            turn: Duration::from_secs(2),
            reserve: 100,
            attempts: 3,
            patience: Patience::USUAL,
        }
    }
}

/// Sends calls with one credential to one server.
pub struct Caller {
    transport: Arc<dyn Transport>,
    clock: Clock,
    pace: Pace,
    limits: Mutex<Limits>,
    cache: Mutex<EtagCache>,
    turns: Turns,
}

impl Caller {
    /// A caller with nothing remembered.
    pub fn new(transport: Arc<dyn Transport>, clock: Clock, pace: Pace) -> Self {
        Self {
            transport,
            clock,
            pace,
            limits: Mutex::new(Limits::default()),
            cache: Mutex::new(EtagCache::default()),
            turns: Turns::default(),
        }
    }

    /// Sends a request and returns its answer if that is a success (2xx); everything else is an error by what the
    /// engine does about it. `what` says what is tried, on what, for people.
    pub async fn call(&self, what: &str, request: Request<Bytes>) -> ForgeResult<Response<Bytes>> {
        let read_only = is_read_only(&request);
        if read_only {
            return self.attempts(what, request, true).await;
        }
        let urgent = request.extensions().get::<Priority>() == Some(&Priority::Urgent);
        let mut turn = self.turns.take(urgent, &self.clock, self.pace.mutation_interval_ms).await;
        turn.note(self.clock.now());
        let mut call = pin!(self.attempts(what, request, false));
        let in_turn = tokio::time::timeout(self.pace.turn, &mut call).await;
        turn.note(self.clock.now());
        drop(turn);
        match in_turn {
            Ok(answer) => answer,
            // Others are not to wait for a repository that does not answer.
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
            let again = matches!(error.kind, ForgeErrorKind::Transient { after_ms: None, ambiguous: false });
            if !again || attempt >= self.pace.attempts {
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
            self.permitted(what, &request)?;
            let sent = request.clone();
            let response = self.transport.send(sent).await.map_err(|error| ForgeError {
                kind: ForgeErrorKind::Transient { after_ms: None, ambiguous: error.ambiguous && !read_only },
                what: what.to_owned(),
                detail: error.detail,
            })?;
            let answer = lock(&self.limits).observe(&response, self.clock.now());
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
                return Err(refused(what, &response, answer, read_only));
            }
            if hops == 0 && request.method() == Method::GET && response.headers().contains_key(ETAG) {
                lock(&self.cache).insert(cache_key(&request), &response);
            }
            return Ok(response);
        }
    }

    /// Fails without sending while the forge has asked for a pause, or when the budget is kept for others.
    fn permitted(&self, what: &str, request: &Request<Bytes>) -> ForgeResult<()> {
        let background = request.extensions().get::<Priority>() == Some(&Priority::Background);
        let reserve = if background { self.pace.reserve } else { 0 };
        let Some((after_ms, why)) = lock(&self.limits).wait(self.clock.now(), reserve) else { return Ok(()) };
        let after_ms = limits::spread(after_ms);
        Err(error(ForgeErrorKind::RateLimited { after_ms }, what, format!("not sent: {why}")))
    }

    /// Makes a GET conditional when its last answer is still known, and returns that answer.
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

/// Reads a JSON answer.
///
/// # Errors
/// `Bug`, saying what was wrong with it: a web page instead of JSON (a proxy or a wrong address), or another shape.
pub fn json<T: DeserializeOwned>(what: &str, response: &Response<Bytes>) -> ForgeResult<T> {
    serde_json::from_slice(response.body()).map_err(|failure| {
        let detail = if is_web_page(response) {
            "a web page came back instead of JSON; check the forge's url, and whether a proxy with a login is in front"
                .to_owned()
        } else {
            format!("the answer (HTTP {}) is not understood: {failure}", response.status().as_u16())
        };
        error(ForgeErrorKind::Bug, what, detail)
    })
}

/// The `rel="next"` address of an answer's `Link` header.
pub fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get("link")?.to_str().ok()?;
    links.split(',').find_map(|link| {
        let (address, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let next = parameters.split(';').any(|p| matches!(p.trim(), "rel=\"next\"" | "rel=next"));
        next.then(|| address.to_owned())
    })
}

/// An error of a call.
pub fn error(kind: ForgeErrorKind, what: &str, detail: impl Into<String>) -> ForgeError {
    ForgeError { kind, what: what.to_owned(), detail: detail.into() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Only plain assignments happen under these locks, so the state is sound even after a panic elsewhere.
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

/// The request that follows a redirect, or why it is not followed.
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
        return Err(error(ForgeErrorKind::Bug, what, "a redirect without a usable address came back"));
    };
    let host = target.host().unwrap_or_default().to_owned();
    if *request.method() != Method::GET {
        let detail = format!("it moved (HTTP {}); read the repository again by its id", response.status().as_u16());
        return Err(error(ForgeErrorKind::Conflict, what, detail));
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
        let allowed = request.extensions().get::<FollowAbroad>().is_some() && target.scheme_str() == from.scheme_str();
        if !allowed {
            let detail = format!("a redirect to another server ({host}) is not followed; check the forge's url");
            return Err(error(ForgeErrorKind::Bug, what, detail));
        }
        next.headers_mut().clear();
    }
    *next.uri_mut() = target;
    Ok(next)
}

/// Scheme, host and port, which together a credential is bound to.
fn origin(uri: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    (uri.scheme_str(), uri.host().map(str::to_ascii_lowercase), uri.port_u16().or(Some(usual)))
}

/// What the engine does about an answer that is no success.
fn refused(what: &str, response: &Response<Bytes>, answer: Answer, read_only: bool) -> ForgeError {
    let kind = match (response.status().as_u16(), answer) {
        (403 | 429, Answer::Limited { after_ms }) => ForgeErrorKind::RateLimited { after_ms: limits::spread(after_ms) },
        (401, _) => ForgeErrorKind::Unauthorized,
        (403 | 451, _) => ForgeErrorKind::Denied,
        (404 | 410, _) => ForgeErrorKind::NotFound,
        (409 | 412 | 423, _) => ForgeErrorKind::Conflict,
        (422, _) if says_exists(response.body()) => ForgeErrorKind::Conflict,
        (408, _) => ForgeErrorKind::Transient { after_ms: None, ambiguous: !read_only },
        (500..=599, Answer::Limited { after_ms }) => {
            ForgeErrorKind::Transient { after_ms: Some(limits::spread(after_ms)), ambiguous: !read_only }
        }
        (500..=599, Answer::Plain) => ForgeErrorKind::Transient { after_ms: None, ambiguous: !read_only },
        _ => ForgeErrorKind::Bug,
    };
    error(kind, what, format!("HTTP {}{}", response.status().as_u16(), complaint(response)))
}

fn says_exists(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    text.contains("already exist") || text.contains("already_exist")
}

/// The forge's own words, as far as they are words, with a leading colon.
fn complaint(response: &Response<Bytes>) -> String {
    if is_web_page(response) {
        return ": a web page".to_owned();
    }
    let body = response.body();
    let words = match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(value) => {
            let message = value.get("message").and_then(|m| m.as_str()).unwrap_or_default().to_owned();
            match value.get("errors") {
                Some(errors) if !errors.is_null() => format!("{message} {errors}"),
                _ => message,
            }
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(DETAIL_CHARS).collect();
    if words.trim().is_empty() { String::new() } else { format!(": {}", words.trim()) }
}

fn is_web_page(response: &Response<Bytes>) -> bool {
    let declared = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    declared.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
        || response.body().trim_ascii_start().starts_with(b"<")
}
