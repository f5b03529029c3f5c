//! Cache of facts that take long to find in large repositories or changes, or that many loops need: scanned objects, the protected
//! paths of a commit and its files. Objects with a given id never change.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::protect::ProtectedPresent;
use super::tracked::Tracked;
use crate::domain::model::ids::Sha;

/// Maximum number of cached facts of each kind.
const MOST: usize = 64;

/// Maximum number of objects that are remembered as scanned.
const MOST_SCANNED: usize = 16 << 10;

/// Cached facts about objects of all mirrors.
#[derive(Debug, Default)]
pub(super) struct KnownObjects {
    /// Objects in which a scan found no secrets.
    pub scanned: ScannedObjects,
    /// Protected paths that exist in a commit, by commit and patterns.
    pub protected: Facts<(Sha, Vec<String>), ProtectedPresent>,
    /// Files of commits with short lists.
    pub tracked: Facts<Sha, Arc<Tracked>>,
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
}
