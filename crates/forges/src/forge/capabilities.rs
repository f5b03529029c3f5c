//! Optional capabilities of forges.

use std::time::Duration;

use async_trait::async_trait;
use ralph_types::failure::Failure;
use secrecy::SecretString;
use url::Url;

use super::login::{LoginAccount, LoginAddresses, LoginClient};
use super::{
    AttemptedDelivery, CiState, CommitStatus, ForgeResult, InterruptedStatus, IssueEdit, LabelAssignment, LabelChange,
    ParsedDelivery, PullReview, Reaction, Repository, ReviewComment, TeamVisibility, TextFile,
};
use crate::domain::loops::MergeAnswer;
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot};
use crate::domain::model::ids::{CommentId, Number, RepoRef, Sha, Timestamp, User};
use crate::domain::model::image::ImageHeader;
use crate::domain::trust::images::AttachmentAddresses;
use crate::domain::trust::outbound::{BodyText, Outbound};
use crate::domain::trust::permit::TeamRef;

/// Declares [`Capabilities`]: one row for each capability.
macro_rules! capability_rows {
    ($($(#[$doc:meta])+ $name:ident: $Capability:ident,)+) => {
        /// Optional capabilities of a forge, `None` unless the forge overrides the accessor.
        pub trait Capabilities {
            $($(#[$doc])+
            fn $name(&self) -> Option<&dyn $Capability> {
                None
            })+
        }
    };
}

capability_rows! {
    /// Returns the webhooks capability. Without it, events are found by polling only.
    webhooks: Webhooks,
    /// Returns the polling capability. Without it, changes that no delivery reports are not found.
    polling: Polling,
    /// Returns the teams capability. Without it, `permissions.teams` permits no account.
    teams: Teams,
    /// Returns the reviews capability. Without it, no reviewers are requested and no missed reviews are found.
    reviews: Reviews,
    /// Returns the draft capability. Without it, pull requests are created as ready for review.
    drafts: Drafts,
    /// Returns the capability to merge pull requests automatically. Without it, people merge.
    auto_merge: AutoMerge,
    /// Returns the capability to read CI results. Without it, CI failures are not reported to the agent.
    ci: Ci,
    /// Returns the capability to set commit statuses. Without it, branch protection cannot require verified work.
    commit_statuses: CommitStatuses,
    /// Returns the capability to read label history. Without it, a missed label needs a confirmation.
    history: IssueHistory,
    /// Returns the reactions capability. Without it, commands are acknowledged by comments only.
    reactions: Reactions,
    /// Returns the capability to minimize comments. Without it, the text of outdated comments is replaced with one
    /// line.
    minimizing: Minimizing,
    /// Returns the capability to download uploaded files. Without it, agents receive no images.
    attachments: Attachments,
    /// Returns the capability to read files without a clone. Without it, `ralph-bot check` does not examine CI
    /// workflows.
    files: RepositoryFiles,
    /// Returns the capability to create repositories. Without it, a trial needs an existing repository.
    own_repositories: OwnRepositories,
    /// Returns the login capability. Without it, accounts of this forge cannot log in to the dashboard.
    login: Login,
}

/// Queries for single objects that deliveries report. A delivery's signature proves only that its sender knows the
/// secret, so each object is queried before the delivery takes effect.
#[async_trait]
pub trait Confirmations: Send + Sync {
    /// Returns the last change of an issue's label; `None` if the forge recorded none. `near` is the reported time. It
    /// can make the search faster but never changes the result.
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
    /// Whether a comment that was delivered as part of a conversation is a comment on a line of a pull request;
    /// deliveries of some forges do not distinguish them.
    async fn is_review_comment(&self, _repo: &RepoRef, _id: CommentId) -> ForgeResult<bool> {
        Ok(false)
    }
    /// Whether a repository belongs to an App's installation; `true` if the credential does not belong to an App.
    async fn is_in_installation(&self, _repo: &RepoRef, _installation: u64) -> ForgeResult<bool> {
        Ok(true)
    }
}

/// Deliveries and management of webhooks.
#[async_trait]
pub trait Webhooks: Confirmations {
    /// Parses a verified delivery without I/O. `event` is the forge's event header, which is not signed. The shape of
    /// the body determines the event; a header of another event makes the delivery invalid.
    fn parse(&self, event: &str, body: &[u8]) -> ParsedDelivery;
    /// Returns the installation that a delivery names; `None` if it names none or the credential does not belong to an App.
    fn named_installation(&self, _body: &[u8]) -> Option<u64> {
        None
    }
    /// Creates or updates the webhook of a repository and returns its id; `None` if one webhook serves all repositories.
    async fn ensure_webhook(&self, repo: &RepoRef, url: &str, secret: &SecretString) -> ForgeResult<Option<i64>>;
    /// Returns the id of the webhook of a repository that sends to `url`, if it is the only one and is correct. Its
    /// secret cannot be checked, because forges do not report it. `None` if there is no such webhook or the forge does
    /// not report it.
    async fn find_webhook(&self, _repo: &RepoRef, _url: &str) -> ForgeResult<Option<i64>> {
        Ok(None)
    }
    /// Returns the problems of a repository's webhooks that send to `url`, one phrase each; `None` if one webhook
    /// serves all repositories.
    async fn webhook_problems(&self, _repo: &RepoRef, _url: &str) -> ForgeResult<Option<Vec<String>>> {
        Ok(None)
    }
    /// Whether changes of commit statuses are delivered. If not, CI is only checked at intervals.
    async fn delivers_statuses(&self) -> ForgeResult<bool> {
        Ok(true)
    }
    /// Returns the delivery attempts since a time; `None` unless one webhook serves all repositories.
    async fn attempted_deliveries(&self, _since: Timestamp) -> ForgeResult<Option<Vec<AttemptedDelivery>>> {
        Ok(None)
    }
    /// Asks the forge to repeat a delivery attempt under the same delivery id.
    async fn redeliver(&self, _attempt: i64) -> ForgeResult<()> {
        Ok(())
    }
    /// Asks the forge to send a test delivery to a webhook.
    async fn test_webhook(&self, repo: &RepoRef, id: i64) -> ForgeResult<()>;
}

/// Lists of recent changes, which show events whose deliveries were lost.
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
    /// Whether an account is currently a member of a team, which may belong to another organization than the repository's.
    /// `false` for an unknown team.
    async fn is_team_member(&self, repo: &RepoRef, team: &TeamRef, user: &User) -> ForgeResult<bool>;
    /// Returns whether the credential can read the members of a team, for commands in this repository.
    async fn team_visibility(&self, repo: &RepoRef, team: &TeamRef) -> ForgeResult<TeamVisibility>;
    /// Returns the teams with write access to a repository whose members the credential cannot read. This matters on
    /// forges whose [`Forge::permission`](super::Forge::permission) ignores the permissions of such teams.
    async fn hidden_teams(&self, _repo: &RepoRef) -> ForgeResult<Vec<TeamRef>> {
        Ok(Vec::new())
    }
}

/// Reviews of pull requests.
#[async_trait]
pub trait Reviews: Send + Sync {
    /// Requests reviews by accounts (login) and teams (`organization/team`). Those that cannot review are skipped.
    async fn request_reviewers(&self, repo: &RepoRef, number: Number, reviewers: &[String]) -> ForgeResult<()>;
    /// Returns the reviews, oldest first.
    async fn submitted_reviews(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<PullReview>>;
    /// Returns the comments on lines, oldest first.
    async fn review_comments(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<ReviewComment>>;
    /// Replies to a comment on a line in its thread and returns the reply's id; `None` if the forge does not support
    /// replies.
    async fn answer_remark(
        &self,
        _repo: &RepoRef,
        _number: Number,
        _remark: CommentId,
        _body: &Outbound<BodyText>,
    ) -> ForgeResult<Option<CommentId>> {
        Ok(None)
    }
    /// Returns the comments on lines whose threads are resolved.
    async fn resolved_remarks(&self, _repo: &RepoRef, _number: Number) -> ForgeResult<Vec<CommentId>> {
        Ok(Vec::new())
    }
    /// Resolves the thread of a comment on a line; does nothing if the forge does not support it.
    async fn resolve_remark(&self, _repo: &RepoRef, _number: Number, _remark: CommentId) -> ForgeResult<()> {
        Ok(())
    }
}

/// Draft pull requests.
#[async_trait]
pub trait Drafts: Send + Sync {
    /// Marks a pull request as ready for review; does nothing if it is ready.
    async fn set_pull_ready(&self, repo: &RepoRef, number: Number) -> ForgeResult<()>;
    /// Converts a pull request to a draft; does nothing if it is a draft.
    async fn set_pull_draft(&self, repo: &RepoRef, number: Number) -> ForgeResult<()>;
}

/// Merging of pull requests by the forge as soon as its own rules are satisfied.
#[async_trait]
pub trait AutoMerge: Send + Sync {
    /// Asks the forge to merge a pull request with the head commit `head` as soon as reviews, checks and branch
    /// protection allow it, which may be immediately. Rules are not bypassed. Returns `Accepted` if the forge was
    /// already asked.
    async fn merge_when_ready(&self, repo: &RepoRef, number: Number, head: &Sha) -> ForgeResult<MergeAnswer>;
    /// Returns the reason why the forge no longer merges a pull request after it accepted the request to merge: a person disabled
    /// the merge, or the pull request left the merge queue. `None` if the forge will merge it, has merged it, or does not report
    /// this.
    async fn left_merge(&self, repo: &RepoRef, number: Number) -> ForgeResult<Option<String>>;
    /// Cancels the request to merge; does nothing if there is none.
    async fn withdraw_merge(&self, repo: &RepoRef, number: Number) -> ForgeResult<()>;
}

/// CI results.
#[async_trait]
pub trait Ci: Send + Sync {
    /// Returns the CI results of a commit.
    async fn ci_results(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<CiState>;
    /// Returns the paths of the workflows that started on a commit; `None` if the forge does not report them.
    async fn started_workflows(&self, _repo: &RepoRef, _sha: &Sha) -> ForgeResult<Option<Vec<String>>> {
        Ok(None)
    }
}

/// Statuses of commits.
#[async_trait]
pub trait CommitStatuses: Send + Sync {
    /// Sets the status [`VERIFIED_STATUS`](super::VERIFIED_STATUS) of a commit and returns its id. `id` is the id of
    /// the status to update; forges that keep all statuses add a new one instead.
    async fn set_commit_status(&self, repo: &RepoRef, status: &CommitStatus, id: Option<i64>) -> ForgeResult<i64>;
    /// Returns the state of the commit after an interrupted request to set a status.
    async fn interrupted_status(&self, repo: &RepoRef, status: &CommitStatus) -> ForgeResult<InterruptedStatus>;
}

/// Times of the recorded changes of an issue, except edits of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordedChanges {
    /// Time of the last change of the title; `None` if it was never changed.
    pub renamed_at: Option<Timestamp>,
    /// Time of the newest change of any kind except edits of the text; `None` if there is none, or if the forge
    /// records edits.
    pub last_recorded_at: Option<Timestamp>,
}

/// History of an issue's labels, and of its text if the forge records edits.
#[async_trait]
pub trait IssueHistory: Send + Sync {
    /// Whether the forge records edits of the text. If not, only the time of the last change indicates a possible
    /// edit.
    fn records_edits(&self) -> bool;
    /// Returns the recorded edits of an issue's text, oldest first.
    async fn issue_edits(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<IssueEdit>>;
    /// Returns the times of the recorded changes of an issue, except edits of its text.
    async fn recorded_changes(&self, repo: &RepoRef, number: Number) -> ForgeResult<RecordedChanges>;
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
    /// Adds a reaction to a comment; does nothing if the reaction exists.
    async fn react(&self, repo: &RepoRef, id: CommentId, reaction: Reaction) -> ForgeResult<()>;
    /// Adds a reaction to a comment on a line of a pull request; does nothing if the reaction exists.
    async fn react_to_remark(&self, repo: &RepoRef, id: CommentId, reaction: Reaction) -> ForgeResult<()> {
        self.react(repo, id, reaction).await
    }
}

/// Minimizing of comments.
#[async_trait]
pub trait Minimizing: Send + Sync {
    /// Minimizes a comment as outdated.
    async fn minimize_comment(&self, repo: &RepoRef, id: CommentId) -> ForgeResult<()>;
}

/// File that a person uploaded to an issue or comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Identifier, as [`AttachmentAddresses`] extracts it from texts.
    pub id: String,
    /// Download address from the forge, which may be signed and valid only for minutes.
    pub address: Url,
    /// Name of the file if the forge shows it beside the text; `None` if it appears only within the text.
    pub shown_as: Option<String>,
}

/// Text of an issue, pull request or comment with its uploaded files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedText {
    /// Whether the text is a comment.
    pub is_comment: bool,
    /// Author; `None` if the account was deleted.
    pub author: Option<User>,
    /// Markdown, not sanitized.
    pub body: String,
    /// HTML that the forge rendered from the body; `None` if the response lacks it, so that another request must fetch it.
    pub html: Option<String>,
    /// Uploaded files.
    pub attachments: Vec<Attachment>,
}

/// Limits of the download of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadLimits {
    /// Maximum size, in bytes.
    pub max_bytes: u64,
    /// Reason to show for a file that exceeds the limit, for example "it is larger than 5 MiB".
    pub too_large: String,
    /// Maximum width and maximum height, in pixels.
    pub max_pixels: u32,
    /// Maximum time.
    pub timeout: Duration,
    /// Further servers of the forge, as `host` or `host:port`.
    pub hosts: Vec<String>,
}

/// Downloaded image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedImage {
    /// Format and size.
    pub header: ImageHeader,
    /// Content of the image.
    pub bytes: Vec<u8>,
}

/// Reason why an image was not received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFailure {
    /// Reason for people, as the end of a sentence; contains no secrets.
    pub why: String,
    /// Whether another attempt may succeed.
    pub is_temporary: bool,
}

/// Files that people upload to issues and comments.
#[async_trait]
pub trait Attachments: Send + Sync {
    /// Returns the addresses of this forge's attachments.
    fn addresses(&self) -> &AttachmentAddresses;
    /// Returns the text of an issue or pull request, then its comments, oldest first, each with its uploaded files.
    async fn attached(&self, repo: &RepoRef, number: Number) -> ForgeResult<Vec<AttachedText>>;
    /// Returns the uploaded files of the comments on lines of a pull request.
    async fn attached_to_remarks(&self, repo: &RepoRef, pull: Number) -> ForgeResult<Vec<Attachment>>;
    /// Downloads an image from an address of [`attached`](Self::attached) or
    /// [`attached_to_remarks`](Self::attached_to_remarks).
    ///
    /// # Errors
    /// The reason why the image is not used.
    async fn image(&self, repo: &RepoRef, address: &Url, limits: &DownloadLimits)
    -> Result<FetchedImage, ImageFailure>;
}

/// Repositories that belong to the service's account.
#[async_trait]
pub trait OwnRepositories: Send + Sync {
    /// Creates a private repository with a first commit.
    async fn create_private_repository(&self, name: &str) -> ForgeResult<Repository>;
    /// Deletes a repository; without effect if it does not exist.
    async fn delete_repository(&self, repo: &RepoRef) -> ForgeResult<()>;
}

/// Login of people with their accounts, by OAuth 2.0.
#[async_trait]
pub trait Login: Send + Sync {
    /// Returns the addresses and the scope of logins; never a scope that allows changes.
    fn login_addresses(&self) -> LoginAddresses;
    /// Parses the account in the response of [`user`](LoginAddresses::user).
    ///
    /// # Errors
    /// A phrase, if the response contains no account.
    fn login_account(&self, answer: &[u8]) -> Result<LoginAccount, Failure>;
    /// Returns the id of the login client with this name and redirect address; `None` if there is none, or if the
    /// forge does not report it.
    async fn find_login_client(&self, _name: &str, _redirect: &Url) -> ForgeResult<Option<String>> {
        Ok(None)
    }
    /// Creates the login client as an application of the service's account, or creates a new secret for an existing
    /// one with this name. `None` if this is only possible on the forge's web pages.
    async fn create_login_client(&self, _name: &str, _redirect: &Url) -> ForgeResult<Option<LoginClient>> {
        Ok(None)
    }
}

/// Predicate that selects paths of files.
pub type PathFilter = fn(&str) -> bool;

/// Files of a repository.
#[async_trait]
pub trait RepositoryFiles: Send + Sync {
    /// Returns the files directly in a folder of the default branch (an empty path is the root) whose paths are
    /// selected, sorted by path. Returns at most 50 files and none above 256 KiB; empty if the folder does not exist.
    async fn folder_files(&self, repo: &RepoRef, folder: &str, wanted: PathFilter) -> ForgeResult<Vec<TextFile>>;
}
