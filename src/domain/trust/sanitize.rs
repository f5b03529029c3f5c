//! Sanitization of foreign text, for comments and for prompts.
//!
//! `for_people` and its variants are for text of agents, tools and outsiders in our comments; `for_prompt` is for text
//! of a forge in prompts. Neither judges content: they remove what has an effect (mentions, references, commands,
//! images, markup) and what people do not see.

pub mod document;
mod people;

#[cfg(test)]
mod tests;

pub use people::for_people;

use crate::domain::model::document::DrawnKind;

/// Visible part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompted {
    /// Visible text, similar to Markdown, trimmed.
    pub text: String,
    /// Number of parts omitted because the forge does not show them.
    pub hidden_removed: usize,
}

/// Returns the text of Markdown as people see it on the forge's page: without comments, attributes, definitions,
/// invisible characters, hidden elements, and text that is moved off the screen.
pub fn for_prompt(markdown: &str) -> Prompted {
    let document = document::read(markdown);
    Prompted { text: document::write(&document), hidden_removed: document.unseen.hidden() as usize }
}

/// Removes terminal sequences, control, bidirectional and invisible characters; keeps line feeds and tabs.
pub fn visible(text: &str) -> String {
    crate::domain::model::characters::visible(text).0
}

/// Returns `for_people` on one line: any white space becomes one space.
pub fn inline(text: &str) -> String {
    let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    for_people(&line).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns `inline` for a cell of a table: pipes are escaped.
pub fn table_cell(text: &str) -> String {
    let line = inline(text);
    let mut cell = String::with_capacity(line.len());
    for c in line.chars() {
        if c == '|' {
            cell.truncate(cell.trim_end_matches('\\').len());
            cell.push('\\');
        }
        cell.push(c);
    }
    // A backslash at the very end would escape the pipe that closes the cell.
    cell.truncate(cell.trim_end_matches('\\').len());
    cell
}

/// Returns one line of code; nothing for empty text.
pub fn inline_code(text: &str) -> String {
    let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return String::new();
    }
    let ticks = "`".repeat(longest_run(&line, '`') + 1);
    let pad = if line.starts_with('`') || line.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{line}{pad}{ticks}")
}

/// Returns a fenced block whose fence is longer than any run of backticks inside. `language` is reduced to valid
/// characters; languages that a forge renders as diagrams are dropped. Ends without a line feed.
pub fn fence(text: &str, language: &str) -> String {
    let language: String =
        language.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '#')).take(20).collect();
    let language = if DrawnKind::of_language(&language).is_some() { "text" } else { &language };
    let content = visible(text);
    let ticks = "`".repeat(longest_run(&content, '`').max(2) + 1);
    let mut block = format!("{ticks}{language}\n");
    for line in content.trim_end().lines() {
        // Some bots look for their commands at the start of any line, also of quoted output.
        if people::begins_foreign_command(line) || line.starts_with('@') {
            block.push(' ');
        }
        block.push_str(line.trim_end());
        block.push('\n');
    }
    block.push_str(&ticks);
    block
}

/// Returns the last `max_lines` lines within `max_bytes`, after a line with the number of omitted lines; shorter text
/// is unchanged. A single line that is too long is cut at its beginning.
pub fn truncate_lines(text: &str, max_lines: usize, max_bytes: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut first = lines.len();
    let mut bytes = 0;
    while first > 0 && lines.len() - first < max_lines && bytes + lines[first - 1].len() < max_bytes {
        first -= 1;
        bytes += lines[first].len() + 1;
    }
    if first == 0 {
        return text.trim_end_matches(['\n', '\r']).to_owned();
    }
    if first == lines.len() && max_lines > 0 {
        let last = lines[first - 1];
        let tail = last.get(last.ceil_char_boundary(last.len().saturating_sub(max_bytes))..).unwrap_or_default();
        return format!("… {} lines and the beginning of this one left out\n{tail}", first - 1);
    }
    let noun = if first == 1 { "line" } else { "lines" };
    format!("… {first} {noun} left out\n{}", lines[first..].join("\n")).trim_end().to_owned()
}

/// Returns a title: one line of at most 120 characters without references, mentions or words that CI systems obey.
pub fn title(text: &str) -> String {
    const CHARACTERS: usize = 120;
    let mut plain = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    for (word, instead) in
        [("[skip ci]", ""), ("[ci skip]", ""), ("[no ci]", ""), ("[skip actions]", ""), ("***NO_CI***", "")]
    {
        while let Some(at) = plain.to_ascii_lowercase().find(&word.to_ascii_lowercase()) {
            plain.replace_range(at..at + word.len(), instead);
        }
    }
    let mut title = String::with_capacity(plain.len());
    let mut characters = plain.chars().peekable();
    while let Some(c) = characters.next() {
        let next = characters.peek().copied().unwrap_or(' ');
        match c {
            '@' if next.is_ascii_alphanumeric() => {}
            '#' if next.is_ascii_digit() => title.push_str("no. "),
            c => title.push(c),
        }
    }
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    match title.char_indices().nth(CHARACTERS) {
        Some((at, _)) => format!("{}…", title[..at].trim_end()),
        None => title,
    }
}

/// Length of the longest run of `wanted`.
fn longest_run(text: &str, wanted: char) -> usize {
    text.split(|c| c != wanted).map(str::len).max().unwrap_or(0)
}
