//! Submodules of the trees' indexes, remembered since each tree was filled.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::Workspaces;
use super::layout::TreePaths;
use crate::domain::model::ids::Sha;

/// Number of trees above which all are forgotten; their indexes are then read again.
const MOST_TREES: usize = 256;

/// Commit that each tree was filled with, and the paths of its submodules. Forgotten where something else writes the index;
/// an agent cannot add submodules, because its commits contain files only.
#[derive(Debug, Default)]
pub(super) struct KnownSubmodules(Mutex<HashMap<PathBuf, (Sha, Vec<PathBuf>)>>);

impl Workspaces {
    /// Returns the submodules of a tree that was filled with `commit`; `None` if they are not known.
    pub(super) fn known_submodules(&self, tree_paths: &TreePaths, commit: &Sha) -> Option<Vec<PathBuf>> {
        let known = self.submodules.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&tree_paths.dir).filter(|(filled, _)| filled == commit).map(|(_, links)| links.clone())
    }

    /// Remembers the submodules of a tree that was just filled with `commit`.
    pub(super) fn remember_submodules(&self, tree_paths: &TreePaths, commit: &Sha, links: Vec<PathBuf>) {
        let mut known = self.submodules.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_TREES {
            known.clear();
        }
        known.insert(tree_paths.dir.clone(), (commit.clone(), links));
    }

    /// Forgets the submodules of a tree, before its index is written or moved.
    pub(super) fn forget_submodules(&self, tree_paths: &TreePaths) {
        self.submodules.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&tree_paths.dir);
    }
}
