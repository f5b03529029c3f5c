//! Suggested changes: replacements of lines that people propose in review comments, and their application to a file.

use ralph_types::failure::Failure;
use serde::{Deserialize, Serialize};

use super::iteration::Guidance;
use crate::domain::model::document::{Document, DocumentPart};
use crate::domain::model::ids::{CommentId, Sha, User};

/// Language of a code block with a suggestion.
const LANGUAGE: &str = "suggestion";

/// Lines that a review comment refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommentedLines {
    /// 1-based number of the first line, in the file at `commit`.
    pub first: u64,
    /// 1-based number of the last line, not less than `first`.
    pub last: u64,
    /// Commit at which the line numbers are valid.
    pub commit: Sha,
}

/// Replacement of lines that a maintainer suggests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuggestedChange {
    /// Comment that contains the suggestion.
    pub comment: CommentId,
    /// Author.
    pub by: User,
    /// Path of the file relative to the root of the repository.
    pub path: String,
    /// Lines to replace.
    pub lines: CommentedLines,
    /// Replacement, including line ends. If it is empty, the lines are removed.
    pub text: String,
    /// The comment as guidance, for the agent to handle if the replacement cannot be applied.
    pub remark: Guidance,
}

/// Suggested change that the service applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppliedSuggestion {
    /// Iteration whose commit contains the change.
    pub iteration: u32,
    /// Change.
    pub change: SuggestedChange,
}

/// Returns the content of the only suggestion block in a comment; `None` if there is no such block outside of other elements, or
/// more than one.
pub fn suggested_text(comment: &Document) -> Option<String> {
    let mut depth = 0_usize;
    let mut found = None;
    for part in &comment.parts {
        match part {
            DocumentPart::Open(_) => depth += 1,
            DocumentPart::Close(_) => depth = depth.saturating_sub(1),
            DocumentPart::CodeBlock { language, text }
                if depth == 0 && language == LANGUAGE && found.replace(text.clone()).is_some() =>
            {
                return None;
            }
            _ => {}
        }
    }
    found
}

/// Applies a suggested change to a file. `commented` is the content that the comment refers to, `now` the current one. Lines that
/// changed since, or whose current position is not certain, are not replaced.
///
/// # Errors
/// The change cannot be applied. The error is the reason, a sentence without a full stop.
pub fn with_suggestion(commented: &str, now: &str, change: &SuggestedChange) -> Result<String, Failure> {
    let (first, last) = (change.lines.first, change.lines.last);
    let index = |line: u64| usize::try_from(line).unwrap_or(usize::MAX);
    let (first, last) = (index(first), index(last));
    let before: Vec<&str> = commented.split_inclusive('\n').collect();
    if first == 0 || first > last || last > before.len() {
        return Err(Failure::new(format!("the file has no lines {first} to {last}")));
    }
    let lines: Vec<&str> = now.split_inclusive('\n').collect();
    let range = moved(&before, &lines, first - 1, last).ok_or("the lines changed since the comment was written")?;
    let ends_with_return = lines[range.clone()].iter().any(|line| line.ends_with("\r\n"));
    let mut text = change.text.replace("\r\n", "\n");
    if ends_with_return {
        text = text.replace('\n', "\r\n");
    }
    let at_end = range.end == lines.len();
    if at_end && !lines.last().is_some_and(|line| line.ends_with('\n')) {
        // The file keeps its missing line end.
        let bare = text.trim_end_matches('\n').trim_end_matches('\r').len();
        text.truncate(bare);
    } else if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let changed = [&lines[..range.start].concat(), &text, &lines[range.end..].concat()].map(String::as_str).concat();
    if changed == now { Err(Failure::new("the lines are as the suggestion has them")) } else { Ok(changed) }
}

/// Returns the range in `now` of the lines `first..last` of `before`. `None` unless everything before the end of these lines, or
/// everything after their start, is unchanged.
fn moved(before: &[&str], now: &[&str], first: usize, last: usize) -> Option<std::ops::Range<usize>> {
    let common = before.iter().zip(now).take_while(|(old, new)| old == new).count();
    if last <= common {
        return Some(first..last);
    }
    let tail = before.iter().rev().zip(now.iter().rev()).take_while(|(old, new)| old == new).count();
    if before.len() - first <= tail {
        let shift = |line: usize| now.len() - (before.len() - line);
        return Some(shift(first)..shift(last));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::loops::GuidanceSource;
    use crate::domain::model::ids::{AccountKind, UserId};
    use crate::domain::trust::sanitize::document::tests::read_markdown;

    const FILE: &str = "one\ntwo\nthree\nfour\n";

    fn change(first: u64, last: u64, text: &str) -> SuggestedChange {
        SuggestedChange {
            comment: CommentId(1),
            by: User { id: UserId(7), login: "maja".into(), kind: AccountKind::User },
            path: "a.txt".into(),
            lines: CommentedLines { first, last, commit: Sha::new("a".repeat(40)) },
            text: text.into(),
            remark: Guidance {
                who: "maja".into(),
                source: GuidanceSource::Review,
                text: String::new(),
                path: None,
                remember: false,
            },
        }
    }

    #[test]
    fn only_suggestion_block_of_a_comment_is_its_replacement() {
        let text = |comment: &str| suggested_text(&read_markdown(comment));
        assert_eq!(text("Better:\n\n```suggestion\nlet a = 1;\n```\n").as_deref(), Some("let a = 1;\n"));
        assert_eq!(text("```suggestion:-0+0\nx\n```"), None, "the form of another forge");
        assert_eq!(text("````suggestion\n```\n````").as_deref(), Some("```\n"));
        assert_eq!(text("```suggestion\n```").as_deref(), Some(""), "the lines are removed");
        assert_eq!(text("```suggestion\na\n```\n\n```suggestion\nb\n```"), None, "it is not certain which");
        for none in ["a suggestion", "```rust\nx\n```", "> ```suggestion\n> x\n> ```", "    ```suggestion\n    x"] {
            assert_eq!(text(none), None, "{none}");
        }
    }

    #[test]
    fn only_the_commented_lines_are_replaced() {
        let apply = |first, last, text| with_suggestion(FILE, FILE, &change(first, last, text)).expect("it applies");
        assert_eq!(apply(2, 2, "zwei\n"), "one\nzwei\nthree\nfour\n");
        assert_eq!(apply(2, 3, "2\n"), "one\n2\nfour\n");
        assert_eq!(apply(1, 1, ""), "two\nthree\nfour\n");
        assert_eq!(apply(4, 4, "a\nb\n"), "one\ntwo\nthree\na\nb\n");
    }

    #[test]
    fn lines_that_moved_are_found_and_changed_ones_are_not_replaced() {
        let apply = |now: &str, line| with_suggestion(FILE, now, &change(line, line, "X\n"));
        assert_eq!(apply("zero\none\ntwo\nthree\nfour\n", 3).ok().as_deref(), Some("zero\none\ntwo\nX\nfour\n"));
        assert_eq!(apply("one\ntwo\nthree\n4\n", 2).ok().as_deref(), Some("one\nX\nthree\n4\n"));
        assert!(apply("one\n2\nthree\nfour\n", 2).unwrap_err().to_string().contains("changed since"));
        // Changes on both sides: the place of equal lines is not certain.
        assert!(apply("0\none\ntwo\nthree\n4\n", 2).is_err());
    }

    #[test]
    fn impossible_and_empty_changes_are_refused() {
        for (first, last) in [(0, 1), (3, 2), (4, 5), (u64::MAX, u64::MAX)] {
            assert!(with_suggestion(FILE, FILE, &change(first, last, "x\n")).is_err(), "{first} to {last}");
        }
        assert!(
            with_suggestion(FILE, FILE, &change(2, 2, "two\n")).unwrap_err().to_string().contains("as the suggestion")
        );
        assert!(with_suggestion("", "", &change(1, 1, "x\n")).is_err());
    }

    #[test]
    fn line_ends_of_the_file_are_kept() {
        let dos = "a\r\nb\r\n";
        assert_eq!(with_suggestion(dos, dos, &change(2, 2, "c\nd\n")).ok().as_deref(), Some("a\r\nc\r\nd\r\n"));
        assert_eq!(with_suggestion("a\nb", "a\nb", &change(2, 2, "c\n")).ok().as_deref(), Some("a\nc"));
        assert_eq!(with_suggestion("a\nb", "a\nb", &change(1, 1, "c")).ok().as_deref(), Some("c\nb"));
    }
}
