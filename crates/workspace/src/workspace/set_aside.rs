//! New files of killed runs, which are left out of commits and saved under a ref.

use std::path::{Path, PathBuf};

use super::git::GitCommand;
use super::layout::{TreePaths, loop_name};
use super::mirror::RefChange;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};

/// New files to leave out of a commit, because the run that wrote them was killed.
#[derive(Debug, Clone, Copy)]
pub struct SetAside<'a> {
    /// Number of the run's iteration.
    pub iteration: u32,
    /// Paths that are committed nevertheless, because an earlier killed run wrote them as well.
    pub except: &'a [String],
}

impl Workspaces {
    /// Saves the new files of a killed run as a commit, then removes them from the tree and the private index. After a
    /// crash in between, the saved commit identifies these files.
    pub(super) async fn set_aside(
        &self,
        (loop_id, repo): (&LoopId, &RepoRef),
        parent: &Sha,
        SetAside { iteration, except }: SetAside<'_>,
        tree_paths: &TreePaths,
    ) -> Result<Vec<String>, WorkspaceError> {
        let (name, store) = (set_aside_ref(loop_id, iteration), &tree_paths.store);
        let kept = self.ref_value(store, &name).await?;
        let tree = match &kept {
            Some(kept) => self.tree_of(store, kept).await?,
            None => self.write_tree(tree_paths).await?,
        };
        let call = GitCommand::new("list new files", store).args(["diff-tree", "-r", "-z", "--name-only"]);
        let listed =
            self.git.ok(call.args(["--no-renames", "--diff-filter=A", parent.as_str(), tree.as_str()])).await?;
        let new: Vec<PathBuf> = files::zero_separated(&listed.stdout)
            .map(files::path_of)
            .filter(|path| path.to_str().is_none_or(|path| !except.iter().any(|known| known == path)))
            .collect();
        if new.is_empty() {
            return Ok(Vec::new());
        }
        if kept.is_none() {
            let message = "New files of a run that was stopped, kept before they were removed";
            let commit = self.commit_tree((store, repo), &tree, &[parent], message, None).await?;
            let guard = self.locks.repository(store).await?;
            self.update_refs(&guard, store, &[RefChange::Set(name, commit)]).await?;
        }
        for path in &new {
            if files::parents_are_real(&tree_paths.dir, path) {
                files::remove(&tree_paths.dir.join(path))?;
            }
        }
        let call = GitCommand::new("take out new files", store).on_tree(&tree_paths.dir, &tree_paths.index);
        self.git
            .ok(call.args(["update-index", "-z", "--force-remove", "--stdin"]).input(files::zero_terminated(&new)))
            .await?;
        Ok(new.iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    /// Copies saved files into the folder `to`.
    pub async fn copy_set_aside(
        &self,
        (loop_id, repo): (&LoopId, &RepoRef),
        iteration: u32,
        paths: &[String],
        to: &Path,
    ) -> Result<(), WorkspaceError> {
        let store = self.opened(loop_id, repo).await?.store;
        let Some(kept) = self.ref_value(&store, &set_aside_ref(loop_id, iteration)).await? else { return Ok(()) };
        std::fs::create_dir_all(to).map_err(WorkspaceError::io("create", to))?;
        let index = to.with_extension("index");
        let read = GitCommand::new("read files that were set aside", &store).on_tree(to, &index);
        self.git.ok(read.args(["read-tree", kept.as_str()])).await?;
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let copy = GitCommand::new("copy files that were set aside", &store).on_tree(to, &index);
        let copied =
            self.git.ok(copy.args(["checkout-index", "-z", "--stdin"]).input(files::zero_terminated(&paths))).await;
        files::remove(&index)?;
        copied.map(drop)
    }
}

/// Returns the name of the ref that saves the new files of a killed run.
fn set_aside_ref(loop_id: &LoopId, iteration: u32) -> String {
    format!("refs/ralph/keep/{}/killed-{iteration}", loop_name(loop_id))
}
