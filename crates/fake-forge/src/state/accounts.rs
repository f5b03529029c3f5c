//! Accounts, tokens and teams.

use std::collections::{BTreeMap, BTreeSet};

use super::{Access, FakeRefusal, FakeState};
use ralph_types::ids::{AccountKind, RepoId, Timestamp, User, UserId};

/// An account.
#[derive(Debug, Clone)]
pub struct FakeAccount {
    /// Identity.
    pub user: User,
    /// Whether it is an organization.
    pub organization: bool,
    /// Whether it has all permissions on the forge.
    pub administrator: bool,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Password for basic authentication on Gitea; empty if the account has none.
    pub password: String,
    /// Creation time.
    pub created_at: Timestamp,
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeToken {
    /// Owner of the token.
    pub user: UserId,
    /// Scopes of Gitea (`write:issue`); `None` for all.
    pub scopes: Option<Vec<String>>,
    /// Expiry, if any.
    pub expires_at: Option<Timestamp>,
}

/// A team of an organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeTeam {
    /// Id within the forge.
    pub id: i64,
    /// Organization.
    pub org: UserId,
    /// Name, also used in addresses.
    pub name: String,
    /// Members; `true` if the member accepted the invitation.
    pub members: BTreeMap<UserId, bool>,
    /// Permission of the members in the team's repositories.
    pub access: Access,
    /// Whether the team's members own the organization.
    pub owners: bool,
    /// Whether the team includes all repositories of the organization.
    pub everywhere: bool,
    /// Repositories of the team.
    pub repos: BTreeSet<RepoId>,
}

impl FakeState {
    /// Creates an account, or returns the existing account with this login.
    pub fn add_account(&mut self, login: &str, kind: AccountKind, organization: bool) -> User {
        if let Some(known) = self.account_named(login) {
            return known.user.clone();
        }
        let user = User { id: UserId(self.fresh_id()), login: login.to_owned(), kind };
        let account = FakeAccount {
            user: user.clone(),
            organization,
            administrator: false,
            suspended: false,
            password: String::new(),
            created_at: self.clock.now(),
        };
        self.accounts.insert(user.id, account);
        user
    }

    /// Returns an account by login, ignoring case.
    pub fn account_named(&self, login: &str) -> Option<&FakeAccount> {
        self.accounts.values().find(|account| account.user.login.eq_ignore_ascii_case(login))
    }

    /// Returns an account by id; a placeholder without a login if it does not exist.
    pub fn user(&self, id: UserId) -> User {
        let gone = || User { id, login: "ghost".to_owned(), kind: AccountKind::User };
        self.accounts.get(&id).map_or_else(gone, |account| account.user.clone())
    }

    /// Returns the token of an account; creates it on first use.
    pub fn token_for(&mut self, user: UserId) -> String {
        let whole = |known: &FakeToken| known.user == user && known.expires_at.is_none() && known.scopes.is_none();
        if let Some((token, _)) = self.tokens.iter().find(|(_, known)| whole(known)) {
            return token.clone();
        }
        // Forty hexadecimal digits like on Gitea, but predictable.
        let token = format!("{:040x}", (user.0 as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        self.tokens.insert(token.clone(), FakeToken { user, scopes: None, expires_at: None });
        token
    }

    /// Revokes the access token of an account and returns a new one.
    pub fn replace_token(&mut self, user: UserId) -> String {
        let old = self.token_for(user);
        self.tokens.remove(&old);
        let new: String = old.chars().rev().collect();
        self.tokens.insert(new.clone(), FakeToken { user, scopes: None, expires_at: None });
        new
    }

    /// Returns the owner of a token; `Unauthorized` if it is unknown or expired.
    pub fn authenticate(&self, token: &str) -> Result<UserId, FakeRefusal> {
        let token = self.tokens.get(token).ok_or(FakeRefusal::Unauthorized)?;
        let ended = token.expires_at.is_some_and(|end| end <= self.clock.now());
        if ended { Err(FakeRefusal::Unauthorized) } else { Ok(token.user) }
    }

    /// Adds an account to a team. A missing team is created without repositories. Without `joined`, the account is
    /// only invited.
    pub fn add_team_member(&mut self, org: &str, name: &str, user: UserId, joined: bool) {
        let org = self.add_account(org, AccountKind::User, true).id;
        let known = self.teams.iter().position(|team| team.org == org && team.name == name);
        let at = known.unwrap_or_else(|| {
            self.insert_team(org, name, Access::Read);
            self.teams.len() - 1
        });
        self.teams[at].members.insert(user, joined);
    }

    /// Creates a team without members and repositories, and returns its id.
    pub(super) fn insert_team(&mut self, org: UserId, name: &str, access: Access) -> i64 {
        let id = self.fresh_id();
        self.teams.push(FakeTeam {
            id,
            org,
            name: name.to_owned(),
            members: BTreeMap::new(),
            access,
            owners: false,
            everywhere: false,
            repos: BTreeSet::new(),
        });
        id
    }

    /// Returns the teams of an organization.
    pub fn teams_of(&self, org: &str) -> impl Iterator<Item = &FakeTeam> {
        let org = self.account_named(org).map(|account| account.user.id);
        self.teams.iter().filter(move |team| Some(team.org) == org)
    }
}
