//! Text of a task as the agent gets it.

use std::collections::HashSet;

use super::LoopTask;
use crate::domain::model::document::{Document, Unseen};
use crate::domain::trust::sanitize::document;

impl LoopTask {
    /// Body as people see it.
    pub fn document(&self) -> Document {
        document::read(&self.body)
    }

    /// Title for the agent.
    pub fn agent_title(&self) -> String {
        document::read_title(&self.title).0
    }

    /// Body for the agent.
    pub fn agent_body(&self) -> String {
        document::write(&self.document())
    }

    /// Title and body for the agent.
    pub fn agent_text(&self) -> String {
        Self::read_issue(&self.title, &self.body).0
    }

    /// Title and body of an issue for the agent, and what people do not see of them.
    pub fn read_issue(title: &str, body: &str) -> (String, Unseen) {
        Self::read_issue_beside(title, body, &HashSet::new())
    }

    /// Reads an issue as `read_issue` does, of a repository whose issue templates have these comments.
    pub fn read_issue_beside(title: &str, body: &str, known: &HashSet<String>) -> (String, Unseen) {
        let (title, mut unseen) = document::read_title(title);
        let body = document::read_beside(body, known);
        let text = format!("{title}\n\n{}", document::write(&body));
        unseen.append(body.unseen);
        (text.trim().to_owned(), unseen)
    }

    /// Whether a maintainer has to confirm parts of the text that people do not see.
    pub fn has_unconfirmed_parts(&self) -> bool {
        !self.author_trusted && self.unseen.has_foreign()
    }
}
