//! Parts of the engine that only a trial with a scripted agent needs.

use crate::domain::loops::Loop;
use crate::engine::forges::Forges;
use crate::engine::git_access::ForgeGit;
use crate::engine::receipt::EffectError;

impl ForgeGit {
    /// Deletes the branch of a loop on the forge. Returns `false` if there is no branch, or if somebody else pushed to
    /// it.
    ///
    /// # Errors
    /// The forge or git fails.
    pub async fn delete_branch_of(&self, forges: &Forges, current: &Loop) -> anyhow::Result<bool> {
        let Some(tip) = &current.branch.pushed else { return Ok(false) };
        let repo = &current.issue.repo;
        let Some(account) = forges.accounts.get(&repo.forge) else { return Ok(false) };
        let access = self.git_url(account, repo, true).await.map_err(|error| match error {
            EffectError::Retry { why, .. } | EffectError::Permanent { why } | EffectError::Stopped { why } => {
                anyhow::Error::msg(why)
            }
        })?;
        Ok(self.workspaces.delete_branch(repo, &access, &current.branch.name, tip).await?)
    }
}
