//! Checks a value against a JSON Schema that uses the keywords of the service's schemas.
//!
//! Supported: `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `minItems`,
//! `maxItems`, `minLength`, `maxLength`, `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `anyOf`,
//! `oneOf`, `allOf`, `$ref` within the document. Other keywords are ignored and left to serde. A complete validator
//! would add thirty crates.

use ralph_types::failure::Failure;
use serde_json::{Map, Value};

/// Maximum nesting of schemas, because a schema can refer to itself.
const MAX_DEPTH: usize = 64;

/// Describes the first problem of `value`, with its position as a JSON pointer; `None` if it is valid.
pub(super) fn fault(schema: &Value, value: &Value) -> Option<String> {
    check(schema, schema, value, "", 0).err().map(|failure| failure.to_string())
}

fn check(root: &Value, schema: &Value, value: &Value, place: &str, depth: usize) -> Result<(), Failure> {
    let wrong =
        |what: &str| Err(Failure::new(format!("{}: {what}", if place.is_empty() { "the value" } else { place })));
    let rules = match schema {
        Value::Bool(false) => return wrong("no value is allowed here"),
        Value::Object(rules) => rules,
        _ => return Ok(()),
    };
    if depth > MAX_DEPTH {
        return wrong("it is nested too deeply");
    }
    if let Some(target) = rules.get("$ref").and_then(Value::as_str).and_then(|to| root.pointer(to.strip_prefix('#')?)) {
        check(root, target, value, place, depth + 1)?;
    }
    if let Some(kinds) = rules.get("type") {
        let named = kinds.as_array().map_or(std::slice::from_ref(kinds), Vec::as_slice);
        if !named.iter().filter_map(Value::as_str).any(|kind| is(kind, value)) {
            return wrong(&format!("expected {}, found {}", words(kinds), short(value)));
        }
    }
    if let Some(Value::Array(allowed)) = rules.get("enum")
        && !allowed.iter().any(|one| same(one, value))
    {
        return wrong(&format!("expected one of {}, found {}", Value::from(allowed.clone()), short(value)));
    }
    if let Some(only) = rules.get("const").filter(|only| !same(only, value)) {
        return wrong(&format!("expected {only}, found {}", short(value)));
    }
    sizes(rules, value).or_else(|what| wrong(&what.to_string()))?;
    inside(root, rules, value, place, depth)?;
    joined(root, rules, value, place, depth)
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        // 1.0 is a whole number.
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        _ => true,
    }
}

/// Whether two JSON values are equal; 1 equals 1.0.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same(a, b))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|(name, a)| other.get(name).is_some_and(|b| same(a, b)))
        }
        _ => one == other,
    }
}

/// Checks lengths and numeric limits.
fn sizes(rules: &Map<String, Value>, value: &Value) -> Result<(), Failure> {
    let rule = |name: &str| rules.get(name).and_then(Value::as_f64);
    let count = |length: usize, unit: &str, least: &str, most: &str| {
        let length = length as f64;
        if let Some(least) = rule(least).filter(|least| length < *least) {
            return Err(Failure::new(format!("expected at least {least} {unit}, found {length}")));
        }
        match rule(most).filter(|most| length > *most) {
            Some(most) => Err(Failure::new(format!("expected at most {most} {unit}, found {length}"))),
            None => Ok(()),
        }
    };
    match value {
        Value::String(text) => count(text.chars().count(), "characters", "minLength", "maxLength"),
        Value::Array(items) => count(items.len(), "entries", "minItems", "maxItems"),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            let outside = [
                rule("minimum").filter(|b| number < *b).map(|b| format!("at least {b}")),
                rule("maximum").filter(|b| number > *b).map(|b| format!("at most {b}")),
                rule("exclusiveMinimum").filter(|b| number <= *b).map(|b| format!("more than {b}")),
                rule("exclusiveMaximum").filter(|b| number >= *b).map(|b| format!("less than {b}")),
            ];
            match outside.into_iter().flatten().next() {
                Some(bound) => Err(Failure::new(format!("expected {bound}, found {number}"))),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Checks the fields of an object and the entries of a list.
fn inside(root: &Value, rules: &Map<String, Value>, value: &Value, place: &str, depth: usize) -> Result<(), Failure> {
    match value {
        Value::Object(fields) => {
            let needed = rules.get("required").and_then(Value::as_array).into_iter().flatten();
            if let Some(missing) = needed.filter_map(Value::as_str).find(|name| !fields.contains_key(*name)) {
                return Err(Failure::new(format!("{place}/{missing} is missing")));
            }
            let known = rules.get("properties").and_then(Value::as_object);
            for (name, field) in fields {
                let schema = known.and_then(|known| known.get(name)).or_else(|| rules.get("additionalProperties"));
                if let Some(schema) = schema {
                    check(root, schema, field, &format!("{place}/{name}"), depth + 1)?;
                }
            }
            Ok(())
        }
        Value::Array(items) => {
            let Some(schema) = rules.get("items") else { return Ok(()) };
            let mut numbered = items.iter().enumerate();
            numbered.try_for_each(|(at, item)| check(root, schema, item, &format!("{place}/{at}"), depth + 1))
        }
        _ => Ok(()),
    }
}

/// Checks `allOf`, `anyOf` and `oneOf`.
fn joined(root: &Value, rules: &Map<String, Value>, value: &Value, place: &str, depth: usize) -> Result<(), Failure> {
    let each = |name: &str| rules.get(name).and_then(Value::as_array).map(Vec::as_slice);
    for schema in each("allOf").unwrap_or_default() {
        check(root, schema, value, place, depth + 1)?;
    }
    for (name, only_one) in [("anyOf", false), ("oneOf", true)] {
        let Some(choices) = each(name) else { continue };
        let tried: Vec<_> = choices.iter().map(|schema| check(root, schema, value, place, depth + 1)).collect();
        let fits = tried.iter().filter(|result| result.is_ok()).count();
        let problem = match fits {
            0 => tried
                .into_iter()
                .find_map(Result::err)
                .unwrap_or_else(|| Failure::new(format!("{place}: the schema lists no choices"))),
            1 => continue,
            _ if only_one => Failure::new(format!("{place}: it fits more than one of the choices")),
            _ => continue,
        };
        return Err(problem);
    }
    Ok(())
}

fn words(kinds: &Value) -> String {
    match kinds {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        kind => kind.as_str().unwrap_or_default().to_owned(),
    }
}

/// Returns a short form of a value for a message.
fn short(value: &Value) -> String {
    let text = match value {
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    };
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests;
