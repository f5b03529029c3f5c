//! Text of agents, tools and outsiders for our comments: readable, and without side effects.
//!
//! Simple Markdown is kept (lists, emphasis, code); everything with an effect becomes code or plain text. Sanitizing
//! the result again does not change it.

use std::sync::LazyLock;

use regex::Regex;

use crate::domain::model::characters;
use crate::domain::model::document::DrawnKind;
use crate::domain::trust::sanitize::{longest_run, visible};

/// Beginning of an item, quote or nesting of both.
static CONTAINER: LazyLock<Regex> = LazyLock::new(|| constant(r"^[ \t]*(?:(?:>|[-+*][ \t]|\d{1,9}[.)][ \t])[ \t]*)*"));
/// Mark of a heading.
static HEADING: LazyLock<Regex> = LazyLock::new(|| constant(r"^#{1,6}(?:[ \t]+|$)"));
/// A line that makes a heading of the line above it, or is a rule.
static UNDERLINE: LazyLock<Regex> = LazyLock::new(|| constant(r"^[ \t>]*(?:=+|-+)[ \t]*$"));
/// A picture or link with its address.
static LINK: LazyLock<Regex> = LazyLock::new(|| constant(r"(!?)\[([^\[\]]*)\]\([ \t]*([^()\s]*)[^()]*\)"));
/// Addresses, mentions and references to issues, as they stand in running text; marks of emphasis within are not seen.
static ACTIVE: LazyLock<Regex> = LazyLock::new(|| {
    constant(concat!(
        r#"(?i)(?:(?:https?|ftps?)://|(?:\b|_)(?:mailto|xmpp|data|javascript|vbscript|file):|(?:\b|_)www\.)[^\s<>"'()\[\]{}|\\^`]+"#,
        r"|[\w.+/@\#:~!-]*(?:@[*~]*[\w-]|\#[*~]*\d|GH-[*~]*\d|![*~]*[0-9])[\w.+/@\#:~!-]*"
    ))
});
/// A command to a bot, at the start of a line.
static COMMAND: LazyLock<Regex> = LazyLock::new(|| constant(r"^[/!][A-Za-z][\w./:@#~!+-]*"));

fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// Maximum nesting of links that is read; deeper ones are made plain text.
const NESTED_LINKS: usize = 4;

/// A character that no text has any more.
const CODE: char = '\u{1}';

/// Maximum length of a text, in bytes; the rest is omitted.
const LONGEST: usize = 64 * 1024;

/// A stretch of a line.
enum Piece {
    Text(String),
    Code(String),
}

/// Returns foreign text as Markdown for our comments, to be placed at the start of a line: mentions, references,
/// addresses and other bots' commands become code, images their description, headings plain lines, HTML visible text;
/// hidden characters and our own markers are removed. Fences are closed.
pub fn for_people(text: &str) -> String {
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

/// Whether a line begins as a command to a bot and is not a path.
fn begins_foreign_command(line: &str) -> bool {
    COMMAND.find(line).is_some_and(|found| !found.as_str()[1..].contains('/'))
}

/// Opening of a fence: character, length, language.
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

/// One line outside of fences.
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

/// Whether a line may begin a link definition whose closing bracket is in code or in a later line (forges read the name first).
fn may_define_link(line: &str) -> bool {
    let closed = |line| pieces(line).iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains(']')));
    line.starts_with('[') && (line.contains("]:") || !closed(line))
}

/// Splits a line into text and code spans. Backslashes before punctuation go, and so do backticks that open nothing: both
/// could undo what is made code here.
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

/// The container's marks, and the rest without marks of headings or long runs of tildes.
fn without_heading(text: &str) -> (String, String) {
    let container = CONTAINER.find(text).map_or("", |found| found.as_str());
    let mut rest = &text[container.len()..];
    while let Some(mark) = HEADING.find(rest) {
        rest = rest[mark.end()..].trim_start();
    }
    if rest.len() + container.len() == text.len() {
        return (container.to_owned(), rest.to_owned());
    }
    // A heading's text may begin as a container, and that as a heading again.
    let (inner, rest) = without_heading(rest);
    (format!("{container}{inner}"), rest)
}

/// Pictures become their description, links their text and, in the open, their address.
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

/// Appends text: everything with an effect becomes code, all markup is escaped.
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

/// Escapes what begins a tag or a character reference.
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
        if begins_foreign_command(line) || line.starts_with('@') {
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

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
