//! How many calls are under way for whom, so that a repository, or a forge, that does not answer cannot have every hand
//! wait for it while the others go unserved.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::model::ids::{ForgeName, RepoId, RepoRef};

/// A repository of a forge, or the whole forge.
type Key = (ForgeName, Option<RepoId>);

/// Calls under way, and how many there may be of one forge and of one repository.
#[derive(Debug)]
pub struct Hands {
    per_forge: usize,
    per_repository: usize,
    under_way: Mutex<HashMap<Key, usize>>,
    /// Held from the look at what is full until a call is counted.
    claiming: tokio::sync::Mutex<()>,
}

/// A call under way; over when this is dropped.
#[derive(Debug)]
pub(super) struct Hand<'a> {
    hands: &'a Hands,
    keys: [Key; 2],
}

/// Forges and repositories that have their share.
#[derive(Debug)]
pub(super) struct Full(HashSet<Key>);

impl Full {
    /// Whether another call may begin there.
    pub(super) fn admits(&self, repo: &RepoRef) -> bool {
        !keys(repo).iter().any(|key| self.0.contains(key))
    }
}

impl Hands {
    /// With a share for each forge and, of that, for each repository; at least 1 each.
    pub fn new(per_forge: usize, per_repository: usize) -> Self {
        Self {
            per_forge: per_forge.max(1),
            per_repository: per_repository.max(1),
            under_way: Mutex::default(),
            claiming: tokio::sync::Mutex::default(),
        }
    }

    /// Waits until nobody else chooses what to do next.
    pub(super) async fn choosing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.claiming.lock().await
    }

    /// Who has their share now.
    pub(super) fn full(&self) -> Full {
        let most = |key: &Key| if key.1.is_some() { self.per_repository } else { self.per_forge };
        Full(self.counts().iter().filter(|(key, count)| **count >= most(key)).map(|(key, _)| key.clone()).collect())
    }

    /// Counts a call that begins.
    pub(super) fn begin(&self, repo: &RepoRef) -> Hand<'_> {
        let keys = keys(repo);
        let mut counts = self.counts();
        keys.iter().for_each(|key| *counts.entry(key.clone()).or_default() += 1);
        drop(counts);
        Hand { hands: self, keys }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        let mut counts = self.hands.counts();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(forge: &str, id: i64) -> RepoRef {
        RepoRef { forge: ForgeName::new(forge), id: RepoId(id), owner: "o".into(), name: "n".into() }
    }

    #[test]
    fn a_forge_and_a_repository_have_their_share_and_get_it_back() {
        let hands = Hands::new(3, 2);
        let first = hands.begin(&repo("a", 1));
        assert!(hands.full().admits(&repo("a", 1)));
        let second = hands.begin(&repo("a", 1));
        assert!(!hands.full().admits(&repo("a", 1)), "the repository has its two");
        assert!(hands.full().admits(&repo("a", 2)), "another of the forge has not");
        let third = hands.begin(&repo("a", 2));
        assert!(!hands.full().admits(&repo("a", 2)), "the forge has its three");
        assert!(hands.full().admits(&repo("b", 2)), "another forge has not");
        drop((first, second));
        assert!(hands.full().admits(&repo("a", 1)));
        drop(third);
        assert!(hands.counts().is_empty(), "nothing is kept of what is over");
    }
}
