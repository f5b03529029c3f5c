//! Errors that ended a call: extracts evidence from their text and body, and recognizes refusals by a provider.
//!
//! Only error messages are read here, never text that a model wrote.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{LimitKind, LimitSignals, kind};
use crate::domain::model::ids::Timestamp;

/// Maximum number of messages stored per call.
const MAX_MESSAGES: usize = 50;
/// Maximum length of a message, in characters.
const MAX_MESSAGE: usize = 500;
/// Maximum length of the error with which a provider ended a run, in characters.
const MAX_ANSWER: usize = 6_000;
/// Maximum length of a code, in characters.
const MAX_CODE: usize = 100;

impl LimitSignals {
    /// Adds an error message of any program as evidence.
    pub fn add_message(&mut self, message: &str) {
        if !message.is_empty()
            && self.messages.len() < MAX_MESSAGES
            && self.messages.last().is_none_or(|last| last != message)
        {
            self.messages.push(shortened(message, MAX_MESSAGE));
        }
    }

    /// Adds an error message of a provider as evidence. Also adds the status, the code and the end of the limit if the text, or a
    /// JSON body in it, contains them.
    pub fn learn(&mut self, message: &str) {
        self.add_message(message);
        if let (Some(open), Some(close)) = (message.find('{'), message.rfind('}'))
            && open < close
            && let Ok(body) = serde_json::from_str::<Value>(&message[open..=close])
        {
            self.learn_body(&body);
        }
        if self.status.is_none() {
            self.status = status_in(message);
        }
    }

    /// Adds the body of a provider's error response as evidence (OpenAI, Anthropic and Google all use the key `error`).
    pub fn learn_body(&mut self, body: &Value) {
        let error = if body["error"].is_object() { &body["error"] } else { body };
        if let Some(status) = error["code"].as_u64().and_then(http_error) {
            self.status = Some(status);
        }
        let code = ["code", "type", "status"].iter().find_map(|name| error[*name].as_str());
        if let Some(code) = code.filter(|code| !code.is_empty()) {
            self.code = Some(shortened(code, MAX_CODE));
        }
        if let Some(at) = error["resets_at"].as_i64().and_then(|seconds| seconds.checked_mul(1000)) {
            self.resets_at = Some(Timestamp(at));
        }
        let details = error["details"].as_array().into_iter().flatten();
        let delays = details.filter_map(|detail| detail["retryDelay"].as_str());
        let delays = delays.map(|delay| format!("retryDelay: {}", shortened(delay, MAX_CODE)));
        let room = MAX_MESSAGES.saturating_sub(self.messages.len());
        self.messages.extend(delays.take(room));
    }

    /// Returns the limit that an error indicates, where the error ended a run and may come from any program. Uses
    /// [`classify`](super::classify), else the HTTP status in the message. `None` if the error indicates no limit.
    pub fn refusal(&self, message: &str) -> Option<LimitKind> {
        let mut signals = self.clone();
        signals.succeeded = false;
        signals.messages.push(message.to_owned());
        let known = kind(&signals);
        known.or_else(|| self.resets_at.map(|_| LimitKind::Quota)).or_else(|| match self.status? {
            401 | 403 => Some(LimitKind::Auth),
            402 => Some(LimitKind::Billing),
            404 => Some(LimitKind::ModelMissing),
            408 | 429 | 500..=599 => Some(LimitKind::Overload),
            _ => None,
        })
    }

    /// Records the error with which a provider ended a run, and returns the limit that it indicates.
    pub fn refusal_of_provider(&mut self, message: &str) -> Option<LimitKind> {
        self.answer = shortened(message, MAX_ANSWER);
        self.refusal(message)
    }
}

/// Returns the HTTP status in the text of an error, as in `unexpected status 503` or `429 Too Many Requests`.
pub fn status_in(message: &str) -> Option<u16> {
    static NAMED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"(?i)(?:\bstatus(?: code)?:? |\bapi error:? |\berror code:? |^)([45]\d\d)\b"#)
            .expect("the expression is fixed and valid")
    });
    let status = NAMED.captures(message)?[1].parse::<u64>().ok()?;
    http_error(status)
}

/// Returns `status` if it is an HTTP error status that a refusal can have.
pub fn http_error(status: u64) -> Option<u16> {
    u16::try_from(status).ok().filter(|status| (400..=599).contains(status))
}

/// Returns the first `max` characters.
fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
