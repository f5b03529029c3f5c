//! Forges: the trait with its optional capabilities, adapters for GitHub, Gitea and local repositories, one request layer, and
//! errors classified by the engine's reaction.

/// Implements the accessors of the capabilities that a forge always has.
macro_rules! capabilities {
    ($($name:ident: $Capability:ident),+ $(,)?) => {
        $(fn $name(&self) -> Option<&dyn $Capability> {
            Some(self)
        })+
    };
}

mod ci_log;
mod contents;
#[cfg(test)]
pub(crate) mod contract;
pub mod gitea;
pub mod github;
pub mod http;
pub mod local;
pub mod payload;
pub mod signature;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use secrecy::SecretString;

use crate::domain::model::event::{CommentSnapshot, ForgeEvent, IssueSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::model::ids::{CommentId, ForgeName, Number, RepoRef, Sha, Timestamp, User};
use crate::domain::report::view::CommitState;
use crate::domain::trust::outbound::{BodyText, Outbound, TitleText};
use crate::domain::trust::permit::TeamRef;

/// Classification of errors by the engine's reaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgeErrorKind {
    /// The server or the network failed; retry, not before `after_ms` milliseconds from now if given. If `ambiguous`, the call may
    /// have taken effect, and the effect is looked up by its natural key before a retry.
    Transient { after_ms: Option<i64>, ambiguous: bool },
    /// The forge asks for a pause of `after_ms` milliseconds.
    RateLimited { after_ms: i64 },
    /// The credential is invalid or expired.
    Unauthorized,
    /// Not permitted; a retry fails as well.
    Denied,
    /// The object does not exist.
    NotFound,
    /// The repository has another name now: a change was not sent on to it. Read the repository by its id.
    Moved,
    /// The current state does not allow the call: the object exists already, was changed meanwhile, or is locked.
    Conflict,
    /// The forge rejected the request as invalid, or its response cannot be parsed.
    Bug,
}

/// Failed call to a forge.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {detail}")]
pub struct ForgeError {
    /// Classification.
    pub kind: ForgeErrorKind,
    /// Operation and its object ("create a comment on acme/app#7").
    pub what: String,
    /// Response of the forge, or the cause; holds no secret.
    pub detail: String,
}

/// Result of a call to a forge.
pub type ForgeResult<T> = Result<T, ForgeError>;

/// Facts about a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerInfo {
    /// Product and version for people ("Gitea 1.25.4").
    pub product: String,
    /// Whether deliveries about labels name the label; otherwise the sets of labels are compared.
    pub label_deltas: bool,
    /// Whether git supports partial clones (`--filter=blob:none`).
    pub partial_clone: bool,
}

/// Permission of an account in a repository, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// None beyond public access.
    None,
    /// Read.
    Read,
    /// Label and close issues.
    Triage,
    /// Push.
    Write,
    /// Push and manage some settings.
    Maintain,
    /// All settings.
    Admin,
}

/// Facts about a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Reference.
    pub repo: RepoRef,
    /// Default branch.
    pub default_branch: String,
    /// Whether it is private.
    pub private: bool,
    /// Whether it is archived.
    pub archived: bool,
    /// Whether it has no commits.
    pub empty: bool,
    /// Whether it has issues; they can be switched off.
    pub issues_enabled: bool,
}

/// Label to be created if missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSpec {
    /// Name.
    pub name: String,
    /// Six hexadecimal digits, no `#`.
    pub color: String,
    /// One sentence of ours, at most 100 characters.
    pub description: &'static str,
}

/// Reactions that the bot sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reaction {
    /// 👀 Seen.
    Eyes,
    /// 🚀 Done.
    Rocket,
    /// 😕 Invalid.
    Confused,
    /// 👎 Not permitted.
    ThumbsDown,
}

/// Issue to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewIssue {
    /// Title.
    pub title: Outbound<TitleText>,
    /// Body.
    pub body: Outbound<BodyText>,
    /// Names of existing labels.
    pub labels: Vec<String>,
    /// Logins of the people to assign. A login that cannot be assigned fails the call on some forges.
    pub assignees: Vec<String>,
}

/// Pull request to be opened, from a branch of the same repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPull {
    /// Title, without a draft prefix.
    pub title: Outbound<TitleText>,
    /// Body.
    pub body: Outbound<BodyText>,
    /// Head branch.
    pub head: String,
    /// Base branch.
    pub base: String,
    /// Whether it is opened as a draft.
    pub draft: bool,
}

/// Submitted review of a pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct PullReview {
    /// Id.
    pub id: i64,
    /// Verdict.
    pub verdict: ReviewVerdict,
    /// Text.
    pub body: String,
    /// Author; `None` for a deleted account.
    pub author: Option<User>,
    /// Time of submission.
    pub submitted_at: Timestamp,
}

/// Comment on a line.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewComment {
    /// Comment.
    pub comment: CommentSnapshot,
    /// Path of the file.
    pub path: String,
    /// Line in the new file, if reported.
    pub line: Option<u64>,
    /// Id of its review, if reported. Replies in a thread may have that of the thread's review, by another account.
    pub review: Option<i64>,
}

/// Name of the status that the bot sets; protection of a branch can require it.
pub const VERIFIED_STATUS: &str = "ralph/verified";

/// Status of a commit as the bot sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitStatus {
    /// Commit.
    pub commit: Sha,
    /// State.
    pub state: CommitState,
    /// One line.
    pub title: Outbound<TitleText>,
    /// Markdown; forges that have only a line leave it out.
    pub summary: Outbound<BodyText>,
    /// Web page with more; empty if there is none.
    pub url: String,
}

impl CommitStatus {
    /// State in the words of both forges' commit statuses.
    fn word(&self) -> &'static str {
        match self.state {
            CommitState::Queued | CommitState::Running => "pending",
            CommitState::Success => "success",
            CommitState::Failure => "failure",
            CommitState::Cancelled => "error",
        }
    }

    /// Returns the beginning of the title, of at most `max` characters.
    fn description(&self, max: usize) -> String {
        self.title.as_str().chars().take(max).collect()
    }
}

/// CI results of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CiState {
    /// Number of successful checks and statuses.
    pub passed: u32,
    /// Number of pending ones.
    pub pending: u32,
    /// Failed ones.
    pub failed: Vec<CiFailure>,
}

/// A failed check, status or job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiFailure {
    /// Name or context.
    pub name: String,
    /// Web address.
    pub url: String,
    /// Log of the failed step, or a summary; at most the last 32 KiB.
    pub log: String,
}

/// Assignment of a label that is on an issue.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelAssignment {
    /// Id of the event within the forge.
    pub id: i64,
    /// Account that added it.
    pub by: User,
    /// Time.
    pub at: Timestamp,
    /// Last change of the issue's title; `None` if it was never changed.
    pub renamed_at: Option<Timestamp>,
    /// Newest change of the issue that the forge records, of any kind but edits of the text. `None` if edits are recorded, too.
    pub last_recorded_at: Option<Timestamp>,
}

/// Change of a label of an issue, as the forge recorded it.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelChange {
    /// Id of the event within the forge.
    pub id: i64,
    /// Whether the label was added, otherwise removed.
    pub added: bool,
    /// Account that changed it.
    pub by: User,
    /// Time.
    pub at: Timestamp,
}

/// Edit of an issue's text.
#[derive(Debug, Clone, PartialEq)]
pub struct IssueEdit {
    /// Time.
    pub at: Timestamp,
    /// Account; `None` if not reported.
    pub editor: Option<User>,
}

/// File of a repository; invalid UTF-8 is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// Path from the root of the repository.
    pub path: String,
    /// Content.
    pub text: String,
}

/// Visibility of a team's members to the credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TeamVisibility {
    /// Visible.
    Visible,
    /// Unknown until a member gives a command; `why` is the reason.
    Unknown { why: String },
    /// Hidden, so that no account counts as a member; `why` is the reason, `fix` the remedy.
    Hidden { why: String, fix: String },
}

/// Git address and credential of a repository. The credential is valid for minutes; request it again for each use.
#[derive(Debug, Clone)]
pub struct GitAccess {
    /// Address without a credential.
    pub url: String,
    /// User name and password or token.
    pub credential: Option<(String, SecretString)>,
}

/// Verified and parsed delivery.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedDelivery {
    /// Handled event.
    Event(Box<ForgeEvent>),
    /// Valid and not used, with the reason.
    Ignored(String),
    /// Invalid, with the cause for the operator.
    Malformed(String),
}

/// Returns the phrase about a request with an empty body that the forge refused for its permission; `None` if it was refused
/// for its content, which is what was asked for.
fn refused_scope(what: &str, answer: ForgeResult<()>) -> ForgeResult<Option<String>> {
    match answer {
        // 422 and 400: the content is wrong, so the permission was there.
        Ok(()) => Ok(None),
        Err(failure) if failure.kind == ForgeErrorKind::Bug && failure.detail.starts_with("HTTP 4") => Ok(None),
        Err(failure) if matches!(failure.kind, ForgeErrorKind::Denied | ForgeErrorKind::NotFound) => {
            Ok(Some(format!("{what} ({})", failure.detail)))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns what is wrong with the webhooks that send to the service's address: `(active, sends JSON, events)` of each.
fn hook_problems(hooks: &[(bool, bool, Vec<String>)], needed: &[&str]) -> Vec<String> {
    let [(active, sends_json, events)] = hooks else {
        return vec![match hooks.len() {
            0 => "there is no webhook to this address".to_owned(),
            count => format!("{count} webhooks to this address deliver everything {count} times"),
        }];
    };
    let mut problems = Vec::new();
    if !active {
        problems.push("the webhook is switched off".to_owned());
    }
    if !sends_json {
        problems.push("the webhook does not send JSON".to_owned());
    }
    let missing: Vec<&str> = needed
        .iter()
        .filter(|needed| {
            !events.iter().any(|event| event == *needed || event == "*" || event.starts_with(&format!("{needed}_")))
        })
        .copied()
        .collect();
    if !missing.is_empty() {
        problems.push(format!("the webhook lacks the events {}", missing.join(", ")));
    }
    problems
}

/// Returns the number at the end of an issue's or pull request's address.
fn number_at_end(address: &str) -> Option<Number> {
    address.rsplit('/').next()?.parse().ok().map(Number)
}

/// Account on a configured server: the operations that every loop needs. A forge offers the optional capabilities through the
/// accessors. Calls may take long and are safe to cancel.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Configured name of the forge.
    fn name(&self) -> &ForgeName;
    /// Returns facts about the server, requested once and then cached.
    async fn server_info(&self) -> ForgeResult<ServerInfo>;
    /// Returns the service's account.
    async fn own_account(&self) -> ForgeResult<User>;
    /// Returns all repositories that the credential can access.
    async fn repositories(&self) -> ForgeResult<Vec<Repository>>;
    /// Returns a repository by `owner/name`; `NotFound` if its numeric id is not that of `repo`.
    async fn repository(&self, repo: &RepoRef) -> ForgeResult<Repository>;
    /// Returns the current permission of an account. For an account that is no collaborator, returns `None` or `Read`.
    async fn permission(&self, repo: &RepoRef, user: &User) -> ForgeResult<Permission>;
    /// Returns an issue, or the issue of a pull request.
    async fn issue(&self, repo: &RepoRef, number: Number) -> ForgeResult<IssueSnapshot>;
    /// Returns open issues with a label, without pull requests.
    async fn open_issues_with_label(&self, repo: &RepoRef, label: &str) -> ForgeResult<Vec<IssueSnapshot>>;
    /// Opens an issue.
    async fn create_issue(&self, repo: &RepoRef, issue: &NewIssue) -> ForgeResult<IssueSnapshot>;
    /// Opens or closes an issue.
    async fn set_issue_open(&self, repo: &RepoRef, number: Number, open: bool) -> ForgeResult<()>;
    /// Creates missing labels; does not change existing ones.
    async fn ensure_labels(&self, repo: &RepoRef, labels: &[LabelSpec]) -> ForgeResult<()>;
    /// Adds labels to an issue; ignores those that it has.
    async fn add_labels(&self, repo: &RepoRef, number: Number, labels: &[String]) -> ForgeResult<()>;
    /// Removes a label from an issue; without effect if it does not have the label.
    async fn remove_label(&self, repo: &RepoRef, number: Number, label: &str) -> ForgeResult<()>;
    /// Returns the comments of an issue or pull request, oldest first; only those changed since `since`, if given.
    async fn comments(
        &self,
        repo: &RepoRef,
        number: Number,
        since: Option<Timestamp>,
    ) -> ForgeResult<Vec<CommentSnapshot>>;
    /// Creates a comment.
    async fn create_comment(
        &self,
        repo: &RepoRef,
        number: Number,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<CommentSnapshot>;
    /// Replaces the text of a comment.
    async fn edit_comment(&self, repo: &RepoRef, id: CommentId, body: &Outbound<BodyText>) -> ForgeResult<()>;
    /// Deletes a comment; without effect if it does not exist.
    async fn delete_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()>;
    /// Returns a pull request.
    async fn pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<PullSnapshot>;
    /// Returns the open pull request from a branch of this repository; if there is none, a closed one that may be an older one.
    /// `base` is the branch that it probably goes to, which shortens the search.
    async fn find_pull(&self, repo: &RepoRef, head: &str, base: &str) -> ForgeResult<Option<PullSnapshot>>;
    /// Opens a pull request.
    async fn create_pull(&self, repo: &RepoRef, pull: &NewPull) -> ForgeResult<PullSnapshot>;
    /// Replaces title and body of a pull request; keeps its draft state.
    async fn update_pull(
        &self,
        repo: &RepoRef,
        number: Number,
        title: &Outbound<TitleText>,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<()>;
    /// Returns the git address and credential; `push` requests a credential with permission to push.
    async fn git_access(&self, repo: &RepoRef, push: bool) -> ForgeResult<GitAccess>;

    /// Returns what the credential may not do in a repository, one phrase each. Asked by requests with an empty body: the
    /// forge refuses them before or after it looks at the permission, and changes nothing.
    async fn refused_scopes(&self, _repo: &RepoRef) -> ForgeResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Webhooks. Without them, events are found by polling only.
    fn webhooks(&self) -> Option<&dyn Webhooks> {
        None
    }
    /// Polling for missed events. Without it, changes that no delivery reports are not found.
    fn polling(&self) -> Option<&dyn Polling> {
        None
    }
    /// Teams. Without them, `permissions.teams` permits no account.
    fn teams(&self) -> Option<&dyn Teams> {
        None
    }
    /// Reviews. Without them, no reviewers are requested and no missed reviews are found.
    fn reviews(&self) -> Option<&dyn Reviews> {
        None
    }
    /// Draft pull requests. Without them, pull requests are opened as ready.
    fn drafts(&self) -> Option<&dyn Drafts> {
        None
    }
    /// CI results. Without them, failures of CI are not reported to the agent.
    fn ci(&self) -> Option<&dyn Ci> {
        None
    }
    /// Statuses of commits. Without them, protection of a branch cannot require verified work.
    fn commit_statuses(&self) -> Option<&dyn CommitStatuses> {
        None
    }
    /// History of labels. Without it, a missed label needs a confirmation.
    fn history(&self) -> Option<&dyn IssueHistory> {
        None
    }
    /// Reactions. Without them, commands are acknowledged by comments only.
    fn reactions(&self) -> Option<&dyn Reactions> {
        None
    }
    /// Minimizing comments. Without it, outdated comments are replaced by one line.
    fn minimizing(&self) -> Option<&dyn Minimizing> {
        None
    }
    /// Reading files without a clone. Without it, `check` does not examine the workflows of CI.
    fn files(&self) -> Option<&dyn RepositoryFiles> {
        None
    }
}

/// Single objects that deliveries report. The signature of a delivery proves only that its sender knows the secret, so each is
/// requested before the delivery is obeyed.
#[async_trait]
pub trait Confirmations: Send + Sync {
    /// Returns the last change of a label of an issue; `None` if the forge recorded none. `near` is the reported time, which
    /// may shorten the search and never changes its result.
    async fn last_label_change(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
        near: Timestamp,
    ) -> ForgeResult<Option<LabelChange>>;
    /// Returns a comment in the conversation of an issue or pull request; `None` if the conversation has no such comment.
    async fn comment(&self, repo: &RepoRef, number: Number, id: CommentId) -> ForgeResult<Option<CommentSnapshot>>;
    /// Returns a submitted review of a pull request; `None` if it has no such review.
    async fn review(&self, repo: &RepoRef, number: Number, id: i64) -> ForgeResult<Option<PullReview>>;
    /// Returns a comment on a line of a pull request; `None` if it has no such comment.
    async fn review_comment(&self, repo: &RepoRef, number: Number, id: CommentId)
    -> ForgeResult<Option<ReviewComment>>;
    /// Whether a delivered comment of a conversation is a comment on a line of a pull request, which the forge does not show in
    /// the delivery.
    async fn is_review_comment(&self, _repo: &RepoRef, _id: CommentId) -> ForgeResult<bool> {
        Ok(false)
    }
    /// Whether a repository belongs to an installation; `true` if the credential is not that of an App.
    async fn is_in_installation(&self, _repo: &RepoRef, _installation: u64) -> ForgeResult<bool> {
        Ok(true)
    }
}

/// Deliveries and management of webhooks.
#[async_trait]
pub trait Webhooks: Confirmations {
    /// Parses a verified delivery; pure. `event` is the forge's event header, which is unsigned: the shape of the body
    /// determines the event, and a header of another event makes the delivery invalid.
    fn parse(&self, event: &str, body: &[u8]) -> ParsedDelivery;
    /// Returns the installation that a delivery names; `None` if it names none or the credential is not that of an App.
    fn named_installation(&self, _body: &[u8]) -> Option<u64> {
        None
    }
    /// Creates or updates the webhook of a repository and returns its id; `None` if one webhook serves all repositories.
    async fn ensure_webhook(&self, repo: &RepoRef, url: &str, secret: &SecretString) -> ForgeResult<Option<i64>>;
    /// Returns what is wrong with the webhooks of a repository that send to `url`, one phrase each; `None` if one webhook
    /// serves all repositories.
    async fn webhook_problems(&self, _repo: &RepoRef, _url: &str) -> ForgeResult<Option<Vec<String>>> {
        Ok(None)
    }
    /// Requests a test delivery to a webhook.
    async fn test_webhook(&self, repo: &RepoRef, id: i64) -> ForgeResult<()>;
}

/// Lists of recent changes, to find events whose delivery was lost.
#[async_trait]
pub trait Polling: Send + Sync {
    /// Returns issues and pull requests of any state that changed since a time.
    async fn issues_changed_since(&self, repo: &RepoRef, since: Timestamp) -> ForgeResult<Vec<IssueSnapshot>>;
    /// Returns the comments of all issues and pull requests that changed since a time, each with the number of its issue.
    async fn comments_changed_since(
        &self,
        repo: &RepoRef,
        since: Timestamp,
    ) -> ForgeResult<Vec<(Number, CommentSnapshot)>>;
}

/// Team memberships.
#[async_trait]
pub trait Teams: Send + Sync {
    /// Whether an account is currently a member of a team, which may belong to another organisation than the repository's.
    /// `false` for an unknown team.
    async fn is_team_member(&self, repo: &RepoRef, team: &TeamRef, user: &User) -> ForgeResult<bool>;
    /// Returns whether the credential can read the members of a team, for commands in this repository.
    async fn team_visibility(&self, repo: &RepoRef, team: &TeamRef) -> ForgeResult<TeamVisibility>;
    /// Returns the teams with write access to a repository whose members the credential cannot read, on forges where
    /// [`Forge::permission`] leaves out what such teams give.
    async fn hidden_teams(&self, _repo: &RepoRef) -> ForgeResult<Vec<TeamRef>> {
        Ok(Vec::new())
    }
}

/// Reviews of pull requests.
#[async_trait]
pub trait Reviews: Send + Sync {
    /// Requests reviews; leaves out accounts that cannot review.
    async fn request_reviewers(&self, repo: &RepoRef, number: Number, logins: &[String]) -> ForgeResult<()>;
    /// Returns the reviews, oldest first.
    async fn submitted_reviews(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<PullReview>>;
    /// Returns the comments on lines, oldest first.
    async fn review_comments(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<ReviewComment>>;
}

/// Draft pull requests.
#[async_trait]
pub trait Drafts: Send + Sync {
    /// Marks a pull request as ready; without effect if it is ready.
    async fn set_pull_ready(&self, repo: &RepoRef, number: Number) -> ForgeResult<()>;
    /// Makes a pull request a draft; without effect if it is one.
    async fn set_pull_draft(&self, repo: &RepoRef, number: Number) -> ForgeResult<()>;
}

/// CI results.
#[async_trait]
pub trait Ci: Send + Sync {
    /// Returns the CI results of a commit.
    async fn ci_results(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<CiState>;
}

/// Statuses of commits.
#[async_trait]
pub trait CommitStatuses: Send + Sync {
    /// Sets the status [`VERIFIED_STATUS`] of a commit and returns its id. `id` is that of the status to update; a forge that
    /// keeps every status adds a newer one.
    async fn set_commit_status(&self, repo: &RepoRef, status: &CommitStatus, id: Option<i64>) -> ForgeResult<i64>;
}

/// History of an issue's labels, and of its text if the forge records that.
#[async_trait]
pub trait IssueHistory: Send + Sync {
    /// Whether edits of the text are recorded. If not, only the time of the last change tells whether there may have been one.
    fn records_edits(&self) -> bool;
    /// Returns the recorded edits of an issue's text, oldest first.
    async fn issue_edits(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<IssueEdit>>;
    /// Returns the assignment of a label that is on an issue; `None` if the forge does not report it.
    async fn label_assignment(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
    ) -> ForgeResult<Option<LabelAssignment>>;
}

/// Reactions to comments.
#[async_trait]
pub trait Reactions: Send + Sync {
    /// Adds a reaction to a comment; without effect if it exists.
    async fn react(&self, repo: &RepoRef, id: CommentId, reaction: Reaction) -> ForgeResult<()>;
}

/// Minimizing of comments.
#[async_trait]
pub trait Minimizing: Send + Sync {
    /// Minimizes a comment as outdated.
    async fn minimize_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()>;
}

/// Files of a repository.
#[async_trait]
pub trait RepositoryFiles: Send + Sync {
    /// Returns the files directly in a folder of the default branch, sorted by path, at most 50 and none above 256 KiB; none if
    /// there is no such folder.
    async fn folder_files(&self, repo: &RepoRef, folder: &str) -> ForgeResult<Vec<TextFile>>;
}
