//! Existing pull requests that a command starts a loop on: whether the bot may push to their branch.

use futures::future::try_join;

use crate::domain::loops::{ExistingPull, RunOptions};
use crate::domain::model::event::PullSnapshot;
use crate::domain::model::ids::{Number, RepoRef};
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::{Intake, IntakeError};
use crate::forge::ForgeErrorKind;

/// Whether the bot works on a pull request.
pub(super) enum PullAccess {
    /// The bot may push to its branch.
    Usable(ExistingPull),
    /// The bot does not work on it; `why` is a sentence with the reason and the way out.
    Refused { why: String },
}

fn refused(why: String) -> Result<PullAccess, IntakeError> {
    Ok(PullAccess::Refused { why })
}

impl Intake {
    /// Returns the pull request to work on, if the bot may push to its branch.
    pub(super) async fn existing_pull(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        number: Number,
        options: &RunOptions,
    ) -> Result<PullAccess, IntakeError> {
        let (pull, facts) = try_join(account.forge.pull(repo, number), account.forge.repository(repo)).await?;
        let base = &pull.base_branch;
        if options.base.as_ref().is_some_and(|wanted| wanted != base) {
            return refused(format!(
                "The base of this pull request is `{base}`: omit `--base`, or change the base on the pull request."
            ));
        }
        let branch = &pull.head_branch;
        match pull.head_repo {
            None => refused(format!(
                "The repository of the branch `{branch}` was deleted: push its commits to a branch of this repository, and \
                 open another pull request."
            )),
            Some(id) if id != repo.id => self.pull_of_fork(account, repo, &pull).await,
            Some(_) => match *branch == facts.default_branch || account.forge.is_protected(repo, branch).await? {
                true => refused(format!(
                    "The bot does not push to `{branch}`, which is protected or the default branch: push its commits to \
                     another branch, and open a pull request from there."
                )),
                false => Ok(PullAccess::Usable(usable(&pull, None))),
            },
        }
    }

    /// Returns a pull request from a fork, if the bot may push to the fork.
    async fn pull_of_fork(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        pull: &PullSnapshot,
    ) -> Result<PullAccess, IntakeError> {
        let name = &pull.head_repo_name;
        if !pull.maintainers_may_push {
            return refused(format!(
                "The branch is in the fork `{name}`, which does not allow edits by maintainers: its author can allow them on \
                 the page of the pull request, or somebody can push its commits to a branch of this repository."
            ));
        }
        let no_access = || {
            refused(format!(
                "The bot has no access to the fork `{name}`: push its commits to a branch of this repository, or give the \
                 bot access to the fork."
            ))
        };
        let (Some(id), Some((owner, short_name))) = (pull.head_repo, name.split_once('/')) else { return no_access() };
        let fork = RepoRef { forge: repo.forge.clone(), id, owner: owner.to_owned(), name: short_name.to_owned() };
        match account.forge.git_access(&fork, true).await {
            Err(error) if matches!(error.kind, ForgeErrorKind::NotFound | ForgeErrorKind::Denied) => no_access(),
            access => access.map(|_| PullAccess::Usable(usable(pull, Some(fork)))).map_err(IntakeError::from),
        }
    }
}

fn usable(pull: &PullSnapshot, fork: Option<RepoRef>) -> ExistingPull {
    ExistingPull { branch: pull.head_branch.clone(), base_branch: pull.base_branch.clone(), fork, found: None }
}
