//! Texts without markup, which forges display as they are.

use crate::domain::model::characters;
use crate::domain::model::document::{Document, DocumentElement, DocumentPart};

/// ASCII characters that are displayed as they are, wherever they are in a line.
const PLAIN: &str = " .,;?!'\"()/%-+=:";
/// Minimum length of a word that may be the hash of a commit, which forges shorten.
const HASH: usize = 7;

/// Whether a renderer may display a text differently. If in doubt, it is markup.
pub fn has_markup(source: &str) -> bool {
    source.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).any(is_marked)
}

fn is_marked(line: &str) -> bool {
    let other =
        |c: char| if c.is_ascii() { !c.is_ascii_alphanumeric() && !PLAIN.contains(c) } else { !c.is_alphanumeric() };
    let starts_block = line.starts_with(['-', '+', '=', ' ', ':'])
        || line.trim_start_matches(|c: char| c.is_ascii_digit()).len() < line.len()
            && line.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['.', ')']);
    let lower = line.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    line.chars().any(other)
        || starts_block
        || lower.contains("www.")
        // An emoji or an address.
        || line.split(' ').any(|word| word.trim_end_matches(':').contains(':') || word.starts_with(':'))
        || words.any(|word| word.len() >= HASH && word.chars().all(|c| c.is_ascii_hexdigit()))
}

/// Returns the document of a text without markup: its paragraphs and lines.
pub fn plain(text: &str) -> Document {
    let visible = characters::visible(text).0;
    let mut document = Document::default();
    let mut open = false;
    for line in visible.lines() {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() && open {
            document.parts.push(DocumentPart::Close(DocumentElement::Paragraph));
            open = false;
        }
        if line.is_empty() {
            continue;
        }
        document.parts.push(match open {
            true => DocumentPart::Break,
            false => DocumentPart::Open(DocumentElement::Paragraph),
        });
        document.parts.push(DocumentPart::Text(line));
        open = true;
    }
    if open {
        document.parts.push(DocumentPart::Close(DocumentElement::Paragraph));
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::trust::sanitize::document::write;

    #[test]
    fn only_text_without_markup_needs_no_renderer() {
        for plain in
            ["", "It is wrong.", "/ralph run --backend fast\nPlease: \"now\", 5 %!", "Größe (2 m)\n\nZweiter Absatz"]
        {
            assert!(!has_markup(plain), "{plain:?}");
            assert_eq!(write(&super::plain(plain).parts), plain);
        }
        for marked in [
            "a `b`",
            "*a*",
            "_a_",
            "a_b",
            "# a",
            "#12",
            "@maja",
            "- a",
            "+ a",
            "1. a",
            "12) a",
            "> a",
            "    a",
            "\ta",
            "a | b",
            "a\n===",
            "a\n---",
            "<b>",
            "&amp;",
            "[a](b)",
            "a\\b",
            "https://a.example",
            "www.example.org",
            "mailto:x",
            ":smile:",
            "a :tada: b",
            "$x$",
            "~a~",
            "{a}",
            "deadbee",
            "title: x\u{200b}",
            "a\u{2028}b",
            "---\ntitle: x\n---",
        ] {
            assert!(has_markup(marked), "{marked:?}");
        }
    }
}
