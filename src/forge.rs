//! What a forge can do for us: one trait, two adapters, one retry layer, and errors by what the engine does about them.

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
use crate::domain::trust::permit::TeamRef;

/// What the engine does about a failure. Nothing else of an error is branched on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgeErrorKind {
    /// The server or the network failed; try again, not before `after_ms` from now where given. Whether the call took
    /// effect may be unknown (`ambiguous`): then it must be looked up by its natural key before it is sent again.
    Transient { after_ms: Option<i64>, ambiguous: bool },
    /// The forge asked for a pause of `after_ms`.
    RateLimited { after_ms: i64 },
    /// The credential is not (or no longer) good.
    Unauthorized,
    /// Not permitted, by permission or by policy; the same call will be refused again.
    Denied,
    /// No such thing (any more).
    NotFound,
    /// The state of things forbids it (it exists already, it was changed meanwhile, it is locked).
    Conflict,
    /// The forge refused what we sent, or we do not understand what it answered.
    Bug,
}

/// A call to a forge that failed: what was tried, on what, and what came back.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {detail}")]
pub struct ForgeError {
    /// What the engine does about it.
    pub kind: ForgeErrorKind,
    /// What was tried, on what ("create a comment on acme/app#7").
    pub what: String,
    /// What the forge answered, or what failed; holds no secret.
    pub detail: String,
}

/// Result of a call to a forge.
pub type ForgeResult<T> = Result<T, ForgeError>;

/// Facts about a server, probed once and asked instead of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Product and version for people ("Gitea 1.25.4").
    pub product: String,
    /// Label events say which label; otherwise sets must be compared.
    pub label_deltas: bool,
    /// Pull requests have a draft state (otherwise a `WIP:` title).
    pub drafts: bool,
    /// Comments can be minimised.
    pub minimize: bool,
    /// The edit history of an issue can be read.
    pub edit_history: bool,
    /// Redelivery keeps the delivery's id.
    pub stable_delivery_id: bool,
    /// The service creates webhooks itself, one a repository (otherwise the App has one).
    pub repository_hooks: bool,
    /// Fetches may leave blobs out (`--filter=blob:none`).
    pub partial_clone: bool,
}

/// What an account may do in a repository, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Nothing beyond the public.
    None,
    /// Read.
    Read,
    /// Label and close, not push.
    Triage,
    /// Push.
    Write,
    /// Push and manage some settings.
    Maintain,
    /// Everything, owner included.
    Admin,
}

/// A repository's facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Which one.
    pub repo: RepoRef,
    /// Branch that new work starts from.
    pub default_branch: String,
    /// Whether not everybody can read it.
    pub private: bool,
    /// Whether it takes no changes any more.
    pub archived: bool,
    /// Whether it has no commit yet.
    pub empty: bool,
}

/// A label to be made where it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSpec {
    /// Name.
    pub name: String,
    /// Six hexadecimal digits, no `#`.
    pub color: String,
    /// One sentence, at most 100 characters.
    pub description: String,
}

/// Reactions that the bot sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reaction {
    /// 👀 seen.
    Eyes,
    /// 🚀 done.
    Rocket,
    /// 😕 something is wrong with it.
    Confused,
    /// 👎 not allowed.
    ThumbsDown,
}

/// An issue to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewIssue {
    /// Title.
    pub title: String,
    /// Body.
    pub body: String,
    /// Names of labels that exist.
    pub labels: Vec<String>,
}

/// A pull request to be opened, always from a branch of the same repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPull {
    /// Title, without a draft prefix.
    pub title: String,
    /// Body.
    pub body: String,
    /// Branch it comes from.
    pub head: String,
    /// Branch it goes to.
    pub base: String,
    /// Whether it starts as a draft.
    pub draft: bool,
}

/// A review as read back.
#[derive(Debug, Clone, PartialEq)]
pub struct PullReview {
    /// Its id.
    pub id: i64,
    /// Verdict.
    pub verdict: ReviewVerdict,
    /// Text.
    pub body: String,
    /// Who; `None` for a deleted account.
    pub author: Option<User>,
    /// When.
    pub submitted_at: Timestamp,
}

/// A remark on a line.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewComment {
    /// The remark.
    pub comment: CommentSnapshot,
    /// File.
    pub path: String,
    /// Line in the new file, where the forge says.
    pub line: Option<u64>,
}

/// What CI says of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CiState {
    /// Checks and statuses that ended well.
    pub passed: u32,
    /// Not ended yet.
    pub pending: u32,
    /// Ended badly.
    pub failed: Vec<CiFailure>,
}

/// A failed check, status or job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiFailure {
    /// Name or context.
    pub name: String,
    /// Page for people.
    pub url: String,
    /// What the forge can say about it: the log of the failed step, or a summary; trimmed to its last 32 KiB.
    pub log: String,
}

/// A label that is on an issue, as the forge's own record has it.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelAssignment {
    /// Who set it.
    pub by: User,
    /// When.
    pub at: Timestamp,
    /// When the issue's title was last changed, where it was.
    pub renamed_at: Option<Timestamp>,
}

/// An earlier text of an issue.
#[derive(Debug, Clone, PartialEq)]
pub struct IssueEdit {
    /// When.
    pub at: Timestamp,
    /// Who; `None` where the forge does not say.
    pub editor: Option<User>,
}

/// A branch as the forge has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Its newest commit.
    pub sha: Sha,
    /// Whether the forge protects it from pushes.
    pub protected: bool,
}

/// A file of a repository; what is no text in it is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// From the root of the repository.
    pub path: String,
    /// What is in it.
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

/// How git reaches a repository. The credential is valid for minutes at least; ask again for each use.
#[derive(Debug, Clone)]
pub struct GitAccess {
    /// Address without credentials.
    pub url: String,
    /// User name and password or token.
    pub credential: Option<(String, SecretString)>,
}

/// What a delivery turned out to be, once its signature held.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedDelivery {
    /// Something we act on.
    Event(Box<ForgeEvent>),
    /// Understood and of no interest; why.
    Ignored(String),
    /// Not understood; what was wrong, for the operator.
    Malformed(String),
}

/// The number that an issue's or pull request's address ends in.
fn number_at_end(address: &str) -> Option<Number> {
    address.rsplit('/').next()?.parse().ok().map(Number)
}

/// One configured server and our account on it. Calls may take long and are safe to drop.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Its configured name.
    fn name(&self) -> &ForgeName;
    /// Reads a delivery that has been verified; pure. `event` is the forge's event header, which is unsigned: the shape
    /// of the body decides what it is.
    fn parse(&self, event: &str, body: &[u8]) -> ParsedDelivery;
    /// Facts about the server; asked once, then remembered.
    async fn capabilities(&self) -> ForgeResult<Capabilities>;
    /// Who we are there.
    async fn own_account(&self) -> ForgeResult<User>;
    /// All repositories that our credential reaches.
    async fn repositories(&self) -> ForgeResult<Vec<Repository>>;
    /// One repository by `owner/name`; errors with `NotFound` when its numeric id is not that of `repo`.
    async fn repository(&self, repo: &RepoRef) -> ForgeResult<Repository>;
    /// What an account may do, asked now. An account that is no collaborator is `None` or `Read`, not an error.
    async fn permission(&self, repo: &RepoRef, user: &User) -> ForgeResult<Permission>;
    /// Whether an account is a member of a team now, whose organisation need not be the repository's. A team that is not
    /// there has no members.
    async fn in_team(&self, repo: &RepoRef, team: &TeamRef, user: &User) -> ForgeResult<bool>;
    /// Whether our credential can tell who is in a team, for commands given in this repository.
    async fn sees_team(&self, repo: &RepoRef, team: &TeamRef) -> ForgeResult<TeamVisibility>;
    /// Files right in a folder of the default branch, sorted by path, at most 50 and none above 256 KiB; none where there
    /// is no such folder.
    async fn files(&self, repo: &RepoRef, folder: &str) -> ForgeResult<Vec<TextFile>>;
    /// One issue or pull request's issue side.
    async fn issue(&self, repo: &RepoRef, number: Number) -> ForgeResult<IssueSnapshot>;
    /// Open issues (no pull requests) that bear a label.
    async fn issues_labelled(&self, repo: &RepoRef, label: &str) -> ForgeResult<Vec<IssueSnapshot>>;
    /// Issues and pull requests of any state that changed since a moment.
    async fn changed(&self, repo: &RepoRef, since: Timestamp) -> ForgeResult<Vec<IssueSnapshot>>;
    /// Edits of an issue's text, oldest first; empty where the forge keeps none.
    async fn issue_edits(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<IssueEdit>>;
    /// Who set a label that is on an issue now; `None` where the forge does not say.
    async fn labelled(&self, _repo: &RepoRef, _number: Number, _label: &str) -> ForgeResult<Option<LabelAssignment>> {
        Ok(None)
    }
    /// Opens an issue.
    async fn create_issue(&self, repo: &RepoRef, issue: &NewIssue) -> ForgeResult<IssueSnapshot>;
    /// Opens or closes an issue.
    async fn set_issue_open(&self, repo: &RepoRef, number: Number, open: bool) -> ForgeResult<()>;
    /// Makes the labels that are missing; leaves those that exist as they are.
    async fn ensure_labels(&self, repo: &RepoRef, labels: &[LabelSpec]) -> ForgeResult<()>;
    /// Adds labels to an issue; those it has already are no error.
    async fn add_labels(&self, repo: &RepoRef, number: Number, labels: &[String]) -> ForgeResult<()>;
    /// Takes a label off an issue; one it does not have is no error.
    async fn remove_label(&self, repo: &RepoRef, number: Number, label: &str) -> ForgeResult<()>;
    /// Comments of an issue or pull request's conversation, oldest first, all pages; changed since a moment where given.
    async fn comments(
        &self,
        repo: &RepoRef,
        number: Number,
        since: Option<Timestamp>,
    ) -> ForgeResult<Vec<CommentSnapshot>>;
    /// Comments of all conversations of a repository that were written or changed since a moment, each with the number
    /// of its issue or pull request.
    async fn comments_anywhere(&self, repo: &RepoRef, since: Timestamp) -> ForgeResult<Vec<(Number, CommentSnapshot)>>;
    /// Writes a comment.
    async fn create_comment(&self, repo: &RepoRef, number: Number, body: &str) -> ForgeResult<CommentSnapshot>;
    /// Replaces a comment's text.
    async fn edit_comment(&self, repo: &RepoRef, id: CommentId, body: &str) -> ForgeResult<()>;
    /// Deletes a comment; one that is gone is no error.
    async fn delete_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()>;
    /// Folds a comment away as outdated, where the forge can; otherwise does nothing.
    async fn minimize_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()>;
    /// Sets a reaction on a comment of a conversation; one that is there is no error.
    async fn react(&self, repo: &RepoRef, id: CommentId, reaction: Reaction) -> ForgeResult<()>;
    /// One pull request.
    async fn pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<PullSnapshot>;
    /// The newest pull request from a branch of this repository, of any state.
    async fn find_pull(&self, repo: &RepoRef, head: &str) -> ForgeResult<Option<PullSnapshot>>;
    /// Opens a pull request.
    async fn create_pull(&self, repo: &RepoRef, pull: &NewPull) -> ForgeResult<PullSnapshot>;
    /// Replaces title and body; keeps the draft state.
    async fn update_pull(&self, repo: &RepoRef, number: Number, title: &str, body: &str) -> ForgeResult<()>;
    /// Takes a pull request out of draft; one that is ready is no error.
    async fn set_pull_ready(&self, repo: &RepoRef, number: Number) -> ForgeResult<()>;
    /// Asks people for review; people who cannot be asked are left out.
    async fn request_reviewers(&self, repo: &RepoRef, number: Number, logins: &[String]) -> ForgeResult<()>;
    /// Reviews, oldest first.
    async fn reviews(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<PullReview>>;
    /// Remarks on lines, oldest first.
    async fn review_remarks(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<ReviewComment>>;
    /// What CI says of a commit.
    async fn ci(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<CiState>;
    /// A branch; `None` where there is none.
    async fn branch(&self, repo: &RepoRef, name: &str) -> ForgeResult<Option<Branch>>;
    /// How git reaches the repository now; `push` asks for a credential that may push.
    async fn git_access(&self, repo: &RepoRef, push: bool) -> ForgeResult<GitAccess>;
    /// Creates or updates the webhook of a repository, where the forge has one a repository. Returns its id.
    async fn ensure_webhook(&self, repo: &RepoRef, url: &str, secret: &SecretString) -> ForgeResult<Option<i64>>;
    /// Asks the forge to send a test delivery to a webhook.
    async fn test_webhook(&self, repo: &RepoRef, id: i64) -> ForgeResult<()>;
}
