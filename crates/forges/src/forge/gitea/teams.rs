//! Permissions of accounts and the teams that they come from.

use futures::future::try_join_all;

use super::Gitea;
use super::client::under;
use super::map::{WirePermission, WireTeam, WireTeams, WireUser};
use crate::domain::model::ids::{RepoRef, User};
use crate::domain::trust::permit::TeamRef;
use crate::forge::ForgeErrorKind::{Denied, NotFound};
use crate::forge::http::error;
use crate::forge::{ForgeError, ForgeErrorKind, ForgeResult, Permission, TeamVisibility};

/// Response of a server about the membership in a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TeamAnswer {
    /// The account is a member.
    Member,
    /// The account is not a member, or the team is not visible.
    NotShown,
    /// The credential lacks the permission to ask.
    Refused,
}

impl Gitea {
    /// Returns the current permission of an account: the permission that the server reports, combined with the permissions of
    /// the repository's teams.
    pub(super) async fn permission_of(&self, repo: &RepoRef, user: &User) -> ForgeResult<Permission> {
        let what = format!("read the permission of {} in {repo}", user.login);
        if user.login.is_empty() || user.id.0 <= 0 {
            return Ok(Permission::None);
        }
        let path = under(repo, &["collaborators", &user.login, "permission"])?;
        let found: WirePermission = match self.client.get(&what, &path, &[]).await {
            Ok(found) => found,
            // The account was deleted or renamed; its next delivery has the new name.
            Err(ForgeError { kind: NotFound, .. }) => return Ok(Permission::None),
            Err(failure) if failure.kind == Denied => {
                let detail =
                    format!("{}; make the service's account an administrator of the repository", failure.detail);
                return Err(ForgeError { detail, ..failure });
            }
            Err(failure) => return Err(failure),
        };
        let unknown = || error(ForgeErrorKind::Bug, &what, "the response has an unknown permission");
        let level = found.level().ok_or_else(unknown)?;
        // A login can be reassigned; an id cannot.
        if found.user.and_then(WireUser::existing).is_none_or(|account| account.id != user.id) {
            return Ok(Permission::None);
        }
        match level {
            Permission::Maintain | Permission::Admin => Ok(level),
            Permission::Write if !self.probed().await?.lowest_unit => Ok(level),
            _ => self.permission_by_teams(repo, user, level).await,
        }
    }

    /// Returns a permission combined with those that the repository's teams give the account. `by_field` is the
    /// permission that the server reports; it ignores teams, or is the lowest that a team gives for any part of the
    /// repository. It counts as write access only if no team explains it.
    async fn permission_by_teams(&self, repo: &RepoRef, user: &User, by_field: Permission) -> ForgeResult<Permission> {
        let teams = self.teams_of(repo).await?;
        let asked = teams.iter().map(|team| self.membership(team, user));
        let memberships: Vec<TeamAnswer> = try_join_all(asked).await?;
        let by_teams = teams.iter().zip(&memberships).filter(|(_, known)| **known == TeamAnswer::Member);
        let by_teams = by_teams.map(|(team, _)| team.code_permission()).max();
        if by_teams >= Some(Permission::Write) || by_field < Permission::Write {
            return Ok(by_teams.unwrap_or(Permission::None).max(by_field));
        }
        let mut explained = by_teams.is_some();
        // Owners and administrators have more than the forge's answer, so that their teams explain nothing.
        let known = teams.iter().zip(&memberships);
        let perhaps = known.filter(|(team, known)| **known != TeamAnswer::Member && !team.is_of_administrators());
        for (team, _) in perhaps {
            explained = explained || !self.sees(team).await?;
        }
        Ok(if explained { by_teams.unwrap_or(Permission::None).max(Permission::Read) } else { by_field })
    }

    /// Returns the teams that have access to a repository; empty if its owner is not an organization.
    async fn teams_of(&self, repo: &RepoRef) -> ForgeResult<Vec<WireTeam>> {
        let what = format!("list the teams of {repo}");
        let path = under(repo, &["teams"])?;
        match self.client.list(&what, &path, &[], |_| false).await {
            // Servers answer 405 for the repository of a person.
            Err(failure) if failure.kind == NotFound || failure.detail.starts_with("HTTP 405") => Ok(Vec::new()),
            other => other,
        }
    }

    /// Returns whether an account is in a team.
    async fn membership(&self, team: &WireTeam, user: &User) -> ForgeResult<TeamAnswer> {
        let what = format!("check whether {} is in the team {}", user.login, team.name);
        let path = ["teams", &team.id.to_string(), "members", &user.login];
        match self.client.get::<WireUser>(&what, &path, &[]).await {
            Ok(member) if member.id() == user.id => Ok(TeamAnswer::Member),
            Ok(_) | Err(ForgeError { kind: NotFound, .. }) => Ok(TeamAnswer::NotShown),
            Err(ForgeError { kind: Denied, .. }) => Ok(TeamAnswer::Refused),
            Err(failure) => Err(failure),
        }
    }

    /// Whether the members of a team can be read.
    async fn sees(&self, team: &WireTeam) -> ForgeResult<bool> {
        let what = format!("read the members of the team {}", team.name);
        let path = ["teams", &team.id.to_string(), "members"];
        match self.client.get::<Vec<WireUser>>(&what, &path, &[("limit", "1")]).await {
            Ok(_) => Ok(true),
            Err(failure) if matches!(failure.kind, Denied | NotFound) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the teams with write access to a repository whose members cannot be read.
    pub(super) async fn unseen_teams(&self, repo: &RepoRef) -> ForgeResult<Vec<TeamRef>> {
        let mut unseen = Vec::new();
        let gives = |team: &WireTeam| team.code_permission() >= Permission::Write && !team.is_of_administrators();
        for team in self.teams_of(repo).await?.into_iter().filter(gives) {
            if !self.sees(&team).await? {
                unseen.push(TeamRef { org: repo.owner.clone(), name: team.name });
            }
        }
        Ok(unseen)
    }

    /// Whether an account is a member of a team of a visible organization.
    pub(super) async fn member_of(&self, team: &TeamRef, user: &User) -> ForgeResult<bool> {
        let what = format!("check whether {} is in the team {team}", user.login);
        if user.login.is_empty() || user.id.0 <= 0 {
            return Ok(false);
        }
        let known = match self.team(&what, team).await {
            Err(ForgeError { kind: NotFound, .. }) | Ok(None) => return Ok(false),
            Ok(Some(known)) => known,
            Err(failure) => return Err(failure),
        };
        let path = ["teams", &known.id.to_string(), "members", &user.login];
        match self.client.get::<WireUser>(&what, &path, &[]).await {
            Ok(member) => Ok(member.existing().is_some_and(|account| account.id == user.id)),
            Err(ForgeError { kind: NotFound, .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Returns a visible team; `None` if it does not exist. `NotFound` if the organization is not visible.
    async fn team(&self, what: &str, team: &TeamRef) -> ForgeResult<Option<WireTeam>> {
        let query = [("q", team.name.as_str()), ("limit", "50")];
        let found: WireTeams = self.client.get(what, &["orgs", &team.org, "teams", "search"], &query).await?;
        Ok(found.data.into_iter().find(|known| known.name.eq_ignore_ascii_case(&team.name)))
    }

    /// Returns whether the members of a team are visible.
    pub(super) async fn visibility_of_team(&self, team: &TeamRef) -> ForgeResult<TeamVisibility> {
        const SCOPE: &str =
            "give the token the scope `read:organization`, and make the bot's account a member of the team or an owner";
        let what = format!("look for the team {team}");
        let hidden = |why: String, fix: &str| Ok(TeamVisibility::Hidden { why, fix: fix.to_owned() });
        let known = match self.team(&what, team).await {
            Ok(Some(known)) => known,
            Ok(None) => {
                let why = format!("the organization `{}` has no visible team `{}`", team.org, team.name);
                return hidden(
                    why,
                    "correct its name, or make the bot's account a member of it or an owner of the organization",
                );
            }
            Err(ForgeError { kind: NotFound, .. }) => {
                let why = format!("the organization `{}` is not visible", team.org);
                return hidden(why, "correct its name, or make the bot's account a member of it");
            }
            Err(failure) if failure.kind == Denied => return hidden(failure.to_string(), SCOPE),
            Err(failure) => return Err(failure),
        };
        let path = ["teams", &known.id.to_string(), "members"];
        match self.client.get::<Vec<WireUser>>(&what, &path, &[("limit", "1")]).await {
            Ok(_) => Ok(TeamVisibility::Visible),
            Err(failure) if matches!(failure.kind, Denied | NotFound) => hidden(failure.to_string(), SCOPE),
            Err(failure) => Err(failure),
        }
    }
}
