//! JSON Schemas of both configuration files.

use std::sync::LazyLock;

use serde_json::Value as Json;

use super::operator::OperatorFile;
use super::repository::RepositoryFile;
use crate::agent::{OutputFormat, presets};
use crate::domain::model::settings::{ANY_NAME, ConfigSection, KeyRule, Settings as _};
use crate::domain::supervision::control::ControlSettings;
use crate::domain::supervision::operators_alone;
use crate::domain::supervision::oversight::OversightSettings;
use crate::domain::supervision::strategy::StrategySettings;

/// Returns the JSON Schema of the operator's file.
pub fn operator() -> Json {
    with_bounds(operator_types().clone(), operator_rules())
}

/// Returns the JSON Schema of the repository's file, without the keys that only the operator's file can set.
pub fn repository() -> Json {
    let mut schema = with_bounds(repository_types().clone(), repository_rules());
    for key in operators_alone() {
        let property = find(&schema, &key);
        if let Some((properties, name)) = property.as_deref().and_then(|property| property.rsplit_once('/'))
            && let Some(Json::Object(properties)) = schema.pointer_mut(properties)
        {
            properties.shift_remove(name);
        }
    }
    schema
}

/// Returns the schema of the operator's file without bounds, which are checked after merging all layers. It is cached,
/// because creating it takes longer than reading a file.
pub(super) fn operator_types() -> &'static Json {
    static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
        let mut schema = schemars::schema_for!(OperatorFile).to_value();
        if let Some(Json::Object(format)) = schema.pointer_mut("/$defs/OutputFormatName") {
            format.insert("enum".to_owned(), OutputFormat::all().map(OutputFormat::name).collect());
        }
        fill_in_presets(&mut schema);
        drop_section_defaults(&mut schema);
        schema
    });
    &SCHEMA
}

/// Replaces placeholders for names of presets in all descriptions.
fn fill_in_presets(schema: &mut Json) {
    match schema {
        Json::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Json::String(text) if name == "description" => *text = presets::fill_in_names(text),
                    value => fill_in_presets(value),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(fill_in_presets),
        _ => {}
    }
}

/// Removes the defaults of sections, because they repeat the defaults of their keys and contain values that no file can set.
fn drop_section_defaults(schema: &mut Json) {
    match schema {
        Json::Object(fields) => {
            if fields.get("default").and_then(Json::as_object).is_some_and(|section| !section.is_empty()) {
                fields.shift_remove("default");
            }
            for (name, value) in fields {
                match value {
                    // A key can be named `default`.
                    Json::Object(keys) if name == "properties" => keys.values_mut().for_each(drop_section_defaults),
                    value => drop_section_defaults(value),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(drop_section_defaults),
        _ => {}
    }
}

/// Returns the schema of the repository's file without bounds. It includes the keys reserved for the operator's file, which
/// a later check rejects with a specific message. It is cached.
pub(super) fn repository_types() -> &'static Json {
    static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
        let mut schema = schemars::schema_for!(RepositoryFile).to_value();
        drop_section_defaults(&mut schema);
        schema
    });
    &SCHEMA
}

/// Returns the bounds of all numbers of the operator's file.
pub(super) fn operator_rules() -> Vec<KeyRule> {
    rules_of::<OperatorFile>()
}

/// Returns the bounds of all numbers of the repository's file.
pub(super) fn repository_rules() -> Vec<KeyRule> {
    rules_of::<RepositoryFile>()
}

/// Returns the rules of a file. A file can contain supervision sections partially, so its type does not contain their rules.
fn rules_of<F: ConfigSection>() -> Vec<KeyRule> {
    let mut rules = Vec::new();
    F::rules("", &mut rules);
    ControlSettings::rules(ControlSettings::GROUP, &mut rules);
    OversightSettings::rules(OversightSettings::GROUP, &mut rules);
    StrategySettings::rules(StrategySettings::GROUP, &mut rules);
    rules
}

fn with_bounds(mut schema: Json, rules: Vec<KeyRule>) -> Json {
    for rule in rules {
        let property = find(&schema, &rule.key).and_then(|pointer| schema.pointer_mut(&pointer));
        let Some(Json::Object(property)) = property else { continue };
        for (keyword, bound) in [("minimum", rule.min), ("maximum", rule.max)] {
            property.extend(bound.map(|bound| (keyword.to_owned(), number(bound))));
        }
    }
    schema
}

/// Returns a JSON number, without a decimal point for a whole number.
pub(super) fn number(value: f64) -> Json {
    if value.fract() == 0.0 { Json::from(value as i64) } else { Json::from(value) }
}

/// Returns the pointer to the schema of a key (`oversight.stuck.window`).
pub(super) fn find(schema: &Json, key: &str) -> Option<String> {
    let mut at = String::new();
    for step in key.split('.') {
        if let Some(reference) = schema.pointer(&at)?.get("$ref").and_then(Json::as_str) {
            at = reference.trim_start_matches('#').to_owned();
        }
        at = if step == ANY_NAME { format!("{at}/additionalProperties") } else { format!("{at}/properties/{step}") };
    }
    schema.pointer(&at).map(|_| at)
}
