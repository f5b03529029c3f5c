//! Finds the lines of a comment that are commands: plain text at the start of a line of a top-level paragraph.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::PREFIX;

/// Line of a command, and the text between it and the next command or the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine<'a> {
    /// Line from the prefix on, without its line break.
    pub line: &'a str,
    /// Text after the line.
    pub after: &'a str,
}

/// Returns the lines that are commands, in order.
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

/// Returns the byte offsets at which a command begins.
fn line_starts(comment: &str) -> Vec<usize> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM;
    let mut starts = Vec::new();
    // Only text of a top-level paragraph counts, which the depth identifies.
    let mut depth = 0_usize;
    let mut in_paragraph = false;
    for (event, range) in Parser::new_ext(comment, options).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                in_paragraph |= depth == 0 && matches!(tag, Tag::Paragraph);
                depth += 1;
            }
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                if depth == 0 && matches!(tag, TagEnd::Paragraph) {
                    in_paragraph = false;
                }
            }
            Event::Text(_) if in_paragraph && depth == 1 && begins_command(comment, range.start) => {
                starts.push(range.start);
            }
            _ => {}
        }
    }
    starts
}

/// Whether a line begins at `offset` and is a command.
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
