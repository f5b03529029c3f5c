//! Uploaded files of issues and comments, from the API's lists.

use async_trait::async_trait;
use serde::Deserialize;
use url::Url;

use super::Gitea;
use super::client::under;
use super::map::{WireUser, author, listed, text};
use crate::domain::model::ids::{Number, RepoRef};
use crate::domain::trust::images::AttachmentAddresses;
use crate::forge::{
    AttachedText, Attachment, Attachments, DownloadLimits, FetchedImage, ForgeResult, ImageFailure, ReviewComment,
    Reviews,
};

/// Maximum number of comments on lines whose files are listed; the newest are used.
const MOST_REMARKS: usize = 20;

/// Issue or comment with its files.
#[derive(Deserialize)]
struct WireAttachedText {
    #[serde(default, deserialize_with = "text")]
    body: String,
    user: Option<WireUser>,
    #[serde(default, deserialize_with = "listed")]
    assets: Vec<WireAsset>,
}

/// Uploaded file.
#[derive(Deserialize)]
struct WireAsset {
    #[serde(default, deserialize_with = "text")]
    name: String,
    #[serde(default, deserialize_with = "text")]
    uuid: String,
}

impl Gitea {
    /// Converts a file. The address in the response is built from the server's settings and may differ from the
    /// configured one, so it is replaced.
    fn attachment(&self, asset: WireAsset) -> Attachment {
        Attachment {
            address: self.client.address(&["attachments", &asset.uuid]),
            id: asset.uuid.to_ascii_lowercase(),
            shown_as: Some(asset.name),
        }
    }

    fn attached_text(&self, text: WireAttachedText, is_comment: bool) -> AttachedText {
        AttachedText {
            is_comment,
            author: author(text.user),
            body: text.body,
            html: None,
            attachments: text.assets.into_iter().map(|asset| self.attachment(asset)).collect(),
        }
    }
}

#[async_trait]
impl Attachments for Gitea {
    fn addresses(&self) -> &AttachmentAddresses {
        &self.downloads.addresses
    }

    async fn attached(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<AttachedText>> {
        let what = format!("read the images of {repo}#{number}");
        let number = number.to_string();
        let issue: WireAttachedText = self.client.get(&what, &under(repo, &["issues", &number])?, &[]).await?;
        let path = under(repo, &["issues", &number, "comments"])?;
        let comments: Vec<WireAttachedText> = self.client.list(&what, &path, &[], |_| false).await?;
        let comments = comments.into_iter().map(|text| self.attached_text(text, true));
        Ok(std::iter::once(self.attached_text(issue, false)).chain(comments).collect())
    }

    /// Requests the files of each comment on a line separately, as if it were a comment of the issue, because lists do
    /// not contain them.
    async fn attached_to_remarks(&self, repo: &RepoRef, pull: Number) -> ForgeResult<Vec<Attachment>> {
        let what = format!("read the images of comments on lines of {repo}#{pull}");
        let shows_file = |remark: &&ReviewComment| remark.comment.body.contains("attachments/");
        let remarks = self.review_comments(repo, pull).await?;
        let mut attachments = Vec::new();
        for remark in remarks.iter().rev().filter(shows_file).take(MOST_REMARKS) {
            let id = remark.comment.id.to_string();
            let path = under(repo, &["issues", "comments", &id, "assets"])?;
            let assets: Option<Vec<WireAsset>> = self.client.get(&what, &path, &[]).await?;
            attachments.extend(assets.into_iter().flatten().map(|asset| self.attachment(asset)));
        }
        Ok(attachments)
    }

    async fn image(
        &self,
        _repo: &RepoRef,
        address: &Url,
        limits: &DownloadLimits,
    ) -> Result<FetchedImage, ImageFailure> {
        self.downloads.image(address, Some(self.client.authorization()), limits).await
    }
}
