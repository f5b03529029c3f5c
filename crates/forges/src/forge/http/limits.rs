//! Rate limits of a forge, read from its responses and checked before requests.

use std::hash::{BuildHasher, Hasher};

use ::http::{HeaderMap, Response};
use bytes::Bytes;

use crate::domain::model::ids::Timestamp;

/// Pause after a rate-limit response that contains no valid time, in milliseconds; doubles with each consecutive one.
const DEFAULT_PAUSE_MS: i64 = 60_000;
/// Maximum pause, in milliseconds.
const MAX_PAUSE_MS: i64 = 3_600_000;
/// Maximum random addition to a pause, in milliseconds, which spreads retries.
const MAX_SPREAD_MS: i64 = 5_000;

/// Rate-limit information of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitSignal {
    /// The response contains no limit.
    Plain,
    /// The forge asks for a pause of `after_ms` milliseconds.
    Limited { after_ms: i64 },
}

/// Request quota and pause of one credential.
#[derive(Debug, Default)]
pub(super) struct RateLimits {
    paused_until: Option<Timestamp>,
    remaining: Option<u32>,
    resets_at: Option<Timestamp>,
    /// Number of consecutive rate-limit responses without a time.
    untimed: u32,
}

impl RateLimits {
    /// Returns the number of remaining requests before the limit resets, as last reported by the forge.
    pub(super) fn remaining(&self) -> Option<u32> {
        self.remaining
    }

    /// Returns the wait before the next request, in milliseconds, and its reason; `None` if no wait is necessary.
    /// `reserve` is the part of the quota that must remain unused.
    pub(super) fn wait(&self, now: Timestamp, reserve: u32) -> Option<(i64, String)> {
        if let Some(until) = self.paused_at(now) {
            return Some((until.since(now), "the forge asked for a pause".to_owned()));
        }
        let remaining = self.remaining.filter(|remaining| *remaining < reserve)?;
        let resets_at = self.resets_at.filter(|at| *at > now)?;
        let why = format!("{remaining} requests are left until the limit resets; they are reserved for commands");
        Some((resets_at.since(now).min(MAX_PAUSE_MS), why))
    }

    /// Updates the limits from a response.
    pub(super) fn observe(&mut self, response: &Response<Bytes>, now: Timestamp) -> LimitSignal {
        let headers = response.headers();
        let status = response.status().as_u16();
        // Search and GraphQL have separate budgets.
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
            403 => retry_after.is_some() || exhausted || reports_rate_limit(response.body()),
            500..=599 => retry_after.is_some(),
            _ => false,
        };
        if !limited {
            if response.status().is_success() {
                self.untimed = 0;
            }
            if main_budget && let Some(pause) = until_reset {
                self.pause(now, pause);
            }
            return LimitSignal::Plain;
        }
        let stated = retry_after.flatten().or(until_reset);
        let after_ms = stated.unwrap_or_else(|| {
            let pause = DEFAULT_PAUSE_MS.saturating_mul(1 << self.untimed.min(6)).min(MAX_PAUSE_MS);
            self.untimed = self.untimed.saturating_add(1);
            pause
        });
        self.pause(now, after_ms);
        LimitSignal::Limited { after_ms }
    }

    /// Pauses requests for a time, in milliseconds.
    pub(super) fn pause(&mut self, now: Timestamp, ms: i64) {
        self.paused_until = self.paused_at(now).max(Some(now.plus_ms(ms.min(MAX_PAUSE_MS))));
    }

    /// Returns the end of the current pause; `None` without a pause. A pause longer than the maximum results from a
    /// clock that was set back and is ignored.
    fn paused_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.paused_until.filter(|until| *until > now && until.since(now) <= MAX_PAUSE_MS)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Parses a `Retry-After` value, seconds or an HTTP date, to milliseconds from now, at most [`MAX_PAUSE_MS`]; `None` for a
/// past or invalid value.
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

fn reports_rate_limit(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    text.contains("rate limit") || text.contains("abuse detection")
}

/// Adds up to 10 % to a pause, at random.
pub(super) fn spread(ms: i64) -> i64 {
    let most = (ms / 10).clamp(0, MAX_SPREAD_MS);
    ms.saturating_add(i64::try_from(jitter(most.unsigned_abs())).unwrap_or(0))
}

/// Returns a random number in 0..=`max`; good enough to spread load, not for secrets.
pub fn jitter(max: u64) -> u64 {
    let random = std::hash::RandomState::new().build_hasher().finish();
    random % max.saturating_add(1)
}
