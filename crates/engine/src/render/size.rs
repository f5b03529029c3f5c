//! Shortens values before rendering, so that texts fit into a comment and Markdown blocks remain complete.

use serde_json::Value;

use crate::domain::trust::{outbound, sanitize};

/// Limits by kind of value.
pub(super) struct SizeLimits {
    /// Maximum number of lines of one check's output.
    output_lines: usize,
    /// Maximum number of bytes of one check's output.
    output_bytes: usize,
    /// Maximum number of rows in an iteration table, which keeps the last ones.
    rows: usize,
    /// Maximum number of entries in any other list, which keeps the first ones.
    items: usize,
    /// Maximum number of bytes of the task's and plan's texts, which keep their start.
    task_bytes: usize,
    /// Maximum number of bytes of any other text.
    text_bytes: usize,
}

/// Limits in the order of attempts. They shorten outputs first, then tables, then the rest. The last limits always suffice.
pub(super) const LEVELS: &[SizeLimits] = &[
    SizeLimits { output_lines: 60, output_bytes: 8_000, rows: 200, items: 100, task_bytes: 20_000, text_bytes: 4_000 },
    SizeLimits { output_lines: 30, output_bytes: 3_000, rows: 200, items: 100, task_bytes: 20_000, text_bytes: 4_000 },
    SizeLimits { output_lines: 10, output_bytes: 1_000, rows: 100, items: 50, task_bytes: 10_000, text_bytes: 4_000 },
    SizeLimits { output_lines: 0, output_bytes: 0, rows: 50, items: 25, task_bytes: 4_000, text_bytes: 1_500 },
    SizeLimits { output_lines: 0, output_bytes: 0, rows: 20, items: 10, task_bytes: 1_500, text_bytes: 300 },
    SizeLimits { output_lines: 0, output_bytes: 0, rows: 10, items: 5, task_bytes: 300, text_bytes: 100 },
];

/// Applies limits to every value. Adds `<name>_left_out`, the number of removed entries, beside each list.
pub(super) fn shrink(value: Value, limits: &SizeLimits) -> Value {
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

/// Whether the values are too large for any rendering attempt.
pub(super) fn is_hopeless(value: &Value) -> bool {
    /// Maximum size factor for JSON values, because names and punctuation make JSON up to three times as long as its text.
    const TIMES: usize = 4;
    value.to_string().len() > TIMES * super::MAX_BYTES
}

fn most(name: &str, limits: &SizeLimits) -> usize {
    if is_history(name) { limits.rows } else { limits.items }
}

/// Whether a list keeps its last entries instead of the first.
fn is_history(name: &str) -> bool {
    matches!(name, "rows" | "recent")
}

fn named(name: &str, value: Value, limits: &SizeLimits) -> Value {
    match value {
        Value::String(text) if matches!(name, "output" | "diff") => {
            Value::String(outbound::truncate_lines(&sanitize::visible(&text), limits.output_lines, limits.output_bytes))
        }
        Value::String(text) if matches!(name, "task_text" | "plan_text") => {
            Value::String(beginning(&text, limits.task_bytes))
        }
        // A shortened address is useless.
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

/// Returns the first lines within `bytes`, followed by a line with the number of omitted bytes.
fn beginning(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let within = &text[..text.floor_char_boundary(bytes)];
    let shown = within.rfind('\n').map_or(within, |end| &within[..end]);
    format!("{shown}\n[{} more bytes are not shown here; the agent receives them]", text.len() - shown.len())
}

/// Cuts a text to at most `bytes` at a character boundary, and appends an ellipsis.
fn shortened(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push('…');
    }
    text
}
