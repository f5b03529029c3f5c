//! Time zones in the formats of providers: `(Europe/Rome)`, `UTC`, `PST`, `+02:00`.
//!
//! The zone data is compiled in instead of read from the machine, so that a message gives the same time everywhere.

use std::sync::LazyLock;

use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use regex::Regex;

static OFFSET: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s?\(?(?:UTC|GMT)?\s?([+-])(\d{1,2})(?::?(\d{2}))?\b").expect("constant pattern"));
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"^\s?(\(?)([A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2})((?i: standard| daylight)?(?i: time)\b)?(\)?)",
    )
    .expect("constant pattern")
});

/// Abbreviations with their offsets from UTC in minutes. An ambiguous abbreviation means the country where these programs
/// are used most: IST is India's, CST is North America's, and BST is Britain's.
const ABBREVIATIONS: [(&str, i32); 37] = [
    ("Z", 0),
    ("WET", 0),
    ("WEST", 60),
    ("BST", 60),
    ("CET", 60),
    ("CEST", 120),
    ("EET", 120),
    ("EEST", 180),
    ("MSK", 180),
    ("TRT", 180),
    ("GST", 240),
    ("PKT", 300),
    ("IST", 330),
    ("NPT", 345),
    ("WIB", 420),
    ("ICT", 420),
    ("SGT", 480),
    ("HKT", 480),
    ("AWST", 480),
    ("PHT", 480),
    ("JST", 540),
    ("KST", 540),
    ("ACST", 570),
    ("AEST", 600),
    ("ACDT", 630),
    ("AEDT", 660),
    ("NZST", 720),
    ("NZDT", 780),
    ("BRT", -180),
    ("ART", -180),
    ("EDT", -240),
    ("EST", -300),
    ("CDT", -300),
    ("CST", -360),
    ("MDT", -360),
    ("MST", -420),
    ("PDT", -420),
];

/// Abbreviations whose offset depends on the date, or that are missing in `ABBREVIATIONS`, with the zone that they mean.
const ZONES: [(&str, &str); 6] = [
    ("PST", "Etc/GMT+8"),
    ("PT", "America/Los_Angeles"),
    ("MT", "America/Denver"),
    ("CT", "America/Chicago"),
    ("ET", "America/New_York"),
    ("AKST", "Etc/GMT+9"),
];

/// Zones whose names count only before the word `time`, as in `Pacific Time`.
const REGIONS: [(&str, &str); 6] = [
    ("Pacific", "America/Los_Angeles"),
    ("Mountain", "America/Denver"),
    ("Central", "America/Chicago"),
    ("Eastern", "America/New_York"),
    ("Beijing", "Asia/Shanghai"),
    ("China", "Asia/Shanghai"),
];

/// Time zone at the start of a text.
pub(super) enum Named {
    /// The text starts with no zone.
    None,
    /// The text starts with an unknown zone, or with an unknown name in brackets.
    Unknown,
    /// The text starts with a known zone.
    Known(TimeZone),
}

/// Returns the zone at the start of `text`, with or without brackets, and its length in bytes.
pub(super) fn leading(text: &str) -> (Named, usize) {
    if let Some(found) = OFFSET.captures(text) {
        let digits = |group| found.get(group).map_or(Some(0), |part| part.as_str().parse::<i32>().ok());
        let minutes = digits(2).zip(digits(3)).map(|(hours, minutes)| hours * 60 + minutes);
        let sign = if &found[1] == "-" { -1 } else { 1 };
        let zone = minutes.and_then(|minutes| fixed(sign * minutes)).map_or(Named::Unknown, Named::Known);
        return (zone, found[0].len());
    }
    let Some(found) = NAME.captures(text) else {
        return (Named::None, 0);
    };
    let name = found[2].trim_end_matches(['-', '+']);
    let region = || REGIONS.iter().find(|(known, _)| *known == name && found.get(3).is_some());
    let in_brackets = !found[1].is_empty() && !found[4].is_empty();
    match by_name(name).or_else(|| by_name(region()?.1)) {
        Some(zone) => (Named::Known(zone), found[0].len()),
        None if in_brackets || name.contains('/') => (Named::Unknown, 0),
        None => (Named::None, 0),
    }
}

/// Returns the zone with this name: an abbreviation in capitals (`utc` and `gmt` in any case), or an IANA name.
pub(super) fn by_name(name: &str) -> Option<TimeZone> {
    if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("gmt") {
        return Some(TimeZone::UTC);
    }
    if let Some((_, minutes)) = ABBREVIATIONS.iter().find(|(known, _)| *known == name) {
        return fixed(*minutes);
    }
    let name = ZONES.iter().find(|(known, _)| *known == name).map_or(name, |(_, zone)| zone);
    // Single words of the database (`Cuba`, `Navajo`) are words of prose too.
    let full_name = name.contains('/').then_some(name)?;
    TimeZoneDatabase::bundled().get(full_name).ok()
}

fn fixed(minutes: i32) -> Option<TimeZone> {
    Offset::from_seconds(minutes * 60).ok().map(TimeZone::fixed)
}
