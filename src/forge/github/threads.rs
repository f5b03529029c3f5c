//! Threads of comments on lines: answers, and their resolution, which only GraphQL has.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::GitHub;
use super::client::ApiCall;
use crate::domain::model::ids::{CommentId, Number, RepoRef};
use crate::domain::trust::outbound::{BodyText, Outbound};
use crate::forge::ForgeResult;

/// Query for the threads of a pull request with their comments.
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
    /// Answers in the thread of a comment, and returns the answer's id. Answers belong to the first comment of a thread.
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

    /// Resolves the thread of a comment; without effect if it is resolved, gone, or the server has no GraphQL.
    pub(super) async fn resolve_thread(&self, repo: &RepoRef, number: Number, remark: CommentId) -> ForgeResult<()> {
        let mut after = Value::Null;
        for _ in 0..MAX_PAGES {
            let call = ApiCall::on(repo, Method::POST, &[], format!("list the threads of #{number} of")).read_only();
            let variables = json!({ "owner": repo.owner, "name": repo.name, "number": number.0, "after": after });
            let Some(data) = self.graphql_if_available(call, THREADS, variables).await? else { return Ok(()) };
            let threads = &data["repository"]["pullRequest"]["reviewThreads"];
            let holds = |thread: &&Value| {
                let comments = thread["comments"]["nodes"].as_array();
                comments.is_some_and(|all| all.iter().any(|one| one["databaseId"].as_i64() == Some(remark.0)))
            };
            if let Some(thread) = threads["nodes"].as_array().and_then(|all| all.iter().find(holds)) {
                if thread["isResolved"].as_bool() == Some(true) {
                    return Ok(());
                }
                let call =
                    ApiCall::on(repo, Method::POST, &[], format!("resolve a thread of #{number} of")).decoration();
                return self.graphql_if_available(call, RESOLVE, json!({ "id": thread["id"] })).await.map(drop);
            }
            if threads["pageInfo"]["hasNextPage"].as_bool() != Some(true) {
                return Ok(());
            }
            after = threads["pageInfo"]["endCursor"].clone();
        }
        Ok(())
    }
}
