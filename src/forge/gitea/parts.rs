//! Requests behind the adapter's operations: comments, files, pull requests, reviewers.

use ::http::Method;
use serde_json::json;

use super::Gitea;
use super::client::under;
use super::map::{WireComment, WirePull};
use crate::domain::model::event::CommentSnapshot;
use crate::domain::model::ids::{CommentId, Number, RepoRef};
use crate::forge::ForgeErrorKind::NotFound;
use crate::forge::contents::{FileContents, FolderContents};
use crate::forge::http::{error, json as read};
use crate::forge::{ForgeError, ForgeErrorKind, ForgeResult, Reviews, TextFile};

impl Gitea {
    /// Returns a comment in a conversation; `None` if it does not exist or is in another conversation.
    pub(super) async fn comment_by_id(
        &self,
        repo: &RepoRef,
        number: Number,
        id: CommentId,
    ) -> ForgeResult<Option<CommentSnapshot>> {
        let what = format!("read comment {id} in {repo}");
        let text = id.to_string();
        let found = self.client.find(&what, &under(repo, &["issues", "comments", &text])?).await?;
        let Some(found) = found else { return Ok(None) };
        if found.body().is_empty() {
            // A reply in a review's thread is delivered like a comment, but listed with the review.
            let of_reviews = match self.review_comments(repo, number).await {
                // The conversation is not that of a pull request.
                Err(ForgeError { kind: NotFound, .. }) => return Ok(None),
                other => other?,
            };
            return Ok(of_reviews.into_iter().map(|found| found.comment).find(|comment| comment.id == id));
        }
        let comment: WireComment = read(&what, &found)?;
        Ok(Some(comment).filter(|comment| comment.issue() == Some(number)).map(WireComment::snapshot))
    }

    /// Returns the files directly in a folder of the default branch.
    pub(super) async fn files_in(&self, repo: &RepoRef, folder: &str) -> ForgeResult<Vec<TextFile>> {
        let what = format!("read the folder {folder} of {repo}");
        let found: FolderContents = match self.client.get(&what, &contents(repo, folder)?, &[]).await {
            Err(ForgeError { kind: NotFound, .. }) => return Ok(Vec::new()),
            found => found?,
        };
        let mut files = Vec::new();
        for path in found.files() {
            let file: FileContents = self.client.get(&what, &contents(repo, &path)?, &[]).await?;
            let text = file.text().map_err(|wrong| error(ForgeErrorKind::Bug, &what, wrong))?;
            files.push(TextFile { path, text });
        }
        Ok(files)
    }

    pub(super) async fn wire_pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<WirePull> {
        let what = format!("read pull request {repo}#{number}");
        self.client.get(&what, &under(repo, &["pulls", &number.to_string()])?, &[]).await
    }

    pub(super) async fn edit_pull(
        &self,
        repo: &RepoRef,
        number: Number,
        fields: serde_json::Value,
    ) -> ForgeResult<WirePull> {
        let what = format!("edit pull request {repo}#{number}");
        let path = [String::from("pulls"), number.to_string()];
        let answer = self.client.send(&what, Method::PATCH, &under(repo, &[&path[0], &path[1]])?, &fields).await?;
        read(&what, &answer)
    }

    pub(super) async fn request_reviews(&self, repo: &RepoRef, number: Number, logins: &[String]) -> ForgeResult<()> {
        let what = format!("request reviews of {repo}#{number}");
        let number = number.to_string();
        let path = under(repo, &["pulls", &number, "requested_reviewers"])?;
        self.client.send(&what, Method::POST, &path, &json!({ "reviewers": logins })).await.map(drop)
    }
}

/// Returns the path segments of a file or folder of a repository.
fn contents<'a>(repo: &'a RepoRef, path: &'a str) -> ForgeResult<Vec<&'a str>> {
    let parts: Vec<&str> = std::iter::once("contents").chain(path.split('/')).collect();
    under(repo, &parts)
}
