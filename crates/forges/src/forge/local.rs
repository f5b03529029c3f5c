//! Adapter for a local repository without a forge. The task is an issue, the pushed branch is a pull request, and
//! messages are sent to a listener. State is kept in memory only; the state of earlier runs is restored from their loops.

mod repository;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use pulldown_cmark::{Event, Options, Parser, html};
use ralph_types::failure::Failure;
use sha2::{Digest, Sha256};
use url::Url;

use super::{
    Capabilities, Drafts, Forge, ForgeError, ForgeErrorKind, ForgeResult, GitAccess, LabelSpec, NewIssue, NewPull,
    Permission, Polling, Repository, ServerInfo,
};
use crate::clock::Clock;
use crate::domain::loops::{Loop, LoopState};
use crate::domain::model::authorship::CommitAuthor;
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, PullSnapshot};
use crate::domain::model::ids::{
    AccountKind, CommentId, ForgeName, Number, RepoId, RepoRef, Sha, Timestamp, User, UserId,
};
use crate::domain::trust::outbound::{BodyText, Outbound, TitleText};
use crate::domain::trust::sanitize::document::has_markup;
use repository::{OpenedRepository, git};

/// Name of the forge in references to the repository.
pub const NAME: &str = "local";
/// Numeric id of the bot's account.
const OWN: UserId = UserId(1);
/// Numeric id of the account of the user who gave the task.
const USER: UserId = UserId(2);

/// Message that an adapter for a forge would post.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum LocalMessage {
    /// Comment in Markdown.
    Comment { on: Number, body: String },
    /// Issue that requires a person's attention.
    Issue { title: String, body: String },
    /// Opened pull request.
    Pull { title: String, head: String, base: String },
}

/// Receiver of messages.
pub type MessageListener = Box<dyn Fn(LocalMessage) + Send + Sync>;

/// Adapter for a local repository.
pub struct Local {
    name: ForgeName,
    repo: RepoRef,
    default_branch: String,
    branch_ref: String,
    /// The user's identity in git; `None` if none is configured.
    author: Option<CommitAuthor>,
    url: String,
    git_dir: PathBuf,
    path: OsString,
    home: String,
    clock: Clock,
    listener: MessageListener,
    state: Mutex<LocalState>,
}

#[derive(Default)]
struct LocalState {
    issues: HashMap<u64, IssueSnapshot>,
    pulls: HashMap<u64, PullSnapshot>,
    comments: Vec<(Number, CommentSnapshot)>,
    next_number: u64,
    next_comment: i64,
}

/// Returns the error for a missing object.
fn not_found(what: &str) -> ForgeError {
    ForgeError {
        kind: ForgeErrorKind::NotFound,
        what: what.to_owned(),
        detail: "it does not exist".into(),
        cause: None,
    }
}

/// Renders Markdown, because there is no forge that does.
fn page(markdown: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = Parser::new_ext(markdown, options).map(|event| match event {
        Event::SoftBreak => Event::HardBreak,
        other => other,
    });
    let mut page = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut page, events);
    page
}

fn conflict(what: &str, detail: String) -> ForgeError {
    ForgeError { kind: ForgeErrorKind::Conflict, what: what.to_owned(), detail, cause: None }
}

impl Local {
    /// Opens the repository that contains the folder `dir`. git is looked up in `path` and uses the home `home`.
    ///
    /// # Errors
    /// A message for people: no repository, no branch checked out, no commit, missing objects, or a path that cannot be used.
    pub async fn open(
        dir: &Path,
        path: OsString,
        home: &str,
        clock: Clock,
        listener: MessageListener,
    ) -> Result<Self, Failure> {
        let dir = dir.canonicalize().map_err(|error| Failure::new(dir.display().to_string()).caused_by(error))?;
        let OpenedRepository { git_dir, branch, branch_ref, author } = repository::opened(&dir, &path, home).await?;
        // The name comes from the folder; branches are in the common git directory of all work trees.
        let folder = if git_dir.ends_with(".git") { git_dir.parent().unwrap_or(&git_dir) } else { &git_dir };
        let url = Url::from_file_path(&git_dir)
            .map_err(|()| Failure::new(format!("cannot convert {} to an address", git_dir.display())))?;
        let repo = RepoRef {
            forge: ForgeName::new(NAME),
            id: id_of(&git_dir),
            owner: NAME.to_owned(),
            name: folder.file_name().map_or_else(|| "repository".into(), |name| name.to_string_lossy().into_owned()),
        };
        let state = Mutex::new(LocalState { next_number: 1, next_comment: 1, ..LocalState::default() });
        let (name, url, home) = (ForgeName::new(NAME), url.to_string(), home.to_owned());
        Ok(Self {
            name,
            repo,
            default_branch: branch,
            branch_ref,
            author,
            url,
            git_dir,
            path,
            home,
            clock,
            listener,
            state,
        })
    }

    /// Returns the repository.
    pub fn repo(&self) -> &RepoRef {
        &self.repo
    }

    /// Returns the checked-out branch, from which work starts.
    pub fn default_branch(&self) -> &str {
        &self.default_branch
    }

    /// Returns the name of that branch for git commands, which no tag has.
    pub fn branch_ref(&self) -> &str {
        &self.branch_ref
    }

    /// Returns the account of the user.
    pub fn user(&self) -> User {
        User { id: USER, login: "you".into(), kind: AccountKind::User }
    }

    /// Restores the issue and the pull request of a loop from an earlier run.
    pub fn restore(&self, known: &Loop) {
        let mut state = self.lock();
        let task = &known.task;
        let issue =
            self.new_issue(known.issue.issue, task.text.title(), task.text.body(), task.labels.clone(), self.user());
        state.next_number = state.next_number.max(issue.number.0 + 1);
        state.issues.insert(issue.number.0, issue);
        let Some(pull) = &known.pull.opened else { return };
        let mut issue = self.new_issue(pull.number, task.text.title(), "", Vec::new(), self.own());
        issue.is_pull = true;
        state.issues.insert(pull.number.0, issue);
        state.next_number = state.next_number.max(pull.number.0 + 1);
        let head = known.branch.pushed.clone().or_else(|| known.branch.head.clone());
        let Some(head_sha) = head else { return };
        let snapshot = PullSnapshot {
            number: pull.number,
            head_branch: known.branch.name.clone(),
            head_repo: Some(self.repo.id),
            head_repo_name: self.repo.full_name(),
            maintainers_may_push: false,
            head_sha,
            base_branch: known.branch.base_branch.clone(),
            open: true,
            merged: false,
            draft: known.state != LoopState::Review,
            mergeable: None,
            url: self.url.clone(),
        };
        state.pulls.insert(pull.number.0, snapshot);
    }

    /// Adds the task as an issue. Its number is greater than `above` and than the numbers of all branches
    /// `prefix<number>-…`, so that branches of earlier runs are not reused.
    ///
    /// # Errors
    /// git cannot list the branches.
    pub async fn add_task(&self, title: &str, body: &str, prefix: &str, above: Number) -> ForgeResult<IssueSnapshot> {
        let pattern = format!("refs/heads/{prefix}");
        let listed = self.git(&["for-each-ref", "--format=%(refname)", pattern.trim_end_matches('/')]).await?;
        let used =
            listed.lines().filter_map(|line| line.strip_prefix(&pattern)?.split('-').next()?.parse::<u64>().ok());
        let mut state = self.lock();
        let number = Number((used.max().unwrap_or(0).max(above.0) + 1).max(state.next_number));
        state.next_number = number.0 + 1;
        let issue = self.new_issue(number, title, body, Vec::new(), self.user());
        state.issues.insert(number.0, issue.clone());
        Ok(issue)
    }

    fn new_issue(&self, number: Number, title: &str, body: &str, labels: Vec<String>, author: User) -> IssueSnapshot {
        IssueSnapshot {
            number,
            title: title.to_owned(),
            body: body.to_owned(),
            html: has_markup(body).then(|| page(body)),
            author: Some(author),
            labels,
            open: true,
            is_pull: false,
            locked: false,
            updated_at: self.clock.now(),
            url: self.url.clone(),
        }
    }

    fn own(&self) -> User {
        User { id: OWN, login: "ralph-bot".into(), kind: AccountKind::Bot }
    }

    fn lock(&self) -> MutexGuard<'_, LocalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn git(&self, args: &[&str]) -> ForgeResult<String> {
        git(&self.git_dir, &self.path, &self.home, args).await.map_err(|failure| ForgeError {
            kind: ForgeErrorKind::Transient { after_ms: None, ambiguous: false },
            what: format!("git {} in {}", args.first().copied().unwrap_or_default(), self.git_dir.display()),
            detail: format!("{failure:#}"),
            cause: Some(failure),
        })
    }

    fn change_issue(&self, number: Number, change: impl FnOnce(&mut IssueSnapshot)) -> ForgeResult<()> {
        let mut state = self.lock();
        let issue = state.issues.get_mut(&number.0).ok_or_else(|| not_found(&format!("read #{number}")))?;
        change(issue);
        issue.updated_at = self.clock.now();
        Ok(())
    }

    /// Returns the newest commit of a branch.
    async fn head_of(&self, name: &str) -> ForgeResult<Option<Sha>> {
        let full = format!("refs/heads/{name}");
        let listed = self.git(&["for-each-ref", "--format=%(objectname) %(refname)", &full]).await?;
        // `for-each-ref` also lists branches below a prefix.
        let exact = listed.lines().filter_map(|line| line.split_once(' ')).find(|(_, found)| *found == full);
        Ok(exact.and_then(|(sha, _)| Sha::parse(sha)))
    }

    /// Updates a pull request from the repository's branches: its head commit; closed if its branch was deleted;
    /// merged if the base contains it.
    async fn with_current_head(&self, pull: Option<PullSnapshot>) -> ForgeResult<Option<PullSnapshot>> {
        let Some(mut pull) = pull else { return Ok(None) };
        match self.head_of(&pull.head_branch).await? {
            Some(head) => {
                let base = format!("refs/heads/{}", pull.base_branch);
                let args = ["for-each-ref", "--contains", head.as_str(), "--format=%(refname)", &base];
                pull.merged = self.git(&args).await?.lines().any(|line| line == base);
                pull.head_sha = head;
            }
            None => pull.open = false,
        }
        pull.open &= !pull.merged;
        Ok(Some(pull))
    }

    /// Fails for another repository, whose loops the data folder can also contain.
    fn only_own(&self, repo: &RepoRef, what: &str) -> ForgeResult<()> {
        if repo.id == self.repo.id {
            return Ok(());
        }
        Err(ForgeError {
            kind: ForgeErrorKind::Transient { after_ms: None, ambiguous: false },
            what: what.to_owned(),
            detail: format!("only {} is open", self.repo),
            cause: None,
        })
    }
}

/// Returns a numeric id for a repository that is derived from its path, so that later runs find its mirror and loops.
fn id_of(git_dir: &Path) -> RepoId {
    let digest = Sha256::digest(git_dir.as_os_str().as_encoded_bytes());
    let head = digest.iter().take(8).fold(0_u64, |id, byte| id << 8 | u64::from(*byte));
    RepoId((head >> 12) as i64)
}

#[async_trait]
impl Forge for Local {
    fn meter(&self) -> Option<&crate::forge::http::CallMeter> {
        None
    }

    fn name(&self) -> &ForgeName {
        &self.name
    }

    async fn server_info(&self) -> ForgeResult<ServerInfo> {
        Ok(ServerInfo { product: "a local repository".into(), label_deltas: true, partial_clone: false })
    }

    async fn own_account(&self) -> ForgeResult<User> {
        Ok(self.own())
    }

    async fn commit_author(&self) -> ForgeResult<Option<CommitAuthor>> {
        Ok(self.author.clone())
    }

    async fn repositories(&self) -> ForgeResult<Vec<Repository>> {
        Ok(vec![self.repository(&self.repo).await?])
    }

    async fn repository(&self, repo: &RepoRef) -> ForgeResult<Repository> {
        if repo.id != self.repo.id {
            return Err(not_found(&format!("read {repo}")));
        }
        Ok(Repository {
            repo: self.repo.clone(),
            default_branch: self.default_branch.clone(),
            private: true,
            archived: false,
            issues_enabled: true,
            empty: false,
        })
    }

    async fn permission(&self, _repo: &RepoRef, user: &User) -> ForgeResult<Permission> {
        Ok(if user.id == USER { Permission::Admin } else { Permission::None })
    }

    async fn issue(&self, repo: &RepoRef, number: Number) -> ForgeResult<IssueSnapshot> {
        self.only_own(repo, &format!("read #{number}"))?;
        self.lock().issues.get(&number.0).cloned().ok_or_else(|| not_found(&format!("read #{number}")))
    }

    async fn render(&self, _repo: &RepoRef, markdown: &str) -> ForgeResult<String> {
        Ok(page(markdown))
    }

    async fn open_issues_with_label(&self, _repo: &RepoRef, label: &str) -> ForgeResult<Vec<IssueSnapshot>> {
        let state = self.lock();
        let has_label =
            |issue: &&IssueSnapshot| issue.open && !issue.is_pull && issue.labels.iter().any(|l| l == label);
        Ok(state.issues.values().filter(has_label).cloned().collect())
    }

    async fn create_issue(&self, _repo: &RepoRef, issue: &NewIssue) -> ForgeResult<IssueSnapshot> {
        let created = {
            let mut state = self.lock();
            let number = Number(state.next_number);
            state.next_number += 1;
            let created =
                self.new_issue(number, issue.title.as_str(), issue.body.as_str(), issue.labels.clone(), self.own());
            state.issues.insert(number.0, created.clone());
            created
        };
        (self.listener)(LocalMessage::Issue {
            title: issue.title.as_str().to_owned(),
            body: issue.body.as_str().to_owned(),
        });
        Ok(created)
    }

    async fn set_issue_open(&self, _repo: &RepoRef, number: Number, open: bool) -> ForgeResult<()> {
        self.change_issue(number, |issue| issue.open = open)
    }

    async fn ensure_labels(&self, _repo: &RepoRef, _labels: &[LabelSpec]) -> ForgeResult<usize> {
        Ok(0)
    }

    async fn add_labels(&self, _repo: &RepoRef, number: Number, labels: &[String]) -> ForgeResult<()> {
        self.change_issue(number, |issue| {
            for label in labels {
                if !issue.labels.contains(label) {
                    issue.labels.push(label.clone());
                }
            }
        })
    }

    async fn remove_label(&self, _repo: &RepoRef, number: Number, label: &str) -> ForgeResult<()> {
        self.change_issue(number, |issue| issue.labels.retain(|present| present != label))
    }

    async fn comments(
        &self,
        _repo: &RepoRef,
        number: Number,
        since: Option<Timestamp>,
    ) -> ForgeResult<Vec<CommentSnapshot>> {
        let state = self.lock();
        let matching =
            state.comments.iter().filter(|(on, c)| *on == number && since.is_none_or(|at| c.created_at >= at));
        Ok(matching.map(|(_, comment)| comment.clone()).collect())
    }

    async fn create_comment(
        &self,
        _repo: &RepoRef,
        number: Number,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<CommentSnapshot> {
        let comment = {
            let mut state = self.lock();
            if !state.issues.contains_key(&number.0) {
                return Err(not_found(&format!("create a comment on #{number}")));
            }
            let comment = CommentSnapshot {
                id: CommentId(state.next_comment),
                body: body.as_str().to_owned(),
                html: None,
                author: Some(self.own()),
                created_at: self.clock.now(),
                edited: false,
                url: self.url.clone(),
            };
            state.next_comment += 1;
            state.comments.push((number, comment.clone()));
            comment
        };
        (self.listener)(LocalMessage::Comment { on: number, body: body.as_str().to_owned() });
        Ok(comment)
    }

    async fn edit_comment(&self, _repo: &RepoRef, id: CommentId, body: &Outbound<BodyText>) -> ForgeResult<()> {
        let mut state = self.lock();
        let found = state.comments.iter_mut().find(|(_, comment)| comment.id == id);
        let (_, comment) = found.ok_or_else(|| not_found(&format!("edit comment {id}")))?;
        body.as_str().clone_into(&mut comment.body);
        comment.edited = true;
        Ok(())
    }

    async fn delete_comment(&self, _repo: &RepoRef, id: CommentId) -> ForgeResult<()> {
        self.lock().comments.retain(|(_, comment)| comment.id != id);
        Ok(())
    }

    async fn pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<PullSnapshot> {
        self.only_own(repo, &format!("read pull request #{number}"))?;
        let known = self.lock().pulls.get(&number.0).cloned();
        self.with_current_head(known).await?.ok_or_else(|| not_found(&format!("read pull request #{number}")))
    }

    async fn find_pull(&self, _repo: &RepoRef, head: &str, _base: &str) -> ForgeResult<Option<PullSnapshot>> {
        let known = self.lock().pulls.values().filter(|p| p.head_branch == head).max_by_key(|p| p.number).cloned();
        self.with_current_head(known).await
    }

    async fn create_pull(&self, _repo: &RepoRef, pull: &NewPull) -> ForgeResult<PullSnapshot> {
        let what = format!("open a pull request from {}", pull.head);
        let head = self.head_of(&pull.head).await?.ok_or_else(|| not_found(&what))?;
        let created = {
            let mut state = self.lock();
            if state.pulls.values().any(|known| known.open && known.head_branch == pull.head) {
                return Err(conflict(&what, "the branch has an open pull request".into()));
            }
            let number = Number(state.next_number);
            state.next_number += 1;
            let mut issue = self.new_issue(number, pull.title.as_str(), pull.body.as_str(), Vec::new(), self.own());
            issue.is_pull = true;
            state.issues.insert(number.0, issue);
            let created = PullSnapshot {
                number,
                head_branch: pull.head.clone(),
                head_repo: Some(self.repo.id),
                head_repo_name: self.repo.full_name(),
                maintainers_may_push: false,
                head_sha: head,
                base_branch: pull.base.clone(),
                open: true,
                merged: false,
                draft: pull.draft,
                mergeable: None,
                url: self.url.clone(),
            };
            state.pulls.insert(number.0, created.clone());
            created
        };
        (self.listener)(LocalMessage::Pull {
            title: pull.title.as_str().to_owned(),
            head: pull.head.clone(),
            base: pull.base.clone(),
        });
        Ok(created)
    }

    async fn update_pull(
        &self,
        _repo: &RepoRef,
        number: Number,
        title: &Outbound<TitleText>,
        body: &Outbound<BodyText>,
    ) -> ForgeResult<()> {
        self.change_issue(number, |issue| {
            title.as_str().clone_into(&mut issue.title);
            body.as_str().clone_into(&mut issue.body);
        })
    }

    async fn git_access(&self, _repo: &RepoRef, _push: bool) -> ForgeResult<GitAccess> {
        Ok(GitAccess { url: self.url.clone(), credential: None, settling_ms: 0 })
    }
}

impl Capabilities for Local {
    capabilities! { polling: Polling, drafts: Drafts }
}

#[async_trait]
impl Polling for Local {
    async fn issues_changed_since(&self, _repo: &RepoRef, since: Timestamp) -> ForgeResult<Vec<IssueSnapshot>> {
        let state = self.lock();
        Ok(state.issues.values().filter(|issue| issue.updated_at >= since).cloned().collect())
    }

    async fn comments_changed_since(
        &self,
        _repo: &RepoRef,
        since: Timestamp,
    ) -> ForgeResult<Vec<(Number, CommentSnapshot)>> {
        Ok(self.lock().comments.iter().filter(|(_, c)| c.created_at >= since).cloned().collect())
    }
}

#[async_trait]
impl Drafts for Local {
    async fn set_pull_ready(&self, _repo: &RepoRef, number: Number) -> ForgeResult<()> {
        let mut state = self.lock();
        let pull = state.pulls.get_mut(&number.0).ok_or_else(|| not_found(&format!("read pull request #{number}")))?;
        pull.draft = false;
        Ok(())
    }

    async fn set_pull_draft(&self, _repo: &RepoRef, number: Number) -> ForgeResult<()> {
        let mut state = self.lock();
        let pull = state.pulls.get_mut(&number.0).ok_or_else(|| not_found(&format!("read pull request #{number}")))?;
        pull.draft = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

    async fn run(dir: &Path, args: &[&str]) {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=trunk"];
        let all: Vec<&str> = who.into_iter().chain(args.iter().copied()).collect();
        git(dir, &PATH.into(), "/", &all).await.expect("git runs");
    }

    async fn open(dir: &Path) -> Result<(Local, Arc<Mutex<Vec<LocalMessage>>>), Failure> {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let sink = messages.clone();
        let listener = Box::new(move |listener| sink.lock().expect("not poisoned").push(listener));
        Ok((Local::open(dir, PATH.into(), "/", Clock::System, listener).await?, messages))
    }

    #[tokio::test]
    async fn folder_without_commit_or_repository_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let why = async |dir: &Path| format!("{:#}", open(dir).await.map(drop).expect_err("refused"));
        assert!(why(&folder.path().join("gone")).await.contains("No such file"));
        assert!(why(folder.path()).await.contains("is not in a git repository"));
        run(folder.path(), &["init", "--quiet"]).await;
        assert!(why(folder.path()).await.contains("has no commit"));
    }

    #[tokio::test]
    async fn messages_are_reported_and_kept_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        run(folder.path(), &["init", "--quiet"]).await;
        run(folder.path(), &["commit", "--quiet", "--allow-empty", "-m", "first"]).await;
        run(folder.path(), &["branch", "ralph/3-old"]).await;
        std::fs::create_dir(folder.path().join("below")).expect("made");
        let (local, messages) = open(&folder.path().join("below")).await.expect("opened");
        let repo = local.repo().clone();
        assert_eq!(local.default_branch(), "trunk");
        let task = local.add_task("Fix", "it", "ralph/", Number(2)).await.expect("added");
        assert_eq!(task.number, Number(4), "above the branches that are there");

        let comment = local.create_comment(&repo, task.number, &Outbound::of_test("one")).await.expect("said");
        local.edit_comment(&repo, comment.id, &Outbound::of_test("two")).await.expect("edited");
        assert_eq!(local.comments(&repo, task.number, None).await.expect("read")[0].body, "two");
        let absent = local.create_comment(&repo, Number(99), &Outbound::of_test("x")).await.expect_err("no such issue");
        assert_eq!(absent.kind, ForgeErrorKind::NotFound);

        let new = |head: &str| NewPull {
            title: "Fix".into(),
            body: "".into(),
            head: head.into(),
            base: "trunk".into(),
            draft: true,
        };
        let missing = local.create_pull(&repo, &new("ralph/3")).await.expect_err("a prefix of a branch is none");
        assert_eq!(missing.kind, ForgeErrorKind::NotFound);
        let pull = local.create_pull(&repo, &new("ralph/3-old")).await.expect("opened");
        let again = local.create_pull(&repo, &new("ralph/3-old")).await.expect_err("there is one");
        assert_eq!(again.kind, ForgeErrorKind::Conflict);
        local.set_pull_ready(&repo, pull.number).await.expect("ready");
        let found = local.find_pull(&repo, "ralph/3-old", "main").await.expect("looked up").expect("there");
        assert_eq!((found.number, found.draft), (Number(5), false));
        let posted = messages.lock().expect("not poisoned").clone();
        assert!(matches!(posted.as_slice(), [LocalMessage::Comment { .. }, LocalMessage::Pull { .. }]), "{posted:?}");
    }

    #[tokio::test]
    async fn only_the_user_has_permission() {
        let folder = tempfile::tempdir().expect("a folder");
        run(folder.path(), &["init", "--quiet"]).await;
        run(folder.path(), &["commit", "--quiet", "--allow-empty", "-m", "first"]).await;
        let (local, _) = open(folder.path()).await.expect("opened");
        let repo = local.repo().clone();
        let other = User { id: UserId(3), login: "you".into(), kind: AccountKind::User };
        assert_eq!(local.permission(&repo, &local.user()).await.expect("asked"), Permission::Admin);
        assert_eq!(local.permission(&repo, &other).await.expect("asked"), Permission::None);
        assert!(local.webhooks().is_none() && local.teams().is_none());
        let elsewhere = RepoRef { id: RepoId(repo.id.0 + 1), ..repo };
        assert_eq!(local.repository(&elsewhere).await.expect_err("another").kind, ForgeErrorKind::NotFound);
    }
}
