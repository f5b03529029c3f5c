//! Garbage collection: deletes trees of finished loops, discarded files and stale locks, and packs repositories.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::git::GitCommand;
use super::layout::{indexes, loop_name};
use super::mirror::RefChange;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::LoopId;

/// Minimum number of loose objects whose ids start with the same byte for a store to be packed. This corresponds to
/// git's limit of 6700 objects in total.
const FULL: usize = 27;

/// Result of a garbage collection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReapReport {
    /// Number of deleted trees of finished loops.
    pub trees: usize,
    /// Number of deleted files and folders that were discarded or left by a crash.
    pub leftovers: usize,
    /// Number of deleted trees beyond the maximum size of the pool.
    pub pooled: usize,
    /// Number of deleted environments that were not used for long.
    pub environments: usize,
    /// Number of removed stale locks.
    pub locks: usize,
    /// Errors, one message each. The failed operations are repeated at the next run.
    pub failures: Vec<String>,
}

impl Workspaces {
    /// Returns the folders of all loops. Call it before reading the live loops from the store, so that a loop which
    /// starts in between is not in the result.
    pub fn standing(&self) -> Result<Vec<PathBuf>, WorkspaceError> {
        children(&self.layout.trees())
    }

    /// Deletes the folders in `standing` that belong to no live loop, and unused temporary files. Commits are kept.
    pub async fn reap(&self, standing: Vec<PathBuf>, live: &HashSet<LoopId>) -> Result<ReapReport, WorkspaceError> {
        let live: HashSet<String> = live.iter().map(loop_name).collect();
        let mut report = ReapReport::default();
        self.reap_trees(standing, &live, &mut report).await?;
        self.reap_pools(&mut report)?;
        for of_repository in children(&self.layout.all_environments())? {
            report.environments += self.drop_environments(&of_repository)?;
        }
        for mirror in children(&self.layout.mirrors())?.into_iter().filter(|path| path.is_dir()) {
            if let Err(error) = self.reap_mirror(&mirror, &live, &mut report).await {
                report.failures.push(error.to_string());
            }
        }
        for folder in children(&self.layout.stores())? {
            for store in children(&folder)?.into_iter().filter(|path| path.is_dir()) {
                if let Err(error) = self.reap_store(&store, &live, &mut report).await {
                    report.failures.push(error.to_string());
                }
            }
        }
        let leftovers = self.layout.leftovers()?;
        let (removed, failures) = files::blocking(move || {
            let outcomes: Vec<_> = leftovers.iter().map(|path| files::remove(path)).collect();
            let removed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            Ok((
                removed,
                outcomes.into_iter().filter_map(|outcome| Some(outcome.err()?.to_string())).collect::<Vec<_>>(),
            ))
        })
        .await?;
        report.leftovers = removed;
        report.failures.extend(failures);
        Ok(report)
    }

    async fn reap_trees(
        &self,
        standing: Vec<PathBuf>,
        live: &HashSet<String>,
        report: &mut ReapReport,
    ) -> Result<(), WorkspaceError> {
        for folder in standing {
            if name_of(&folder).is_some_and(|name| live.contains(name)) {
                continue;
            }
            let trees = if folder.is_symlink() || !folder.is_dir() { Vec::new() } else { children(&folder)? };
            for tree in &trees {
                let _tree = self.locks.here(tree).await;
                self.layout.discard(tree)?;
                report.trees += 1;
            }
            self.layout.discard(&folder)?;
        }
        Ok(())
    }

    fn reap_pools(&self, report: &mut ReapReport) -> Result<(), WorkspaceError> {
        for pool in children(&self.layout.pools())? {
            for entry in children(&pool)?.into_iter().skip(self.settings.pool) {
                self.layout.discard(&entry)?;
                report.pooled += 1;
            }
        }
        Ok(())
    }

    /// Deletes indexes and refs of finished loops and stale locks, and runs git's garbage collection if it is due.
    async fn reap_mirror(
        &self,
        mirror: &Path,
        live: &HashSet<String>,
        report: &mut ReapReport,
    ) -> Result<(), WorkspaceError> {
        let guard = self.locks.repository(mirror).await?;
        report.locks += guard.stale;
        // A loop that started after `live` was read has its folder.
        let trees = self.layout.trees();
        let is_over = |owner: &str| !live.contains(owner) && !trees.join(owner).exists();
        for index in children(&indexes(mirror)).unwrap_or_default() {
            let owner = name_of(&index).and_then(|name| name.split('.').next());
            if owner.is_some_and(is_over) {
                files::remove(&index)?;
            }
        }
        let notes = self.ref_names(mirror, "refs/ralph/trees/").await?;
        let ended = notes.into_iter().filter(|name| name.rsplit('/').next().is_some_and(is_over));
        let changes: Vec<RefChange> = ended.map(RefChange::Delete).collect();
        self.update_refs(&guard, mirror, &changes).await?;
        let housekeeping = GitCommand::new("pack a mirror", mirror)
            .config("gc.auto=6700")
            .config("gc.autoPackLimit=50")
            .config("gc.autoDetach=false")
            // Stores borrow objects that no ref of the mirror needs any more, such as objects of a base that was moved back.
            .config("gc.pruneExpire=never")
            .args(["gc", "--auto", "--quiet"]);
        self.git.ok(housekeeping).await.map(drop)
    }

    /// Deletes the tree's ref of a finished loop and stale locks, and packs the store if it has many objects.
    async fn reap_store(
        &self,
        store: &Path,
        live: &HashSet<String>,
        report: &mut ReapReport,
    ) -> Result<(), WorkspaceError> {
        let Some(owner) = store.file_stem().and_then(|name| name.to_str()) else { return Ok(()) };
        let is_over = !live.contains(owner) && !self.layout.trees().join(owner).exists();
        let name = format!("refs/ralph/trees/{owner}");
        let has_tree = store.join(&name).exists();
        let is_full = children(&store.join("objects/17")).is_ok_and(|found| found.len() > FULL);
        let is_due = is_full || (is_over && has_tree) || store.join("packed-refs.lock").exists();
        if !is_due {
            return Ok(());
        }
        let guard = self.locks.repository(store).await?;
        report.locks += guard.stale;
        if is_over {
            self.update_refs(&guard, store, &[RefChange::Delete(name)]).await?;
        }
        if is_full {
            let pack =
                GitCommand::new("pack a store", store).config("gc.pruneExpire=never").config("gc.autoDetach=false");
            self.git.ok(pack.args(["gc", "--quiet"])).await?;
        }
        Ok(())
    }
}

fn children(dir: &Path) -> Result<Vec<PathBuf>, WorkspaceError> {
    let entries = std::fs::read_dir(dir).map_err(WorkspaceError::io("list", dir))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}
