//! Git's addresses and credentials of the repositories that a loop fetches from and pushes to.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::loops::Loop;
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::trust::outbound::OutboundFilter;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::receipt::EffectError;
use crate::workspace::{GitUrl, TipsRequest, Workspaces};

/// Access to repositories of forges by git.
#[derive(Clone)]
pub struct ForgeGit {
    /// Git mirrors and work trees.
    pub(super) workspaces: Arc<Workspaces>,
    /// Filter that learns the tokens of forges.
    pub(super) outbound: OutboundFilter,
    /// Whether fetches omit blobs if the forge supports it.
    pub(super) partial_clone: bool,
}

impl ForgeGit {
    /// Returns git's address of a repository. With `push`, its credential permits pushing.
    pub(super) async fn git_url(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        push: bool,
    ) -> Result<GitUrl, EffectError> {
        let access = account.forge.git_access(repo, push).await?;
        if let Some((_, token)) = &access.credential {
            self.outbound.learn(&format!("a token of {}", repo.forge), token);
        }
        let settling = Duration::from_millis(access.settling_ms.max(0).unsigned_abs());
        Ok(GitUrl { url: access.url, credential: access.credential, settling })
    }

    /// Returns git's address of the fork that has the loop's branch; `None` if the branch is in the loop's repository.
    pub(super) async fn fork_url(
        &self,
        account: &ForgeAccount,
        current: &Loop,
        push: bool,
    ) -> Result<Option<GitUrl>, EffectError> {
        match current.pull.existing.as_ref().and_then(|pull| pull.fork.as_ref()) {
            Some(fork) => self.git_url(account, fork, push).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether the tips of the loop's branch and its base have merge conflicts according to git.
    pub(super) async fn conflicts_with_base(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        commit: &Sha,
    ) -> Result<bool, EffectError> {
        let access = self.git_url(account, repo, false).await?;
        let fork = self.fork_url(account, current, false).await?;
        let request = TipsRequest {
            fork: fork.as_ref(),
            loop_id: &current.id,
            repo,
            access: &access,
            base_branch: &current.branch.base_branch,
            branch: &current.branch.name,
            partial: self.partial_clone && account.forge.server_info().await?.partial_clone,
        };
        let tips = self.workspaces.merge_of_tips(request).await?;
        // Commits that somebody else pushed are the next push's concern.
        Ok(tips.branch.as_ref() == Some(commit) && tips.conflict)
    }
}
