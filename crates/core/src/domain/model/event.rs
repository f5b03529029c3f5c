//! Forge events in a neutral form, to which all forges' webhooks are mapped.

use serde::{Deserialize, Serialize};

pub use ralph_types::ids::ReviewVerdict;

use crate::domain::model::ids::{CommentId, Number, RepoRef, Sha, Timestamp, User};

/// Snapshot of an issue, or of a pull request's issue part, from the forge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IssueSnapshot {
    /// Number of the issue.
    pub number: Number,
    /// Title, not sanitized.
    pub title: String,
    /// Body in Markdown, not sanitized; empty if there is none.
    pub body: String,
    /// HTML rendered from the body by the forge; `None` if it must be requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Author; `None` if the account was deleted.
    pub author: Option<User>,
    /// Names of the labels.
    pub labels: Vec<String>,
    /// Whether the issue is open.
    pub open: bool,
    /// Whether this is a pull request.
    pub is_pull: bool,
    /// Whether the conversation is locked.
    pub locked: bool,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Address of the page.
    pub url: String,
}

impl IssueSnapshot {
    /// Whether the issue has a label with this name, ignoring case.
    pub fn has_label(&self, name: &str) -> bool {
        names_label(&self.labels, name)
    }

    /// Whether title and body equal the other snapshot's. Ignores line breaks and surrounding white space.
    pub fn has_text_of(&self, other: &Self) -> bool {
        let same = |a: &str, b: &str| a.trim().lines().eq(b.trim().lines());
        same(&self.title, &other.title) && same(&self.body, &other.body)
    }
}

/// Whether two names belong to the same label. Forges preserve the case of label names but compare them without case.
pub fn is_same_label(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Whether a list of labels contains a name, ignoring case.
pub fn names_label(labels: &[String], name: &str) -> bool {
    labels.iter().any(|label| is_same_label(label, name))
}

/// Snapshot of a pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullSnapshot {
    /// Number of the pull request.
    pub number: Number,
    /// Source branch.
    pub head_branch: String,
    /// Numeric id of the source repository; `None` if it was deleted.
    pub head_repo: Option<crate::domain::model::ids::RepoId>,
    /// Name of the source repository as `owner/name`; empty if it was deleted.
    #[serde(default)]
    pub head_repo_name: String,
    /// Whether people with write access to the pull request's repository may push to the source branch in a fork.
    #[serde(default)]
    pub maintainers_may_push: bool,
    /// Newest commit of the source branch.
    pub head_sha: Sha,
    /// Target branch.
    pub base_branch: String,
    /// Whether the pull request is open.
    pub open: bool,
    /// Whether the pull request was merged.
    pub merged: bool,
    /// Whether the pull request is a draft. On a forge without drafts, whether its title starts with `WIP:`.
    pub draft: bool,
    /// Whether the pull request can be merged without conflicts; `None` while the forge computes this.
    pub mergeable: Option<bool>,
    /// Address of the page.
    pub url: String,
}

/// Snapshot of a comment on an issue or pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommentSnapshot {
    /// Id of the comment.
    pub id: CommentId,
    /// Body, Markdown, not sanitized.
    pub body: String,
    /// HTML rendered from the body by the forge; `None` if it must be requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Author; `None` if the account was deleted.
    pub author: Option<User>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Whether the comment may have been edited since it was created.
    pub edited: bool,
    /// Address of the page.
    pub url: String,
}

/// Forge event. `sender` is the account that caused the event, according to the signed payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ForgeEvent {
    /// One label was added (GitHub).
    Labeled { repo: RepoRef, issue: IssueSnapshot, label: String, sender: User },
    /// One label was removed (GitHub).
    Unlabeled { repo: RepoRef, issue: IssueSnapshot, label: String, sender: User },
    /// The set of labels may have changed. The payload lacks the previous set (Gitea, Forgejo).
    LabelSet { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// An issue was opened, possibly with labels from a template. This event alone starts no loop.
    IssueOpened { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// Title or body were edited.
    IssueEdited { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// The issue was closed.
    IssueClosed { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// The issue was reopened.
    IssueReopened { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// The issue was deleted, transferred, or converted to a discussion.
    IssueGone { repo: RepoRef, number: Number, sender: User },
    /// A comment was added to an issue or to a pull request's conversation.
    CommentCreated { repo: RepoRef, issue: IssueSnapshot, comment: CommentSnapshot, sender: User },
    /// A pull request was opened, closed, merged, updated or marked ready.
    PullChanged { repo: RepoRef, pull: PullSnapshot, sender: User },
    /// A review was submitted. `id` is `None` on Gitea.
    ReviewSubmitted {
        repo: RepoRef,
        pull: PullSnapshot,
        id: Option<i64>,
        verdict: ReviewVerdict,
        body: String,
        sender: User,
        at: Timestamp,
    },
    /// A review comment was added to a line of a pull request.
    ReviewCommented { repo: RepoRef, pull: PullSnapshot, comment: CommentSnapshot, path: Option<String>, sender: User },
    /// A check, status or workflow of a commit changed. The event has no details; the service reads them from the forge.
    ChecksChanged { repo: RepoRef, sha: Sha, branch: Option<String> },
    /// A branch was pushed or deleted.
    Pushed { repo: RepoRef, branch: String, after: Option<Sha>, sender: User },
    /// A repository was renamed, transferred, archived, deleted, or its visibility changed.
    RepositoryChanged { repo: RepoRef, action: String },
    /// The App was installed, removed or suspended, or its repositories changed.
    InstallationChanged { action: String },
}

/// Expands to the repository of an event, as a reference with the matched event's mutability.
macro_rules! repo_of {
    ($event:expr) => {
        match $event {
            ForgeEvent::Labeled { repo, .. }
            | ForgeEvent::Unlabeled { repo, .. }
            | ForgeEvent::LabelSet { repo, .. }
            | ForgeEvent::IssueOpened { repo, .. }
            | ForgeEvent::IssueEdited { repo, .. }
            | ForgeEvent::IssueClosed { repo, .. }
            | ForgeEvent::IssueReopened { repo, .. }
            | ForgeEvent::IssueGone { repo, .. }
            | ForgeEvent::CommentCreated { repo, .. }
            | ForgeEvent::PullChanged { repo, .. }
            | ForgeEvent::ReviewSubmitted { repo, .. }
            | ForgeEvent::ReviewCommented { repo, .. }
            | ForgeEvent::ChecksChanged { repo, .. }
            | ForgeEvent::Pushed { repo, .. }
            | ForgeEvent::RepositoryChanged { repo, .. } => Some(repo),
            ForgeEvent::InstallationChanged { .. } => None,
        }
    };
}

impl ForgeEvent {
    /// Returns the event's repository; `None` for installation events.
    pub fn repo(&self) -> Option<&RepoRef> {
        repo_of!(self)
    }

    /// Replaces the event's repository. Does nothing for installation events.
    pub fn set_repo(&mut self, confirmed: RepoRef) {
        if let Some(repo) = repo_of!(self) {
            *repo = confirmed;
        }
    }

    /// Returns the event's issue or pull request number; `None` for other events.
    pub fn number(&self) -> Option<Number> {
        match self {
            Self::Labeled { issue, .. }
            | Self::Unlabeled { issue, .. }
            | Self::LabelSet { issue, .. }
            | Self::IssueOpened { issue, .. }
            | Self::IssueEdited { issue, .. }
            | Self::IssueClosed { issue, .. }
            | Self::IssueReopened { issue, .. }
            | Self::CommentCreated { issue, .. } => Some(issue.number),
            Self::IssueGone { number, .. } => Some(*number),
            Self::PullChanged { pull, .. }
            | Self::ReviewSubmitted { pull, .. }
            | Self::ReviewCommented { pull, .. } => Some(pull.number),
            Self::ChecksChanged { .. }
            | Self::Pushed { .. }
            | Self::RepositoryChanged { .. }
            | Self::InstallationChanged { .. } => None,
        }
    }

    /// Returns the account that caused the event; `None` if the payload does not contain it.
    pub fn sender(&self) -> Option<&User> {
        match self {
            Self::Labeled { sender, .. }
            | Self::Unlabeled { sender, .. }
            | Self::LabelSet { sender, .. }
            | Self::IssueOpened { sender, .. }
            | Self::IssueEdited { sender, .. }
            | Self::IssueClosed { sender, .. }
            | Self::IssueReopened { sender, .. }
            | Self::IssueGone { sender, .. }
            | Self::CommentCreated { sender, .. }
            | Self::PullChanged { sender, .. }
            | Self::ReviewSubmitted { sender, .. }
            | Self::ReviewCommented { sender, .. }
            | Self::Pushed { sender, .. } => Some(sender),
            Self::ChecksChanged { .. } | Self::RepositoryChanged { .. } | Self::InstallationChanged { .. } => None,
        }
    }
}
