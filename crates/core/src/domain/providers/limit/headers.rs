//! Limits in the HTTP headers of a response.
//!
//! Anthropic sends `anthropic-ratelimit-<what>-remaining` and `-reset`, and for plans `anthropic-ratelimit-unified-status` and
//! `-reset`. OpenAI and compatible servers send `x-ratelimit-remaining-<what>` and `x-ratelimit-reset-<what>`. Codex sends
//! `x-codex-<window>-used-percent`, `-reset-at` and `-reset-after-seconds`. All may send `Retry-After` or `retry-after-ms`.

use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LimitKind, duration, moment, plausible};

/// Limit found in headers.
#[derive(Debug, PartialEq)]
pub(super) struct HeaderLimit {
    /// `Quota` for limits of a plan, `Rate` for others; `None` if the headers state an end but no limit.
    pub(super) kind: Option<LimitKind>,
    /// End of the limit.
    pub(super) until: Option<Timestamp>,
    /// Header with its value.
    pub(super) evidence: String,
}

/// Reads the headers of a refused call. If several allowances are exhausted, returns the one with the latest reset.
pub(super) fn read(headers: &[(String, String)], now: Timestamp) -> Option<HeaderLimit> {
    let headers = Headers(headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.trim())).collect());
    let plan = headers.plan(now);
    let used_up = headers.used_up(now);
    let after = headers.retry_after(now);
    // A plan's end is exact, a delay at best to the second; an allowance may be renewed before a server accepts requests again.
    let until = [&plan, &after, &used_up].into_iter().flatten().find_map(|reading| reading.until);
    let until = until.or_else(|| headers.only_reset(now));
    let until = until.and_then(|until| plausible(until, now));
    let none = || until.map(|_| HeaderLimit { kind: None, until, evidence: String::new() });
    let first = plan.or(used_up).or(after).or_else(none)?;
    Some(HeaderLimit { until, ..first })
}

struct Headers<'a>(Vec<(String, &'a str)>);

impl Headers<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Returns the exhausted window of a plan; `None` if none is exhausted.
    fn plan(&self, now: Timestamp) -> Option<HeaderLimit> {
        if self.get("anthropic-ratelimit-unified-status") == Some("rejected") {
            let until = self.get("anthropic-ratelimit-unified-reset").and_then(|value| reset(value, now));
            return Some(quota(until, "anthropic-ratelimit-unified-status: rejected".to_owned()));
        }
        let windows = self.0.iter().filter_map(|(name, value)| {
            let window = name.strip_prefix("x-codex-")?.strip_suffix("-used-percent")?;
            let used: f64 = value.parse().ok()?;
            let until = self.get(&format!("x-codex-{window}-reset-at")).and_then(|value| reset(value, now));
            let after =
                || self.get(&format!("x-codex-{window}-reset-after-seconds")).and_then(|value| reset(value, now));
            (used >= 100.0).then(|| quota(until.or_else(after), format!("{name}: {value}")))
        });
        windows.max_by_key(|reading| reading.until)
    }

    /// Returns the exhausted allowance with the latest reset; `None` if none is exhausted.
    fn used_up(&self, now: Timestamp) -> Option<HeaderLimit> {
        let empty = self.0.iter().filter_map(|(name, value)| {
            let reset_name = reset_name(name)?;
            let remaining: f64 = value.parse().ok()?;
            let until = self.get(&reset_name).and_then(|value| reset(value, now)).and_then(|at| plausible(at, now));
            (remaining <= 0.0).then(|| HeaderLimit {
                kind: Some(LimitKind::Rate),
                until,
                evidence: format!("{name}: {value}"),
            })
        });
        empty.max_by_key(|reading| reading.until)
    }

    fn retry_after(&self, now: Timestamp) -> Option<HeaderLimit> {
        let in_ms = |value: &str| Some(now.plus_ms(duration::leading_or(value, 1.0)?));
        let found = ["retry-after-ms", "x-ms-retry-after-ms"].into_iter().find_map(|name| {
            let until = self.get(name).and_then(in_ms).and_then(|at| plausible(at, now))?;
            Some((name, until))
        });
        let named = found.or_else(|| {
            let value = self.get("retry-after")?;
            let delay = duration::leading_or(value, 1e3).map(|ms| now.plus_ms(ms));
            let until = moment::leading(value, now, None).or(delay)?;
            Some(("retry-after", plausible(until, now)?))
        });
        let (name, until) = named?;
        let evidence = format!("{name}: {}", self.get(name).unwrap_or_default());
        Some(HeaderLimit { kind: Some(LimitKind::Rate), until: Some(until), evidence })
    }

    /// Returns the next reset if no header states which allowance is exhausted.
    fn only_reset(&self, now: Timestamp) -> Option<Timestamp> {
        let resets = self.0.iter().filter(|(name, _)| {
            (name.starts_with("anthropic-ratelimit-") && name.ends_with("-reset"))
                || name.starts_with("x-ratelimit-reset")
                || name == "ratelimit-reset"
        });
        resets.filter_map(|(_, value)| plausible(reset(value, now)?, now)).min()
    }
}

fn quota(until: Option<Timestamp>, evidence: String) -> HeaderLimit {
    HeaderLimit { kind: Some(LimitKind::Quota), until, evidence }
}

/// Returns the name of the reset header for a header with a remaining amount.
fn reset_name(name: &str) -> Option<String> {
    if let Some(stem) = name.strip_prefix("anthropic-ratelimit-").and_then(|rest| rest.strip_suffix("-remaining")) {
        return Some(format!("anthropic-ratelimit-{stem}-reset"));
    }
    let what = name.strip_prefix("x-ratelimit-remaining").or_else(|| name.strip_prefix("ratelimit-remaining"))?;
    Some(format!("{}reset{what}", &name[..name.find("remaining")?]))
}

/// Parses the value of a reset header: an epoch in seconds or milliseconds, RFC 3339, a duration, or a number of seconds.
fn reset(value: &str, now: Timestamp) -> Option<Timestamp> {
    moment::leading(value, now, None).or_else(|| Some(now.plus_ms(duration::leading_or(value, 1e3)?)))
}
