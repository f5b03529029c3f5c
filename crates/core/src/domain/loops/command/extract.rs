//! Extraction of command lines from a comment: plain text at the beginning of a line in a top-level paragraph.

use comrak::Arena;
use comrak::nodes::NodeValue;

use super::PREFIX;
use crate::domain::trust::sanitize::document;

/// Command line, and the text between it and the next command or the end of the comment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine<'a> {
    /// Line from the prefix on, without its line break.
    pub line: &'a str,
    /// Text after the line.
    pub after: &'a str,
}

/// Returns the command lines of a comment, in order.
pub(super) fn command_lines(comment: &str) -> Vec<CommandLine<'_>> {
    if !comment.contains(PREFIX) {
        return Vec::new();
    }
    let starts = line_starts(comment);
    let ends = starts.iter().skip(1).copied().chain([comment.len()]);
    starts
        .iter()
        .zip(ends)
        .filter_map(|(&start, end)| {
            let part = comment.get(start..end)?;
            let line_end = part.find(['\n', '\r']).unwrap_or(part.len());
            Some(CommandLine { line: part.get(..line_end)?, after: part.get(line_end..)? })
        })
        .collect()
}

/// Returns the byte offsets at which a command can begin.
fn line_starts(comment: &str) -> Vec<usize> {
    let arena = Arena::new();
    let Some(root) = document::parse(&arena, comment) else { return Vec::new() };
    let lines = line_offsets(comment);
    let paragraphs = root.children().filter(|node| matches!(node.data().value, NodeValue::Paragraph));
    let mut starts: Vec<usize> = paragraphs
        .flat_map(|paragraph| paragraph.children())
        .filter_map(|node| {
            let data = node.data();
            let NodeValue::Text(text) = &data.value else { return None };
            let offset = *lines.get(data.sourcepos.start.line.wrapping_sub(1))?;
            // Text counts only where it stands in the source as it is shown.
            let first = text.split_ascii_whitespace().next();
            (data.sourcepos.start.column == 1 && first == Some(PREFIX) && begins_command(comment, offset))
                .then_some(offset)
        })
        .collect();
    starts.dedup();
    starts
}

/// Returns the byte offsets of the lines of a text.
fn line_offsets(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let ends = (0..bytes.len()).filter(|at| match bytes[*at] {
        b'\n' => true,
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    });
    std::iter::once(0).chain(ends.map(|at| at + 1)).collect()
}

/// Whether there is the beginning of a line at `offset`, and the line is a command.
fn begins_command(comment: &str, offset: usize) -> bool {
    let (Some(before), Some(rest)) = (comment.get(..offset), comment.get(offset..)) else {
        return false;
    };
    let line_begins = before.is_empty() || before.ends_with(['\n', '\r']);
    let Some(rest) = rest.strip_prefix(PREFIX) else {
        return false;
    };
    line_begins && (rest.is_empty() || rest.starts_with([' ', '\n', '\r']))
}
