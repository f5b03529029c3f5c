//! Sanitization of text of a forge for prompts. It does not judge content: it removes what people do not see. Text that leaves the
//! service is the subject of `outbound`.

pub mod document;

/// Visible part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleText {
    /// Visible text, similar to Markdown, trimmed.
    pub text: String,
    /// Number of parts omitted because the forge does not show them.
    pub hidden_removed: usize,
}

/// Returns the text of Markdown as people see it on the forge's page: without comments, attributes, definitions,
/// invisible characters, hidden elements, and text that is moved off the screen.
pub fn for_prompt(markdown: &str) -> VisibleText {
    let document = document::read(markdown);
    VisibleText { text: document::write(&document), hidden_removed: document.unseen.hidden() as usize }
}

/// Removes terminal sequences, control, bidirectional and invisible characters; keeps line feeds and tabs.
pub fn visible(text: &str) -> String {
    crate::domain::model::characters::visible(text).0
}

/// Length of the longest run of `wanted`.
pub(super) fn longest_run(text: &str, wanted: char) -> usize {
    text.split(|c| c != wanted).map(str::len).max().unwrap_or(0)
}
