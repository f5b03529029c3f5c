//! Issues, comments, labels, pull requests and reviews, where more than one plain call is needed.

use std::sync::atomic::Ordering;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Call;
use super::{GitHub, understood, unless, wire};
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, PullSnapshot};
use crate::domain::model::ids::{AccountKind, CommentId, Number, RepoRef, Timestamp, User, UserId};
use crate::forge::http::error;
use crate::forge::{Edit, ForgeErrorKind, ForgeResult, LabelSpec, Labelled, Review, ReviewRemark};

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
/// Pages of an edit history that are read at most; 100 edits each.
const MAX_EDIT_PAGES: usize = 20;

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
    /// One issue. GitHub sends those who ask for a transferred issue to the repository that it went to; from here it
    /// is gone then. A repository that was renamed is the same one still.
    pub(super) async fn one_issue(&self, repo: &RepoRef, number: Number) -> ForgeResult<IssueSnapshot> {
        let call = Call::on(repo, Method::GET, &["issues", &number.to_string()], format!("read issue #{number} of"));
        let issue: wire::Issue = self.client.read(&call).await?;
        let what = format!("read issue #{number} of {}", repo.full_name());
        if let Some(place) = issue.repository_name().filter(|place| !place.eq_ignore_ascii_case(&repo.full_name())) {
            let now = self.one_repository(repo).await?.repo.full_name();
            if !place.eq_ignore_ascii_case(&now) {
                return Err(error(ForgeErrorKind::NotFound, &what, format!("it was transferred to {place}")));
            }
        }
        understood(&what, issue.snapshot())
    }

    /// Open issues with a label. The filter is checked again, because a comma in a label would mean two labels.
    pub(super) async fn open_issues_labelled(&self, repo: &RepoRef, label: &str) -> ForgeResult<Vec<IssueSnapshot>> {
        let what = format!("list the issues labelled `{label}` of");
        let call = Call::on(repo, Method::GET, &["issues"], &what).query(&[
            ("labels", label),
            ("state", "open"),
            ("per_page", "100"),
        ]);
        let found = self.client.pages(&call.background(), |page: Vec<wire::Issue>| page).await?;
        let issues: Result<Vec<_>, _> =
            found.into_iter().filter(|issue| !issue.is_pull()).map(wire::Issue::snapshot).collect();
        let mut issues = understood(&what, issues)?;
        issues.retain(|issue| issue.open && issue.labels.iter().any(|has| has.to_lowercase() == label.to_lowercase()));
        Ok(issues)
    }

    /// Who set a label last, and whether the title was changed, from the events of an issue.
    pub(super) async fn label_event(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
    ) -> ForgeResult<Option<Labelled>> {
        let what = format!("list the events of #{number} of");
        let path = ["issues", &number.to_string(), "events"];
        let call = Call::on(repo, Method::GET, &path, &what).query(&[("per_page", "100")]);
        let events = match self.client.pages(&call.background(), |page: Vec<wire::IssueEvent>| page).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let (mut labelled, mut renamed_at) = (None, None);
        for event in events {
            let at = understood(&what, wire::moment(&event.created_at))?;
            match event.event.as_str() {
                "renamed" => renamed_at = renamed_at.max(Some(at)),
                // It came from another repository, and its labels with it: nobody set them here.
                "transferred" => labelled = None,
                "labeled" if event.label.and_then(wire::Label::name).as_deref() == Some(label) => {
                    // Oldest first: the last one is the one that stands.
                    labelled = event.actor.map(|actor| (actor.account(), at));
                }
                _ => {}
            }
        }
        Ok(labelled.map(|(by, at)| Labelled { by, at, renamed_at }))
    }

    /// Issues and pull requests that changed since a moment.
    pub(super) async fn issues_changed(&self, repo: &RepoRef, since: Timestamp) -> ForgeResult<Vec<IssueSnapshot>> {
        let what = "list what changed in";
        let since = seconds(since);
        let call = Call::on(repo, Method::GET, &["issues"], what).query(&[
            ("state", "all"),
            ("since", &since),
            ("per_page", "100"),
        ]);
        let found = self.client.pages(&call.background(), |page: Vec<wire::Issue>| page).await?;
        understood(what, found.into_iter().map(wire::Issue::snapshot).collect())
    }

    /// Comments of all conversations since a moment, each with the number of its issue.
    pub(super) async fn comments_of_all(
        &self,
        repo: &RepoRef,
        since: Timestamp,
    ) -> ForgeResult<Vec<(Number, CommentSnapshot)>> {
        let what = "list the new comments of";
        let since = seconds(since);
        let query = [("since", since.as_str()), ("per_page", "100")];
        let call = Call::on(repo, Method::GET, &["issues", "comments"], what).query(&query);
        let found = self.client.pages(&call.background(), |page: Vec<wire::Comment>| page).await?;
        let placed = found.into_iter().filter_map(|comment| Some((comment.issue()?, comment)));
        let placed = placed.map(|(number, comment)| comment.snapshot().map(|comment| (number, comment)));
        understood(what, placed.collect())
    }

    /// The edits of an issue's text, oldest first. GitHub's list begins with the text as it was written.
    pub(super) async fn edits_of(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<Edit>> {
        let what = format!("read the edit history of #{number} of");
        let mut edits = Vec::new();
        let mut after: Option<String> = None;
        for _ in 0..MAX_EDIT_PAGES {
            let call = Call::on(repo, Method::POST, &[], &what).read_only();
            let variables = json!({ "owner": repo.owner, "name": repo.name, "number": number.0, "after": after });
            let Some(mut data) = self.graphql_if_there(call, EDITS, variables).await? else { return Ok(Vec::new()) };
            let history = data.pointer_mut("/repository/issueOrPullRequest").map(Value::take).unwrap_or_default();
            let history: EditHistory =
                understood(&what, serde_json::from_value(history).map_err(|failure| failure.to_string()))?;
            let created = understood(&what, wire::moment(&history.created_at))?;
            let Some(page) = history.user_content_edits else { break };
            for node in page.nodes.into_iter().flatten() {
                let at = understood(&what, wire::moment(&node.edited_at))?;
                if at > created {
                    edits.push(Edit { at, editor: node.editor.and_then(Editor::account) });
                }
            }
            after = page.page_info.end_cursor.filter(|_| page.page_info.has_next_page);
            if after.is_none() {
                break;
            }
        }
        edits.sort_by_key(|edit| edit.at);
        Ok(edits)
    }

    /// Makes the labels that are missing; names differ in more than case.
    pub(super) async fn make_missing_labels(&self, repo: &RepoRef, labels: &[LabelSpec]) -> ForgeResult<()> {
        let list = Call::on(repo, Method::GET, &["labels"], "list the labels of").query(&[("per_page", "100")]);
        let present = self.client.pages(&list, |page: Vec<LabelAnswer>| page).await?;
        let is_there =
            |label: &&LabelSpec| present.iter().any(|has| has.name.to_lowercase() == label.name.to_lowercase());
        for label in labels.iter().filter(|label| !is_there(label)) {
            let call =
                Call::on(repo, Method::POST, &["labels"], format!("make label `{}` of", label.name)).json(json!({
                    "name": label.name, "color": label.color, "description": label.description,
                }));
            // Somebody may have made it meanwhile.
            unless(ForgeErrorKind::Conflict, self.client.send(&call).await.map(drop))?;
        }
        Ok(())
    }

    /// Comments of a conversation, oldest first.
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
        let call = Call::on(repo, Method::GET, &["issues", &number.to_string(), "comments"], &what).query(&query);
        let found = self.client.pages(&call, |page: Vec<wire::Comment>| page).await?;
        let mut comments: Vec<_> =
            understood(&what, found.into_iter().map(wire::Comment::snapshot).collect::<Result<_, _>>())?;
        comments.sort_by_key(|comment| (comment.created_at, comment.id));
        // A comment that moved to the next page while we read is there twice.
        comments.dedup_by_key(|comment| comment.id);
        Ok(comments)
    }

    /// Folds a comment away as outdated.
    pub(super) async fn fold_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()> {
        let path = ["issues", "comments", &id.to_string()];
        let node: Node = self.client.read(&Call::on(repo, Method::GET, &path, format!("read comment {id} on"))).await?;
        let call = Call::on(repo, Method::POST, &[], format!("fold comment {id} away on"));
        self.graphql_if_there(call, MINIMIZE, json!({ "id": node.node_id })).await.map(drop)
    }

    /// One pull request as GitHub has it.
    pub(super) async fn read_pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<wire::Pull> {
        let path = ["pulls", &number.to_string()];
        self.client.read(&Call::on(repo, Method::GET, &path, format!("read pull request #{number} of"))).await
    }

    /// The newest pull request from a branch of this repository. GitHub lists all pull requests when it does not
    /// understand the filter, so each is looked at.
    pub(super) async fn newest_pull_from(&self, repo: &RepoRef, head: &str) -> ForgeResult<Option<PullSnapshot>> {
        let what = format!("find the pull request from `{head}` of");
        let filter = format!("{}:{head}", repo.owner);
        let call = Call::on(repo, Method::GET, &["pulls"], &what).query(&[
            ("head", &filter),
            ("state", "all"),
            ("sort", "created"),
            ("direction", "desc"),
            ("per_page", "100"),
        ]);
        let found: Vec<wire::Pull> = self.client.read(&call).await?;
        let pulls: Vec<_> = understood(&what, found.into_iter().map(wire::Pull::snapshot).collect::<Result<_, _>>())?;
        let from_here = |pull: &PullSnapshot| pull.head_branch == head && pull.head_repo.is_none_or(|id| id == repo.id);
        Ok(pulls.into_iter().filter(from_here).max_by_key(|pull| pull.number))
    }

    /// Takes a pull request out of draft: by GraphQL, which alone can on GitHub, or by REST where there is none.
    pub(super) async fn take_out_of_draft(&self, repo: &RepoRef, number: Number) -> ForgeResult<()> {
        let pull = self.read_pull(repo, number).await?;
        if pull.draft == Some(false) {
            return Ok(());
        }
        let what = format!("take pull request #{number} out of draft on");
        let node = pull.node_id.ok_or("the pull request has no node id".to_owned());
        let call = Call::on(repo, Method::POST, &[], &what);
        if self.graphql_if_there(call, READY, json!({ "id": understood(&what, node)? })).await?.is_some() {
            return Ok(());
        }
        let call = Call::on(repo, Method::PATCH, &["pulls", &number.to_string()], &what);
        let after: wire::Pull = self.client.read(&call.json(json!({ "draft": false }))).await?;
        if after.draft == Some(true) {
            let detail = "the server has no GraphQL and ignores `draft` in REST; take it out of draft by hand";
            return Err(error(ForgeErrorKind::Denied, &format!("{what} {}", repo.full_name()), detail));
        }
        Ok(())
    }

    /// Reviews that were handed in, oldest first.
    pub(super) async fn reviews_of(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<Review>> {
        let what = format!("list the reviews of #{number} of");
        let path = ["pulls", &number.to_string(), "reviews"];
        let call = Call::on(repo, Method::GET, &path, &what).query(&[("per_page", "100")]);
        let found = self.client.pages(&call, |page: Vec<wire::Review>| page).await?;
        let reviews: Result<Vec<_>, _> = found.into_iter().map(wire::Review::handed_in).collect();
        let mut reviews: Vec<Review> = understood(&what, reviews)?.into_iter().flatten().collect();
        reviews.sort_by_key(|review| (review.submitted_at, review.id));
        Ok(reviews)
    }

    /// Remarks on lines, oldest first.
    pub(super) async fn remarks_of(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<ReviewRemark>> {
        let what = format!("list the remarks on #{number} of");
        let path = ["pulls", &number.to_string(), "comments"];
        let call = Call::on(repo, Method::GET, &path, &what).query(&[("per_page", "100")]);
        let found = self.client.pages(&call, |page: Vec<wire::Comment>| page).await?;
        let mut remarks: Vec<_> =
            understood(&what, found.into_iter().map(wire::Comment::remark).collect::<Result<_, _>>())?;
        remarks.sort_by_key(|remark| (remark.comment.created_at, remark.comment.id));
        Ok(remarks)
    }

    /// Asks GraphQL; `None` where the server has none, which is remembered as a fact about it.
    async fn graphql_if_there(&self, call: Call<'_>, query: &str, variables: Value) -> ForgeResult<Option<Value>> {
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

/// A moment as the API takes it, in whole seconds.
fn seconds(at: Timestamp) -> String {
    jiff::Timestamp::from_second(at.0.div_euclid(1000)).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}
