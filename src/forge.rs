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

use async_trait::async_trait;
use secrecy::SecretString;

use crate::domain::loops::CommentedLines;
use crate::domain::model::authorship::CommitAuthor;
use crate::domain::model::event::{CommentSnapshot, ForgeEvent, IssueSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::model::ids::{CommentId, ForgeName, Number, RepoRef, Sha, Timestamp, User};
use crate::domain::report::view::CommitState;
use crate::domain::trust::outbound::{BodyText, Outbound, TitleText};

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
    /// Description, one sentence of the bot's own, at most 100 characters.
    pub description: &'static str,
    /// Whether it replaces other labels with the same beginning up to the last `/`, on forges that have such labels.
    pub exclusive: bool,
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
    /// Lines that it is on, if they are those of a commit's file (not of a removed line) and the forge reports the commit.
    pub lines: Option<CommentedLines>,
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
    /// Lines of the commit's files that it is about; forges that have only a line leave them out.
    pub annotations: Vec<LineAnnotation>,
}

/// Remark of a status on a line that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineAnnotation {
    /// Path from the root of the repository.
    pub path: String,
    /// 1-based line.
    pub line: u64,
    /// One line.
    pub title: Outbound<TitleText>,
    /// Text.
    pub message: Outbound<BodyText>,
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
    /// Time for which the server may not know the credential everywhere, in milliseconds.
    pub settling_ms: i64,
}

/// Rule of a repository that may refuse a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRule {
    /// Whether signed commits satisfy it.
    pub asks_for_signatures: bool,
    /// Demand of the rule, as a phrase.
    pub demand: String,
}

/// Attempt of the forge to deliver an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptedDelivery {
    /// Id of the attempt.
    pub id: i64,
    /// Id of the delivery, the same in each attempt.
    pub delivery: String,
    /// Time.
    pub at: Timestamp,
    /// Whether the receiver took it.
    pub succeeded: bool,
    /// Name of the event.
    pub event: String,
    /// Answer of the receiver, or why there was none.
    pub status: String,
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

/// Returns the body that requests reviews of accounts by login and of teams as `organization/team`.
fn reviewers_body(reviewers: &[String]) -> serde_json::Value {
    let (teams, logins): (Vec<&String>, Vec<&String>) = reviewers.iter().partition(|one| one.contains('/'));
    let teams: Vec<&str> = teams.into_iter().filter_map(|team| team.split('/').nth(1)).collect();
    let mut body = serde_json::json!({ "reviewers": logins });
    if !teams.is_empty() {
        body["team_reviewers"] = serde_json::json!(teams);
    }
    body
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
    /// Returns the counts of requests to the forge; `None` if it is not reached by requests.
    fn meter(&self) -> Option<&http::CallMeter>;
    /// Returns facts about the server, requested once and then cached.
    async fn server_info(&self) -> ForgeResult<ServerInfo>;
    /// Returns the service's account.
    async fn own_account(&self) -> ForgeResult<User>;
    /// Returns the author of the service's commits; `None` if the forge has no accounts.
    async fn commit_author(&self) -> ForgeResult<Option<CommitAuthor>> {
        Ok(None)
    }
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
    /// Creates missing labels and returns their number; does not change existing ones.
    async fn ensure_labels(&self, repo: &RepoRef, labels: &[LabelSpec]) -> ForgeResult<usize>;
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

    /// Returns the address of the page with the files of a commit, to which path and `#L` with a line are added; `None` without pages.
    fn files_page(&self, _repo: &RepoRef, _commit: &Sha) -> Option<String> {
        None
    }

    /// Returns what the credential may not do in a repository, with or without webhooks, one phrase each. Asked by requests with an
    /// empty body: the forge refuses them before or after it looks at the permission, and changes nothing.
    async fn refused_scopes(&self, _repo: &RepoRef, _webhooks: bool) -> ForgeResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Returns what is wrong with the App's permissions, events and webhook (to `hook_url`), one phrase each; `None` without an App.
    async fn app_problems(&self, _hook_url: Option<&str>) -> ForgeResult<Option<Vec<String>>> {
        Ok(None)
    }
    /// Returns what is wrong with the App's installation on a repository, one phrase each.
    async fn installation_problems(&self, _repo: &RepoRef) -> ForgeResult<Vec<String>> {
        Ok(Vec::new())
    }
    /// Returns the rules of a repository that may refuse a push to a branch, whether or not it exists; the bot may be exempt.
    async fn push_rules(&self, _repo: &RepoRef, _branch: &str) -> ForgeResult<Vec<PushRule>> {
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
    /// Merging by the forge. Without it, people merge.
    fn auto_merge(&self) -> Option<&dyn AutoMerge> {
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
    /// Uploaded files. Without them, agents get no images.
    fn attachments(&self) -> Option<&dyn Attachments> {
        None
    }
    /// Reading files without a clone. Without it, `check` does not examine the workflows of CI.
    fn files(&self) -> Option<&dyn RepositoryFiles> {
        None
    }
    /// Repositories of the bot's own. Without them, a trial needs a repository that exists.
    fn own_repositories(&self) -> Option<&dyn OwnRepositories> {
        None
    }
    /// Login of people. Without it, nobody can log in to the dashboard with an account of this forge.
    fn login(&self) -> Option<&dyn Login> {
        None
    }
}
