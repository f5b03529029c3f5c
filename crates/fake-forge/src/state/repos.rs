//! Actions on repositories, permissions and webhooks.

use std::collections::{BTreeMap, BTreeSet};

use super::{Access, FakeEventKind, FakeHook, FakeRefusal, FakeRepo, FakeState, OpKind};
use ralph_types::ids::{AccountKind, RepoId, UserId};

impl FakeState {
    /// Creates a repository; creates a missing owner as an organization.
    pub fn create_repo(&mut self, owner: &str, name: &str, default_branch: &str) -> Result<RepoId, FakeRefusal> {
        let owner = self.add_account(owner, AccountKind::User, true);
        if self.find_repo(&owner.login, name).is_ok() {
            return Err(FakeRefusal::Conflict(format!("the repository {}/{name} exists already", owner.login)));
        }
        let id = RepoId(self.fresh_id());
        let repo = FakeRepo {
            id,
            owner: owner.id,
            name: name.to_owned(),
            former: Vec::new(),
            default_branch: default_branch.to_owned(),
            private: false,
            archived: false,
            has_issues: true,
            created_at: self.clock.now(),
            access: BTreeMap::new(),
            rules: Vec::new(),
            protected: BTreeSet::new(),
            merge_rules: BTreeMap::new(),
            auto_merge_allowed: false,
            labels: Vec::new(),
            issues: BTreeMap::new(),
            next_number: 1,
            statuses: Vec::new(),
            check_runs: Vec::new(),
            hooks: Vec::new(),
        };
        self.repos.insert(id, repo);
        Ok(id)
    }

    /// Returns a repository by name; `Moved` for a previous name.
    pub fn find_repo(&self, owner: &str, name: &str) -> Result<&FakeRepo, FakeRefusal> {
        let wanted = format!("{owner}/{name}");
        let named = |repo: &&FakeRepo| self.full_name(repo).eq_ignore_ascii_case(&wanted);
        if let Some(repo) = self.repos.values().find(named) {
            return Ok(repo);
        }
        match self.repos.values().find(|repo| repo.former.iter().any(|old| old.eq_ignore_ascii_case(&wanted))) {
            Some(repo) => Err(FakeRefusal::Moved(repo.id)),
            None => Err(FakeRefusal::NotFound(format!("repository {wanted}"))),
        }
    }

    /// Returns another account's repository with the same name; `None` if there is none or `owner` owns the repository.
    pub fn fork_of(&self, repo: RepoId, owner: &str) -> Option<RepoId> {
        let found = self.find_repo(owner, &self.repo(repo).ok()?.name).ok()?.id;
        (found != repo).then_some(found)
    }

    /// Returns `owner/name`.
    pub fn full_name(&self, repo: &FakeRepo) -> String {
        format!("{}/{}", self.user(repo.owner).login, repo.name)
    }

    /// Sets the permission of an account; `Access::None` revokes it.
    pub fn grant(&mut self, repo: RepoId, user: UserId, access: Access) -> Result<(), FakeRefusal> {
        let repo = self.repo_mut(repo)?;
        if access == Access::None {
            repo.access.remove(&user);
        } else {
            repo.access.insert(user, access);
        }
        Ok(())
    }

    /// Renames a repository.
    pub fn rename_repo(&mut self, actor: UserId, repo: RepoId, name: &str) -> Result<(), FakeRefusal> {
        self.require(repo, actor, Access::Admin)?;
        let before = self.full_name(self.repo(repo)?);
        let entry = self.repo_mut(repo)?;
        let old = std::mem::replace(&mut entry.name, name.to_owned());
        entry.former.push(before);
        self.log(actor, OpKind::RepositoryChanged, repo, None, format!("renamed to {name}"));
        self.emit(repo, actor, FakeEventKind::RepositoryChanged("renamed", old));
        Ok(())
    }

    /// Transfers a repository to another owner.
    pub fn transfer_repo(&mut self, actor: UserId, repo: RepoId, to: &str) -> Result<(), FakeRefusal> {
        self.require(repo, actor, Access::Admin)?;
        let owner = self.account_named(to).ok_or_else(|| FakeRefusal::NotFound(format!("account {to}")))?.user.id;
        let before = self.full_name(self.repo(repo)?);
        let entry = self.repo_mut(repo)?;
        entry.owner = owner;
        entry.former.push(before);
        let name = entry.name.clone();
        self.log(actor, OpKind::RepositoryChanged, repo, None, format!("transferred to {to}"));
        self.emit(repo, actor, FakeEventKind::RepositoryChanged("transferred", name));
        Ok(())
    }

    /// Archives a repository.
    pub fn archive_repo(&mut self, actor: UserId, repo: RepoId) -> Result<(), FakeRefusal> {
        self.set_archived(actor, repo, true)
    }

    /// Sets whether a repository is archived.
    pub fn set_archived(&mut self, actor: UserId, repo: RepoId, archived: bool) -> Result<(), FakeRefusal> {
        self.require(repo, actor, Access::Admin)?;
        let entry = self.repo_mut(repo)?;
        if std::mem::replace(&mut entry.archived, archived) == archived {
            return Ok(());
        }
        let (name, action) = (entry.name.clone(), if archived { "archived" } else { "unarchived" });
        self.log(actor, OpKind::RepositoryChanged, repo, None, action);
        self.emit(repo, actor, FakeEventKind::RepositoryChanged(action, name));
        Ok(())
    }

    /// Enables or disables issues.
    pub fn switch_issues(&mut self, actor: UserId, repo: RepoId, on: bool) -> Result<(), FakeRefusal> {
        self.require(repo, actor, Access::Admin)?;
        self.repo_mut(repo)?.has_issues = on;
        Ok(())
    }

    /// Changes the visibility of a repository.
    pub fn show_repo(&mut self, actor: UserId, repo: RepoId, private: bool) -> Result<(), FakeRefusal> {
        self.require(repo, actor, Access::Admin)?;
        let entry = self.repo_mut(repo)?;
        entry.private = private;
        let (name, action) = (entry.name.clone(), if private { "privatized" } else { "publicized" });
        self.log(actor, OpKind::RepositoryChanged, repo, None, action);
        self.emit(repo, actor, FakeEventKind::RepositoryChanged(action, name));
        Ok(())
    }

    /// Adds a webhook.
    pub fn add_hook(
        &mut self,
        actor: UserId,
        repo: RepoId,
        url: &str,
        secret: &str,
        events: Vec<String>,
        active: bool,
    ) -> Result<i64, FakeRefusal> {
        self.require(repo, actor, Access::Admin)?;
        let id = self.fresh_id();
        let created_at = self.clock.now();
        let hook = FakeHook { id, url: url.to_owned(), secret: secret.to_owned(), events, active, created_at };
        self.repo_mut(repo)?.hooks.push(hook);
        self.log(actor, OpKind::HookCreated, repo, None, url);
        self.emit(repo, actor, FakeEventKind::HookCreated(id));
        Ok(id)
    }

    /// Changes a webhook.
    pub fn edit_hook(
        &mut self,
        actor: UserId,
        repo: RepoId,
        id: i64,
        change: impl FnOnce(&mut FakeHook),
    ) -> Result<(), FakeRefusal> {
        self.require(repo, actor, Access::Admin)?;
        let hook = self.repo_mut(repo)?.hooks.iter_mut().find(|hook| hook.id == id);
        change(hook.ok_or_else(|| FakeRefusal::NotFound(format!("webhook {id}")))?);
        self.log(actor, OpKind::HookEdited, repo, None, id.to_string());
        Ok(())
    }

    /// Removes a webhook.
    pub fn remove_hook(&mut self, actor: UserId, repo: RepoId, id: i64) -> Result<(), FakeRefusal> {
        self.require(repo, actor, Access::Admin)?;
        let hooks = &mut self.repo_mut(repo)?.hooks;
        let before = hooks.len();
        hooks.retain(|hook| hook.id != id);
        if hooks.len() == before {
            return Err(FakeRefusal::NotFound(format!("webhook {id}")));
        }
        self.log(actor, OpKind::HookDeleted, repo, None, id.to_string());
        Ok(())
    }
}
