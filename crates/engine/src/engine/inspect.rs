//! Inspection of a loop's pull request: its CI results, compared with those of its base, and merge conflicts with the
//! base.

use super::executor::{EffectError, Receipt};
use super::merges::moved;
use super::repository_access::RepositoryAccess;
use super::{Engine, ForgeAccount};
use crate::domain::loops::{Guidance, GuidanceSource, Loop, LoopInput, LoopState, MergeAnswer};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::forge::{Ci, CiState, ForgeErrorKind};
use crate::store::outbox::ClaimedEffect;
use crate::workspace::TipsRequest;

impl Engine {
    /// Reads the CI results of the pull request's head commit and determines whether it conflicts with the base. Git
    /// is asked unless the forge reports that there is no conflict. After a push to the base, git is always asked,
    /// because the forge may not have checked since.
    pub(super) async fn inspect(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        (commit, base_moved): (&Sha, bool),
    ) -> Result<Receipt, EffectError> {
        let current = self.current(claimed).await?;
        if !current.state.is_open() {
            return Ok(Receipt::text("the loop has ended"));
        }
        let Some(pull) = &current.pull else { return Ok(Receipt::text("there is no pull request")) };
        let pull = match account.forge.pull(repo, pull.number).await {
            Err(error) if error.kind == ForgeErrorKind::NotFound => {
                return match self.place(account, repo, true).await? {
                    RepositoryAccess::Usable(_) => {
                        Ok(Receipt::with_input("the pull request was deleted", LoopInput::PullGone))
                    }
                    RepositoryAccess::Unusable { .. } => Err(error.into()),
                };
            }
            found => found?,
        };
        let end = match (pull.merged, pull.open) {
            (true, _) => Some(LoopInput::PullMerged),
            (false, false) => Some(LoopInput::PullClosed),
            _ => None,
        };
        if let Some(input) = end {
            return Ok(Receipt::with_input("the pull request has ended", input));
        }
        if pull.head_sha != *commit && current.merge_ordered.is_some() {
            let input = LoopInput::MergeAnswered { commit: commit.clone(), answer: moved(&pull.head_sha) };
            return Ok(Receipt::with_input("the branch has another commit", input));
        }
        if let Some(why) = self.left_merge(account, repo, &current, pull.number).await? {
            let advice = "Comment `/ralph merge-when-ready` again to merge it when it is ready";
            let input = LoopInput::MergeAnswered { commit: commit.clone(), answer: MergeAnswer::refused(why, advice) };
            return Ok(Receipt::with_input("the forge no longer merges it", input));
        }
        let (results, on_base) = match account.forge.ci() {
            Some(ci) => {
                let results = ci.ci_results(repo, commit).await?;
                let on_base = failed_on_base(ci, repo, &current, commit, &results).await?;
                (results, on_base)
            }
            None => (CiState::default(), Vec::new()),
        };
        // What the forge says about a conflict may be old, or only mean that it has not looked yet.
        let unsure = base_moved || pull.mergeable != Some(true);
        let doubtful = unsure && current.state == LoopState::Review;
        let conflict = doubtful && self.conflicts_with_base(account, repo, &current, commit).await?;
        let failed = results.failed.into_iter().map(|failure| Guidance {
            who: String::new(),
            source: GuidanceSource::Ci,
            text: failure.log,
            path: Some(failure.name),
            remember: false,
        });
        let input = LoopInput::Inspected {
            commit: commit.clone(),
            failed: failed.collect(),
            passed: results.passed,
            pending: results.pending,
            conflict,
            on_base,
        };
        Ok(Receipt::with_input("looked", input))
    }

    /// Whether the tips of the loop's branch and its base have merge conflicts according to git.
    async fn conflicts_with_base(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        commit: &Sha,
    ) -> Result<bool, EffectError> {
        let access = self.git_url(account, repo, false).await?;
        let request = TipsRequest {
            loop_id: &current.id,
            repo,
            access: &access,
            base_branch: &current.base_branch,
            branch: &current.branch,
            partial: self.settings.partial_clone && account.forge.server_info().await?.partial_clone,
        };
        let tips = self.workspaces.merge_of_tips(request).await?;
        // Commits that somebody else pushed are the next push's concern.
        Ok(tips.branch.as_ref() == Some(commit) && tips.conflict)
    }

    /// Converts the pull request to a draft, unless the loop became ready in the meantime.
    pub(super) async fn draft_pull(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
    ) -> Result<Receipt, EffectError> {
        let current = self.current(claimed).await?;
        match (current.pull.filter(|_| current.state != LoopState::Review), account.forge.drafts()) {
            (Some(pull), Some(drafts)) => {
                drafts.set_pull_draft(repo, pull.number).await?;
                Ok(Receipt::text("a draft again"))
            }
            _ => Ok(Receipt::text("there is nothing to change")),
        }
    }
}

/// Returns the names of the failed checks that also fail on the loop's base commit. Checks that are already known to
/// fail there are not read again.
async fn failed_on_base(
    ci: &dyn Ci,
    repo: &RepoRef,
    current: &Loop,
    commit: &Sha,
    results: &CiState,
) -> Result<Vec<String>, EffectError> {
    let names = || results.failed.iter().map(|failure| failure.name.as_str());
    let Some(base) = current.base.as_ref().filter(|_| results.pending == 0 && !results.failed.is_empty()) else {
        return Ok(Vec::new());
    };
    if let Some(known) = current.failed_ci.as_ref().filter(|known| known.is_about(commit, names())) {
        return Ok(known.on_base.clone());
    }
    let of_base = match ci.ci_results(repo, base).await {
        Err(error) if error.kind == ForgeErrorKind::NotFound => CiState::default(),
        other => other?,
    };
    let failed = of_base.failed.into_iter().map(|failure| failure.name);
    Ok(failed.filter(|name| names().any(|own| own == name)).collect())
}
