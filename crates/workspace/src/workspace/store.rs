//! Object store of one loop: a bare repository that borrows the objects of the mirror.
//!
//! A loop's commits are only in its store, so that other loops cannot see them before they are on the forge. The
//! mirror contains fetched objects. These are never pruned, because stores borrow them.

use std::fs;
use std::path::Path;

use super::git::GitCommand;
use super::layout::{TreePaths, loop_name, objects};
use super::mirror::{RefChange, is_partial, mirror_config};
use super::{WorkspaceError, Workspaces, attributes, files};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};

/// Folders that contain a loop's refs, below `refs/ralph/`.
pub(super) const REF_FOLDERS: [&str; 3] = ["trees", "loops", "keep"];

impl Workspaces {
    /// Creates the store of a loop if it is missing, and returns the loop's paths. Refs that older versions stored in
    /// the mirror are copied.
    pub(super) async fn opened(&self, loop_id: &LoopId, repo: &RepoRef) -> Result<TreePaths, WorkspaceError> {
        let tree_paths = self.layout.tree(loop_id, repo);
        make(&tree_paths).map_err(WorkspaceError::io("create", &tree_paths.store))?;
        if !tree_paths.store.join("refs/ralph").exists() && has_refs(&tree_paths.mirror, loop_id) {
            self.copy_refs(loop_id, &tree_paths).await?;
        }
        Ok(tree_paths)
    }

    async fn copy_refs(&self, loop_id: &LoopId, tree_paths: &TreePaths) -> Result<(), WorkspaceError> {
        let guard = self.locks.repository(&tree_paths.store).await?;
        let mut changes = Vec::new();
        for folder in REF_FOLDERS {
            let pattern = format!("refs/ralph/{folder}/{}", loop_name(loop_id));
            let call = GitCommand::new("list refs", &tree_paths.mirror);
            let call = call.args(["for-each-ref", "--format=%(objectname) %(refname)", &pattern]);
            let listed = self.git.ok(call).await?.text();
            let refs = listed.lines().filter_map(|line| line.split_once(' '));
            changes
                .extend(refs.filter_map(|(commit, name)| Some(RefChange::Set(name.to_owned(), Sha::parse(commit)?))));
        }
        self.update_refs(&guard, &tree_paths.store, &changes).await
    }
}

/// Creates the missing parts of a store.
fn make(tree_paths: &TreePaths) -> std::io::Result<()> {
    let store = &tree_paths.store;
    for folder in ["objects/info", "objects/pack", "refs/heads"] {
        fs::create_dir_all(store.join(folder))?;
    }
    let alternates = format!("{}\n", objects(&tree_paths.mirror).display());
    files::put(&store.join("objects/info/alternates"), &alternates)?;
    attributes::create(store)?;
    files::put(&store.join("config"), mirror_config(is_partial(&tree_paths.mirror)))?;
    files::put(&store.join("HEAD"), "ref: refs/heads/none\n")
}

/// Whether a mirror contains refs of a loop, which older versions stored there.
fn has_refs(mirror: &Path, loop_id: &LoopId) -> bool {
    let name = loop_name(loop_id);
    let packed = fs::read_to_string(mirror.join("packed-refs")).unwrap_or_default();
    REF_FOLDERS.iter().any(|folder| {
        let path = format!("refs/ralph/{folder}/{name}");
        mirror.join(&path).exists() || packed.lines().any(|line| line.contains(&path))
    })
}
