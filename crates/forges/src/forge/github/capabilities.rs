//! Optional capabilities of the GitHub adapter. The methods that need more than one line are in the files of their subjects.

use async_trait::async_trait;
use http::Method;
use secrecy::SecretString;

use super::auth::Identity;
use super::client::ApiCall;
use super::{GitHub, webhook};
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot};
use crate::domain::model::ids::{CommentId, Number, RepoRef, Sha, Timestamp, User};
use crate::domain::trust::permit::TeamRef;
use crate::forge::http::RequestPriority;
use crate::forge::{
    Attachments, AttemptedDelivery, AutoMerge, Capabilities, Ci, CiState, CommitStatus, CommitStatuses, Confirmations,
    Drafts, ForgeResult, InterruptedStatus, IssueEdit, IssueHistory, LabelAssignment, LabelChange, Login, Minimizing,
    ParsedDelivery, PathFilter, Polling, PullReview, Reaction, Reactions, RecordedChanges, RepositoryFiles,
    ReviewComment, Reviews, TeamVisibility, Teams, TextFile, Webhooks,
};

impl Capabilities for GitHub {
    capabilities! {
        webhooks: Webhooks, polling: Polling, teams: Teams, reviews: Reviews, drafts: Drafts, ci: Ci,
        commit_statuses: CommitStatuses, reactions: Reactions, attachments: Attachments, files: RepositoryFiles,
        login: Login,
    }

    fn history(&self) -> Option<&dyn IssueHistory> {
        self.has_graphql().then_some(self as &dyn IssueHistory)
    }

    fn auto_merge(&self) -> Option<&dyn AutoMerge> {
        self.has_graphql().then_some(self as &dyn AutoMerge)
    }

    fn minimizing(&self) -> Option<&dyn Minimizing> {
        self.has_graphql().then_some(self as &dyn Minimizing)
    }
}

#[async_trait]
impl Confirmations for GitHub {
    async fn last_label_change(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
        _near: Timestamp,
    ) -> ForgeResult<Option<LabelChange>> {
        Ok(self.label_history(repo, number, label, RequestPriority::Normal).await?.last)
    }

    async fn comment(&self, repo: &RepoRef, number: Number, id: CommentId) -> ForgeResult<Option<CommentSnapshot>> {
        self.comment_by_id(repo, number, id).await
    }

    async fn review(&self, repo: &RepoRef, number: Number, id: i64) -> ForgeResult<Option<PullReview>> {
        self.review_by_id(repo, number, id).await
    }

    async fn review_comment(
        &self,
        repo: &RepoRef,
        number: Number,
        id: CommentId,
    ) -> ForgeResult<Option<ReviewComment>> {
        self.review_comment_by_id(repo, number, id).await
    }

    async fn is_in_installation(&self, repo: &RepoRef, installation: u64) -> ForgeResult<bool> {
        self.client.is_in_installation(repo, installation).await
    }
}

#[async_trait]
impl Webhooks for GitHub {
    fn parse(&self, event: &str, body: &[u8]) -> ParsedDelivery {
        webhook::parse(&self.name, event, body)
    }

    fn named_installation(&self, body: &[u8]) -> Option<u64> {
        if self.is_app() { webhook::named_installation(body) } else { None }
    }

    async fn ensure_webhook(&self, repo: &RepoRef, url: &str, secret: &SecretString) -> ForgeResult<Option<i64>> {
        if self.is_app() {
            return Ok(None);
        }
        self.hook(repo, url, secret).await.map(Some)
    }

    async fn webhook_problems(&self, repo: &RepoRef, url: &str) -> ForgeResult<Option<Vec<String>>> {
        if self.is_app() { Ok(None) } else { self.hooks_to(repo, url).await.map(Some) }
    }

    async fn attempted_deliveries(&self, since: Timestamp) -> ForgeResult<Option<Vec<AttemptedDelivery>>> {
        if self.is_app() { self.attempts_since(since).await.map(Some) } else { Ok(None) }
    }

    async fn redeliver(&self, attempt: i64) -> ForgeResult<()> {
        self.send_again(attempt).await
    }

    async fn test_webhook(&self, repo: &RepoRef, id: i64) -> ForgeResult<()> {
        let call = ApiCall::on(repo, Method::POST, &["hooks", &id.to_string(), "pings"], "test the webhook of");
        self.client.send(&call).await.map(drop)
    }
}

#[async_trait]
impl Polling for GitHub {
    async fn issues_changed_since(&self, repo: &RepoRef, since: Timestamp) -> ForgeResult<Vec<IssueSnapshot>> {
        self.issues_changed(repo, since).await
    }

    async fn comments_changed_since(
        &self,
        repo: &RepoRef,
        since: Timestamp,
    ) -> ForgeResult<Vec<(Number, CommentSnapshot)>> {
        self.comments_of_all(repo, since).await
    }
}

#[async_trait]
impl Teams for GitHub {
    async fn is_team_member(&self, repo: &RepoRef, team: &TeamRef, user: &User) -> ForgeResult<bool> {
        self.member_of(repo, team, user).await
    }

    async fn team_visibility(&self, repo: &RepoRef, team: &TeamRef) -> ForgeResult<TeamVisibility> {
        self.visibility_of_team(repo, team).await
    }
}

#[async_trait]
impl Drafts for GitHub {
    async fn set_pull_ready(&self, repo: &RepoRef, number: Number) -> ForgeResult<()> {
        self.set_draft(repo, number, false).await
    }

    async fn set_pull_draft(&self, repo: &RepoRef, number: Number) -> ForgeResult<()> {
        self.set_draft(repo, number, true).await
    }
}

#[async_trait]
impl Ci for GitHub {
    async fn ci_results(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<CiState> {
        self.ci_state(repo, sha).await
    }

    async fn started_workflows(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<Option<Vec<String>>> {
        self.workflow_paths(repo, sha).await
    }
}

#[async_trait]
impl CommitStatuses for GitHub {
    async fn set_commit_status(&self, repo: &RepoRef, status: &CommitStatus, id: Option<i64>) -> ForgeResult<i64> {
        self.set_status(repo, status, id).await
    }

    async fn interrupted_status(&self, repo: &RepoRef, status: &CommitStatus) -> ForgeResult<InterruptedStatus> {
        match &self.client.identity {
            Identity::App(app) => self.interrupted_check_run(repo, status, app.id).await,
            Identity::Token(_) => self.interrupted_commit_status(repo, status).await,
        }
    }
}

#[async_trait]
impl IssueHistory for GitHub {
    fn records_edits(&self) -> bool {
        true
    }

    async fn issue_edits(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<IssueEdit>> {
        self.edits_of(repo, number).await
    }

    async fn recorded_changes(&self, repo: &RepoRef, number: Number) -> ForgeResult<RecordedChanges> {
        let history = self.label_history(repo, number, "", RequestPriority::Normal).await?;
        Ok(RecordedChanges { renamed_at: history.renamed_at, last_recorded_at: None })
    }

    async fn label_assignment(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
    ) -> ForgeResult<Option<LabelAssignment>> {
        let history = self.label_history(repo, number, label, RequestPriority::Background).await?;
        let added = history.last.filter(|change| change.added);
        let renamed_at = history.renamed_at;
        Ok(added.map(|LabelChange { id, by, at, .. }| LabelAssignment {
            id,
            by,
            at,
            renamed_at,
            last_recorded_at: None,
        }))
    }
}

#[async_trait]
impl Reactions for GitHub {
    async fn react(&self, repo: &RepoRef, id: CommentId, reaction: Reaction) -> ForgeResult<()> {
        self.react_to("issues", repo, id, reaction).await
    }

    async fn react_to_remark(&self, repo: &RepoRef, id: CommentId, reaction: Reaction) -> ForgeResult<()> {
        self.react_to("pulls", repo, id, reaction).await
    }
}

#[async_trait]
impl Minimizing for GitHub {
    async fn minimize_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()> {
        self.fold_comment(repo, id).await
    }
}

#[async_trait]
impl RepositoryFiles for GitHub {
    async fn folder_files(&self, repo: &RepoRef, folder: &str, wanted: PathFilter) -> ForgeResult<Vec<TextFile>> {
        self.files_in(repo, folder, wanted).await
    }
}
