//! JSON parser that rejects input on which parsers disagree: duplicate keys, other encodings, text after the value.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses a document.
///
/// # Errors
/// The reason and the position, without the text.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = access.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(self)?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("a key occurs twice in an object"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unambiguous_documents_are_parsed() {
        let text = r#"{"b":[1,-2,3.5,null,true,"\u0061"],"a":{"x":18446744073709551615}}"#;
        let value = parse(text.as_bytes()).expect("a document");
        assert_eq!(value.to_string(), text.replace("\\u0061", "a"));
        for wrong in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":[{"b":1,"c":{},"b":1}]}"#,
            "{} {}",
            "\u{feff}{}",
            "{\"a\":1e999}",
            "{'a':1}",
            "{\"a\":1,}",
            "// x\n{}",
            "{\"a\":\"\\ud800\"}",
            "",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let wide: Vec<u8> = r#"{"a":1}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(parse(&wide).is_err());
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
        assert!(parse("[".repeat(100_000).as_bytes()).is_err(), "too deep");
    }
}
