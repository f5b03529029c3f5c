//! Uploaded files. GitHub provides their signed addresses only in the rendered HTML of a text.

use std::sync::LazyLock;

use async_trait::async_trait;
use http::{HeaderValue, Method};
use regex::Regex;
use secrecy::ExposeSecret;
use serde::Deserialize;
use url::Url;

use super::GitHub;
use super::auth::Purpose;
use super::client::ApiCall;
use super::wire::GitHubUser;
use crate::domain::model::ids::{Number, RepoRef};
use crate::domain::trust::images::AttachmentAddresses;
use crate::forge::{
    AttachedText, Attachment, Attachments, DownloadLimits, FetchedImage, ForgeError, ForgeResult, ImageFailure,
};

/// Issue or comment with its rendered HTML.
#[derive(Deserialize)]
struct RenderedText {
    body: Option<String>,
    body_html: Option<String>,
    user: Option<GitHubUser>,
}

impl RenderedText {
    fn attached(self, is_comment: bool, addresses: &AttachmentAddresses) -> AttachedText {
        AttachedText {
            is_comment,
            author: self.user.map(GitHubUser::account),
            body: self.body.unwrap_or_default(),
            attachments: attachments(self.body_html.as_deref().unwrap_or_default(), addresses),
            html: self.body_html,
        }
    }
}

/// Returns the attachments in the HTML that GitHub rendered from a text. GitHub escapes every `"` in a value.
fn attachments(html: &str, addresses: &AttachmentAddresses) -> Vec<Attachment> {
    static SOURCE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"<img\b[^>]*?\ssrc="([^"]*)""#).expect("a pattern"));
    let found = SOURCE.captures_iter(html).filter_map(|found| {
        let address = Url::parse(&found[1].replace("&amp;", "&")).ok()?;
        Some(Attachment { id: addresses.answered(&address)?, address, shown_as: None })
    });
    found.collect()
}

#[async_trait]
impl Attachments for GitHub {
    fn addresses(&self) -> &AttachmentAddresses {
        &self.downloads.addresses
    }

    async fn attached(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<AttachedText>> {
        let (number, addresses) = (number.to_string(), &self.downloads.addresses);
        let what = format!("read the images of #{number} of");
        let call = ApiCall::on(repo, Method::GET, &["issues", &number], &what).with_fresh_addresses();
        let issue: RenderedText = self.client.read(&call).await?;
        let call = ApiCall::on(repo, Method::GET, &["issues", &number, "comments"], &what).with_fresh_addresses();
        let call = call.query(&[("per_page", "100")]);
        let comments = self.client.pages(&call, |page: Vec<RenderedText>| page).await?;
        let comments = comments.into_iter().map(|text| text.attached(true, addresses));
        Ok(std::iter::once(issue.attached(false, addresses)).chain(comments).collect())
    }

    async fn attached_to_remarks(&self, repo: &RepoRef, pull: Number) -> ForgeResult<Vec<Attachment>> {
        let (number, addresses) = (pull.to_string(), &self.downloads.addresses);
        let what = format!("read the images of comments on lines of #{number} of");
        let call = ApiCall::on(repo, Method::GET, &["pulls", &number, "comments"], &what).with_fresh_addresses();
        let call = call.query(&[("per_page", "100")]);
        let remarks = self.client.pages(&call, |page: Vec<RenderedText>| page).await?;
        Ok(remarks.into_iter().flat_map(|text| text.attached(true, addresses).attachments).collect())
    }

    async fn image(
        &self,
        repo: &RepoRef,
        address: &Url,
        limits: &DownloadLimits,
    ) -> Result<FetchedImage, ImageFailure> {
        let no_token = |failure: ForgeError| ImageFailure { why: failure.to_string(), is_temporary: true };
        let token = self.client.git_token(repo, Purpose::Api).await.map_err(no_token)?.0;
        let mut credential = HeaderValue::try_from(format!("Bearer {}", token.expose_secret())).map_err(|_| {
            ImageFailure { why: "the forge's token contains invalid characters".to_owned(), is_temporary: false }
        })?;
        credential.set_sensitive(true);
        self.downloads.image(address, Some(&credential), limits).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_addresses_are_found_in_html() {
        const ID: &str = "0bec7adc-52c5-432f-bca7-c9a3186649b4";
        let signed = format!("https://private-user-images.githubusercontent.com/1/2-{ID}.png?jwt=a.b&amp;x=1");
        let html = format!(
            "<p><a href=\"{signed}\"><img width=\"600\" alt=\"&lt;img src=&quot;x&quot;&gt;\" src=\"{signed}\"></a> \
             <img src=\"https://camo.githubusercontent.com/abc\" alt=\"\"></p>"
        );
        let forge = AttachmentAddresses::GitHub(Url::parse("https://github.com").expect("an address"));
        let [found] = &attachments(&html, &forge)[..] else { panic!("one: {:?}", attachments(&html, &forge)) };
        assert_eq!(found.id, ID);
        assert_eq!(found.address.query(), Some("jwt=a.b&x=1"));
    }
}
