//! Reading an issue's text, with the hidden comments of the repository's issue templates.

use std::collections::HashSet;

use crate::domain::loops::TaskText;
use crate::domain::model::document::UnseenKind;
use crate::domain::model::event::IssueSnapshot;
use crate::domain::model::ids::RepoRef;
use crate::domain::trust::sanitize::document::templates;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::{Intake, IntakeError};
use crate::forge::ForgeErrorKind::{RateLimited, Transient, Unauthorized};

impl Intake {
    /// Reads the text of an issue from `html`, the forge's rendering of its body. Reports hidden comments from the repository's
    /// issue templates as such. The templates are read only if an untrusted author has a hidden comment, and only until each
    /// such comment is found in one.
    pub(super) async fn task_text(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        (issue, html): (&IssueSnapshot, Option<&str>),
        author_trusted: bool,
    ) -> Result<TaskText, IntakeError> {
        let read = |known: &HashSet<String>| TaskText::read(issue.title.as_str(), issue.body.as_str(), html, known);
        let mut known = HashSet::new();
        let mut text = read(&known);
        let Some(files) = account.forge.files().filter(|_| !author_trusted) else { return Ok(text) };
        for folder in templates::FOLDERS {
            if !text.unseen.counts.contains_key(&UnseenKind::Comment) {
                break;
            }
            match files.folder_files(repo, folder, templates::is_template).await {
                Ok(found) if found.is_empty() => {}
                Ok(found) => {
                    known.extend(found.iter().flat_map(|file| templates::comments(&file.text)));
                    text = read(&known);
                }
                Err(error) if matches!(error.kind, Transient { .. } | RateLimited { .. } | Unauthorized) => {
                    return Err(error.into());
                }
                // A person looks at the comments instead.
                Err(_) => break,
            }
        }
        Ok(text)
    }
}
