//! What a forge tells us, in neutral words: both forges' webhooks are mapped to these.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{CommentId, Number, RepoRef, Sha, Timestamp, User};

/// An issue (or the issue side of a pull request) as it stood when the forge wrote it down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IssueSnapshot {
    /// Its number.
    pub number: Number,
    /// Title, raw.
    pub title: String,
    /// Body, raw Markdown; empty where the forge has none.
    pub body: String,
    /// Who opened it; `None` for a deleted account.
    pub author: Option<User>,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Open or closed.
    pub open: bool,
    /// Whether it is a pull request.
    pub is_pull: bool,
    /// Whether conversation is locked.
    pub locked: bool,
    /// Last change of any sort.
    pub updated_at: Timestamp,
    /// Page for people.
    pub url: String,
}

/// A pull request in the parts we act on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullSnapshot {
    /// Its number.
    pub number: Number,
    /// Branch it comes from.
    pub head_branch: String,
    /// Repository it comes from, by numeric id; `None` when that was deleted.
    pub head_repo: Option<crate::domain::model::ids::RepoId>,
    /// Its newest commit.
    pub head_sha: Sha,
    /// Branch it goes to.
    pub base_branch: String,
    /// Open or closed.
    pub open: bool,
    /// Whether it was merged.
    pub merged: bool,
    /// Draft (or `WIP:` in the title where the forge has no drafts).
    pub draft: bool,
    /// Whether the forge says that it merges cleanly; `None` when it does not know yet.
    pub mergeable: Option<bool>,
    /// Page for people.
    pub url: String,
}

/// A comment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommentSnapshot {
    /// Its id.
    pub id: CommentId,
    /// Body, raw Markdown.
    pub body: String,
    /// Who wrote it; `None` for a deleted account.
    pub author: Option<User>,
    /// When it was written.
    pub created_at: Timestamp,
    /// Whether the text may be another by now than the one that was written.
    pub edited: bool,
    /// Page for people.
    pub url: String,
}

/// The verdict of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewVerdict {
    /// Approved.
    Approved,
    /// Changes are asked for.
    ChangesRequested,
    /// Remarks only.
    Commented,
    /// Taken back.
    Dismissed,
}

/// One thing that happened on a forge. `sender` is who did it, by the signed payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ForgeEvent {
    /// Exactly one label was added (GitHub).
    Labeled { repo: RepoRef, issue: IssueSnapshot, label: String, sender: User },
    /// Exactly one label was taken away (GitHub).
    Unlabeled { repo: RepoRef, issue: IssueSnapshot, label: String, sender: User },
    /// The set of labels may have changed; what it was before must be known from elsewhere (Gitea, Forgejo).
    LabelSet { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// A new issue, perhaps with labels from a template. Starts nothing by itself.
    IssueOpened { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// Title or body were edited.
    IssueEdited { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// Closed by somebody.
    IssueClosed { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// Opened again.
    IssueReopened { repo: RepoRef, issue: IssueSnapshot, sender: User },
    /// Deleted, transferred elsewhere, or turned into something else; it is gone from this repository.
    IssueGone { repo: RepoRef, number: Number, sender: User },
    /// A new comment on an issue or in a pull request's conversation.
    CommentCreated { repo: RepoRef, issue: IssueSnapshot, comment: CommentSnapshot, sender: User },
    /// A pull request changed: opened, closed, merged, new commits, draft to ready.
    PullChanged { repo: RepoRef, pull: PullSnapshot, sender: User },
    /// A review was handed in. `id` is missing on Gitea.
    ReviewSubmitted {
        repo: RepoRef,
        pull: PullSnapshot,
        id: Option<i64>,
        verdict: ReviewVerdict,
        body: String,
        sender: User,
        at: Timestamp,
    },
    /// A remark on a line of a pull request.
    ReviewCommented { repo: RepoRef, pull: PullSnapshot, comment: CommentSnapshot, path: Option<String>, sender: User },
    /// A check, status or workflow of a commit ended or changed; the forge is asked for details.
    ChecksChanged { repo: RepoRef, sha: Sha, branch: Option<String> },
    /// A branch moved.
    Pushed { repo: RepoRef, branch: String, after: Option<Sha>, sender: User },
    /// A repository was renamed, moved, archived, deleted or made public or private.
    RepositoryChanged { repo: RepoRef, action: String },
    /// The App was installed, removed, suspended, or its repositories changed.
    InstallationChanged { action: String },
}

impl ForgeEvent {
    /// The repository it is about, if it is about one.
    pub fn repo(&self) -> Option<&RepoRef> {
        match self {
            Self::Labeled { repo, .. }
            | Self::Unlabeled { repo, .. }
            | Self::LabelSet { repo, .. }
            | Self::IssueOpened { repo, .. }
            | Self::IssueEdited { repo, .. }
            | Self::IssueClosed { repo, .. }
            | Self::IssueReopened { repo, .. }
            | Self::IssueGone { repo, .. }
            | Self::CommentCreated { repo, .. }
            | Self::PullChanged { repo, .. }
            | Self::ReviewSubmitted { repo, .. }
            | Self::ReviewCommented { repo, .. }
            | Self::ChecksChanged { repo, .. }
            | Self::Pushed { repo, .. }
            | Self::RepositoryChanged { repo, .. } => Some(repo),
            Self::InstallationChanged { .. } => None,
        }
    }

    /// Who did it, where the event says so.
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
