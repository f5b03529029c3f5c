//! Extraction of command lines from a comment: text at the start of a line in a top-level paragraph.

use std::sync::LazyLock;

use regex::Regex;

use super::PREFIX;
use crate::domain::model::document::{Document, DocumentElement, DocumentPart, UnseenKind};
use crate::domain::trust::sanitize::document::write_with_addresses;

/// Line above a message that a mail quotes.
static QUOTED_MAIL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^on\b.*\bwrote:$").expect("a constant pattern"));

/// Command line, and the text between it and the next command or the end of the comment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// Line from the prefix on.
    pub line: String,
    /// Text after the line, with the line break before it.
    pub after: String,
}

/// Returns the command lines of a comment, in order. A comment with hidden characters, which can change the order in which text is
/// displayed, has none.
pub(super) fn command_lines(comment: &Document) -> Vec<CommandLine> {
    let parts = &comment.parts;
    let starts = line_starts(comment);
    let ends = starts.iter().skip(1).copied().chain([parts.len()]);
    let commands = starts.iter().zip(ends).map(|(&start, end)| {
        let line_end = line_end(parts, start);
        let line = write_with_addresses(&parts[start..line_end]).replace('\n', " ");
        let mut rest = parts[line_end..end].to_vec();
        let mut gap = "\n\n";
        match rest.first() {
            // The paragraph continues after the line.
            Some(DocumentPart::Break) => {
                rest[0] = DocumentPart::Open(DocumentElement::Paragraph);
                gap = "\n";
            }
            Some(_) => drop(rest.remove(0)),
            None => {}
        }
        CommandLine { line, after: format!("{gap}{}", write_with_addresses(&rest)) }
    });
    commands.collect()
}

/// Returns the text of a comment before its first command.
pub(super) fn text_before(comment: &Document) -> String {
    let end = line_starts(comment).first().copied().unwrap_or(comment.parts.len());
    write_with_addresses(&comment.parts[..end])
}

/// Returns the indices of the parts at which a command starts.
fn line_starts(comment: &Document) -> Vec<usize> {
    let parts = &comment.parts;
    let mut starts = Vec::new();
    if comment.unseen.counts.contains_key(&UnseenKind::Character) {
        return starts;
    }
    let (mut depth, mut in_paragraph, mut line_begins) = (0_usize, false, false);
    for (at, part) in parts.iter().enumerate() {
        match part {
            DocumentPart::Open(element) => {
                in_paragraph = if depth == 0 { *element == DocumentElement::Paragraph } else { in_paragraph };
                line_begins = depth == 0;
                depth += 1;
            }
            DocumentPart::Close(_) => {
                depth = depth.saturating_sub(1);
                line_begins = false;
            }
            DocumentPart::Break => line_begins = depth == 1,
            DocumentPart::Text(text) if line_begins && in_paragraph && depth == 1 => {
                let text = text.trim_start_matches(' ');
                if QUOTED_MAIL.is_match(&write_with_addresses(&parts[at..line_end(parts, at)])) {
                    break;
                }
                let rest = text.strip_prefix(PREFIX);
                if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')) {
                    starts.push(at);
                }
                line_begins = text.is_empty();
            }
            _ => line_begins = false,
        }
    }
    starts
}

/// Returns the index of the part that ends the line at `start`, which is in a paragraph.
fn line_end(parts: &[DocumentPart], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, part) in parts.iter().enumerate().skip(start) {
        match part {
            DocumentPart::Open(_) => depth += 1,
            DocumentPart::Close(_) if depth == 0 => return at,
            DocumentPart::Close(_) => depth -= 1,
            DocumentPart::Break => return at,
            _ => {}
        }
    }
    parts.len()
}
