//! Cron patterns: determines whether a pattern matches within a period. Always in UTC, in which no hour is repeated or skipped.

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ralph_types::failure::Failure;

use crate::domain::model::ids::Timestamp;
use crate::domain::model::settings::shortened;

/// Maximum length of a pattern, in characters.
const PATTERN_MAX: usize = 100;

/// Cron pattern with five fields.
#[derive(Debug, Clone)]
pub(super) struct Cron {
    text: String,
    cron: croner::Cron,
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Cron {
    /// Parses a pattern. The error states why the pattern is invalid, or that it never matches.
    pub(super) fn compile(text: &str) -> Result<Self, Failure> {
        if text.chars().count() > PATTERN_MAX {
            return Err(Failure::new(format!("is longer than {PATTERN_MAX} characters")));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser
            .parse(text)
            .map_err(|error| format!("is not a cron pattern of five fields: {}", shortened(&error.to_string())))?;
        // Eight years hold every leap day, also around a century.
        let comes = cron.find_next_occurrence(&DateTime::constant(2024, 1, 1, 0, 0, 0, 0), true);
        match comes {
            Ok(next) if next.year() <= 2032 => Ok(Self { text: text.trim().to_owned(), cron }),
            _ => Err(Failure::new("matches no time")),
        }
    }

    /// Returns the pattern as written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches a time after `since` and not after `now`.
    pub(super) fn came(&self, since: Timestamp, now: Timestamp) -> bool {
        self.next_after(since).is_some_and(|next| next <= now)
    }

    /// Returns the first time after `since` that the pattern matches; `None` if it is beyond the calendar.
    pub(super) fn next_after(&self, since: Timestamp) -> Option<Timestamp> {
        let next = self.cron.find_next_occurrence(&civil(since)?, false).ok()?;
        Some(Timestamp(TimeZone::UTC.to_timestamp(next).ok()?.as_millisecond()))
    }
}

/// Converts a time to UTC; `None` before the year -9999 and after 9999.
fn civil(moment: Timestamp) -> Option<DateTime> {
    Some(TimeZone::UTC.to_datetime(jiff::Timestamp::from_millisecond(moment.0).ok()?))
}
