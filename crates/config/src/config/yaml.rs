//! YAML document with the position of each key and value.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Location, Options, Spanned};

use super::problem::{ProblemCollector, SourceLocation};

/// Value with its position.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct YamlNode {
    pub(super) place: SourceLocation,
    pub(super) value: YamlValue,
}

/// YAML value.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum YamlValue {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<MapEntry>),
}

/// Key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MapEntry {
    pub(super) key: String,
    pub(super) key_place: SourceLocation,
    pub(super) node: YamlNode,
}

impl YamlNode {
    /// Parses `text`; adds one problem to `report` for invalid YAML.
    pub(super) fn parse(text: &str, report: &mut ProblemCollector) -> Option<YamlNode> {
        match serde_saphyr::from_str_with_options::<Spanned<YamlValue>>(text, options()) {
            Ok(spanned) => Some(YamlNode::from(spanned)),
            Err(error) => {
                let error = error.without_snippet();
                let place = error.location().map_or(SourceLocation::File, place_of);
                let message = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
                // The position is already printed with each problem.
                let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(text, _)| text);
                report.add(place, "", format!("invalid YAML: {}", message.trim()));
                None
            }
        }
    }

    /// Returns the value of `key`; `None` if this is not a map with the key.
    pub(super) fn get(&self, key: &str) -> Option<&YamlNode> {
        match &self.value {
            YamlValue::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.node),
            _ => None,
        }
    }

    /// Whether `path` has a value; `false` for an empty path.
    pub(super) fn has(&self, path: &str) -> bool {
        let mut at = (self, path);
        while !at.1.is_empty() {
            match at.0.step(at.1) {
                Some((index, rest)) => at = (at.0.part(index), rest),
                None => return false,
            }
        }
        !path.is_empty() && at.0.value != YamlValue::Null
    }

    /// Returns the position of the value at `path` (`forges[0].url`), or of the nearest enclosing value.
    pub(super) fn place_at(&self, path: &str) -> SourceLocation {
        let mut at = (self, path);
        while let Some((index, rest)) = at.0.step(at.1) {
            at = (at.0.part(index), rest);
        }
        at.0.place.clone()
    }

    /// Returns a copy without the values at `keys`; for a list item, removes the whole list.
    pub(super) fn without(&self, keys: &[String]) -> YamlNode {
        let mut sound = self.clone();
        for key in keys {
            sound.clear(key);
        }
        sound
    }

    fn clear(&mut self, path: &str) {
        if path.is_empty() {
            self.value = YamlValue::Null;
            return;
        }
        let Some((index, rest)) = self.step(path) else { return };
        let next = match &mut self.value {
            YamlValue::List(_) if rest.is_empty() => return self.clear(""),
            YamlValue::List(items) => items.get_mut(index),
            YamlValue::Map(entries) => entries.get_mut(index).map(|entry| &mut entry.node),
            _ => None,
        };
        if let Some(next) = next {
            next.clear(rest);
        }
    }

    /// Returns the index of the part of this node at the start of `path`, and the rest of the path. Keys may contain dots
    /// and brackets, like model names; the longest matching key wins.
    fn step<'p>(&self, path: &'p str) -> Option<(usize, &'p str)> {
        let (index, rest) = match &self.value {
            YamlValue::List(items) => {
                let (number, rest) = path.strip_prefix('[')?.split_once(']')?;
                let index = number.parse::<usize>().ok().filter(|index| *index < items.len())?;
                (index, rest)
            }
            YamlValue::Map(entries) => {
                let rest_of = |entry: &MapEntry| {
                    path.strip_prefix(entry.key.as_str()).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                };
                let fitting = entries.iter().enumerate().filter_map(|(index, entry)| Some((index, rest_of(entry)?)));
                fitting.min_by_key(|(_, rest)| rest.len())?
            }
            _ => return None,
        };
        Some((index, rest.strip_prefix('.').unwrap_or(rest)))
    }

    /// Returns the item or value with this index, or this node if there is none.
    fn part(&self, index: usize) -> &YamlNode {
        match &self.value {
            YamlValue::List(items) => items.get(index),
            YamlValue::Map(entries) => entries.get(index).map(|entry| &entry.node),
            _ => None,
        }
        .unwrap_or(self)
    }

    /// Converts to JSON, without positions and without keys that have no value.
    pub(super) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            YamlValue::Null => Json::Null,
            YamlValue::Bool(b) => Json::Bool(*b),
            YamlValue::Number(n) => Json::Number(n.clone()),
            YamlValue::Text(text) => Json::String(text.clone()),
            YamlValue::List(items) => Json::Array(items.iter().map(YamlNode::to_json).collect()),
            YamlValue::Map(entries) => {
                let given = entries.iter().filter(|e| e.node.value != YamlValue::Null);
                Json::Object(given.map(|e| (e.key.clone(), e.node.to_json())).collect())
            }
        }
    }

    /// Converts from JSON; all parts have the same position.
    pub(super) fn from_json(json: serde_json::Value, place: &SourceLocation) -> YamlNode {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => YamlValue::Null,
            Json::Bool(b) => YamlValue::Bool(b),
            Json::Number(n) => YamlValue::Number(n),
            Json::String(text) => YamlValue::Text(text),
            Json::Array(items) => {
                YamlValue::List(items.into_iter().map(|item| YamlNode::from_json(item, place)).collect())
            }
            Json::Object(map) => YamlValue::Map(
                map.into_iter()
                    .map(|(key, item)| MapEntry {
                        key,
                        key_place: place.clone(),
                        node: YamlNode::from_json(item, place),
                    })
                    .collect(),
            ),
        };
        YamlNode { place: place.clone(), value }
    }
}

impl YamlValue {
    /// Returns the name of the type, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            YamlValue::Null => "nothing",
            YamlValue::Bool(_) => "true or false",
            YamlValue::Number(n) if n.is_f64() => "a fraction",
            YamlValue::Number(_) => "a number",
            YamlValue::Text(_) => "text",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a map",
        }
    }
}

/// Returns the options for strict parsing: `yes` and `on` are text, and duplicate keys are errors.
fn options() -> Options {
    let mut options = Options::default();
    options.strict_booleans = true;
    options.with_snippet = false;
    options
}

fn place_of(location: Location) -> SourceLocation {
    match location.line() {
        0 => SourceLocation::File,
        line => SourceLocation::At { line, column: location.column() },
    }
}

impl From<Spanned<YamlValue>> for YamlNode {
    fn from(spanned: Spanned<YamlValue>) -> Self {
        YamlNode { place: place_of(spanned.referenced), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }
    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlValue, D::Error> {
        YamlValue::deserialize(deserializer)
    }
    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(value.into()))
    }
    fn visit_i128<E: de::Error>(self, value: i128) -> Result<YamlValue, E> {
        self.visit_f64(value as f64)
    }
    fn visit_u128<E: de::Error>(self, value: u128) -> Result<YamlValue, E> {
        self.visit_f64(value as f64)
    }
    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(Number::from_f64(value).map_or_else(|| YamlValue::Text(value.to_string()), YamlValue::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(value))
    }
    fn visit_bytes<E: de::Error>(self, value: &[u8]) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(String::from_utf8_lossy(value).into_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<YamlValue>>()? {
            list.push(YamlNode::from(item));
        }
        Ok(YamlValue::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<YamlValue, A::Error> {
        let mut map = Vec::new();
        while let Some((key, node)) = entries.next_entry::<Spanned<String>, Spanned<YamlValue>>()? {
            map.push(MapEntry { key: key.value, key_place: place_of(key.referenced), node: YamlNode::from(node) });
        }
        Ok(YamlValue::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> YamlNode {
        let mut report = ProblemCollector::new("f.yaml");
        let node = YamlNode::parse(text, &mut report).expect("readable");
        assert!(report.is_empty());
        node
    }

    fn problem(text: &str) -> String {
        let mut report = ProblemCollector::new("f.yaml");
        assert!(YamlNode::parse(text, &mut report).is_none());
        report.into_result(()).expect_err("one problem").0[0].to_string()
    }

    #[test]
    fn values_keep_type_and_position() {
        let node = parse("a: 1\nb:\n  - x\n  - { c: 2.5, d: true, e: , f: yes, g: \"1\", h: 2h }\n");
        assert_eq!(
            node.to_json(),
            serde_json::json!({"a": 1, "b": ["x", {"c": 2.5, "d": true, "f": "yes", "g": "1", "h": "2h"}]})
        );
        assert_eq!(node.place_at("a"), SourceLocation::At { line: 1, column: 4 });
        assert_eq!(node.place_at("b[0]"), SourceLocation::At { line: 3, column: 5 });
        assert_eq!(node.place_at("b[1].d"), SourceLocation::At { line: 4, column: 18 });
        assert_eq!(node.place_at("b[1].nope"), node.place_at("b[1]"));
        let YamlValue::Map(entries) = &node.value else { panic!("a map") };
        assert_eq!(entries[1].key_place, SourceLocation::At { line: 2, column: 1 });
    }

    #[test]
    fn keys_with_dots_and_brackets_are_found() {
        let node = parse("m:\n  gpt-5: { a: 1 }\n  gpt-5.2: { a: 2 }\n  'x[1m]': [3, 4]\n");
        assert_eq!(node.place_at("m.gpt-5.2.a"), SourceLocation::At { line: 3, column: 17 });
        assert_eq!(node.place_at("m.gpt-5.a"), SourceLocation::At { line: 2, column: 15 });
        assert_eq!(node.place_at("m.x[1m][1]"), SourceLocation::At { line: 4, column: 16 });
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
    fn empty_document_is_null() {
        for text in ["", "\n", "# only a comment\n", "---\n"] {
            assert_eq!(parse(text).value, YamlValue::Null, "{text:?}");
        }
    }

    #[test]
    fn invalid_yaml_reports_its_position() {
        insta::assert_snapshot!(problem("a: [1, 2\nb: 3\n"), @r"f.yaml:2:2: invalid YAML: illegal placement of ':' indicator");
        insta::assert_snapshot!(problem("a: 1\na: 2\n"), @r"f.yaml:2:1: invalid YAML: duplicate mapping key `a` is not allowed here");
        insta::assert_snapshot!(problem("a:\n\t- 1\n"), @r"f.yaml:2:2: invalid YAML: tabs disallowed within this context (block indentation)");
        insta::assert_snapshot!(problem("a: 1\n---\nb: 2\n"), @r"f.yaml:3:1: invalid YAML: only single YAML document expected but multiple found");
    }

    #[test]
    fn expanding_documents_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let refs = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(problem(&bomb).contains("invalid YAML"));
        assert!(problem(&"[".repeat(100_000)).contains("invalid YAML"));
    }
}
