//! Sends escalations to chat rooms, on-call services and other programs.
//!
//! Each call is one attempt; the engine schedules retries. A message may arrive twice (its response was lost, or the
//! service was killed); `X-Ralph-Delivery` is then the same. Invariant: nothing is sent to an address that is not
//! public unless the operator allows it for the channel. The check applies to the connected address, so redirects and
//! proxies are not followed.

mod sign;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::{Host, Url};

pub use sign::{SIGNATURE_HEADER, TIMESTAMP_HEADER, verify};

use crate::domain::model::error_chain::error_chain;
use crate::domain::model::ids::Timestamp;
use crate::domain::report::notice::{self, Audience, ChannelKind, Notice, Occasion};
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::address::not_public;
use crate::domain::trust::outbound::{Door, Masker, OutboundJson};
use crate::net::client;
use crate::net::resolver::{Refused, Resolver, resolve};

/// Header with the id of the delivery.
pub const DELIVERY_HEADER: &str = "x-ralph-delivery";
/// Time to connect, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum length of a URL segment that is treated as a secret, in bytes.
const SECRET_MIN: usize = 12;
/// Maximum number of bytes read from a response.
const ANSWER_MAX: usize = 2_048;
/// Words after the refusal of an address.
const PRIVATE_HINT: &str = "; `allow_private: true` allows it";
/// Maximum length of an error message for people, in characters.
const DETAIL_CHARS: usize = 200;

/// Configuration of a channel.
#[derive(Debug, Clone)]
pub struct ChannelSettings {
    /// Configured name.
    pub name: String,
    /// Kind of service.
    pub kind: ChannelKind,
    /// URL; secret for some services.
    pub url: SecretString,
    /// Signing key or routing key.
    pub secret: Option<SecretString>,
    /// Levels that the channel receives.
    pub levels: Vec<EscalationLevel>,
    /// Whether addresses that are not public are allowed.
    pub allow_private: bool,
}

/// Result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// The message was accepted.
    Delivered {
        /// HTTP status of the response.
        status: u16,
    },
    /// Transient failure: retry after `after_ms` milliseconds if the channel asks for it.
    Retry { after_ms: Option<i64>, why: String },
    /// Permanent failure.
    Rejected { why: String },
}

/// Client of a channel.
pub struct Channel {
    audience: Audience,
    url: Url,
    secret: Option<SecretString>,
    allow_private: bool,
    client: reqwest::Client,
    door: Door,
    masker: Masker,
    paused_until: Mutex<Option<Timestamp>>,
}

impl Channel {
    /// Creates a channel with its own HTTP client; messages pass `door`.
    ///
    /// # Errors
    /// The address is invalid, or the TLS roots of the system cannot be used; a sentence without secrets.
    pub fn new(settings: ChannelSettings, door: Door) -> Result<Self, String> {
        let url = Url::parse(settings.url.expose_secret()).map_err(|error| error.to_string())?;
        let client = client()
            .connect_timeout(CONNECT_TIMEOUT)
            .dns_resolver(Arc::new(Resolver { allow_private: settings.allow_private, hint: PRIVATE_HINT }))
            // A proxy would bypass the address check.
            .no_proxy()
            // Without pooling, the address is checked for every message.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| error_chain(&error.without_url()))?;
        let mut secrets = vec![url.to_string(), settings.url.expose_secret().to_owned()];
        if url.path().len() > 1 {
            secrets.push(url.path().to_owned());
        }
        // Long segments of a secret URL are masked individually.
        secrets.extend(url.path_segments().into_iter().flatten().filter(|s| s.len() >= SECRET_MIN).map(str::to_owned));
        secrets.extend(url.query().map(str::to_owned));
        secrets.extend(settings.secret.as_ref().map(|secret| secret.expose_secret().to_owned()));
        Ok(Self {
            audience: Audience { channel: settings.name, kind: settings.kind, levels: settings.levels },
            url,
            secret: settings.secret,
            allow_private: settings.allow_private,
            client,
            door,
            masker: Masker::new(secrets),
            paused_until: Mutex::new(None),
        })
    }

    /// Configured name.
    pub fn name(&self) -> &str {
        &self.audience.channel
    }

    /// Returns the name and levels of the channel.
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Returns the host, which is not secret.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether the channel asked for a pause that has not ended.
    pub fn is_paused(&self, now: Timestamp) -> bool {
        self.paused_until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until > now)
    }

    /// Resolves the channel's addresses: public ones, or all if others are allowed.
    ///
    /// # Errors
    /// The channel has no such address; a sentence.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>, String> {
        match self.url.host() {
            Some(Host::Domain(name)) => {
                resolve(name, self.allow_private, PRIVATE_HINT).await.map_err(|error| error.to_string())
            }
            _ => self.literal().map(|address| vec![address]).map_err(|refused| refused.to_string()),
        }
    }

    /// Returns the address of a URL with a literal IP, which is not resolved.
    fn literal(&self) -> Result<IpAddr, Refused> {
        let address = match self.url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            _ => return Err(Refused("the URL has no host".to_owned())),
        };
        match not_public(address) {
            Some(what) if !self.allow_private => Err(Refused::of(address, what, PRIVATE_HINT)),
            _ => Ok(address),
        }
    }

    /// Performs one delivery attempt. `delivery` is the same for all attempts; `answer` is the URL of the escalation
    /// issue.
    pub async fn send(
        &self,
        notice: &Notice,
        delivery: &str,
        answer: Option<&str>,
        patience: Duration,
        now: Timestamp,
    ) -> SendOutcome {
        if notice.occasion == Occasion::Resolved && !self.audience.kind.keeps_incidents() {
            return SendOutcome::Rejected { why: "this kind of channel has no incidents".to_owned() };
        }
        if !matches!(self.url.host(), Some(Host::Domain(_)))
            && let Err(refused) = self.literal()
        {
            return SendOutcome::Rejected { why: refused.to_string() };
        }
        let body = self.message(notice, delivery, answer);
        let body = self.text(body);
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        if self.audience.kind == ChannelKind::Generic {
            self.signed(&mut headers, delivery, &body, now);
        }
        // Covers the whole exchange; the client's timeout excludes name resolution.
        let exchange = self.exchange(headers, body, now);
        match tokio::time::timeout(patience, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => {
                SendOutcome::Retry { after_ms: None, why: format!("no answer within {} s", patience.as_secs_f32()) }
            }
        }
    }

    /// Returns the message for the service. Texts are masked before they are escaped and after.
    fn message(&self, notice: &Notice, delivery: &str, answer: Option<&str>) -> OutboundJson {
        let masked =
            serde_json::to_value(notice).map(|value| self.door.masked_json(value)).and_then(serde_json::from_value);
        // A notice stays one unless a secret is a name of one of its variants.
        let masked: Notice = masked.unwrap_or_else(|_| notice.clone());
        self.door.json(notice::body(self.audience.kind, &masked, delivery, answer))
    }

    /// Writes a message, with the key that its service requires.
    fn text(&self, message: OutboundJson) -> String {
        let mut body = message.into_value();
        if let (ChannelKind::PagerDuty, Some(key)) = (self.audience.kind, &self.secret) {
            body["routing_key"] = Value::from(key.expose_secret());
        }
        body.to_string()
    }

    fn signed(&self, headers: &mut HeaderMap, delivery: &str, body: &str, now: Timestamp) {
        let timestamp = now.0.div_euclid(1_000).to_string();
        let signature = self.secret.as_ref().map(|key| sign::sign(key, &timestamp, body.as_bytes()));
        let all = [
            (DELIVERY_HEADER, Some(delivery.to_owned())),
            (SIGNATURE_HEADER, signature),
            (TIMESTAMP_HEADER, Some(timestamp)),
        ];
        for (name, value) in all {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }

    async fn exchange(&self, headers: HeaderMap, body: String, now: Timestamp) -> SendOutcome {
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                let error = error.without_url();
                let why = self.masked(&error_chain(&error));
                return if Refused::caused(&error) {
                    SendOutcome::Rejected { why }
                } else {
                    SendOutcome::Retry { after_ms: None, why }
                };
            }
        };
        let status = response.status();
        if status.is_success() {
            return SendOutcome::Delivered { status: status.as_u16() };
        }
        let mut said = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            said.extend_from_slice(&chunk);
            if said.len() >= ANSWER_MAX {
                said.truncate(ANSWER_MAX);
                break;
            }
        }
        let why = self.complaint(status.as_u16(), &said);
        match status.as_u16() {
            300..=399 => SendOutcome::Rejected { why: format!("{why}; redirects are not followed") },
            408 | 429 | 500..=599 => {
                let after_ms = response.headers().get(RETRY_AFTER).and_then(|value| retry_after_ms(value, now));
                if let Some(after_ms) = after_ms {
                    let until = Some(now.plus_ms(after_ms));
                    *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
                }
                SendOutcome::Retry { after_ms, why }
            }
            _ => SendOutcome::Rejected { why },
        }
    }

    /// Formats the status and the response text, with secrets masked.
    fn complaint(&self, status: u16, said: &[u8]) -> String {
        let said = String::from_utf8_lossy(said);
        let words: String = self.masked(&said).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(DETAIL_CHARS).collect();
        let separator = if words.is_empty() { "" } else { ": " };
        format!("HTTP {status}{separator}{words}")
    }

    fn masked(&self, text: &str) -> String {
        self.masker.mask(text).into_owned()
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Channel").field(&self.audience).finish()
    }
}

/// Parses seconds (fractional for Discord) or an HTTP date into milliseconds from now.
fn retry_after_ms(value: &HeaderValue, now: Timestamp) -> Option<i64> {
    /// Upper bound in seconds; no message is retried for longer.
    const LONGEST_S: f64 = 7.0 * 24.0 * 3_600.0;
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds >= 0.0).then(|| (seconds.min(LONGEST_S) * 1_000.0).ceil() as i64);
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
    (at > now.0).then_some(at - now.0)
}
