//! GitHub's JSON in the parts that we read, for REST answers and webhooks alike, and its mapping to neutral words.
//!
//! Tolerant on purpose: fields we do not read may be missing, wrong or new; fields that GitHub documents as nullable
//! (a deleted account, an empty body) are optional here.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::model::ids::User as Account;
use crate::domain::model::ids::{AccountKind, CommentId, ForgeName, Number, RepoId, RepoRef, Sha, Timestamp, UserId};
use crate::forge::{Repository as RepositoryFacts, Review as ReviewFacts, ReviewRemark, number_at_end};

/// Reads an RFC 3339 moment.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => Ok(Timestamp(at.as_millisecond())),
        Err(_) => Err(format!("`{text}` is no moment in time")),
    }
}

fn commit(text: &str) -> Result<Sha, String> {
    Sha::parse(text).ok_or_else(|| format!("`{text}` is no commit"))
}

/// An account.
#[derive(Debug, Deserialize)]
pub(super) struct User {
    pub(super) id: i64,
    pub(super) login: String,
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl User {
    /// Everything but a plain `User` counts as a machine, so that nothing unknown passes for a person.
    pub(super) fn account(self) -> Account {
        let kind =
            if self.kind.as_deref().is_none_or(|kind| kind == "User") { AccountKind::User } else { AccountKind::Bot };
        Account { id: UserId(self.id), login: self.login, kind }
    }
}

/// A label as REST and webhooks give it: an object, in old answers a bare name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Label {
    Named { name: Option<String> },
    Bare(String),
}

impl Label {
    pub(super) fn name(self) -> Option<String> {
        match self {
            Self::Named { name } => name,
            Self::Bare(name) => Some(name),
        }
    }
}

/// An issue, or the issue side of a pull request.
#[derive(Debug, Deserialize)]
pub(super) struct Issue {
    number: u64,
    title: String,
    body: Option<String>,
    user: Option<User>,
    labels: Option<Vec<Label>>,
    state: Option<String>,
    pull_request: Option<IgnoredAny>,
    locked: Option<bool>,
    updated_at: String,
    html_url: String,
    repository_url: Option<String>,
}

impl Issue {
    /// `owner/name` of the repository that it is in now, where GitHub says.
    pub(super) fn repository_name(&self) -> Option<String> {
        self.repository_url.as_deref()?.split_once("/repos/").map(|(_, name)| name.to_owned())
    }

    pub(super) fn is_pull(&self) -> bool {
        self.pull_request.is_some()
    }

    pub(super) fn snapshot(self) -> Result<IssueSnapshot, String> {
        Ok(IssueSnapshot {
            number: Number(self.number),
            is_pull: self.pull_request.is_some(),
            title: self.title,
            body: self.body.unwrap_or_default(),
            author: self.user.map(User::account),
            labels: self.labels.unwrap_or_default().into_iter().filter_map(Label::name).collect(),
            open: self.state.as_deref() != Some("closed"),
            locked: self.locked.unwrap_or(false),
            updated_at: moment(&self.updated_at)?,
            url: self.html_url,
        })
    }
}

/// Something that happened to an issue.
#[derive(Debug, Deserialize)]
pub(super) struct IssueEvent {
    pub(super) event: String,
    pub(super) actor: Option<User>,
    pub(super) created_at: String,
    pub(super) label: Option<Label>,
}

/// A comment in a conversation or on a line.
#[derive(Debug, Deserialize)]
pub(super) struct Comment {
    id: i64,
    body: Option<String>,
    user: Option<User>,
    created_at: String,
    updated_at: Option<String>,
    html_url: String,
    issue_url: Option<String>,
    pub(super) path: Option<String>,
    line: Option<u64>,
    original_line: Option<u64>,
}

impl Comment {
    /// The conversation that it stands in, where the answer names it.
    pub(super) fn issue(&self) -> Option<Number> {
        number_at_end(self.issue_url.as_deref()?)
    }

    pub(super) fn snapshot(self) -> Result<CommentSnapshot, String> {
        let created_at = moment(&self.created_at)?;
        Ok(CommentSnapshot {
            id: CommentId(self.id),
            body: self.body.unwrap_or_default(),
            author: self.user.map(User::account),
            created_at,
            edited: self.updated_at.as_deref().map(moment).transpose()? != Some(created_at),
            url: self.html_url,
        })
    }

    /// As a remark on a line; a remark that new commits made outdated keeps the line it was written on.
    pub(super) fn remark(mut self) -> Result<ReviewRemark, String> {
        let path = self.path.take().unwrap_or_default();
        let line = self.line.or(self.original_line);
        Ok(ReviewRemark { comment: self.snapshot()?, path, line })
    }
}

#[derive(Debug, Deserialize)]
struct Identified {
    id: i64,
}

#[derive(Debug, Deserialize)]
struct PullSide {
    #[serde(rename = "ref")]
    branch: String,
    sha: String,
    repo: Option<Identified>,
}

/// A pull request.
#[derive(Debug, Deserialize)]
pub(super) struct Pull {
    number: u64,
    pub(super) node_id: Option<String>,
    state: String,
    merged: Option<bool>,
    merged_at: Option<String>,
    pub(super) draft: Option<bool>,
    mergeable: Option<bool>,
    html_url: String,
    pub(super) updated_at: Option<String>,
    head: PullSide,
    base: PullSide,
}

impl Pull {
    pub(super) fn snapshot(self) -> Result<PullSnapshot, String> {
        Ok(PullSnapshot {
            number: Number(self.number),
            head_sha: commit(&self.head.sha)?,
            head_branch: self.head.branch,
            head_repo: self.head.repo.map(|repo| RepoId(repo.id)),
            base_branch: self.base.branch,
            open: self.state == "open",
            merged: self.merged.unwrap_or(false) || self.merged_at.is_some(),
            draft: self.draft.unwrap_or(false),
            mergeable: self.mergeable,
            url: self.html_url,
        })
    }
}

/// A review. REST writes states in capitals, webhooks in small letters.
#[derive(Debug, Deserialize)]
pub(super) struct Review {
    pub(super) id: i64,
    pub(super) body: Option<String>,
    user: Option<User>,
    state: String,
    pub(super) submitted_at: Option<String>,
}

impl Review {
    /// The verdict; `None` for a review that was not handed in yet or a state we do not know.
    pub(super) fn verdict(&self) -> Option<ReviewVerdict> {
        match self.state.to_ascii_lowercase().as_str() {
            "approved" => Some(ReviewVerdict::Approved),
            "changes_requested" => Some(ReviewVerdict::ChangesRequested),
            "commented" => Some(ReviewVerdict::Commented),
            "dismissed" => Some(ReviewVerdict::Dismissed),
            _ => None,
        }
    }

    /// As read back; `None` for a review that is not handed in.
    pub(super) fn handed_in(self) -> Result<Option<ReviewFacts>, String> {
        let (Some(verdict), Some(at)) = (self.verdict(), self.submitted_at.as_deref()) else { return Ok(None) };
        Ok(Some(ReviewFacts {
            id: self.id,
            verdict,
            submitted_at: moment(at)?,
            body: self.body.unwrap_or_default(),
            author: self.user.map(User::account),
        }))
    }
}

#[derive(Debug, Deserialize)]
struct Owner {
    login: Option<String>,
    name: Option<String>,
}

/// A repository. The owner in push events of old servers has a `name` in place of a `login`.
#[derive(Debug, Deserialize)]
pub(super) struct Repository {
    id: i64,
    name: String,
    owner: Owner,
    default_branch: Option<String>,
    private: Option<bool>,
    archived: Option<bool>,
    disabled: Option<bool>,
    size: Option<u64>,
}

impl Repository {
    pub(super) fn reference(self, forge: &ForgeName) -> Result<RepoRef, String> {
        let owner = self.owner.login.or(self.owner.name).ok_or("the repository has no owner")?;
        Ok(RepoRef { forge: forge.clone(), id: RepoId(self.id), owner, name: self.name })
    }

    /// `size` is in KiB, rounded, and lags behind pushes: `empty` is a suspicion only.
    pub(super) fn facts(self, forge: &ForgeName) -> Result<RepositoryFacts, String> {
        Ok(RepositoryFacts {
            default_branch: self.default_branch.clone().unwrap_or_else(|| "main".to_owned()),
            private: self.private.unwrap_or(true),
            archived: self.archived.unwrap_or(false) || self.disabled.unwrap_or(false),
            empty: self.size == Some(0),
            repo: self.reference(forge)?,
        })
    }
}
