//! Fake GitHub and Gitea servers for tests and the demo. The state is separate from the wire formats.

mod call;
mod core;
mod damage;
mod faults;
mod git;
mod gitea;
mod github;
mod hooks;
mod http_git;
mod lfs;
mod logins;
mod memory;
mod pages;
mod rendering;
mod serve;
mod state;

use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use url::Url;

use self::core::Core;
pub use self::damage::each_damage;
pub use self::faults::{FakeFault, Faults, RequestRecord};
pub use self::git::{FileChange, MergeMethod};
pub use self::hooks::{Deliveries, FakeDelivery, Outgoing};
pub use self::memory::temporary_in_memory;
pub use self::state::apps::{FakeApp, FakeAppKey, FakeManifestCode, TokenScope};
pub use self::state::logins::{FakeLoginApp, FakeLogins};
pub use self::state::pulls::{PullDraft, ReviewDraft, StatusDraft};
pub use self::state::{
    Access, BranchPush, FakeAccount, FakeAttachment, FakeCheckRun, FakeComment, FakeEvent, FakeEventKind, FakeHook,
    FakeIssue, FakeLabel, FakePull, FakeReaction, FakeRefusal, FakeRepo, FakeReview, FakeReviewComment, FakeState,
    FakeStatus, FakeTeam, FakeToken, LabelRequest, MergeRecord, MergeRule, Op, OpKind, PullFacts, PushedCommit,
    TextEdit, TitleEdit,
};
use ralph_types::clock::Clock;
use ralph_types::ids::{AccountKind, CommentId, Number, RepoId, Sha, User};

/// Gitea version to imitate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GiteaVersion {
    /// Version 1.22.6: an account's permission includes its teams, commit statuses cause no deliveries, Actions have no
    /// logs, and an automatic merge may be lost.
    V1_22,
    /// Version 1.25.4.
    V1_25,
}

impl GiteaVersion {
    /// Returns the version number that the server reports.
    pub fn number(self) -> &'static str {
        match self {
            Self::V1_22 => "1.22.6",
            Self::V1_25 => "1.25.4",
        }
    }
}

/// API of the fake forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Gitea 1.25, under `/api/v1`. [`FakeState::gitea`] selects an older version.
    Gitea,
    /// GitHub REST v3, under `/api/v3` as in Enterprise Server.
    GitHub,
}

/// Result of a user's action.
pub type FakeResult<T> = Result<T, FakeRefusal>;

/// Fake forge on loopback. Dropping it stops the server and deletes its files.
///
/// The methods are actions of users with their permissions: they fail like on a real forge, and emit webhooks.
#[derive(Debug)]
pub struct FakeForge {
    core: Arc<Core>,
    _tasks: JoinSet<()>,
}

/// Credentials of a GitHub App.
#[derive(Debug, Clone)]
pub struct AppCredentials {
    /// Id of the App.
    pub app_id: u64,
    /// Private key: RSA in PEM format.
    pub private_key_pem: String,
    /// Id of its installation.
    pub installation: i64,
    /// Account of the bot.
    pub bot: User,
}

impl FakeForge {
    /// Starts the forge on a free port of 127.0.0.1. Fails if the port, the temporary directory or the HTTP client is
    /// unavailable.
    pub async fn start(dialect: Dialect, clock: Clock) -> std::io::Result<FakeForge> {
        Self::start_on(Ipv4Addr::LOCALHOST, dialect, clock).await
    }

    /// Starts the forge on a free port of an address of this machine, as [`FakeForge::start`] does.
    pub async fn start_on(address: Ipv4Addr, dialect: Dialect, clock: Clock) -> std::io::Result<FakeForge> {
        let listener = TcpListener::bind((address, 0)).await?;
        let base = Url::parse(&format!("http://{}/", listener.local_addr()?)).map_err(std::io::Error::other)?;
        let core = Arc::new(Core::new(dialect, clock, base)?);
        // Fails only if a provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Webhooks are sent without TLS, and reading the system's certificates takes time.
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().map_err(std::io::Error::other)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve::run(core.clone(), listener));
        let deliverer = core.clone();
        tasks.spawn(async move { deliverer.hooks.run(&client).await });
        Ok(Self { core, _tasks: tasks })
    }

    /// Returns the address of the front page.
    pub fn url(&self) -> Url {
        self.core.base.clone()
    }

    /// Returns the root address of the API, with a trailing slash.
    pub fn api_url(&self) -> Url {
        let path = match self.core.dialect {
            Dialect::Gitea => "/api/v1/",
            Dialect::GitHub => "/api/v3/",
        };
        let mut url = self.url();
        url.set_path(path);
        url
    }

    /// Reads or changes the state directly, and delivers emitted events to webhooks.
    pub fn with<R>(&self, action: impl FnOnce(&mut FakeState) -> R) -> R {
        self.core.act(action)
    }

    /// Replaces the rendered HTML of a text.
    pub fn set_page(&self, text: &str, html: &str) {
        self.with(|state| state.pages.insert(text.to_owned(), html.to_owned()));
    }

    /// Creates an account, or returns the existing account with this login.
    pub fn add_user(&self, login: &str, kind: AccountKind) -> User {
        self.with(|state| state.add_account(login, kind, false))
    }

    /// Returns an account's token; repeated calls return the same token.
    pub fn token_for(&self, user: &User) -> String {
        self.with(|state| state.token_for(user.id))
    }

    /// Revokes the access token of an account and returns a new one.
    pub fn replace_token(&self, user: &User) -> String {
        self.with(|state| state.replace_token(user.id))
    }

    /// Creates an administrator with all permissions and returns its token; repeated calls return the same token.
    pub fn administrator_token(&self) -> String {
        self.with(|state| {
            let user = state.add_account("root", AccountKind::User, false);
            if let Some(account) = state.accounts.get_mut(&user.id) {
                account.administrator = true;
            }
            state.token_for(user.id)
        })
    }

    /// Creates a public repository with one commit on `main`. Each file is a path, its content, and whether it is
    /// executable. Creates a missing owner as an organization.
    pub async fn create_repo(&self, owner: &str, name: &str, files: &[(&str, &str, bool)]) -> FakeResult<RepoId> {
        self.core.create_repo(owner, name, files).await
    }

    /// Sets the permission of an account; `Access::None` revokes it.
    pub fn grant(&self, repo: RepoId, user: &User, access: Access) -> FakeResult<()> {
        self.with(|state| state.grant(repo, user.id, access))
    }

    /// Opens an issue with labels by name, and creates missing labels.
    pub async fn open_issue(
        &self,
        as_user: &User,
        repo: RepoId,
        title: &str,
        body: &str,
        labels: &[&str],
    ) -> FakeResult<Number> {
        self.with(|state| {
            let mut ids = Vec::new();
            for name in labels {
                ids.push(label_or_new(state, as_user, repo, name)?);
            }
            state.open_issue(as_user.id, repo, title, body, &ids)
        })
    }

    /// Changes title and body.
    pub async fn edit_issue(
        &self,
        as_user: &User,
        repo: RepoId,
        number: Number,
        title: Option<&str>,
        body: Option<&str>,
    ) -> FakeResult<()> {
        self.with(|state| state.edit_issue(as_user.id, repo, number, title, body))
    }

    /// Adds a label; creates it if missing.
    pub async fn label(&self, as_user: &User, repo: RepoId, number: Number, label: &str) -> FakeResult<()> {
        self.with(|state| {
            let id = label_or_new(state, as_user, repo, label)?;
            let mut labels = state.issue(repo, number)?.labels.clone();
            labels.push(id);
            state.set_labels(as_user.id, repo, number, &labels)
        })
    }

    /// Removes a label.
    pub async fn unlabel(&self, as_user: &User, repo: RepoId, number: Number, label: &str) -> FakeResult<()> {
        self.with(|state| {
            let id = state.label_named(repo, label).map(|label| label.id);
            let mut labels = state.issue(repo, number)?.labels.clone();
            labels.retain(|known| Some(*known) != id);
            state.set_labels(as_user.id, repo, number, &labels)
        })
    }

    /// Creates a comment.
    pub async fn comment(&self, as_user: &User, repo: RepoId, number: Number, body: &str) -> FakeResult<CommentId> {
        self.with(|state| state.comment(as_user.id, repo, number, body))
    }

    /// Uploads a file and returns its address in the form inserted by the forge's editor.
    pub async fn upload(&self, as_user: &User, repo: RepoId, name: &str, content: &[u8]) -> FakeResult<String> {
        let id = self.with(|state| state.upload(as_user.id, repo, name, content.to_vec()))?;
        Ok(match self.core.dialect {
            Dialect::Gitea => format!("/attachments/{id}"),
            Dialect::GitHub => self.core.at(&format!("user-attachments/assets/{id}")),
        })
    }

    /// Replaces a comment's text.
    pub async fn edit_comment(&self, as_user: &User, repo: RepoId, id: CommentId, body: &str) -> FakeResult<()> {
        self.with(|state| state.edit_comment(as_user.id, repo, id, body))
    }

    /// Closes an issue.
    pub async fn close_issue(&self, as_user: &User, repo: RepoId, number: Number) -> FakeResult<()> {
        self.with(|state| state.set_open(as_user.id, repo, number, false))
    }

    /// Reopens an issue.
    pub async fn reopen_issue(&self, as_user: &User, repo: RepoId, number: Number) -> FakeResult<()> {
        self.with(|state| state.set_open(as_user.id, repo, number, true))
    }

    /// Deletes an issue.
    pub async fn delete_issue(&self, as_user: &User, repo: RepoId, number: Number) -> FakeResult<()> {
        self.with(|state| state.delete_issue(as_user.id, repo, number))
    }

    /// Opens a pull request between two branches.
    pub async fn open_pull(&self, as_user: &User, repo: RepoId, pull: &PullDraft) -> FakeResult<Number> {
        self.core.open_pull(as_user.id, repo, pull).await
    }

    /// Closes a pull request without a merge.
    pub async fn close_pull(&self, as_user: &User, repo: RepoId, number: Number) -> FakeResult<()> {
        self.with(|state| state.set_open(as_user.id, repo, number, false))
    }

    /// Submits a review.
    pub async fn review(&self, as_user: &User, repo: RepoId, pull: Number, review: &ReviewDraft) -> FakeResult<i64> {
        let id = self.with(|state| state.review(as_user.id, repo, pull, review));
        self.core.settle_auto_merges().await;
        id
    }

    /// Merges a pull request, closes the issues named in its text, and returns the merge commit.
    pub async fn merge(&self, as_user: &User, repo: RepoId, pull: Number) -> FakeResult<Sha> {
        self.core.merge(as_user.id, repo, pull, MergeMethod::Merge, None).await
    }

    /// Changes the base branch of a pull request.
    pub async fn retarget(&self, as_user: &User, repo: RepoId, pull: Number, base: &str) -> FakeResult<()> {
        self.core.retarget(as_user.id, repo, pull, base).await
    }

    /// Sets a commit status (`pending`, `success`, `failure`, `error`).
    pub async fn set_status(&self, as_user: &User, repo: RepoId, sha: &Sha, status: &StatusDraft) -> FakeResult<()> {
        let set = self.with(|state| state.set_status(as_user.id, repo, sha, status).map(drop));
        self.core.settle_auto_merges().await;
        set
    }

    /// Pushes a commit of these files. A new branch starts at the default branch.
    pub async fn push_commit(
        &self,
        as_user: &User,
        repo: RepoId,
        branch: &str,
        files: &[FileChange<'_>],
        message: &str,
    ) -> FakeResult<Sha> {
        self.core.push_commit(as_user.id, repo, branch, files, message).await
    }

    /// Moves a branch to an existing commit, like a forced push.
    pub async fn force_branch(&self, as_user: &User, repo: RepoId, branch: &str, to: &Sha) -> FakeResult<()> {
        self.core.move_branch(as_user.id, repo, branch, Some(to)).await
    }

    /// Deletes a branch.
    pub async fn delete_branch(&self, as_user: &User, repo: RepoId, branch: &str) -> FakeResult<()> {
        self.core.move_branch(as_user.id, repo, branch, None).await
    }

    /// Sets whether a branch is protected.
    pub fn protect_branch(&self, repo: RepoId, branch: &str, protected: bool) -> FakeResult<()> {
        self.core.protect(repo, branch, protected)
    }

    /// Sets the conditions for merges into a branch.
    pub fn require_for_merge(&self, repo: RepoId, branch: &str, checks: &[&str], approvals: usize) -> FakeResult<()> {
        let checks = checks.iter().map(|name| (*name).to_owned()).collect();
        self.with(|state| {
            state.repo_mut(repo)?.merge_rules.insert(branch.to_owned(), MergeRule { checks, approvals });
            Ok(())
        })
    }

    /// Sets whether auto-merge is allowed in a repository (GitHub).
    pub fn allow_auto_merge(&self, repo: RepoId, allowed: bool) -> FakeResult<()> {
        self.with(|state| state.repo_mut(repo).map(|entry| entry.auto_merge_allowed = allowed))
    }

    /// Ends a pull request's automatic merge (GitHub): `actor` disables it or, with `queue`, removes the pull request from
    /// the merge queue.
    pub fn leave_merge(&self, actor: &User, repo: RepoId, number: Number, queue: bool, reason: &str) -> FakeResult<()> {
        self.with(|state| state.leave_merge(actor.id, repo, number, queue, reason))
    }

    /// Sets the message for rejecting every push; `None` accepts pushes again.
    pub fn refuse_pushes(&self, repo: RepoId, words: Option<&str>) -> std::io::Result<()> {
        self.core.git.refuse_pushes(repo, words)
    }

    /// Sets the text that push protection treats as a secret; `None` for none.
    pub fn protect_secret(&self, repo: RepoId, secret: Option<&str>) -> std::io::Result<()> {
        self.core.git.protect_secret(repo, secret)
    }

    /// Adds a webhook for all events as the repository's owner; returns the webhook's id.
    pub async fn add_hook(&self, repo: RepoId, url: &str, secret: &str) -> FakeResult<i64> {
        self.with(|state| {
            let owner = state.repo(repo)?.owner;
            state.add_hook(owner, repo, url, secret, vec!["*".to_owned()], true)
        })
    }

    /// Creates a GitHub App with a webhook (none if `hook_url` is empty) and installs it on all repositories. All Apps of the
    /// fake forge have the same test key.
    pub fn add_app(
        &self,
        name: &str,
        permissions: &[(&str, &str)],
        events: &[&str],
        hook_url: &str,
        secret: &str,
    ) -> AppCredentials {
        let app = self.with(|state| state.add_app(name, permissions, events, hook_url, secret));
        AppCredentials {
            app_id: app.id.unsigned_abs(),
            private_key_pem: github::PRIVATE_KEY.to_owned(),
            installation: app.installation,
            bot: self.with(|state| state.user(app.bot)),
        }
    }

    /// Creates an OAuth application for logins, which allows codes to be sent to `redirect`.
    pub fn add_login_app(&self, name: &str, redirect: &str) -> FakeLoginApp {
        self.with(|state| {
            let owner = state.add_account("ralph-bot", AccountKind::User, false).id;
            state.add_login_app(owner, name, vec![redirect.to_owned()])
        })
    }

    /// Sets whether an account is suspended.
    pub fn suspend_account(&self, user: &User, suspended: bool) {
        self.with(|state| {
            if let Some(account) = state.accounts.get_mut(&user.id) {
                account.suspended = suspended;
            }
        });
    }

    /// Adds a repository to an App's installation or removes it, and delivers the event.
    pub fn install_on(&self, app: u64, repo: RepoId, added: bool) {
        let action = if added { "added" } else { "removed" };
        let event = ("installation_repositories", action);
        self.core.change_installation(app.cast_signed(), event, Some((repo, added)), |app, _| {
            if added {
                app.excluded.remove(&repo)
            } else {
                app.excluded.insert(repo)
            };
        });
    }

    /// Suspends or resumes an App's installation, and delivers the event.
    pub fn suspend(&self, app: u64, suspended: bool) {
        let action = if suspended { "suspend" } else { "unsuspend" };
        let at = |app: &mut FakeApp, now| app.suspended_at = suspended.then_some(now);
        self.core.change_installation(app.cast_signed(), ("installation", action), None, at);
    }

    /// Creates or replaces a check run of a commit (GitHub). `outcome` is its conclusion, summary and job log; `None` while
    /// the check is running.
    pub async fn set_check_run(
        &self,
        as_user: &User,
        repo: RepoId,
        sha: &Sha,
        name: &str,
        outcome: Option<(&str, &str, &str)>,
    ) -> FakeResult<i64> {
        let id = self.with(|state| state.set_check_run(as_user.id, repo, sha, name, outcome));
        self.core.settle_auto_merges().await;
        id
    }

    /// Waits until all deliveries are attempted or dropped.
    pub async fn flush(&self) {
        self.core.hooks.flush().await;
    }

    /// Returns the controls and the log of webhook deliveries.
    pub fn hooks(&self) -> &Deliveries {
        &self.core.hooks
    }

    /// Returns the fault injection.
    pub fn faults(&self) -> &Faults {
        &self.core.faults
    }

    /// Returns all requests so far, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.core.faults.requests()
    }

    /// Returns all mutating operations so far, oldest first.
    pub fn ops(&self) -> Vec<Op> {
        self.with(|state| state.ops.clone())
    }

    /// Returns the comments of an issue or pull request, oldest first; none for an unknown issue.
    pub fn comments(&self, repo: RepoId, number: Number) -> Vec<FakeComment> {
        self.with(|state| state.issue(repo, number).map(|issue| issue.comments.clone()).unwrap_or_default())
    }

    /// Returns the label names of an issue, in the repository's order.
    pub fn labels(&self, repo: RepoId, number: Number) -> Vec<String> {
        self.with(|state| state.labels_of(repo, number).into_iter().map(|label| label.name).collect())
    }

    /// Returns a file's text on a branch; `None` if there is no such file.
    pub async fn file_at(&self, repo: RepoId, branch: &str, path: &str) -> Option<String> {
        self.core.git.file_at(repo, &format!("refs/heads/{branch}"), path).await.ok().flatten()
    }

    /// Returns the head commit of a branch; `None` for an unknown branch.
    pub async fn branch_sha(&self, repo: RepoId, branch: &str) -> Option<Sha> {
        self.core.git.branch(repo, branch).await.ok().flatten()
    }

    /// Returns the path of the bare repository.
    pub fn repo_path(&self, repo: RepoId) -> std::path::PathBuf {
        self.core.git.path(repo)
    }
}

fn label_or_new(state: &mut FakeState, as_user: &User, repo: RepoId, name: &str) -> FakeResult<i64> {
    if let Some(known) = state.label_named(repo, name) {
        return Ok(known.id);
    }
    state.create_label(as_user.id, repo, name, "ededed", "").map(|label| label.id)
}

#[cfg(test)]
mod tests;
