//! Issues and comments as people see them on the forge's page.
//!
//! The Markdown is rendered as forges render it, the HTML is parsed once, and an allow list of elements gives a document.
//! The agent, the reader of checks and people get this document, so that none of them reads what another does not see.
//! Where forges differ, the strictest counts: a person notices a missing word, but nobody notices a hidden instruction.

mod attributes;
mod drawn;
mod markdown;
pub mod templates;
mod tree;
mod walk;
mod write;

use std::collections::HashSet;

use crate::domain::model::characters;
use crate::domain::model::document::{Document, Unseen, UnseenKind};

pub(in crate::domain) use markdown::parse;

/// Maximum length that is read, in bytes; forges allow less.
const LONGEST: usize = 512 * 1024;

/// Reads the Markdown of an issue or comment. The rest of a text that is longer than 512 KiB is hidden; so is all of a
/// text that cannot be read in linear time.
pub fn read(markdown: &str) -> Document {
    read_beside(markdown, &HashSet::new())
}

/// Reads Markdown as [`read`] does. Comments that are among `known` are reported as those of issue templates
/// ([`templates`]); they are removed like others.
pub fn read_beside(markdown: &str, known: &HashSet<String>) -> Document {
    let mut document = Document::default();
    let cut = markdown.floor_char_boundary(LONGEST);
    if cut < markdown.len() {
        document.unseen.add(UnseenKind::Excess, &markdown[cut..]);
    }
    let Some(rendered) = markdown::render(&markdown[..cut], &mut document.unseen) else {
        document.unseen.add(UnseenKind::Excess, markdown);
        return document;
    };
    let nodes = tree::parse(&rendered.html, known, &mut document.unseen);
    walk::read(&nodes, &mut document);
    if !rendered.definitions.is_empty() {
        let text = write::text(&document);
        let shown: HashSet<&str> = text.lines().map(str::trim).collect();
        for definition in &rendered.definitions {
            if !shown.contains(definition.as_str()) {
                document.unseen.add(UnseenKind::Definition, definition);
            }
        }
    }
    document
}

/// Returns the text of a document for the agent.
pub fn write(document: &Document) -> String {
    write::text(document)
}

/// Reads a title: plain text on one line, in which forges show markup as it is.
pub fn read_title(title: &str) -> (String, Unseen) {
    let (text, runs) = characters::visible(title);
    let mut unseen = Unseen::default();
    unseen.add_all(UnseenKind::Character, runs, &characters::code_points(title));
    (text.split_whitespace().collect::<Vec<_>>().join(" "), unseen)
}

#[cfg(test)]
mod tests;
