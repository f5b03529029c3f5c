//! Durations, amounts of money and limits of iterations in the format of configuration files.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::domain::model::ids::Money;

/// Units of durations with their lengths in seconds, longest first.
const UNITS: [(char, u64); 4] = [('d', 24 * 3600), ('h', 3600), ('m', 60), ('s', 1)];

/// Maximum duration in a configuration, in seconds (366 days).
const DURATION_MAX_S: u64 = 366 * 24 * 3600;

/// Maximum amount of money in a configuration, in dollars.
const MONEY_MAX_USD: f64 = 1e6;

/// A duration in whole seconds, written `90s`, `30m`, `2h`, `1h30m` or as a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(u64);

impl Duration {
    /// Creates a duration of `seconds` seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// Creates a duration of `minutes` minutes.
    pub const fn minutes(minutes: u64) -> Self {
        Self(minutes * 60)
    }

    /// Creates a duration of `hours` hours.
    pub const fn hours(hours: u64) -> Self {
        Self(hours * 3600)
    }

    /// Creates a duration of `days` days.
    pub const fn days(days: u64) -> Self {
        Self(days * 24 * 3600)
    }

    /// Returns the duration in milliseconds, saturating.
    pub fn as_millis(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX).saturating_mul(1_000)
    }

    /// Returns the duration in seconds.
    pub const fn as_seconds(self) -> u64 {
        self.0
    }

    /// Parses a duration such as `1h30m`, `90s` or `2d`; `None` for any other text, and for more than a year.
    pub fn parse(text: &str) -> Option<Self> {
        let mut total: u64 = 0;
        let mut rest = text.trim();
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let amount: u64 = rest.get(..digits)?.parse().ok()?;
            let unit = rest.get(digits..)?.chars().next()?;
            let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
            total = total.checked_add(amount.checked_mul(*seconds)?)?;
            rest = rest.get(digits + 1..)?.trim_start();
        }
        (total <= DURATION_MAX_S).then_some(Self(total))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for (unit, length) in UNITS {
            if rest >= length {
                write!(f, "{}{unit}", rest / length)?;
                rest %= length;
            }
        }
        if self.0 == 0 { f.write_str("0s") } else { Ok(()) }
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        duration_of(&value).ok_or_else(|| serde::de::Error::custom(DURATION_EXPECTED))
    }
}

/// Description of a valid duration, for error messages.
pub const DURATION_EXPECTED: &str = "a duration such as 90s, 30m, 2h or 1h30m, at most a year";

/// Description of a valid amount of money, for error messages.
pub const MONEY_EXPECTED: &str = "an amount in US dollars such as 10 or 2.50, from 0 to 1000000";

/// Parses a duration; a number without a unit is in seconds. `None` if the value is invalid.
pub fn duration_of(value: &serde_json::Value) -> Option<Duration> {
    match value {
        serde_json::Value::String(text) => Duration::parse(text),
        other => other.as_u64().filter(|s| *s <= DURATION_MAX_S).map(Duration),
    }
}

/// Parses an amount in dollars; `None` if the value is invalid.
pub fn money_of(value: &serde_json::Value) -> Option<Usd> {
    value.as_f64().filter(|usd| (0.0..=MONEY_MAX_USD).contains(usd)).map(|usd| Usd(Money::from_usd(usd)))
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "format": "duration-text", "pattern": r"^\s*([0-9]+[smhd]\s*)+$", "minimum": 0 })
    }
}

/// Money, written in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usd(pub Money);

impl Usd {
    /// Smallest amount that is not zero.
    pub const MIN: Self = Self(Money(1));

    /// One cent.
    pub const CENT: Self = Self(Money(10_000));

    /// Creates an amount of whole dollars.
    pub const fn dollars(dollars: i64) -> Self {
        Self(Money(dollars * 1_000_000))
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = 10_000;
        if self.0.0 % cents == 0 { self.0.fmt(f) } else { write!(f, "${}", self.0.usd()) }
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let usd = self.0.usd();
        if usd.fract() == 0.0 { serializer.serialize_i64(usd as i64) } else { serializer.serialize_f64(usd) }
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        money_of(&value).ok_or_else(|| serde::de::Error::custom(MONEY_EXPECTED))
    }
}

impl JsonSchema for Usd {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Usd".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "format": "us-dollars", "minimum": 0, "maximum": MONEY_MAX_USD })
    }
}

/// Maximum number of iterations of a loop, written as a number or `unlimited`. An unlimited loop ends at its limits of time and
/// cost, which every loop has. No limit is greater than every number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IterationLimit(u32);

/// The word for no limit of iterations.
pub const UNLIMITED: &str = "unlimited";

impl IterationLimit {
    /// No limit.
    pub const UNLIMITED: Self = Self(u32::MAX);

    /// Creates a limit of `count` iterations.
    pub const fn of(count: u32) -> Self {
        Self(count)
    }

    /// Creates a limit from a number that a person wrote; `None` for the number that means no limit.
    fn finite(count: u32) -> Option<Self> {
        Some(Self(count)).filter(|limit| *limit != Self::UNLIMITED)
    }

    /// Returns the number of iterations; `None` if unlimited.
    pub fn count(self) -> Option<u32> {
        (self != Self::UNLIMITED).then_some(self.0)
    }

    /// Returns the number of iterations, infinite if unlimited.
    pub fn as_f64(self) -> f64 {
        self.count().map_or(f64::INFINITY, f64::from)
    }

    /// Whether a loop that has used `iterations` may not start another one.
    pub fn is_reached(self, iterations: u32) -> bool {
        self.count().is_some_and(|count| iterations >= count)
    }

    /// Returns the limit that is `more` iterations higher.
    #[must_use]
    pub fn plus(self, more: u32) -> Self {
        Self(self.0.saturating_add(more))
    }

    /// Parses a number or `unlimited`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text {
            UNLIMITED => Some(Self::UNLIMITED),
            number if digits => number.parse().ok().and_then(Self::finite),
            _ => None,
        }
    }

    /// Describes the progress of a loop: `7 of 10`, or `7` if unlimited.
    pub fn progress(self, iteration: u32) -> String {
        self.count().map_or_else(|| iteration.to_string(), |count| format!("{iteration} of {count}"))
    }

    /// Describes the progress of a loop to a model: `7 of at most 10`, or `7` if unlimited.
    pub fn bounded_progress(self, iteration: u32) -> String {
        self.count().map_or_else(|| iteration.to_string(), |count| format!("{iteration} of at most {count}"))
    }
}

/// For descriptions of a loop that leave the limit out. Limits that are enforced have no default.
impl Default for IterationLimit {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

/// Description of a valid limit of iterations, for error messages.
pub const ITERATIONS_EXPECTED: &str = "a number of iterations such as 10, or `unlimited`";

/// Reads a limit of iterations; `None` if the value is invalid.
pub fn iterations_of(value: &serde_json::Value) -> Option<IterationLimit> {
    match value {
        serde_json::Value::String(text) if text == UNLIMITED => Some(IterationLimit::UNLIMITED),
        other => other.as_u64().and_then(|count| u32::try_from(count).ok()).and_then(IterationLimit::finite),
    }
}

impl fmt::Display for IterationLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count() {
            Some(count) => write!(f, "{count}"),
            None => f.write_str(UNLIMITED),
        }
    }
}

impl Serialize for IterationLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.count() {
            Some(count) => serializer.serialize_u32(count),
            None => serializer.serialize_str(UNLIMITED),
        }
    }
}

impl<'de> Deserialize<'de> for IterationLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        iterations_of(&value).ok_or_else(|| serde::de::Error::custom(ITERATIONS_EXPECTED))
    }
}

impl JsonSchema for IterationLimit {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "IterationLimit".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "format": "iteration-limit", "pattern": "^unlimited$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iteration_limit_is_a_number_or_unlimited() {
        let ten: IterationLimit = serde_json::from_str("10").unwrap();
        let unlimited: IterationLimit = serde_json::from_str("\"unlimited\"").unwrap();
        assert_eq!((ten, unlimited), (IterationLimit::of(10), IterationLimit::UNLIMITED));
        for limit in [ten, unlimited] {
            assert_eq!(serde_json::from_value::<IterationLimit>(serde_json::json!(limit)).unwrap(), limit);
            assert_eq!(IterationLimit::parse(&limit.to_string()), Some(limit));
        }
        for wrong in ["\"Unlimited\"", "-1", "1.5", "null", "4294967295", "4294967296"] {
            assert!(serde_json::from_str::<IterationLimit>(wrong).is_err(), "{wrong}");
        }
        assert!(ten < unlimited && ten.is_reached(10) && !ten.is_reached(9) && !unlimited.is_reached(u32::MAX));
        assert_eq!((ten.progress(7), unlimited.progress(7)), ("7 of 10".to_owned(), "7".to_owned()));
        assert_eq!((ten.as_f64(), unlimited.as_f64()), (10.0, f64::INFINITY));
        assert_eq!(unlimited.plus(5), unlimited);
    }

    #[test]
    fn durations_parse_common_notations() {
        for (text, seconds) in [
            ("90s", Some(90)),
            ("30m", Some(1800)),
            ("2h", Some(7200)),
            ("1h30m", Some(5400)),
            ("1h 30m 5s", Some(5405)),
            ("7d", Some(604_800)),
            ("0s", Some(0)),
            ("", None),
            ("h", None),
            ("2", None),
            ("2w", None),
            ("-2h", None),
            ("1.5h", None),
            ("2hé", None),
            ("é", None),
            ("367d", None),
            ("99999999999999999999d", None),
            ("9999999999999999999d", None),
        ] {
            assert_eq!(Duration::parse(text).map(Duration::as_seconds), seconds, "{text}");
        }
    }

    #[test]
    fn durations_round_trip_through_text() {
        for seconds in [0, 1, 59, 60, 3599, 3600, 5405, 90_061, 604_800] {
            let duration = Duration::seconds(seconds);
            assert_eq!(Duration::parse(&duration.to_string()), Some(duration));
        }
    }

    #[test]
    fn money_rejects_negative_and_infinite_amounts() {
        for (json, usd) in [("10", Some(10.0)), ("2.5", Some(2.5)), ("-1", None), ("1e300", None), ("\"5\"", None)] {
            let value = serde_json::from_str(json).expect("JSON");
            assert_eq!(money_of(&value).map(|m| m.0.usd()), usd, "{json}");
        }
    }
}
