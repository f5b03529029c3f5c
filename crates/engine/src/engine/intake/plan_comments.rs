//! Checks that the comments with a plan are unedited when somebody approves the plan.

use crate::domain::lifecycle::effect::{Effect, ForgeEffect};
use crate::domain::model::ids::{CommentId, LoopId, RepoRef};
use crate::domain::report;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::{Intake, IntakeError};
use crate::store::forge_posts::{self, ForgePost, digest};
use crate::store::{loops, outbox};

/// Number of digits of an edited comment's digest in the key of the comment that repeats the plan.
const KEY_DIGITS: usize = 8;

impl Intake {
    /// Returns the reason why an approval does not count yet; `None` if it counts. An approval does not count if a
    /// comment with the plan was edited after it was posted, because the person may have read the edited text. The
    /// stored plan is then posted again, once for each edited text. Deleted comments are ignored. `repo` has the
    /// current name of the repository.
    ///
    /// # Errors
    /// The forge or the store cannot be read; the delivery is retried.
    pub(super) async fn edited_plan(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        id: &LoopId,
    ) -> Result<Option<String>, IntakeError> {
        let (of, subject) = (id.clone(), id.as_str().to_owned());
        let read = self.context.store.read(move |c| Ok((loops::get(c, &of)?, forge_posts::of_subject(c, &subject)?)));
        let (Some(current), posts) = read.await? else { return Ok(None) };
        let Some(plan) = current.knowledge.waiting_plan() else { return Ok(None) };
        let Some(forge) = account.forge.webhooks() else { return Ok(None) };
        let key = report::plan_key(plan);
        let shows_it =
            |other: &str| other.strip_prefix(&key).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        for (_, ForgePost { forge_id, digest: posted }, _) in posts.iter().filter(|(key, ..)| shows_it(key)) {
            let issue = current.issue.issue;
            let Some(comment) = forge.comment(repo, issue, CommentId(*forge_id)).await? else { continue };
            let now = digest(&comment.body);
            let repeated = format!("{key}/{}", &now[..KEY_DIGITS]);
            if posted.is_empty() || now == *posted || posts.iter().any(|(key, ..)| *key == repeated) {
                continue;
            }
            let view = Box::new(report::plan(&current, plan));
            let effect = Effect::Forge(ForgeEffect::Comment { key: repeated, on: issue, view });
            let (id, place, at) = (id.clone(), current.issue.clone(), self.context.clock.now());
            self.context.store.write(move |c| outbox::enqueue(c, id.as_str(), Some(&id), &place, &effect, at)).await?;
            self.context.wake.effects_queued();
            let short = plan.short_hash();
            return Ok(Some(format!(
                "The comment with the plan was edited after it was posted, so it may show something other than the plan `{short}`. \
                 The loop did not start. The stored plan is posted again: read it, then `/ralph approve {short}`."
            )));
        }
        Ok(None)
    }
}
