//! Rights of people in repositories, queried from the forge in the same way as for commands.

use super::Engine;
use super::intake::level;
use crate::domain::model::ids::{RepoRef, User};
use crate::domain::trust::permit::Authorization;
use crate::domain::trust::viewer::RightFacts;
use crate::forge::{ForgeError, ForgeErrorKind};
use crate::store::{StoreError, forge_state};

/// Reason why a right is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RightUnknown {
    /// The forge did not answer.
    #[error("the forge could not be asked: {0}")]
    Forge(#[from] ForgeError),
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Queries the forge for the rights of an account in a repository. The repository is identified by its numeric id,
    /// because its name may belong to another repository by now. Nobody may see a repository that no longer exists.
    ///
    /// # Errors
    /// The forge or the database did not answer.
    pub async fn right_now(&self, repo: &RepoRef, user: &User) -> Result<RightFacts, RightUnknown> {
        let Some(account) = self.forges.get(&repo.forge) else { return Ok(RightFacts::NOTHING) };
        let (forge, id) = (repo.forge.clone(), repo.id);
        let known = self.store.read(move |c| forge_state::repository(c, &forge, id)).await?;
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
}
