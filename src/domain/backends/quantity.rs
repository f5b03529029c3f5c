//! Durations and amounts of money as people write them in these settings.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::domain::ids::Money;

/// Seconds, written `90s`, `30m`, `2h`, `1h30m`, `7d`, or as a number of seconds.
pub mod duration {
    use super::{Schema, SchemaGenerator, json_schema};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const UNITS: [(char, u64); 4] = [('d', 24 * 3600), ('h', 3600), ('m', 60), ('s', 1)];

    /// `1h30m`, for people.
    pub fn text(seconds: u64) -> String {
        let mut left = seconds;
        let mut text = String::new();
        for (unit, length) in UNITS {
            if left >= length {
                text.push_str(&format!("{}{unit}", left / length));
                left %= length;
            }
        }
        if text.is_empty() { "0s".to_owned() } else { text }
    }

    /// Reads `1h30m`, `90s`, `2d`; `None` for anything else.
    pub fn parse(text: &str) -> Option<u64> {
        let mut total = 0_u64;
        let mut rest = text.trim();
        (!rest.is_empty()).then_some(())?;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let amount: u64 = rest.get(..digits)?.parse().ok()?;
            let unit = rest.get(digits..)?.chars().next()?;
            let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
            total = total.checked_add(amount.checked_mul(*length)?)?;
            rest = rest.get(digits + 1..)?.trim_start();
        }
        Some(total)
    }

    /// As text.
    pub fn serialize<S: Serializer>(seconds: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&text(*seconds))
    }

    /// From text or a number of seconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let seconds = value.as_str().map_or_else(|| value.as_u64(), parse);
        seconds.ok_or_else(|| D::Error::custom("a duration such as 90s, 30m, 2h or 1h30m is needed"))
    }

    /// What is read.
    pub fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"], "format": "duration-text", "pattern": r"^\s*([0-9]+[smhd]\s*)+$", "minimum": 0
        })
    }
}

/// Money, written in US dollars.
pub mod dollars {
    use super::{Money, Schema, SchemaGenerator, json_schema};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    fn number(money: Money) -> serde_json::Value {
        let usd = money.usd();
        if usd.fract() == 0.0 { serde_json::json!(usd as i64) } else { serde_json::json!(usd) }
    }

    /// As a number, a whole one where it is one.
    pub fn serialize<S: Serializer>(money: &Option<Money>, serializer: S) -> Result<S::Ok, S::Error> {
        money.map(number).serialize(serializer)
    }

    /// From a number of dollars, 0 to 1,000,000, or nothing.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Money>, D::Error> {
        let usd = Option::<f64>::deserialize(deserializer)?;
        match usd {
            Some(usd) if !(0.0..=1e6).contains(&usd) => {
                Err(D::Error::custom("an amount in US dollars from 0 to 1000000 is needed"))
            }
            usd => Ok(usd.map(Money::from_usd)),
        }
    }

    /// What is read, where it can be left out.
    pub fn optional(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "null"], "format": "us-dollars", "minimum": 0, "maximum": 1e6 })
    }

    /// What is read, where it is always there.
    pub fn always(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "format": "us-dollars", "minimum": 0, "maximum": 1e6 })
    }

    /// The same where it cannot be left out.
    pub mod whole {
        use super::{Deserializer, Error, Money, Serialize, Serializer};

        /// As a number, a whole one where it is one.
        pub fn serialize<S: Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
            super::number(*money).serialize(serializer)
        }

        /// From a number of dollars, 0 to 1,000,000.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Money, D::Error> {
            super::deserialize(deserializer)?.ok_or_else(|| D::Error::custom("an amount in US dollars is needed"))
        }
    }
}
