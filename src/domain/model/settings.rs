//! Settings in layers: one layer is laid over another key by key, and what is wrong is told by key, with what is allowed.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Most characters of a value or a name that a message repeats.
const MAX_SHOWN: usize = 60;

/// Something that is wrong with settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its key, with dots, from the top of the file.
    pub key: String,
    /// The key that it contradicts.
    pub other: Option<String>,
    /// The whole sentence, with key, value and what is allowed.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// A group of settings that files can set. Keys of the tables are from the group's top, with dots.
pub trait Settings: Serialize + DeserializeOwned {
    /// Key of the group in a file.
    const GROUP: &'static str;
    /// Every number with the least and the most that it may be, both inclusive.
    const RANGES: &'static [(&'static str, f64, f64)];
    /// Numbers that must be below others.
    const BELOW: &'static [(&'static str, &'static str)];
    /// Numbers that must not be above others.
    const AT_MOST: &'static [(&'static str, &'static str)];

    /// What a new name under `key` begins as, where names are free.
    fn new_name(_key: &str) -> Option<Value> {
        None
    }

    /// Finds what is wrong beyond the tables.
    fn further(&self, _found: &mut Findings) {}

    /// These settings with the keys that `layer` has in their place, if all of that holds. Groups are merged key by key, so
    /// that setting one leaves its neighbours; lists are replaced.
    fn merged(&self, layer: &Value) -> Result<Self, Vec<Problem>> {
        let unreadable = |error: serde_json::Error| {
            let mut found = Findings::new(Self::GROUP);
            found.wrong("", format!("cannot be read: {error}"));
            found.problems
        };
        let mut value = serde_json::to_value(self).map_err(unreadable)?;
        let mut laying = Laying { found: Findings::new(Self::GROUP), new_name: Self::new_name };
        laying.lay(&mut value, layer, "");
        if !laying.found.problems.is_empty() {
            return Err(laying.found.problems);
        }
        let merged: Self = serde_json::from_value(value).map_err(unreadable)?;
        let problems = merged.validate();
        if problems.is_empty() { Ok(merged) } else { Err(problems) }
    }

    /// Everything that is wrong: ranges, then contradictions, then the rest.
    fn validate(&self) -> Vec<Problem> {
        let value = serde_json::to_value(self).unwrap_or_default();
        let number = |key: &str| at(&value, key).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let mut found = Findings::new(Self::GROUP);
        for (key, least, most) in Self::RANGES {
            found.range(key, number(key), *least, *most);
        }
        for (key, other) in Self::BELOW {
            let (value, bound) = (number(key), number(other));
            if value >= bound {
                found.against(key, other, |other| format!("is {value}; it must be below {other}, which is {bound}"));
            }
        }
        for (key, other) in Self::AT_MOST {
            let (value, bound) = (number(key), number(other));
            if value > bound {
                found.against(key, other, |other| format!("is {value}; at most {other}, which is {bound}, is allowed"));
            }
        }
        self.further(&mut found);
        found.problems
    }
}

fn at<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(value, |value, part| value.get(part))
}

/// Collects what is wrong with a group.
#[derive(Debug)]
pub struct Findings {
    group: &'static str,
    problems: Vec<Problem>,
}

impl Findings {
    fn new(group: &'static str) -> Self {
        Self { group, problems: Vec::new() }
    }

    fn full(&self, key: &str) -> String {
        if key.is_empty() { self.group.to_owned() } else { format!("{}.{key}", self.group) }
    }

    /// Notes what is wrong with `key`, as the rest of the sentence that begins with it.
    pub fn wrong(&mut self, key: &str, what: impl fmt::Display) {
        let key = self.full(key);
        let message = format!("`{key}` {what}");
        self.problems.push(Problem { key, other: None, message });
    }

    /// Notes that `key` contradicts `other`, whose name `what` gets.
    fn against(&mut self, key: &str, other: &str, what: impl Fn(&str) -> String) {
        let (key, other) = (self.full(key), self.full(other));
        let message = format!("`{key}` {}", what(&format!("`{other}`")));
        self.problems.push(Problem { key, other: Some(other), message });
    }

    /// Looks whether a number is in its range, both ends allowed.
    pub fn range(&mut self, key: &str, value: f64, least: f64, most: f64) {
        if !(least..=most).contains(&value) {
            self.wrong(key, format!("is {value}; {least} to {most} is allowed"));
        }
    }
}

/// Lays a layer over settings.
struct Laying {
    found: Findings,
    new_name: fn(&str) -> Option<Value>,
}

impl Laying {
    /// Lays `over` on `under`, which is whole: it has every key and shows the kind of each value.
    fn lay(&mut self, under: &mut Value, over: &Value, path: &str) {
        match (under, over) {
            (Value::Object(under), Value::Object(over)) => {
                for (key, value) in over {
                    self.lay_key(under, key, value, path);
                }
            }
            (under, over) if fits(under, over) => *under = over.clone(),
            (under, over) => self.found.wrong(path, format!("is {}; {} is needed", shown(over), kind(under))),
        }
    }

    fn lay_key(&mut self, under: &mut Map<String, Value>, key: &str, value: &Value, path: &str) {
        let below = if path.is_empty() { shortened(key) } else { format!("{path}.{}", shortened(key)) };
        if !under.contains_key(key) {
            let Some(new) = (self.new_name)(path) else {
                let near = did_you_mean(key, under.keys().map(String::as_str));
                return self.found.wrong(&below, format!("is {}; there is no such key{near}", shown(value)));
            };
            under.insert(key.to_owned(), new);
        }
        if let Some(slot) = under.get_mut(key) {
            self.lay(slot, value, &below);
        }
    }
}

/// Whether a value can stand where `slot` stands. Only numbers can be null.
fn fits(slot: &Value, value: &Value) -> bool {
    match slot {
        Value::Null => value.is_number() || value.is_null(),
        Value::Bool(_) => value.is_boolean(),
        Value::Number(number) if number.is_u64() => value.as_u64().is_some_and(|whole| u32::try_from(whole).is_ok()),
        Value::Number(_) => value.is_number(),
        Value::String(_) => value.is_string(),
        Value::Array(_) => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
        Value::Object(_) => false,
    }
}

fn kind(slot: &Value) -> &'static str {
    match slot {
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_u64() => "a whole number from 0",
        Value::Null | Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list of texts",
        Value::Object(_) => "a group of keys",
    }
}

/// A value for people, shortened.
fn shown(value: &Value) -> String {
    shortened(&value.to_string())
}

/// At most [`MAX_SHOWN`] characters, none of which moves a terminal's cursor.
pub(in crate::domain) fn shortened(text: &str) -> String {
    text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Puts what `over` sets into `under`, key by key; neither has to be whole.
pub fn overlay(under: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Object(under)), Value::Object(over)) => overlay(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

/// "; did you mean `x`?" for the nearest of `candidates`, or nothing where none is near.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    const NEAR: f64 = 0.75;
    let score = |candidate: &str| {
        let (a, b) = (word.to_lowercase(), candidate.to_lowercase());
        strsim::jaro_winkler(&a, &b).max(if b.len() > 3 && a.contains(&b) { 0.8 } else { 0.0 })
    };
    candidates
        .into_iter()
        .map(|candidate| (score(candidate), candidate))
        .filter(|(score, _)| *score >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, candidate)| format!("; did you mean `{candidate}`?"))
}

/// The messages, one a line.
#[cfg(test)]
pub(in crate::domain) fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Keys of numbers that have no range, and of ranges and orders that are of no number.
#[cfg(test)]
pub(in crate::domain) fn gaps<S: Settings + Default>() -> Vec<String> {
    fn numbers(value: &Value, path: &str, keys: &mut Vec<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match value {
                Value::Number(_) => keys.push(path),
                _ => numbers(value, &path, keys),
            }
        }
    }
    let mut keys = Vec::new();
    numbers(&serde_json::to_value(S::default()).unwrap(), "", &mut keys);
    let named = || S::BELOW.iter().chain(S::AT_MOST).flat_map(|(a, b)| [*a, *b]).chain(S::RANGES.iter().map(|r| r.0));
    let without = keys.iter().filter(|key| !S::RANGES.iter().any(|(ranged, ..)| ranged == key)).cloned();
    let unknown = named().filter(|name| !keys.iter().any(|key| key == name)).map(str::to_owned);
    without.chain(unknown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn overlays_are_merged_key_by_key() {
        let map = |value: Value| value.as_object().cloned().unwrap();
        let mut under = map(json!({ "a": { "b": 1, "c": [1, 2] }, "d": 1 }));
        overlay(&mut under, &map(json!({ "a": { "c": [3], "e": { "f": 2 } }, "d": { "g": 3 } })));
        assert_eq!(json!(under), json!({ "a": { "b": 1, "c": [3], "e": { "f": 2 } }, "d": { "g": 3 } }));
    }

    #[test]
    fn the_nearest_word_is_offered_and_nothing_that_is_far() {
        assert_eq!(did_you_mean("windov", ["window", "decay"]), "; did you mean `window`?");
        assert_eq!(did_you_mean("xyz", ["window", "decay"]), "");
    }
}
