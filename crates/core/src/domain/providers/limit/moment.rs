//! Times in the formats of providers: `3pm (Europe/Rome)`, `Oct 9, 3am`, `4/20/2026 at 2:00 AM`, `02:00 UTC on Monday`, RFC 3339
//! and 1123, epochs.
//!
//! One reader takes dates, clock times, weekdays and zones in any order. A time without a zone is in the zone given by the caller.
//! A clock time without a date is the next one after now. A time without seconds means the end of its minute. A time that passed
//! at most [`JUST_PASSED_MS`] ago means a minute from now, because clocks differ. A local time that is skipped when clocks are set
//! forward is read as one hour later. If a local time occurs twice, the first one that is in the future counts.

use std::sync::LazyLock;

use jiff::Span;
use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use regex::{Captures, Regex};

use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::wording::ascii;
use crate::domain::providers::limit::zone::{self, Named};

/// Maximum age of a time that still counts as the end of a limit, in milliseconds.
const JUST_PASSED_MS: i64 = 10 * 60_000;
const MINUTE_MS: i64 = 60_000;
/// Maximum number of parts of a time.
const PARTS: usize = 12;

const MONTHS: &str = "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?";

static EPOCH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(\d{10}|\d{13})(?:\.\d+)?(?:\D|$)").expect("constant pattern"));
/// One part of a time.
static PART: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&ascii(&format!(
        r"(?ix)^(?:
        (?P<iso_year>20\d\d)[-/](?P<iso_month>\d{{1,2}})[-/](?P<iso_day>\d{{1,2}})(?:t|\b)
        |(?P<us_month>\d{{1,2}})/(?P<us_day>\d{{1,2}})(?:/(?P<us_year>\d{{4}}|\d{{2}}))?\b
        |(?P<hour>\d{{1,2}}):(?P<minute>\d{{2}})(?::(?P<second>\d{{2}})(?:\.\d{{1,9}})?)?(?:\s?(?P<half>[ap])\.?m\b\.?)?
        |(?P<full_hour>\d{{1,2}})\s?(?P<full_half>[ap])\.?m\b\.?
        |(?P<word>midnight|noon|today|tomorrow)\b
        |(?P<weekday>(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?)\b\.?
        |(?P<name>{MONTHS})\.?\ (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b
        |(?P<day_before>\d{{1,2}})(?:st|nd|rd|th)?\ (?:of\ )?(?P<name_after>{MONTHS})\b\.?
        |(?P<year>20\d\d)\b
        |(?:at|on|the|of|this|next)\b
        )"
    )))
    .expect("constant pattern")
});

/// Parses the time at the start of `text`. `default_zone` applies to times without a zone; UTC if it is `None`. Returns
/// `None` for a time that passed.
pub(super) fn leading(text: &str, now: Timestamp, default_zone: Option<&TimeZone>) -> Option<Timestamp> {
    let text = text.trim_start();
    if let Some(found) = EPOCH.captures(text) {
        return settled(epoch(&found[1])?, now);
    }
    let parts = Parts::read(text)?;
    let zone = parts.zone.as_ref().or(default_zone).cloned().unwrap_or(TimeZone::UTC);
    parts.moment(&zone, now)
}

/// Parses an epoch of 10 digits in seconds, or of 13 in milliseconds.
fn epoch(digits: &str) -> Option<Timestamp> {
    let number: i64 = digits.parse().ok()?;
    Some(Timestamp(if digits.len() > 11 { number } else { number.checked_mul(1_000)? }))
}

/// Returns a time that has not passed; a minute from now for a time that has just passed.
fn settled(at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    if at > now {
        return Some(at);
    }
    (now.since(at) <= JUST_PASSED_MS).then(|| now.plus_ms(MINUTE_MS))
}

/// Parts of a time, as they were read.
#[derive(Default)]
struct Parts {
    /// Year; `None` for the next such date.
    year: Option<i16>,
    /// Month and day.
    date: Option<(i8, i8)>,
    /// Clock time; `None` for the start of the day.
    clock: Option<Time>,
    /// Whether the clock time has seconds.
    exact: bool,
    weekday: Option<Weekday>,
    /// Days after today: 0 for today, 1 for tomorrow.
    days_ahead: Option<i32>,
    zone: Option<TimeZone>,
    /// Whether the day is before the name of its month, which can be prose (`3 may fail`) without a year or a clock time.
    day_first: bool,
}

impl Parts {
    /// Reads all parts at the start of `text`; `None` if they are not a time, or if one of them is invalid.
    fn read(text: &str) -> Option<Self> {
        let (mut parts, mut rest) = (Self::default(), text);
        for _ in 0..PARTS {
            rest = rest.trim_start_matches([' ', ',', ')']);
            if let Some(found) = PART.captures(rest) {
                if !parts.take(&found)? {
                    break;
                }
                rest = &rest[found[0].len()..];
            } else if parts.zone.is_none() && (parts.clock.is_some() || parts.date.is_some()) {
                match zone::leading(rest) {
                    (Named::Known(zone), length) => {
                        parts.zone = Some(zone);
                        rest = &rest[length..];
                    }
                    (Named::Unknown, _) => return None,
                    (Named::None, _) => break,
                }
            } else {
                break;
            }
        }
        let names_day = parts.weekday.is_some() || parts.days_ahead.is_some_and(|days| days > 0);
        let has_date = parts.date.is_some() && (!parts.day_first || parts.year.is_some());
        (parts.clock.is_some() || has_date || names_day).then_some(parts)
    }

    /// Adds a part; returns `false` if the part belongs to the text after the time, and `None` if it is invalid.
    fn take(&mut self, found: &Captures<'_>) -> Option<bool> {
        let number = |name: &str| found.name(name).and_then(|part| part.as_str().parse::<i16>().ok());
        let small = |name: &str| number(name).and_then(|number| i8::try_from(number).ok());
        let text = |name: &str| found.name(name).map(|part| part.as_str());
        let date = |month, day| Some((month?, day?));
        if let Some(year) = number("iso_year") {
            self.year = Some(year);
            self.date = Some(date(small("iso_month"), small("iso_day"))?);
        } else if let Some((month, day)) = date(small("us_month"), small("us_day")) {
            // The day is first where it cannot be a month.
            self.date = Some(if month > 12 { (day, month) } else { (month, day) });
            self.year = number("us_year").map(|year| if year < 100 { year + 2_000 } else { year });
        } else if let Some(hour) = small("hour").or_else(|| small("full_hour")) {
            if self.clock.is_some() {
                return Some(false);
            }
            let half = text("half").or_else(|| text("full_half"));
            self.exact = found.name("second").is_some();
            self.clock = Some(clock(hour, half, (small("minute"), small("second")))?);
        } else if let Some(word) = text("word") {
            match word.to_ascii_lowercase().as_str() {
                "today" => self.days_ahead = Some(0),
                "tomorrow" => self.days_ahead = Some(1),
                word => self.clock = Some(Time::constant(if word == "noon" { 12 } else { 0 }, 0, 0, 0)),
            }
        } else if let Some(name) = text("weekday") {
            self.weekday = weekday(name);
        } else if let Some(name) = text("name").or_else(|| text("name_after")) {
            self.date = Some((month(name)?, small("day").or_else(|| small("day_before"))?));
            self.day_first = found.name("day_before").is_some();
        } else if let Some(year) = number("year") {
            if self.date.is_none() || self.year.is_some() {
                return Some(false);
            }
            self.year = Some(year);
        }
        Some(true)
    }

    /// Returns the first such moment in `zone` that has not passed.
    fn moment(&self, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
        let time = self.clock.unwrap_or_else(Time::midnight);
        let ends_after = if self.clock.is_some() && !self.exact { MINUTE_MS } else { 0 };
        let on = |date: Date| settled(at(date, time, zone, now)?.plus_ms(ends_after), now);
        let today = today(zone, now)?;
        if let Some((month, day)) = self.date {
            let mut years = self.year.map_or(today.year() - 1..=today.year() + 1, |year| year..=year);
            return years.find_map(|year| on(Date::new(year, month, day).ok()?));
        }
        let days = self.days_ahead.map_or(-1..=8, |days| days..=days);
        let days = days.filter_map(|days| today.checked_add(Span::new().try_days(days).ok()?).ok());
        let mut wanted = days.filter(|date| self.weekday.is_none_or(|wanted| date.weekday() == wanted));
        wanted.find_map(on)
    }
}

/// Returns a clock time; `None` for an invalid time such as 25:00 or 13pm.
fn clock(hour: i8, half: Option<&str>, (minute, second): (Option<i8>, Option<i8>)) -> Option<Time> {
    let hour = match half.map(|half| half.eq_ignore_ascii_case("p")) {
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some(afternoon) => hour % 12 + if afternoon { 12 } else { 0 },
        None => hour,
    };
    Time::new(hour, minute.unwrap_or_default(), second.unwrap_or_default(), 0).ok()
}

/// Returns the number of a month by the first three letters of its name.
fn month(name: &str) -> Option<i8> {
    const STARTS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let start = name.get(..3)?.to_ascii_lowercase();
    STARTS.iter().position(|known| *known == start).and_then(|at| i8::try_from(at + 1).ok())
}

/// Returns a weekday by the first three letters of its name.
fn weekday(name: &str) -> Option<Weekday> {
    const STARTS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let start = name.get(..3)?.to_ascii_lowercase();
    let at = STARTS.iter().position(|known| *known == start)?;
    Weekday::from_monday_zero_offset(i8::try_from(at).ok()?).ok()
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
