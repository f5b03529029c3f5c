//! Parser for untrusted bodies: UTF-8, one JSON value, bounded nesting and number of values, no duplicate keys.

use std::cell::Cell;
use std::fmt;

use ralph_types::failure::Failure;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::domain::trust::bounds::{JSON_DEPTH, JSON_VALUES};

/// Parses a body. Rejects duplicate keys in an object, because two parsers may use different ones of them, and no
/// forge sends them.
///
/// # Errors
/// The cause, in one line.
pub fn parse_untrusted(body: &[u8]) -> Result<Value, Failure> {
    let text = std::str::from_utf8(body).map_err(|error| Failure::new("the body is not UTF-8").caused_by(error))?;
    let values = Cell::new(0);
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Guard { depth: 0, values: &values }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| Failure::new("the body is not valid JSON").caused_by(error))?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Guard<'a> {
    depth: usize,
    values: &'a Cell<usize>,
}

impl Guard<'_> {
    fn count<E: Error>(&self) -> Result<(), E> {
        self.values.set(self.values.get() + 1);
        if self.values.get() > JSON_VALUES { Err(E::custom(format!("more than {JSON_VALUES} values"))) } else { Ok(()) }
    }

    fn nested<E: Error>(self) -> Result<Self, E> {
        if self.depth >= JSON_DEPTH {
            return Err(E::custom(format!("nested deeper than {JSON_DEPTH} levels")));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Guard<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Guard<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.nested()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.nested()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} occurs twice")));
            }
            let value = entries.next_value_seed(inner)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_bodies_are_parsed() {
        let text = r#"{"a":[1,-2,3.5,true,null,"ü\u0000"],"b":{"a":{}},"c":18446744073709551615}"#;
        assert_eq!(parse_untrusted(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn invalid_bodies_are_refused() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse_untrusted(nested(JSON_DEPTH).as_bytes()).is_ok());
        let many = format!("[{}1]", "1,".repeat(JSON_VALUES));
        let cases: [(&[u8], &str); 10] = [
            (b"", "EOF"),
            (b"\xff\xfe{}", "not UTF-8"),
            (b"{\"a\":\"\xc3\x28\"}", "not UTF-8"),
            (br#"{"a":1,"a":2}"#, "occurs twice"),
            (br#"{"x":[{"a":1,"\u0061":2}]}"#, "occurs twice"),
            (b"{} {}", "trailing"),
            (br#"{"a":"#, "EOF"),
            (&nested(JSON_DEPTH + 1).into_bytes(), "deeper than 64"),
            (&nested(10_000).into_bytes(), "deeper than 64"),
            (many.as_bytes(), "more than 1000000 values"),
        ];
        for (body, expected) in cases {
            let refusal = format!("{:#}", parse_untrusted(body).unwrap_err());
            assert!(refusal.contains(expected), "{refusal} lacks {expected:?}");
        }
    }
}
