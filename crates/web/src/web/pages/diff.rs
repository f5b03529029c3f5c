//! Converts patches for pages: files with their lines, and the changed words within lines.

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use super::ansi::StyledText;
use super::layout::markup_size;

/// Maximum length of a line for a comparison of words, in bytes.
const LONGEST_LINE: usize = 2_000;
/// Maximum length of a line on the page, in characters.
const LINE_SHOWN: usize = 1_000;
/// Minimum similarity of two lines, from 0 to 1, for a comparison of their words.
const ALIKE: f32 = 0.4;

/// HTML size around a line and around a piece, in bytes.
const LINE_MARKUP: usize = 60;
const PIECE_MARKUP: usize = 24;

/// Remaining budget of lines and bytes for patches on the page.
#[derive(Debug, Clone, Copy)]
pub(super) struct PatchRoom {
    /// Remaining number of lines.
    pub lines: usize,
    /// Remaining size including HTML, in bytes.
    pub bytes: usize,
}

impl PatchRoom {
    fn is_left(self) -> bool {
        self.lines > 0 && self.bytes > 0
    }

    fn take(&mut self, line: &PatchLine) {
        let pieces = line.pieces.iter().map(|piece| PIECE_MARKUP + markup_size(&piece.text));
        self.lines = self.lines.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(LINE_MARKUP + pieces.sum::<usize>());
    }
}

/// Changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct FilePatch {
    /// Path, or both paths of a renamed file.
    pub path: String,
    /// Number of added lines.
    pub added: usize,
    /// Number of removed lines.
    pub removed: usize,
    /// Lines.
    pub lines: Vec<PatchLine>,
    /// Number of omitted lines.
    pub left_out: usize,
}

/// Line of a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct PatchLine {
    /// CSS class: `add`, `del`, `hunk`, or empty.
    pub class: &'static str,
    /// Sign at the start of the line.
    pub sign: &'static str,
    /// Pieces of the line; pieces with changed words have the class `w`.
    pub pieces: Vec<StyledText>,
}

/// Parses a git patch. Shows as many lines of each file as the budget allows.
pub(super) fn files(patch: &str, mut room: PatchRoom) -> Vec<FilePatch> {
    let mut files: Vec<FilePatch> = Vec::new();
    let mut block = ChangedLines::default();
    let mut in_hunk = false;
    for line in patch.lines() {
        if let Some(names) = line.strip_prefix("diff --git ") {
            flush(&mut block, &mut files, &mut room);
            in_hunk = false;
            files.push(FilePatch { path: path_of(names), added: 0, removed: 0, lines: Vec::new(), left_out: 0 });
            continue;
        }
        let Some(file) = files.last_mut() else { continue };
        match line.chars().next() {
            Some('@') if line.starts_with("@@") => {
                flush(&mut block, &mut files, &mut room);
                in_hunk = true;
                push(&mut files, plain("hunk", "", line), &mut room);
            }
            Some('-') if in_hunk => {
                file.removed += 1;
                if !block.added.is_empty() {
                    flush(&mut block, &mut files, &mut room);
                }
                block.removed.push(line[1..].to_owned());
            }
            Some('+') if in_hunk => {
                file.added += 1;
                block.added.push(line[1..].to_owned());
            }
            _ if in_hunk => {
                flush(&mut block, &mut files, &mut room);
                let line = if line.starts_with('\\') {
                    plain("hunk", "", line)
                } else {
                    plain("", " ", line.get(1..).unwrap_or_default())
                };
                push(&mut files, line, &mut room);
            }
            _ if line.starts_with("Binary files") => push(&mut files, plain("hunk", "", line), &mut room),
            _ => {}
        }
    }
    flush(&mut block, &mut files, &mut room);
    files
}

/// Block of removed lines and the added lines that follow them.
#[derive(Default)]
struct ChangedLines {
    removed: Vec<String>,
    added: Vec<String>,
}

fn push(files: &mut [FilePatch], line: PatchLine, room: &mut PatchRoom) {
    let Some(file) = files.last_mut() else { return };
    if room.is_left() {
        room.take(&line);
        file.lines.push(line);
    } else {
        file.left_out += 1;
    }
}

/// Adds the lines of a block. If it has as many added as removed lines, compares them word by word.
fn flush(block: &mut ChangedLines, files: &mut [FilePatch], room: &mut PatchRoom) {
    let ChangedLines { removed, added } = std::mem::take(block);
    let paired = removed.len() == added.len() && room.is_left();
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for at in 0..removed.len().max(added.len()) {
        let words = match (removed.get(at), added.get(at)) {
            (Some(before), Some(after)) if paired => changed_words(before, after),
            _ => None,
        };
        match words {
            Some((before, after)) => {
                old.push(PatchLine { class: "del", sign: "-", pieces: before });
                new.push(PatchLine { class: "add", sign: "+", pieces: after });
            }
            None => {
                old.extend(removed.get(at).map(|line| plain("del", "-", line)));
                new.extend(added.get(at).map(|line| plain("add", "+", line)));
            }
        }
    }
    for line in old.into_iter().chain(new) {
        push(files, line, room);
    }
}

fn plain(class: &'static str, sign: &'static str, line: &str) -> PatchLine {
    let text: String = line.chars().filter(|c| *c == '\t' || !c.is_control()).take(LINE_SHOWN).collect();
    PatchLine { class, sign, pieces: vec![StyledText { class: String::new(), text }] }
}

/// Returns both lines in pieces; `None` if they have too little in common.
fn changed_words(before: &str, after: &str) -> Option<(Vec<StyledText>, Vec<StyledText>)> {
    if before.len().max(after.len()) > LONGEST_LINE {
        return None;
    }
    let diff = TextDiff::from_words(before, after);
    if diff.ratio() < ALIKE {
        return None;
    }
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for change in diff.iter_all_changes() {
        let text: String = change.value().chars().filter(|c| *c == '\t' || !c.is_control()).collect();
        let piece = |class: &str| StyledText { class: class.to_owned(), text: text.clone() };
        match change.tag() {
            ChangeTag::Equal => {
                join(&mut old, piece(""));
                join(&mut new, piece(""));
            }
            ChangeTag::Delete => join(&mut old, piece("w")),
            ChangeTag::Insert => join(&mut new, piece("w")),
        }
    }
    Some((old, new))
}

fn join(pieces: &mut Vec<StyledText>, piece: StyledText) {
    match pieces.last_mut().filter(|last| last.class == piece.class) {
        Some(last) => last.text.push_str(&piece.text),
        None => pieces.push(piece),
    }
}

/// Returns the path of a file from `a/OLD b/NEW`.
fn path_of(names: &str) -> String {
    let (old, new) = names.split_once(" b/").unwrap_or((names, ""));
    let old = old.strip_prefix("a/").unwrap_or(old);
    match new.is_empty() || old == new {
        true => old.to_owned(),
        false => format!("{old} → {new}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: usize) -> PatchRoom {
        PatchRoom { lines, bytes: usize::MAX }
    }

    const PATCH: &str = "diff --git a/answer.txt b/answer.txt\nindex 1..2 100644\n--- a/answer.txt\n+++ b/answer.txt\n\
        @@ -1,3 +1,3 @@\n same\n-the answer is 41 today\n+the answer is 42 today\n-- a list\n\\ No newline at end of file\n\
        diff --git a/old.rs b/new.rs\nsimilarity index 90%\n@@ -1 +1,2 @@\n+added <b>\n+two\n";

    fn shown(files: &[FilePatch]) -> String {
        let mut text = String::new();
        for file in files {
            text.push_str(&format!("{} +{} -{} ({} left out)\n", file.path, file.added, file.removed, file.left_out));
            for line in &file.lines {
                let pieces = line.pieces.iter();
                let pieces: String =
                    pieces.map(|p| if p.class == "w" { format!("[{}]", p.text) } else { p.text.clone() }).collect();
                text.push_str(&format!("  {}|{pieces}\n", line.sign));
            }
        }
        text
    }

    #[test]
    fn changed_words_of_a_line_are_marked() {
        insta::assert_snapshot!(shown(&files(PATCH, lines(100))), @r"
        answer.txt +1 -2 (0 left out)
          |@@ -1,3 +1,3 @@
           |same
          -|the answer is [41] today
          +|the answer is [42] today
          -|- a list
          |\ No newline at end of file
        old.rs → new.rs +2 -0 (0 left out)
          |@@ -1 +1,2 @@
          +|added <b>
          +|two
        ");
    }

    #[test]
    fn lines_beyond_the_limit_are_counted() {
        let files = files(PATCH, lines(3));
        assert_eq!(files.iter().map(|file| file.lines.len()).sum::<usize>(), 3);
        assert_eq!(files.iter().map(|file| file.left_out).sum::<usize>(), 6);
        assert_eq!((files[1].added, files[1].removed), (2, 0));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(patch in "(diff --git a/x b/x\n|@@ @@\n|[-+ \\\\][a-zé<]{0,9}\n|[a-z]{0,5}\n){0,30}") {
            let found = files(&patch, lines(10));
            proptest::prop_assert!(found.iter().map(|file| file.lines.len()).sum::<usize>() <= 10);
        }
    }

    #[test]
    fn lines_are_bounded_in_bytes() {
        let patch = format!("diff --git a/x b/x\n@@ -1 +1 @@\n{}", format!("+{}\n", "/".repeat(500)).repeat(20));
        let files = files(&patch, PatchRoom { lines: 100, bytes: 10_000 });
        // The markup of a slash has six bytes.
        assert_eq!((files[0].lines.len(), files[0].left_out, files[0].added), (5, 16, 20), "{files:?}");
    }
}
