//! Accounts, their tokens, and teams of organisations.

use std::collections::BTreeMap;

use super::{Refusal, State};
use ralph_types::ids::{AccountKind, Timestamp, User, UserId};

/// An account.
#[derive(Debug, Clone)]
pub struct Account {
    /// Identity.
    pub user: User,
    /// Whether it is an organisation.
    pub organisation: bool,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Whose it is.
    pub user: UserId,
    /// When it ends, if it does.
    pub expires_at: Option<Timestamp>,
}

/// A team of an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    /// Id within the forge.
    pub id: i64,
    /// The organisation.
    pub org: UserId,
    /// Its name, also in addresses.
    pub name: String,
    /// Members, with whether they took up the invitation.
    pub members: BTreeMap<UserId, bool>,
}

impl State {
    /// Makes an account, or returns the one of that login.
    pub fn add_account(&mut self, login: &str, kind: AccountKind, organisation: bool) -> User {
        if let Some(known) = self.account_named(login) {
            return known.user.clone();
        }
        let user = User { id: UserId(self.fresh_id()), login: login.to_owned(), kind };
        let account = Account { user: user.clone(), organisation, created_at: self.clock.now() };
        self.accounts.insert(user.id, account);
        user
    }

    /// The account of a login, letter case aside.
    pub fn account_named(&self, login: &str) -> Option<&Account> {
        self.accounts.values().find(|account| account.user.login.eq_ignore_ascii_case(login))
    }

    /// An account by id; a nameless one when it is gone.
    pub fn user(&self, id: UserId) -> User {
        let gone = || User { id, login: "ghost".to_owned(), kind: AccountKind::User };
        self.accounts.get(&id).map_or_else(gone, |account| account.user.clone())
    }

    /// Takes an account's token (made on first use); the same one each time.
    pub fn token_for(&mut self, user: UserId) -> String {
        if let Some((token, _)) = self.tokens.iter().find(|(_, known)| known.user == user && known.expires_at.is_none())
        {
            return token.clone();
        }
        // Forty hexadecimal digits as Gitea's; predictable, as befits a fake on loopback.
        let token = format!("{:040x}", (user.0 as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        self.tokens.insert(token.clone(), Token { user, expires_at: None });
        token
    }

    /// Whose a token is; `Unauthorized` when it is not known or has ended.
    pub fn authenticate(&self, token: &str) -> Result<UserId, Refusal> {
        let token = self.tokens.get(token).ok_or(Refusal::Unauthorized)?;
        let ended = token.expires_at.is_some_and(|end| end <= self.clock.now());
        if ended { Err(Refusal::Unauthorized) } else { Ok(token.user) }
    }

    /// Makes a team, or invites an account into it; who `joined` is a member.
    pub fn add_team_member(&mut self, org: &str, name: &str, user: UserId, joined: bool) {
        let org = self.add_account(org, AccountKind::User, true).id;
        let known = self.teams.iter().position(|team| team.org == org && team.name == name);
        let at = known.unwrap_or_else(|| {
            let id = self.fresh_id();
            self.teams.push(Team { id, org, name: name.to_owned(), members: BTreeMap::new() });
            self.teams.len() - 1
        });
        self.teams[at].members.insert(user, joined);
    }

    /// Teams of an organisation.
    pub fn teams_of(&self, org: &str) -> impl Iterator<Item = &Team> {
        let org = self.account_named(org).map(|account| account.user.id);
        self.teams.iter().filter(move |team| Some(team.org) == org)
    }
}
