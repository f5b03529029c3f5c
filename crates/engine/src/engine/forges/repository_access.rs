//! Repositories that effects change: their current names, looked up by id, and whether they accept changes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::model::ids::{ForgeName, RepoId, RepoRef, Timestamp};
use crate::engine::forges::Forges;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::receipt::EffectError;
use crate::forge::{ForgeErrorKind, ForgeResult, Repository};
use crate::store::outbox::ClaimedEffect;
use crate::store::{StoreError, forge_state, loops};

/// Time for which a confirmed name of a repository is used without a request, in milliseconds. Within this time another
/// repository could take over an abandoned name.
const KNOWN_MS: i64 = 5_000;
/// First wait of an effect for a repository that accepts no changes, in milliseconds; doubles up to [`MAX_WAIT_MS`].
const FIRST_WAIT_MS: i64 = 30_000;
const MAX_WAIT_MS: i64 = 3_600_000;
/// Maximum time that an effect waits for its repository, in milliseconds.
const MAX_AGE_MS: i64 = 30 * 24 * 3_600_000;

/// Times at which the stored names of repositories were last confirmed.
#[derive(Debug, Default)]
pub struct ConfirmedRepositories(Mutex<HashMap<(ForgeName, RepoId), Timestamp>>);

impl ConfirmedRepositories {
    fn lock(&self) -> MutexGuard<'_, HashMap<(ForgeName, RepoId), Timestamp>> {
        // Code under this lock runs a single map operation, so the map is valid even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_recent(&self, repo: &RepoRef, now: Timestamp) -> bool {
        let seen = self.lock().get(&(repo.forge.clone(), repo.id)).copied();
        seen.is_some_and(|at| at <= now && now.since(at) < KNOWN_MS)
    }

    fn set(&self, repo: &RepoRef, seen: Option<Timestamp>) {
        let key = (repo.forge.clone(), repo.id);
        match seen {
            Some(at) => self.lock().insert(key, at),
            None => self.lock().remove(&key),
        };
    }
}

/// Whether a repository accepts changes now.
#[derive(Debug)]
pub(in crate::engine) enum RepositoryAccess {
    /// The repository accepts changes, under this name.
    Usable(RepoRef),
    /// The repository accepts no changes, for a reason that people can remove. `why` is a sentence without a full stop that gives
    /// the remedy.
    Unusable { why: String },
}

/// Returns the reason why a readable repository accepts no changes; `None` if it accepts them.
fn obstacle(found: &Repository, watched: bool) -> Option<String> {
    let name = found.repo.full_name();
    if !watched {
        return Some(format!("{name} is not named in `repositories`; name it there and restart the service"));
    }
    if found.archived {
        return Some(format!(
            "{name} is archived and accepts no changes; unarchive it, and the loop continues by itself"
        ));
    }
    if !found.issues_enabled {
        return Some(format!("issues are switched off in {name}; switch them on, and the loop continues by itself"));
    }
    None
}

impl Forges {
    /// Returns the current name of the repository with this id, and whether it accepts changes. A recently confirmed
    /// name is used without a request, unless `anew` is true.
    pub(in crate::engine) async fn place(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        anew: bool,
    ) -> Result<RepositoryAccess, EffectError> {
        let known = self.present_name(repo).await?;
        let now = self.context.clock.now();
        if !anew && self.confirmed.is_recent(&known, now) {
            return Ok(RepositoryAccess::Usable(known));
        }
        let name = known.full_name();
        let found = match self.read_by_id(account, &known).await? {
            Ok(found) => found,
            Err(error) => {
                let why = match error.kind {
                    ForgeErrorKind::NotFound => format!(
                        "{name} cannot be read any more ({}): it was deleted or made private, or the bot was removed; give \
                         the bot access again, and the loop continues by itself",
                        error.detail
                    ),
                    ForgeErrorKind::Denied => format!(
                        "the forge refuses the bot in {name} ({}); remove the cause (a suspended installation, a required \
                         second factor or sign-on, a list of addresses), and the loop continues by itself",
                        error.detail
                    ),
                    _ => return Err(error.into()),
                };
                return Ok(RepositoryAccess::Unusable { why });
            }
        };
        let obstacle = obstacle(&found, self.settings.watches(&found.repo));
        self.confirmed.set(&found.repo, obstacle.is_none().then_some(now));
        Ok(match obstacle {
            Some(why) => RepositoryAccess::Unusable { why },
            None => RepositoryAccess::Usable(found.repo),
        })
    }

    /// Reads the repository with this id from the forge; stores its name if it has changed.
    pub(in crate::engine) async fn read_by_id(
        &self,
        account: &ForgeAccount,
        known: &RepoRef,
    ) -> Result<ForgeResult<Repository>, StoreError> {
        let found = account.forge.repository(known).await;
        match &found {
            Ok(found) if found.repo != *known => {
                tracing::info!(from = %known, to = %found.repo, "a repository was renamed or transferred");
                let (renamed, now) = (found.repo.clone(), self.context.clock.now());
                self.context.store.write(move |c| forge_state::save_repository(c, &renamed, now)).await?;
            }
            Ok(_) => {}
            Err(_) => self.confirmed.set(known, None),
        }
        Ok(found)
    }

    /// Whether the repository with this id currently has this name. Checked after a read under a stored name, because
    /// another repository may have answered if the name has changed.
    pub(in crate::engine) async fn is_named(&self, account: &ForgeAccount, repo: &RepoRef) -> bool {
        matches!(self.read_by_id(account, repo).await, Ok(Ok(found)) if found.repo == *repo)
    }

    /// Returns the outcome of an effect whose repository accepts no changes: the effect waits, unless it is no longer
    /// needed.
    pub(in crate::engine) async fn wait_for_repository(&self, claimed: &ClaimedEffect, why: String) -> EffectError {
        let open = match claimed.loop_id.clone() {
            Some(id) => match self.context.store.read(move |c| loops::get(c, &id)).await {
                Ok(found) => found.is_some_and(|found| found.state.is_open()),
                Err(error) => return error.into(),
            },
            None => false,
        };
        let age = self.context.clock.now().since(claimed.created_at);
        if age >= MAX_AGE_MS || (!open && age >= MAX_WAIT_MS) {
            return EffectError::Permanent { why };
        }
        let after_ms = FIRST_WAIT_MS.saturating_mul(1 << claimed.tries.saturating_sub(1).min(8)).min(MAX_WAIT_MS);
        EffectError::Retry { after_ms: Some(after_ms), ambiguous: false, why }
    }

    /// Returns the repository under its current name, which is looked up by its numeric id.
    pub(in crate::engine) async fn present_name(&self, repo: &RepoRef) -> Result<RepoRef, EffectError> {
        let (forge, id) = (repo.forge.clone(), repo.id);
        let known = self.context.store.read(move |c| forge_state::repository(c, &forge, id)).await?;
        Ok(known.unwrap_or_else(|| repo.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_obstacle_has_a_sentence_and_a_remedy() {
        let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(1), owner: "acme".into(), name: "app".into() };
        let usable = Repository {
            repo,
            default_branch: "main".into(),
            private: false,
            archived: false,
            empty: false,
            issues_enabled: true,
        };
        assert_eq!(obstacle(&usable, true), None);
        let why = |found: &Repository, watched| obstacle(found, watched).expect("an obstacle");
        let archived = Repository { archived: true, ..usable.clone() };
        assert!(
            why(&archived, true).starts_with("acme/app is archived") && why(&archived, true).contains("unarchive it")
        );
        let without_issues = Repository { issues_enabled: false, ..usable.clone() };
        assert!(why(&without_issues, true).contains("switch them on"));
        assert!(why(&usable, false).contains("`repositories`"));
    }

    #[test]
    fn confirmed_name_is_used_for_some_seconds() {
        let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(1), owner: "acme".into(), name: "app".into() };
        let (repository_access, at) = (ConfirmedRepositories::default(), Timestamp(1_000_000));
        assert!(!repository_access.is_recent(&repo, at));
        repository_access.set(&repo, Some(at));
        assert!(
            repository_access.is_recent(&repo, at.plus_ms(KNOWN_MS - 1))
                && !repository_access.is_recent(&repo, at.plus_ms(KNOWN_MS))
        );
        assert!(!repository_access.is_recent(&repo, at.plus_ms(-1)), "the clock was set back");
        repository_access.set(&repo, None);
        assert!(!repository_access.is_recent(&repo, at));
    }
}
