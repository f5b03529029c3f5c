//! Uploaded files in Gitea: lists in the API, and downloads, which accept a token.

use http::HeaderMap;
use serde_json::{Value, json};

use super::shape::GiteaShape;
use crate::call::{FakeReply, zoned};
use crate::core::Core;
use crate::serve::caller;
use crate::state::{FakeAttachment, FakeRepo};
use ralph_types::ids::Number;

impl GiteaShape<'_> {
    /// Returns the files of an issue's text (given its number) or of a comment.
    pub fn assets(&self, repo: &FakeRepo, text: &str, issue: Option<Number>) -> Value {
        let files = self.state.attachments_of(repo.id, text, issue).into_iter().enumerate();
        files.map(|(at, file)| self.asset(at, file)).collect()
    }

    fn asset(&self, at: usize, file: &FakeAttachment) -> Value {
        json!({
            "id": at + 1, "name": file.name, "size": file.content.len(), "download_count": 0,
            "created_at": zoned(file.at), "uuid": file.id,
            "browser_download_url": self.core.at(&format!("attachments/{}", file.id)),
        })
    }
}

/// Returns the file at an address; `None` for another path.
pub(crate) fn serve(core: &Core, path: &str, headers: &HeaderMap) -> Option<FakeReply> {
    let id = path.strip_prefix("/attachments/")?;
    let found = caller(core, headers)
        .and_then(|viewer| core.act(|state| state.attachment(viewer, id).map(|file| FakeReply::file(&file.content))));
    Some(found.unwrap_or_else(|_| FakeReply::text(404, "Not found.".to_owned())))
}
