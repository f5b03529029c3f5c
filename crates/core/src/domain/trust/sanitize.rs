//! Sanitization of text from a forge for prompts. Removes what people do not see, and does not judge content. Text that leaves
//! the service is handled by `outbound`.

pub mod document;

/// Visible part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleText {
    /// Visible text, similar to Markdown, without white space at its ends.
    pub text: String,
    /// Number of parts that were removed because the forge does not display them.
    pub hidden_removed: usize,
}

/// Returns the text of Markdown as displayed on the forge's page. Comments, attributes, definitions, invisible characters, hidden
/// elements and text outside of the screen are removed.
pub fn for_prompt(markdown: &str) -> VisibleText {
    let document = document::read(markdown);
    VisibleText { text: document::write(&document), hidden_removed: document.unseen.hidden() as usize }
}

/// Removes terminal sequences, and control, bidirectional and invisible characters. Line feeds and tabs are kept.
pub fn visible(text: &str) -> String {
    crate::domain::model::characters::visible(text).0
}

/// Returns the length of the longest run of `wanted`, in characters.
pub(super) fn longest_run(text: &str, wanted: char) -> usize {
    text.split(|c| c != wanted).map(str::len).max().unwrap_or(0)
}
