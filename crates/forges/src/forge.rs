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

mod attachments;
mod capabilities;
mod ci_log;
mod commit_status;
mod contents;
#[cfg(test)]
pub(crate) mod contract;
pub mod gitea;
pub mod github;
pub mod http;
pub mod local;
pub mod login;
pub mod payload;
pub mod signature;
#[cfg(test)]
mod tests;

pub use capabilities::*;
pub use commit_status::*;

use async_trait::async_trait;
use ralph_types::failure::Failure;
use secrecy::SecretString;

use crate::domain::loops::CommentedLines;
use crate::domain::model::authorship::CommitAuthor;
use crate::domain::model::event::{CommentSnapshot, ForgeEvent, IssueSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::model::ids::{CommentId, ForgeName, Number, RepoRef, Sha, Timestamp, User};
use crate::domain::trust::outbound::{BodyText, Outbound, TitleText};

/// Kind of an error, by the way in which the engine reacts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgeErrorKind {
    /// The server or the network failed. Retry, but not before `after_ms` milliseconds from now if that is given. If
    /// `ambiguous`, the call may have taken effect; the engine looks up the effect by its natural key before a retry.
    Transient { after_ms: Option<i64>, ambiguous: bool },
    /// The forge asks for a pause of `after_ms` milliseconds.
    RateLimited { after_ms: i64 },
    /// The credential is invalid or expired.
    Unauthorized,
    /// The credential lacks the permission; a retry would fail as well.
    Denied,
    /// The object does not exist.
    NotFound,
    /// The repository was renamed, and the change was not sent to the new name. Read the repository by its id.
    Moved,
    /// The current state does not allow the call: the object already exists, was changed in the meantime, or is
    /// locked.
    Conflict,
    /// The forge rejected the request as invalid, or its response cannot be parsed.
    Bug,
}

/// Failure of a call to a forge.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {detail}")]
pub struct ForgeError {
    /// Classification.
    pub kind: ForgeErrorKind,
    /// Operation and its object ("create a comment on acme/app#7").
    pub what: String,
    /// Response of the forge, or the text of the cause; contains no secret.
    pub detail: String,
    /// Cause of a request without a response.
    #[source]
    pub cause: Option<Failure>,
}

/// Result of a call to a forge.
pub type ForgeResult<T> = Result<T, ForgeError>;

/// Facts about a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerInfo {
    /// Product and version ("Gitea 1.25.4"), for people.
    pub product: String,
    /// Whether deliveries about labels name the changed label; otherwise the sets of labels are compared.
    pub label_deltas: bool,
    /// Whether git supports partial clones (`--filter=blob:none`).
    pub partial_clone: bool,
}

/// Permission of an account in a repository, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Only public access.
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

/// Properties of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Reference of the repository.
    pub repo: RepoRef,
    /// Default branch.
    pub default_branch: String,
    /// Whether it is private.
    pub private: bool,
    /// Whether it is archived.
    pub archived: bool,
    /// Whether it has no commits.
    pub empty: bool,
    /// Whether issues are enabled.
    pub issues_enabled: bool,
}

/// Label that the bot creates if it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSpec {
    /// Name of the label.
    pub name: String,
    /// Six hexadecimal digits, no `#`.
    pub color: String,
    /// Description, one sentence of the bot's own, at most 100 characters.
    pub description: &'static str,
    /// Whether the label replaces labels with the same prefix up to the last `/`, on forges that support such labels.
    pub exclusive: bool,
}

/// Reaction that the bot adds to a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reaction {
    /// 👀 The service has read the command.
    Eyes,
    /// 🚀 The command was executed.
    Rocket,
    /// 😕 The command is invalid.
    Confused,
    /// 👎 The author lacks the permission.
    ThumbsDown,
}

/// Issue to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewIssue {
    /// Title of the issue.
    pub title: Outbound<TitleText>,
    /// Body of the issue.
    pub body: Outbound<BodyText>,
    /// Names of existing labels.
    pub labels: Vec<String>,
    /// Logins of the people to assign. A login that cannot be assigned fails the call on some forges.
    pub assignees: Vec<String>,
}

/// Pull request to create, from a branch of the same repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPull {
    /// Title, without a draft prefix.
    pub title: Outbound<TitleText>,
    /// Body of the pull request.
    pub body: Outbound<BodyText>,
    /// Head branch.
    pub head: String,
    /// Base branch.
    pub base: String,
    /// Whether to create it as a draft.
    pub draft: bool,
}

/// Submitted review of a pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct PullReview {
    /// Id of the review.
    pub id: i64,
    /// Verdict of the review.
    pub verdict: ReviewVerdict,
    /// Text of the review.
    pub body: String,
    /// HTML that the forge rendered from the text; `None` if the response lacks it, so that another request must fetch it.
    pub html: Option<String>,
    /// Author; `None` for a deleted account.
    pub author: Option<User>,
    /// Time of submission.
    pub submitted_at: Timestamp,
}

/// Comment on a line of a pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewComment {
    /// Content and author of the comment.
    pub comment: CommentSnapshot,
    /// Path of the file.
    pub path: String,
    /// Line in the new version of the file; `None` if the forge does not report it.
    pub line: Option<u64>,
    /// Commented lines; `None` if they were removed lines or the forge does not report their commit.
    pub lines: Option<CommentedLines>,
    /// Id of the review; `None` if the forge does not report it. Replies in a thread may have the id of the thread's
    /// review, which another account wrote.
    pub review: Option<i64>,
}

/// Event that assigned a label which is still on the issue.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelAssignment {
    /// Id of the event within the forge.
    pub id: i64,
    /// Account that added the label.
    pub by: User,
    /// Time of the assignment.
    pub at: Timestamp,
    /// Time of the last change of the issue's title; `None` if it was never changed.
    pub renamed_at: Option<Timestamp>,
    /// Time of the newest recorded change of the issue, of any kind except edits of its text. `None` if the forge also
    /// records edits.
    pub last_recorded_at: Option<Timestamp>,
}

/// Change of a label of an issue, as the forge recorded it.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelChange {
    /// Id of the event within the forge.
    pub id: i64,
    /// Whether the label was added; `false` if it was removed.
    pub added: bool,
    /// Account that changed the label.
    pub by: User,
    /// Time of the change.
    pub at: Timestamp,
}

/// Edit of an issue's text.
#[derive(Debug, Clone, PartialEq)]
pub struct IssueEdit {
    /// Time of the edit.
    pub at: Timestamp,
    /// Account that edited the text; `None` if the forge does not report it.
    pub editor: Option<User>,
}

/// Text file of a repository; invalid UTF-8 is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// Path from the root of the repository.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

/// Whether the credential can see the members of a team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TeamVisibility {
    /// The members are visible.
    Visible,
    /// It is unknown until a member gives a command; `why` is the reason.
    Unknown { why: String },
    /// The members are hidden, so no account counts as a member. `why` is the reason, and `fix` the solution.
    Hidden { why: String, fix: String },
}

/// Git address and credential of a repository. The credential is valid for minutes; request it again for each use.
#[derive(Debug, Clone)]
pub struct GitAccess {
    /// Address without a credential.
    pub url: String,
    /// User name and password or token.
    pub credential: Option<(String, SecretString)>,
    /// Time after its creation, in milliseconds, for which some servers may not know the credential yet.
    pub settling_ms: i64,
}

/// Rule of a repository that may reject a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRule {
    /// Whether signed commits satisfy the rule.
    pub asks_for_signatures: bool,
    /// Requirement of the rule, as a phrase.
    pub demand: String,
}

/// Attempt of the forge to deliver an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptedDelivery {
    /// Id of the attempt.
    pub id: i64,
    /// Id of the delivery, which is the same for all of its attempts.
    pub delivery: String,
    /// Time of the attempt.
    pub at: Timestamp,
    /// Whether the receiver accepted the delivery.
    pub succeeded: bool,
    /// Name of the event.
    pub event: String,
    /// Response of the receiver, or the reason why there was none.
    pub status: String,
}

/// Result of parsing a verified delivery.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedDelivery {
    /// The delivery reports this event.
    Event(Box<ForgeEvent>),
    /// The delivery is valid but not used, for this reason.
    Ignored(String),
    /// The delivery is invalid, for this reason.
    Malformed(String),
}

/// Returns a phrase about the permission that a request with an empty body showed to be missing. `None` if the forge
/// rejected the content, which shows that the permission exists.
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

/// Returns the problems of the webhooks that send to the service's address, given as `(active, sends JSON, events)`.
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

/// Returns the request body that asks for reviews by accounts (login) and teams (`organization/team`).
fn reviewers_body(reviewers: &[String]) -> serde_json::Value {
    let (teams, logins): (Vec<&String>, Vec<&String>) = reviewers.iter().partition(|one| one.contains('/'));
    let teams: Vec<&str> = teams.into_iter().filter_map(|team| team.split('/').nth(1)).collect();
    let mut body = serde_json::json!({ "reviewers": logins });
    if !teams.is_empty() {
        body["team_reviewers"] = serde_json::json!(teams);
    }
    body
}

/// Returns the number at the end of an issue's or pull request's address; `None` if there is none.
fn number_at_end(address: &str) -> Option<Number> {
    address.rsplit('/').next()?.parse().ok().map(Number)
}

/// Account on a configured server, with the operations that every loop needs. [`Capabilities`] has the optional ones. Calls
/// may take long and can be canceled safely.
#[async_trait]
pub trait Forge: Capabilities + Send + Sync {
    /// Configured name of the forge.
    fn name(&self) -> &ForgeName;
    /// Returns the counts of requests to the forge; `None` for a forge without requests.
    fn meter(&self) -> Option<&http::CallMeter>;
    /// Returns facts about the server, which are requested once and then cached.
    async fn server_info(&self) -> ForgeResult<ServerInfo>;
    /// Returns the service's account.
    async fn own_account(&self) -> ForgeResult<User>;
    /// Returns the author of the service's commits; `None` if the forge has no accounts.
    async fn commit_author(&self) -> ForgeResult<Option<CommitAuthor>> {
        Ok(None)
    }
    /// Returns all repositories that the credential can access.
    async fn repositories(&self) -> ForgeResult<Vec<Repository>>;
    /// Returns a repository by `owner/name`; `NotFound` if its numeric id differs from `repo`.
    async fn repository(&self, repo: &RepoRef) -> ForgeResult<Repository>;
    /// Returns the current permission of an account. For an account that is not a collaborator, returns `None` or
    /// `Read`.
    async fn permission(&self, repo: &RepoRef, user: &User) -> ForgeResult<Permission>;
    /// Returns an issue, or a pull request as an issue.
    async fn issue(&self, repo: &RepoRef, number: Number) -> ForgeResult<IssueSnapshot>;
    /// Returns the HTML that the forge renders from the Markdown of an issue or comment in a repository. Needed for texts that were
    /// read without their HTML.
    async fn render(&self, repo: &RepoRef, markdown: &str) -> ForgeResult<String>;
    /// Returns open issues with a label, without pull requests.
    async fn open_issues_with_label(&self, repo: &RepoRef, label: &str) -> ForgeResult<Vec<IssueSnapshot>>;
    /// Opens an issue.
    async fn create_issue(&self, repo: &RepoRef, issue: &NewIssue) -> ForgeResult<IssueSnapshot>;
    /// Opens or closes an issue.
    async fn set_issue_open(&self, repo: &RepoRef, number: Number, open: bool) -> ForgeResult<()>;
    /// Creates missing labels and returns their number; does not change existing ones.
    async fn ensure_labels(&self, repo: &RepoRef, labels: &[LabelSpec]) -> ForgeResult<usize>;
    /// Adds labels to an issue; labels that it already has are ignored.
    async fn add_labels(&self, repo: &RepoRef, number: Number, labels: &[String]) -> ForgeResult<()>;
    /// Removes a label from an issue; does nothing if the issue does not have it.
    async fn remove_label(&self, repo: &RepoRef, number: Number, label: &str) -> ForgeResult<()>;
    /// Returns the comments of an issue or pull request, oldest first. With `since`, returns only comments that changed since
    /// then.
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
    /// Deletes a comment; does nothing if it does not exist.
    async fn delete_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()>;
    /// Returns a pull request.
    async fn pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<PullSnapshot>;
    /// Returns the open pull request from a branch of this repository. If there is none, returns a closed one, which
    /// may be from an earlier use of the branch. `base` is the probable base branch, which makes the search faster.
    async fn find_pull(&self, repo: &RepoRef, head: &str, base: &str) -> ForgeResult<Option<PullSnapshot>>;
    /// Opens a pull request.
    async fn create_pull(&self, repo: &RepoRef, pull: &NewPull) -> ForgeResult<PullSnapshot>;
    /// Replaces title and body of a pull request without changing its draft state.
    async fn update_pull(
        &self,
        repo: &RepoRef,
        number: Number,
        title: &Outbound<TitleText>,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<()>;
    /// Returns git's address and credential. With `push`, the credential permits pushing.
    async fn git_access(&self, repo: &RepoRef, push: bool) -> ForgeResult<GitAccess>;

    /// Returns the address of the page with a commit's files; `None` if the forge has no pages. Append a path and `#L`
    /// with a line number for a file.
    fn files_page(&self, _repo: &RepoRef, _commit: &Sha) -> Option<String> {
        None
    }

    /// Returns the missing permissions of the credential in a repository, one phrase each; with `_webhooks`, including
    /// that to manage webhooks. They are determined by requests with an empty body, which the forge rejects without
    /// changing anything.
    async fn refused_scopes(&self, _repo: &RepoRef, _webhooks: bool) -> ForgeResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Returns the problems of the App's permissions, events and webhook (to `hook_url`), one phrase each; `None` if
    /// the credential does not belong to an App.
    async fn app_problems(&self, _hook_url: Option<&str>) -> ForgeResult<Option<Vec<String>>> {
        Ok(None)
    }
    /// Returns the problems of the App's installation on a repository, one phrase each.
    async fn installation_problems(&self, _repo: &RepoRef) -> ForgeResult<Vec<String>> {
        Ok(Vec::new())
    }
    /// Returns the rules of a repository that may reject a push to a branch, which need not exist. The bot may be
    /// exempt from them.
    async fn push_rules(&self, _repo: &RepoRef, _branch: &str) -> ForgeResult<Vec<PushRule>> {
        Ok(Vec::new())
    }

    /// Whether a branch is protected. False for a missing branch, and on a forge without protected branches.
    async fn is_protected(&self, _repo: &RepoRef, _branch: &str) -> ForgeResult<bool> {
        Ok(false)
    }
}
