//! Status of the newest commit of a loop's branch on the forge.

use std::collections::BTreeSet;

use crate::domain::loops::{ForgeChange, Loop};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::report::view::{CommitState, CommitStatusView};
use crate::domain::report::{self, NamedLine};
use crate::engine::forge_effects::ForgeEffects;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::receipt::{EffectError, Receipt, loop_of};
use crate::forge::{CommitStatus, CommitStatuses, ForgeErrorKind, InterruptedStatus, LineAnnotation};
use crate::store::forge_posts::{self, ForgePost};
use crate::store::outbox::ClaimedEffect;

/// Prefix of the key of a commit's status; the commit's SHA follows.
const KEY: &str = "commit-status/";
/// Prefix of the digest of a final status, which is not updated any more.
const FINAL: &str = "final/";

impl ForgeEffects {
    /// Sets the status of the branch's newest commit and completes the status of the commit before it.
    pub(super) async fn commit_status(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
    ) -> Result<Receipt, EffectError> {
        let Some(statuses) = account.forge.commit_statuses() else {
            return Ok(Receipt::text("the forge has no statuses"));
        };
        let current = loop_of(&self.context.store, claimed).await?;
        let Some(view) = report::commit_status(&current) else {
            return Ok(Receipt::text("there is no commit that needs a status"));
        };
        let annotations = self.annotations(&current, repo, &view).await;
        let text = self.comments.with_dashboard(self.comments.status(&current));
        let status = CommitStatus {
            commit: view.commit,
            state: view.state,
            title: self.git.outbound.title(&view.title),
            summary: self.git.outbound.body(&self.comments.renderer.render(&text)),
            url: view.url,
            annotations,
        };
        match self.replace_status(statuses, repo, claimed, status).await {
            Err(EffectError::Permanent { why }) => {
                tracing::warn!(why, "could not set the status of a commit; all other effects succeeded");
                let refused = vec![(ForgeChange::CommitStatus, why)];
                Ok(Receipt { refused, ..Receipt::text("the forge does not permit a status") })
            }
            set => set.map(Receipt::text),
        }
    }

    /// Returns annotations for the lines that failing checks name and that exist in the commit. Empty unless the
    /// status is final, because each update of a check run adds its annotations to the earlier ones.
    async fn annotations(&self, current: &Loop, repo: &RepoRef, view: &CommitStatusView) -> Vec<LineAnnotation> {
        let Some(report) = current.latest_checks().filter(|_| view.state == CommitState::Failure) else {
            return Vec::new();
        };
        let named = report::named_lines(report);
        let paths: BTreeSet<&str> = named.iter().map(|one| one.path.as_str()).collect();
        let lines = self.lines_of(current, repo, &view.commit, &paths).await;
        let exists = |one: &NamedLine| lines.get(&one.path).is_some_and(|count| one.line <= *count);
        let annotation = |one: NamedLine| LineAnnotation {
            title: self.git.outbound.title(&one.check),
            message: self.git.outbound.body(&one.message),
            path: one.path,
            line: one.line,
        };
        named.into_iter().filter(exists).map(annotation).collect()
    }

    async fn replace_status(
        &self,
        statuses: &dyn CommitStatuses,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        status: CommitStatus,
    ) -> Result<&'static str, EffectError> {
        let key = format!("{KEY}{}", status.commit);
        let subject = claimed.subject.clone();
        let all = self.context.store.read(move |c| forge_posts::of_subject(c, &subject)).await?;
        let mut present = None;
        for (found, post, _) in all.into_iter().filter(|(found, ..)| found.starts_with(KEY)) {
            if found == key {
                present = Some(post);
                continue;
            }
            if let Some(commit) = Sha::parse(&found[KEY.len()..]).filter(|_| !post.digest.starts_with(FINAL)) {
                let ended = CommitStatus {
                    commit,
                    state: CommitState::Cancelled,
                    title: self.git.outbound.title("The branch has a newer commit."),
                    annotations: Vec::new(),
                    ..status.clone()
                };
                set_once(statuses, repo, claimed, &ended, Some(post.forge_id)).await?;
            }
            let subject = claimed.subject.clone();
            self.context.store.write(move |c| forge_posts::forget(c, &subject, &found)).await?;
        }
        let digest = format!("{}{}", if status.state.is_final() { FINAL } else { "" }, status.digest());
        if present.as_ref().is_some_and(|post| post.digest == digest) {
            return Ok("unchanged");
        }
        // A check run that was completed is not taken up again: the newest of a name counts.
        let id = present.filter(|post| !post.digest.starts_with(FINAL)).map(|post| post.forge_id);
        let Some(forge_id) = set_once(statuses, repo, claimed, &status, id).await? else {
            return Ok("the forge does not have the commit");
        };
        let (subject, post, now) = (claimed.subject.clone(), ForgePost { forge_id, digest }, self.context.clock.now());
        self.context.store.write_kept(move |c| forge_posts::put(c, &subject, &key, &post, "", now)).await?;
        Ok("status set")
    }
}

/// Sets a status, unless an earlier attempt has set it, and returns its id; `None` if the forge no longer has the commit.
async fn set_once(
    statuses: &dyn CommitStatuses,
    repo: &RepoRef,
    claimed: &ClaimedEffect,
    status: &CommitStatus,
    mut id: Option<i64>,
) -> Result<Option<i64>, EffectError> {
    if claimed.attempts > 0 {
        match statuses.interrupted_status(repo, status).await {
            Ok(InterruptedStatus::Set(id)) => return Ok(Some(id)),
            Ok(InterruptedStatus::Other(other)) => id = Some(other),
            Ok(InterruptedStatus::Missing) => {}
            // The request to set it returns the same error.
            Err(error) if matches!(error.kind, ForgeErrorKind::NotFound | ForgeErrorKind::Denied) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match statuses.set_commit_status(repo, status, id).await {
        Err(error) if error.kind == ForgeErrorKind::NotFound => {
            tracing::warn!(%error, "could not set the status of a commit: the forge does not show the commit to the bot");
            Ok(None)
        }
        outcome => Ok(outcome.map(Some)?),
    }
}
