//! GitHub adapter for github.com and Enterprise Server, as a GitHub App or with a personal token.

mod account;
mod actions;
mod app_settings;
mod attachments;
mod auth;
mod auto_merge;
mod capabilities;
mod ci;
mod client;
mod commit_status;
mod deliveries;
mod issues;
mod login;
pub mod manifest;
mod threads;
mod transport;
mod webhook;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use http::Method;
use ralph_types::failure::Failure;
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::OnceCell;
use url::Url;

use self::auth::{GitHubApp, Identity, Purpose, Scope};
use self::client::{ApiCall, GitHubClient};
use self::transport::{ClockSkewTransport, OctocrabTransport};
use super::attachments::Downloader;
use super::http::{RateSettings, Transport, TransportError, error};
use super::{
    Forge, ForgeErrorKind, ForgeResult, GitAccess, LabelSpec, NewIssue, NewPull, Permission, PushRule, Repository,
    ServerInfo,
};
use crate::clock::Clock;
use crate::domain::model::authorship::CommitAuthor;
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, PullSnapshot};
use crate::domain::model::ids::{CommentId, ForgeName, Number, RepoRef, Sha, Timestamp, User};
use crate::domain::trust::images::AttachmentAddresses;
use crate::domain::trust::outbound::{BodyText, Outbound, TitleText};

#[cfg(any(test, fuzzing, feature = "testing"))]
pub use self::webhook::parse as parse_delivery;

/// Events that the service's webhooks subscribe to; an App also receives events of its installations.
pub const EVENTS: &[&str] = &webhook::SUBSCRIBED_NAMES;

/// Repository permissions that the App needs, by GitHub's names.
pub const PERMISSIONS: &[(&str, &str)] = &[
    ("actions", "read"),
    ("checks", "write"),
    ("contents", "write"),
    ("issues", "write"),
    ("metadata", "read"),
    ("pull_requests", "write"),
    ("statuses", "read"),
];

/// Settings of a GitHub server.
#[derive(Debug)]
pub struct GitHubSettings {
    /// Configured name of the forge.
    pub name: ForgeName,
    /// API address: `https://api.github.com`, or `https://host/api/v3` for Enterprise Server.
    pub api_url: Url,
    /// Web and git address: `https://github.com`, or `https://host`.
    pub web_url: Url,
    /// Authentication.
    pub auth: GitHubAuth,
    /// Spacing, retries and timeouts of requests.
    pub rates: RateSettings,
}

/// Authentication; `Debug` prints no secret.
#[derive(Debug)]
pub enum GitHubAuth {
    /// GitHub App, which uses short-lived tokens limited to one repository.
    App {
        /// The App's id.
        app_id: u64,
        /// Private key of the App: RSA in PEM format.
        private_key_pem: SecretString,
    },
    /// Personal token; its account is the bot's.
    Token(SecretString),
}

/// Error of creating a GitHub adapter.
#[derive(Debug, thiserror::Error)]
pub enum GitHubSetupError {
    /// The App's private key is invalid.
    #[error(
        "the private key of GitHub App {app_id} is not an RSA key in PEM format ({source}); download a new one from the App's settings"
    )]
    Key {
        /// The App's id.
        app_id: u64,
        /// Cause, without any part of the key.
        source: jsonwebtoken::errors::Error,
    },
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client for GitHub: {0}")]
    Network(#[from] TransportError),
}

/// Adapter for an account on a GitHub server.
pub struct GitHub {
    name: ForgeName,
    web_url: Url,
    api_url: Url,
    client: GitHubClient,
    downloads: Downloader,
    own_account: OnceCell<User>,
    product: OnceCell<String>,
    /// Whether the server is known to lack GraphQL; capabilities that need it are then not offered.
    no_graphql: AtomicBool,
}

impl GitHub {
    /// Creates an adapter; must be called within the runtime that uses it.
    ///
    /// # Errors
    /// The App's key or the system's TLS roots cannot be used.
    pub fn new(settings: GitHubSettings, clock: Clock) -> Result<Self, GitHubSetupError> {
        let transport = Arc::new(OctocrabTransport::new(&settings.api_url, settings.rates.timeouts)?);
        Self::with_transport(settings, clock, transport)
    }

    /// Creates an adapter that uses the given transport.
    ///
    /// # Errors
    /// The App's key cannot be used.
    pub fn with_transport(
        settings: GitHubSettings,
        clock: Clock,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, GitHubSetupError> {
        let (identity, transport) = match settings.auth {
            GitHubAuth::Token(token) => (Identity::Token(token), transport),
            GitHubAuth::App { app_id, private_key_pem } => {
                let app = GitHubApp::new(app_id, &private_key_pem)
                    .map_err(|source| GitHubSetupError::Key { app_id, source })?;
                let watch = ClockSkewTransport::new(transport, clock.clone(), app.observed_ahead_ms.clone());
                (Identity::App(app), Arc::new(watch) as Arc<dyn Transport>)
            }
        };
        let downloads = Downloader::new(AttachmentAddresses::GitHub(settings.web_url.clone()))
            .map_err(|detail| TransportError { ambiguous: false, detail })?;
        Ok(Self {
            name: settings.name,
            downloads,
            web_url: settings.web_url,
            api_url: settings.api_url.clone(),
            client: GitHubClient::new(settings.api_url, identity, transport, clock, settings.rates),
            own_account: OnceCell::new(),
            product: OnceCell::new(),
            no_graphql: AtomicBool::new(false),
        })
    }

    fn has_graphql(&self) -> bool {
        !self.no_graphql.load(Ordering::Relaxed)
    }

    fn is_app(&self) -> bool {
        matches!(self.client.identity, Identity::App(_))
    }
}

/// Returns the result of parsing a response; an error message becomes `Bug`.
fn parsed<T>(what: &str, read: Result<T, Failure>) -> ForgeResult<T> {
    read.map_err(|wrong| error(ForgeErrorKind::Bug, what, Failure::new("cannot parse the response").caused_by(wrong)))
}

/// Treats a failure of this kind as success, because the desired state already exists.
fn ignoring<T: Default>(kind: ForgeErrorKind, outcome: ForgeResult<T>) -> ForgeResult<T> {
    match outcome {
        Err(failure) if failure.kind == kind => Ok(T::default()),
        other => other,
    }
}

#[async_trait]
impl Forge for GitHub {
    fn meter(&self) -> Option<&crate::forge::http::CallMeter> {
        Some(self.client.meter())
    }

    fn name(&self) -> &ForgeName {
        &self.name
    }

    async fn server_info(&self) -> ForgeResult<ServerInfo> {
        let product = self.product.get_or_try_init(|| self.ask_product()).await?.clone();
        Ok(ServerInfo { product, label_deltas: true, partial_clone: true })
    }

    async fn own_account(&self) -> ForgeResult<User> {
        self.own_account.get_or_try_init(|| self.ask_own_account()).await.cloned()
    }

    async fn commit_author(&self) -> ForgeResult<Option<CommitAuthor>> {
        let host = self.web_url.host_str().unwrap_or("github.com");
        let host = host.strip_prefix("www.").unwrap_or(host);
        Ok(Some(CommitAuthor::noreply(&self.own_account().await?, host)))
    }

    async fn repositories(&self) -> ForgeResult<Vec<Repository>> {
        self.all_repositories().await
    }

    async fn repository(&self, repo: &RepoRef) -> ForgeResult<Repository> {
        self.one_repository(repo).await
    }

    async fn permission(&self, repo: &RepoRef, user: &User) -> ForgeResult<Permission> {
        self.permission_of(repo, user).await
    }

    async fn issue(&self, repo: &RepoRef, number: Number) -> ForgeResult<IssueSnapshot> {
        self.one_issue(repo, number).await
    }

    async fn render(&self, repo: &RepoRef, markdown: &str) -> ForgeResult<String> {
        let body = json!({ "text": markdown, "mode": "gfm", "context": repo.full_name() });
        let scope = Scope::Repository(repo, Purpose::Api);
        let what = format!("render a text of {}", repo.full_name());
        let call = ApiCall::new(scope, Method::POST, &["markdown"], what).json(body).read_only();
        Ok(String::from_utf8_lossy(self.client.send(&call).await?.body()).into_owned())
    }

    async fn open_issues_with_label(&self, repo: &RepoRef, label: &str) -> ForgeResult<Vec<IssueSnapshot>> {
        self.open_issues_labeled(repo, label).await
    }

    async fn create_issue(&self, repo: &RepoRef, issue: &NewIssue) -> ForgeResult<IssueSnapshot> {
        let body = json!({
            "title": issue.title, "body": issue.body, "labels": issue.labels, "assignees": issue.assignees,
        });
        let call = ApiCall::on(repo, Method::POST, &["issues"], "open an issue on").json(body);
        let created: wire::GitHubIssue = self.client.read(&call).await?;
        parsed("open an issue", created.snapshot())
    }

    async fn set_issue_open(&self, repo: &RepoRef, number: Number, open: bool) -> ForgeResult<()> {
        let (state, what) = if open { ("open", "reopen") } else { ("closed", "close") };
        let what = format!("{what} issue #{number} of");
        let call = ApiCall::on(repo, Method::PATCH, &["issues", &number.to_string()], what);
        self.client.send(&call.json(json!({ "state": state }))).await.map(drop)
    }

    async fn ensure_labels(&self, repo: &RepoRef, labels: &[LabelSpec]) -> ForgeResult<usize> {
        self.make_missing_labels(repo, labels).await
    }

    async fn add_labels(&self, repo: &RepoRef, number: Number, labels: &[String]) -> ForgeResult<()> {
        if labels.is_empty() {
            return Ok(());
        }
        let path = ["issues", &number.to_string(), "labels"];
        let call = ApiCall::on(repo, Method::POST, &path, format!("label issue #{number} of"));
        self.client.send(&call.json(json!({ "labels": labels })).decoration()).await.map(drop)
    }

    async fn remove_label(&self, repo: &RepoRef, number: Number, label: &str) -> ForgeResult<()> {
        let path = ["issues", &number.to_string(), "labels", label];
        let call = ApiCall::on(repo, Method::DELETE, &path, format!("remove label `{label}` from issue #{number} of"));
        ignoring(ForgeErrorKind::NotFound, self.client.send(&call).await.map(drop))
    }

    async fn comments(
        &self,
        repo: &RepoRef,
        number: Number,
        since: Option<Timestamp>,
    ) -> ForgeResult<Vec<CommentSnapshot>> {
        self.comments_since(repo, number, since).await
    }

    async fn create_comment(
        &self,
        repo: &RepoRef,
        number: Number,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<CommentSnapshot> {
        let path = ["issues", &number.to_string(), "comments"];
        let call =
            ApiCall::on(repo, Method::POST, &path, format!("comment on #{number} of")).json(json!({ "body": body }));
        let created: wire::GitHubComment = self.client.read(&call).await?;
        parsed("create a comment", created.snapshot())
    }

    async fn edit_comment(&self, repo: &RepoRef, id: CommentId, body: &Outbound<BodyText>) -> ForgeResult<()> {
        let path = ["issues", "comments", &id.to_string()];
        let call =
            ApiCall::on(repo, Method::PATCH, &path, format!("edit comment {id} on")).json(json!({ "body": body }));
        self.client.send(&call.decoration()).await.map(drop)
    }

    async fn delete_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()> {
        let path = ["issues", "comments", &id.to_string()];
        let call = ApiCall::on(repo, Method::DELETE, &path, format!("delete comment {id} on"));
        ignoring(ForgeErrorKind::NotFound, self.client.send(&call).await.map(drop))
    }

    async fn pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<PullSnapshot> {
        parsed("read a pull request", self.read_pull(repo, number).await?.snapshot())
    }

    async fn find_pull(&self, repo: &RepoRef, head: &str, _base: &str) -> ForgeResult<Option<PullSnapshot>> {
        self.newest_pull_from(repo, head).await
    }

    async fn create_pull(&self, repo: &RepoRef, pull: &NewPull) -> ForgeResult<PullSnapshot> {
        let call = ApiCall::on(repo, Method::POST, &["pulls"], format!("open a pull request from `{}` on", pull.head));
        let call = call.json(json!({
            "title": pull.title, "body": pull.body, "head": pull.head, "base": pull.base, "draft": pull.draft,
        }));
        let created: wire::GitHubPull = self.client.read(&call).await?;
        parsed("open a pull request", created.snapshot())
    }

    async fn update_pull(
        &self,
        repo: &RepoRef,
        number: Number,
        title: &Outbound<TitleText>,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<()> {
        let path = ["pulls", &number.to_string()];
        let call = ApiCall::on(repo, Method::PATCH, &path, format!("edit pull request #{number} of"));
        self.client.send(&call.json(json!({ "title": title, "body": body }))).await.map(drop)
    }

    fn files_page(&self, repo: &RepoRef, commit: &Sha) -> Option<String> {
        let base = self.web_url.as_str().trim_end_matches('/');
        Some(format!("{base}/{}/blob/{commit}/", repo.full_name()))
    }

    async fn refused_scopes(&self, repo: &RepoRef, _webhooks: bool) -> ForgeResult<Vec<String>> {
        self.scopes_refused(repo).await
    }

    async fn app_problems(&self, hook_url: Option<&str>) -> ForgeResult<Option<Vec<String>>> {
        if self.is_app() { self.problems_of_app(hook_url).await.map(Some) } else { Ok(None) }
    }

    async fn installation_problems(&self, repo: &RepoRef) -> ForgeResult<Vec<String>> {
        if self.is_app() { self.problems_of_installation(repo).await } else { Ok(Vec::new()) }
    }

    async fn push_rules(&self, repo: &RepoRef, branch: &str) -> ForgeResult<Vec<PushRule>> {
        self.rules_for(repo, branch).await
    }

    async fn is_protected(&self, repo: &RepoRef, branch: &str) -> ForgeResult<bool> {
        self.has_protected_branch(repo, branch).await
    }

    async fn git_access(&self, repo: &RepoRef, push: bool) -> ForgeResult<GitAccess> {
        let purpose = if push { Purpose::Push } else { Purpose::Fetch };
        let (token, settling_ms) = self.client.git_token(repo, purpose).await?;
        let base = self.web_url.as_str().trim_end_matches('/');
        Ok(GitAccess {
            url: format!("{base}/{}/{}.git", repo.owner, repo.name),
            credential: Some(("x-access-token".to_owned(), token)),
            settling_ms,
        })
    }
}
