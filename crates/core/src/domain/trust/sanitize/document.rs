//! Converts issues and comments to documents that contain what the forge's page displays.
//!
//! The Markdown is rendered like on a forge, the HTML is parsed once, and an allow list of elements determines the document.
//! Agents, people and the parser of checks all get this document, so that none of them reads text that the others do not see.
//! Where forges differ, the strictest one counts: people notice a missing word, but nobody notices a hidden instruction.

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

/// Maximum length of a text that is read, in bytes. Forges allow less.
const LONGEST: usize = 512 * 1024;

/// Reads the Markdown of an issue or comment. The part of a text beyond 512 KiB counts as hidden, and so does a whole text that
/// cannot be parsed in linear time.
pub fn read(markdown: &str) -> Document {
    read_beside(markdown, &HashSet::new())
}

/// Reads Markdown like [`read`]. Comments in `known` are removed as well, but are reported as comments of issue templates
/// ([`templates`]).
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

/// Returns the text of a document, for agents.
pub fn write(document: &Document) -> String {
    write::text(document)
}

/// Reads a title: plain text on one line, in which forges display markup literally.
pub fn read_title(title: &str) -> (String, Unseen) {
    let (text, runs) = characters::visible(title);
    let mut unseen = Unseen::default();
    unseen.add_all(UnseenKind::Character, runs, &characters::code_points(title));
    (text.split_whitespace().collect::<Vec<_>>().join(" "), unseen)
}

#[cfg(test)]
mod tests;
