//! Checks a YAML document against a JSON Schema and reports each difference with its position. Supports the keywords that
//! schemars generates for the configuration's types; deserialization checks the rest.

use serde_json::Value as Json;

use super::problem::ProblemCollector;
use super::yaml::{YamlNode, YamlValue};
use crate::domain::model::quantity::{
    DURATION_EXPECTED, ITERATIONS_EXPECTED, MONEY_EXPECTED, duration_of, iterations_of, money_of,
};
use crate::domain::model::settings::did_you_mean;

/// Keys that would contain a secret, each with the prefix of the keys (`_env`, `_file`) that name its source.
const SECRET_KEYS: &[(&str, &str)] = &[
    ("token", "token"),
    ("access_token", "token"),
    ("password", "token"),
    ("database_password", "database_password"),
    ("webhook_secret", "webhook_secret"),
    ("secret", "webhook_secret"),
    ("secret", "secret"),
    ("routing_key", "secret"),
    ("private_key", "private_key"),
    ("api_key", "api_key"),
    ("key", "api_key"),
];

/// Schema within a root schema, with references resolved.
#[derive(Clone, Copy)]
pub(super) struct SchemaView<'s> {
    root: &'s Json,
    here: &'s Json,
}

impl<'s> SchemaView<'s> {
    /// Returns the root schema.
    pub(super) fn new(schema: &'s Json) -> Self {
        Self { root: schema, here: schema }.resolved()
    }

    /// Schema that accepts every value.
    pub(super) const ANY: SchemaView<'static> = SchemaView { root: &Json::Null, here: &Json::Null };

    fn at(self, here: &'s Json) -> Self {
        Self { root: self.root, here }.resolved()
    }

    fn resolved(self) -> Self {
        let target = self.here.get("$ref").and_then(Json::as_str).and_then(|reference| {
            let pointer = reference.strip_prefix('#')?;
            self.root.pointer(pointer)
        });
        match target {
            Some(here) => Self { root: self.root, here }.resolved(),
            None => self,
        }
    }

    /// Returns the names of the known keys, in the order of the type.
    pub(super) fn keys(self) -> impl Iterator<Item = &'s str> {
        self.here.get("properties").and_then(Json::as_object).into_iter().flat_map(|p| p.keys().map(String::as_str))
    }

    /// Returns the schema of the value of `key`.
    pub(super) fn child(self, key: &str) -> Option<Self> {
        let known = self.here.get("properties").and_then(|p| p.get(key));
        let other = self.here.get("additionalProperties").filter(|other| other.is_object());
        known.or(other).map(|schema| self.at(schema))
    }

    /// Returns the schema of the items of a list.
    pub(super) fn item(self) -> Option<Self> {
        self.here.get("items").map(|schema| self.at(schema))
    }

    /// Whether only text is accepted, so a number must be read as text.
    pub(super) fn takes_only_text(self) -> bool {
        let types = self.types();
        types.contains(&"string") && types.iter().all(|t| matches!(*t, "string" | "null"))
    }

    /// Whether unknown keys are allowed.
    pub(super) fn is_open(self) -> bool {
        self.here.get("additionalProperties").is_none_or(|other| other != &Json::Bool(false))
    }

    fn types(self) -> Vec<&'s str> {
        match self.here.get("type") {
            Some(Json::String(one)) => vec![one.as_str()],
            Some(Json::Array(many)) => many.iter().filter_map(Json::as_str).collect(),
            _ => self.choices().into_iter().flat_map(Self::types).collect(),
        }
    }

    fn choices(self) -> Vec<Self> {
        let list = self.here.get("anyOf").or_else(|| self.here.get("oneOf")).and_then(Json::as_array);
        list.into_iter().flatten().map(|schema| self.at(schema)).collect()
    }

    /// Returns the allowed values of an enumeration; empty for all other types.
    fn words(self) -> Vec<&'s str> {
        if let Some(Json::Array(words)) = self.here.get("enum") {
            return words.iter().filter_map(Json::as_str).collect();
        }
        if let Some(Json::String(word)) = self.here.get("const") {
            return vec![word];
        }
        self.choices().into_iter().flat_map(Self::words).collect()
    }

    /// Describes the accepted types, for messages ("a whole number").
    fn expected(self) -> String {
        match self.format() {
            Some("duration-text") => return DURATION_EXPECTED.to_owned(),
            Some("us-dollars") => return MONEY_EXPECTED.to_owned(),
            Some("iteration-limit") => return ITERATIONS_EXPECTED.to_owned(),
            _ => {}
        }
        let mut kinds: Vec<&str> = self
            .types()
            .into_iter()
            .filter_map(|name| match name {
                "string" => Some("text"),
                "integer" => Some("a whole number"),
                "number" => Some("a number"),
                "boolean" => Some("true or false"),
                "array" => Some("a list"),
                "object" => Some("a map"),
                _ => None,
            })
            .collect();
        kinds.dedup();
        kinds.join(" or ")
    }

    fn format(self) -> Option<&'s str> {
        self.here.get("format").and_then(Json::as_str)
    }

    fn takes(self, value: &YamlValue) -> bool {
        let types = self.types();
        let any = |names: &[&str]| types.is_empty() || names.iter().any(|name| types.contains(name));
        match value {
            // A key without a value has its default.
            YamlValue::Null => true,
            YamlValue::Bool(_) => any(&["boolean"]),
            YamlValue::Number(n) if n.is_f64() => any(&["number"]),
            YamlValue::Number(_) => any(&["integer", "number"]),
            YamlValue::Text(_) => any(&["string"]),
            YamlValue::List(_) => any(&["array"]),
            YamlValue::Map(_) => any(&["object"]),
        }
    }

    /// Reports each difference between `node` and this schema. `path` is the node's path, empty at the top.
    pub(super) fn check(self, node: &YamlNode, path: &str, report: &mut ProblemCollector) {
        if !self.takes(&node.value) {
            let found = node.value.kind();
            let message = format!("`{}`: expected {}, found {found}", shown(path), self.expected());
            return report.add(node.place.clone(), path, message);
        }
        let words = self.words();
        if let (YamlValue::Text(word), false) = (&node.value, words.is_empty()) {
            if !words.contains(&word.as_str()) {
                let list = words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ");
                let near = did_you_mean(word, words.iter().copied());
                let message = format!("`{path}`: unknown value `{}`; allowed: {list}{near}", printable(word));
                report.add(node.place.clone(), path, message);
            }
            return;
        }
        match &node.value {
            YamlValue::Map(_) => self.check_map(node, path, report),
            YamlValue::List(items) => {
                let shape = self.choices().into_iter().find_map(Self::item).or_else(|| self.item());
                if let Some(shape) = shape {
                    for (index, item) in items.iter().enumerate() {
                        shape.check_present(item, &format!("{path}[{index}]"), report);
                    }
                }
            }
            YamlValue::Number(_) | YamlValue::Text(_) => self.check_scalar(node, path, report),
            YamlValue::Null | YamlValue::Bool(_) => {}
        }
    }

    /// Checks a list item like [`Self::check`]; the item must have a value.
    fn check_present(self, node: &YamlNode, path: &str, report: &mut ProblemCollector) {
        if node.value == YamlValue::Null {
            let message = format!("`{path}`: expected {}, found nothing", self.expected());
            return report.add(node.place.clone(), path, message);
        }
        self.check(node, path, report);
    }

    fn check_map(self, node: &YamlNode, path: &str, report: &mut ProblemCollector) {
        let shape = if self.here.get("properties").is_none() {
            self.choices().into_iter().find(|choice| choice.here.get("properties").is_some()).unwrap_or(self)
        } else {
            self
        };
        let YamlValue::Map(entries) = &node.value else { return };
        for entry in entries {
            let key_path = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
            match shape.child(&entry.key) {
                Some(child) => child.check(&entry.node, &key_path, report),
                None if shape.is_open() => {}
                None => {
                    let message = shape.unknown_key(&entry.key, path);
                    report.add(entry.key_place.clone(), key_path, message);
                }
            }
        }
        for required in shape.here.get("required").and_then(Json::as_array).into_iter().flatten() {
            if let Some(key) = required.as_str().filter(|key| node.get(key).is_none()) {
                report.add(node.place.clone(), path, format!("`{}`: `{key}` is missing", shown(path)));
            }
        }
    }

    fn unknown_key(self, key: &str, path: &str) -> String {
        let named = |base: &str| self.keys().any(|known| known == format!("{base}_env"));
        if let Some((_, base)) = SECRET_KEYS.iter().find(|(name, base)| *name == key && named(base)) {
            return format!(
                "`{key}` in `{}`: secrets must not be in this file; put it into an environment variable and set \
                 `{base}_env` to its name, or into a file and set `{base}_file` to its path",
                shown(path)
            );
        }
        let key = printable(key);
        let near = did_you_mean(&key, self.keys());
        if path.is_empty() {
            format!("unknown key `{key}`{near}")
        } else {
            format!("unknown key `{key}` in `{path}`{near}")
        }
    }

    fn check_scalar(self, node: &YamlNode, path: &str, report: &mut ProblemCollector) {
        let json = node.to_json();
        let good = match self.format() {
            Some("duration-text") => duration_of(&json).is_some(),
            Some("us-dollars") => money_of(&json).is_some(),
            Some("iteration-limit") => iterations_of(&json).is_some(),
            _ => {
                let (low, high) = self.bounds();
                let number = json.as_f64();
                if number.is_some_and(|n| n < low || n > high) {
                    let message = format!("`{path}`: must be between {low} and {high}");
                    report.add(node.place.clone(), path, message);
                }
                true
            }
        };
        if !good {
            report.add(node.place.clone(), path, format!("`{path}`: expected {}", self.expected()));
        }
    }

    /// Returns the lowest and highest allowed number, from the schema or the integer type.
    fn bounds(self) -> (f64, f64) {
        let chosen = self.choices().into_iter().find(|c| c.types().iter().any(|t| matches!(*t, "integer" | "number")));
        let here = chosen.unwrap_or(self).here;
        let (low, high) = match here.get("format").and_then(Json::as_str) {
            Some("uint32") => (0.0, f64::from(u32::MAX)),
            Some("uint64") => (0.0, u64::MAX as f64),
            Some("int64") => (i64::MIN as f64, i64::MAX as f64),
            _ => (f64::MIN, f64::MAX),
        };
        let given = |key: &str| here.get(key).and_then(Json::as_f64);
        (given("minimum").unwrap_or(low), given("maximum").unwrap_or(high))
    }
}

/// Returns a path for messages, or a description of the top level, which has no path.
fn shown(path: &str) -> &str {
    if path.is_empty() { "the file" } else { path }
}

/// Returns at most 40 characters, with control characters replaced.
fn printable(word: &str) -> String {
    word.chars().take(40).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
