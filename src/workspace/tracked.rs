//! Files and submodules of the trees' indexes, remembered since each tree was filled.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::layout::TreePaths;
use super::{Workspaces, files};
use crate::domain::model::ids::Sha;

/// Number of trees above which all are forgotten; their indexes are then read again.
const MOST_TREES: usize = 64;
/// Maximum size of a remembered list, in bytes; some 10,000 files.
const MOST_BYTES: usize = 1 << 20;

/// Files and submodules of an index, as `git ls-files -z --stage` lists them: sorted by path.
#[derive(Debug)]
pub(super) struct Tracked {
    listed: Vec<u8>,
    /// Place of each path in `listed`, and whether it is a submodule.
    paths: Vec<(Range<usize>, bool)>,
}

impl Tracked {
    /// Parses the list.
    pub fn of(listed: Vec<u8>) -> Self {
        let mut paths = Vec::new();
        let mut start = 0;
        for entry in listed.split(|byte| *byte == 0) {
            if let Some(tab) = entry.iter().position(|byte| *byte == b'\t') {
                paths.push((start + tab + 1..start + entry.len(), entry.starts_with(b"160000 ")));
            }
            start += entry.len() + 1;
        }
        Self { listed, paths }
    }

    /// Returns the paths of submodules.
    pub fn submodules(&self) -> Vec<PathBuf> {
        let submodules = self.paths.iter().filter(|(_, is_submodule)| *is_submodule);
        submodules.map(|(place, _)| files::path_of(&self.listed[place.clone()])).collect()
    }

    /// Returns whether a path is a submodule; `None` if it is neither that nor a file.
    pub fn is_submodule(&self, path: &[u8]) -> Option<bool> {
        let found = self.paths.binary_search_by(|(place, _)| self.listed[place.clone()].cmp(path)).ok()?;
        Some(self.paths[found].1)
    }

    /// Whether something below a folder is listed; `folder` ends with a slash.
    pub fn holds_below(&self, folder: &[u8]) -> bool {
        let next = self.paths.partition_point(|(place, _)| &self.listed[place.clone()] < folder);
        self.paths.get(next).is_some_and(|(place, _)| self.listed[place.clone()].starts_with(folder))
    }
}

/// Commit that each tree was filled with, and what its index then tracked. Forgotten where something else than the files of
/// an agent's commit changes the index; an agent cannot add submodules, because its commits contain files only.
#[derive(Debug, Default)]
pub(super) struct KnownTracked(Mutex<HashMap<PathBuf, (Sha, Arc<Tracked>)>>);

impl Workspaces {
    /// Returns what the index of a tree tracked when it was filled with `commit`; `None` if that is not known.
    pub(super) fn known_tracked(&self, tree_paths: &TreePaths, commit: &Sha) -> Option<Arc<Tracked>> {
        let known = self.tracked.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&tree_paths.dir).filter(|(filled, _)| filled == commit).map(|(_, tracked)| tracked.clone())
    }

    /// Remembers what the index of a tree tracks that was just filled with `commit`.
    pub(super) fn remember_tracked(&self, tree_paths: &TreePaths, commit: &Sha, tracked: Arc<Tracked>) {
        let mut known = self.tracked.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_TREES {
            known.clear();
        }
        if tracked.listed.len() <= MOST_BYTES {
            known.insert(tree_paths.dir.clone(), (commit.clone(), tracked));
        }
    }

    /// Forgets what the index of a tree tracks, before it is changed or moved.
    pub(super) fn forget_tracked(&self, tree_paths: &TreePaths) {
        self.tracked.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&tree_paths.dir);
    }
}
