//! State of the fake forge: accounts, repositories, issues and pull requests. Independent of HTTP and JSON. Methods are
//! actions of users.

mod accounts;
pub(super) mod apps;
mod attachments;
mod issues;
pub(super) mod logins;
mod people;
pub(super) mod pulls;
mod repos;

use std::collections::{BTreeMap, BTreeSet};

pub use accounts::{FakeAccount, FakeTeam, FakeToken};
pub use pulls::FakeReviewComment;

use crate::GiteaVersion;
use crate::git::MergeMethod;
use ralph_types::clock::Clock;
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::{CommentId, Number, RepoId, Sha, Timestamp, User, UserId};

/// Refusal of an action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FakeRefusal {
    /// Missing or invalid credential.
    #[error("the credential is missing or not known; authenticate with a token of this forge")]
    Unauthorized,
    /// Missing permission.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The object does not exist or is not visible to the account.
    #[error("not found: {0}")]
    NotFound(String),
    /// The current state does not allow the action.
    #[error("conflict: {0}")]
    Conflict(String),
    /// Invalid request.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The repository is archived.
    #[error("{0} is archived")]
    Archived(String),
    /// The server failed.
    #[error("the server failed")]
    Broken,
    /// The pull request cannot be merged.
    #[error("not mergeable: {0}")]
    NotMergeable(String),
    /// The repository was renamed.
    #[error("the repository with id {0} was renamed; ask under its new name")]
    Moved(RepoId),
    /// git failed on the server.
    #[error("git failed on the fake forge: {0}")]
    Git(String),
}

/// Permission of an account in a repository, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// No access beyond public access.
    None,
    /// Can read.
    Read,
    /// Can label and close (GitHub only).
    Triage,
    /// Can push.
    Write,
    /// Can push and manage some settings (GitHub only).
    Maintain,
    /// Can do everything.
    Admin,
}

/// A label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeLabel {
    /// Id within the forge.
    pub id: i64,
    /// Name of the label.
    pub name: String,
    /// Six hexadecimal digits.
    pub color: String,
    /// One sentence.
    pub description: String,
    /// Whether the label replaces other labels in its scope (Gitea).
    pub exclusive: bool,
}

impl FakeLabel {
    /// Returns the label's scope, its name up to the last `/`; `None` unless it is exclusive.
    pub fn scope(&self) -> Option<&str> {
        self.name.rsplit_once('/').map(|(scope, _)| scope).filter(|_| self.exclusive)
    }
}

/// A reaction to a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeReaction {
    /// Id within the forge.
    pub id: i64,
    /// Acting account.
    pub user: UserId,
    /// `eyes`, `rocket`, `+1`, …
    pub content: String,
    /// Time of the reaction.
    pub at: Timestamp,
}

/// A comment in a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeComment {
    /// Id within the forge.
    pub id: CommentId,
    /// Author; `None` for a deleted account.
    pub author: Option<UserId>,
    /// Raw Markdown.
    pub body: String,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Reactions, oldest first.
    pub reactions: Vec<FakeReaction>,
    /// Reason of the minimization; `None` if not minimized.
    pub minimized: Option<String>,
}

/// File uploaded to an issue or comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeAttachment {
    /// UUID.
    pub id: String,
    /// Name of the file.
    pub name: String,
    /// Account that uploaded it.
    pub uploader: UserId,
    /// Id of the repository.
    pub repo: RepoId,
    /// Issue that lists the file beside its text (Gitea); `None` for a file embedded in a text.
    pub issue: Option<Number>,
    /// Content of the file.
    pub content: Vec<u8>,
    /// Time of the upload.
    pub at: Timestamp,
}

/// An edit of an issue's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEdit {
    /// Acting account.
    pub editor: UserId,
    /// Time of the edit.
    pub at: Timestamp,
    /// Previous body.
    pub previous_body: String,
}

/// A change of an issue's title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TitleEdit {
    /// Position in the log of operations.
    pub at_seq: u64,
    /// Acting account.
    pub editor: UserId,
    /// Time of the edit.
    pub at: Timestamp,
    /// Title before and after.
    pub titles: (String, String),
}

/// An issue, or the issue side of a pull request.
#[derive(Debug, Clone)]
pub struct FakeIssue {
    /// Id within the forge.
    pub id: i64,
    /// Number within the repository.
    pub number: Number,
    /// Title of the issue.
    pub title: String,
    /// Raw Markdown.
    pub body: String,
    /// Author; `None` for a deleted account.
    pub author: Option<UserId>,
    /// Ids of its labels.
    pub labels: Vec<i64>,
    /// Assigned accounts.
    pub assignees: Vec<UserId>,
    /// Whether the issue is open.
    pub open: bool,
    /// Whether only people with write access may comment.
    pub locked: bool,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Closing time; `None` if open.
    pub closed_at: Option<Timestamp>,
    /// Conversation, oldest first.
    pub comments: Vec<FakeComment>,
    /// Reactions to its text, oldest first.
    pub reactions: Vec<FakeReaction>,
    /// Changes of the title, oldest first.
    pub titles: Vec<TitleEdit>,
    /// Edits of the body, oldest first.
    pub edits: Vec<TextEdit>,
    /// Data of the pull request; `None` for an issue.
    pub pull: Option<FakePull>,
}

/// Facts of a pull request from git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullFacts {
    /// Newest commit of the head branch.
    pub head_sha: Sha,
    /// Newest commit of the base branch.
    pub base_sha: Sha,
    /// Merge base; `None` for unrelated histories.
    pub merge_base: Option<Sha>,
    /// Whether a merge causes no conflict.
    pub mergeable: bool,
    /// Number of commits in head but not in base.
    pub commits: u64,
    /// Number of added lines.
    pub additions: u64,
    /// Number of removed lines.
    pub deletions: u64,
    /// Number of changed files.
    pub changed_files: u64,
}

/// Merge of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeRecord {
    /// Acting account.
    pub by: UserId,
    /// Time of the merge.
    pub at: Timestamp,
    /// Resulting commit on the base branch.
    pub sha: Sha,
}

/// Data of a pull request in addition to its issue.
#[derive(Debug, Clone)]
pub struct FakePull {
    /// Head branch, in the same repository; for a pull request from a fork, the copy of its branch.
    pub head: String,
    /// Fork with the head branch; `None` if it is in the same repository.
    pub fork: Option<FakeFork>,
    /// Base branch.
    pub base: String,
    /// Facts from git.
    pub facts: PullFacts,
    /// Whether it is a draft (GitHub; Gitea uses the title).
    pub draft: bool,
    /// Merge, if merged.
    pub merged: Option<MergeRecord>,
    /// Requested reviewers.
    pub requested: Vec<UserId>,
    /// Names of requested teams.
    pub requested_teams: Vec<String>,
    /// Reviews, oldest first.
    pub reviews: Vec<FakeReview>,
    /// Number of reads during which the forge still reports that it is checking mergeability.
    pub checking: u32,
    /// Mergeability before the last push, and the number of reads that still return it.
    pub stale_mergeable: Option<(bool, u32)>,
    /// Account and method of the automatic merge; `None` if none is scheduled.
    pub auto_merge: Option<(UserId, MergeMethod)>,
    /// Last end of an automatic merge: account, whether the pull request left the merge queue, and the reason.
    pub merge_left: Option<(UserId, bool, String)>,
}

/// Fork that a pull request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeFork {
    /// Id of the repository.
    pub repo: RepoId,
    /// Head branch.
    pub branch: String,
    /// Whether people with write access to the base repository may push to the branch.
    pub editable: bool,
}

impl FakePull {
    /// Returns the reported mergeability; `None` while the forge is checking it.
    pub fn mergeable(&self) -> Option<bool> {
        match self.stale_mergeable {
            Some((said, reads)) if reads > 0 => Some(said),
            _ => (self.checking == 0).then_some(self.facts.mergeable),
        }
    }
}

/// Conditions for merges into a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeRule {
    /// Names of checks and statuses that must succeed.
    pub checks: Vec<String>,
    /// Number of required approvals.
    pub approvals: usize,
}

/// A review.
#[derive(Debug, Clone)]
pub struct FakeReview {
    /// Id within the forge.
    pub id: i64,
    /// Author; `None` for a deleted account.
    pub author: Option<UserId>,
    /// Verdict of the review.
    pub verdict: ReviewVerdict,
    /// Text of the review.
    pub body: String,
    /// Start time of the review.
    pub at: Timestamp,
    /// Time of submission.
    pub submitted_at: Timestamp,
    /// Whether the review is a draft, visible only to its author.
    pub pending: bool,
    /// Reviewed commit.
    pub commit: Sha,
    /// Comments on lines.
    pub remarks: Vec<FakeReviewComment>,
}

/// A commit status.
#[derive(Debug, Clone)]
pub struct FakeStatus {
    /// Id within the forge.
    pub id: i64,
    /// Hash of the commit.
    pub sha: Sha,
    /// Name of the check.
    pub context: String,
    /// `pending`, `success`, `failure`, `error`.
    pub state: String,
    /// Description in one line.
    pub description: String,
    /// Web address.
    pub target_url: String,
    /// Account that set the status.
    pub creator: UserId,
    /// Time of the status.
    pub at: Timestamp,
}

/// A check run with one job (GitHub).
#[derive(Debug, Clone)]
pub struct FakeCheckRun {
    /// Id within the forge; also the id of its job.
    pub id: i64,
    /// Hash of the commit.
    pub sha: Sha,
    /// Name of the check run.
    pub name: String,
    /// `success`, `failure`, …; `None` while running.
    pub conclusion: Option<String>,
    /// Summary in Markdown.
    pub summary: String,
    /// Log of its job.
    pub log: String,
    /// App that set it and the id that it gave; `None` for people and Actions.
    pub set_by: Option<(i64, String)>,
    /// Annotations: path, line and message.
    pub annotations: Vec<(String, u64, String)>,
    /// Workflow and event of its run; `None` for a check run of another App.
    pub workflow: Option<(String, String)>,
    /// Start time.
    pub at: Timestamp,
}

/// A webhook of a repository or an App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeHook {
    /// Id within the forge.
    pub id: i64,
    /// Address of deliveries.
    pub url: String,
    /// Key of the signature; may be empty.
    pub secret: String,
    /// Subscribed events by the forge's names; `*` for all.
    pub events: Vec<String>,
    /// Whether it is active.
    pub active: bool,
    /// Creation time.
    pub created_at: Timestamp,
}

/// A repository.
#[derive(Debug, Clone)]
pub struct FakeRepo {
    /// Id within the forge.
    pub id: RepoId,
    /// Owner of the repository.
    pub owner: UserId,
    /// Name of the repository.
    pub name: String,
    /// Previous names (`owner/name`).
    pub former: Vec<String>,
    /// Default branch.
    pub default_branch: String,
    /// Whether only collaborators can read it.
    pub private: bool,
    /// Whether it is archived.
    pub archived: bool,
    /// Whether it has issues.
    pub has_issues: bool,
    /// Creation time.
    pub created_at: Timestamp,
    /// Permissions of collaborators.
    pub access: BTreeMap<UserId, Access>,
    /// Protected branches.
    pub protected: BTreeSet<String>,
    /// Conditions for merges into branches.
    pub merge_rules: BTreeMap<String, MergeRule>,
    /// Whether auto-merge is allowed (GitHub; off in a new repository).
    pub auto_merge_allowed: bool,
    /// Kinds of rules for all branches except the default branch (GitHub).
    pub rules: Vec<String>,
    /// Labels, oldest first.
    pub labels: Vec<FakeLabel>,
    /// Issues and pulls by number.
    pub issues: BTreeMap<Number, FakeIssue>,
    /// Number of the next issue.
    pub next_number: u64,
    /// Commit statuses, oldest first.
    pub statuses: Vec<FakeStatus>,
    /// Check runs, oldest first.
    pub check_runs: Vec<FakeCheckRun>,
    /// Webhooks.
    pub hooks: Vec<FakeHook>,
}

/// Commit in a push event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedCommit {
    /// Commit id.
    pub sha: Sha,
    /// Tree id.
    pub tree: Sha,
    /// Full message.
    pub message: String,
    /// Author's name.
    pub author: String,
    /// Author's email address.
    pub email: String,
    /// Commit time.
    pub at: Timestamp,
}

/// Change of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchPush {
    /// Branch.
    pub branch: String,
    /// Previous commit; `None` for a new branch.
    pub before: Option<Sha>,
    /// New commit; `None` for a deleted branch.
    pub after: Option<Sha>,
    /// Whether commits were removed from the branch.
    pub forced: bool,
    /// New commits, oldest first, at most 20.
    pub commits: Vec<PushedCommit>,
    /// Newest commit; missing in `commits` if another branch already had it. `None` for a deleted branch.
    pub head: Option<PushedCommit>,
}

/// Kind of request that changed an issue's labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelRequest {
    /// Some labels were added or removed.
    Change,
    /// All labels were replaced.
    Replace,
    /// All labels were removed.
    Clear,
}

/// Kind and details of an event.
#[derive(Debug, Clone)]
pub enum FakeEventKind {
    /// A new issue.
    IssueOpened(Number),
    /// Title or body changed; the fields contain the previous texts.
    IssueEdited { number: Number, title: String, body: String },
    /// Issue closed.
    IssueClosed(Number),
    /// Issue reopened.
    IssueReopened(Number),
    /// Issue deleted.
    IssueDeleted(Box<FakeIssue>),
    /// Labels changed in one request.
    LabelsChanged { number: Number, added: Vec<FakeLabel>, removed: Vec<FakeLabel>, by: LabelRequest },
    /// Reply in a review's thread on the web page.
    Replied(Number, CommentId),
    /// A new comment.
    CommentCreated(Number, CommentId),
    /// Comment text changed, with the previous text.
    CommentEdited(Number, CommentId, String),
    /// Comment deleted.
    CommentDeleted(Number, Box<FakeComment>),
    /// A new pull request.
    PullOpened(Number),
    /// Title or body changed; the fields contain the previous texts.
    PullEdited { number: Number, title: String, body: String },
    /// Base branch changed, with the previous base.
    PullRetargeted(Number, String),
    /// Assignees of an issue changed.
    IssueAssigned(Number),
    /// Pull request closed or merged.
    PullClosed(Number),
    /// Pull request reopened.
    PullReopened(Number),
    /// New commits, with the previous head.
    PullSynchronized(Number, Sha),
    /// Pull request marked as ready.
    PullReady(Number),
    /// Pull request converted to a draft.
    PullDraft(Number),
    /// The forge canceled the automatic merge; `true` if the pull request left the merge queue.
    MergeLeft(Number, bool),
    /// Review requested.
    ReviewRequested(Number, UserId),
    /// Review submitted.
    Reviewed(Number, i64),
    /// Branch changed.
    Pushed(Box<BranchPush>),
    /// Commit status set.
    StatusSet(i64),
    /// Check run created or completed.
    CheckRunChanged(i64),
    /// Repository changed (`renamed`, `archived`, `privatized`, …), with its previous name.
    RepositoryChanged(&'static str, String),
    /// Webhook created (GitHub sends a ping).
    HookCreated(i64),
}

/// Event to deliver to webhooks.
#[derive(Debug, Clone)]
pub struct FakeEvent {
    /// Id of the repository.
    pub repo: RepoId,
    /// Acting account.
    pub actor: UserId,
    /// Kind and details.
    pub what: FakeEventKind,
}

/// Kind of mutating operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpKind {
    IssueOpened,
    IssueEdited,
    TitleChanged,
    IssueClosed,
    IssueReopened,
    IssueDeleted,
    LabelCreated,
    LabelEdited,
    LabelAdded,
    LabelRemoved,
    CommentCreated,
    CommentEdited,
    CommentDeleted,
    CommentMinimized,
    ReactionAdded,
    ReactionRemoved,
    PullOpened,
    PullEdited,
    PullClosed,
    PullReopened,
    PullReady,
    PullDraft,
    AutoMergeEnabled,
    AutoMergeDisabled,
    PullMerged,
    ReviewRequested,
    Reviewed,
    StatusSet,
    CheckRunSet,
    BranchPushed,
    BranchForced,
    BranchDeleted,
    HookCreated,
    HookEdited,
    HookDeleted,
    RepositoryChanged,
}

/// Logged mutating operation, for assertions after a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// 0-based position in the log.
    pub at_seq: u64,
    /// Time according to the forge's clock.
    pub at: Timestamp,
    /// Acting account.
    pub actor: User,
    /// Kind of operation.
    pub kind: OpKind,
    /// Text, label, branch or commit.
    pub detail: String,
    /// Id of the repository.
    pub repo: RepoId,
    /// Number of the issue or pull request, if any.
    pub number: Option<Number>,
}

/// State of the forge.
#[derive(Debug)]
pub struct FakeState {
    pub(super) clock: Clock,
    /// Accounts by id.
    pub accounts: BTreeMap<UserId, FakeAccount>,
    /// Tokens, including expired ones.
    pub tokens: BTreeMap<String, FakeToken>,
    /// Teams of organizations.
    pub teams: Vec<FakeTeam>,
    /// Time between drafting line comments and submitting their review, in milliseconds.
    pub draft_age_ms: i64,
    /// Number of reads after a push that return a pull request's mergeability from before the push.
    pub stale_reads: u32,
    /// Gitea version to imitate.
    pub gitea: GiteaVersion,
    /// Scopes of installation tokens.
    pub narrowed: BTreeMap<String, apps::TokenScope>,
    /// Whether personal tokens are fine-grained, which cannot have the permission Checks.
    pub fine_grained_tokens: bool,
    /// Valid signing keys for Apps: one, or two while a key is being replaced.
    pub app_keys: Vec<apps::FakeAppKey>,
    /// Number of requests that reject a new installation token, and the status of the rejection; `None` to reject none.
    pub new_token_refusals: Option<(u32, u16)>,
    pub(super) refusals_left: BTreeMap<String, u32>,
    /// GitHub Apps by id.
    pub apps: BTreeMap<i64, apps::FakeApp>,
    /// Codes of Apps created from manifests.
    pub manifest_codes: BTreeMap<String, apps::FakeManifestCode>,
    /// OAuth applications for logins, and their codes.
    pub logins: logins::FakeLogins,
    /// Remaining API requests and time of the next reset, by account (GitHub).
    pub quota: BTreeMap<Option<UserId>, (u32, Timestamp)>,
    /// Repositories by id.
    pub repos: BTreeMap<RepoId, FakeRepo>,
    /// Uploaded files by id.
    pub attachments: BTreeMap<String, FakeAttachment>,
    /// HTML that replaces rendered texts, by text.
    pub pages: BTreeMap<String, String>,
    /// Mutating operations, oldest first.
    pub ops: Vec<Op>,
    /// Maximum length of a body, in characters; `None` for no limit.
    pub body_limit: Option<usize>,
    /// Minimum permission for labeling and closing.
    pub triage_needs: Access,
    /// Whether label names are unique in a repository.
    pub unique_labels: bool,
    /// Whether a requested reviewer stays requested after a review (Gitea).
    pub keeps_requests: bool,
    pub(super) events: Vec<FakeEvent>,
    next_id: i64,
}

impl FakeState {
    /// Creates an empty state.
    pub fn new(clock: Clock, triage_needs: Access, body_limit: Option<usize>) -> Self {
        Self {
            clock,
            accounts: BTreeMap::new(),
            tokens: BTreeMap::new(),
            teams: Vec::new(),
            draft_age_ms: 0,
            stale_reads: 0,
            gitea: GiteaVersion::V1_25,
            narrowed: BTreeMap::new(),
            fine_grained_tokens: false,
            app_keys: vec![apps::FakeAppKey::First],
            new_token_refusals: None,
            refusals_left: BTreeMap::new(),
            apps: BTreeMap::new(),
            manifest_codes: BTreeMap::new(),
            logins: logins::FakeLogins::default(),
            quota: BTreeMap::new(),
            repos: BTreeMap::new(),
            attachments: BTreeMap::new(),
            pages: BTreeMap::new(),
            ops: Vec::new(),
            body_limit,
            triage_needs,
            unique_labels: true,
            keeps_requests: false,
            events: Vec::new(),
            next_id: 1000,
        }
    }

    /// Returns a new id. All kinds share one sequence, so an id never matches an object of another kind.
    pub(super) fn fresh_id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns a repository by id.
    pub fn repo(&self, id: RepoId) -> Result<&FakeRepo, FakeRefusal> {
        self.repos.get(&id).ok_or_else(|| FakeRefusal::NotFound(format!("repository {id}")))
    }

    /// Returns a mutable repository by id.
    pub fn repo_mut(&mut self, id: RepoId) -> Result<&mut FakeRepo, FakeRefusal> {
        self.repos.get_mut(&id).ok_or_else(|| FakeRefusal::NotFound(format!("repository {id}")))
    }

    /// Returns the permission of an account; `None` for anonymous access.
    pub fn access(&self, repo: &FakeRepo, user: Option<UserId>) -> Access {
        let public = if repo.private { Access::None } else { Access::Read };
        match user {
            Some(user) if user == repo.owner || self.is_administrator(user) => Access::Admin,
            Some(user) => {
                let granted = repo.access.get(&user).copied().unwrap_or(Access::None);
                let teams = self.team_access(repo, user);
                granted.max(teams).max(self.installed_access(repo.id, user)).max(public)
            }
            None => public,
        }
    }

    /// Fails unless the account has at least the permission `needed`; returns `NotFound` if it may not read the repository.
    pub fn require(&self, repo: RepoId, user: UserId, needed: Access) -> Result<(), FakeRefusal> {
        let repo = self.repo(repo)?;
        let access = self.access(repo, Some(user));
        if access == Access::None {
            return Err(FakeRefusal::NotFound(format!("repository {}", self.full_name(repo))));
        }
        if access < needed {
            let login = self.user(user).login;
            return Err(FakeRefusal::Forbidden(format!("{login} needs {needed:?} in {}", self.full_name(repo))));
        }
        Ok(())
    }

    /// Same as [`Self::require`], and fails for an archived repository.
    pub(super) fn require_change(&self, repo: RepoId, user: UserId, needed: Access) -> Result<(), FakeRefusal> {
        self.require(repo, user, needed)?;
        if self.repo(repo)?.archived {
            return Err(FakeRefusal::Archived(self.full_name(self.repo(repo)?)));
        }
        Ok(())
    }

    /// Records a push performed by git.
    pub fn pushed(&mut self, actor: UserId, repo: RepoId, push: BranchPush) {
        let kind = match (&push.after, push.forced) {
            (None, _) => OpKind::BranchDeleted,
            (_, true) => OpKind::BranchForced,
            _ => OpKind::BranchPushed,
        };
        let after = push.after.as_ref().map_or("", Sha::as_str);
        self.log(actor, kind, repo, None, format!("{} {after}", push.branch));
        self.emit(repo, actor, FakeEventKind::Pushed(Box::new(push)));
    }

    pub(super) fn emit(&mut self, repo: RepoId, actor: UserId, what: FakeEventKind) {
        self.events.push(FakeEvent { repo, actor, what });
    }

    pub(super) fn log(
        &mut self,
        actor: UserId,
        kind: OpKind,
        repo: RepoId,
        number: Option<Number>,
        detail: impl Into<String>,
    ) {
        let (at_seq, at, actor) = (self.ops.len() as u64, self.clock.now(), self.user(actor));
        self.ops.push(Op { at_seq, at, actor, kind, detail: detail.into(), repo, number });
    }
}
