//! Loops that move between hosts: each host saves the commits that only it has, and another host makes the tree again from the
//! forge and the saved commits. With SQLite there is one host, and nothing is saved.

use std::sync::Arc;

use crate::domain::lifecycle::effect::WorkEffect;
use crate::domain::loops::Loop;
use crate::domain::model::ids::RepoRef;
use crate::domain::model::saved_commits::{SavedCommits, SavedRef};
use crate::engine::context::ServiceContext;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::git_access::ForgeGit;
use crate::engine::receipt::EffectError;
use crate::store::leases::LeaseToken;
use crate::store::loop_files::LoopCommits;
use crate::store::{hosts, loop_files};
use crate::workspace::{PrepareTree, WorkspaceError, Workspaces};

/// Saves and restores the commits of loops.
pub(in crate::engine) struct Handover {
    pub(in crate::engine) context: ServiceContext,
    pub(in crate::engine) git: ForgeGit,
    pub(in crate::engine) workspaces: Arc<Workspaces>,
    /// Id of this host.
    pub(in crate::engine) host: String,
}

impl Handover {
    /// Restores the store of a loop whose newest work tree is on another host. Returns whether it is, so that files which were
    /// not committed are lost.
    pub(super) async fn arrive(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        effect: &WorkEffect,
    ) -> Result<bool, EffectError> {
        let needs_commits = !matches!(effect, WorkEffect::Release { .. } | WorkEffect::HooksAfterEnd { .. });
        if !self.context.store.is_server() || !needs_commits {
            return Ok(false);
        }
        let id = current.id.clone();
        let Some(host) = self.context.store.read(move |c| loop_files::host(c, &id)).await? else { return Ok(false) };
        if host == self.host && self.workspaces.has_tree(&current.id, repo) {
            return Ok(false);
        }
        let id = current.id.clone();
        let read = move |c: &_| Ok((loop_files::commits(c, &id)?, hosts::name_of(c, &host)?));
        let (Some(of), name) = self.context.store.read(read).await? else { return Ok(false) };
        tracing::info!(loop_id = %current.id, from = name, "the loop continues on this host");
        let access = self.git.git_url(account, repo, false).await?;
        let fork = self.git.fork_url(account, current, false).await?;
        let request = PrepareTree {
            fork: fork.as_ref(),
            loop_id: &current.id,
            repo,
            access: &access,
            base_branch: &current.branch.base_branch,
            branch: &current.branch.name,
            resume_at: current.branch.head.as_ref(),
            partial: self.git.partial_clone && account.forge.server_info().await?.partial_clone,
        };
        match self.workspaces.unpack_commits(request, &of.saved).await {
            Ok(()) => Ok(true),
            Err(WorkspaceError::CommitMissing { commit }) => Err(EffectError::Permanent {
                why: format!(
                    "the loop's commit {} is neither on the forge nor in the database, but only on the host {name}",
                    commit.short()
                ),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the commits that the forge does not have, for the transaction that records the outcome of the work; `None` if the
    /// store has them. The same transaction names this host as the one with the newest work tree: otherwise the next effect could
    /// commit an older tree of another host, without the files of this run.
    pub(super) async fn unsaved(&self, repo: &RepoRef, current: &Loop) -> Option<LoopCommits> {
        // Before the first preparation is recorded, the loop has no commits.
        if !self.context.store.is_server() || current.branch.base.is_none() {
            return None;
        }
        let saved = match self.workspaces.loop_refs(&current.id, repo).await {
            Ok(refs) => {
                let id = current.id.clone();
                let known = self.context.store.read(move |c| loop_files::known(c, &id)).await;
                if known
                    .is_ok_and(|known| known.is_some_and(|known| known.host == self.host && known.saved.refs == refs))
                {
                    return None;
                }
                self.packed(repo, current, refs).await
            }
            Err(error) => {
                tracing::warn!(loop_id = %current.id, %error, "could not list the loop's commits for other hosts");
                SavedCommits::default()
            }
        };
        Some(LoopCommits { host: self.host.clone(), saved })
    }

    /// Packs the commits of `refs` that the forge does not have. Without the pack, other hosts at least know that their trees are
    /// old, and the loop fails there with the name of this host.
    async fn packed(&self, repo: &RepoRef, current: &Loop, refs: Vec<SavedRef>) -> SavedCommits {
        let branch = &current.branch;
        let merged = branch.merging().map(|merging| &merging.other);
        let have: Vec<_> = [branch.pushed.as_ref(), branch.base.as_ref(), merged].into_iter().flatten().collect();
        let packed = self.workspaces.pack_commits(&current.id, repo, refs.clone(), &have).await;
        packed.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "could not pack the loop's commits for other hosts");
            SavedCommits { refs, ..SavedCommits::default() }
        })
    }

    /// Deletes the saved commits and session of a loop. Fails if the lease is lost, because the next host may have saved others.
    pub(super) async fn forget(&self, current: &Loop, lease: &LeaseToken) -> Result<(), EffectError> {
        let id = current.id.clone();
        if self.context.store.is_server() {
            self.context.store.write(lease.guard(move |c| loop_files::forget(c, &id))).await?;
        }
        Ok(())
    }
}
