//! Commits of a loop's store as a pack of git, from which another host makes the store again.
//!
//! A pack is saved, and no ref of the forge, because these commits have not passed the checks before a push: they can contain
//! secrets, and everybody who reads a repository can fetch its refs.

use super::git::GitCommand;
use super::layout::loop_name;
use super::mirror::{RefChange, RemoteBranches};
use super::store::REF_FOLDERS;
use super::{PrepareTree, WorkspaceError, Workspaces};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};
use crate::domain::model::saved_commits::{SavedCommits, SavedRef};

/// Maximum size of a pack, in bytes. A loop pauses for a person before its changes are this large.
const PACK_BYTES: usize = 32 << 20;
/// Size of a pack without objects, in bytes: header and digest.
const EMPTY_PACK_BYTES: usize = 12 + 32;

impl Workspaces {
    /// Returns the refs of a loop's store; none if the loop has no store here.
    pub async fn loop_refs(&self, loop_id: &LoopId, repo: &RepoRef) -> Result<Vec<SavedRef>, WorkspaceError> {
        if !self.keeps_commits((loop_id, repo)) {
            return Ok(Vec::new());
        }
        let store = self.layout.tree(loop_id, repo).store;
        let call = GitCommand::new("list refs", &store);
        let call = call.args(["for-each-ref", "--format=%(objectname) %(refname)"]).args(patterns(loop_id));
        let listed = self.git.ok(call).await?.text();
        let refs = listed.lines().filter_map(|line| line.split_once(' '));
        Ok(refs
            .filter_map(|(commit, name)| Some(SavedRef { name: name.to_owned(), commit: Sha::parse(commit)? }))
            .collect())
    }

    /// Packs the objects of `refs` that `have`, commits of the forge, do not contain.
    ///
    /// # Errors
    /// `TooLarge` if the pack has more than 32 MiB.
    pub async fn pack_commits(
        &self,
        loop_id: &LoopId,
        repo: &RepoRef,
        refs: Vec<SavedRef>,
        have: &[&Sha],
    ) -> Result<SavedCommits, WorkspaceError> {
        let store = self.layout.tree(loop_id, repo).store;
        let mut known = Vec::new();
        for commit in have {
            if !known.contains(*commit) && self.has_commit(&store, commit).await? {
                known.push((*commit).clone());
            }
        }
        let wanted = refs.iter().map(|one| format!("{}\n", one.commit));
        let input: String = wanted.chain(known.iter().map(|commit| format!("^{commit}\n"))).collect();
        let call =
            GitCommand::new("pack the loop's commits", &store).input(input.into_bytes()).output_bytes(PACK_BYTES);
        let call = call.args(["pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q"]);
        let output = self.git.ok(call).await?;
        if output.truncated {
            let what = "the pack of the loop's commits that are not on the forge".to_owned();
            return Err(WorkspaceError::TooLarge { what, limit: PACK_BYTES as u64 });
        }
        let pack = (output.stdout.len() > EMPTY_PACK_BYTES).then_some(output.stdout);
        Ok(SavedCommits { refs, have: known, pack })
    }

    /// Makes a loop's store again from saved commits. Refs whose commits are neither in the pack nor on the forge are left out.
    ///
    /// # Errors
    /// `CommitMissing` if the commit to resume at, or a commit that the pack builds on, is missing.
    pub async fn unpack_commits(&self, request: PrepareTree<'_>, saved: &SavedCommits) -> Result<(), WorkspaceError> {
        let PrepareTree { loop_id, repo, access, fork, base_branch, branch, resume_at, partial } = request;
        let tree_paths = self.layout.tree(loop_id, repo);
        let _tree = self.locks.here(&tree_paths.dir).await;
        let guard = self.locks.repository(&tree_paths.mirror).await?;
        self.ensure_mirror(&guard, &tree_paths.mirror, partial).await?;
        self.opened(loop_id, repo).await?;
        let remote_branches = RemoteBranches { access, fork, base_branch, branch };
        self.fetch_branches(&guard, &tree_paths.mirror, remote_branches).await?;
        let store = &tree_paths.store;
        for commit in &saved.have {
            if !self.has_commit(store, commit).await? {
                self.fetch_commit(&guard, &tree_paths.mirror, access, commit).await?;
            }
        }
        if let Some(pack) = &saved.pack {
            // The pack has deltas against objects of these commits.
            self.complete(&guard, &tree_paths, access, &saved.have.iter().collect::<Vec<_>>()).await?;
            let call = GitCommand::new("read the loop's saved commits", store).input(pack.clone());
            self.git.ok(call.args(["index-pack", "--stdin", "--fix-thin"])).await?;
        }
        let mut changes = Vec::new();
        for SavedRef { name, commit } in &saved.refs {
            let is_here = self.has_commit(store, commit).await?
                || match self.fetch_commit(&guard, &tree_paths.mirror, access, commit).await {
                    Err(WorkspaceError::CommitMissing { .. }) => false,
                    other => other.map(|()| true)?,
                };
            if is_here {
                changes.push(RefChange::Set(name.clone(), commit.clone()));
            }
        }
        if let Some(head) = resume_at
            && !self.has_commit(store, head).await?
        {
            self.fetch_commit(&guard, &tree_paths.mirror, access, head).await?;
        }
        drop(guard);
        let guard = self.locks.repository(store).await?;
        let old = self.loop_refs(loop_id, repo).await?.into_iter();
        let old = old.filter(|old| saved.refs.iter().all(|one| one.name != old.name));
        changes.extend(old.map(|old| RefChange::Delete(old.name)));
        self.update_refs(&guard, store, &changes).await
    }
}

/// Returns the patterns of the names of a loop's refs.
fn patterns(loop_id: &LoopId) -> [String; 3] {
    REF_FOLDERS.map(|folder| format!("refs/ralph/{folder}/{}", loop_name(loop_id)))
}
