//! Git's addresses and credentials of the repositories that a loop fetches from and pushes to.

use std::time::Duration;

use super::executor::EffectError;
use super::{Engine, ForgeAccount};
use crate::domain::loops::Loop;
use crate::domain::model::ids::RepoRef;
use crate::workspace::GitUrl;

impl Engine {
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
}
