//! What a provider's refusal says: its status, code and end, and what it means for the run.
//!
//! Only words of errors come here, never a model's.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::AgentStatus;
use super::preset::shortened;
use super::stream::{MAX_NAME, MAX_NOTE, MAX_NOTES};
use crate::domain::ids::Timestamp;
use crate::domain::limit::Signals;

/// Longest text without structure that may be a refusal and no answer, in characters.
const MAX_REFUSAL: usize = 2_000;

/// Adds an error's message, and the status, code and end that its words or a JSON body in it name.
pub(super) fn learn(signals: &mut Signals, message: &str) {
    if signals.messages.len() < MAX_NOTES && signals.messages.last().is_none_or(|last| last != message) {
        signals.messages.push(shortened(message, MAX_NOTE));
    }
    if let (Some(open), Some(close)) = (message.find('{'), message.rfind('}'))
        && open < close
        && let Ok(body) = serde_json::from_str::<Value>(&message[open..=close])
    {
        learn_body(signals, &body);
    }
    if signals.status.is_none() {
        signals.status = status_in(message);
    }
}

/// Takes what the body of a provider's refusal says (OpenAI, Anthropic and Google have `error` in common).
pub(super) fn learn_body(signals: &mut Signals, body: &Value) {
    let error = if body["error"].is_object() { &body["error"] } else { body };
    if let Some(status) = error["code"].as_u64().and_then(http_error) {
        signals.status = Some(status);
    }
    let code = ["code", "type", "status"].iter().find_map(|name| error[*name].as_str());
    if let Some(code) = code.filter(|code| !code.is_empty()) {
        signals.code = Some(shortened(code, MAX_NAME));
    }
    if let Some(at) = error["resets_at"].as_i64().and_then(|seconds| seconds.checked_mul(1000)) {
        signals.resets_at = Some(Timestamp(at));
    }
    let details = error["details"].as_array().into_iter().flatten();
    let delays = details.filter_map(|detail| detail["retryDelay"].as_str());
    let delays = delays.map(|delay| format!("retryDelay: {}", shortened(delay, MAX_NAME)));
    let room = MAX_NOTES.saturating_sub(signals.messages.len());
    signals.messages.extend(delays.take(room));
}

/// The HTTP status that an error's words name, as in `unexpected status 503` or `429 Too Many Requests`.
pub(super) fn status_in(message: &str) -> Option<u16> {
    static NAMED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"(?i)(?:\bstatus(?: code)?:? |\bapi error:? |\berror code:? |^)([45]\d\d)\b"#)
            .expect("the expression is fixed and valid")
    });
    let status = NAMED.captures(message)?[1].parse::<u64>().ok()?;
    http_error(status)
}

/// The number as the status of a refusal.
pub(super) fn http_error(status: u64) -> Option<u16> {
    u16::try_from(status).ok().filter(|status| (400..=599).contains(status))
}

/// A run that the provider's refusal ended: whose fault it is decides what comes next. The words are those of an
/// error, never a model's.
pub(super) fn refused(signals: &Signals, said: &str) -> AgentStatus {
    let reason = shortened(said.trim(), MAX_NOTE);
    let lower = said.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let nobody_helps =
        ["/login", "invalid api key", "credit balance", "authenticat", "oauth token", "billing details", "auth_error"];
    let passes = [
        "timed out",
        "connection",
        "unable to connect",
        "econn",
        "fetch failed",
        "overloaded",
        "high demand",
        "stream disconnected",
        "rate_limit",
        "too many requests",
    ];
    let until_ms = signals.resets_at.map(|at| at.0);
    match signals.status {
        _ if until_ms.is_some() => AgentStatus::Limited { until_ms, reason },
        Some(401..=404) => AgentStatus::Unavailable { reason },
        Some(408 | 429 | 500..=599) => AgentStatus::Limited { until_ms, reason },
        _ if says(&nobody_helps) => AgentStatus::Unavailable { reason },
        None if says(&["hit your", "usage limit", "rate limit"]) => {
            // An older form ends with the time in seconds: `usage limit reached|1750000000`.
            let epoch = said.rsplit_once('|').and_then(|(_, at)| at.trim().parse::<i64>().ok());
            AgentStatus::Limited { until_ms: epoch.and_then(|s| s.checked_mul(1000)), reason }
        }
        None if says(&passes) => AgentStatus::Limited { until_ms: None, reason },
        _ => AgentStatus::Failed { reason },
    }
}

/// The line by which a short text without structure is no answer: the program wants a login, is called wrongly, or is
/// given up by its makers.
pub(super) fn no_answer(text: &str) -> Option<String> {
    static REFUSAL: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?ix) /login\b | \b(?:not|please)\ (?:logged|log|sign(?:ed)?)[\ -]in\b | \bto\ sign\ in\b
              | \bdevice\ code\b | \bset\ an?\ auth | \binvalid\ auth | \bno\ longer\ maintained\b
              | \bhas\ been\ (?:deprecated|discontinued|sunset|retired)\b | \bunknown\ (?:option|argument)
              | \bunexpected\ argument\b | \bno\ such\ option\b | \bunrecognized\ argument",
        )
        .expect("the expression is fixed and valid")
    });
    let text = text.trim();
    if text.chars().count() > MAX_REFUSAL {
        return None;
    }
    text.lines().find(|line| REFUSAL.is_match(line)).map(|line| shortened(line.trim(), MAX_NOTE))
}

#[cfg(test)]
mod tests;
