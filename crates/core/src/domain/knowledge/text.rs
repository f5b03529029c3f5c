//! Prepares untrusted text for a single line or a frame.

use crate::domain::trust::sanitize;

/// Number of bytes read per character of the result. The excess allows for white space and invisible characters, which are
/// dropped.
const BYTES_A_CHARACTER: usize = 8;

/// Returns the text on one line: only visible characters, without the service's tags, at most `characters` long. Appends an
/// ellipsis if the text was cut.
pub(super) fn line(text: &str, characters: usize) -> String {
    let read = &text[..text.floor_char_boundary(characters.saturating_mul(BYTES_A_CHARACTER))];
    let line = without_tags(&sanitize::visible(read)).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(characters) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None if read.len() < text.len() => format!("{line}…"),
        None => line,
    }
}

/// Returns the end of a text with its line breaks: only visible characters, without the service's tags, at most `bytes`
/// long.
pub(super) fn tail(text: &str, bytes: usize) -> String {
    let from = text.ceil_char_boundary(text.len().saturating_sub(bytes));
    without_tags(&sanitize::visible(&text[from..])).trim().to_owned()
}

/// Replaces `<` with `(` in tags that start with `ralph-`, so that text cannot imitate the service's tags.
pub(super) fn without_tags(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in lower.match_indices('<') {
        let rest = &lower[at + 1..];
        if rest.strip_prefix('/').unwrap_or(rest).starts_with("ralph-") {
            out.push_str(&text[done..at]);
            out.push('(');
            done = at + 1;
        }
    }
    out.push_str(&text[done..]);
    out
}

/// Appends data in a frame: lines between random delimiters.
pub(super) fn frame(out: &mut String, nonce: &str, what: &str, text: &str) {
    out.push_str(&format!("BEGIN {nonce} {what}\n{}\nEND {nonce}\n\n", text.trim()));
}

/// Formats items as list lines: at most `most` items, each on one line of at most `characters` characters.
pub(super) fn list<'a>(items: impl IntoIterator<Item = &'a String>, most: usize, characters: usize) -> String {
    let lines = items.into_iter().map(|item| line(item, characters)).filter(|item| !item.is_empty());
    lines.take(most).map(|item| format!("- {item}\n")).collect()
}
