//! Limits on concurrent calls per forge and per repository, so that a slow forge or repository cannot occupy every
//! worker.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::model::ids::{ForgeName, RepoId, RepoRef};

/// Maximum number of issues per forge whose deliveries are processed concurrently.
pub(super) const INTAKE: usize = 16;
/// Maximum number of concurrent effects per forge.
pub(super) const FORGE_CALLERS: usize = 8;
/// Maximum number of concurrent acknowledgements of comments per forge.
pub(super) const SEERS: usize = 2;

/// Forge, and one of its repositories or `None` for the whole forge.
type Key = (ForgeName, Option<RepoId>);

/// Limits on concurrent calls and the calls in progress.
#[derive(Debug)]
pub struct ConcurrencyLimits {
    per_forge: usize,
    per_repository: usize,
    under_way: Mutex<HashMap<Key, usize>>,
    /// Lock that is held while the next call is selected and counted.
    claiming: tokio::sync::Mutex<()>,
}

/// Permit for one call; released when dropped.
#[derive(Debug)]
pub(super) struct CallPermit<'a> {
    call_limits: &'a ConcurrencyLimits,
    keys: [Key; 2],
}

/// Forges and repositories that have reached their limit.
#[derive(Debug)]
pub(super) struct Saturated(HashSet<Key>);

impl Saturated {
    /// Whether another call to the repository may start.
    pub(super) fn admits(&self, repo: &RepoRef) -> bool {
        !keys(repo).iter().any(|key| self.0.contains(key))
    }
}

impl ConcurrencyLimits {
    /// Creates limits per forge and per repository; each is at least 1.
    pub fn new(per_forge: usize, per_repository: usize) -> Self {
        Self {
            per_forge: per_forge.max(1),
            per_repository: per_repository.max(1),
            under_way: Mutex::default(),
            claiming: tokio::sync::Mutex::default(),
        }
    }

    /// Creates limits for calls to forges: `per_forge`, of which one repository uses at most half.
    pub(super) fn of_calls(per_forge: usize) -> Self {
        Self::new(per_forge, per_forge.div_ceil(2))
    }

    /// Locks the selection of calls until the guard is dropped.
    pub(super) async fn lock_selection(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.claiming.lock().await
    }

    /// Returns the forges and repositories that have reached their limit.
    pub(super) fn saturated(&self) -> Saturated {
        let most = |key: &Key| if key.1.is_some() { self.per_repository } else { self.per_forge };
        Saturated(
            self.counts().iter().filter(|(key, count)| **count >= most(key)).map(|(key, _)| key.clone()).collect(),
        )
    }

    /// Counts a call as started until the permit is dropped.
    pub(super) fn acquire(&self, repo: &RepoRef) -> CallPermit<'_> {
        let keys = keys(repo);
        let mut counts = self.counts();
        keys.iter().for_each(|key| *counts.entry(key.clone()).or_default() += 1);
        drop(counts);
        CallPermit { call_limits: self, keys }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        let mut counts = self.call_limits.counts();
        for key in &self.keys {
            if let Some(count) = counts.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(key);
                }
            }
        }
    }
}

fn keys(repo: &RepoRef) -> [Key; 2] {
    [(repo.forge.clone(), None), (repo.forge.clone(), Some(repo.id))]
}

/// Limits on concurrent calls of effects on forges, by purpose.
#[derive(Debug)]
pub struct ForgeCallLimits {
    /// Calls that acknowledge comments.
    pub(super) seen: ConcurrencyLimits,
    /// Calls of all other effects on a forge.
    pub(super) forge: ConcurrencyLimits,
}

impl Default for ForgeCallLimits {
    fn default() -> Self {
        let [seen, forge] = [SEERS, FORGE_CALLERS].map(ConcurrencyLimits::of_calls);
        Self { seen, forge }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(forge: &str, id: i64) -> RepoRef {
        RepoRef { forge: ForgeName::new(forge), id: RepoId(id), owner: "o".into(), name: "n".into() }
    }

    #[test]
    fn limits_apply_per_forge_and_repository_and_are_released_on_drop() {
        let call_limits = ConcurrencyLimits::new(3, 2);
        let first = call_limits.acquire(&repo("a", 1));
        assert!(call_limits.saturated().admits(&repo("a", 1)));
        let second = call_limits.acquire(&repo("a", 1));
        assert!(!call_limits.saturated().admits(&repo("a", 1)), "the repository has reached its limit of two");
        assert!(call_limits.saturated().admits(&repo("a", 2)), "another repository of the forge has not");
        let third = call_limits.acquire(&repo("a", 2));
        assert!(!call_limits.saturated().admits(&repo("a", 2)), "the forge has reached its limit of three");
        assert!(call_limits.saturated().admits(&repo("b", 2)), "another forge has not");
        drop((first, second));
        assert!(call_limits.saturated().admits(&repo("a", 1)));
        drop(third);
        assert!(call_limits.counts().is_empty(), "released permits leave no entries");
    }
}
