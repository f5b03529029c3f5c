//! Uploaded files of issues and comments, as the API lists them.

use async_trait::async_trait;
use serde::Deserialize;
use url::Url;

use super::Gitea;
use super::client::under;
use super::map::{WireUser, author, listed, text};
use crate::domain::model::ids::{Number, RepoRef};
use crate::domain::trust::images::AttachmentAddresses;
use crate::forge::{AttachedText, Attachment, Attachments, DownloadLimits, FetchedImage, ForgeResult};

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

impl WireAttachedText {
    fn attached(self, is_comment: bool, address: impl Fn(&str) -> Url) -> AttachedText {
        let attachment = |asset: WireAsset| Attachment {
            address: address(&asset.uuid),
            id: asset.uuid.to_ascii_lowercase(),
            shown_as: Some(asset.name),
        };
        AttachedText {
            is_comment,
            author: author(self.user),
            body: self.body,
            attachments: self.assets.into_iter().map(attachment).collect(),
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
        // The address in the answer is that of the server's settings, which may differ from the configured one.
        let address = |uuid: &str| self.client.address(&["attachments", uuid]);
        let comments = comments.into_iter().map(|text| text.attached(true, address));
        Ok(std::iter::once(issue.attached(false, address)).chain(comments).collect())
    }

    async fn image(&self, _repo: &RepoRef, address: &Url, limits: &DownloadLimits) -> Result<FetchedImage, String> {
        self.downloads.image(address, Some(self.client.authorization()), limits).await
    }
}
