//! Reviews: requests for reviews, and replies in threads of comments on lines. Threads can be resolved only by
//! GraphQL.

use async_trait::async_trait;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::GitHub;
use super::client::{ApiCall, is_unprocessable};
use crate::domain::model::ids::{CommentId, Number, RepoRef};
use crate::domain::trust::outbound::{BodyText, Outbound};
use crate::forge::{ForgeResult, PullReview, ReviewComment, Reviews, reviewers_body};

/// Query for the threads of a pull request and their comments.
const THREADS: &str = "query($owner: String!, $name: String!, $number: Int!, $after: String) { \
    repository(owner: $owner, name: $name) { pullRequest(number: $number) { reviewThreads(first: 100, after: $after) { \
    pageInfo { hasNextPage endCursor } nodes { id isResolved comments(first: 100) { nodes { databaseId } } } } } } }";
/// Mutation that resolves a thread.
const RESOLVE: &str = "mutation($id: ID!) { resolveReviewThread(input: { threadId: $id }) { thread { isResolved } } }";
/// Maximum number of pages of threads.
const MAX_PAGES: usize = 20;

#[derive(Deserialize)]
struct ThreadComment {
    id: i64,
    in_reply_to_id: Option<i64>,
}

impl GitHub {
    /// Replies in the thread of a comment and returns the reply's id. Replies must refer to the first comment of a
    /// thread.
    pub(super) async fn reply_in_thread(
        &self,
        repo: &RepoRef,
        number: Number,
        remark: CommentId,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<CommentId> {
        let path = ["pulls", "comments", &remark.to_string()];
        let call = ApiCall::on(repo, Method::GET, &path, format!("read comment {remark} on a line of"));
        let known: ThreadComment = self.client.read(&call).await?;
        let first = known.in_reply_to_id.unwrap_or(known.id).to_string();
        let path = ["pulls", &number.to_string(), "comments", &first, "replies"];
        let call = ApiCall::on(repo, Method::POST, &path, format!("answer comment {remark} on a line of"));
        let answer: ThreadComment = self.client.read(&call.json(json!({ "body": body }))).await?;
        Ok(CommentId(answer.id))
    }

    /// Resolves the thread of a comment; does nothing if it is resolved or deleted, or if the server lacks GraphQL.
    pub(super) async fn resolve_thread(&self, repo: &RepoRef, number: Number, remark: CommentId) -> ForgeResult<()> {
        let threads = self.threads_until(repo, number, |thread| thread.comments.contains(&remark)).await?;
        let found = threads.into_iter().find(|thread| thread.comments.contains(&remark));
        let Some(thread) = found.filter(|thread| !thread.resolved) else { return Ok(()) };
        let call = ApiCall::on(repo, Method::POST, &[], format!("resolve a thread of #{number} of")).decoration();
        self.graphql_if_available(call, RESOLVE, json!({ "id": thread.id })).await.map(drop)
    }

    /// Returns the threads of a pull request, up to the page with one that meets a condition; empty if the server lacks GraphQL.
    async fn threads_until(
        &self,
        repo: &RepoRef,
        number: Number,
        is_last: impl Fn(&ReviewThread) -> bool,
    ) -> ForgeResult<Vec<ReviewThread>> {
        let mut after = Value::Null;
        let mut threads = Vec::new();
        for _ in 0..MAX_PAGES {
            let call = ApiCall::on(repo, Method::POST, &[], format!("list the threads of #{number} of")).read_only();
            let variables = json!({ "owner": repo.owner, "name": repo.name, "number": number.0, "after": after });
            let Some(data) = self.graphql_if_available(call, THREADS, variables).await? else { return Ok(threads) };
            let page = &data["repository"]["pullRequest"]["reviewThreads"];
            threads.extend(page["nodes"].as_array().into_iter().flatten().map(ReviewThread::read));
            if threads.iter().any(&is_last) || page["pageInfo"]["hasNextPage"].as_bool() != Some(true) {
                return Ok(threads);
            }
            after = page["pageInfo"]["endCursor"].clone();
        }
        Ok(threads)
    }
}

/// Thread of comments on a line.
struct ReviewThread {
    id: Value,
    resolved: bool,
    comments: Vec<CommentId>,
}

impl ReviewThread {
    fn read(node: &Value) -> Self {
        let comments = node["comments"]["nodes"].as_array().into_iter().flatten();
        let comments = comments.filter_map(|one| one["databaseId"].as_i64()).map(CommentId).collect();
        Self { id: node["id"].clone(), resolved: node["isResolved"].as_bool() == Some(true), comments }
    }
}

#[async_trait]
impl Reviews for GitHub {
    async fn request_reviewers(&self, repo: &RepoRef, number: Number, logins: &[String]) -> ForgeResult<()> {
        let ask = async |reviewers: &[String]| {
            let path = ["pulls", &number.to_string(), "requested_reviewers"];
            let call = ApiCall::on(repo, Method::POST, &path, format!("request reviews of #{number} of"));
            self.client.send(&call.json(reviewers_body(reviewers))).await.map(drop)
        };
        if logins.is_empty() {
            return Ok(());
        }
        match ask(logins).await {
            Err(failure) if is_unprocessable(&failure) => {}
            outcome => return outcome,
        }
        // GitHub rejects the request if one login cannot review, so each is requested separately.
        for login in logins.iter().filter(|_| logins.len() > 1) {
            match ask(std::slice::from_ref(login)).await {
                Err(failure) if is_unprocessable(&failure) => {
                    tracing::info!(login, "review cannot be requested from this account")
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn submitted_reviews(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<PullReview>> {
        self.reviews_of(repo, number).await
    }

    async fn review_comments(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<ReviewComment>> {
        self.review_comments_of(repo, number).await
    }

    async fn answer_remark(
        &self,
        repo: &RepoRef,
        number: Number,
        remark: CommentId,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<Option<CommentId>> {
        self.reply_in_thread(repo, number, remark, body).await.map(Some)
    }

    async fn resolved_remarks(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<CommentId>> {
        let threads = self.threads_until(repo, number, |_| false).await?.into_iter();
        Ok(threads.filter(|thread| thread.resolved).flat_map(|thread| thread.comments).collect())
    }

    async fn resolve_remark(&self, repo: &RepoRef, number: Number, remark: CommentId) -> ForgeResult<()> {
        self.resolve_thread(repo, number, remark).await
    }
}
