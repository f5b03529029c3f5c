//! Text of a task, as passed to agents.

use std::collections::HashSet;

use super::{GuidanceSource, Loop, LoopTask};
use crate::domain::model::document::{Document, Unseen};
use crate::domain::trust::protected::NamedPaths;
use crate::domain::trust::sanitize::{self, document};

impl Loop {
    /// Returns the paths that the issue, or a request of a maintainer, names as the forge displays them.
    pub fn named_paths(&self) -> NamedPaths {
        let given = self.iterations.iter().flat_map(|iteration| &iteration.guidance).chain(&self.requests.guidance);
        let of_people = given.filter(|one| matches!(one.source, GuidanceSource::Command | GuidanceSource::Review));
        let requests = of_people.map(|guidance| sanitize::for_prompt(&guidance.text));
        let texts: Vec<String> = std::iter::once(self.task.agent_text()).chain(requests).collect();
        NamedPaths::of(texts.iter().map(String::as_str))
    }
}

impl LoopTask {
    /// Returns the body as displayed by the forge.
    pub fn document(&self) -> Document {
        document::read(&self.body, self.html.as_deref())
    }

    /// Replaces the body, and renders it like a forge.
    #[cfg(test)]
    pub fn set_body(&mut self, body: &str) {
        self.html = Some(document::tests::page(body));
        self.body = body.to_owned();
    }

    /// Whether the forge has to render the body before it is read. Loops that were stored without their page need this.
    pub fn lacks_page(&self) -> bool {
        self.html.is_none() && document::has_markup(&self.body)
    }

    /// Returns the title for agents.
    pub fn agent_title(&self) -> String {
        document::read_title(&self.title).0
    }

    /// Returns the body for agents.
    pub fn agent_body(&self) -> String {
        document::write(&self.document())
    }

    /// Returns title and body for agents.
    pub fn agent_text(&self) -> String {
        Self::read_issue(&self.title, &self.body, self.html.as_deref(), &HashSet::new()).0
    }

    /// Returns title and body of an issue for agents, and a report of the parts that the forge does not display. `html` is the
    /// forge's rendering of the body, and `known` are the comments in the repository's issue templates.
    pub fn read_issue(title: &str, body: &str, html: Option<&str>, known: &HashSet<String>) -> (String, Unseen) {
        let (title, mut unseen) = document::read_title(title);
        let body = document::read_beside(body, html, known);
        let text = format!("{title}\n\n{}", document::write(&body));
        unseen.append(body.unseen);
        (text.trim().to_owned(), unseen)
    }

    /// Whether a maintainer has to confirm parts of the text that the forge does not display.
    pub fn has_unconfirmed_parts(&self) -> bool {
        !self.author_trusted && self.unseen.has_foreign()
    }
}
