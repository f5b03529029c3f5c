//! A YAML document as a tree in which every key and value knows its place.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Location, Options, Spanned};

use super::problem::{Place, Reporter};

/// A value and where it was written.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_place: Place,
    pub(super) node: Node,
}

impl Node {
    /// Reads `text`; an unreadable document is one problem of `report`.
    pub(super) fn parse(text: &str, report: &mut Reporter) -> Option<Node> {
        match serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options()) {
            Ok(spanned) => Some(Node::from(spanned)),
            Err(error) => {
                let error = error.without_snippet();
                let place = error.location().map_or(Place::File, place_of);
                let message = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
                // The place stands in front of every problem already.
                let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(text, _)| text);
                report.add(place, "", format!("not readable as YAML: {}", message.trim()));
                None
            }
        }
    }

    /// The value of `key`, where this is a map that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.node),
            _ => None,
        }
    }

    /// Whether there is a value at `path`; never at an empty one.
    pub(super) fn has(&self, path: &str) -> bool {
        let mut at = (self, path);
        while !at.1.is_empty() {
            match at.0.step(at.1) {
                Some((index, rest)) => at = (at.0.part(index), rest),
                None => return false,
            }
        }
        !path.is_empty() && at.0.value != Value::Null
    }

    /// Where the value at `path` (`forges[0].url`) was written, or else the nearest value around it.
    pub(super) fn place_at(&self, path: &str) -> Place {
        let mut at = (self, path);
        while let Some((index, rest)) = at.0.step(at.1) {
            at = (at.0.part(index), rest);
        }
        at.0.place.clone()
    }

    /// The same without the values at `keys`; for an item of a list, without the whole list.
    pub(super) fn without(&self, keys: &[String]) -> Node {
        let mut sound = self.clone();
        for key in keys {
            sound.clear(key);
        }
        sound
    }

    fn clear(&mut self, path: &str) {
        if path.is_empty() {
            self.value = Value::Null;
            return;
        }
        let Some((index, rest)) = self.step(path) else { return };
        let next = match &mut self.value {
            Value::List(_) if rest.is_empty() => return self.clear(""),
            Value::List(items) => items.get_mut(index),
            Value::Map(entries) => entries.get_mut(index).map(|entry| &mut entry.node),
            _ => None,
        };
        if let Some(next) = next {
            next.clear(rest);
        }
    }

    /// Which part of this node `path` begins with, and what of it is left. Keys may hold dots and brackets (names of
    /// models do): the longest that fits is meant.
    fn step<'p>(&self, path: &'p str) -> Option<(usize, &'p str)> {
        let (index, rest) = match &self.value {
            Value::List(items) => {
                let (number, rest) = path.strip_prefix('[')?.split_once(']')?;
                let index = number.parse::<usize>().ok().filter(|index| *index < items.len())?;
                (index, rest)
            }
            Value::Map(entries) => {
                let rest_of = |entry: &Entry| {
                    path.strip_prefix(entry.key.as_str()).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                };
                let fitting = entries.iter().enumerate().filter_map(|(index, entry)| Some((index, rest_of(entry)?)));
                fitting.min_by_key(|(_, rest)| rest.len())?
            }
            _ => return None,
        };
        Some((index, rest.strip_prefix('.').unwrap_or(rest)))
    }

    /// The item or the value of that number; this node where there is none.
    fn part(&self, index: usize) -> &Node {
        match &self.value {
            Value::List(items) => items.get(index),
            Value::Map(entries) => entries.get(index).map(|entry| &entry.node),
            _ => None,
        }
        .unwrap_or(self)
    }

    /// The same as JSON, without places, and without the keys that were given no value.
    pub(super) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Number(n) => Json::Number(n.clone()),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(entries) => {
                let given = entries.iter().filter(|e| e.node.value != Value::Null);
                Json::Object(given.map(|e| (e.key.clone(), e.node.to_json())).collect())
            }
        }
    }

    /// A tree of which every part has the same place.
    pub(super) fn from_json(json: serde_json::Value, place: &Place) -> Node {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(b),
            Json::Number(n) => Value::Number(n),
            Json::String(text) => Value::Text(text),
            Json::Array(items) => Value::List(items.into_iter().map(|item| Node::from_json(item, place)).collect()),
            Json::Object(map) => Value::Map(
                map.into_iter()
                    .map(|(key, item)| Entry { key, key_place: place.clone(), node: Node::from_json(item, place) })
                    .collect(),
            ),
        };
        Node { place: place.clone(), value }
    }
}

impl Value {
    /// What it is, for people.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(n) if n.is_f64() => "a fraction",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

/// Strict reading: `yes` and `on` are text, a key given twice is an error.
fn options() -> Options {
    let mut options = Options::default();
    options.strict_booleans = true;
    options.with_snippet = false;
    options
}

fn place_of(location: Location) -> Place {
    match location.line() {
        0 => Place::File,
        line => Place::At { line, column: location.column() },
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Node { place: place_of(spanned.referenced), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }
    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or_else(|| Value::Text(value.to_string()), Value::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }
    fn visit_bytes<E: de::Error>(self, value: &[u8]) -> Result<Value, E> {
        Ok(Value::Text(String::from_utf8_lossy(value).into_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Value>>()? {
            list.push(Node::from(item));
        }
        Ok(Value::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some((key, node)) = entries.next_entry::<Spanned<String>, Spanned<Value>>()? {
            map.push(Entry { key: key.value, key_place: place_of(key.referenced), node: Node::from(node) });
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Node {
        let mut report = Reporter::new("f.yaml");
        let node = Node::parse(text, &mut report).expect("readable");
        assert!(report.is_empty());
        node
    }

    fn problem(text: &str) -> String {
        let mut report = Reporter::new("f.yaml");
        assert!(Node::parse(text, &mut report).is_none());
        report.into_result(()).expect_err("one problem").0[0].to_string()
    }

    #[test]
    fn values_keep_kind_and_place() {
        let node = parse("a: 1\nb:\n  - x\n  - { c: 2.5, d: true, e: , f: yes, g: \"1\", h: 2h }\n");
        assert_eq!(
            node.to_json(),
            serde_json::json!({"a": 1, "b": ["x", {"c": 2.5, "d": true, "f": "yes", "g": "1", "h": "2h"}]})
        );
        assert_eq!(node.place_at("a"), Place::At { line: 1, column: 4 });
        assert_eq!(node.place_at("b[0]"), Place::At { line: 3, column: 5 });
        assert_eq!(node.place_at("b[1].d"), Place::At { line: 4, column: 18 });
        assert_eq!(node.place_at("b[1].nope"), node.place_at("b[1]"));
        let Value::Map(entries) = &node.value else { panic!("a map") };
        assert_eq!(entries[1].key_place, Place::At { line: 2, column: 1 });
    }

    #[test]
    fn keys_with_dots_and_brackets_are_found() {
        let node = parse("m:\n  gpt-5: { a: 1 }\n  gpt-5.2: { a: 2 }\n  'x[1m]': [3, 4]\n");
        assert_eq!(node.place_at("m.gpt-5.2.a"), Place::At { line: 3, column: 17 });
        assert_eq!(node.place_at("m.gpt-5.a"), Place::At { line: 2, column: 15 });
        assert_eq!(node.place_at("m.x[1m][1]"), Place::At { line: 4, column: 16 });
        assert!(node.has("m.gpt-5.2.a") && node.has("m.x[1m]") && !node.has("m.gpt-5.3") && !node.has("m.x[1m][2]"));
        let without =
            |keys: &[&str]| node.without(&keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>()).to_json();
        assert_eq!(
            without(&["m.gpt-5.2.a", "m.x[1m]"]),
            serde_json::json!({ "m": { "gpt-5": { "a": 1 }, "gpt-5.2": {} } })
        );
        assert_eq!(without(&["m.x[1m][0]"])["m"], serde_json::json!({ "gpt-5": { "a": 1 }, "gpt-5.2": { "a": 2 } }));
    }

    #[test]
    fn an_empty_document_is_nothing() {
        for text in ["", "\n", "# only a comment\n", "---\n"] {
            assert_eq!(parse(text).value, Value::Null, "{text:?}");
        }
    }

    #[test]
    fn unreadable_documents_say_where() {
        insta::assert_snapshot!(problem("a: [1, 2\nb: 3\n"), @r"f.yaml:2:2: not readable as YAML: illegal placement of ':' indicator");
        insta::assert_snapshot!(problem("a: 1\na: 2\n"), @r"f.yaml:2:1: not readable as YAML: duplicate mapping key `a` is not allowed here");
        insta::assert_snapshot!(problem("a:\n\t- 1\n"), @r"f.yaml:2:2: not readable as YAML: tabs disallowed within this context (block indentation)");
        insta::assert_snapshot!(problem("a: 1\n---\nb: 2\n"), @r"f.yaml:3:1: not readable as YAML: only single YAML document expected but multiple found");
    }

    #[test]
    fn documents_that_grow_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let refs = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(problem(&bomb).contains("not readable as YAML"));
        assert!(problem(&"[".repeat(100_000)).contains("not readable as YAML"));
    }
}
