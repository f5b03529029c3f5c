//! Operations on issues, comments, labels, pull requests and reviews that need more than a single request.

use std::sync::atomic::Ordering;

use http::Method;
use ralph_types::failure::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::ApiCall;
use super::{GitHub, ignoring, parsed, wire};
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, PullSnapshot, is_same_label};
use crate::domain::model::ids::{AccountKind, CommentId, Number, RepoRef, Timestamp, User, UserId};
use crate::forge::http::{RequestPriority, error};
use crate::forge::{
    ForgeErrorKind, ForgeResult, IssueEdit, LabelChange, LabelSpec, PullReview, Reaction, ReviewComment,
};

const EDITS: &str = "query($owner: String!, $name: String!, $number: Int!, $after: String) { \
    repository(owner: $owner, name: $name) { issueOrPullRequest(number: $number) { \
    ... on Issue { createdAt userContentEdits(first: 100, after: $after) { ...edits } } \
    ... on PullRequest { createdAt userContentEdits(first: 100, after: $after) { ...edits } } } } } \
    fragment edits on UserContentEditConnection { pageInfo { hasNextPage endCursor } \
    nodes { editedAt editor { __typename login ... on User { databaseId } ... on Bot { databaseId } } } }";
const MINIMIZE: &str = "mutation($id: ID!) { minimizeComment(input: { subjectId: $id, classifier: OUTDATED }) \
    { minimizedComment { isMinimized } } }";
const READY: &str = "mutation($id: ID!) { markPullRequestReadyForReview(input: { pullRequestId: $id }) \
    { pullRequest { isDraft } } }";
const DRAFT: &str = "mutation($id: ID!) { convertPullRequestToDraft(input: { pullRequestId: $id }) \
    { pullRequest { isDraft } } }";
/// Maximum number of pages of an edit history; a page has 100 edits.
const MAX_EDIT_PAGES: usize = 20;

/// Last changes of a label and of the title, from the events of an issue.
#[derive(Default)]
pub(super) struct LabelHistory {
    /// Last change of the label.
    pub(super) last: Option<LabelChange>,
    /// Last change of the title.
    pub(super) renamed_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct LabelAnswer {
    name: String,
}

#[derive(Deserialize)]
struct Node {
    node_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditHistory {
    created_at: String,
    user_content_edits: Option<EditPage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditPage {
    page_info: PageInfo,
    nodes: Vec<Option<EditNode>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditNode {
    edited_at: String,
    editor: Option<Editor>,
}

#[derive(Deserialize)]
struct Editor {
    #[serde(rename = "__typename")]
    kind: String,
    login: String,
    #[serde(rename = "databaseId")]
    id: Option<i64>,
}

impl Editor {
    fn account(self) -> Option<User> {
        let kind = if self.kind == "User" { AccountKind::User } else { AccountKind::Bot };
        Some(User { id: UserId(self.id?), login: self.login, kind })
    }
}

impl GitHub {
    /// Reacts to a comment in the conversation of an issue (`issues`) or on a line of a pull request (`pulls`).
    pub(super) async fn react_to(
        &self,
        of: &str,
        repo: &RepoRef,
        id: CommentId,
        reaction: Reaction,
    ) -> ForgeResult<()> {
        let content = match reaction {
            Reaction::Eyes => "eyes",
            Reaction::Rocket => "rocket",
            Reaction::Confused => "confused",
            Reaction::ThumbsDown => "-1",
        };
        let path = [of, "comments", &id.to_string(), "reactions"];
        let call = ApiCall::on(repo, Method::POST, &path, format!("react to comment {id} on"));
        let call = if reaction == Reaction::Eyes { call.urgent() } else { call.decoration() };
        self.client.send(&call.json(json!({ "content": content }))).await.map(drop)
    }

    /// Returns an issue. GitHub redirects from a transferred issue to its new repository; such an issue is `NotFound`.
    /// A redirect to the renamed repository is followed.
    pub(super) async fn one_issue(&self, repo: &RepoRef, number: Number) -> ForgeResult<IssueSnapshot> {
        let call = ApiCall::on(repo, Method::GET, &["issues", &number.to_string()], format!("read issue #{number} of"));
        let call = call.with_html();
        let issue: wire::GitHubIssue = self.client.read(&call).await?;
        let what = format!("read issue #{number} of {}", repo.full_name());
        if let Some(found_in) = issue.repository_name().filter(|name| !name.eq_ignore_ascii_case(&repo.full_name())) {
            let now = self.one_repository(repo).await?.repo.full_name();
            if !found_in.eq_ignore_ascii_case(&now) {
                return Err(error(ForgeErrorKind::NotFound, &what, format!("the issue was transferred to {found_in}")));
            }
        }
        parsed(&what, issue.snapshot())
    }

    /// Returns open issues with a label. The result is filtered again, because GitHub interprets a comma in a label as
    /// two labels.
    pub(super) async fn open_issues_labeled(&self, repo: &RepoRef, label: &str) -> ForgeResult<Vec<IssueSnapshot>> {
        let what = format!("list the issues labeled `{label}` of");
        let call = ApiCall::on(repo, Method::GET, &["issues"], &what).query(&[
            ("labels", label),
            ("state", "open"),
            ("per_page", "100"),
        ]);
        let found = self.client.pages(&call.background(), |page: Vec<wire::GitHubIssue>| page).await?;
        let issues: Result<Vec<_>, _> =
            found.into_iter().filter(|issue| !issue.is_pull()).map(wire::GitHubIssue::snapshot).collect();
        let mut issues = parsed(&what, issues)?;
        issues.retain(|issue| issue.open && issue.has_label(label));
        Ok(issues)
    }

    /// Returns the last change of a label and of the title, from the events of an issue.
    pub(super) async fn label_history(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
        priority: RequestPriority,
    ) -> ForgeResult<LabelHistory> {
        let what = format!("list the events of #{number} of");
        let path = ["issues", &number.to_string(), "events"];
        let call = ApiCall::on(repo, Method::GET, &path, &what).query(&[("per_page", "100")]).with_priority(priority);
        let events = match self.client.pages(&call, |page: Vec<wire::IssueEvent>| page).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => return Ok(LabelHistory::default()),
            other => other?,
        };
        let mut history = LabelHistory::default();
        for event in events {
            let at = parsed(&what, wire::moment(&event.created_at))?;
            let of_label =
                event.label.and_then(wire::GitHubLabel::name).is_some_and(|name| is_same_label(&name, label));
            match event.event.as_str() {
                "renamed" => history.renamed_at = history.renamed_at.max(Some(at)),
                // The issue brought its labels from another repository.
                "transferred" => history.last = None,
                name @ ("labeled" | "unlabeled") if of_label => {
                    // Events are sorted by time; the last one applies.
                    let change = |by| LabelChange { id: event.id, added: name == "labeled", by, at };
                    history.last = event.actor.map(|actor| change(actor.account()));
                }
                _ => {}
            }
        }
        Ok(history)
    }

    /// Returns a comment of a conversation; `None` if it does not exist or is in another conversation.
    pub(super) async fn comment_by_id(
        &self,
        repo: &RepoRef,
        number: Number,
        id: CommentId,
    ) -> ForgeResult<Option<CommentSnapshot>> {
        let what = format!("read comment {id} on");
        let path = ["issues", "comments", &id.to_string()];
        let found: Option<wire::GitHubComment> =
            self.find(&ApiCall::on(repo, Method::GET, &path, &what).with_html()).await?;
        let found = found.filter(|comment| comment.issue() == Some(number));
        parsed(&what, found.map(wire::GitHubComment::snapshot).transpose())
    }

    /// Returns a comment on a line; `None` if it does not exist or is in another pull request.
    pub(super) async fn review_comment_by_id(
        &self,
        repo: &RepoRef,
        number: Number,
        id: CommentId,
    ) -> ForgeResult<Option<ReviewComment>> {
        let what = format!("read review comment {id} on");
        let path = ["pulls", "comments", &id.to_string()];
        let found: Option<wire::GitHubComment> =
            self.find(&ApiCall::on(repo, Method::GET, &path, &what).with_html()).await?;
        let found = found.filter(|comment| comment.pull() == Some(number));
        parsed(&what, found.map(wire::GitHubComment::review_comment).transpose())
    }

    /// Returns a submitted review; `None` if the pull request has no such review.
    pub(super) async fn review_by_id(
        &self,
        repo: &RepoRef,
        number: Number,
        id: i64,
    ) -> ForgeResult<Option<PullReview>> {
        let what = format!("read review {id} of #{number} of");
        let path = ["pulls", &number.to_string(), "reviews", &id.to_string()];
        let found: Option<wire::GitHubReview> =
            self.find(&ApiCall::on(repo, Method::GET, &path, &what).with_html()).await?;
        parsed(&what, found.map(wire::GitHubReview::submitted).transpose()).map(Option::flatten)
    }

    /// Makes a call and parses its response; `None` if the object does not exist.
    async fn find<T: DeserializeOwned>(&self, call: &ApiCall<'_>) -> ForgeResult<Option<T>> {
        ignoring(ForgeErrorKind::NotFound, self.client.read(call).await.map(Some))
    }

    /// Returns issues and pull requests that changed since a time.
    pub(super) async fn issues_changed(&self, repo: &RepoRef, since: Timestamp) -> ForgeResult<Vec<IssueSnapshot>> {
        let what = "list what changed in";
        let since = seconds(since);
        let call = ApiCall::on(repo, Method::GET, &["issues"], what).query(&[
            ("state", "all"),
            ("since", &since),
            ("per_page", "100"),
        ]);
        let found = self.client.pages(&call.background(), |page: Vec<wire::GitHubIssue>| page).await?;
        parsed(what, found.into_iter().map(wire::GitHubIssue::snapshot).collect())
    }

    /// Returns comments of all conversations since a time, each with the number of its issue.
    pub(super) async fn comments_of_all(
        &self,
        repo: &RepoRef,
        since: Timestamp,
    ) -> ForgeResult<Vec<(Number, CommentSnapshot)>> {
        let what = "list the new comments of";
        let since = seconds(since);
        let query = [("since", since.as_str()), ("per_page", "100")];
        let call = ApiCall::on(repo, Method::GET, &["issues", "comments"], what).query(&query);
        let found = self.client.pages(&call.background(), |page: Vec<wire::GitHubComment>| page).await?;
        let comments = found.into_iter().filter_map(|comment| Some((comment.issue()?, comment)));
        let comments = comments.map(|(number, comment)| comment.snapshot().map(|comment| (number, comment)));
        parsed(what, comments.collect())
    }

    /// Returns the edits of an issue's text, oldest first. GitHub's list starts with the creation, which is skipped.
    pub(super) async fn edits_of(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<IssueEdit>> {
        let what = format!("read the edit history of #{number} of");
        let mut edits = Vec::new();
        let mut after: Option<String> = None;
        let mut created = None;
        for _ in 0..MAX_EDIT_PAGES {
            let call = ApiCall::on(repo, Method::POST, &[], &what).read_only();
            let variables = json!({ "owner": repo.owner, "name": repo.name, "number": number.0, "after": after });
            let Some(mut data) = self.graphql_if_available(call, EDITS, variables).await? else {
                return Ok(Vec::new());
            };
            let history = data.pointer_mut("/repository/issueOrPullRequest").map(Value::take).unwrap_or_default();
            let history = serde_json::from_value(history);
            let history = history.map_err(|error| Failure::new("the edit history is not valid").caused_by(error));
            let history: EditHistory = parsed(&what, history)?;
            created = Some(parsed(&what, wire::moment(&history.created_at))?);
            let Some(page) = history.user_content_edits else { break };
            for node in page.nodes.into_iter().flatten() {
                let at = parsed(&what, wire::moment(&node.edited_at))?;
                edits.push(IssueEdit { at, editor: node.editor.and_then(Editor::account) });
            }
            after = page.page_info.end_cursor.filter(|_| page.page_info.has_next_page);
            if after.is_none() {
                break;
            }
        }
        // Newest first; the last one is the original text. An edit may be of the same second.
        if edits.last().is_some_and(|oldest| created.is_some_and(|created| oldest.at <= created)) {
            edits.pop();
        }
        edits.sort_by_key(|edit| edit.at);
        Ok(edits)
    }

    /// Creates missing labels; letter case of names is ignored.
    pub(super) async fn make_missing_labels(&self, repo: &RepoRef, labels: &[LabelSpec]) -> ForgeResult<usize> {
        let list = ApiCall::on(repo, Method::GET, &["labels"], "list the labels of").query(&[("per_page", "100")]);
        let present = self.client.pages(&list, |page: Vec<LabelAnswer>| page).await?;
        let exists =
            |label: &&LabelSpec| present.iter().any(|has| has.name.to_lowercase() == label.name.to_lowercase());
        let mut made = 0;
        for label in labels.iter().filter(|label| !exists(label)) {
            let call =
                ApiCall::on(repo, Method::POST, &["labels"], format!("create label `{}` of", label.name)).json(json!({
                    "name": label.name, "color": label.color, "description": label.description,
                }));
            // The label may have been created in the meantime.
            ignoring(ForgeErrorKind::Conflict, self.client.send(&call).await.map(drop))?;
            made += 1;
        }
        Ok(made)
    }

    /// Returns the comments of a conversation, oldest first.
    pub(super) async fn comments_since(
        &self,
        repo: &RepoRef,
        number: Number,
        since: Option<Timestamp>,
    ) -> ForgeResult<Vec<CommentSnapshot>> {
        let what = format!("list the comments on #{number} of");
        let since = since.map(seconds);
        let mut query = vec![("per_page", "100")];
        query.extend(since.as_deref().map(|since| ("since", since)));
        let call = ApiCall::on(repo, Method::GET, &["issues", &number.to_string(), "comments"], &what).query(&query);
        let call = call.with_html();
        let found = self.client.pages(&call, |page: Vec<wire::GitHubComment>| page).await?;
        let mut comments: Vec<_> =
            parsed(&what, found.into_iter().map(wire::GitHubComment::snapshot).collect::<Result<_, _>>())?;
        comments.sort_by_key(|comment| (comment.created_at, comment.id));
        // A comment that moves to the next page during the read occurs twice.
        comments.dedup_by_key(|comment| comment.id);
        Ok(comments)
    }

    /// Minimizes a comment as outdated.
    pub(super) async fn fold_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()> {
        let path = ["issues", "comments", &id.to_string()];
        let node: Node =
            self.client.read(&ApiCall::on(repo, Method::GET, &path, format!("read comment {id} on"))).await?;
        let call = ApiCall::on(repo, Method::POST, &[], format!("minimize comment {id} on"));
        self.graphql_if_available(call.decoration(), MINIMIZE, json!({ "id": node.node_id })).await.map(drop)
    }

    /// Returns a pull request in GitHub's format.
    pub(super) async fn read_pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<wire::GitHubPull> {
        let path = ["pulls", &number.to_string()];
        self.client.read(&ApiCall::on(repo, Method::GET, &path, format!("read pull request #{number} of"))).await
    }

    /// Returns the newest pull request from a branch of this repository. Each result is checked, because GitHub
    /// ignores filters that it cannot parse.
    pub(super) async fn newest_pull_from(&self, repo: &RepoRef, head: &str) -> ForgeResult<Option<PullSnapshot>> {
        let what = format!("find the pull request from `{head}` of");
        let filter = format!("{}:{head}", repo.owner);
        let call = ApiCall::on(repo, Method::GET, &["pulls"], &what).query(&[
            ("head", &filter),
            ("state", "all"),
            ("sort", "created"),
            ("direction", "desc"),
            ("per_page", "100"),
        ]);
        let found: Vec<wire::GitHubPull> = self.client.read(&call).await?;
        let pulls: Vec<_> = parsed(&what, found.into_iter().map(wire::GitHubPull::snapshot).collect::<Result<_, _>>())?;
        let matches = |pull: &PullSnapshot| pull.head_branch == head && pull.head_repo.is_none_or(|id| id == repo.id);
        Ok(pulls.into_iter().filter(matches).max_by_key(|pull| pull.number))
    }

    /// Converts a pull request to a draft or marks it as ready, by GraphQL, or by REST if the server lacks GraphQL.
    pub(super) async fn set_draft(&self, repo: &RepoRef, number: Number, draft: bool) -> ForgeResult<()> {
        let pull = self.read_pull(repo, number).await?;
        if pull.draft == Some(draft) {
            return Ok(());
        }
        let wanted = if draft { "a draft" } else { "ready" };
        let what = format!("mark pull request #{number} as {wanted} on");
        let node = pull.node_id.ok_or(Failure::new("the pull request has no node id"));
        let call = ApiCall::on(repo, Method::POST, &[], &what);
        let mutation = if draft { DRAFT } else { READY };
        if self.graphql_if_available(call, mutation, json!({ "id": parsed(&what, node)? })).await?.is_some() {
            return Ok(());
        }
        let call = ApiCall::on(repo, Method::PATCH, &["pulls", &number.to_string()], &what);
        let after: wire::GitHubPull = self.client.read(&call.json(json!({ "draft": draft }))).await?;
        if after.draft == Some(!draft) {
            let detail = format!(
                "the server has no GraphQL and ignores `draft` in REST; mark the pull request as {wanted} by hand"
            );
            return Err(error(ForgeErrorKind::Denied, &format!("{what} {}", repo.full_name()), detail.as_str()));
        }
        Ok(())
    }

    /// Returns submitted reviews, oldest first.
    pub(super) async fn reviews_of(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<PullReview>> {
        let what = format!("list the reviews of #{number} of");
        let path = ["pulls", &number.to_string(), "reviews"];
        let call = ApiCall::on(repo, Method::GET, &path, &what).query(&[("per_page", "100")]).with_html();
        let found = self.client.pages(&call, |page: Vec<wire::GitHubReview>| page).await?;
        let reviews: Result<Vec<_>, _> = found.into_iter().map(wire::GitHubReview::submitted).collect();
        let mut reviews: Vec<PullReview> = parsed(&what, reviews)?.into_iter().flatten().collect();
        reviews.sort_by_key(|review| (review.submitted_at, review.id));
        Ok(reviews)
    }

    /// Returns comments on lines, oldest first.
    pub(super) async fn review_comments_of(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<ReviewComment>> {
        let what = format!("list the review comments on #{number} of");
        let path = ["pulls", &number.to_string(), "comments"];
        let call = ApiCall::on(repo, Method::GET, &path, &what).query(&[("per_page", "100")]).with_html();
        let found = self.client.pages(&call, |page: Vec<wire::GitHubComment>| page).await?;
        let mut comments: Vec<_> =
            parsed(&what, found.into_iter().map(wire::GitHubComment::review_comment).collect::<Result<_, _>>())?;
        comments.sort_by_key(|found| (found.comment.created_at, found.comment.id));
        Ok(comments)
    }

    /// Runs a GraphQL request; `None` if the server lacks GraphQL, which is remembered.
    pub(super) async fn graphql_if_available(
        &self,
        call: ApiCall<'_>,
        query: &str,
        variables: Value,
    ) -> ForgeResult<Option<Value>> {
        match self.client.graphql(call, query, variables).await {
            Ok(data) => Ok(Some(data)),
            Err(failure) if failure.kind == ForgeErrorKind::NotFound && failure.detail.starts_with("HTTP 404") => {
                self.no_graphql.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Formats a time in whole seconds for the API.
fn seconds(at: Timestamp) -> String {
    jiff::Timestamp::from_second(at.0.div_euclid(1000)).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}
