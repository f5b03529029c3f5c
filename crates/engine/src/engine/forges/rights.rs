//! Rights of people in repositories, queried from the forge in the same way as for commands.

use crate::domain::model::ids::{RepoRef, User, UserId};
use crate::domain::trust::permit::{self, AccessLevel, Authorization, DenyAnswer, PermitFacts};
use crate::domain::trust::policy::{MinimumAccess, Policy};
use crate::domain::trust::viewer::RightFacts;
use crate::engine::forges::Forges;
use crate::engine::forges::account::ForgeAccount;
use crate::forge::{ForgeError, ForgeErrorKind, Permission};
use crate::store::{StoreError, forge_state};

/// Reason why a right is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RightUnknown {
    /// The forge did not answer.
    #[error("could not query the forge: {0}")]
    Forge(#[from] ForgeError),
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Forges {
    /// Queries the forge for the rights of an account in a repository. The repository is identified by its numeric id,
    /// because its name may belong to another repository by now. No account may see a repository that no longer exists.
    ///
    /// # Errors
    /// The forge or the database did not answer.
    pub async fn right_now(&self, repo: &RepoRef, user: &User) -> Result<RightFacts, RightUnknown> {
        let Some(account) = self.accounts.get(&repo.forge) else { return Ok(RightFacts::NOTHING) };
        let (forge, id) = (repo.forge.clone(), repo.id);
        let known = self.context.store.read(move |c| forge_state::repository(c, &forge, id)).await?;
        let gone = |error: &ForgeError| error.kind == ForgeErrorKind::NotFound;
        let repo = match account.forge.repository(known.as_ref().unwrap_or(repo)).await {
            Err(error) if gone(&error) => return Ok(RightFacts::NOTHING),
            found => found?.repo,
        };
        let level = match account.forge.permission(&repo, user).await {
            Err(error) if gone(&error) => return Ok(RightFacts::NOTHING),
            found => level(found?),
        };
        let verdict = self.permitted_at(account, &repo, user, level).await?;
        Ok(RightFacts { level, may_command: verdict == Authorization::Allow })
    }

    /// Returns the name of the label that starts a loop.
    pub(in crate::engine) fn run_label(&self, repo: &RepoRef) -> String {
        let [run, _] = self.start_labels(repo);
        run
    }

    /// Returns the names of the labels that start a loop: without and with a plan first.
    pub(in crate::engine) fn start_labels(&self, repo: &RepoRef) -> [String; 2] {
        self.settings.policy(&repo.forge).start_labels()
    }

    /// Asks the forge for the actor's current permission and returns the decision.
    pub(in crate::engine) async fn permitted_now(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        actor: &User,
    ) -> Result<Authorization, ForgeError> {
        let level = level(account.forge.permission(repo, actor).await?);
        self.permitted_at(account, repo, actor, level).await
    }

    /// Returns the decision about an actor with permission `level` in the repository. Team membership is read from the
    /// forge.
    pub(super) async fn permitted_at(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        actor: &User,
        level: AccessLevel,
    ) -> Result<Authorization, ForgeError> {
        let policy = self.settings.policy(&repo.forge);
        let mut facts = PermitFacts {
            floor: floor(&policy),
            allowed: &policy.allow,
            in_allowed_team: false,
            allowed_bots: &policy.allow_bots,
            own: if self.settings.is_trial { UserId(0) } else { account.own()? },
        };
        let verdict = permit::may(actor, level, &facts);
        if !matches!(verdict, Authorization::Deny { answer: DenyAnswer::ThumbsDown, .. }) {
            return Ok(verdict);
        }
        let Some(teams) = account.forge.teams() else { return Ok(verdict) };
        let mut hidden = Vec::new();
        for team in &policy.teams {
            match teams.is_team_member(repo, team, actor).await {
                Err(error) if error.kind == ForgeErrorKind::Denied => hidden.push(team.clone()),
                found => facts.in_allowed_team |= found?,
            }
        }
        let verdict = permit::may(actor, level, &facts);
        if verdict == Authorization::Allow {
            return Ok(verdict);
        }
        if facts.floor <= AccessLevel::Write {
            hidden.extend(teams.hidden_teams(repo).await?);
        }
        Ok(if hidden.is_empty() { verdict } else { permit::cannot_tell(actor, hidden) })
    }
}

fn floor(policy: &Policy) -> AccessLevel {
    match policy.floor {
        MinimumAccess::Write => AccessLevel::Write,
        MinimumAccess::Maintain => AccessLevel::Maintain,
        MinimumAccess::Admin => AccessLevel::Admin,
    }
}

pub(in crate::engine) fn level(permission: Permission) -> AccessLevel {
    match permission {
        Permission::None => AccessLevel::None,
        Permission::Read => AccessLevel::Read,
        Permission::Triage => AccessLevel::Triage,
        Permission::Write => AccessLevel::Write,
        Permission::Maintain => AccessLevel::Maintain,
        Permission::Admin => AccessLevel::Admin,
    }
}
