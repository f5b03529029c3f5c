//! Inspection of a loop's pull request: its CI results, compared with the base's, and merge conflicts with the
//! base.

use super::merges::moved;
use crate::config::workflows;
use crate::domain::loops::{
    CiInspection, CiProgress, ForgeInput, Guidance, GuidanceSource, Loop, LoopInput, LoopState, MergeAnswer,
};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::engine::forge_effects::ForgeEffects;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::forges::repository_access::RepositoryAccess;
use crate::engine::merges::left_merge;
use crate::engine::receipt::{EffectError, Receipt, loop_of};
use crate::forge::{Ci, CiState, ForgeErrorKind};
use crate::store::outbox::ClaimedEffect;

impl ForgeEffects {
    /// Reads the CI results of the pull request's head commit and determines whether it conflicts with the base. Asks git unless
    /// the forge reports that there is no conflict. Always asks git after a push to the base, because the forge may not have
    /// checked since.
    pub(super) async fn inspect(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        (commit, base_moved): (&Sha, bool),
    ) -> Result<Receipt, EffectError> {
        let current = loop_of(&self.context.store, claimed).await?;
        if !current.state.is_open() {
            return Ok(Receipt::text("the loop has ended"));
        }
        let Some(pull) = &current.pull.opened else { return Ok(Receipt::text("there is no pull request")) };
        let pull = match account.forge.pull(repo, pull.number).await {
            Err(error) if error.kind == ForgeErrorKind::NotFound => {
                return match self.forges.place(account, repo, true).await? {
                    RepositoryAccess::Usable(_) => {
                        Ok(Receipt::with_input("the pull request was deleted", ForgeInput::PullGone))
                    }
                    RepositoryAccess::Unusable { .. } => Err(error.into()),
                };
            }
            found => found?,
        };
        let end = match (pull.merged, pull.open) {
            (true, _) => Some(LoopInput::Forge(ForgeInput::PullMerged)),
            (false, false) => Some(LoopInput::Forge(ForgeInput::PullClosed)),
            _ => None,
        };
        if let Some(input) = end {
            return Ok(Receipt::with_input("the pull request has ended", input));
        }
        if pull.head_sha != *commit && current.pull.merge_ordered.is_some() {
            let input =
                LoopInput::Forge(ForgeInput::MergeAnswered { commit: commit.clone(), answer: moved(&pull.head_sha) });
            return Ok(Receipt::with_input("the branch has another commit", input));
        }
        if let Some(why) = left_merge(account, repo, &current, pull.number).await? {
            let advice = "Comment `/ralph merge-when-ready` again to merge it when it is ready";
            let input = LoopInput::Forge(ForgeInput::MergeAnswered {
                commit: commit.clone(),
                answer: MergeAnswer::refused(why, advice),
            });
            return Ok(Receipt::with_input("the forge no longer merges it", input));
        }
        let (mut results, mut on_base, mut progress) = (CiState::default(), Vec::new(), CiProgress::default());
        if let Some(ci) = account.forge.ci() {
            results = ci.ci_results(repo, commit).await?;
            // Checks that are already known to fail on the base are not read again.
            let names = results.failed.iter().map(|failure| failure.name.as_str());
            let known = current.pull.failed_ci.as_ref().filter(|known| known.is_about(commit, names));
            on_base = match (known, &current.branch.base) {
                (Some(known), _) => known.on_base.clone(),
                (None, Some(base)) if results.pending.is_empty() => failed_on_base(ci, repo, base, &results).await?,
                _ => Vec::new(),
            };
            progress = self.ci_progress(account, ci, (repo, &current, commit), &results).await?;
        }
        // The forge's answer about a conflict may be outdated, or the forge has not checked yet.
        let unsure = base_moved || pull.mergeable != Some(true);
        let doubtful = unsure && current.state == LoopState::Review;
        let conflict = doubtful && self.git.conflicts_with_base(account, repo, &current, commit).await?;
        let pending = u32::try_from(results.pending.len()).unwrap_or(u32::MAX);
        let input = LoopInput::Forge(ForgeInput::Inspected(CiInspection {
            commit: commit.clone(),
            failed: failures(results),
            progress,
            pending,
            conflict,
            on_base,
        }));
        Ok(Receipt::with_input("looked", input))
    }

    /// Returns whether CI has started on a commit that a maintainer wants to merge: compares its checks with the base's, and with
    /// the workflows that run for the pull request. Reads nothing if no merge depends on the result.
    async fn ci_progress(
        &self,
        account: &ForgeAccount,
        ci: &dyn Ci,
        (repo, current, commit): (&RepoRef, &Loop, &Sha),
        results: &CiState,
    ) -> Result<CiProgress, EffectError> {
        let asks = current.pull.merge_wish.is_some() && current.pull.merge_ordered.is_none();
        let Some(base) = current.branch.base.as_ref().filter(|_| asks && results.failed.is_empty()) else {
            return Ok(CiProgress::default());
        };
        let on_base = match ci.ci_results(repo, base).await {
            Err(error) if error.kind == ForgeErrorKind::NotFound => CiState::default(),
            other => other?,
        };
        let expected = self.workflows_for_pull(account, repo, current, base).await?;
        let unstarted = match expected.is_empty() {
            true => Vec::new(),
            false => match ci.started_workflows(repo, commit).await? {
                Some(started) => expected.into_iter().filter(|path| !started.contains(path)).collect(),
                None if results.from_workflows => Vec::new(),
                None => expected,
            },
        };
        Ok(CiProgress::of(&results.seen(), &on_base.seen(), unstarted, results.from_workflows))
    }

    /// Returns the paths of the base's workflows that certainly run for the loop's pull request.
    async fn workflows_for_pull(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        base: &Sha,
    ) -> Result<Vec<String>, EffectError> {
        let product = account.forge.server_info().await?.product;
        let paths = self.git.workspaces.paths_of(repo, base).await?;
        let below = |folder: &&&str| {
            let is_in = |path: &String| path.strip_prefix(**folder).is_some_and(|rest| rest.starts_with('/'));
            paths.iter().any(|path| is_in(path) && workflows::is_workflow(path))
        };
        let Some(folder) = workflows::folders(&product).iter().find(below) else { return Ok(Vec::new()) };
        let mut expected = Vec::new();
        for path in paths.iter().filter(|path| path.starts_with(folder) && workflows::is_workflow(path)) {
            let Some(text) = self.git.workspaces.text_at(&current.id, repo, base, path).await? else { continue };
            let Ok(workflow) = workflows::parse(&text) else { continue };
            if workflows::runs_for_pull(
                workflows::triggers(&workflow),
                &current.branch.name,
                &current.branch.base_branch,
            ) {
                expected.push(path.clone());
            }
        }
        Ok(expected)
    }

    /// Converts the pull request to a draft, unless the loop became ready in the meantime.
    pub(super) async fn draft_pull(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
    ) -> Result<Receipt, EffectError> {
        let current = loop_of(&self.context.store, claimed).await?;
        match (current.pull.opened.filter(|_| current.state != LoopState::Review), account.forge.drafts()) {
            (Some(pull), Some(drafts)) => {
                drafts.set_pull_draft(repo, pull.number).await?;
                Ok(Receipt::text("a draft again"))
            }
            _ => Ok(Receipt::text("there is nothing to change")),
        }
    }
}

/// Returns the failed checks as guidance for the agent.
pub(super) fn failures(results: CiState) -> Vec<Guidance> {
    let failed = results.failed.into_iter().map(|failure| Guidance {
        who: String::new(),
        source: GuidanceSource::Ci,
        text: failure.log,
        path: Some(failure.name),
        remember: false,
    });
    failed.collect()
}

/// Returns the names of the failed checks that also fail on the base commit.
pub(super) async fn failed_on_base(
    ci: &dyn Ci,
    repo: &RepoRef,
    base: &Sha,
    results: &CiState,
) -> Result<Vec<String>, EffectError> {
    if results.failed.is_empty() {
        return Ok(Vec::new());
    }
    let of_base = match ci.ci_results(repo, base).await {
        Err(error) if error.kind == ForgeErrorKind::NotFound => CiState::default(),
        other => other?,
    };
    let failed = of_base.failed.into_iter().map(|failure| failure.name);
    Ok(failed.filter(|name| results.failed.iter().any(|own| own.name == *name)).collect())
}
