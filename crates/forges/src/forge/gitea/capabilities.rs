//! Optional capabilities of the Gitea and Forgejo adapter.

use ::http::Method;
use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::client::under;
use super::map::{self, WireComment, WireHook, WireIssue, WireReview, WireReviewComment};
use super::webhook;
use super::{Gitea, OwnHook, lock, locked_is_conflict, rfc3339};
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot};
use crate::domain::model::ids::{CommentId, Number, RepoRef, Sha, Timestamp, User};
use crate::domain::trust::outbound::{BodyText, Outbound};
use crate::domain::trust::permit::TeamRef;
use crate::forge::ForgeErrorKind::{Bug, Conflict, Denied, NotFound};
use crate::forge::http::{RequestPriority, error, json as read};
use crate::forge::{
    Attachments, AutoMerge, Capabilities, Ci, CiState, CommitStatuses, Confirmations, Drafts, ForgeError, ForgeResult,
    IssueEdit, IssueHistory, LabelAssignment, LabelChange, Login, OwnRepositories, ParsedDelivery, PathFilter, Polling,
    PullReview, Reaction, Reactions, RecordedChanges, RepositoryFiles, ReviewComment, Reviews, TeamVisibility, Teams,
    TextFile, Webhooks, hook_problems, signature,
};

/// Time before a reported label change from which the issue's history is searched, in milliseconds, because clocks may
/// differ.
const SLACK_MS: i64 = 60_000;

impl Capabilities for Gitea {
    capabilities! {
        webhooks: Webhooks, polling: Polling, teams: Teams, reviews: Reviews, drafts: Drafts, ci: Ci,
        commit_statuses: CommitStatuses, history: IssueHistory, reactions: Reactions, attachments: Attachments, auto_merge: AutoMerge,
        files: RepositoryFiles, login: Login, own_repositories: OwnRepositories,
    }
}

#[async_trait]
impl Confirmations for Gitea {
    async fn last_label_change(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
        near: Timestamp,
    ) -> ForgeResult<Option<LabelChange>> {
        match self.label_change_since(repo, number, label, Some(near.plus_ms(-SLACK_MS))).await? {
            None => self.label_change_since(repo, number, label, None).await,
            found => Ok(found),
        }
    }

    async fn comment(&self, repo: &RepoRef, number: Number, id: CommentId) -> ForgeResult<Option<CommentSnapshot>> {
        self.comment_by_id(repo, number, id).await
    }

    async fn is_review_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<bool> {
        let what = format!("read comment {id} in {repo}");
        let found = self.client.find(&what, &under(repo, &["issues", "comments", &id.to_string()])?).await?;
        // The server answers without a body for comments on lines.
        Ok(found.is_some_and(|found| found.body().is_empty()))
    }

    async fn review(&self, repo: &RepoRef, number: Number, id: i64) -> ForgeResult<Option<PullReview>> {
        let what = format!("read review {id} of {repo}#{number}");
        let (number, id) = (number.to_string(), id.to_string());
        let found = self.client.find(&what, &under(repo, &["pulls", &number, "reviews", &id])?).await?;
        let found: Option<WireReview> = found.map(|answer| read(&what, &answer)).transpose()?;
        Ok(found.and_then(WireReview::review))
    }

    async fn review_comment(
        &self,
        repo: &RepoRef,
        number: Number,
        id: CommentId,
    ) -> ForgeResult<Option<ReviewComment>> {
        Ok(self.review_comments(repo, number).await?.into_iter().find(|found| found.comment.id == id))
    }
}

#[async_trait]
impl Webhooks for Gitea {
    fn parse(&self, event: &str, body: &[u8]) -> ParsedDelivery {
        webhook::parse(&self.settings.name, event, body)
    }

    async fn ensure_webhook(&self, repo: &RepoRef, url: &str, secret: &SecretString) -> ForgeResult<Option<i64>> {
        let what = format!("set up the webhook of {repo}");
        let path = under(repo, &["hooks"])?;
        let hooks: Vec<WireHook> = self.client.list(&what, &path, &[], |_| false).await?;
        let same_url: Vec<WireHook> =
            hooks.into_iter().filter(|hook| hook.config.get("url").is_some_and(|known| known == url)).collect();
        let fingerprint = signature::sign(secret, url.as_bytes());
        let own = lock(&self.hooks).get(&repo.id).cloned().filter(|own| own.fingerprint == fingerprint);
        let valid = own.filter(|own| same_url.iter().any(|hook| hook.id == own.id && hook.active));
        let id = match valid {
            Some(own) => own.id,
            None => {
                let body = json!({
                    "type": "gitea",
                    "config": { "url": url, "content_type": "json", "secret": secret.expose_secret() },
                    "events": webhook::subscribed(),
                    "active": true,
                });
                let answer = self.client.send(&what, Method::POST, &path, &body).await?;
                read::<WireHook>(&what, &answer)?.id
            }
        };
        lock(&self.hooks).insert(repo.id, OwnHook { id, fingerprint });
        // Editing a webhook does not change its secret, and the secret cannot be read, so a webhook of another process is
        // replaced: the new one is created first, so that no delivery is lost.
        for old in same_url.iter().filter(|hook| hook.id != id) {
            let old = old.id.to_string();
            match self.client.send_empty(&what, Method::DELETE, &under(repo, &["hooks", &old])?).await {
                Ok(()) | Err(ForgeError { kind: NotFound, .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Some(id))
    }

    async fn find_webhook(&self, repo: &RepoRef, url: &str) -> ForgeResult<Option<i64>> {
        let what = format!("list the webhooks of {repo}");
        let hooks: Vec<WireHook> = self.client.list(&what, &under(repo, &["hooks"])?, &[], |_| false).await?;
        let mut same_url = hooks.iter().filter(|hook| hook.config.get("url").is_some_and(|known| known == url));
        let only = same_url.next().filter(|_| same_url.next().is_none());
        let is_sound = self.webhook_problems(repo, url).await?.is_some_and(|problems| problems.is_empty());
        Ok(only.filter(|_| is_sound).map(|hook| hook.id))
    }

    async fn webhook_problems(&self, repo: &RepoRef, url: &str) -> ForgeResult<Option<Vec<String>>> {
        let what = format!("list the webhooks of {repo}");
        let hooks: Vec<WireHook> = self.client.list(&what, &under(repo, &["hooks"])?, &[], |_| false).await?;
        let setting =
            |hook: &WireHook, name: &str, wanted: &str| hook.config.get(name).is_some_and(|has| has == wanted);
        let same_url = hooks.into_iter().filter(|hook| setting(hook, "url", url));
        let found: Vec<_> =
            same_url.map(|hook| (hook.active, setting(&hook, "content_type", "json"), hook.events)).collect();
        let mut needed = webhook::needed();
        if self.probed().await?.subscribes_to_statuses {
            needed.push("status");
        }
        Ok(Some(hook_problems(&found, &needed)))
    }

    async fn delivers_statuses(&self) -> ForgeResult<bool> {
        Ok(self.probed().await?.delivers_statuses)
    }

    async fn test_webhook(&self, repo: &RepoRef, id: i64) -> ForgeResult<()> {
        let what = format!("test webhook {id} of {repo}");
        let id = id.to_string();
        self.client.send_empty(&what, Method::POST, &under(repo, &["hooks", &id, "tests"])?).await
    }
}

#[async_trait]
impl Polling for Gitea {
    async fn issues_changed_since(&self, repo: &RepoRef, since: Timestamp) -> ForgeResult<Vec<IssueSnapshot>> {
        let what = format!("list the changes in {repo}");
        let since = rfc3339(since);
        let query = [("state", "all"), ("since", since.as_str())];
        let found: Vec<WireIssue> = self.client.poll(&what, &under(repo, &["issues"])?, &query).await?;
        Ok(found.into_iter().map(WireIssue::snapshot).collect())
    }

    async fn comments_changed_since(
        &self,
        repo: &RepoRef,
        since: Timestamp,
    ) -> ForgeResult<Vec<(Number, CommentSnapshot)>> {
        let what = format!("list the new comments of {repo}");
        let since = rfc3339(since);
        let query = [("since", since.as_str())];
        let path = under(repo, &["issues", "comments"])?;
        let found: Vec<WireComment> = self.client.poll(&what, &path, &query).await?;
        Ok(found.into_iter().filter_map(|comment| Some((comment.issue()?, comment.snapshot()))).collect())
    }
}

#[async_trait]
impl Teams for Gitea {
    async fn is_team_member(&self, _repo: &RepoRef, team: &TeamRef, user: &User) -> ForgeResult<bool> {
        self.member_of(team, user).await
    }

    async fn team_visibility(&self, _repo: &RepoRef, team: &TeamRef) -> ForgeResult<TeamVisibility> {
        self.visibility_of_team(team).await
    }

    async fn hidden_teams(&self, repo: &RepoRef) -> ForgeResult<Vec<TeamRef>> {
        self.unseen_teams(repo).await
    }
}

#[async_trait]
impl Reviews for Gitea {
    async fn request_reviewers(&self, repo: &RepoRef, number: Number, logins: &[String]) -> ForgeResult<()> {
        if logins.is_empty() {
            return Ok(());
        }
        let refused = |failure: &ForgeError| matches!(failure.kind, NotFound | Denied | Conflict | Bug);
        match self.request_reviews(repo, number, logins).await {
            Err(failure) if refused(&failure) => {}
            other => return other,
        }
        // The server rejects the request if one account cannot review (the author, accounts without access).
        for login in logins.iter().filter(|_| logins.len() > 1) {
            match self.request_reviews(repo, number, std::slice::from_ref(login)).await {
                Err(failure) if !refused(&failure) => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }

    async fn submitted_reviews(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<PullReview>> {
        let what = format!("list the reviews of {repo}#{number}");
        let path = [number.to_string()];
        let reviews: Vec<WireReview> =
            self.client.list(&what, &under(repo, &["pulls", &path[0], "reviews"])?, &[], |_| false).await?;
        let mut reviews: Vec<PullReview> = reviews.into_iter().filter_map(WireReview::review).collect();
        reviews.sort_by_key(|review| (review.submitted_at, review.id));
        Ok(reviews)
    }

    async fn review_comments(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<ReviewComment>> {
        let found = self.wire_remarks(repo, number).await?.into_iter();
        let mut comments: Vec<ReviewComment> =
            found.map(|(commit, remark)| remark.review_comment(commit.as_ref())).collect();
        comments.sort_by_key(|found| (found.comment.created_at, found.comment.id));
        Ok(comments)
    }

    async fn resolved_remarks(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<CommentId>> {
        Ok(self.wire_remarks(repo, number).await?.iter().filter_map(|(_, remark)| remark.resolved()).collect())
    }

    /// Replies by a new comment on the same line. The server shows all comments on a line as one conversation and has
    /// no other replies.
    async fn answer_remark(
        &self,
        repo: &RepoRef,
        number: Number,
        remark: CommentId,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<Option<CommentId>> {
        let Some(found) = self.review_comment(repo, number, remark).await? else { return Ok(None) };
        let Some(lines) = found.lines else { return Ok(None) };
        let what = format!("answer comment {remark} on a line of {repo}#{number}");
        let number = number.to_string();
        let comment = json!({ "path": found.path, "body": body, "new_position": lines.last });
        // On the commit of the comment: a later one may have no such line.
        let review = json!({ "event": "COMMENT", "body": "", "commit_id": lines.commit, "comments": [comment] });
        let path = under(repo, &["pulls", &number, "reviews"])?;
        let made: WireReview = match self.client.send(&what, Method::POST, &path, &review).await {
            Ok(answer) => read(&what, &answer)?,
            // The server fails with 500 where it cannot find the line any more.
            Err(failure) if failure.detail.starts_with("HTTP 500") || matches!(failure.kind, NotFound | Bug) => {
                tracing::info!(%failure, "could not answer a comment on a line");
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        let id = made.id.to_string();
        let path = under(repo, &["pulls", &number, "reviews", &id, "comments"])?;
        let comments: Vec<WireReviewComment> = self.client.get(&what, &path, &[]).await?;
        Ok(comments.into_iter().next().map(|comment| comment.review_comment(None).comment.id))
    }
}

#[async_trait]
impl Drafts for Gitea {
    async fn set_pull_ready(&self, repo: &RepoRef, number: Number) -> ForgeResult<()> {
        let pull = self.wire_pull(repo, number).await?;
        let ready = map::ready_title(pull.title());
        let now =
            if ready == pull.title() { pull } else { self.edit_pull(repo, number, json!({ "title": ready })).await? };
        if now.draft() {
            let detail = format!("the server still treats it as a draft; its title is {:?}", now.title());
            return Err(error(Conflict, &format!("mark {repo}#{number} as ready"), detail));
        }
        Ok(())
    }

    async fn set_pull_draft(&self, repo: &RepoRef, number: Number) -> ForgeResult<()> {
        let pull = self.wire_pull(repo, number).await?;
        if pull.draft() {
            return Ok(());
        }
        let now = self.edit_pull(repo, number, json!({ "title": map::draft_title(pull.title()) })).await?;
        if !now.draft() {
            let detail = format!("the server does not treat it as a draft; its title is {:?}", now.title());
            return Err(error(Conflict, &format!("mark {repo}#{number} as a draft"), detail));
        }
        Ok(())
    }
}

#[async_trait]
impl Ci for Gitea {
    async fn ci_results(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<CiState> {
        self.ci_state(repo, sha).await
    }
}

#[async_trait]
impl Reactions for Gitea {
    async fn react(&self, repo: &RepoRef, id: CommentId, reaction: Reaction) -> ForgeResult<()> {
        let content = match reaction {
            Reaction::Eyes => "eyes",
            Reaction::Rocket => "rocket",
            Reaction::Confused => "confused",
            Reaction::ThumbsDown => "-1",
        };
        let what = format!("react to comment {id} in {repo}");
        let id = id.to_string();
        let path = under(repo, &["issues", "comments", &id, "reactions"])?;
        let priority = if reaction == Reaction::Eyes { RequestPriority::Urgent } else { RequestPriority::Normal };
        let body = json!({ "content": content });
        let sent = self.client.send_with(priority, &what, Method::POST, &path, &body).await;
        sent.map(drop).map_err(locked_is_conflict)
    }
}

#[async_trait]
impl RepositoryFiles for Gitea {
    async fn folder_files(&self, repo: &RepoRef, folder: &str, wanted: PathFilter) -> ForgeResult<Vec<TextFile>> {
        self.files_in(repo, folder, wanted).await
    }
}

#[async_trait]
impl IssueHistory for Gitea {
    fn records_edits(&self) -> bool {
        false
    }

    async fn issue_edits(&self, _repo: &RepoRef, _number: Number) -> ForgeResult<Vec<IssueEdit>> {
        Ok(Vec::new())
    }

    async fn recorded_changes(&self, repo: &RepoRef, number: Number) -> ForgeResult<RecordedChanges> {
        self.changes_by_timeline(repo, number).await
    }

    async fn label_assignment(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
    ) -> ForgeResult<Option<LabelAssignment>> {
        self.assignment_by_timeline(repo, number, label).await
    }
}
