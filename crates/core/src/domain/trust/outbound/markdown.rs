//! Makes text of agents, tools and outsiders inert for the service's own comments, and keeps it readable.
//!
//! Simple Markdown is kept (lists, emphasis, code). Everything with an effect becomes code or plain text. Applying the functions
//! twice has the same result as applying them once.

use std::sync::LazyLock;

use regex::Regex;

use crate::domain::model::characters;
use crate::domain::model::document::DrawnKind;
use crate::domain::trust::sanitize::{longest_run, visible};

/// Markers of list items and quotes at the start of a line, possibly nested.
static CONTAINER: LazyLock<Regex> = LazyLock::new(|| constant(r"^[ \t]*(?:(?:>|[-+*][ \t]|\d{1,9}[.)][ \t])[ \t]*)*"));
/// Marker of a heading.
static HEADING: LazyLock<Regex> = LazyLock::new(|| constant(r"^#{1,6}(?:[ \t]+|$)"));
/// Line that turns the line above it into a heading, or that is a horizontal rule.
static UNDERLINE: LazyLock<Regex> = LazyLock::new(|| constant(r"^[ \t>]*(?:=+|-+)[ \t]*$"));
/// Image or link with its address.
static LINK: LazyLock<Regex> = LazyLock::new(|| constant(r"(!?)\[([^\[\]]*)\]\([ \t]*([^()\s]*)[^()]*\)"));
/// URLs, mentions and references to issues in running text. Markers of emphasis within them are ignored.
static ACTIVE: LazyLock<Regex> = LazyLock::new(|| {
    constant(concat!(
        r#"(?i)(?:(?:https?|ftps?)://|(?:\b|_)(?:mailto|xmpp|data|javascript|vbscript|file):|(?:\b|_)www\.)[^\s<>"'()\[\]{}|\\^`]+"#,
        r"|[\w.+/@\#:~!-]*(?:@[*~]*[\w-]|\#[*~_]*\d|GH-[*~_]*\d|![*~_]*[0-9])[\w.+/@\#:~!-]*"
    ))
});
/// Command to a bot, at the start of a line.
static COMMAND: LazyLock<Regex> = LazyLock::new(|| constant(r"^[/!][A-Za-z][\w./:@#~!+-]*"));

fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// Maximum nesting of links that is parsed; deeper ones become plain text.
const NESTED_LINKS: usize = 4;

/// Maximum number of conversions of a text. One conversion can leave a character reference for the next: `&\#64;`.
const PASSES: usize = 4;

/// Internal marker for code. Input texts never contain it.
const CODE: char = '\u{1}';

/// Maximum length of a text, in bytes; the rest is omitted.
const LONGEST: usize = 64 * 1024;

/// Part of a line: text or a code span.
enum Piece {
    Text(String),
    Code(String),
}

/// Converts foreign text to Markdown for the service's comments, to be inserted at the start of a line. Mentions, references,
/// URLs and other bots' commands become code, images become their descriptions, headings become plain lines, and HTML becomes
/// visible text. Hidden characters and the service's own markers are removed, and fences are closed.
pub fn for_people(text: &str) -> String {
    let mut safe = converted(text);
    for _ in 1..PASSES {
        let again = converted(&safe);
        if again == safe {
            break;
        }
        safe = again;
    }
    safe
}

fn converted(text: &str) -> String {
    let text = characters::decoded(&text[..text.floor_char_boundary(LONGEST)]);
    let mut out: Vec<String> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match opening(line) {
            Some((mark, length, language)) => {
                let inside: Vec<&str> = lines.by_ref().take_while(|line| !closes(line, mark, length)).collect();
                out.push(fence(&inside.join("\n"), language));
            }
            None => {
                let line = harmless_line(line);
                if !UNDERLINE.is_match(&line) {
                    out.push(line);
                }
            }
        }
    }
    out.join("\n").trim_end().to_owned()
}

/// Whether a line starts with a command to a bot. A path is not a command.
fn begins_foreign_command(line: &str) -> bool {
    COMMAND.find(line).is_some_and(|found| !found.as_str()[1..].contains('/'))
}

/// Parses the opening line of a fence; returns its character, its length and the language.
fn opening(line: &str) -> Option<(char, usize, &str)> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = line.trim_start_matches(mark);
    let length = line.len() - info.len();
    (length >= 3 && !(mark == '`' && info.contains('`'))).then_some((mark, length, info.trim()))
}

fn closes(line: &str, mark: char, length: usize) -> bool {
    let line = line.trim();
    line.len() >= length && line.chars().all(|c| c == mark)
}

/// Makes one line outside of fences inert.
fn harmless_line(line: &str) -> String {
    let mut pieces = pieces(line.trim_end());
    let mut out = String::with_capacity(line.len() + 8);
    let mut container_end = 0;
    let code_follows = pieces.len() > 1;
    if let Some(Piece::Text(first)) = pieces.first_mut() {
        let mut plain = without_links(first);
        if code_follows {
            // Stands for the code, so that the text's end is not taken for the line's.
            plain.push(CODE);
        }
        let (container, rest) = without_heading(&plain);
        out.push_str(&container);
        container_end = out.len();
        *first = rest.trim_end_matches(CODE).to_owned();
        if let Some(command) = COMMAND.find(first) {
            let end = command.end();
            push_code(&mut out, &first[..end]);
            *first =
                format!("{}{}", if first[end..].starts_with(char::is_whitespace) { "" } else { " " }, &first[end..]);
        }
    }
    for piece in &pieces {
        match piece {
            Piece::Text(text) => push_text(&mut out, &without_links(text)),
            Piece::Code(code) => {
                if out.ends_with(['`', '\\']) {
                    out.push(' ');
                }
                out.push_str(code);
            }
        }
    }
    out.truncate(out.trim_end().len());
    if may_define_link(out.get(container_end..).unwrap_or_default()) {
        out.insert(container_end, '\\');
    }
    out
}

/// Whether a line may start a link definition whose closing bracket is in code or in a later line. Forges parse the name of a
/// definition before code.
fn may_define_link(line: &str) -> bool {
    let closed = |line| pieces(line).iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains(']')));
    line.starts_with('[') && (line.contains("]:") || !closed(line))
}

/// Splits a line into text and code spans. Backslashes before punctuation and unmatched backticks are removed, because both could
/// undo the conversion to code.
fn pieces(line: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        match c {
            '\\' => {
                let after = rest.trim_start_matches('\\');
                let run = rest.len() - after.len();
                match after.chars().next() {
                    Some('`') => {
                        text.push('\'');
                        rest = &after[1..];
                    }
                    Some(next) if next.is_ascii_punctuation() => rest = after,
                    _ => {
                        text.push_str(&rest[..run]);
                        rest = after;
                    }
                }
            }
            '`' => {
                let after = rest.trim_start_matches('`');
                let run = rest.len() - after.len();
                match closing(after, run) {
                    Some(end) => {
                        pieces.push(Piece::Text(std::mem::take(&mut text)));
                        pieces.push(Piece::Code(rest[..run + end + run].to_owned()));
                        rest = &after[end + run..];
                    }
                    None => {
                        text.push_str(&"'".repeat(run));
                        rest = after;
                    }
                }
            }
            c => {
                text.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    pieces.push(Piece::Text(text));
    pieces
}

/// Returns the byte offset in `text` of a run of exactly `run` backticks.
fn closing(text: &str, run: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(start) = text[at..].find('`') {
        let begin = at + start;
        let length = text[begin..].len() - text[begin..].trim_start_matches('`').len();
        if length == run {
            return Some(begin);
        }
        at = begin + length;
    }
    None
}

/// Splits a line into the markers of lists and quotes, and the rest without markers of headings and long runs of tildes.
fn without_heading(text: &str) -> (String, String) {
    let container = CONTAINER.find(text).map_or("", |found| found.as_str());
    let mut rest = &text[container.len()..];
    while let Some(mark) = HEADING.find(rest) {
        rest = rest[mark.end()..].trim_start();
    }
    if rest.len() + container.len() == text.len() {
        return (container.to_owned(), rest.to_owned());
    }
    // A heading's text may start as a container, and that as a heading again.
    let (inner, rest) = without_heading(rest);
    (format!("{container}{inner}"), rest)
}

/// Replaces images by their descriptions, and links by their texts followed by their visible addresses.
fn without_links(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..NESTED_LINKS {
        if !LINK.is_match(&text) {
            break;
        }
        let replaced = LINK.replace_all(&text, |found: &regex::Captures<'_>| {
            let (words, address) = (found[2].trim(), &found[3]);
            let open = found[1].is_empty() && (address.starts_with("http://") || address.starts_with("https://"));
            if open && words != address && !words.is_empty() {
                format!("{words} ({address})")
            } else if open {
                address.to_owned()
            } else {
                words.to_owned()
            }
        });
        text = replaced.into_owned();
    }
    for (mark, harmless) in [("](", "] ("), ("][", "] ["), ("]:", "] :"), ("![", "! ["), ("[[", "[ ["), ("~~~", "~~")] {
        while text.contains(mark) {
            text = text.replace(mark, harmless);
        }
    }
    text
}

/// Appends text to `out`. Parts with an effect become code, and all markup is escaped.
fn push_text(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(found) = ACTIVE.find(rest) {
        push_escaped(out, &rest[..found.start()]);
        let token = found.as_str();
        let address = token.trim_end_matches(['.', ',', ':', ';', '!', '?']);
        push_code(out, address);
        rest = &rest[found.start() + address.len()..];
        if address.is_empty() {
            let next = rest.chars().next().map_or(0, char::len_utf8);
            push_escaped(out, &rest[..next]);
            rest = &rest[next..];
        }
    }
    push_escaped(out, rest);
}

fn push_code(out: &mut String, text: &str) {
    if text.is_empty() {
        return;
    }
    if out.ends_with(['`', '\\']) {
        out.push(' ');
    }
    out.push('`');
    out.push_str(text);
    out.push('`');
}

/// Appends text to `out`, with characters escaped that start a tag or a character reference.
fn push_escaped(out: &mut String, text: &str) {
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' if characters.peek().is_some_and(|next| next.is_ascii_alphanumeric() || *next == '#') => {
                out.push_str("&amp;");
            }
            c => out.push(c),
        }
    }
}

/// Returns `for_people` on one line, with runs of white space replaced by one space.
pub fn inline(text: &str) -> String {
    let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    for_people(&line).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns `inline` for a table cell, with pipes escaped.
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

/// Returns a text as inline code on one line; empty for an empty text.
pub fn inline_code(text: &str) -> String {
    let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return String::new();
    }
    let ticks = "`".repeat(longest_run(&line, '`') + 1);
    let pad = if line.starts_with('`') || line.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{line}{pad}{ticks}")
}

/// Returns a fenced code block, whose fence is longer than any run of backticks in it. Invalid characters of `language` are
/// removed, and languages that a forge renders as diagrams are dropped. The block ends without a line feed.
pub fn fence(text: &str, language: &str) -> String {
    let language: String =
        language.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '#')).take(20).collect();
    let language = if DrawnKind::of_language(&language).is_some() { "text" } else { &language };
    let content = visible(text);
    let ticks = "`".repeat(longest_run(&content, '`').max(2) + 1);
    let mut block = format!("{ticks}{language}\n");
    for line in content.trim_end().lines() {
        // Some bots look for their commands at the start of any line, also of quoted output.
        if begins_foreign_command(line) || line.starts_with('@') {
            block.push(' ');
        }
        block.push_str(line.trim_end());
        block.push('\n');
    }
    block.push_str(&ticks);
    block
}

/// Returns the last lines of a text, at most `max_lines` lines and `max_bytes` bytes, after a line that states the number of
/// omitted lines. A text within both limits is unchanged. A single line that is too long loses its start.
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
        return format!("… {} lines and the start of this line left out\n{tail}", first - 1);
    }
    let noun = if first == 1 { "line" } else { "lines" };
    format!("… {first} {noun} left out\n{}", lines[first..].join("\n")).trim_end().to_owned()
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
