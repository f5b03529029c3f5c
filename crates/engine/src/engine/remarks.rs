//! Replies to comments on lines of a pull request, in their threads.

use crate::domain::model::ids::{CommentId, RepoRef, Sha};
use crate::domain::report;
use crate::engine::forge_effects::ForgeEffects;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::receipt::{EffectError, Receipt, loop_of};
use crate::forge::{ForgeErrorKind, ReviewComment};
use crate::render::find_marker;
use crate::store::forge_posts::{ForgePost, digest};
use crate::store::outbox::ClaimedEffect;

impl ForgeEffects {
    /// Replies to a review comment with the commit that addresses it, once, and resolves its thread if the forge
    /// supports that.
    pub(super) async fn answer_remark(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        remark: CommentId,
        (commit, applied): (&Sha, bool),
    ) -> Result<Receipt, EffectError> {
        let (Some(reviews), Some(pull)) =
            (account.forge.reviews(), loop_of(&self.context.store, claimed).await?.pull.opened)
        else {
            return Ok(Receipt::text("there is no thread"));
        };
        let key = &claimed.key;
        if self.comments.posted(&claimed.subject, key).await?.is_none() {
            let marker = self.comments.marker(claimed, key);
            let own = account.own()?;
            let ours = |found: &ReviewComment| {
                found.comment.author.as_ref().is_some_and(|author| author.id == own)
                    && find_marker(&found.comment.body, &self.comments.marker_key).as_ref() == Some(&marker)
            };
            let known = match claimed.attempts {
                0 => None,
                _ => reviews
                    .review_comments(repo, pull.number)
                    .await?
                    .into_iter()
                    .find(ours)
                    .map(|found| found.comment.id),
            };
            let verb = if applied { "Applied" } else { "Changed" };
            let body = self.comments.text(claimed, key, &report::reply(true, vec![format!("{verb} in {commit}.")]));
            let answer = match known {
                Some(id) => Some(id),
                None => reviews.answer_remark(repo, pull.number, remark, &body).await?,
            };
            let Some(id) = answer else { return Ok(Receipt::text("the forge does not accept answers in threads")) };
            let posted = ForgePost { forge_id: id.0, digest: digest(body.as_str()) };
            self.comments.record_post(claimed, key, &posted).await?;
        } else if claimed.tries <= 1 {
            return Ok(Receipt::text("already answered"));
        }
        match reviews.resolve_remark(repo, pull.number, remark).await {
            Err(error)
                if matches!(error.kind, ForgeErrorKind::NotFound | ForgeErrorKind::Denied | ForgeErrorKind::Bug) =>
            {
                tracing::info!(%repo, %remark, %error, "could not resolve the thread of a remark");
                Ok(Receipt::text("answered"))
            }
            outcome => Ok(outcome.map(|()| Receipt::text("answered and resolved"))?),
        }
    }
}
