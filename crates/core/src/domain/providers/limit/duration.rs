//! Durations as providers write them: `250ms`, `1m12.5s`, `2 days 3 hours`, `an hour`, `34`.

use std::sync::LazyLock;

use regex::Regex;

/// One number with its unit, and the separator before the next.
static PART: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^(\d{1,12}(?:\.\d{1,12})?|an?\b)\s{0,2}
        (milliseconds?|millis|msecs?|ms|seconds?|secs?|s|months?|minutes?|mins?|m|hours?|hrs?|hr|h|days?|d|weeks?|w)",
    )
    .expect("constant pattern")
});

static JOINT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^(?:\s*,?\s*(?:and\s+)?)").expect("constant pattern"));

static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\d{1,12}(?:\.\d{1,12})?").expect("constant pattern"));

/// Parses the duration at the start of `text`; returns milliseconds. `None` unless there is a number with a unit.
pub(super) fn leading(text: &str) -> Option<i64> {
    let mut rest = text.trim_start();
    let mut sum = None;
    while let Some((amount, unit, length)) = part(rest) {
        sum = Some(sum.unwrap_or(0.0) + amount * unit);
        rest = &rest[length..];
        rest = &rest[JOINT.find(rest).map_or(0, |joint| joint.end())..];
    }
    sum.and_then(whole)
}

/// Parses a duration like [`leading`]. A number without a unit is multiplied by `unit_ms` milliseconds.
pub(super) fn leading_or(text: &str, unit_ms: f64) -> Option<i64> {
    leading(text).or_else(|| {
        let number: f64 = NUMBER.find(text.trim_start())?.as_str().parse().ok()?;
        whole(number * unit_ms)
    })
}

/// Parses a number with its unit. Returns the number, its unit in milliseconds, and the length of both in bytes.
fn part(text: &str) -> Option<(f64, f64, usize)> {
    let found = PART.captures(text)?;
    let unit = found.get(2)?;
    if text[unit.end()..].starts_with(|next: char| next.is_alphabetic()) {
        return None;
    }
    let amount = if found[1].starts_with(['a', 'A']) { 1.0 } else { found[1].parse().ok()? };
    Some((amount, unit_ms(unit.as_str()), unit.end()))
}

fn unit_ms(unit: &str) -> f64 {
    let unit = unit.to_ascii_lowercase();
    match unit.as_str() {
        "ms" => 1.0,
        _ if unit.starts_with("milli") || unit.starts_with("msec") => 1.0,
        _ if unit.starts_with("month") => 30.0 * 86_400e3,
        _ => match unit.as_bytes().first() {
            Some(b's') => 1e3,
            Some(b'm') => 60e3,
            Some(b'h') => 3_600e3,
            Some(b'd') => 86_400e3,
            _ => 604_800e3,
        },
    }
}

/// Rounds to whole milliseconds; `None` above a hundred years.
fn whole(ms: f64) -> Option<i64> {
    const CENTURY_MS: f64 = 100.0 * 365.25 * 86_400e3;
    (ms.is_finite() && ms.abs() <= CENTURY_MS).then(|| ms.round() as i64)
}
