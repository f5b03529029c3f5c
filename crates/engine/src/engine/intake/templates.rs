//! Parts of an issue that are invisible when rendered, except hidden comments from the repository's issue templates.

use std::collections::HashSet;

use crate::domain::loops::LoopTask;
use crate::domain::model::document::{Unseen, UnseenKind};
use crate::domain::model::event::IssueSnapshot;
use crate::domain::model::ids::RepoRef;
use crate::domain::trust::sanitize::document::templates;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::{Intake, IntakeError};
use crate::forge::ForgeErrorKind::{RateLimited, Transient, Unauthorized};

impl Intake {
    /// Returns the parts of an issue that are not in `html`, the forge's rendering of its body. Hidden comments that come from the repository's
    /// issue templates are harmless and left out. The templates are read only if an untrusted author has a hidden
    /// comment, and only until each such comment is found in one.
    pub(super) async fn unseen_of(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        (issue, html): (&IssueSnapshot, Option<&str>),
        author_trusted: bool,
    ) -> Result<Unseen, IntakeError> {
        let read = |known: &HashSet<String>| LoopTask::read_issue(&issue.title, &issue.body, html, known).1;
        let mut known = HashSet::new();
        let mut unseen = read(&known);
        let Some(files) = account.forge.files().filter(|_| !author_trusted) else { return Ok(unseen) };
        for folder in templates::FOLDERS {
            if !unseen.counts.contains_key(&UnseenKind::Comment) {
                break;
            }
            match files.folder_files(repo, folder, templates::is_template).await {
                Ok(found) if found.is_empty() => {}
                Ok(found) => {
                    known.extend(found.iter().flat_map(|file| templates::comments(&file.text)));
                    unseen = read(&known);
                }
                Err(error) if matches!(error.kind, Transient { .. } | RateLimited { .. } | Unauthorized) => {
                    return Err(error.into());
                }
                // A person looks at the comments instead.
                Err(_) => break,
            }
        }
        Ok(unseen)
    }
}
