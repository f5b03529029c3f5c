//! What the fake forge knows: accounts, repositories, issues, pulls. No HTTP, no JSON; methods are what users do.

mod accounts;
pub(super) mod apps;
mod issues;
pub(super) mod pulls;
mod repos;

use std::collections::{BTreeMap, BTreeSet};

pub use accounts::{Account, Team, Token};
pub use pulls::Remark;

use ralph_types::clock::Clock;
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::{CommentId, Number, RepoId, Sha, Timestamp, User, UserId};

/// Why the forge does not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No credential, or one that is not known (any more).
    #[error("the credential is missing or not known; authenticate with a token of this forge")]
    Unauthorized,
    /// The account may not do that.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// No such thing, or none that the account may see.
    #[error("not found: {0}")]
    NotFound(String),
    /// The state of things forbids it.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The request makes no sense.
    #[error("invalid: {0}")]
    Invalid(String),
    /// It cannot be merged now.
    #[error("not mergeable: {0}")]
    NotMergeable(String),
    /// The repository has another name now.
    #[error("the repository with id {0} was renamed; ask under its new name")]
    Moved(RepoId),
    /// git failed on the server's side.
    #[error("git failed on the fake forge: {0}")]
    Git(String),
}

/// What an account may do in a repository, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    None,
    /// See it.
    Read,
    /// Label and close (GitHub only).
    Triage,
    /// Push.
    Write,
    /// Push and manage some settings (GitHub only).
    Maintain,
    /// Everything.
    Admin,
}

/// A label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Id within the forge.
    pub id: i64,
    /// Name.
    pub name: String,
    /// Six hexadecimal digits.
    pub color: String,
    /// One sentence.
    pub description: String,
}

/// A reaction to a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaction {
    /// Id within the forge.
    pub id: i64,
    /// Who.
    pub user: UserId,
    /// `eyes`, `rocket`, `+1`, …
    pub content: String,
    /// When.
    pub at: Timestamp,
}

/// A comment in a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Id within the forge.
    pub id: CommentId,
    /// Who; `None` for a deleted account.
    pub author: Option<UserId>,
    /// Raw Markdown.
    pub body: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Reactions, oldest first.
    pub reactions: Vec<Reaction>,
    /// Why it was folded away, if it was.
    pub minimized: Option<String>,
}

/// An edit of an issue's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEdit {
    /// Who.
    pub editor: UserId,
    /// When.
    pub at: Timestamp,
    /// The body before.
    pub previous_body: String,
}

/// An issue, or the issue side of a pull request.
#[derive(Debug, Clone)]
pub struct Issue {
    /// Id within the forge.
    pub id: i64,
    /// Number within the repository.
    pub number: Number,
    /// Title.
    pub title: String,
    /// Raw Markdown.
    pub body: String,
    /// Who; `None` for a deleted account.
    pub author: Option<UserId>,
    /// Ids of its labels.
    pub labels: Vec<i64>,
    /// Open or closed.
    pub open: bool,
    /// Whether only people with write access may comment.
    pub locked: bool,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// When it was closed.
    pub closed_at: Option<Timestamp>,
    /// Conversation, oldest first.
    pub comments: Vec<Comment>,
    /// Edits of the body, oldest first.
    pub edits: Vec<TextEdit>,
    /// What makes it a pull request.
    pub pull: Option<Pull>,
}

/// What git says of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullFacts {
    /// Newest commit of the head branch.
    pub head_sha: Sha,
    /// Newest commit of the base branch.
    pub base_sha: Sha,
    /// Where they part.
    pub merge_base: Option<Sha>,
    /// Whether a merge has no conflict.
    pub mergeable: bool,
    /// Commits of head that base lacks.
    pub commits: u64,
    /// Lines added.
    pub additions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Files changed.
    pub changed_files: u64,
}

/// How a pull request was merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Who.
    pub by: UserId,
    /// When.
    pub at: Timestamp,
    /// The commit on the base branch.
    pub sha: Sha,
}

/// The pull request side of an issue.
#[derive(Debug, Clone)]
pub struct Pull {
    /// Branch it comes from, in the same repository.
    pub head: String,
    /// Branch it goes to.
    pub base: String,
    /// What git says of it.
    pub facts: PullFacts,
    /// Draft (GitHub; on Gitea the title says it).
    pub draft: bool,
    /// Set once merged.
    pub merged: Option<Merged>,
    /// Who is asked for review.
    pub requested: Vec<UserId>,
    /// Reviews, oldest first.
    pub reviews: Vec<Review>,
}

/// A review.
#[derive(Debug, Clone)]
pub struct Review {
    /// Id within the forge.
    pub id: i64,
    /// Who; `None` for a deleted account.
    pub author: Option<UserId>,
    /// Verdict.
    pub verdict: ReviewVerdict,
    /// Text.
    pub body: String,
    /// When.
    pub at: Timestamp,
    /// The commit it is about.
    pub commit: Sha,
    /// Remarks on lines.
    pub remarks: Vec<Remark>,
}

/// A commit status.
#[derive(Debug, Clone)]
pub struct Status {
    /// Id within the forge.
    pub id: i64,
    /// Commit.
    pub sha: Sha,
    /// Which check.
    pub context: String,
    /// `pending`, `success`, `failure`, `error`.
    pub state: String,
    /// One line.
    pub description: String,
    /// Page for people.
    pub target_url: String,
    /// Who set it.
    pub creator: UserId,
    /// When.
    pub at: Timestamp,
}

/// A check run with one job (GitHub).
#[derive(Debug, Clone)]
pub struct CheckRun {
    /// Id within the forge; also the id of its job.
    pub id: i64,
    /// Commit.
    pub sha: Sha,
    /// Name.
    pub name: String,
    /// `success`, `failure`, …; `None` while it runs.
    pub conclusion: Option<String>,
    /// Summary in Markdown.
    pub summary: String,
    /// Log of its job.
    pub log: String,
    /// When it began.
    pub at: Timestamp,
}

/// A webhook of a repository or an App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Id within the forge.
    pub id: i64,
    /// Where deliveries go.
    pub url: String,
    /// Key of the signature; may be empty.
    pub secret: String,
    /// Events it is subscribed to, in the forge's words; `*` is all.
    pub events: Vec<String>,
    /// Whether it delivers.
    pub active: bool,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A repository.
#[derive(Debug, Clone)]
pub struct Repo {
    /// Id within the forge.
    pub id: RepoId,
    /// Owner.
    pub owner: UserId,
    /// Name.
    pub name: String,
    /// Names (`owner/name`) it had before.
    pub former: Vec<String>,
    /// Branch that pulls go to by default.
    pub default_branch: String,
    /// Whether only collaborators see it.
    pub private: bool,
    /// Whether it takes no changes any more.
    pub archived: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// Rights beyond the owner's.
    pub access: BTreeMap<UserId, Access>,
    /// Branches that take no pushes.
    pub protected: BTreeSet<String>,
    /// Labels, oldest first.
    pub labels: Vec<Label>,
    /// Issues and pulls by number.
    pub issues: BTreeMap<Number, Issue>,
    /// Number the next issue gets.
    pub next_number: u64,
    /// Commit statuses, oldest first.
    pub statuses: Vec<Status>,
    /// Check runs, oldest first.
    pub check_runs: Vec<CheckRun>,
    /// Webhooks.
    pub hooks: Vec<Hook>,
}

/// A commit as far as webhooks tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedCommit {
    /// Name.
    pub sha: Sha,
    /// Tree.
    pub tree: Sha,
    /// Whole message.
    pub message: String,
    /// Author's name.
    pub author: String,
    /// Author's address.
    pub email: String,
    /// When it was committed.
    pub at: Timestamp,
}

/// A branch that moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// Branch.
    pub branch: String,
    /// `None` when the branch is new.
    pub before: Option<Sha>,
    /// `None` when it was deleted.
    pub after: Option<Sha>,
    /// Whether commits were lost from the branch.
    pub forced: bool,
    /// New commits, oldest first, at most 20.
    pub commits: Vec<PushedCommit>,
}

/// Something that webhooks tell of.
#[derive(Debug, Clone)]
pub enum Happened {
    /// A new issue.
    IssueOpened(Number),
    /// Title or body changed; the texts before.
    IssueEdited { number: Number, title: String, body: String },
    /// Closed.
    IssueClosed(Number),
    /// Opened again.
    IssueReopened(Number),
    /// Gone.
    IssueDeleted(Box<Issue>),
    /// The labels changed in one call.
    LabelsChanged { number: Number, added: Vec<Label>, removed: Vec<Label> },
    /// A new comment.
    CommentCreated(Number, CommentId),
    /// A comment's text changed; the text before.
    CommentEdited(Number, CommentId, String),
    /// A comment is gone.
    CommentDeleted(Number, Box<Comment>),
    /// A new pull request.
    PullOpened(Number),
    /// Title or body changed; the texts before.
    PullEdited { number: Number, title: String, body: String },
    /// Closed or merged.
    PullClosed(Number),
    /// Opened again.
    PullReopened(Number),
    /// New commits; the head before.
    PullSynchronized(Number, Sha),
    /// No draft any more.
    PullReady(Number),
    /// Somebody was asked for review.
    ReviewRequested(Number, UserId),
    /// A review was handed in.
    Reviewed(Number, i64),
    /// A branch moved.
    Pushed(Box<Push>),
    /// A commit status was set.
    StatusSet(i64),
    /// A check run was made or ended.
    CheckRunChanged(i64),
    /// The repository changed (`renamed`, `archived`, `privatized`, …); its name before.
    RepositoryChanged(&'static str, String),
    /// A hook was made (GitHub sends a ping).
    HookCreated(i64),
}

/// One thing that happened, and who did it.
#[derive(Debug, Clone)]
pub struct Event {
    /// Where.
    pub repo: RepoId,
    /// Who.
    pub actor: UserId,
    /// What.
    pub what: Happened,
}

/// Sorts of mutating operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpKind {
    IssueOpened,
    IssueEdited,
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

/// One mutating operation: what an oracle reads after a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// Position in the log, from 0.
    pub at_seq: u64,
    /// When, by the forge's clock.
    pub at: Timestamp,
    /// Who.
    pub actor: User,
    /// What sort.
    pub kind: OpKind,
    /// The text, label, branch or commit it was about.
    pub detail: String,
    /// Where.
    pub repo: RepoId,
    /// Issue or pull request, where it is about one.
    pub number: Option<Number>,
}

/// All that the forge knows.
#[derive(Debug)]
pub struct State {
    pub(super) clock: Clock,
    /// Accounts by id.
    pub accounts: BTreeMap<UserId, Account>,
    /// Tokens that are good, or were.
    pub tokens: BTreeMap<String, Token>,
    /// Teams of organisations.
    pub teams: Vec<Team>,
    /// What tokens of installations are narrowed to.
    pub narrowed: BTreeMap<String, apps::Narrowed>,
    /// GitHub Apps by id.
    pub apps: BTreeMap<i64, apps::App>,
    /// Requests of API quota left, and when the quota is renewed, by account (GitHub).
    pub quota: BTreeMap<Option<UserId>, (u32, Timestamp)>,
    /// Repositories by id.
    pub repos: BTreeMap<RepoId, Repo>,
    /// Mutating operations, oldest first.
    pub ops: Vec<Op>,
    /// Longest body the forge takes, in characters.
    pub body_limit: Option<usize>,
    /// Weakest right that may label and close.
    pub triage_needs: Access,
    /// Whether a repository can have only one label of a name.
    pub unique_labels: bool,
    pub(super) events: Vec<Event>,
    next_id: i64,
}

impl State {
    /// An empty forge.
    pub fn new(clock: Clock, triage_needs: Access, body_limit: Option<usize>) -> Self {
        Self {
            clock,
            accounts: BTreeMap::new(),
            tokens: BTreeMap::new(),
            teams: Vec::new(),
            narrowed: BTreeMap::new(),
            apps: BTreeMap::new(),
            quota: BTreeMap::new(),
            repos: BTreeMap::new(),
            ops: Vec::new(),
            body_limit,
            triage_needs,
            unique_labels: true,
            events: Vec::new(),
            next_id: 1000,
        }
    }

    /// One series for all ids, so that an id taken for another kind of id finds nothing.
    pub(super) fn fresh_id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    /// A repository by id.
    pub fn repo(&self, id: RepoId) -> Result<&Repo, Refusal> {
        self.repos.get(&id).ok_or_else(|| Refusal::NotFound(format!("repository {id}")))
    }

    /// A repository by id, to be changed.
    pub fn repo_mut(&mut self, id: RepoId) -> Result<&mut Repo, Refusal> {
        self.repos.get_mut(&id).ok_or_else(|| Refusal::NotFound(format!("repository {id}")))
    }

    /// What an account (`None`: anybody) may do.
    pub fn access(&self, repo: &Repo, user: Option<UserId>) -> Access {
        let public = if repo.private { Access::None } else { Access::Read };
        match user {
            Some(user) if user == repo.owner => Access::Admin,
            Some(user) => {
                let granted = repo.access.get(&user).copied().unwrap_or(Access::None);
                granted.max(self.installed_access(repo.id, user)).max(public)
            }
            None => public,
        }
    }

    /// Fails unless the account has at least the right `needed`; what it may not see is not found.
    pub fn require(&self, repo: RepoId, user: UserId, needed: Access) -> Result<(), Refusal> {
        let repo = self.repo(repo)?;
        let access = self.access(repo, Some(user));
        if access == Access::None {
            return Err(Refusal::NotFound(format!("repository {}", self.full_name(repo))));
        }
        if access < needed {
            let login = self.user(user).login;
            return Err(Refusal::Forbidden(format!("{login} needs {needed:?} in {}", self.full_name(repo))));
        }
        Ok(())
    }

    /// As `require`, for changes: an archived repository takes none.
    pub(super) fn require_change(&self, repo: RepoId, user: UserId, needed: Access) -> Result<(), Refusal> {
        self.require(repo, user, needed)?;
        if self.repo(repo)?.archived {
            return Err(Refusal::Forbidden("the repository is archived".to_owned()));
        }
        Ok(())
    }

    /// Records a push that git took already.
    pub fn pushed(&mut self, actor: UserId, repo: RepoId, push: Push) {
        let kind = match (&push.after, push.forced) {
            (None, _) => OpKind::BranchDeleted,
            (_, true) => OpKind::BranchForced,
            _ => OpKind::BranchPushed,
        };
        let after = push.after.as_ref().map_or("", Sha::as_str);
        self.log(actor, kind, repo, None, format!("{} {after}", push.branch));
        self.emit(repo, actor, Happened::Pushed(Box::new(push)));
    }

    pub(super) fn emit(&mut self, repo: RepoId, actor: UserId, what: Happened) {
        self.events.push(Event { repo, actor, what });
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
