//! Merges of the base branch into a loop's work.

use super::git::{GitCommand, failure};
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};

/// Outcome of a merge of the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The work contains the base; the tree was not changed.
    UpToDate,
    /// The tree has the merged files; `commit` with `merge_parent` records them.
    Clean { tree: Sha },
    /// The tree has the merged files; the listed ones have conflicts.
    Conflict { files: Vec<String> },
}

impl Workspaces {
    /// Merges `base` into `head` and writes the result to the tree. Uncommitted changes in the tree are
    /// overwritten by merged files; commit or salvage them first. Both commits must be in the mirror or the loop's store.
    pub async fn merge_base_into(
        &self,
        loop_id: &LoopId,
        repo: &RepoRef,
        head: &Sha,
        base: &Sha,
    ) -> Result<MergeOutcome, WorkspaceError> {
        let tree_paths = self.opened(loop_id, repo).await?;
        let _tree = self.locks.here(&tree_paths.dir).await;
        for commit in [head, base] {
            if !self.has_commit(&tree_paths.store, commit).await? {
                return Err(WorkspaceError::CommitMissing { commit: commit.clone() });
            }
        }
        if self.merge_base(&tree_paths.store, head, base).await?.as_ref() == Some(base) {
            return Ok(MergeOutcome::UpToDate);
        }
        if !std::fs::symlink_metadata(&tree_paths.dir).is_ok_and(|found| found.is_dir()) {
            return Err(WorkspaceError::TreeMissing(tree_paths.dir));
        }
        let call = GitCommand::new("merge the base branch", &tree_paths.store).attributes_of(base.as_str());
        let merge = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", head.as_str(), base.as_str()];
        let merged = self.git.run(call.args(merge)).await?;
        if !matches!(merged.code, 0 | 1) {
            return Err(failure("merge the base branch", &merged, None));
        }
        let mut parts = files::zero_separated(&merged.stdout);
        let tree = parts.next().and_then(|name| Sha::parse(&String::from_utf8_lossy(name)));
        let tree = tree.ok_or_else(|| failure("merge the base branch", &merged, None))?;
        let conflicted: Vec<String> = parts.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        super::tree::remove_index_lock(&tree_paths.index)?;
        self.forget_tracked(&tree_paths);
        let fill = GitCommand::new("put the merged files into the tree", &tree_paths.store)
            .on_tree(&tree_paths.dir, &tree_paths.index);
        self.git.ok(fill.args(["read-tree", "--reset", "-u", "--no-recurse-submodules", tree.as_str()])).await?;
        self.install_agent_repository(&tree_paths, head).await?;
        Ok(if merged.code == 0 { MergeOutcome::Clean { tree } } else { MergeOutcome::Conflict { files: conflicted } })
    }
}
