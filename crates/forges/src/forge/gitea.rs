//! Gitea and Forgejo adapter (Gitea 1.22 or newer), with a user token and a webhook per repository.

mod attachments;
mod auto_merge;
mod capabilities;
mod ci;
mod client;
mod commit_status;
mod labels;
mod login;
mod map;
mod own_repositories;
mod parts;
mod teams;
mod webhook;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::Method;
use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::sync::OnceCell;
use url::Url;

use self::client::{GiteaClient, under};
use self::map::{WireComment, WireIssue, WireLabel, WirePull, WireRepository, WireSearch, WireUser, WireVersion};
use self::parts::{AccountAddress, BranchProtection};
use super::ForgeErrorKind::{Bug, Conflict, Denied, NotFound};
use super::attachments::Downloader;
use super::http::{
    CallMeter, MutationPace, RateSettings, RequestLayer, RequestPriority, ReqwestTransport, Transport, error,
    json as read,
};
use super::{
    Forge, ForgeError, ForgeResult, GitAccess, LabelSpec, NewIssue, NewPull, Permission, Repository, ServerInfo,
    refused_scope,
};
use crate::clock::Clock;
use crate::domain::model::authorship::CommitAuthor;
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, PullSnapshot, is_same_label};
use crate::domain::model::ids::{CommentId, ForgeName, Number, RepoId, RepoRef, Sha, Timestamp, User};
use crate::domain::trust::images::AttachmentAddresses;
use crate::domain::trust::outbound::{BodyText, Outbound, TitleText};

#[cfg(any(test, fuzzing, feature = "testing"))]
pub use self::webhook::parse as parse_delivery;

/// Oldest supported version of Gitea, as (major, minor); Forgejo reports the Gitea version that it corresponds to.
const MIN_VERSION: (u32, u32) = (1, 22);
/// First version of Gitea, as (major, minor), whose permission API ignores permissions of teams.
const TEAMS_LEFT_OUT: (u32, u32) = (1, 25);
/// First version of Gitea whose webhooks can subscribe to commit statuses. Version 1.23 delivers them to every
/// webhook.
const STATUSES_SUBSCRIBED: (u32, u32, u32) = (1, 24, 0);
/// First version of Gitea that delivers commit statuses.
const STATUSES_DELIVERED: (u32, u32, u32) = (1, 23, 0);
/// First version of Gitea that does not lose accepted automatic merges.
const MERGES_KEPT: (u32, u32, u32) = (1, 24, 3);
/// User name for git, which the server ignores.
const GIT_USER: &str = "ralph-bot";

/// Settings of a Gitea or Forgejo server.
#[derive(Debug, Clone)]
pub struct GiteaSettings {
    /// Configured name of the forge.
    pub name: ForgeName,
    /// Web address of the server, including its path.
    pub url: Url,
    /// Token of the service's account.
    pub token: SecretString,
    /// Account of the service; needed if the token has no permission to read it.
    pub own: Option<User>,
    /// Spacing, retries and timeouts of requests.
    pub rates: RateSettings,
}

/// Adapter for an account on a Gitea or Forgejo server.
pub struct Gitea {
    settings: GiteaSettings,
    client: GiteaClient,
    meter: Arc<CallMeter>,
    downloads: Downloader,
    probed: OnceCell<Probed>,
    own: OnceCell<User>,
    /// Ids of labels by lower-case name, for each repository.
    labels: Mutex<HashMap<RepoId, BTreeMap<String, i64>>>,
    /// Locks for creating labels, one per repository.
    makers: Mutex<HashMap<RepoId, Arc<tokio::sync::Mutex<()>>>>,
    hooks: Mutex<HashMap<RepoId, OwnHook>>,
}

/// Facts about the server.
struct Probed {
    info: ServerInfo,
    /// Whether the reported permission of an account is the lowest that a team gives for any part of a repository.
    /// True for Gitea before 1.25 and all versions of Forgejo; later versions of Gitea ignore teams.
    lowest_unit: bool,
    /// Whether commit statuses are delivered. No version of Forgejo does so.
    delivers_statuses: bool,
    /// Whether webhooks can subscribe to commit statuses.
    subscribes_to_statuses: bool,
    /// Whether the server may lose an accepted automatic merge. Also assumed for Forgejo, for which this is unknown.
    forgets_merges: bool,
}

/// Webhook that this process created, whose secret is therefore known.
#[derive(Clone, PartialEq, Eq)]
struct OwnHook {
    id: i64,
    /// HMAC of the address with the secret, which changes if either changes.
    fingerprint: String,
}

impl Gitea {
    /// Creates an adapter without sending a request.
    ///
    /// # Errors
    /// `Bug` if the address or the token is invalid.
    pub fn new(settings: GiteaSettings, clock: Clock) -> ForgeResult<Self> {
        let transport = ReqwestTransport::new(settings.rates.timeouts)
            .map_err(|failure| error(Bug, "start the HTTP client", failure.detail))?;
        Self::with_transport(settings, clock, Arc::new(transport))
    }

    /// Creates an adapter that uses the given transport.
    ///
    /// # Errors
    /// `Bug` if the address or the token is invalid.
    pub fn with_transport(settings: GiteaSettings, clock: Clock, transport: Arc<dyn Transport>) -> ForgeResult<Self> {
        let meter = Arc::<CallMeter>::default();
        let layer = RequestLayer::new(transport, clock, settings.rates, MutationPace::UNLIMITED).metered(meter.clone());
        let client = GiteaClient::new(&settings.url, &settings.token, layer)?;
        let downloads = Downloader::new(AttachmentAddresses::Gitea(client.address(&[])))
            .map_err(|failure| error(Bug, "start the HTTP client", failure))?;
        Ok(Self {
            settings,
            downloads,
            client,
            meter,
            probed: OnceCell::new(),
            own: OnceCell::new(),
            labels: Mutex::default(),
            makers: Mutex::default(),
            hooks: Mutex::default(),
        })
    }

    async fn probed(&self) -> ForgeResult<&Probed> {
        self.probed.get_or_try_init(|| self.probe()).await
    }

    async fn probe(&self) -> ForgeResult<Probed> {
        let what = format!("read the version of {}", self.settings.url);
        let version = self.client.get::<WireVersion>(&what, &["version"], &[]).await?.version;
        let (product, comparable) = match version.split_once("+gitea-") {
            Some((forgejo, gitea)) => (format!("Forgejo {forgejo}"), gitea.to_owned()),
            None => match self.client.get_at::<WireVersion>(&what, &["api", "forgejo", "v1", "version"]).await {
                Ok(forgejo) => (format!("Forgejo {}", forgejo.version), String::new()),
                Err(ForgeError { kind: NotFound, .. }) => (format!("Gitea {version}"), version),
                Err(failure) => return Err(failure),
            },
        };
        let mut numbers = comparable.split('.').map(|part| part.parse::<u32>().ok());
        let numbers = numbers.next().flatten().zip(numbers.next().flatten());
        if numbers.is_some_and(|numbers| numbers < MIN_VERSION) {
            let detail = format!("{product} is too old; upgrade it to {}.{} or newer", MIN_VERSION.0, MIN_VERSION.1);
            return Err(error(Denied, &what, detail));
        }
        let is_forgejo = product.starts_with("Forgejo");
        let lowest_unit = is_forgejo || numbers.is_none_or(|numbers| numbers < TEAMS_LEFT_OUT);
        // A version without a number is one under development.
        let since = |first| !is_forgejo && version_numbers(&comparable).is_none_or(|numbers| numbers >= first);
        let (delivers_statuses, subscribes_to_statuses) = (since(STATUSES_DELIVERED), since(STATUSES_SUBSCRIBED));
        let forgets_merges = !since(MERGES_KEPT);
        let info = ServerInfo { product, label_deltas: false, partial_clone: true };
        Ok(Probed { info, lowest_unit, delivers_statuses, subscribes_to_statuses, forgets_merges })
    }
}

/// Returns the three numbers of a version such as `1.24.3` or `1.26.0+dev-12`; `None` if it does not start with two
/// numbers.
fn version_numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split('.');
    let mut number = || parts.next()?.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok();
    Some((number()?, number()?, number().unwrap_or(0)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Code under these locks stores complete values only, so the state is valid even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts a refusal because of a locked conversation to `Conflict`.
fn locked_is_conflict(failure: ForgeError) -> ForgeError {
    let locked = failure.kind == Denied && failure.detail.to_ascii_lowercase().contains("lock");
    if locked { ForgeError { kind: Conflict, ..failure } } else { failure }
}

fn pull_snapshot(what: &str, pull: WirePull) -> ForgeResult<PullSnapshot> {
    pull.snapshot().ok_or_else(|| error(Bug, what, "the response has no head commit"))
}

fn rfc3339(moment: Timestamp) -> String {
    let moment = jiff::Timestamp::from_millisecond(moment.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[async_trait]
impl Forge for Gitea {
    fn meter(&self) -> Option<&CallMeter> {
        Some(&self.meter)
    }

    fn name(&self) -> &ForgeName {
        &self.settings.name
    }

    async fn server_info(&self) -> ForgeResult<ServerInfo> {
        Ok(self.probed().await?.info.clone())
    }

    async fn commit_author(&self) -> ForgeResult<Option<CommitAuthor>> {
        let what = format!("read the address of the token's account on {}", self.settings.url);
        let account: AccountAddress = self.client.get(&what, &["user"], &[]).await?;
        let name = account.full_name.trim();
        Ok(CommitAuthor::checked(if name.is_empty() { &account.login } else { name }, &account.email))
    }

    async fn own_account(&self) -> ForgeResult<User> {
        if let Some(own) = &self.settings.own {
            return Ok(own.clone());
        }
        let ask = || async {
            let what = format!("read the account of the token on {}", self.settings.url);
            match self.client.get::<WireUser>(&what, &["user"], &[]).await {
                Ok(user) => Ok(user.account()),
                Err(failure) if failure.kind == Denied => {
                    let detail = format!("{}; give the token the scope `read:user`, or set `own_id`", failure.detail);
                    Err(ForgeError { detail, ..failure })
                }
                Err(failure) => Err(failure),
            }
        };
        self.own.get_or_try_init(ask).await.cloned()
    }

    async fn repositories(&self) -> ForgeResult<Vec<Repository>> {
        let what = format!("list the repositories of the service's account on {}", self.settings.url);
        let listed: ForgeResult<Vec<WireRepository>> = self.client.poll(&what, &["user", "repos"], &[]).await;
        let found = match listed {
            // A token without `read:user` may not list its repositories; the search returns those that it may push to.
            Err(ForgeError { kind: Denied, .. }) => {
                let page = |page: WireSearch| page.data;
                let path = ["repos", "search"];
                let found = self.client.pages(&what, &path, &[], RequestPriority::Background, page, |_| false).await?;
                found.into_iter().filter(WireRepository::may_push).collect()
            }
            other => other?,
        };
        Ok(found.into_iter().filter_map(|repository| repository.facts(&self.settings.name)).collect())
    }

    async fn repository(&self, repo: &RepoRef) -> ForgeResult<Repository> {
        let what = format!("read {repo}");
        let by_name: ForgeResult<WireRepository> = self.client.get(&what, &under(repo, &[])?, &[]).await;
        let by_name = match by_name {
            Err(ForgeError { kind: NotFound, .. }) => None,
            other => other?.facts(&self.settings.name).filter(|found| found.repo.id == repo.id),
        };
        if let Some(found) = by_name {
            return Ok(found);
        }
        // The repository was renamed or moved: its id is still valid.
        let by_id: WireRepository = self.client.get(&what, &["repositories", &repo.id.to_string()], &[]).await?;
        let found = by_id.facts(&self.settings.name).filter(|found| found.repo.id == repo.id);
        found.ok_or_else(|| error(NotFound, &what, format!("no repository has the id {}", repo.id)))
    }

    async fn permission(&self, repo: &RepoRef, user: &User) -> ForgeResult<Permission> {
        self.permission_of(repo, user).await
    }

    async fn issue(&self, repo: &RepoRef, number: Number) -> ForgeResult<IssueSnapshot> {
        let what = format!("read {repo}#{number}");
        let issue: WireIssue = self.client.get(&what, &under(repo, &["issues", &number.to_string()])?, &[]).await?;
        Ok(issue.snapshot())
    }

    async fn render(&self, repo: &RepoRef, markdown: &str) -> ForgeResult<String> {
        let body = json!({ "Text": markdown, "Mode": "gfm", "Context": repo.full_name() });
        self.client.text(&format!("render a text of {repo}"), &["markdown"], &body).await
    }

    async fn open_issues_with_label(&self, repo: &RepoRef, label: &str) -> ForgeResult<Vec<IssueSnapshot>> {
        let what = format!("list the issues of {repo} labeled {label:?}");
        let query = [("state", "open"), ("type", "issues"), ("labels", label)];
        let issues: Vec<WireIssue> = self.client.poll(&what, &under(repo, &["issues"])?, &query).await?;
        // The server ignores unknown labels in the filter and then lists all issues.
        let matches = |issue: &IssueSnapshot| !issue.is_pull && issue.open && issue.has_label(label);
        Ok(issues.into_iter().map(WireIssue::snapshot).filter(matches).collect())
    }

    async fn create_issue(&self, repo: &RepoRef, issue: &NewIssue) -> ForgeResult<IssueSnapshot> {
        let what = format!("open an issue in {repo}");
        let labels = self.label_ids(repo, &issue.labels).await?;
        let body = json!({ "title": issue.title, "body": issue.body, "labels": labels, "assignees": issue.assignees });
        let answer = self.client.send(&what, Method::POST, &under(repo, &["issues"])?, &body).await?;
        Ok(read::<WireIssue>(&what, &answer)?.snapshot())
    }

    async fn set_issue_open(&self, repo: &RepoRef, number: Number, open: bool) -> ForgeResult<()> {
        let what = format!("{} {repo}#{number}", if open { "reopen" } else { "close" });
        let body = json!({ "state": if open { "open" } else { "closed" } });
        let number = number.to_string();
        self.client.send(&what, Method::PATCH, &under(repo, &["issues", &number])?, &body).await.map(drop)
    }

    async fn ensure_labels(&self, repo: &RepoRef, labels: &[LabelSpec]) -> ForgeResult<usize> {
        self.make_labels(repo, labels).await
    }

    async fn add_labels(&self, repo: &RepoRef, number: Number, labels: &[String]) -> ForgeResult<()> {
        if labels.is_empty() {
            return Ok(());
        }
        let what = format!("add labels to {repo}#{number}");
        let number = number.to_string();
        let path = under(repo, &["issues", &number, "labels"])?;
        for _ in 0..2 {
            let ids = self.label_ids(repo, labels).await?;
            let answer = self.client.send(&what, Method::POST, &path, &json!({ "labels": ids })).await?;
            let now: Vec<WireLabel> = read(&what, &answer)?;
            if labels.iter().all(|name| now.iter().any(|label| is_same_label(&label.name, name))) {
                return Ok(());
            }
            // A cached id belongs to a deleted label, which the server ignores.
            lock(&self.labels).remove(&repo.id);
        }
        Err(error(Conflict, &what, format!("the server did not add all of the labels {labels:?}")))
    }

    async fn remove_label(&self, repo: &RepoRef, number: Number, label: &str) -> ForgeResult<()> {
        let what = format!("remove the label {label:?} from {repo}#{number}");
        let number = number.to_string();
        let path = under(repo, &["issues", &number, "labels"])?;
        let present: Option<Vec<WireLabel>> = self.client.get(&what, &path, &[]).await?;
        for present in present.into_iter().flatten().filter(|present| is_same_label(&present.name, label)) {
            let id = present.id.to_string();
            let path = under(repo, &["issues", &number, "labels", &id])?;
            match self.client.send_empty(&what, Method::DELETE, &path).await {
                Ok(()) | Err(ForgeError { kind: NotFound, .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    async fn comments(
        &self,
        repo: &RepoRef,
        number: Number,
        since: Option<Timestamp>,
    ) -> ForgeResult<Vec<CommentSnapshot>> {
        let what = format!("list the comments of {repo}#{number}");
        let since = since.map(rfc3339);
        let query: Vec<(&str, &str)> = since.iter().map(|since| ("since", since.as_str())).collect();
        let path = [number.to_string()];
        // This list has no pages.
        let path = under(repo, &["issues", &path[0], "comments"])?;
        let comments: Option<Vec<WireComment>> = match self.client.get(&what, &path, &query).await {
            Err(failure) => return Err(self.missing_issue(repo, number, failure).await),
            Ok(comments) => comments,
        };
        let mut comments: Vec<_> = comments.into_iter().flatten().map(WireComment::snapshot).collect();
        comments.sort_by_key(|comment| (comment.created_at, comment.id));
        Ok(comments)
    }

    async fn create_comment(
        &self,
        repo: &RepoRef,
        number: Number,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<CommentSnapshot> {
        let what = format!("create a comment on {repo}#{number}");
        let text = number.to_string();
        let path = under(repo, &["issues", &text, "comments"])?;
        match self.client.send(&what, Method::POST, &path, &json!({ "body": body })).await {
            Ok(answer) => Ok(read::<WireComment>(&what, &answer)?.snapshot()),
            Err(failure) if failure.kind == Denied => {
                // The error message is in the server's language, so the issue itself is read.
                let locked = self.issue(repo, number).await.is_ok_and(|issue| issue.locked);
                let detail = if locked { "the conversation is locked".to_owned() } else { failure.detail };
                Err(error(if locked { Conflict } else { Denied }, &what, detail))
            }
            Err(failure) => Err(self.missing_issue(repo, number, failure).await),
        }
    }

    async fn edit_comment(&self, repo: &RepoRef, id: CommentId, body: &Outbound<BodyText>) -> ForgeResult<()> {
        let what = format!("edit comment {id} in {repo}");
        let id = id.to_string();
        let path = under(repo, &["issues", "comments", &id])?;
        let sent = self.client.send(&what, Method::PATCH, &path, &json!({ "body": body })).await;
        sent.map(drop).map_err(locked_is_conflict)
    }

    async fn delete_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()> {
        let what = format!("delete comment {id} in {repo}");
        let id = id.to_string();
        match self.client.send_empty(&what, Method::DELETE, &under(repo, &["issues", "comments", &id])?).await {
            Err(ForgeError { kind: NotFound, .. }) => Ok(()),
            other => other.map_err(locked_is_conflict),
        }
    }

    async fn pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<PullSnapshot> {
        pull_snapshot(&format!("read pull request {repo}#{number}"), self.wire_pull(repo, number).await?)
    }

    async fn find_pull(&self, repo: &RepoRef, head: &str, base: &str) -> ForgeResult<Option<PullSnapshot>> {
        let what = format!("find the pull request from {head:?} in {repo}");
        self.pull_from(&what, repo, head, base).await?.map(|pull| pull_snapshot(&what, pull)).transpose()
    }

    async fn create_pull(&self, repo: &RepoRef, pull: &NewPull) -> ForgeResult<PullSnapshot> {
        let what = format!("open a pull request from {:?} in {repo}", pull.head);
        let title = if pull.draft { map::draft_title(pull.title.as_str()) } else { pull.title.as_str().to_owned() };
        let body = json!({ "title": title, "body": pull.body, "head": pull.head, "base": pull.base });
        let answer = self.client.send(&what, Method::POST, &under(repo, &["pulls"])?, &body).await?;
        pull_snapshot(&what, read(&what, &answer)?)
    }

    async fn update_pull(
        &self,
        repo: &RepoRef,
        number: Number,
        title: &Outbound<TitleText>,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<()> {
        let draft = self.wire_pull(repo, number).await?.draft();
        let title = if draft { map::draft_title(title.as_str()) } else { map::ready_title(title.as_str()).to_owned() };
        self.edit_pull(repo, number, json!({ "title": title, "body": body })).await.map(drop)
    }

    fn files_page(&self, repo: &RepoRef, commit: &Sha) -> Option<String> {
        let page = self.client.address(&[&repo.owner, &repo.name, "src", "commit", &commit.to_string()]);
        Some(format!("{page}/"))
    }

    async fn refused_scopes(&self, repo: &RepoRef, webhooks: bool) -> ForgeResult<Vec<String>> {
        let mut refused = Vec::new();
        let hooks = webhooks.then_some(("manage webhooks", "hooks"));
        for (what, place) in [("open issues and comment", "issues")].into_iter().chain(hooks) {
            let asked = format!("ask whether the token may {what} in {repo}");
            let answer = self.client.send(&asked, Method::POST, &under(repo, &[place])?, &json!({})).await;
            refused.extend(refused_scope(what, answer.map(drop))?);
        }
        Ok(refused)
    }

    async fn is_protected(&self, repo: &RepoRef, branch: &str) -> ForgeResult<bool> {
        let what = format!("read branch {branch:?} of {repo}");
        let path: Vec<&str> = std::iter::once("branches").chain(branch.split('/')).collect();
        match self.client.find(&what, &under(repo, &path)?).await? {
            Some(answer) => Ok(read::<BranchProtection>(&what, &answer)?.protected),
            None => Ok(false),
        }
    }

    async fn git_access(&self, repo: &RepoRef, _push: bool) -> ForgeResult<GitAccess> {
        under(repo, &[])?;
        let url = self.client.address(&[&repo.owner, &format!("{}.git", repo.name)]);
        let token = SecretString::from(self.settings.token.expose_secret());
        Ok(GitAccess { url: url.into(), credential: Some((GIT_USER.to_owned(), token)), settling_ms: 0 })
    }
}
