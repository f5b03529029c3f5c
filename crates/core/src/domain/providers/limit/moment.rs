//! Times in the formats of providers: `3pm (Europe/Rome)`, `Oct 9, 3am`, RFC 3339 and 1123, epochs.
//!
//! A time without a zone is in the zone given by the caller. A clock time without a date is the next one after now. A local time
//! that is skipped when clocks are set forward is read as one hour later. If a local time occurs twice, the first one that is in
//! the future counts.

use std::sync::LazyLock;

use jiff::Span;
use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use regex::{Captures, Regex};

use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::wording::ascii;
use crate::domain::providers::limit::zone;

const MONTHS: &str = "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?";
const CLOCK: &str =
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.\d{1,9})?)?)?\s?(?P<half>[ap]\.?m\b\.?)?";

static ISO: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&ascii(&format!(
        r"(?i)^(?P<year>\d{{4}})-(?P<month>\d{{2}})-(?P<day>\d{{2}})(?:(?:[T ]|,? at ){CLOCK})?"
    )))
    .expect("constant pattern")
});
static RFC1123: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^(?:mon|tue|wed|thu|fri|sat|sun), \d{1,2} [a-z]{3} \d{4} \d{2}:\d{2}:\d{2} (?:[A-Z]{1,4}\b|[+-]\d{4})",
    )
    .expect("constant pattern")
});
static EPOCH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(\d{10}|\d{13})(?:\.\d+)?(?:\D|$)").expect("constant pattern"));
/// `Oct 9, 3am`, `July 3, 2026 at 2:45 PM`, `Nov 8th, 2025 9:15 PM`, `Oct 9`.
static MONTH_DAY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&ascii(&format!(
        r"(?ix)^(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,?\ )?
        (?P<name>{MONTHS})\.?\ (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b
        (?:,?\ (?P<year>20\d\d)\b)?(?:,?\ (?:at\ )?{CLOCK})?"
    )))
    .expect("constant pattern")
});
/// `03:13 on 26 Feb`, `9 Oct 2026 at 3am`.
static DAY_MONTH: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&ascii(&format!(
        r"(?ix)^(?:{CLOCK}\ on\ )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\ (?P<name>{MONTHS})\b\.?(?:,?\ (?P<year>20\d\d)\b)?"
    )))
    .expect("constant pattern")
});
/// `3pm`, `15:04`, `tomorrow at 9 AM`, `Monday, 9:30 am`.
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&ascii(&format!(
        r"(?ix)^(?:(?P<weekday>(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?|today|tomorrow),?\ (?:at\ )?)?{CLOCK}"
    )))
    .expect("constant pattern")
});

/// Parses the time at the beginning of `text`. `default_zone` applies to times without a zone; UTC if it is `None`.
pub(super) fn leading(text: &str, now: Timestamp, default_zone: Option<&TimeZone>) -> Option<Timestamp> {
    let text = text.trim_start();
    if let Some(found) = EPOCH.captures(text) {
        return epoch(&found[1]);
    }
    if let Some(found) = RFC1123.find(text) {
        let moment = jiff::fmt::rfc2822::parse(found.as_str()).ok()?;
        return Some(Timestamp(moment.timestamp().as_millisecond()));
    }
    if let Some(found) = ISO.captures(text) {
        let zone = zone_after(text, &found, default_zone)?;
        return day(&found, number(&found, "year")?, number(&found, "month")?)
            .and_then(|date| at(date, clock(&found)?, &zone, now));
    }
    if let Some(found) = MONTH_DAY.captures(text).or_else(|| day_month(text)) {
        let zone = zone_after(text, &found, default_zone)?;
        return dated(&found, &zone, now);
    }
    let found = TIME.captures(text)?;
    if found.name("minute").is_none() && found.name("half").is_none() {
        return None;
    }
    let zone = zone_after(text, &found, default_zone)?;
    next(&found, &zone, now)
}

/// Parses an epoch of 10 digits in seconds, or of 13 in milliseconds.
pub(super) fn epoch(digits: &str) -> Option<Timestamp> {
    let number: i64 = digits.parse().ok()?;
    Some(Timestamp(if digits.len() > 11 { number } else { number.checked_mul(1_000)? }))
}

/// Matches a day that precedes its month. A year or a clock time is required, so that `3 may fail` does not match.
fn day_month(text: &str) -> Option<Captures<'_>> {
    DAY_MONTH.captures(text).filter(|found| found.name("year").is_some() || found.name("minute").is_some())
}

/// Returns the zone that follows the time, else the default zone; `None` if the zone is unknown.
fn zone_after(text: &str, found: &Captures<'_>, default_zone: Option<&TimeZone>) -> Option<TimeZone> {
    let rest = &text[found.get(0).map_or(0, |whole| whole.end())..];
    match zone::leading(rest) {
        zone::Named::Known(zone) => Some(zone),
        zone::Named::Unknown => None,
        zone::Named::None => Some(default_zone.cloned().unwrap_or(TimeZone::UTC)),
    }
}

fn number(found: &Captures<'_>, name: &str) -> Option<i16> {
    found.name(name)?.as_str().parse().ok()
}

/// Returns the clock time; midnight if there is none. `None` for an invalid time such as 25:00 or 13pm.
fn clock(found: &Captures<'_>) -> Option<Time> {
    let Some(hour) = number(found, "hour") else {
        return Some(Time::midnight());
    };
    let hour = match found.name("half").map(|half| half.as_str().as_bytes()[0].to_ascii_lowercase()) {
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some(b'p') => hour % 12 + 12,
        Some(_) => hour % 12,
        None => hour,
    };
    let small = |name| number(found, name).map_or(Some(0), |value| i8::try_from(value).ok());
    Time::new(i8::try_from(hour).ok()?, small("minute")?, small("second")?, 0).ok()
}

fn day(found: &Captures<'_>, year: i16, month: i16) -> Option<Date> {
    Date::new(year, i8::try_from(month).ok()?, i8::try_from(number(found, "day")?).ok()?).ok()
}

fn month(name: &str) -> Option<i16> {
    const STARTS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let start = name.get(..3)?.to_ascii_lowercase();
    STARTS.iter().position(|known| *known == start).and_then(|index| i16::try_from(index + 1).ok())
}

/// Returns the time of a match with month and day. Without a year, this is the next such date after now.
fn dated(found: &Captures<'_>, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    let (month, time) = (month(found.name("name")?.as_str())?, clock(found)?);
    if let Some(year) = number(found, "year") {
        return at(day(found, year, month)?, time, zone, now);
    }
    let this_year = today(zone, now)?.year();
    (this_year - 1..=this_year + 1)
        .filter_map(|year| at(day(found, year, month)?, time, zone, now))
        .find(|moment| *moment > now)
}

/// Returns the time of a match with a clock time and possibly a weekday: the next one after now.
fn next(found: &Captures<'_>, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    let (time, today) = (clock(found)?, today(zone, now)?);
    let named = found.name("weekday").and_then(|word| word.as_str().get(..3)).map(str::to_ascii_lowercase);
    let wanted = named.as_deref().and_then(weekday);
    let first = if named.as_deref() == Some("tom") { 1 } else { 0 };
    (first..=8)
        .filter_map(|days: i32| today.checked_add(Span::new().try_days(days).ok()?).ok())
        .filter(|date| wanted.is_none_or(|wanted| date.weekday() == wanted))
        .filter_map(|date| at(date, time, zone, now))
        .find(|moment| *moment > now)
}

fn weekday(start: &str) -> Option<Weekday> {
    Some(match start {
        "mon" => Weekday::Monday,
        "tue" => Weekday::Tuesday,
        "wed" => Weekday::Wednesday,
        "thu" => Weekday::Thursday,
        "fri" => Weekday::Friday,
        "sat" => Weekday::Saturday,
        "sun" => Weekday::Sunday,
        _ => return None,
    })
}

/// Returns the current date in `zone`; `None` if the clock is beyond the year 9999.
fn today(zone: &TimeZone, now: Timestamp) -> Option<Date> {
    let now = jiff::Timestamp::from_millisecond(now.0).ok()?;
    Some(zone.to_datetime(now).date())
}

/// Returns the instant at which clocks in `zone` show this date and time.
fn at(date: Date, time: Time, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    let shown = DateTime::from_parts(date, time);
    let ambiguous = zone.to_ambiguous_timestamp(shown);
    let earlier = Timestamp(ambiguous.compatible().ok()?.as_millisecond());
    if ambiguous.is_ambiguous() && earlier <= now {
        let later = ambiguous.later().ok()?.as_millisecond();
        return Some(Timestamp(later));
    }
    Some(earlier)
}
