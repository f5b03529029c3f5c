//! What a forge says about how much more it will take: read from answers, asked before sending.

use std::hash::{BuildHasher, Hasher};

use ::http::{HeaderMap, Response};
use bytes::Bytes;

use crate::domain::model::ids::Timestamp;

/// Pause when a limit is told without a usable time; doubles while it goes on.
const DEFAULT_PAUSE_MS: i64 = 60_000;
/// Longest pause obeyed before the forge is asked again.
const MAX_PAUSE_MS: i64 = 3_600_000;
/// Largest random addition to a pause, so that many waiters do not come back at once.
const MAX_SPREAD_MS: i64 = 5_000;

/// What an answer said about limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing.
    Plain,
    /// A pause is asked for.
    Limited { after_ms: i64 },
}

/// Budget and pause of one credential.
#[derive(Debug, Default)]
pub(super) struct Limits {
    paused_until: Option<Timestamp>,
    remaining: Option<u32>,
    resets_at: Option<Timestamp>,
    /// Refusals in a row that named no time.
    unexplained: u32,
}

impl Limits {
    /// How long to wait and why, with `reserve` requests kept for others.
    pub(super) fn wait(&self, now: Timestamp, reserve: u32) -> Option<(i64, String)> {
        if let Some(until) = self.paused_at(now) {
            return Some((until.since(now), "the forge asked for a pause".to_owned()));
        }
        let remaining = self.remaining.filter(|remaining| *remaining < reserve)?;
        let resets_at = self.resets_at.filter(|at| *at > now)?;
        let why = format!("{remaining} requests are left until the limit resets; they are kept for commands");
        Some((resets_at.since(now).min(MAX_PAUSE_MS), why))
    }

    /// Takes note of an answer.
    pub(super) fn observe(&mut self, response: &Response<Bytes>, now: Timestamp) -> Answer {
        let headers = response.headers();
        let status = response.status().as_u16();
        // Search and GraphQL have budgets of their own, which say nothing about the rest.
        let main_budget = text(headers, "x-ratelimit-resource").is_none_or(|resource| resource == "core");
        let remaining = text(headers, "x-ratelimit-remaining").and_then(|v| v.trim().parse::<u32>().ok());
        let resets_at = text(headers, "x-ratelimit-reset")
            .and_then(|v| v.trim().parse::<i64>().ok())
            .map(|seconds| Timestamp(seconds.saturating_mul(1_000)));
        if main_budget && remaining.is_some() {
            self.remaining = remaining;
            self.resets_at = resets_at;
        }
        let exhausted = remaining == Some(0);
        let until_reset = resets_at.filter(|at| exhausted && *at > now).map(|at| at.since(now).min(MAX_PAUSE_MS));
        let retry_after = text(headers, "retry-after").map(|value| retry_after_ms(value, now));
        let limited = match status {
            429 => true,
            403 => retry_after.is_some() || exhausted || says_limited(response.body()),
            500..=599 => retry_after.is_some(),
            _ => false,
        };
        if !limited {
            if response.status().is_success() {
                self.unexplained = 0;
            }
            if main_budget && let Some(pause) = until_reset {
                self.pause(now, pause);
            }
            return Answer::Plain;
        }
        let told = retry_after.flatten().or(until_reset);
        let after_ms = told.unwrap_or_else(|| {
            let pause = DEFAULT_PAUSE_MS.saturating_mul(1 << self.unexplained.min(6)).min(MAX_PAUSE_MS);
            self.unexplained = self.unexplained.saturating_add(1);
            pause
        });
        self.pause(now, after_ms);
        Answer::Limited { after_ms }
    }

    fn pause(&mut self, now: Timestamp, ms: i64) {
        self.paused_until = self.paused_at(now).max(Some(now.plus_ms(ms)));
    }

    /// The end of the pause that holds now. One that would be longer than any was noted by a clock that has been set back
    /// since.
    fn paused_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.paused_until.filter(|until| *until > now && until.since(now) <= MAX_PAUSE_MS)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Seconds or an HTTP date, as milliseconds from now, capped; `None` for what is neither or lies in the past.
fn retry_after_ms(value: &str, now: Timestamp) -> Option<i64> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<i64>() {
        return (seconds >= 0).then(|| seconds.saturating_mul(1_000).min(MAX_PAUSE_MS));
    }
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        return Some(MAX_PAUSE_MS);
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp().as_millisecond();
    (at > now.0).then(|| (at - now.0).min(MAX_PAUSE_MS))
}

fn says_limited(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    text.contains("rate limit") || text.contains("abuse detection")
}

/// A pause with a random tenth added.
pub(super) fn spread(ms: i64) -> i64 {
    let most = (ms / 10).clamp(0, MAX_SPREAD_MS);
    ms.saturating_add(i64::try_from(jitter(most.unsigned_abs())).unwrap_or(0))
}

/// A random number, 0..=`most`; good enough to spread load, no more.
pub fn jitter(most: u64) -> u64 {
    let random = std::hash::RandomState::new().build_hasher().finish();
    random % most.saturating_add(1)
}
