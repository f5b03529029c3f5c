//! Converts issues and comments to documents with the displayed content of the forge's page.
//!
//! The forge renders the Markdown. Its HTML is parsed once, and the text of an allow list of elements is the document. Agents,
//! people, the parser of checks and the parser of commands all get this document, so that none of them reads text that the others do
//! not see. Content of the source that the page does not display is reported as hidden.

mod allowed;
mod difference;
mod markup;
pub mod templates;
mod tree;
mod walk;
mod write;

use std::collections::HashSet;

pub use markup::{has_markup, plain};

use crate::domain::model::characters;
use crate::domain::model::document::{Document, DocumentPart, Unseen, UnseenKind};

/// Reads an issue or comment: its Markdown, and the HTML that the forge renders from it. Without HTML, the source is a text without
/// markup ([`has_markup`]) and is read literally.
pub fn read(source: &str, html: Option<&str>) -> Document {
    read_beside(source, html, &HashSet::new())
}

/// Reads a text like [`read`]. Comments in `known` are reported as comments of issue templates ([`templates`]).
pub fn read_beside(source: &str, html: Option<&str>, known: &HashSet<String>) -> Document {
    let mut document = match html {
        Some(html) => {
            let mut document = Document::default();
            let (nodes, parsed) = tree::parse(html);
            if parsed < html.len() {
                document.unseen.add(UnseenKind::Excess, &html[parsed..]);
            }
            let beside = walk::read(&nodes, &mut document);
            let drawn = std::mem::take(&mut document.unseen);
            difference::report(source, (&write::text(&document.parts), &beside), known, &mut document.unseen);
            document.unseen.append(drawn);
            document
        }
        None => plain(source),
    };
    let runs = characters::visible(source).1;
    document.unseen.add_all(UnseenKind::Character, runs, &characters::code_points(source));
    document
}

/// Returns the text of parts of a document, for agents.
pub fn write(parts: &[DocumentPart]) -> String {
    write::without_addresses(&write::text(parts))
}

/// Returns the text of parts of a document, with the addresses of images. [`super::for_prompt`] removes these.
pub fn write_with_addresses(parts: &[DocumentPart]) -> String {
    write::text(parts)
}

/// Returns the addresses of the images in a text of [`write_with_addresses`].
pub fn image_addresses(text: &str) -> Vec<String> {
    write::addresses(text)
}

/// Removes the addresses of images from a text of [`write_with_addresses`].
pub(super) fn without_addresses(text: &str) -> String {
    write::without_addresses(text)
}

/// Reads a title: plain text on one line, in which forges display markup literally.
pub fn read_title(title: &str) -> (String, Unseen) {
    let (text, runs) = characters::visible(title);
    let mut unseen = Unseen::default();
    unseen.add_all(UnseenKind::Character, runs, &characters::code_points(title));
    (text.split_whitespace().collect::<Vec<_>>().join(" "), unseen)
}

#[cfg(test)]
pub(in crate::domain) mod tests;
