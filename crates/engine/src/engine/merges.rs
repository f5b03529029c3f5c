//! Merging of pull requests by the forge, after a maintainer asked for it.

use crate::domain::loops::{ForgeInput, Loop, LoopState, MergeAnswer};
use crate::domain::model::event::PullSnapshot;
use crate::domain::model::ids::{Number, RepoRef, Sha, User};
use crate::domain::trust::permit::Authorization;
use crate::engine::forge_effects::ForgeEffects;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::receipt::{EffectError, Receipt, loop_of};
use crate::forge::{ForgeError, ForgeErrorKind, Permission};
use crate::store::outbox::ClaimedEffect;

impl ForgeEffects {
    /// Asks the forge to merge the pull request, if it is still ready at that commit and the maintainer may merge.
    pub(super) async fn merge_when_ready(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        commit: &Sha,
    ) -> Result<Receipt, EffectError> {
        let current = loop_of(&self.context.store, claimed).await?;
        let (Some(pull), Some(wish)) = (&current.pull.opened, &current.pull.merge_wish) else {
            return Ok(answered(commit, MergeAnswer::not_yet("the request was withdrawn")));
        };
        if current.state != LoopState::Review || current.branch.pushed.as_ref() != Some(commit) {
            return Ok(answered(commit, MergeAnswer::not_yet("the pull request is no longer ready")));
        }
        let Some(merging) = account.forge.auto_merge() else {
            let answer = MergeAnswer::refused("the forge cannot merge by itself", "Merge it when it is ready");
            return Ok(answered(commit, answer));
        };
        if let Some(refused) = self.may_not_merge(account, repo, &wish.by).await? {
            return Ok(answered(commit, refused));
        }
        let found = account.forge.pull(repo, pull.number).await?;
        if found.merged {
            return Ok(Receipt::with_input("it is merged", ForgeInput::PullMerged));
        }
        if let Some(answer) = unready(&found, commit) {
            return Ok(answered(commit, answer));
        }
        let answer = match merging.merge_when_ready(repo, pull.number, commit).await {
            Err(error) if is_final(&error.kind) => MergeAnswer::refused(
                format!("the forge does not let the bot merge it ({})", error.detail),
                "Allow the bot's account to merge (write access to the base branch; an App: contents and pull requests, read \
                 and write), then comment `/ralph merge-when-ready` again; or merge it yourself",
            ),
            answer => answer?,
        };
        Ok(answered(commit, answer))
    }

    /// Returns the refusal if a person may not merge; `None` if they may. People who may give commands do not always
    /// have write access.
    async fn may_not_merge(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        by: &User,
    ) -> Result<Option<MergeAnswer>, EffectError> {
        let advice = "Somebody with write access can comment `/ralph merge-when-ready`";
        if let Authorization::Deny { reason, .. } = self.forges.permitted_now(account, repo, by).await? {
            return Ok(Some(MergeAnswer::refused(format!("{} may not command it: {reason}", by.login), advice)));
        }
        let may = account.forge.permission(repo, by).await? >= Permission::Write;
        let why = || format!("{} has no write access to the repository", by.login);
        Ok((!may).then(|| MergeAnswer::refused(why(), advice)))
    }

    /// Cancels the forge's automatic merge of the pull request.
    pub(super) async fn withdraw_merge(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
    ) -> Result<Receipt, EffectError> {
        let current = loop_of(&self.context.store, claimed).await?;
        revoke_merge(account, repo, &current).await?;
        Ok(Receipt::with_input("the forge does not merge it by itself", ForgeInput::MergeWithdrawn))
    }
}

/// Whether a failure persists until people change something.
fn is_final(kind: &ForgeErrorKind) -> bool {
    matches!(kind, ForgeErrorKind::Denied | ForgeErrorKind::NotFound | ForgeErrorKind::Conflict | ForgeErrorKind::Bug)
}

/// Returns the reason why a pull request cannot be merged at a commit now; `None` if it can.
fn unready(found: &PullSnapshot, commit: &Sha) -> Option<MergeAnswer> {
    if found.head_sha != *commit {
        return Some(moved(&found.head_sha));
    }
    let not_yet = if !found.open {
        "the pull request is closed"
    } else if found.draft {
        "the pull request is a draft"
    } else {
        return None;
    };
    Some(MergeAnswer::not_yet(not_yet))
}

/// Returns the answer for a pull request whose head is not the ready commit.
pub(super) fn moved(head: &Sha) -> MergeAnswer {
    MergeAnswer::refused(
        format!("somebody else pushed {} to its branch", head.short()),
        "Review that commit, then merge the pull request yourself",
    )
}

fn answered(commit: &Sha, answer: MergeAnswer) -> Receipt {
    let text = match &answer {
        MergeAnswer::Accepted => "the forge merges it".to_owned(),
        MergeAnswer::MayForget => "the forge accepted to merge it".to_owned(),
        MergeAnswer::NotYet { why } => format!("not yet: {why}"),
        MergeAnswer::Refused { why, .. } => format!("refused: {why}"),
    };
    Receipt::with_input(text, ForgeInput::MergeAnswered { commit: commit.clone(), answer })
}

/// Returns the reason why the forge canceled an automatic merge that it had accepted; `None` if the merge was not
/// canceled.
pub(super) async fn left_merge(
    account: &ForgeAccount,
    repo: &RepoRef,
    current: &Loop,
    number: Number,
) -> Result<Option<String>, ForgeError> {
    let accepted =
        current.pull.merge_ordered.is_some() && current.pull.merge_wish.as_ref().is_some_and(|wish| wish.accepted);
    match account.forge.auto_merge().filter(|_| accepted) {
        Some(merging) => merging.left_merge(repo, number).await,
        None => Ok(None),
    }
}

/// Cancels the automatic merge of a loop's pull request; does nothing if the forge has none.
pub(super) async fn revoke_merge(account: &ForgeAccount, repo: &RepoRef, current: &Loop) -> Result<(), EffectError> {
    let (Some(pull), Some(merging)) = (&current.pull.opened, account.forge.auto_merge()) else { return Ok(()) };
    match merging.withdraw_merge(repo, pull.number).await {
        Err(error) if error.kind != ForgeErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
