//! Configuration keys. `config_section!` declares a section with one field per key. Sections of two files are merged key by key.
//! Each problem names its key, the value and the allowed values.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, RangeBounds};

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::domain::model::quantity::{Duration, IterationLimit, Usd};

/// Maximum length of a value or name in an error message, in characters.
const MAX_SHOWN: usize = 60;

/// Declares a section of the configuration, one field per key:
///
/// ```text
/// config_section! {
///     /// Documentation of the section.
///     pub struct Example {
///         /// Documentation of the key.
///         pub window: u32 = 10, in 2..=100;
///         /// Must be at most `window`; `below` instead of `at_most` excludes equality.
///         pub errors: u32 = 5, in 1..=100, at_most window;
///         /// Has its type's default.
///         pub name: Option<String>;
///         /// Is a nested section.
///         pub nested: Nested => section;
///     }
/// }
/// ```
///
/// Generates the struct, its `Default`, its serialization (rejects unknown keys, uses defaults for missing keys), its JSON
/// Schema, and its [`ConfigSection`] implementation.
#[macro_export]
macro_rules! config_section {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[$field_meta:meta])*
                $field_vis:vis $field:ident: $type:ty $(= $default:expr)?
                    $(, in $range:expr)? $(, below $below:ident)* $(, at_most $at_most:ident)* $(=> $section:ident)?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::domain::model::settings::config_section!(@default $($default)?),)* }
            }
        }

        impl $crate::domain::model::settings::ConfigSection for $name {
            fn check_ranges(&self, key: &str, problems: &mut Vec<$crate::domain::model::settings::KeyProblem>) {
                $(
                    $($crate::domain::model::settings::check_range(
                        &$crate::domain::model::settings::join(key, stringify!($field)), &self.$field, $range, problems,
                    );)?
                    $($crate::domain::model::settings::config_section!(@$section check_ranges self.$field, key, $field, problems);)?
                )*
                let _ = (key, problems);
            }

            fn check_order(&self, key: &str, problems: &mut Vec<$crate::domain::model::settings::KeyProblem>) {
                $(
                    $($crate::domain::model::settings::check_order(
                        key, (stringify!($field), &self.$field), (stringify!($below), &self.$below), true, problems,
                    );)*
                    $($crate::domain::model::settings::check_order(
                        key, (stringify!($field), &self.$field), (stringify!($at_most), &self.$at_most), false, problems,
                    );)*
                    $($crate::domain::model::settings::config_section!(@$section check_order self.$field, key, $field, problems);)?
                )*
                let _ = (key, problems);
            }

            fn rules(key: &str, rules: &mut Vec<$crate::domain::model::settings::KeyRule>) {
                $(
                    let _below: &[&str] = &[$(stringify!($below),)*];
                    let _at_most: &[&str] = &[$(stringify!($at_most),)*];
                    $(rules.push($crate::domain::model::settings::KeyRule::of::<$type>(
                        $crate::domain::model::settings::join(key, stringify!($field)), $range, _below, _at_most,
                    ));)?
                    $($crate::domain::model::settings::config_section!(@$section rules $type, key, $field, rules);)?
                )*
                let _ = (key, rules);
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@section rules $type:ty, $key:ident, $field:ident, $rules:ident) => {
        <$type as $crate::domain::model::settings::ConfigSection>::rules(
            &$crate::domain::model::settings::join($key, stringify!($field)), $rules,
        )
    };
    (@section $check:ident $value:expr, $key:ident, $field:ident, $problems:ident) => {
        $crate::domain::model::settings::ConfigSection::$check(
            &$value, &$crate::domain::model::settings::join($key, stringify!($field)), $problems,
        )
    };
}
pub use config_section;

/// Group of configuration keys, implemented by `config_section!`.
pub trait ConfigSection {
    /// Adds a problem for each number out of range. `key` is the section's full key; empty at the top level.
    fn check_ranges(&self, key: &str, problems: &mut Vec<KeyProblem>);

    /// Adds a problem for each key that contradicts another key in the section.
    fn check_order(&self, key: &str, problems: &mut Vec<KeyProblem>);

    /// Adds the rule of each number, in declaration order.
    fn rules(key: &str, rules: &mut Vec<KeyRule>);

    /// Returns all problems in the section: numbers out of range, then contradictions.
    fn check(&self, key: &str) -> Vec<KeyProblem> {
        let mut problems = Vec::new();
        self.check_ranges(key, &mut problems);
        self.check_order(key, &mut problems);
        problems
    }
}

impl<S: ConfigSection> ConfigSection for BTreeMap<String, S> {
    fn check_ranges(&self, key: &str, problems: &mut Vec<KeyProblem>) {
        self.iter().for_each(|(name, section)| section.check_ranges(&join(key, &shortened(name)), problems));
    }

    fn check_order(&self, key: &str, problems: &mut Vec<KeyProblem>) {
        self.iter().for_each(|(name, section)| section.check_order(&join(key, &shortened(name)), problems));
    }

    fn rules(key: &str, rules: &mut Vec<KeyRule>) {
        S::rules(&join(key, ANY_NAME), rules);
    }
}

/// Placeholder in a rule's key for a name chosen by the operator.
pub const ANY_NAME: &str = "NAME";

/// Bounds of one number in the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyRule {
    /// Full key, separated by dots. [`ANY_NAME`] is the placeholder for a name that the operator chooses.
    pub key: String,
    /// Minimum value, in seconds for a duration and in dollars for an amount; `None` if unbounded.
    pub min: Option<f64>,
    /// Maximum value, in the same unit; `None` if unbounded.
    pub max: Option<f64>,
    /// Keys of the same section that must have greater values.
    pub below: &'static [&'static str],
    /// Keys of the same section that must have greater or equal values.
    pub at_most: &'static [&'static str],
}

impl KeyRule {
    /// Creates the rule of a number of type `T`.
    pub fn of<T: ConfigNumber>(
        key: String,
        range: impl RangeBounds<T::Bound>,
        below: &'static [&'static str],
        at_most: &'static [&'static str],
    ) -> Self {
        let bound = |bound| Some(T::as_f64(included(bound)?));
        Self { key, min: bound(range.start_bound()), max: bound(range.end_bound()), below, at_most }
    }
}

/// Possibly optional number in a configuration key.
pub trait ConfigNumber {
    /// Type of the range's bounds.
    type Bound: PartialOrd + Copy + fmt::Display;

    /// Returns the number; `None` if the key is omitted.
    fn number(&self) -> Option<Self::Bound>;

    /// Converts a bound to a number for the JSON Schema.
    fn as_f64(bound: Self::Bound) -> f64;
}

/// Implements [`ConfigNumber`] for types that are their own bounds.
macro_rules! config_number {
    ($($type:ty: $as_f64:expr;)*) => {$(
        impl ConfigNumber for $type {
            type Bound = Self;

            fn number(&self) -> Option<Self> {
                Some(*self)
            }

            fn as_f64(bound: Self) -> f64 {
                let as_f64: fn(Self) -> f64 = $as_f64;
                as_f64(bound)
            }
        }
    )*};
}

config_number! {
    u8: f64::from;
    u32: f64::from;
    u64: |bound| bound as f64;
    f64: |bound| bound;
    Duration: |bound| bound.as_seconds() as f64;
    Usd: |bound| bound.0.usd();
}

/// No limit is in every range.
impl ConfigNumber for IterationLimit {
    type Bound = u32;

    fn number(&self) -> Option<u32> {
        self.count()
    }

    fn as_f64(bound: u32) -> f64 {
        f64::from(bound)
    }
}

impl<T: ConfigNumber> ConfigNumber for Option<T> {
    type Bound = T::Bound;

    fn number(&self) -> Option<T::Bound> {
        self.as_ref()?.number()
    }

    fn as_f64(bound: T::Bound) -> f64 {
        T::as_f64(bound)
    }
}

/// Returns the full key of `name` in the section `key`.
pub fn join(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

fn included<T: Copy>(bound: Bound<&T>) -> Option<T> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(*value),
        Bound::Unbounded => None,
    }
}

/// Adds a problem if `value` is out of `range`. NaN is always out of range.
pub fn check_range<T: ConfigNumber>(
    key: &str,
    value: &T,
    range: impl RangeBounds<T::Bound>,
    problems: &mut Vec<KeyProblem>,
) {
    let Some(value) = value.number().filter(|value| !range.contains(value)) else { return };
    let allowed = match (included(range.start_bound()), included(range.end_bound())) {
        (Some(min), Some(max)) => format!("between {min} and {max}"),
        (Some(min), None) => format!("at least {min}"),
        (None, Some(max)) => format!("at most {max}"),
        (None, None) => "a number".to_owned(),
    };
    problems.push(KeyProblem::new(key, format!("is {value}; it must be {allowed}")));
}

/// Adds a problem if a value exceeds another value in its section, or, with `strictly`, if both are equal.
pub fn check_order<A: ConfigNumber, B: ConfigNumber<Bound = A::Bound>>(
    section: &str,
    (key, value): (&str, &A),
    (other, bound): (&str, &B),
    strictly: bool,
    problems: &mut Vec<KeyProblem>,
) {
    let (Some(value), Some(bound)) = (value.number(), bound.number()) else { return };
    if value < bound || (!strictly && value <= bound) {
        return;
    }
    let (key, other) = (join(section, key), join(section, other));
    // The range check reports NaN.
    if value >= bound {
        let rule = if strictly { "it must be below" } else { "it must be at most" };
        let message = format!("`{key}` is {value}; {rule} `{other}`, which is {bound}");
        let order = KeyOrder { other, value: value.to_string(), bound: bound.to_string(), strictly };
        problems.push(KeyProblem { key, order: Some(order), message });
    }
}

/// Problem of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProblem {
    /// Full key, separated by dots.
    pub key: String,
    /// Contradiction to another key; `None` if the value itself is invalid.
    pub order: Option<KeyOrder>,
    /// Sentence with the key, its value and the allowed values.
    pub message: String,
}

/// Contradictory values of two keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOrder {
    /// Key that must be greater.
    pub other: String,
    /// Value of the key with the problem.
    pub value: String,
    /// Value of `other`.
    pub bound: String,
    /// Whether equal values are a contradiction.
    pub strictly: bool,
}

impl KeyProblem {
    /// Creates a problem with `key`. `what` completes a sentence that starts with the key.
    pub fn new(key: impl Into<String>, what: impl fmt::Display) -> Self {
        let key = key.into();
        let message = format!("`{key}` {what}");
        Self { key, order: None, message }
    }

    /// Returns the other key that the value contradicts.
    pub fn other(&self) -> Option<&str> {
        self.order.as_ref().map(|order| order.other.as_str())
    }

    /// Returns the same problem without the name of a key that no file can set: reports the other key instead, or uses the
    /// key's value as the bound.
    pub fn without(self, is_fixed: impl Fn(&str) -> bool) -> Self {
        let Some(KeyOrder { other, value, bound, strictly }) = &self.order else { return self };
        if is_fixed(&self.key) {
            let rule = if *strictly { "above" } else { "at least" };
            Self::new(other.as_str(), format!("is {bound}; it must be {rule} {value}"))
        } else if is_fixed(other) {
            let rule = if *strictly { "below" } else { "at most" };
            Self::new(self.key.as_str(), format!("is {value}; it must be {rule} {bound}"))
        } else {
            self
        }
    }
}

impl fmt::Display for KeyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KeyProblem {}

/// Top-level configuration section whose values can be merged with another file's values.
pub trait Settings: ConfigSection + Serialize + DeserializeOwned + JsonSchema {
    /// Key of the section.
    const GROUP: &'static str;

    /// Adds problems that ranges and orders cannot express. Keys are relative to the section.
    fn check_further(&self, _problems: &mut SectionProblems) {}

    /// Returns these settings overridden by the values of `layer`. Merges sections key by key, and replaces lists.
    ///
    /// # Errors
    /// All problems in the merged settings.
    fn merged(&self, layer: &Value) -> Result<Self, Vec<KeyProblem>> {
        let unreadable =
            |error: serde_json::Error| vec![KeyProblem::new(Self::GROUP, format!("cannot be read: {error}"))];
        let mut value = serde_json::to_value(self).map_err(unreadable)?;
        let schema = || schemars::schema_for!(Self).to_value();
        let mut merge = Merge { problems: SectionProblems::new(Self::GROUP), schema };
        merge.value(&mut value, layer, "");
        if !merge.problems.list.is_empty() {
            return Err(merge.problems.list);
        }
        let merged: Self = serde_json::from_value(value).map_err(unreadable)?;
        let problems = merged.validate();
        if problems.is_empty() { Ok(merged) } else { Err(problems) }
    }

    /// Returns all problems: values out of range, then contradictions, then the problems from `check_further`.
    fn validate(&self) -> Vec<KeyProblem> {
        let mut problems = SectionProblems { section: Self::GROUP, list: self.check(Self::GROUP) };
        self.check_further(&mut problems);
        problems.list
    }
}

/// Collects problems of one section.
#[derive(Debug)]
pub struct SectionProblems {
    section: &'static str,
    list: Vec<KeyProblem>,
}

impl SectionProblems {
    fn new(section: &'static str) -> Self {
        Self { section, list: Vec::new() }
    }

    fn full(&self, key: &str) -> String {
        if key.is_empty() { self.section.to_owned() } else { join(self.section, key) }
    }

    /// Adds a problem with `key`. `what` completes a sentence that starts with the key.
    pub fn add(&mut self, key: &str, what: impl fmt::Display) {
        self.list.push(KeyProblem::new(self.full(key), what));
    }
}

/// State while merging a layer into settings.
struct Merge {
    problems: SectionProblems,
    /// Returns the section's schema, which has only the keys that a file can set.
    schema: fn() -> Value,
}

impl Merge {
    /// Merges `layer` into `base`. `base` has every key, and its values determine the expected types.
    fn value(&mut self, base: &mut Value, layer: &Value, path: &str) {
        match (base, layer) {
            (Value::Object(base), Value::Object(layer)) => {
                for (key, value) in layer {
                    self.key(base, key, value, path);
                }
            }
            (base, layer) if fits(base, layer) => *base = layer.clone(),
            (base, layer) => self.problems.add(path, format!("is {}; expected {}", shown(layer), kind(base))),
        }
    }

    fn key(&mut self, base: &mut Map<String, Value>, key: &str, value: &Value, path: &str) {
        let full = join(path, &shortened(key));
        match base.get_mut(key) {
            Some(slot) => self.value(slot, value, &full),
            None => {
                let schema = (self.schema)();
                let keys = keys_of(&schema, path).into_iter().flatten();
                let near = did_you_mean(key, keys.map(|(name, _)| name.as_str()));
                self.problems.add(&full, format!("is {}; there is no such key{near}", shown(value)));
            }
        }
    }
}

/// Returns the section's keys at `path` in the schema.
fn keys_of<'s>(schema: &'s Value, path: &str) -> Option<&'s Map<String, Value>> {
    let mut section = schema;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        section = section.get("properties")?.get(name)?;
        if let Some(reference) = section.get("$ref").and_then(Value::as_str) {
            section = schema.pointer(reference.strip_prefix('#')?)?;
        }
    }
    section.get("properties")?.as_object()
}

/// Whether `value` has a type that can replace `slot`. Only numbers can be replaced by null.
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
        Value::Number(number) if number.is_u64() => "a non-negative whole number",
        Value::Null | Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list of text",
        Value::Object(_) => "a section",
    }
}

/// Returns a shortened form of a value for error messages.
fn shown(value: &Value) -> String {
    shortened(&value.to_string())
}

/// Returns the first [`MAX_SHOWN`] characters of a text, with control characters replaced.
pub(in crate::domain) fn shortened(text: &str) -> String {
    text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Merges `layer` into `base` key by key. Keys may be missing in both.
pub fn overlay(base: &mut Map<String, Value>, layer: &Map<String, Value>) {
    for (key, value) in layer {
        match (base.get_mut(key), value) {
            (Some(Value::Object(base)), Value::Object(layer)) => overlay(base, layer),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Returns `; did you mean X?` with the candidate most similar to `word`; empty if none is similar.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    const MIN_SIMILARITY: f64 = 0.75;
    let score = |candidate: &str| {
        let (a, b) = (word.to_lowercase(), candidate.to_lowercase());
        strsim::jaro_winkler(&a, &b).max(if b.len() > 3 && a.contains(&b) { 0.8 } else { 0.0 })
    };
    candidates
        .into_iter()
        .map(|candidate| (score(candidate), candidate))
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, candidate)| format!("; did you mean `{candidate}`?"))
}

/// Returns the problems' messages, one per line.
#[cfg(test)]
pub(in crate::domain) fn lines(problems: &[KeyProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Returns the keys of all numbers without a range.
#[cfg(test)]
pub(in crate::domain) fn without_range<S: Settings + Default>() -> Vec<String> {
    fn numbers(value: &Value, path: &str, keys: &mut Vec<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            let path = join(path, key);
            match value {
                Value::Number(_) => keys.push(path),
                _ => numbers(value, &path, keys),
            }
        }
    }
    let (mut keys, mut rules) = (Vec::new(), Vec::new());
    numbers(&serde_json::to_value(S::default()).unwrap(), "", &mut keys);
    S::rules("", &mut rules);
    keys.retain(|key| !rules.iter().any(|rule| rule.key == *key));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn layers_merge_key_by_key() {
        let map = |value: Value| value.as_object().cloned().unwrap();
        let mut base = map(json!({ "a": { "b": 1, "c": [1, 2] }, "d": 1 }));
        overlay(&mut base, &map(json!({ "a": { "c": [3], "e": { "f": 2 } }, "d": { "g": 3 } })));
        assert_eq!(json!(base), json!({ "a": { "b": 1, "c": [3], "e": { "f": 2 } }, "d": { "g": 3 } }));
    }

    #[test]
    fn suggestions_need_similar_words() {
        assert_eq!(did_you_mean("windov", ["window", "decay"]), "; did you mean `window`?");
        assert_eq!(did_you_mean("xyz", ["window", "decay"]), "");
    }

    config_section! {
        /// Section of the tests.
        struct Sample {
            /// A number with a range and an order.
            low: u32 = 2, in 1..=9, below high;
            /// Upper bound of `low`.
            high: u32 = 5, in 1..=9;
            /// A number that can be omitted.
            most: Option<Usd>, in Usd::dollars(1)..;
            /// Sections by name.
            inner: BTreeMap<String, Inner> => section;
        }
    }

    config_section! {
        /// Nested section.
        struct Inner {
            /// A duration.
            wait: Duration = Duration::seconds(60), in Duration::seconds(1)..=Duration::minutes(5);
            /// A key without bounds.
            name: String;
        }
    }

    #[test]
    fn section_has_the_declared_defaults_and_refuses_unknown_keys() {
        let expected = Sample { low: 2, high: 5, most: None, inner: BTreeMap::new() };
        assert_eq!(serde_json::from_value::<Sample>(json!({})).unwrap(), expected);
        assert!(serde_json::from_value::<Sample>(json!({ "lo": 2 })).is_err());
        assert_eq!(Inner::default(), Inner { wait: Duration::minutes(1), name: String::new() });
    }

    #[test]
    fn problems_name_key_value_and_bounds_at_every_depth() {
        let sample: Sample = serde_json::from_value(json!({
            "low": 0, "high": 7, "most": 0.5, "inner": { "a": { "wait": "10m" } }
        }))
        .unwrap();
        insta::assert_snapshot!(lines(&sample.check("top")), @r"
        `top.low` is 0; it must be between 1 and 9
        `top.most` is $0.50; it must be at least $1.00
        `top.inner.a.wait` is 10m; it must be between 1s and 5m
        ");
        let sample = Sample { low: 6, ..Sample::default() };
        insta::assert_snapshot!(lines(&sample.check("")), @"`low` is 6; it must be below `high`, which is 5");
        let [problem] = &sample.check("")[..] else { panic!("one problem") };
        let without = |fixed: &str| problem.clone().without(|key| key == fixed).to_string();
        assert_eq!(without("high"), "`low` is 6; it must be below 5");
        assert_eq!(without("low"), "`high` is 5; it must be above 6");
        assert_eq!(without("most"), problem.to_string());
    }

    #[test]
    fn rules_can_name_nested_keys() {
        let mut rules = Vec::new();
        Sample::rules("top", &mut rules);
        let rows: Vec<_> = rules.iter().map(|rule| (rule.key.as_str(), rule.min, rule.max, rule.below)).collect();
        let none: &[&str] = &[];
        assert_eq!(
            rows,
            [
                ("top.low", Some(1.0), Some(9.0), &["high"][..]),
                ("top.high", Some(1.0), Some(9.0), none),
                ("top.most", Some(1.0), None, none),
                ("top.inner.NAME.wait", Some(1.0), Some(300.0), none),
            ]
        );
    }
}
