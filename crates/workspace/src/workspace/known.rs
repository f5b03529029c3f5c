//! Cache of facts about git objects, because starting git for a query takes milliseconds. Objects with a given id
//! never change.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::branch::BranchDiff;
use super::diff::ChangedFiles;
use super::protect::ProtectedPresent;
use crate::domain::model::ids::Sha;

/// Maximum number of cached facts of each kind.
const MOST: usize = 64;
/// Maximum number of changed files, and maximum size of the patch in bytes, of a change that is cached.
const MOST_FILES: usize = 256;
const MOST_PATCH: usize = 64 << 10;

/// Maximum number of objects that are remembered as scanned.
const MOST_SCANNED: usize = 16 << 10;

/// Cached facts about objects of all mirrors.
#[derive(Debug, Default)]
pub(super) struct KnownObjects {
    /// Tree id of each commit.
    pub trees: Facts<Sha, Sha>,
    /// Changed files with sizes between two commits or trees.
    sizes: Facts<(Sha, Sha), ChangedFiles>,
    /// Patch between two commits or trees.
    patches: Facts<(Sha, Sha), BranchDiff>,
    /// Objects in which a scan found no secrets.
    pub scanned: ScannedObjects,
    /// Protected paths that exist in a commit, by commit and patterns.
    pub protected: Facts<(Sha, Vec<String>), ProtectedPresent>,
}

/// Objects in which a scan found no secrets.
#[derive(Debug, Default)]
pub(super) struct ScannedObjects {
    /// Scanned contents of files.
    pub blobs: ObjectSet,
    /// Scanned commits (message and new files), each with its parent.
    pub commits: Facts<Sha, Sha>,
}

/// Bounded set of the most recently added object ids.
#[derive(Debug, Default)]
pub(super) struct ObjectSet(Mutex<(HashSet<Sha>, VecDeque<Sha>)>);

impl ObjectSet {
    pub fn holds(&self, id: &Sha) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.contains(id)
    }

    pub fn put(&self, id: Sha) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0.insert(id.clone()) {
            known.1.push_back(id);
        }
        if known.1.len() > MOST_SCANNED
            && let Some(oldest) = known.1.pop_front()
        {
            known.0.remove(&oldest);
        }
    }
}

impl KnownObjects {
    pub fn sizes(&self, from: &Sha, to: &Sha) -> Option<ChangedFiles> {
        self.sizes.get(&(from.clone(), to.clone()))
    }

    pub fn remember_sizes(&self, from: &Sha, to: &Sha, sizes: &ChangedFiles) {
        if sizes.len() <= MOST_FILES {
            self.sizes.put((from.clone(), to.clone()), sizes.clone());
        }
    }

    pub fn patch(&self, from: &Sha, to: &Sha) -> Option<BranchDiff> {
        self.patches.get(&(from.clone(), to.clone()))
    }

    pub fn remember_patch(&self, from: &Sha, to: &Sha, patch: &BranchDiff) {
        if patch.text.len() <= MOST_PATCH && !patch.truncated {
            self.patches.put((from.clone(), to.clone()), patch.clone());
        }
    }
}

/// Bounded cache of the most recently added facts of one kind.
#[derive(Debug)]
pub(super) struct Facts<K, V>(Mutex<VecDeque<(K, V)>>);

impl<K, V> Default for Facts<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, V: Clone> Facts<K, V> {
    pub fn get(&self, key: &K) -> Option<V> {
        let facts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        facts.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
    }

    pub fn put(&self, key: K, value: V) {
        let mut facts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        facts.retain(|(known, _)| *known != key);
        if facts.len() >= MOST {
            facts.pop_front();
        }
        facts.push_back((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_facts_are_kept() {
        let facts = Facts::default();
        for n in 0..=MOST {
            facts.put(n, n);
        }
        facts.put(1, 7);
        assert_eq!([0, 1, 2, MOST].map(|n| facts.get(&n)), [None, Some(7), Some(2), Some(MOST)]);
    }

    #[test]
    fn oldest_scanned_objects_are_forgotten() {
        let (set, id) = (ObjectSet::default(), |n: usize| Sha::parse(&format!("{n:040x}")).unwrap());
        (0..=MOST_SCANNED).for_each(|n| set.put(id(n)));
        set.put(id(MOST_SCANNED));
        assert!(!set.holds(&id(0)) && set.holds(&id(1)) && set.holds(&id(MOST_SCANNED)));
    }

    #[test]
    fn large_changes_are_not_remembered() {
        let (known, from, to) =
            (KnownObjects::default(), Sha::parse(&"a".repeat(40)).unwrap(), Sha::parse(&"b".repeat(40)).unwrap());
        let patch = |size: usize, truncated| BranchDiff { text: "x".repeat(size), truncated };
        known.remember_patch(&from, &to, &patch(MOST_PATCH + 1, false));
        known.remember_patch(&from, &to, &patch(10, true));
        assert_eq!(known.patch(&from, &to), None);
        known.remember_patch(&from, &to, &patch(10, false));
        assert_eq!(known.patch(&from, &to), Some(patch(10, false)));
        assert_eq!(known.patch(&to, &from), None);
    }
}
