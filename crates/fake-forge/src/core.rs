//! Core of the fake forge. Combines state, git and webhooks for actions that need more than the state.

use std::sync::{Mutex, PoisonError};

use url::Url;

use super::faults::Faults;
use super::git::{FileChange, GitStore, MAX_LISTED_COMMITS, MergeMethod, Signature};
use super::hooks::{Deliveries, Outgoing};
use super::state::apps::FakeApp;
use super::state::pulls::PullDraft;
use super::state::{Access, BranchPush, FakeEvent, FakeEventKind, FakeFork, FakeHook, FakeRefusal, FakeState};
use super::{Dialect, GiteaVersion, gitea, github};
use ralph_types::clock::Clock;
use ralph_types::ids::{Number, RepoId, Sha, Timestamp, UserId};

/// Fake forge.
#[derive(Debug)]
pub(super) struct Core {
    pub dialect: Dialect,
    pub clock: Clock,
    pub base: Url,
    pub git: GitStore,
    pub hooks: Deliveries,
    pub faults: Faults,
    state: Mutex<FakeState>,
    /// Lock that serializes pushes and merges, so each can determine the refs that it changed.
    refs: tokio::sync::Mutex<()>,
}

impl Core {
    pub fn new(dialect: Dialect, clock: Clock, base: Url) -> std::io::Result<Self> {
        let (triage_needs, body_limit) = match dialect {
            Dialect::Gitea => (Access::Write, None),
            Dialect::GitHub => (Access::Triage, Some(65_536)),
        };
        let mut state = FakeState::new(clock.clone(), triage_needs, body_limit);
        // Gitea allows several labels with the same name.
        state.unique_labels = dialect == Dialect::GitHub;
        state.keeps_requests = dialect == Dialect::Gitea;
        Ok(Self {
            dialect,
            base,
            git: GitStore::new()?,
            hooks: Deliveries::new(dialect, clock.clone()),
            faults: Faults::default(),
            state: Mutex::new(state),
            refs: tokio::sync::Mutex::default(),
            clock,
        })
    }

    /// Returns an address below the forge's root.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Reads or changes the state, and delivers emitted events to webhooks.
    pub fn act<R>(&self, action: impl FnOnce(&mut FakeState) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = action(&mut state);
        for event in std::mem::take(&mut state.events) {
            self.tell(&state, &event);
        }
        result
    }

    /// Queues deliveries of an event for the webhooks of its repository and of Apps.
    fn tell(&self, state: &FakeState, event: &FakeEvent) {
        let Ok(repo) = state.repo(event.repo) else { return };
        let render = |installation| match self.dialect {
            Dialect::Gitea => gitea::payload::render(self, state, event),
            Dialect::GitHub => github::payload::render(self, state, event, installation),
        };
        for hook in repo.hooks.iter().filter(|hook| hook.active) {
            if let (Dialect::GitHub, FakeEventKind::HookCreated(id)) = (self.dialect, &event.what)
                && *id == hook.id
            {
                self.hooks.send(github::payload::ping(self, state, repo, event.actor, hook).to(hook));
            }
            for payload in render(None).into_iter().filter(|payload| payload.wanted_by(hook)) {
                self.hooks.send(payload.to(hook));
            }
        }
        let installed =
            |app: &&FakeApp| app.installed && app.suspended_at.is_none() && !app.excluded.contains(&repo.id);
        for app in state.apps.values().filter(installed).filter(|app| app.hook.active) {
            for payload in render(Some(app.installation)).into_iter().filter(|payload| payload.wanted_by(&app.hook)) {
                self.hooks.send(payload.to(&app.hook));
            }
        }
    }

    /// Applies `change` to an App's installation and delivers the event to the App's webhook. The event consists of its
    /// name, its action, and the repository that was added (`true`) or removed.
    pub fn change_installation(
        &self,
        app: i64,
        event: (&'static str, &str),
        changed: Option<(RepoId, bool)>,
        change: impl FnOnce(&mut FakeApp, Timestamp),
    ) {
        self.act(|state| {
            let now = state.clock.now();
            let Some(entry) = state.apps.get_mut(&app) else { return };
            change(entry, now);
            let app = entry.clone();
            let payload = github::payload::of_installation(self, state, &app, event, changed);
            if app.hook.active {
                self.hooks.send(payload.to(&app.hook));
            }
        });
    }

    /// Creates a repository whose branch `main` has one commit with these files.
    pub async fn create_repo(
        &self,
        owner: &str,
        name: &str,
        files: &[(&str, &str, bool)],
    ) -> Result<RepoId, FakeRefusal> {
        let repo = self.act(|state| state.create_repo(owner, name, "main"))?;
        self.git.init(repo, "main").await?;
        if !files.is_empty() {
            let changes: Vec<FileChange> = files.iter().map(|(path, text, exec)| (*path, Some(*text), *exec)).collect();
            let by = Signature { name: owner, at: self.clock.now() };
            self.git.commit(repo, "main", None, &by, "Initial commit", &changes).await?;
        }
        Ok(repo)
    }

    /// Pushes a commit of files to a branch; a new branch starts at the default branch.
    pub async fn push_commit(
        &self,
        actor: UserId,
        repo: RepoId,
        branch: &str,
        files: &[FileChange<'_>],
        message: &str,
    ) -> Result<Sha, FakeRefusal> {
        let (login, default) = self.act(|state| {
            state.require_change(repo, actor, Access::Write)?;
            Ok((state.user(actor).login, state.repo(repo)?.default_branch.clone()))
        })?;
        let _turn = self.refs.lock().await;
        let before = self.git.branches(repo).await?;
        let tip = |name: &str| before.iter().find(|(known, _)| known == name).map(|(_, sha)| sha.clone());
        let onto = tip(branch).or_else(|| tip(&default));
        let by = Signature { name: &login, at: self.clock.now() };
        let sha = self.git.commit(repo, branch, onto.as_ref(), &by, message, files).await?;
        self.after_refs_moved(actor, repo, &before).await?;
        Ok(sha)
    }

    /// Moves a branch to an existing commit (a forced push); `None` deletes the branch.
    pub async fn move_branch(
        &self,
        actor: UserId,
        repo: RepoId,
        branch: &str,
        to: Option<&Sha>,
    ) -> Result<(), FakeRefusal> {
        self.act(|state| state.require_change(repo, actor, Access::Write))?;
        let _turn = self.refs.lock().await;
        let before = self.git.branches(repo).await?;
        if to.is_none() && !before.iter().any(|(known, _)| known == branch) {
            return Err(FakeRefusal::NotFound(format!("branch {branch}")));
        }
        self.git.set_branch(repo, branch, to).await?;
        self.after_refs_moved(actor, repo, &before).await
    }

    /// Runs an action that may move branches (`git http-backend`), and emits events for the moved branches.
    pub async fn while_refs_move<R>(
        &self,
        actor: UserId,
        repo: RepoId,
        work: impl Future<Output = Result<R, FakeRefusal>>,
    ) -> Result<R, FakeRefusal> {
        let _turn = self.refs.lock().await;
        let before = self.git.branches(repo).await?;
        let result = work.await?;
        self.after_refs_moved(actor, repo, &before).await?;
        Ok(result)
    }

    async fn after_refs_moved(&self, actor: UserId, repo: RepoId, before: &[(String, Sha)]) -> Result<(), FakeRefusal> {
        let after = self.git.branches(repo).await?;
        let find = |list: &[(String, Sha)], name: &str| -> Option<Sha> {
            list.iter().find(|(known, _)| known == name).map(|(_, sha)| sha.clone())
        };
        let mut names: Vec<&String> = before.iter().chain(&after).map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        let default = self.act(|state| state.repo(repo).map(|repo| repo.default_branch.clone()))?;
        for name in names {
            let (old, new) = (find(before, name), find(&after, name));
            if old == new {
                continue;
            }
            let forced = match (&old, &new) {
                (Some(old), Some(new)) => !self.git.is_ancestor(repo, old, new).await?,
                _ => false,
            };
            let commits = match &new {
                Some(new) => {
                    let known = old.clone().or_else(|| find(before, &default));
                    self.git.commits(repo, known.as_ref(), new, MAX_LISTED_COMMITS).await?
                }
                None => Vec::new(),
            };
            let head = match (&new, commits.last()) {
                (Some(new), None) => self.git.commits(repo, None, new, 1).await?.pop(),
                (_, newest) => newest.cloned(),
            };
            let push = BranchPush { branch: name.clone(), before: old, after: new, forced, commits, head };
            self.act(|state| state.pushed(actor, repo, push));
            self.refresh_pulls(actor, repo, name).await?;
            self.refresh_forked(actor, repo, name).await?;
        }
        Ok(())
    }

    /// Copies a repository to an account.
    pub async fn fork(&self, actor: UserId, repo: RepoId) -> Result<RepoId, FakeRefusal> {
        let (owner, name, branch) = self.act(|state| {
            state.require_change(repo, actor, Access::Read)?;
            let entry = state.repo(repo)?;
            Ok((state.user(actor).login, entry.name.clone(), entry.default_branch.clone()))
        })?;
        let fork = self.act(|state| state.create_repo(&owner, &name, &branch))?;
        self.git.init(fork, &branch).await?;
        self.git.copy(repo, "*", fork, "*").await?;
        Ok(fork)
    }

    /// Opens a pull request from a branch of a fork.
    pub async fn open_pull_from(
        &self,
        actor: UserId,
        (repo, from): (RepoId, FakeFork),
        draft: PullDraft,
    ) -> Result<Number, FakeRefusal> {
        let head = format!("fork-{}/{}", from.repo, from.branch);
        self.git.copy(from.repo, &from.branch, repo, &head).await?;
        let number = self.open_pull(actor, repo, &PullDraft { head, ..draft }).await?;
        self.act(|state| state.pull_mut(repo, number).map(|pull| pull.fork = Some(from)))?;
        Ok(number)
    }

    /// Copies a branch of a fork into the repositories with pull requests from there.
    async fn refresh_forked(&self, actor: UserId, fork: RepoId, branch: &str) -> Result<(), FakeRefusal> {
        for (repo, _, head) in self.act(|state| state.pulls_from_fork(fork, branch)) {
            match self.git.branch(fork, branch).await? {
                Some(_) => self.git.copy(fork, branch, repo, &head).await?,
                None => self.git.set_branch(repo, &head, None).await?,
            }
            self.refresh_pulls(actor, repo, &head).await?;
        }
        Ok(())
    }

    async fn refresh_pulls(&self, actor: UserId, repo: RepoId, branch: &str) -> Result<(), FakeRefusal> {
        let concerned: Vec<(Number, String, String)> = self.act(|state| {
            let pulls = state.pulls(repo).into_iter();
            let concerned = pulls.filter(|(issue, pull)| issue.open && (pull.head == branch || pull.base == branch));
            concerned.map(|(issue, pull)| (issue.number, pull.head.clone(), pull.base.clone())).collect()
        });
        for (number, head, base) in concerned {
            match self.git.pull_facts(repo, &head, &base).await {
                Ok(facts) => self.act(|state| state.refresh_pull(actor, repo, number, facts))?,
                // After the branch is deleted, GitHub and Gitea close the pull request.
                Err(FakeRefusal::NotFound(_)) => self.act(|state| state.set_open(actor, repo, number, false))?,
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Opens a pull request between two branches of the repository.
    pub async fn open_pull(&self, actor: UserId, repo: RepoId, draft: &PullDraft) -> Result<Number, FakeRefusal> {
        self.act(|state| state.require_change(repo, actor, Access::Read))?;
        if draft.head == draft.base {
            return Err(FakeRefusal::Invalid("there are no changes between the head and the base".to_owned()));
        }
        let facts = self.git.pull_facts(repo, &draft.head, &draft.base).await?;
        if self.dialect == Dialect::GitHub && facts.commits == 0 {
            return Err(FakeRefusal::Invalid(format!("No commits between {} and {}", draft.base, draft.head)));
        }
        self.act(|state| state.open_pull(actor, repo, draft, facts))
    }

    /// Changes the base branch of a pull request.
    pub async fn retarget(&self, actor: UserId, repo: RepoId, number: Number, base: &str) -> Result<(), FakeRefusal> {
        let head = self.act(|state| {
            state.require_change(repo, actor, Access::Write)?;
            Ok(state.pull(repo, number)?.1.head.clone())
        })?;
        let facts = self.git.pull_facts(repo, &head, base).await?;
        self.act(|state| {
            let before = std::mem::replace(&mut state.pull_mut(repo, number)?.base, base.to_owned());
            state.refresh_pull(actor, repo, number, facts)?;
            state.tell_retargeted(actor, repo, number, before)
        })
    }

    /// Merges a pull request and returns the commit on the base branch. Fails if `expected` is not the head.
    pub async fn merge(
        &self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        method: MergeMethod,
        expected: Option<&str>,
    ) -> Result<Sha, FakeRefusal> {
        let _turn = self.refs.lock().await;
        let (head, base, title, login) = self.act(|state| {
            state.require_change(repo, actor, Access::Write)?;
            let (issue, pull) = state.pull(repo, number)?;
            if !issue.open {
                return Err(FakeRefusal::NotMergeable("the pull request is closed".to_owned()));
            }
            if pull.draft || (self.dialect == Dialect::Gitea && gitea::is_work_in_progress(&issue.title)) {
                return Err(FakeRefusal::NotMergeable("the pull request is a draft".to_owned()));
            }
            if let Some(unmet) = state.unmet_rule(repo, number)? {
                return Err(FakeRefusal::NotMergeable(unmet));
            }
            Ok((pull.head.clone(), pull.base.clone(), issue.title.clone(), state.user(actor).login))
        })?;
        let facts = self.git.pull_facts(repo, &head, &base).await?;
        if expected.is_some_and(|expected| expected != facts.head_sha.as_str()) {
            return Err(FakeRefusal::Conflict(format!("the head moved to {}", facts.head_sha)));
        }
        let message = match method {
            MergeMethod::Squash => format!("{title} (#{number})"),
            _ => format!("Merge pull request #{number} from {head}\n\n{title}"),
        };
        let by = Signature { name: &login, at: self.clock.now() };
        let merged = self.git.merge(repo, method, &facts, &by, &message).await?;
        let sha = merged.ok_or_else(|| FakeRefusal::NotMergeable("there are conflicts".to_owned()))?;
        let before = self.git.branches(repo).await?;
        self.git.set_branch(repo, &base, Some(&sha)).await?;
        self.act(|state| state.merged(actor, repo, number, sha.clone()))?;
        self.after_refs_moved(actor, repo, &before).await?;
        Ok(sha)
    }

    /// Merges the pull requests that have an automatic merge and satisfy the rules.
    pub async fn settle_auto_merges(&self) {
        // Gitea before 1.24.3 may accept an automatic merge and lose it.
        if self.dialect == Dialect::Gitea && self.act(|state| state.gitea) == GiteaVersion::V1_22 {
            return;
        }
        for (repo, number, by, method) in self.act(|state| state.due_auto_merges()) {
            // The merge is tried only once, regardless of its result.
            self.act(|state| {
                if let Some(pull) = state.pull_of(repo, number) {
                    pull.auto_merge = None;
                }
            });
            if let Err(refusal) = self.merge(by, repo, number, method, None).await {
                tracing::debug!(%refusal, "an automatic merge failed");
            }
        }
    }

    /// Sets whether a branch is protected.
    pub fn protect(&self, repo: RepoId, branch: &str, protected: bool) -> Result<(), FakeRefusal> {
        let branches: Vec<String> = self.act(|state| {
            let entry = state.repo_mut(repo)?;
            if protected {
                entry.protected.insert(branch.to_owned());
            } else {
                entry.protected.remove(branch);
            }
            Ok(entry.protected.iter().cloned().collect())
        })?;
        self.git.protect(repo, &branches).map_err(|error| FakeRefusal::Git(format!("protect {branch}: {error}")))
    }
}

/// Event and body of a webhook.
#[derive(Debug)]
pub(super) struct Payload {
    /// Event header (`issues`) and exact type (`issue_label`).
    pub event: (String, String),
    pub body: String,
    /// Subscriptions that include the event.
    pub covered_by: Vec<&'static str>,
}

impl Payload {
    fn wanted_by(&self, hook: &FakeHook) -> bool {
        hook.events.iter().any(|event| event == "*" || self.covered_by.contains(&event.as_str()))
    }

    /// Converts the payload to a delivery for a webhook.
    pub fn to(self, hook: &FakeHook) -> Outgoing {
        let (hook, url, secret) = (hook.id, hook.url.clone(), hook.secret.clone());
        Outgoing { hook, url, secret, event: self.event, body: self.body, id: None }
    }
}

/// Returns the issue number of an event; `None` if it does not refer to an issue.
pub(super) fn issue_number(what: &FakeEventKind) -> Option<Number> {
    match what {
        FakeEventKind::IssueOpened(number)
        | FakeEventKind::IssueEdited { number, .. }
        | FakeEventKind::IssueClosed(number)
        | FakeEventKind::IssueReopened(number)
        | FakeEventKind::LabelsChanged { number, .. }
        | FakeEventKind::CommentCreated(number, _)
        | FakeEventKind::Replied(number, _)
        | FakeEventKind::CommentEdited(number, _, _)
        | FakeEventKind::CommentDeleted(number, _)
        | FakeEventKind::PullOpened(number)
        | FakeEventKind::PullEdited { number, .. }
        | FakeEventKind::PullRetargeted(number, _)
        | FakeEventKind::IssueAssigned(number)
        | FakeEventKind::PullClosed(number)
        | FakeEventKind::PullReopened(number)
        | FakeEventKind::PullSynchronized(number, _)
        | FakeEventKind::PullReady(number)
        | FakeEventKind::PullDraft(number)
        | FakeEventKind::MergeLeft(number, _)
        | FakeEventKind::ReviewRequested(number, _)
        | FakeEventKind::Reviewed(number, _) => Some(*number),
        FakeEventKind::IssueDeleted(issue) => Some(issue.number),
        FakeEventKind::Pushed(_)
        | FakeEventKind::StatusSet(_)
        | FakeEventKind::CheckRunChanged(_)
        | FakeEventKind::RepositoryChanged(..)
        | FakeEventKind::HookCreated(_) => None,
    }
}
