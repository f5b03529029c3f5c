//! Events of forges in a neutral form; the webhooks of all forges are mapped to these.

use serde::{Deserialize, Serialize};

pub use ralph_types::ids::ReviewVerdict;

use crate::domain::model::ids::{CommentId, Number, RepoRef, Sha, Timestamp, User};

/// An issue, or the issue part of a pull request, as stated by the forge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IssueSnapshot {
    /// Number.
    pub number: Number,
    /// Title, not sanitized.
    pub title: String,
    /// Body, Markdown, not sanitized; empty if the forge has none.
    pub body: String,
    /// Author; `None` if the account was deleted.
    pub author: Option<User>,
    /// Names of the labels.
    pub labels: Vec<String>,
    /// Whether it is open.
    pub open: bool,
    /// Whether it is a pull request.
    pub is_pull: bool,
    /// Whether the conversation is locked.
    pub locked: bool,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Address of the page.
    pub url: String,
}

impl IssueSnapshot {
    /// Whether it has a label, by name without case.
    pub fn has_label(&self, name: &str) -> bool {
        names_label(&self.labels, name)
    }

    /// Whether title and body are those of another snapshot; line ends and surrounding white space do not count.
    pub fn has_text_of(&self, other: &Self) -> bool {
        let same = |a: &str, b: &str| a.trim().lines().eq(b.trim().lines());
        same(&self.title, &other.title) && same(&self.body, &other.body)
    }
}

/// Whether two names are those of the same label: forges keep the case, and compare without it.
pub fn is_same_label(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Whether a list of labels has one, by name without case.
pub fn names_label(labels: &[String], name: &str) -> bool {
    labels.iter().any(|label| is_same_label(label, name))
}

/// Pull request, in the parts that the service uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullSnapshot {
    /// Number.
    pub number: Number,
    /// Source branch.
    pub head_branch: String,
    /// Numeric id of the source repository; `None` if it was deleted.
    pub head_repo: Option<crate::domain::model::ids::RepoId>,
    /// Newest commit of the source branch.
    pub head_sha: Sha,
    /// Target branch.
    pub base_branch: String,
    /// Whether it is open.
    pub open: bool,
    /// Whether it was merged.
    pub merged: bool,
    /// Whether it is a draft (`WIP:` in the title if the forge has no drafts).
    pub draft: bool,
    /// Whether it can be merged without conflicts; `None` while the forge does not know.
    pub mergeable: Option<bool>,
    /// Address of the page.
    pub url: String,
}

/// Comment on an issue or pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommentSnapshot {
    /// Identifier.
    pub id: CommentId,
    /// Body, Markdown, not sanitized.
    pub body: String,
    /// Author; `None` if the account was deleted.
    pub author: Option<User>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Whether the text may differ from the one that was first written.
    pub edited: bool,
    /// Address of the page.
    pub url: String,
}

/// Event on a forge. `sender` is the account that caused it, by the signed payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ForgeEvent {
    /// One label was added (GitHub).
    Labeled { repo: RepoRef, issue: IssueSnapshot, label: String, sender: User },
    /// One label was removed (GitHub).
    Unlabeled { repo: RepoRef, issue: IssueSnapshot, label: String, sender: User },
    /// The set of labels may have changed; the payload does not state the previous set (Gitea, Forgejo).
    LabelSet { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// A new issue, possibly with labels from a template. Starts nothing by itself.
    IssueOpened { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// Title or body were edited.
    IssueEdited { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// The issue was closed.
    IssueClosed { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// The issue was reopened.
    IssueReopened { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// The issue was deleted, transferred or converted, and left the repository.
    IssueGone { repo: RepoRef, number: Number, sender: User },
    /// A new comment on an issue or in a pull request's conversation.
    CommentCreated { repo: RepoRef, issue: IssueSnapshot, comment: CommentSnapshot, sender: User },
    /// A pull request was opened, closed, merged, updated or marked ready.
    PullChanged { repo: RepoRef, pull: PullSnapshot, sender: User },
    /// A review was submitted. `id` is missing on Gitea.
    ReviewSubmitted {
        repo: RepoRef,
        pull: PullSnapshot,
        id: Option<i64>,
        verdict: ReviewVerdict,
        body: String,
        sender: User,
        at: Timestamp,
    },
    /// A review comment on a line of a pull request.
    ReviewCommented { repo: RepoRef, pull: PullSnapshot, comment: CommentSnapshot, path: Option<String>, sender: User },
    /// A check, status or workflow of a commit changed; details are read from the forge.
    ChecksChanged { repo: RepoRef, sha: Sha, branch: Option<String> },
    /// A branch moved.
    Pushed { repo: RepoRef, branch: String, after: Option<Sha>, sender: User },
    /// A repository was renamed, transferred, archived, deleted, or its visibility changed.
    RepositoryChanged { repo: RepoRef, action: String },
    /// The App was installed, removed or suspended, or its repositories changed.
    InstallationChanged { action: String },
}

/// Returns the repository of an event, borrowed as the event is.
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
    /// Returns the repository of the event, if it has one.
    pub fn repo(&self) -> Option<&RepoRef> {
        repo_of!(self)
    }

    /// Replaces the repository, if the event has one.
    pub fn set_repo(&mut self, confirmed: RepoRef) {
        if let Some(repo) = repo_of!(self) {
            *repo = confirmed;
        }
    }

    /// Returns the issue or pull request of the event, if it has one.
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

    /// Returns the account that caused the event, if known.
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
