//! Merges of the base branch into a loop's work.

use super::git::{GitCommand, GitUrl, failure};
use super::layout::{TreePaths, check_branch};
use super::mirror::RemoteBranches;
use super::spawner::GitOutput;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};

/// Outcome of merging the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The work already contains the base; the tree was not changed.
    UpToDate,
    /// The tree contains the merged files; call `commit` with `merge_parent` to record them.
    Clean { tree: Sha },
    /// The tree contains the merged files; `files` have conflicts.
    Conflict { files: Vec<String> },
}

/// Branches to merge on trial.
#[derive(Debug, Clone, Copy)]
pub struct TipsRequest<'a> {
    pub loop_id: &'a LoopId,
    pub repo: &'a RepoRef,
    pub access: &'a GitUrl,
    /// Repository of the loop's branch, if it is a fork.
    pub fork: Option<&'a GitUrl>,
    /// Base branch.
    pub base_branch: &'a str,
    /// Branch of the loop.
    pub branch: &'a str,
    /// Whether a new mirror is created as a partial clone without file contents.
    pub partial: bool,
}

/// Result of merging the tips of two branches on trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeOfTips {
    /// Tip of the loop's branch; `None` if it does not exist.
    pub branch: Option<Sha>,
    /// Whether files have conflicts.
    pub conflict: bool,
}

impl Workspaces {
    /// Merges `base` into `head` and writes the result to the tree. Merged files overwrite uncommitted changes in the
    /// tree, so commit or salvage them first. Both commits must be in the mirror or the loop's store.
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
        let merged = self.merge_tree(&tree_paths, head, base).await?;
        let mut parts = files::zero_separated(&merged.stdout);
        let tree = parts.next().and_then(|name| Sha::parse(&String::from_utf8_lossy(name)));
        let tree = tree.ok_or_else(|| failure("merge the base branch", &merged, None))?;
        let conflicted: Vec<String> = parts.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        super::tree::remove_index_lock(&tree_paths.index)?;
        let fill = GitCommand::new("put the merged files into the tree", &tree_paths.store)
            .on_tree(&tree_paths.dir, &tree_paths.index);
        self.git.ok(fill.args(["read-tree", "--reset", "-u", "--no-recurse-submodules", tree.as_str()])).await?;
        if self.puts_assets(&tree_paths) {
            let filled = self.tracked(&tree_paths).await?;
            self.fill_assets(&tree_paths, filled.file_paths()).await?;
        }
        self.install_agent_repository(&tree_paths, head).await?;
        Ok(if merged.code == 0 { MergeOutcome::Clean { tree } } else { MergeOutcome::Conflict { files: conflicted } })
    }

    /// Returns the newest commit of `other` that `head` lacks and that changed any of the files, with its author's name without
    /// special characters. `None` if there is none.
    pub async fn conflicting_commit(
        &self,
        (loop_id, repo): (&LoopId, &RepoRef),
        (head, other): (&Sha, &Sha),
        files: &[String],
    ) -> Result<Option<(Sha, String)>, WorkspaceError> {
        let store = self.opened(loop_id, repo).await?.store;
        let call = GitCommand::new("find the commit that conflicts", &store);
        let call = call.args(["--literal-pathspecs", "log", "-1", "--no-merges", "--no-color", "--format=%H%n%an"]);
        let without = format!("^{head}");
        let found = self.git.ok(call.args([other.as_str(), &without, "--"]).args(files)).await?;
        let text = found.text();
        let mut lines = text.lines();
        let Some(commit) = lines.next().and_then(Sha::parse) else { return Ok(None) };
        let plain = |c: &char| c.is_alphanumeric() || " .-'".contains(*c);
        let author: String = lines.next().unwrap_or_default().chars().filter(plain).take(60).collect();
        Ok(Some((commit, author)))
    }

    /// Fetches the tips of a loop's branch and its base, and merges them without changing a tree.
    pub async fn merge_of_tips(&self, request: TipsRequest<'_>) -> Result<MergeOfTips, WorkspaceError> {
        let TipsRequest { loop_id, repo, access, fork, base_branch, branch, partial } = request;
        check_branch(base_branch)?;
        check_branch(branch)?;
        let tree_paths = self.layout.tree(loop_id, repo);
        let guard = self.locks.repository(&tree_paths.mirror).await?;
        self.ensure_mirror(&guard, &tree_paths.mirror, partial).await?;
        let tree_paths = self.opened(loop_id, repo).await?;
        let remote_branches = RemoteBranches { access, fork, base_branch, branch };
        let tips = self.fetch_branches(&guard, &tree_paths.mirror, remote_branches).await?;
        let Some(head) = tips.branch else { return Ok(MergeOfTips { branch: None, conflict: false }) };
        let common = self.merge_base(&tree_paths.mirror, &head, &tips.base).await?;
        let needed: Vec<&Sha> = [&head, &tips.base].into_iter().chain(&common).collect();
        self.complete(&guard, &tree_paths, access, &needed).await?;
        drop(guard);
        let contained = common.as_ref() == Some(&tips.base);
        let conflict = !contained && self.merge_tree(&tree_paths, &head, &tips.base).await?.code == 1;
        Ok(MergeOfTips { branch: Some(head), conflict })
    }

    /// Merges two commits without changing a tree; exit code 1 means that files have conflicts.
    async fn merge_tree(&self, tree_paths: &TreePaths, head: &Sha, base: &Sha) -> Result<GitOutput, WorkspaceError> {
        self.use_attributes_of(tree_paths, base).await?;
        let call = GitCommand::new("merge the base branch", &tree_paths.store).synced_by_ref();
        let merge = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", head.as_str(), base.as_str()];
        let merged = self.git.run(call.args(merge)).await?;
        if matches!(merged.code, 0 | 1) { Ok(merged) } else { Err(failure("merge the base branch", &merged, None)) }
    }
}
