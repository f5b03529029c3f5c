//! Parses the end of a limit from the text of an error.

use std::sync::LazyLock;

use jiff::tz::TimeZone;
use regex::Regex;

use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::wording::ascii;
use crate::domain::providers::limit::{duration, moment, plausible};

/// Words before a time or a duration, most certain first. The group `after` precedes a time or a duration.
static FIELD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&ascii(
        r#"(?ix)
        limit\ reached\|(?P<epoch>)
        |["']?(?:resets?_?at|quotaResetTimeStamp|x-ratelimit-reset)["']?\s?[:=]\s?["']?(?P<moment>)
        |["']?(?:retry-?_?after_?-?ms|x-ms-retry-after-ms|retryAfterMs)["']?\s?[:=]\s?["']?(?P<ms>)
        |["']?(?:quotaResetDelay|retryDelay|resets?_in_seconds|retry_after_seconds|retry[-_]?after)["']?\s?[:=]\s?["']?(?P<seconds>)
        |\[retrying\ in\ (?P<promise>)
        |retry_delay\s?\{\s?seconds:\s?(?P<delay>)"#))
    .expect("constant pattern")
});
static PHRASE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&ascii(
        r"(?ix)
        \b(?:
            (?:re-?)?try(?:ing)?(?:\ again)?
            |(?:reset|renew|refresh|replenish|restore|resume|return|reopen|unlock|expire|end|come|be)(?:s|d|ed|es|ing|ting)?(?:\ (?:again|back))?
            |regain\ access|available(?:\ again)?
            |wait(?:\ for|\ until|\ another)?
            |until
        )(?:\ (?:in|after|at|on|by|from))?(?:\ (?:approximately|about|around|less\ than|time))*[:\ ]\s?(?:~\s?)?
        |将[在于]\s?",
    ))
    .expect("constant pattern")
});
/// Announcement of a program's own retry, whose time is not the provider's. OpenCode's `[retrying in 32m 50s]` is an exception:
/// that time is the provider's.
static OWN_RETRY: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?i)^retrying").expect("constant pattern"));

/// Returns the end of the limit that `text` states; `text` is one line with white space collapsed. Fields take precedence over
/// phrases, and the first valid time counts.
pub(super) fn find(text: &str, now: Timestamp, zone: Option<&TimeZone>) -> Option<Timestamp> {
    let mut best: Option<(usize, Timestamp)> = None;
    for found in FIELD.captures_iter(text) {
        let Some(end) = found.get(0).map(|whole| whole.end()) else { continue };
        let rest = &text[end..];
        let after = |ms: Option<i64>| ms.map(|ms| now.plus_ms(ms));
        let (rank, until) = if found.name("epoch").is_some() || found.name("moment").is_some() {
            (0, moment::leading(rest, now, zone).or_else(|| after(duration::leading(rest))))
        } else if found.name("ms").is_some() {
            (1, after(duration::leading_or(rest, 1.0)))
        } else {
            (2, moment::leading(rest, now, zone).or_else(|| after(duration::leading_or(rest, 1e3))))
        };
        if let Some(until) = until.and_then(|until| plausible(until, now))
            && best.is_none_or(|(known, _)| rank < known)
        {
            best = Some((rank, until));
        }
    }
    best.map(|(_, until)| until).or_else(|| phrase(text, now, zone))
}

fn phrase(text: &str, now: Timestamp, zone: Option<&TimeZone>) -> Option<Timestamp> {
    PHRASE.find_iter(text).filter(|found| !OWN_RETRY.is_match(found.as_str())).find_map(|found| {
        let rest = &text[found.end()..];
        let delay = duration::leading(rest).map(|ms| now.plus_ms(ms));
        plausible(delay.or_else(|| moment::leading(rest, now, zone))?, now)
    })
}
