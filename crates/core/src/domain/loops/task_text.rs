//! Text of a task, read once from the forge's page and passed to agents, to people and to the parser of checks.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::domain::model::document::{DocumentPart, Unseen};
use crate::domain::trust::sanitize::document;

/// Text of an issue: its source, and its text on the forge's page. The page is parsed when the value is created; the stored form
/// contains the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredText")]
pub struct TaskText {
    title: String,
    body: String,
    shown: ShownText,
    /// Parts of title and body that the forge does not display as text. If the author has no write access, a maintainer has to
    /// confirm them.
    #[serde(skip_serializing_if = "Unseen::is_empty")]
    pub unseen: Unseen,
}

/// Text on the forge's page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ShownText {
    title: String,
    parts: Vec<DocumentPart>,
    /// Whether the body has markup but no page was available, so that `parts` has the body literally.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lacks_page: bool,
}

/// Stored form of a text. Earlier versions stored the page, or neither page nor unseen parts.
#[derive(Deserialize)]
struct StoredText {
    title: String,
    body: String,
    shown: Option<ShownText>,
    html: Option<String>,
    #[serde(default)]
    unseen: Unseen,
}

impl From<StoredText> for TaskText {
    fn from(stored: StoredText) -> Self {
        let StoredText { title, body, shown, html, unseen } = stored;
        match shown {
            Some(shown) => Self { title, body, shown, unseen },
            None => Self { unseen, ..Self::new(title, body, html.as_deref()) },
        }
    }
}

impl TaskText {
    /// Reads title and body of an issue. `html` is the forge's page of the body; `None` if the body has no markup.
    pub fn new(title: impl Into<String>, body: impl Into<String>, html: Option<&str>) -> Self {
        Self::read(title, body, html, &HashSet::new())
    }

    /// Reads a text like [`Self::new`]. `known` are the comments in the repository's issue templates.
    pub fn read(
        title: impl Into<String>,
        body: impl Into<String>,
        html: Option<&str>,
        known: &HashSet<String>,
    ) -> Self {
        let title = title.into();
        let body = body.into();
        let (shown_title, mut unseen) = document::read_title(&title);
        let page = document::read_beside(&body, html, known);
        unseen.append(page.unseen);
        let lacks_page = html.is_none() && document::has_markup(&body);
        Self { title, body, shown: ShownText { title: shown_title, parts: page.parts, lacks_page }, unseen }
    }

    /// Reads the body from the forge's page of it, for a loop that was stored without the page.
    pub fn read_page(&mut self, html: &str) {
        let page = document::read(&self.body, Some(html));
        self.shown = ShownText { title: std::mem::take(&mut self.shown.title), parts: page.parts, lacks_page: false };
    }

    /// Replaces the body, and renders it like a forge.
    #[cfg(test)]
    pub fn set_body(&mut self, body: &str) {
        *self = Self::new(std::mem::take(&mut self.title), body, Some(&document::tests::page(body)));
    }

    /// Returns the title of the issue, not sanitized, exactly as it was approved.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the body of the issue, not sanitized, exactly as it was approved.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Whether the forge has to render the body before an agent reads it. Loops that were stored without their page need this.
    pub fn lacks_page(&self) -> bool {
        self.shown.lacks_page
    }

    /// Returns the parts of the displayed body, in reading order.
    pub fn parts(&self) -> &[DocumentPart] {
        &self.shown.parts
    }

    /// Returns the title for agents.
    pub fn agent_title(&self) -> &str {
        &self.shown.title
    }

    /// Returns the body for agents.
    pub fn agent_body(&self) -> String {
        document::write(&self.shown.parts)
    }

    /// Returns title and body for agents.
    pub fn agent_text(&self) -> String {
        format!("{}\n\n{}", self.agent_title(), self.agent_body()).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::model::document::UnseenKind;

    #[test]
    fn earlier_stored_forms_are_read() {
        let body = "Run `make`.<!-- a note -->";
        let html = "<p>Run <code>make</code>.</p>";
        let text = TaskText::new("Fix\u{200b} it", body, Some(html));
        assert_eq!((text.agent_title(), text.agent_body().as_str()), ("Fix it", "Run `make`."));
        assert!(text.unseen.counts.contains_key(&UnseenKind::Comment) && !text.lacks_page());
        let stored = serde_json::to_value(&text).expect("JSON");
        assert_eq!(serde_json::from_value::<TaskText>(stored).expect("stored"), text);

        // The page was stored, and the report of unseen parts was chosen when the loop started.
        let with_page = json!({ "title": text.title(), "body": body, "html": html });
        let read: TaskText = serde_json::from_value(with_page).expect("stored");
        assert_eq!(read, TaskText { unseen: Unseen::default(), ..text.clone() });

        // The page was not stored.
        let without_page = json!({ "title": text.title(), "body": body, "unseen": text.unseen });
        let mut read: TaskText = serde_json::from_value(without_page).expect("stored");
        assert!(read.lacks_page() && read.agent_body().contains("a note"));
        read.read_page(html);
        assert_eq!(read, text);
    }
}
