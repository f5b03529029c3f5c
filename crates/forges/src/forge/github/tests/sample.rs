//! Sample responses: the given fields, and minimal valid values for all others.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::forge::contract::contract_file;

fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let bytes = contract_file("github-rest-subset.json");
        serde_json::from_slice(&bytes).unwrap()
    })
}

/// Returns a response of an operation with the given content; `template` is a path of the description.
pub(super) fn answer(method: &str, template: &str, status: u16, content: Value) -> Value {
    let operation = &document()["paths"][template][method.to_lowercase()];
    let response = resolved(&operation["responses"][status.to_string()]);
    build(&response["content"]["application/json"]["schema"], Some(&content))
}

fn resolved(value: &Value) -> &Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(pointer) => resolved(document().pointer(pointer.trim_start_matches('#')).unwrap()),
        None => value,
    }
}

fn build(schema: &Value, content: Option<&Value>) -> Value {
    let schema = resolved(schema);
    if let Some(content) = content.filter(|content| !content.is_object() && !content.is_array()) {
        return content.clone();
    }
    if content.is_none() && schema["nullable"] == true {
        return Value::Null;
    }
    if let Some(choices) = ["oneOf", "anyOf", "allOf"].iter().find_map(|key| schema[*key].as_array()) {
        let fits = |choice: &&Value| {
            let choice = resolved(choice);
            content.is_none_or(|content| match content {
                Value::Array(_) => choice["type"] == "array",
                _ => choice["type"] != "array" && choice["type"] != "string",
            })
        };
        return build(choices.iter().find(fits).unwrap_or(&choices[0]), content);
    }
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("array") => {
            let items = content.and_then(Value::as_array).cloned().unwrap_or_default();
            items.iter().map(|item| build(&schema["items"], Some(item))).collect()
        }
        Some("string") => match schema["format"].as_str() {
            Some("date-time") => json!("2026-01-01T00:00:00Z"),
            Some("uri") => json!("https://github.test/x"),
            _ => json!("x"),
        },
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(false),
        _ => object(schema, content),
    }
}

fn object(schema: &Value, content: Option<&Value>) -> Value {
    let mut built = Map::new();
    let content = content.and_then(Value::as_object);
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let own = content.and_then(|content| content.get(name));
        built.insert(name.to_owned(), build(&schema["properties"][name], own));
    }
    for (name, value) in content.into_iter().flatten() {
        built.insert(name.clone(), build(&schema["properties"][name], Some(value)));
    }
    Value::Object(built)
}
