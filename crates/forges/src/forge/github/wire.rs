//! GitHub's JSON format in REST responses and webhooks, and its conversion to the forge-independent types.
//!
//! Parsing is tolerant: unused fields may be missing, invalid or new. Fields that GitHub documents as nullable, such
//! as a deleted account or an empty body, are optional.

use ralph_types::failure::Failure;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::domain::loops::CommentedLines;
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::model::ids::{
    AccountKind, CommentId, ForgeName, Number, RepoId, RepoRef, Sha, Timestamp, User, UserId,
};
use crate::forge::{PullReview, Repository, ReviewComment, number_at_end};

/// Parses an RFC 3339 time.
pub(super) fn moment(text: &str) -> Result<Timestamp, Failure> {
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => Ok(Timestamp(at.as_millisecond())),
        Err(error) => Err(Failure::new(format!("`{text}` is not a time")).caused_by(error)),
    }
}

fn commit(text: &str) -> Result<Sha, Failure> {
    Sha::parse(text).ok_or_else(|| Failure::new(format!("`{text}` is not a commit id")))
}

/// An account.
#[derive(Debug, Deserialize)]
pub(super) struct GitHubUser {
    pub(super) id: i64,
    pub(super) login: String,
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl GitHubUser {
    /// Converts to an account. Every type except `User` counts as a bot, so that an unknown type never counts as a
    /// person.
    pub(super) fn account(self) -> User {
        let kind =
            if self.kind.as_deref().is_none_or(|kind| kind == "User") { AccountKind::User } else { AccountKind::Bot };
        User { id: UserId(self.id), login: self.login, kind }
    }
}

/// Label: an object, or only its name in responses of old servers.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum GitHubLabel {
    Named { name: Option<String> },
    Bare(String),
}

impl GitHubLabel {
    pub(super) fn name(self) -> Option<String> {
        match self {
            Self::Named { name } => name,
            Self::Bare(name) => Some(name),
        }
    }
}

/// Issue, or a pull request as an issue.
#[derive(Debug, Deserialize)]
pub(super) struct GitHubIssue {
    number: u64,
    title: String,
    body: Option<String>,
    /// HTML that GitHub rendered from the body, if the request asked for it.
    body_html: Option<String>,
    user: Option<GitHubUser>,
    labels: Option<Vec<GitHubLabel>>,
    state: Option<String>,
    pull_request: Option<IgnoredAny>,
    locked: Option<bool>,
    updated_at: String,
    html_url: String,
    repository_url: Option<String>,
}

impl GitHubIssue {
    /// Returns `owner/name` of the issue's current repository; `None` if the response does not contain it.
    pub(super) fn repository_name(&self) -> Option<String> {
        self.repository_url.as_deref()?.split_once("/repos/").map(|(_, name)| name.to_owned())
    }

    pub(super) fn is_pull(&self) -> bool {
        self.pull_request.is_some()
    }

    pub(super) fn snapshot(self) -> Result<IssueSnapshot, Failure> {
        Ok(IssueSnapshot {
            number: Number(self.number),
            is_pull: self.pull_request.is_some(),
            title: self.title,
            body: self.body.unwrap_or_default(),
            html: self.body_html,
            author: self.user.map(GitHubUser::account),
            labels: self.labels.unwrap_or_default().into_iter().filter_map(GitHubLabel::name).collect(),
            open: self.state.as_deref() != Some("closed"),
            locked: self.locked.unwrap_or(false),
            updated_at: moment(&self.updated_at)?,
            url: self.html_url,
        })
    }
}

/// An event of an issue's timeline.
#[derive(Debug, Deserialize)]
pub(super) struct IssueEvent {
    pub(super) id: i64,
    pub(super) event: String,
    pub(super) actor: Option<GitHubUser>,
    pub(super) created_at: String,
    pub(super) label: Option<GitHubLabel>,
}

/// A comment in a conversation or on a line.
#[derive(Debug, Deserialize)]
pub(super) struct GitHubComment {
    id: i64,
    body: Option<String>,
    body_html: Option<String>,
    user: Option<GitHubUser>,
    created_at: String,
    updated_at: Option<String>,
    html_url: String,
    issue_url: Option<String>,
    pull_request_url: Option<String>,
    pub(super) path: Option<String>,
    line: Option<u64>,
    start_line: Option<u64>,
    commit_id: Option<String>,
    original_line: Option<u64>,
    original_start_line: Option<u64>,
    original_commit_id: Option<String>,
    side: Option<String>,
    pull_request_review_id: Option<i64>,
}

impl GitHubComment {
    /// Returns the number of the issue or pull request; `None` if the response does not contain it.
    pub(super) fn issue(&self) -> Option<Number> {
        number_at_end(self.issue_url.as_deref()?)
    }

    /// Returns the number of the pull request for a comment on a line; `None` for other comments.
    pub(super) fn pull(&self) -> Option<Number> {
        number_at_end(self.pull_request_url.as_deref()?)
    }

    pub(super) fn snapshot(self) -> Result<CommentSnapshot, Failure> {
        let created_at = moment(&self.created_at)?;
        Ok(CommentSnapshot {
            id: CommentId(self.id),
            body: self.body.unwrap_or_default(),
            html: self.body_html,
            author: self.user.map(GitHubUser::account),
            created_at,
            edited: self.updated_at.as_deref().map(moment).transpose()? != Some(created_at),
            url: self.html_url,
        })
    }

    /// Converts to a review comment. An outdated comment keeps its original line.
    pub(super) fn review_comment(mut self) -> Result<ReviewComment, Failure> {
        let path = self.path.take().unwrap_or_default();
        let line = self.line.or(self.original_line);
        let (lines, review) = (self.commented_lines(), self.pull_request_review_id);
        Ok(ReviewComment { comment: self.snapshot()?, path, line, lines, review })
    }

    /// Returns the commented lines in the new version of the file; for an outdated comment, the lines in its original
    /// commit.
    fn commented_lines(&self) -> Option<CommentedLines> {
        let (first, last, commit) = match self.line {
            Some(last) => (self.start_line, last, &self.commit_id),
            None => (self.original_start_line, self.original_line?, &self.original_commit_id),
        };
        let on_new_side = self.side.as_deref().is_none_or(|side| side == "RIGHT");
        let commit = Sha::parse(commit.as_deref()?).filter(|_| on_new_side)?;
        Some(CommentedLines { first: first.unwrap_or(last), last, commit })
    }
}

#[derive(Debug, Deserialize)]
struct Identified {
    id: i64,
    full_name: Option<String>,
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
pub(super) struct GitHubPull {
    number: u64,
    pub(super) node_id: Option<String>,
    state: String,
    merged: Option<bool>,
    merged_at: Option<String>,
    pub(super) draft: Option<bool>,
    mergeable: Option<bool>,
    html_url: String,
    pub(super) updated_at: Option<String>,
    maintainer_can_modify: Option<bool>,
    head: PullSide,
    base: PullSide,
}

impl GitHubPull {
    pub(super) fn snapshot(self) -> Result<PullSnapshot, Failure> {
        Ok(PullSnapshot {
            number: Number(self.number),
            head_sha: commit(&self.head.sha)?,
            head_branch: self.head.branch,
            head_repo: self.head.repo.as_ref().map(|repo| RepoId(repo.id)),
            head_repo_name: self.head.repo.and_then(|repo| repo.full_name).unwrap_or_default(),
            maintainers_may_push: self.maintainer_can_modify.unwrap_or(false),
            base_branch: self.base.branch,
            open: self.state == "open",
            merged: self.merged.unwrap_or(false) || self.merged_at.is_some(),
            draft: self.draft.unwrap_or(false),
            mergeable: self.mergeable,
            url: self.html_url,
        })
    }
}

/// Review. States are in upper case in REST and in lower case in webhooks.
#[derive(Debug, Deserialize)]
pub(super) struct GitHubReview {
    pub(super) id: i64,
    pub(super) body: Option<String>,
    body_html: Option<String>,
    user: Option<GitHubUser>,
    state: String,
    pub(super) submitted_at: Option<String>,
}

impl GitHubReview {
    /// Returns the verdict; `None` for a pending review or an unknown state.
    pub(super) fn verdict(&self) -> Option<ReviewVerdict> {
        match self.state.to_ascii_lowercase().as_str() {
            "approved" => Some(ReviewVerdict::Approved),
            "changes_requested" => Some(ReviewVerdict::ChangesRequested),
            "commented" => Some(ReviewVerdict::Commented),
            "dismissed" => Some(ReviewVerdict::Dismissed),
            _ => None,
        }
    }

    /// Converts a submitted review; `None` for a pending one.
    pub(super) fn submitted(self) -> Result<Option<PullReview>, Failure> {
        let (Some(verdict), Some(at)) = (self.verdict(), self.submitted_at.as_deref()) else { return Ok(None) };
        Ok(Some(PullReview {
            id: self.id,
            verdict,
            submitted_at: moment(at)?,
            body: self.body.unwrap_or_default(),
            html: self.body_html,
            author: self.user.map(GitHubUser::account),
        }))
    }
}

#[derive(Debug, Deserialize)]
struct GitHubOwner {
    login: Option<String>,
    name: Option<String>,
}

/// Repository. In push events of old servers, the owner has a `name` instead of a `login`.
#[derive(Debug, Deserialize)]
pub(super) struct GitHubRepository {
    id: i64,
    name: String,
    owner: GitHubOwner,
    default_branch: Option<String>,
    private: Option<bool>,
    archived: Option<bool>,
    disabled: Option<bool>,
    size: Option<u64>,
    has_issues: Option<bool>,
}

impl GitHubRepository {
    pub(super) fn reference(self, forge: &ForgeName) -> Result<RepoRef, Failure> {
        let owner = self.owner.login.or(self.owner.name).ok_or("the repository has no owner")?;
        Ok(RepoRef { forge: forge.clone(), id: RepoId(self.id), owner, name: self.name })
    }

    /// Converts to [`Repository`]. `empty` is an estimate, because GitHub's `size` is in KiB, rounded, and lags behind
    /// pushes.
    pub(super) fn facts(self, forge: &ForgeName) -> Result<Repository, Failure> {
        Ok(Repository {
            default_branch: self.default_branch.clone().unwrap_or_else(|| "main".to_owned()),
            private: self.private.unwrap_or(true),
            archived: self.archived.unwrap_or(false) || self.disabled.unwrap_or(false),
            empty: self.size == Some(0),
            issues_enabled: self.has_issues.unwrap_or(true),
            repo: self.reference(forge)?,
        })
    }
}
