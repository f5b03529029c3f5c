//! Damaged copies of a JSON value, for tests of parsers.

use serde_json::{Value, json};

/// For each field down to `deepest` levels and each kind of damage (missing, null, or another type), calls `visit` with the
/// path and a damaged copy of `value`.
pub fn each_damage(value: &Value, deepest: usize, visit: &mut dyn FnMut(&str, &Value)) {
    let mut paths = Vec::new();
    collect(value, "", deepest, &mut paths);
    for path in &paths {
        visit(path, &without(value, path));
        for other in [Value::Null, json!("text"), json!(-7), json!(1.5e300), json!(true), json!([[]]), json!({"a": []})]
        {
            let mut copy = value.clone();
            if let Some(place) = copy.pointer_mut(path) {
                *place = other;
            }
            visit(path, &copy);
        }
    }
}

fn without(value: &Value, path: &str) -> Value {
    let mut copy = value.clone();
    let (parent, key) = path.rsplit_once('/').unwrap_or_default();
    match copy.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(list)) => {
            if let Some(at) = key.parse::<usize>().ok().filter(|at| *at < list.len()) {
                list.remove(at);
            }
        }
        _ => {}
    }
    copy
}

fn collect(value: &Value, at: &str, deepest: usize, paths: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        _ if deepest == 0 => return,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value)).collect()
        }
        Value::Array(list) => list.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        _ => return,
    };
    for (key, value) in children {
        let path = format!("{at}/{key}");
        collect(value, &path, deepest - 1, paths);
        paths.push(path);
    }
}
