//! Work trees of loops, from their creation to their return to the pool, and clean checkouts for verification.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use failpoint::kill_point;

use super::git::{GitCommand, GitUrl};
use super::layout::{ScratchFolder, TreePaths, check_branch, indexes, loop_name, objects};
use super::mirror::{RefChange, RemoteBranches, loose_ref};
use super::tracked::{Tracked, keep_tracked};
use super::{WorkspaceError, Workspaces, agent_repo, files};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};
use crate::domain::trust::tamper::is_compiled_cache;

/// Parameters of a loop's tree.
#[derive(Debug, Clone, Copy)]
pub struct PrepareTree<'a> {
    pub loop_id: &'a LoopId,
    pub repo: &'a RepoRef,
    pub access: &'a GitUrl,
    /// Repository of the loop's branch, if it is a fork.
    pub fork: Option<&'a GitUrl>,
    /// Base branch.
    pub base_branch: &'a str,
    /// Branch of the loop (`ralph/42-slug`).
    pub branch: &'a str,
    /// Last recorded commit of the loop, which takes precedence over the branch on the forge; `None` for a new loop.
    pub resume_at: Option<&'a Sha>,
    /// Whether a new mirror is created as a partial clone without file contents.
    pub partial: bool,
}

/// Prepared tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeInfo {
    pub dir: PathBuf,
    /// Commit whose files are in the tree.
    pub head: Sha,
    /// Head of the base branch.
    pub base: Sha,
    /// Common ancestor of `head` and `base`; `None` for unrelated histories.
    pub fork: Option<Sha>,
    /// Head of the loop's branch on the forge; `None` if it does not exist.
    pub remote_branch: Option<Sha>,
    /// Content that the tree lacks, one sentence each without a full stop.
    pub notes: Vec<String>,
}

/// Paths that an agent's sandbox shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentView {
    /// Writable path, which is the same in the sandbox.
    pub tree: PathBuf,
    /// Read-only paths, which are the same in the sandbox.
    pub read_only: Vec<PathBuf>,
}

/// Separate tree with the files of a commit, which no agent has changed. Return it with `release_checkout`.
#[derive(Debug)]
pub struct CleanCheckout {
    /// Folder with the files.
    pub dir: PathBuf,
    /// Commit of the files.
    pub commit: Sha,
    /// Further read-only paths, which git commands of checks need.
    pub read_only: Vec<PathBuf>,
    repo: RepoRef,
    pub(super) tree_paths: TreePaths,
    _scratch: ScratchFolder,
}

impl Workspaces {
    /// Returns the path of a loop's tree, which may not exist.
    pub fn tree_dir(&self, loop_id: &LoopId, repo: &RepoRef) -> PathBuf {
        self.layout.tree(loop_id, repo).dir
    }

    /// Returns the paths that the agent's sandbox shows.
    pub fn agent_view(&self, loop_id: &LoopId, repo: &RepoRef) -> AgentView {
        let tree_paths = self.layout.tree(loop_id, repo);
        AgentView {
            tree: tree_paths.dir,
            read_only: [&tree_paths.mirror, &tree_paths.store].map(|from| objects(from)).into(),
        }
    }

    /// Returns the last commit of the loop's tree; `None` before the first `prepare`. After a crash, the caller may
    /// not have recorded this commit.
    pub async fn recorded(&self, loop_id: &LoopId, repo: &RepoRef) -> Result<Option<Sha>, WorkspaceError> {
        if !self.layout.mirror(repo).is_dir() {
            return Ok(None);
        }
        let store = self.opened(loop_id, repo).await?.store;
        self.ref_value(&store, &tree_ref(loop_id)).await
    }

    /// Fetches new commits and sets the tree to `resume_at`, otherwise to the branch on the forge, otherwise to the
    /// base. Idempotent in any state on disk (missing tree, incomplete tree, stale locks). Discards uncommitted files.
    pub async fn prepare(&self, request: PrepareTree<'_>) -> Result<TreeInfo, WorkspaceError> {
        let PrepareTree { loop_id, repo, access, fork, base_branch, branch, resume_at, partial } = request;
        check_branch(base_branch)?;
        check_branch(branch)?;
        let tree_paths = self.layout.tree(loop_id, repo);
        let _tree = self.locks.here(&tree_paths.dir).await;
        let guard = self.locks.repository(&tree_paths.mirror).await?;
        kill_point("K12");
        self.ensure_mirror(&guard, &tree_paths.mirror, partial).await?;
        kill_point("K13");
        self.opened(loop_id, repo).await?;
        let remote_branches = RemoteBranches { access, fork, base_branch, branch };
        let remote = self.fetch_branches(&guard, &tree_paths.mirror, remote_branches).await?;
        let head = resume_at.or(remote.branch.as_ref()).unwrap_or(&remote.base).clone();
        if !self.has_commit(&tree_paths.store, &head).await? {
            self.fetch_commit(&guard, &tree_paths.mirror, access, &head).await?;
        }
        let mut needed = vec![&head, &remote.base];
        let common = self.merge_base(&tree_paths.store, &head, &remote.base).await?;
        needed.extend(common.as_ref());
        // Commits of other authors on the loop's branch may need a merge.
        needed.extend(remote.branch.as_ref());
        let parted = match &remote.branch {
            Some(branch) => self.merge_base(&tree_paths.store, &head, branch).await?,
            None => None,
        };
        needed.extend(parted.as_ref());
        self.complete(&guard, &tree_paths, access, &needed).await?;
        let mut notes = self.fetch_submodules(&guard, &tree_paths, access, &head).await?;
        if head != remote.base {
            // A merge may bring other commits of submodules.
            self.fetch_submodules(&guard, &tree_paths, access, &remote.base).await?;
        }
        self.use_attributes_of(&tree_paths, &remote.base).await?;
        let of_base: Vec<&Sha> = [&remote.base].into_iter().chain(&common).collect();
        notes.extend(self.fetch_assets(&guard, &tree_paths, access, &of_base).await?);
        drop(guard);
        if std::fs::symlink_metadata(&tree_paths.dir).is_err() {
            self.take_from_pool(repo, &tree_paths)?;
        }
        self.put_at(loop_id, &tree_paths, &head).await?;
        let (dir, remote_branch) = (tree_paths.dir, remote.branch);
        Ok(TreeInfo { dir, head, base: remote.base, fork: common, remote_branch, notes })
    }

    /// Whether a loop has a tree on this machine.
    pub fn has_tree(&self, loop_id: &LoopId, repo: &RepoRef) -> bool {
        std::fs::symlink_metadata(self.layout.tree(loop_id, repo).dir).is_ok_and(|found| found.is_dir())
    }

    /// Sets the tree to the commit `to`. Discards all other files, including ignored ones, and the agent's repository.
    pub async fn reset(&self, loop_id: &LoopId, repo: &RepoRef, to: &Sha) -> Result<(), WorkspaceError> {
        let tree_paths = self.opened(loop_id, repo).await?;
        let _tree = self.locks.here(&tree_paths.dir).await;
        self.put_at(loop_id, &tree_paths, to).await
    }

    /// Creates a separate tree with exactly the files of `commit`. Compiled files that interpreters would load instead
    /// of their sources are left out.
    pub async fn clean_checkout(
        &self,
        loop_id: &LoopId,
        repo: &RepoRef,
        commit: &Sha,
    ) -> Result<CleanCheckout, WorkspaceError> {
        let of_loop = self.opened(loop_id, repo).await?;
        let scratch = self.layout.scratch()?;
        let tree_paths = TreePaths { dir: scratch.path().join("tree"), index: scratch.path().join("index"), ..of_loop };
        self.take_from_pool(repo, &tree_paths)?;
        let tracked = self.fill(&tree_paths, commit).await?;
        for path in tracked.files().filter(|path| is_compiled_cache(path)) {
            files::remove(&tree_paths.dir.join(&*path))?;
        }
        self.install_agent_repository(&tree_paths, commit).await?;
        let read_only = [&tree_paths.mirror, &tree_paths.store].map(|from| objects(from)).into();
        let (dir, repo) = (tree_paths.dir.clone(), repo.clone());
        Ok(CleanCheckout { dir, commit: commit.clone(), read_only, repo, tree_paths, _scratch: scratch })
    }

    /// Replaces files of a checkout with their versions at `base`; removes files that the base does not have.
    pub async fn use_base_files(
        &self,
        checkout: &CleanCheckout,
        base: &Sha,
        paths: &[String],
    ) -> Result<(), WorkspaceError> {
        let names: Vec<&[u8]> = paths.iter().map(|path| path.as_bytes()).collect();
        self.restore(&checkout.tree_paths, base, &names).await?;
        // Caches of interpreters know files by size and time in seconds.
        let later = self.clock.now().plus_ms(2_000);
        for path in paths.iter().map(Path::new) {
            if files::parents_are_real(&checkout.dir, path) {
                files::set_modified(&checkout.dir.join(path), later);
            }
        }
        Ok(())
    }

    /// Replaces a file of a checkout by a text. A link is replaced, not followed.
    pub fn use_text(&self, checkout: &CleanCheckout, path: &str, text: &str) -> Result<(), WorkspaceError> {
        let file = checkout.dir.join(path);
        if !files::parents_are_real(&checkout.dir, Path::new(path)) {
            let error = std::io::Error::from(std::io::ErrorKind::NotADirectory);
            return Err(WorkspaceError::io("write", &file)(error));
        }
        let mode =
            std::fs::symlink_metadata(&file).ok().filter(|found| found.is_file()).map(|found| found.permissions());
        files::remove(&file)?;
        std::fs::write(&file, text).map_err(WorkspaceError::io("write", &file))?;
        if let Some(mode) = mode {
            std::fs::set_permissions(&file, mode).map_err(WorkspaceError::io("write", &file))?;
        }
        // Caches of interpreters know files by size and time in seconds.
        files::set_modified(&file, self.clock.now().plus_ms(2_000));
        Ok(())
    }

    /// Returns a checkout to the pool, or deletes it.
    pub async fn release_checkout(&self, checkout: CleanCheckout) -> Result<(), WorkspaceError> {
        self.retire(&checkout.repo, &checkout.tree_paths).await
    }

    /// Returns the tree of a finished loop to the pool, or deletes it. Its commits stay reachable in its store.
    pub async fn release(&self, loop_id: &LoopId, repo: &RepoRef) -> Result<(), WorkspaceError> {
        let tree_paths = self.layout.tree(loop_id, repo);
        let _tree = self.locks.here(&tree_paths.dir).await;
        self.retire(repo, &tree_paths).await?;
        if tree_paths.mirror.is_dir() {
            let store = self.opened(loop_id, repo).await?.store;
            let guard = self.locks.repository(&store).await?;
            self.update_refs(&guard, &store, &[RefChange::Delete(tree_ref(loop_id))]).await?;
        }
        self.remove_empty_loop_folder(&tree_paths);
        Ok(())
    }

    pub(super) fn remove_empty_loop_folder(&self, tree_paths: &TreePaths) {
        if let Some(parent) = tree_paths.dir.parent() {
            // Fails while the loop has a tree of another repository.
            let _ = std::fs::remove_dir(parent);
        }
    }

    /// Returns the merge base of two commits; `None` for unrelated histories.
    pub(super) async fn merge_base(&self, mirror: &Path, one: &Sha, two: &Sha) -> Result<Option<Sha>, WorkspaceError> {
        let call = GitCommand::new("find the common ancestor", mirror).args(["merge-base", one.as_str(), two.as_str()]);
        Ok(self.git.run(call).await?.text().lines().next().and_then(Sha::parse))
    }

    /// Replaces the agent's repository.
    pub(super) async fn install_agent_repository(
        &self,
        tree_paths: &TreePaths,
        commit: &Sha,
    ) -> Result<(), WorkspaceError> {
        let author = (self.settings.committer_name.as_str(), self.settings.committer_email.as_str());
        let lfs_index = self.index_for_agent(tree_paths).await?;
        let lfs_index = lfs_index.as_ref().map(|(index, _)| index.as_path());
        agent_repo::install(&self.layout, tree_paths, commit, author, lfs_index)
    }

    async fn put_at(&self, loop_id: &LoopId, tree_paths: &TreePaths, commit: &Sha) -> Result<(), WorkspaceError> {
        self.fill(tree_paths, commit).await?;
        self.install_agent_repository(tree_paths, commit).await?;
        let name = tree_ref(loop_id);
        // Most resets go to the commit that was recorded before.
        if loose_ref(&tree_paths.store, &name).as_ref() == Some(commit) {
            return Ok(());
        }
        let guard = self.locks.repository(&tree_paths.store).await?;
        self.update_refs(&guard, &tree_paths.store, &[RefChange::Set(name, commit.clone())]).await
    }

    /// Sets the files to the files of `commit` and returns their list. If this fails, the tree is replaced.
    async fn fill(&self, tree_paths: &TreePaths, commit: &Sha) -> Result<Arc<Tracked>, WorkspaceError> {
        match self.fill_in_place(tree_paths, commit).await {
            Err(WorkspaceError::Git { .. } | WorkspaceError::Io { .. }) => {
                if !self.has_commit(&tree_paths.store, commit).await? {
                    return Err(WorkspaceError::CommitMissing { commit: commit.clone() });
                }
                self.layout.discard(&tree_paths.dir)?;
                files::remove(&tree_paths.index)?;
                self.fill_in_place(tree_paths, commit).await
            }
            other => other,
        }
    }

    async fn fill_in_place(&self, tree_paths: &TreePaths, commit: &Sha) -> Result<Arc<Tracked>, WorkspaceError> {
        self.make_real_folder(tree_paths)?;
        self.layout.discard(&tree_paths.dir.join(".git"))?;
        remove_index_lock(&tree_paths.index)?;
        let reset =
            GitCommand::new("fill the work tree", &tree_paths.store).on_tree(&tree_paths.dir, &tree_paths.index);
        let reset = reset.args(["read-tree", "--reset", "-u", "--no-recurse-submodules", commit.as_str()]);
        // Both run to their ends, so that no git process is stopped halfway.
        let (filled, tracked) = tokio::join!(self.git.ok(reset), self.tracked_at(&tree_paths.store, commit));
        filled?;
        let tracked = tracked?;
        let dir = tree_paths.dir.clone();
        let kept = tracked.clone();
        files::blocking(move || keep_tracked(&dir, &kept)).await?;
        self.fill_submodules(tree_paths, &tracked).await?;
        if self.puts_assets(tree_paths) {
            self.fill_assets(tree_paths, tracked.file_paths()).await?;
        }
        Ok(tracked)
    }

    fn make_real_folder(&self, tree_paths: &TreePaths) -> Result<(), WorkspaceError> {
        if !std::fs::symlink_metadata(&tree_paths.dir).is_ok_and(|found| found.is_dir()) {
            self.layout.discard(&tree_paths.dir)?;
        }
        std::fs::create_dir_all(&tree_paths.dir).map_err(WorkspaceError::io("create", &tree_paths.dir))?;
        let indexes = indexes(&tree_paths.mirror);
        std::fs::create_dir_all(&indexes).map_err(WorkspaceError::io("create", &indexes))
    }

    /// Moves a pooled tree and its index to `tree_paths`, if there is one.
    fn take_from_pool(&self, repo: &RepoRef, tree_paths: &TreePaths) -> Result<(), WorkspaceError> {
        let pool = self.layout.pool(repo);
        let Ok(entries) = std::fs::read_dir(&pool) else { return Ok(()) };
        let scratch = self.layout.scratch()?;
        let claimed = scratch.path().join("claimed");
        for entry in entries.flatten() {
            // The rename is atomic: only one of two callers gets the entry.
            if std::fs::rename(entry.path(), &claimed).is_err() {
                continue;
            }
            for parent in [&tree_paths.dir, &tree_paths.index].into_iter().filter_map(|path| path.parent()) {
                std::fs::create_dir_all(parent).map_err(WorkspaceError::io("create", parent))?;
            }
            files::remove(&tree_paths.index)?;
            // Without the index, filling the tree is only slower.
            let _ = std::fs::rename(claimed.join("index"), &tree_paths.index);
            let moved = std::fs::rename(claimed.join("tree"), &tree_paths.dir);
            files::remove(&claimed)?;
            if moved.is_ok() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Cleans a tree and moves it to the pool, or discards it if the pool is full or cleaning fails.
    async fn retire(&self, repo: &RepoRef, tree_paths: &TreePaths) -> Result<(), WorkspaceError> {
        let pool = self.layout.pool(repo);
        let pooled = std::fs::read_dir(&pool).map_or(0, |entries| entries.count());
        let tree = std::fs::symlink_metadata(&tree_paths.dir).is_ok_and(|found| found.is_dir());
        if tree && pooled < self.settings.pool && self.scrub_to_index(tree_paths).await.is_ok() {
            std::fs::create_dir_all(&pool).map_err(WorkspaceError::io("create", &pool))?;
            let scratch = self.layout.scratch()?;
            let entry = scratch.path().join("entry");
            std::fs::create_dir(&entry).map_err(WorkspaceError::io("create", &entry))?;
            std::fs::rename(&tree_paths.dir, entry.join("tree"))
                .map_err(WorkspaceError::io("put aside", &tree_paths.dir))?;
            std::fs::rename(&tree_paths.index, entry.join("index"))
                .map_err(WorkspaceError::io("put aside", &tree_paths.index))?;
            let name = scratch.path().file_name().unwrap_or_default();
            return std::fs::rename(&entry, pool.join(name)).map_err(WorkspaceError::io("fill", &pool));
        }
        self.layout.discard(&tree_paths.dir)?;
        files::remove(&tree_paths.index)
    }

    /// Removes all files from the tree that are not in its index.
    async fn scrub_to_index(&self, tree_paths: &TreePaths) -> Result<(), WorkspaceError> {
        remove_index_lock(&tree_paths.index)?;
        let tree = self.write_tree(tree_paths).await?;
        self.fill_in_place(tree_paths, &tree).await.map(drop)
    }
}

/// Returns the name of the ref for the last commit of a loop's tree.
pub(super) fn tree_ref(loop_id: &LoopId) -> String {
    format!("refs/ralph/trees/{}", loop_name(loop_id))
}

/// Removes the lock file of a private index, which is stale because the caller holds the tree's lock.
pub(super) fn remove_index_lock(index: &Path) -> Result<(), WorkspaceError> {
    let mut name = index.as_os_str().to_owned();
    name.push(".lock");
    files::remove(Path::new(&name))
}
