//! Actions of administrators and organization owners: accounts, tokens, organizations and teams.

use super::accounts::{FakeTeam, FakeToken};
use super::{Access, FakeRefusal, FakeRepo, FakeState};
use ralph_types::ids::{AccountKind, RepoId, User, UserId};

impl FakeState {
    /// Whether an account has all permissions on the forge.
    pub fn is_administrator(&self, user: UserId) -> bool {
        self.accounts.get(&user).is_some_and(|account| account.administrator)
    }

    /// Creates an account as an administrator; fails if the login is taken.
    pub fn create_account(&mut self, actor: UserId, login: &str, password: &str) -> Result<User, FakeRefusal> {
        self.require_administrator(actor)?;
        self.require_free(login)?;
        let user = self.add_account(login, AccountKind::User, false);
        if let Some(account) = self.accounts.get_mut(&user.id) {
            account.password = password.to_owned();
        }
        Ok(user)
    }

    /// Removes an account, its memberships and its repositories, as an administrator or as the organization's owner.
    pub fn delete_account(&mut self, actor: UserId, login: &str) -> Result<(), FakeRefusal> {
        let account = self.account_named(login).ok_or_else(|| FakeRefusal::NotFound(format!("account {login}")))?;
        let gone = account.user.id;
        if !self.is_administrator(actor) && !self.owns(gone, actor) {
            return Err(FakeRefusal::Forbidden(format!("only administrators and owners delete {login}")));
        }
        self.accounts.remove(&gone);
        self.tokens.retain(|_, token| token.user != gone);
        self.teams.retain(|team| team.org != gone);
        for team in &mut self.teams {
            team.members.remove(&gone);
        }
        self.repos.retain(|_, repo| repo.owner != gone);
        for repo in self.repos.values_mut() {
            repo.access.remove(&gone);
        }
        Ok(())
    }

    /// Creates a token with these scopes; `None` for all.
    pub fn create_token(&mut self, user: UserId, scopes: Option<Vec<String>>) -> String {
        let token =
            format!("{:040x}", (self.fresh_id() as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c8a9));
        self.tokens.insert(token.clone(), FakeToken { user, scopes, expires_at: None });
        token
    }

    /// Returns the account of a login and password.
    pub fn log_in(&self, login: &str, password: &str) -> Result<UserId, FakeRefusal> {
        let account =
            self.account_named(login).filter(|known| !known.password.is_empty() && known.password == password);
        account.map(|account| account.user.id).ok_or(FakeRefusal::Unauthorized)
    }

    /// Creates an organization owned by an account; fails if the name is taken.
    pub fn create_organization(&mut self, owner: UserId, login: &str) -> Result<User, FakeRefusal> {
        self.require_free(login)?;
        let org = self.add_account(login, AccountKind::User, true);
        let owners = self.insert_team(org.id, "Owners", Access::Admin);
        let team = self.team_mut(owners)?;
        (team.owners, team.everywhere) = (true, true);
        team.members.insert(owner, true);
        Ok(org)
    }

    /// Creates a team as an owner of the organization.
    pub fn create_team(
        &mut self,
        actor: UserId,
        org: &str,
        name: &str,
        access: Access,
        everywhere: bool,
    ) -> Result<i64, FakeRefusal> {
        let account = self.account_named(org).ok_or_else(|| FakeRefusal::NotFound(format!("organization {org}")))?;
        let org = account.user.id;
        self.require_owner(org, actor)?;
        let id = self.insert_team(org, name, access);
        self.team_mut(id)?.everywhere = everywhere;
        Ok(id)
    }

    /// Returns a team by id.
    pub fn team(&self, id: i64) -> Result<&FakeTeam, FakeRefusal> {
        self.teams.iter().find(|team| team.id == id).ok_or_else(|| FakeRefusal::NotFound(format!("team {id}")))
    }

    fn team_mut(&mut self, id: i64) -> Result<&mut FakeTeam, FakeRefusal> {
        self.teams.iter_mut().find(|team| team.id == id).ok_or_else(|| FakeRefusal::NotFound(format!("team {id}")))
    }

    /// Changes a team as an owner of its organization.
    pub fn edit_team(&mut self, actor: UserId, id: i64, change: impl FnOnce(&mut FakeTeam)) -> Result<(), FakeRefusal> {
        let org = self.team(id)?.org;
        self.require_owner(org, actor)?;
        change(self.team_mut(id)?);
        Ok(())
    }

    /// Returns the teams that include a repository.
    pub fn teams_with<'a>(&'a self, repo: &'a FakeRepo) -> impl Iterator<Item = &'a FakeTeam> {
        self.teams.iter().filter(|team| team.has(repo))
    }

    /// Returns an account's permission through its teams.
    pub(super) fn team_access(&self, repo: &FakeRepo, user: UserId) -> Access {
        let joined = self.teams_with(repo).filter(|team| team.members.get(&user) == Some(&true));
        joined.map(|team| team.access).max().unwrap_or(Access::None)
    }

    /// Returns the permission of an account without the units of ordinary teams, as reported by Gitea 1.25.
    pub fn access_without_units(&self, repo: &FakeRepo, user: UserId) -> Access {
        let joined = self.teams_with(repo).filter(|team| team.members.get(&user) == Some(&true));
        let team = joined.map(|team| team.access).filter(|access| *access == Access::Admin).max();
        let granted = repo.access.get(&user).copied().unwrap_or(Access::None);
        let public = if repo.private { Access::None } else { Access::Read };
        let all = if user == repo.owner || self.is_administrator(user) { Access::Admin } else { Access::None };
        granted.max(public).max(all).max(team.unwrap_or(Access::None))
    }

    /// Whether an account is in the organization's team of owners.
    pub fn owns(&self, org: UserId, user: UserId) -> bool {
        self.teams.iter().any(|team| team.org == org && team.owners && team.members.get(&user) == Some(&true))
    }

    /// Whether an account is in a team of the organization.
    pub fn belongs_to(&self, org: UserId, user: UserId) -> bool {
        self.teams.iter().any(|team| team.org == org && team.members.get(&user) == Some(&true))
    }

    /// Fails unless the account owns the organization.
    pub fn require_owner(&self, org: UserId, user: UserId) -> Result<(), FakeRefusal> {
        match org == user || self.owns(org, user) || self.is_administrator(user) {
            true => Ok(()),
            false => Err(FakeRefusal::Forbidden("Must be an organization owner".to_owned())),
        }
    }

    /// Fails unless the account is an administrator.
    pub fn require_administrator(&self, user: UserId) -> Result<(), FakeRefusal> {
        match self.is_administrator(user) {
            true => Ok(()),
            false => Err(FakeRefusal::Forbidden("user should be the site admin".to_owned())),
        }
    }

    fn require_free(&self, login: &str) -> Result<(), FakeRefusal> {
        match self.account_named(login) {
            None if !login.is_empty() => Ok(()),
            _ => Err(FakeRefusal::Invalid(format!("the name {login:?} is taken or empty"))),
        }
    }

    /// Deletes a repository with its issues and webhooks.
    pub fn delete_repo(&mut self, actor: UserId, repo: RepoId) -> Result<(), FakeRefusal> {
        self.require(repo, actor, Access::Admin)?;
        self.repos.remove(&repo);
        Ok(())
    }
}

impl FakeTeam {
    /// Whether the team includes a repository.
    pub fn has(&self, repo: &FakeRepo) -> bool {
        self.org == repo.owner && (self.everywhere || self.repos.contains(&repo.id))
    }
}
