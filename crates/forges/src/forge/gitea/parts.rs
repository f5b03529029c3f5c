//! Requests behind the adapter's operations: comments, files, pull requests, reviewers.

use ::http::Method;
use serde::Deserialize;

use super::Gitea;
use super::client::under;
use super::map::{WireComment, WirePull, WireReview, WireReviewComment};
use crate::domain::model::event::CommentSnapshot;
use crate::domain::model::ids::{CommentId, Number, RepoRef, Sha};
use crate::forge::ForgeErrorKind::NotFound;
use crate::forge::contents::{FileContents, FolderContents};
use crate::forge::http::{error, json as read};
use crate::forge::{Forge, ForgeError, ForgeErrorKind, ForgeResult, PathFilter, Reviews, TextFile, reviewers_body};

/// Names and address of the token's account.
#[derive(Deserialize)]
pub(super) struct AccountAddress {
    pub login: String,
    #[serde(default)]
    pub full_name: String,
    #[serde(default)]
    pub email: String,
}

/// Protection of a branch.
#[derive(Deserialize)]
pub(super) struct BranchProtection {
    #[serde(default)]
    pub protected: bool,
}

impl Gitea {
    /// Returns the comments on lines, each with the commit of its review.
    pub(super) async fn wire_remarks(
        &self,
        repo: &RepoRef,
        number: Number,
    ) -> ForgeResult<Vec<(Option<Sha>, WireReviewComment)>> {
        let what = format!("list the review comments of {repo}#{number}");
        let number = number.to_string();
        let path = under(repo, &["pulls", &number, "reviews"])?;
        let reviews: Vec<WireReview> = self.client.list(&what, &path, &[], |_| false).await?;
        let mut remarks = Vec::new();
        for review in reviews.into_iter().filter(|review| review.comments_count > 0) {
            let id = review.id.to_string();
            let path = under(repo, &["pulls", &number, "reviews", &id, "comments"])?;
            let found: Option<Vec<WireReviewComment>> = self.client.get(&what, &path, &[]).await?;
            let commit = Sha::parse(&review.commit_id);
            // Comments of a pending review are visible to its author only.
            if review.review().is_some() {
                remarks.extend(found.into_iter().flatten().map(|remark| (commit.clone(), remark)));
            }
        }
        Ok(remarks)
    }

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
                // The conversation does not belong to a pull request.
                Err(ForgeError { kind: NotFound, .. }) => return Ok(None),
                other => other?,
            };
            return Ok(of_reviews.into_iter().map(|found| found.comment).find(|comment| comment.id == id));
        }
        let comment: WireComment = read(&what, &found)?;
        Ok(Some(comment).filter(|comment| comment.issue() == Some(number)).map(WireComment::snapshot))
    }

    /// Converts a server error to `NotFound` if the issue does not exist. The server answers 500 to requests for
    /// comments of a missing issue.
    pub(super) async fn missing_issue(&self, repo: &RepoRef, number: Number, failure: ForgeError) -> ForgeError {
        let server_error =
            matches!(failure.kind, ForgeErrorKind::Transient { .. }) && failure.detail.starts_with("HTTP 5");
        if !server_error {
            return failure;
        }
        match self.issue(repo, number).await {
            Err(ForgeError { kind: NotFound, .. }) => error(NotFound, &failure.what, "the issue does not exist"),
            _ => failure,
        }
    }

    /// Returns the files directly in a folder of the default branch.
    pub(super) async fn files_in(
        &self,
        repo: &RepoRef,
        folder: &str,
        wanted: PathFilter,
    ) -> ForgeResult<Vec<TextFile>> {
        let what = format!("read the folder {folder} of {repo}");
        let found: FolderContents = match self.client.get(&what, &contents(repo, folder)?, &[]).await {
            Err(ForgeError { kind: NotFound, .. }) => return Ok(Vec::new()),
            found => found?,
        };
        let mut files = Vec::new();
        for path in found.files(wanted) {
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

    /// Returns the open pull request from a branch of this repository; if there is none, a closed one between the two
    /// branches.
    pub(super) async fn pull_from(
        &self,
        what: &str,
        repo: &RepoRef,
        head: &str,
        base: &str,
    ) -> ForgeResult<Option<WirePull>> {
        let matches = |pull: &WirePull| pull.comes_from(repo.id, head);
        let parts: Vec<&str> = ["pulls", base].into_iter().chain(head.split('/')).collect();
        // The server would read the rest of a base with a slash as part of the head.
        let between = match base.contains('/') {
            true => None,
            false => match self.client.get::<WirePull>(what, &under(repo, &parts)?, &[]).await {
                Err(ForgeError { kind: NotFound, .. }) => None,
                found => Some(found?).filter(matches),
            },
        };
        if between.as_ref().is_some_and(WirePull::is_open) {
            return Ok(between);
        }
        // Its base may have changed; pull requests closed long ago are not listed.
        let found = |pulls: &[WirePull]| pulls.iter().any(matches);
        let open: Vec<WirePull> =
            self.client.list(what, &under(repo, &["pulls"])?, &[("state", "open")], found).await?;
        Ok(open.into_iter().find(matches).or(between))
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
        self.client.send(&what, Method::POST, &path, &reviewers_body(logins)).await.map(drop)
    }
}

/// Returns the path segments of a file or folder of a repository.
fn contents<'a>(repo: &'a RepoRef, path: &'a str) -> ForgeResult<Vec<&'a str>> {
    let parts: Vec<&str> = std::iter::once("contents").chain(path.split('/').filter(|part| !part.is_empty())).collect();
    under(repo, &parts)
}
