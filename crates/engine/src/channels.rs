//! Sends escalations to chat rooms, on-call services, mailboxes and other programs.
//!
//! Each call is one attempt; the engine schedules retries. A message may arrive twice if its response was lost or the
//! service was killed. Both copies then have the same `X-Ralph-Delivery`, or `Message-ID` in mail. Invariant: no message is
//! sent to a non-public address unless the operator allows it for the channel. The check applies to the connected address,
//! so redirects and proxies are not used.

mod discord;
#[cfg_attr(not(feature = "mail"), path = "channels/no_mail.rs")]
mod mail;
mod sign;
mod slack_bot;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ralph_types::failure::Failure;
use reqwest::RequestBuilder;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::{Host, Url};

pub use sign::{SIGNATURE_HEADER, TIMESTAMP_HEADER, verify};

use crate::domain::model::error_chain::error_chain;
use crate::domain::model::ids::Timestamp;
use crate::domain::report::notice::{
    Audience, ChannelKind, MessageStep, Notice, NoticeBody, NoticeTransport, PostedMessage,
};
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::address::not_public;
use crate::domain::trust::outbound::{Masker, OutboundFilter, OutboundJson};
use crate::net::client;
use crate::net::resolver::{Refused, Resolver, resolve};

/// Header with the delivery's id.
pub const DELIVERY_HEADER: &str = "x-ralph-delivery";
/// Time limit for connecting, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum length of a URL segment that is treated as a secret, in bytes.
const SECRET_MIN: usize = 12;
/// Maximum number of bytes read from a response.
const ANSWER_MAX: usize = 1 << 20;
/// Maximum number of bytes of a response that are searched for an error message.
const COMPLAINT_MAX: usize = 2_048;
/// Text after the message about a rejected address.
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
    /// Signing key, routing key, bot token, or mail server password.
    pub secret: Option<SecretString>,
    /// Levels sent to the channel.
    pub levels: Vec<EscalationLevel>,
    /// Whether non-public addresses are allowed.
    pub allow_private: bool,
    /// Room id; required for Slack with a bot token, otherwise unused.
    pub room: Option<String>,
    /// Mail settings; required for mail, otherwise unused.
    pub mail: Option<MailSettings>,
}

/// Settings of mail.
#[derive(Debug, Clone)]
pub struct MailSettings {
    /// User for the mail server; `None` without a login.
    pub user: Option<String>,
    /// Sender, in the format of a mail header.
    pub from: String,
    /// Recipients, in the format of a mail header; never empty.
    pub to: Vec<String>,
    /// Whether a connection without initial TLS must be upgraded before data is sent.
    pub starttls: bool,
    /// Trusted certificates in PEM format, in addition to the system's; may be empty.
    pub ca: Vec<u8>,
}

/// Notice to send, with delivery data.
#[derive(Debug, Clone, Copy)]
pub struct NoticeDelivery<'n> {
    /// The notice.
    pub notice: &'n Notice,
    /// Id of the delivery, equal for all attempts.
    pub delivery: &'n str,
    /// Address of the escalation issue; `None` without one.
    pub answer: Option<&'n str>,
    /// Message about the loop in the channel; `None` without one.
    pub posted: Option<&'n PostedMessage>,
    /// Whether an earlier attempt may have been delivered.
    pub again: bool,
}

/// Result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// The message was accepted.
    Delivered {
        /// Status code of the HTTP or SMTP response.
        status: u16,
        /// Details for the receipt, such as `changed message 5`; may be empty.
        how: String,
        /// Message about the loop that the channel shows from now on; `None` if unchanged.
        posted: Option<PostedMessage>,
    },
    /// No message was necessary.
    Nothing { why: &'static str },
    /// Transient failure. Retry after `after_ms` milliseconds if the channel requested a wait.
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
    /// Place of editable messages: the non-secret part of the address, or the room.
    place: String,
    mail: Option<mail::Mail>,
    client: reqwest::Client,
    outbound: OutboundFilter,
    masker: Masker,
    paused_until: Mutex<Option<Timestamp>>,
}

impl Channel {
    /// Creates a channel with a separate HTTP client. All messages pass through `outbound`.
    ///
    /// # Errors
    /// The address is invalid, or the system's TLS roots cannot be used. The message contains no secrets.
    pub fn new(settings: ChannelSettings, outbound: OutboundFilter) -> Result<Self, Failure> {
        let url = Url::parse(settings.url.expose_secret()).map_err(Failure::of)?;
        let client = client()
            .connect_timeout(CONNECT_TIMEOUT)
            .dns_resolver(Arc::new(Resolver { allow_private: settings.allow_private, hint: PRIVATE_HINT }))
            // A proxy would bypass the address check.
            .no_proxy()
            // Without pooling, the address is checked for every message.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| Failure::of(error.without_url()))?;
        let service = settings.kind.definition();
        let place = match service.transport {
            NoticeTransport::SlackMessage => settings.room.clone().ok_or("no `room` is set")?,
            NoticeTransport::DiscordMessage => discord::place(&url),
            _ => String::new(),
        };
        let mail = match (service.transport, settings.mail) {
            (NoticeTransport::Mail, None) => {
                return Err(Failure::new("the sender and the recipients of mail are not set"));
            }
            (NoticeTransport::Mail, Some(of)) => Some(mail::Mail::new(of, &url, settings.secret.as_ref())?),
            _ => None,
        };
        let mut secrets = vec![url.to_string(), settings.url.expose_secret().to_owned()];
        if matches!(service.transport, NoticeTransport::SlackMessage | NoticeTransport::Mail) {
            // These addresses are not secret, and errors contain them.
            secrets.clear();
        } else if url.path().len() > 1 {
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
            place,
            mail,
            client,
            outbound,
            masker: Masker::new(secrets),
            paused_until: Mutex::new(None),
        })
    }

    /// Returns the configured name.
    pub fn name(&self) -> &str {
        &self.audience.channel
    }

    /// Returns the name and levels of the channel.
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    fn transport(&self) -> NoticeTransport {
        self.audience.kind.definition().transport
    }

    /// Returns the host, which is not secret.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether the service requested a pause that has not ended yet.
    pub fn is_paused(&self, now: Timestamp) -> bool {
        self.paused_until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until > now)
    }

    /// Resolves the channel's addresses: only public ones, unless the channel allows others.
    ///
    /// # Errors
    /// A sentence, if the channel has no such address.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>, Failure> {
        match self.url.host() {
            Some(Host::Domain(name)) => resolve(name, self.allow_private, PRIVATE_HINT).await.map_err(Failure::of),
            _ => self.literal().map(|address| vec![address]).map_err(Failure::of),
        }
    }

    /// Returns the address in a URL with a literal IP address, which needs no name resolution.
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

    /// Performs one delivery attempt within `time_limit`. Mail servers get three times as long, because they may delay
    /// their greeting.
    pub async fn send(&self, sending: NoticeDelivery<'_>, time_limit: Duration, now: Timestamp) -> SendOutcome {
        let NoticeDelivery { notice, posted, .. } = sending;
        let step = MessageStep::of(self.audience.kind, notice, posted, &self.place);
        if step == MessageStep::Nothing {
            return if self.audience.kind.shows_resolution() {
                SendOutcome::Nothing { why: "the channel has no message about the loop" }
            } else {
                SendOutcome::Rejected { why: "this kind of channel shows no resolutions".to_owned() }
            };
        }
        if !matches!(self.url.host(), Some(Host::Domain(_)))
            && let Err(refused) = self.literal()
        {
            return SendOutcome::Rejected { why: refused.to_string() };
        }
        let time_limit = if self.mail.is_some() { time_limit * 3 } else { time_limit };
        let attempt = async {
            match self.transport() {
                NoticeTransport::SlackMessage | NoticeTransport::DiscordMessage => {
                    self.write_message(sending, step, now).await
                }
                NoticeTransport::Mail => self.post_mail(sending, now).await,
                NoticeTransport::Request | NoticeTransport::SignedRequest | NoticeTransport::KeyedRequest(_) => {
                    self.post(sending, now).await
                }
            }
        };
        // Covers the whole exchange; the client's timeout excludes name resolution.
        match tokio::time::timeout(time_limit, attempt).await {
            Ok(Ok(outcome) | Err(outcome)) => outcome,
            Err(_) => {
                SendOutcome::Retry { after_ms: None, why: format!("no answer within {} s", time_limit.as_secs_f32()) }
            }
        }
    }

    /// Checks whether the service would accept messages, if possible without sending one: for mail servers, Slack with a bot
    /// token, and Discord. Returns the service's response.
    ///
    /// # Errors
    /// A sentence without secrets, if the service rejects the request or does not respond.
    pub async fn probe(&self, now: Timestamp) -> Result<Option<String>, Failure> {
        let probed = match self.transport() {
            NoticeTransport::SlackMessage => self.probe_slack(now).await,
            NoticeTransport::DiscordMessage => self.probe_discord(now).await,
            NoticeTransport::Mail => self.probe_mail().await,
            NoticeTransport::Request | NoticeTransport::SignedRequest | NoticeTransport::KeyedRequest(_) => {
                return Ok(None);
            }
        };
        probed.map(Some).map_err(|outcome| match outcome {
            SendOutcome::Retry { why, .. } | SendOutcome::Rejected { why } => Failure::new(why),
            SendOutcome::Delivered { .. } | SendOutcome::Nothing { .. } => Failure::new(""),
        })
    }

    /// Posts a message whose response is irrelevant.
    async fn post(&self, sending: NoticeDelivery<'_>, now: Timestamp) -> Result<SendOutcome, SendOutcome> {
        let body = self.text(self.message(sending.notice, sending));
        let mut headers = json_header();
        if self.transport() == NoticeTransport::SignedRequest {
            self.signed(&mut headers, sending.delivery, &body, now);
        }
        let answer = self.exchange(self.client.post(self.url.clone()).headers(headers).body(body), now).await?;
        let status = self.accepted(&answer)?;
        Ok(SendOutcome::Delivered { status, how: String::new(), posted: None })
    }

    /// Posts the message about a loop, or edits the existing one.
    async fn write_message(
        &self,
        sending: NoticeDelivery<'_>,
        step: MessageStep<'_>,
        now: Timestamp,
    ) -> Result<SendOutcome, SendOutcome> {
        match step {
            MessageStep::Change(posted) | MessageStep::ChangeIfThere(posted) => {
                if let Some(outcome) = self.change_message(sending.notice, sending, posted, now).await? {
                    return Ok(outcome);
                }
                if matches!(step, MessageStep::ChangeIfThere(_)) {
                    return Ok(SendOutcome::Nothing { why: "the message about the loop was deleted" });
                }
                self.post_message(sending, now).await
            }
            MessageStep::PostAgain(older) => {
                let outcome = self.post_message(sending, now).await?;
                if let Some(shown) = sending.notice.superseded(older)
                    && let Err(outcome) = self.change_message(&shown, sending, older, now).await
                {
                    // If the older message could not be changed, do not post the new one again.
                    tracing::warn!(channel = self.name(), ?outcome, "could not change an older message");
                }
                Ok(outcome)
            }
            MessageStep::Post | MessageStep::Nothing => self.post_message(sending, now).await,
        }
    }

    async fn post_message(&self, sending: NoticeDelivery<'_>, now: Timestamp) -> Result<SendOutcome, SendOutcome> {
        match self.transport() {
            NoticeTransport::SlackMessage => self.post_slack(sending, now).await,
            _ => self.post_discord(sending, now).await,
        }
    }

    /// Edits a message; `None` if it does not exist or is no longer editable.
    async fn change_message(
        &self,
        notice: &Notice,
        sending: NoticeDelivery<'_>,
        posted: &PostedMessage,
        now: Timestamp,
    ) -> Result<Option<SendOutcome>, SendOutcome> {
        match self.transport() {
            NoticeTransport::SlackMessage => self.change_slack(notice, sending, posted, now).await,
            _ => self.change_discord(notice, sending, posted, now).await,
        }
    }

    /// Returns the record of the message that the channel shows after a write.
    fn shown(&self, notice: &Notice, id: impl Into<String>) -> PostedMessage {
        let (level, occasion) = (notice.level, notice.occasion);
        PostedMessage { place: self.place.clone(), id: id.into(), level, occasion }
    }

    /// Returns the message in the service's format. Secrets in texts are masked before and after escaping.
    fn message(&self, notice: &Notice, sending: NoticeDelivery<'_>) -> OutboundJson {
        let NoticeDelivery { delivery, answer, again, .. } = sending;
        let masked =
            serde_json::to_value(notice).map(|value| self.outbound.masked_json(value)).and_then(serde_json::from_value);
        // Masking keeps the notice valid, unless a secret equals the name of a variant.
        let masked: Notice = masked.unwrap_or_else(|_| notice.clone());
        let body = self.audience.kind.definition().body;
        self.outbound.json(body(NoticeBody { notice: &masked, delivery, answer, again }))
    }

    /// Returns the message as text, including the key that its service requires.
    fn text(&self, message: OutboundJson) -> String {
        let mut body = message.into_value();
        if let (NoticeTransport::KeyedRequest(field), Some(key)) = (self.transport(), &self.secret) {
            body[field] = Value::from(key.expose_secret());
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

    /// Sends a request and reads the response. A requested pause applies to the channel.
    ///
    /// # Errors
    /// The outcome of the attempt if there was no response.
    async fn exchange(&self, request: RequestBuilder, now: Timestamp) -> Result<HttpAnswer, SendOutcome> {
        let mut response = request.send().await.map_err(|error| {
            let error = error.without_url();
            let why = self.masked(&error_chain(&error));
            if Refused::caused(&error) {
                SendOutcome::Rejected { why }
            } else {
                SendOutcome::Retry { after_ms: None, why }
            }
        })?;
        let status = response.status().as_u16();
        let mut said = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            said.extend_from_slice(&chunk);
            if said.len() >= ANSWER_MAX {
                said.truncate(ANSWER_MAX);
                break;
            }
        }
        let after_ms = response.headers().get(RETRY_AFTER).and_then(|value| retry_after_ms(value, now));
        let after_ms = after_ms.filter(|_| is_transient(status));
        if let Some(after_ms) = after_ms {
            let until = Some(now.plus_ms(after_ms));
            *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        }
        Ok(HttpAnswer { status, said, after_ms })
    }

    /// Returns the status of a successful response.
    ///
    /// # Errors
    /// The outcome of the attempt if the service rejected it.
    fn accepted(&self, answer: &HttpAnswer) -> Result<u16, SendOutcome> {
        let why = || self.complaint(answer.status, &answer.said);
        match answer.status {
            status @ 200..=299 => Ok(status),
            300..=399 => Err(SendOutcome::Rejected { why: format!("{}; redirects are not followed", why()) }),
            status if is_transient(status) => Err(SendOutcome::Retry { after_ms: answer.after_ms, why: why() }),
            _ => Err(SendOutcome::Rejected { why: why() }),
        }
    }

    /// Formats the status and the response text, with masked secrets.
    fn complaint(&self, status: u16, said: &[u8]) -> String {
        let said = String::from_utf8_lossy(&said[..said.len().min(COMPLAINT_MAX)]);
        let words: String = one_line(&self.masked(&said)).chars().take(DETAIL_CHARS).collect();
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

/// Response to a request.
struct HttpAnswer {
    status: u16,
    /// Body, at most `ANSWER_MAX` bytes.
    said: Vec<u8>,
    /// Requested wait, in milliseconds.
    after_ms: Option<i64>,
}

/// Joins a service's text to one line without control characters.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a request can be retried after a response with this status.
fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

fn json_header() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

/// Parses seconds (which can be fractional for Discord) or an HTTP date to milliseconds from now; `None` if invalid.
fn retry_after_ms(value: &HeaderValue, now: Timestamp) -> Option<i64> {
    /// Upper limit in seconds, because no message is retried longer.
    const LONGEST_S: f64 = 7.0 * 24.0 * 3_600.0;
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds >= 0.0).then(|| (seconds.min(LONGEST_S) * 1_000.0).ceil() as i64);
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
    (at > now.0).then_some(at - now.0)
}
