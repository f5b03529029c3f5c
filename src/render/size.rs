//! Keeps texts within what is posted: values are shortened before they are rendered, so no block is ever cut.

use serde_json::Value;

use crate::domain::trust::sanitize;

/// How much of each sort of value is shown.
pub(super) struct Limits {
    /// Lines of one check's output.
    output_lines: usize,
    /// Bytes of one check's output.
    output_bytes: usize,
    /// Rows of the table of iterations: the last ones.
    rows: usize,
    /// Entries of any other list: the first ones.
    items: usize,
    /// Bytes of any other text.
    text_bytes: usize,
}

/// Outputs give way first, then rows, then the rest. The last level fits whatever it is given.
pub(super) const LEVELS: &[Limits] = &[
    Limits { output_lines: 60, output_bytes: 8_000, rows: 200, items: 100, text_bytes: 4_000 },
    Limits { output_lines: 30, output_bytes: 3_000, rows: 200, items: 100, text_bytes: 4_000 },
    Limits { output_lines: 10, output_bytes: 1_000, rows: 100, items: 50, text_bytes: 4_000 },
    Limits { output_lines: 0, output_bytes: 0, rows: 50, items: 25, text_bytes: 1_500 },
    Limits { output_lines: 0, output_bytes: 0, rows: 20, items: 10, text_bytes: 300 },
    Limits { output_lines: 0, output_bytes: 0, rows: 10, items: 5, text_bytes: 100 },
];

/// Applies limits to every value. A list that was shortened has `<name>_left_out` beside it.
pub(super) fn shrink(value: Value, limits: &Limits) -> Value {
    match value {
        Value::Object(map) => {
            let mut shrunk = serde_json::Map::new();
            for (name, value) in map {
                if let Value::Array(items) = &value {
                    let left_out = items.len().saturating_sub(most(&name, limits));
                    shrunk.insert(format!("{name}_left_out"), left_out.into());
                }
                let value = named(&name, value, limits);
                shrunk.insert(name, value);
            }
            Value::Object(shrunk)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(|item| shrink(item, limits)).collect()),
        Value::String(text) => Value::String(shortened(text, limits.text_bytes)),
        other => other,
    }
}

/// Whether rendering can be spared because the values alone are far too long.
pub(super) fn is_hopeless(value: &Value) -> bool {
    /// Names and punctuation make JSON up to thrice as long as the text that is made of it.
    const TIMES: usize = 4;
    value.to_string().len() > TIMES * super::MAX_BYTES
}

fn most(name: &str, limits: &Limits) -> usize {
    if is_history(name) { limits.rows } else { limits.items }
}

/// Lists of which the last entries matter.
fn is_history(name: &str) -> bool {
    matches!(name, "rows" | "recent")
}

fn named(name: &str, value: Value, limits: &Limits) -> Value {
    match value {
        Value::String(text) if name == "output" => {
            Value::String(sanitize::truncate_lines(&sanitize::visible(&text), limits.output_lines, limits.output_bytes))
        }
        // Addresses are short or wrong, and worth nothing when cut.
        Value::String(text) if name == "url" => Value::String(if text.len() > 500 { String::new() } else { text }),
        Value::Array(mut items) => {
            let most = most(name, limits);
            if is_history(name) {
                items.drain(..items.len().saturating_sub(most));
            }
            items.truncate(most);
            Value::Array(items.into_iter().map(|item| shrink(item, limits)).collect())
        }
        other => shrink(other, limits),
    }
}

/// At most `bytes`, cut at a character, with a sign that it goes on.
fn shortened(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push('…');
    }
    text
}
