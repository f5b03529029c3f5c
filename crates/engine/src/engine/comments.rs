//! The bot's comments. Each is created once, found again by its marker, edited in place, and counted against a limit
//! per issue.

use std::sync::Arc;

use failpoint::kill_point;

use crate::domain::loops::Loop;
use crate::domain::model::event::CommentSnapshot;
use crate::domain::model::ids::{CommentId, Number, RepoRef, Timestamp};
use crate::domain::report;
use crate::domain::report::dashboard_links::DashboardPages;
use crate::domain::report::view::View;
use crate::domain::trust::limits::Limits;
use crate::domain::trust::outbound::{BodyText, Outbound};
use crate::engine::context::ServiceContext;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::IntakeError;
use crate::engine::receipt::{EffectError, Receipt, loop_of};
use crate::forge::{ForgeError, ForgeErrorKind};
use crate::render::{Marker, MarkerKey, Renderer, find_marker};
use crate::store::forge_posts::{self, ForgePost, digest};
use crate::store::loops::{self, IssueRole};
use crate::store::outbox::{ClaimedEffect, LOCKED_PREFIX};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Time before the effect was created from which comments are listed, in milliseconds; it covers differences between
/// clocks.
const LOOK_BACK_MS: i64 = 120_000;
/// Maximum age of a restored backup, in milliseconds, whose replies to people are looked for on the forge.
const OLDEST_BACKUP_MS: i64 = 30 * DAY_MS;
/// Minimum age, in milliseconds, at which a comment is assumed to be in every list of the forge and in the store.
const LATE_MS: i64 = 60_000;

/// First wait of a comment for a locked conversation, in milliseconds; doubles up to an hour.
const FIRST_LOCK_WAIT_MS: i64 = 60_000;
/// Maximum time that a comment waits for a locked conversation, in milliseconds.
const LONGEST_LOCK_MS: i64 = 30 * DAY_MS;

/// Whether a forge refused a comment because the conversation is locked.
fn is_locked(error: &ForgeError) -> bool {
    let refused = matches!(error.kind, ForgeErrorKind::Denied | ForgeErrorKind::Conflict);
    refused && error.detail.to_ascii_lowercase().contains("locked")
}

/// Posts comments and finds the posted ones again.
pub struct Comments {
    pub(super) context: ServiceContext,
    pub(super) renderer: Arc<Renderer>,
    /// Key that signs the markers in the bot's comments.
    pub(super) marker_key: MarkerKey,
    /// Pages of the dashboard that comments link to; `None` if only this machine can reach the dashboard.
    pub(super) dashboard: Option<DashboardPages>,
    /// Start of this process.
    pub(super) started_at: Timestamp,
    /// Backend of loops that select no other.
    pub(super) default_backend: String,
}

impl Comments {
    /// Returns the status of a loop for its status comment.
    pub(super) fn status(&self, current: &Loop) -> View {
        let backend = current.settings.options.backend.as_deref().unwrap_or(&self.default_backend);
        report::status(current, backend, self.context.clock.now())
    }

    /// Creates a comment unless it exists or the comment limit of its issue is reached. `operator` has the limits of comments
    /// without a loop.
    pub(super) async fn comment_once(
        &self,
        account: &ForgeAccount,
        claimed: &ClaimedEffect,
        repo: &RepoRef,
        on: Number,
        view: &View,
        operator: &Limits,
    ) -> Result<Receipt, EffectError> {
        if self.posted(&claimed.subject, &claimed.key).await?.is_some() {
            return Ok(Receipt::text("already exists"));
        }
        if let Some(why) = self.over_budget(claimed, view, operator).await? {
            return Ok(Receipt::text(why));
        }
        self.comment_under(account, claimed, repo, on, &claimed.key, view).await
    }

    /// Creates a comment under a key, or returns the comment that an earlier attempt created under it.
    pub(super) async fn comment_under(
        &self,
        account: &ForgeAccount,
        claimed: &ClaimedEffect,
        repo: &RepoRef,
        on: Number,
        key: &str,
        view: &View,
    ) -> Result<Receipt, EffectError> {
        if let Some(known) = self.posted(&claimed.subject, key).await? {
            return Ok(Receipt { posted: Some((key.to_owned(), known)), ..Receipt::text("already exists") });
        }
        let (key, marker) = (key.to_owned(), self.marker(claimed, key));
        let body = self.marked(view, &marker);
        if let Some(since) = self.may_exist_since(claimed).await?
            && let Some(found) = self.find_in_any_place(account, repo, on, claimed, &marker, since).await?
        {
            if since < claimed.created_at && found.body != body.as_str() {
                // Of an iteration that is repeated because the database is older than the forge.
                account.forge.edit_comment(repo, found.id, &body).await?;
            }
            let posted = ForgePost { forge_id: found.id.0, digest: String::new() };
            return Ok(Receipt { posted: Some((key, posted)), ..Receipt::text("found by its marker") });
        }
        self.create_comment(account, claimed, repo, on, (key, marker), &body).await
    }

    /// Creates a comment and records it immediately, so that it is not created again if a later part of the effect
    /// fails.
    async fn create_comment(
        &self,
        account: &ForgeAccount,
        claimed: &ClaimedEffect,
        repo: &RepoRef,
        on: Number,
        (key, marker): (String, Marker),
        body: &Outbound<BodyText>,
    ) -> Result<Receipt, EffectError> {
        let (on, created) = match account.forge.create_comment(repo, on, body).await {
            Err(error) if is_locked(&error) => self.comment_elsewhere(account, claimed, repo, on, body, error).await?,
            created => (on, created?),
        };
        kill_point("K10");
        let mut posted = ForgePost { forge_id: created.id.0, digest: digest(body.as_str()) };
        self.record_post(claimed, &key, &posted).await?;
        let remaining = self.delete_duplicate(account, repo, on, claimed, &marker, created.id).await?;
        if remaining != created.id {
            posted = ForgePost { forge_id: remaining.0, digest: String::new() };
        }
        Ok(Receipt { posted: Some((key, posted)), ..Receipt::text(created.url) })
    }

    /// Creates a comment in another conversation because its own is locked: in the conversation of the loop's pull request,
    /// otherwise on an open escalation issue. Returns the conversation.
    async fn comment_elsewhere(
        &self,
        account: &ForgeAccount,
        claimed: &ClaimedEffect,
        repo: &RepoRef,
        locked: Number,
        body: &Outbound<BodyText>,
        refusal: ForgeError,
    ) -> Result<(Number, CommentSnapshot), EffectError> {
        let body = self.renderer.outbound().body(&format!(
            "> The conversation of #{locked} is locked for the bot, so this comment is here.\n\n{}",
            body.as_str()
        ));
        for on in self.other_places(account, claimed, repo, locked).await? {
            match account.forge.create_comment(repo, on, &body).await {
                Err(error) if is_locked(&error) || error.kind == ForgeErrorKind::NotFound => {}
                created => return Ok((on, created?)),
            }
        }
        Err(self.wait_for_unlocking(claimed, locked, refusal))
    }

    /// Returns all conversations of an effect's loop except one: the pull request's, then the ones on its open
    /// escalation issues.
    async fn other_places(
        &self,
        account: &ForgeAccount,
        claimed: &ClaimedEffect,
        repo: &RepoRef,
        but: Number,
    ) -> Result<Vec<Number>, EffectError> {
        let Some(id) = claimed.loop_id.clone() else { return Ok(Vec::new()) };
        let mut repository_access: Vec<Number> =
            loop_of(&self.context.store, claimed).await?.pull.opened.map(|pull| pull.number).into_iter().collect();
        let escalations = self.context.store.read(move |c| loops::numbers(c, &id, IssueRole::Escalation)).await?;
        for number in escalations {
            match account.forge.issue(repo, number).await {
                Ok(issue) if issue.open => repository_access.push(number),
                Ok(_) => {}
                Err(error) if error.kind == ForgeErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        repository_access.retain(|place| *place != but);
        Ok(repository_access)
    }

    /// Returns the outcome of a comment whose conversation is locked for the bot. The comment waits without delaying
    /// later effects.
    fn wait_for_unlocking(&self, claimed: &ClaimedEffect, on: Number, error: ForgeError) -> EffectError {
        let why =
            format!("{LOCKED_PREFIX}the conversation of #{on} is locked for the bot; unlock it ({})", error.detail);
        if self.context.clock.now().since(claimed.created_at) >= LONGEST_LOCK_MS {
            return EffectError::Permanent { why };
        }
        let doublings = claimed.tries.saturating_sub(1).min(6);
        let after_ms = (FIRST_LOCK_WAIT_MS << doublings).min(HOUR_MS);
        EffectError::Retry { after_ms: Some(after_ms), ambiguous: false, why }
    }

    /// Records a comment that an effect has written before the effect is finished.
    pub(super) async fn record_post(
        &self,
        claimed: &ClaimedEffect,
        key: &str,
        posted: &ForgePost,
    ) -> Result<(), EffectError> {
        let (subject, key, posted) = (claimed.subject.clone(), key.to_owned(), posted.clone());
        let (counted_on, now) = (claimed.place.key(), self.context.clock.now());
        Ok(self
            .context
            .store
            .write_kept(move |c| forge_posts::put(c, &subject, &key, &posted, &counted_on, now))
            .await?)
    }

    /// Updates the comment of an effect on the forge; creates the comment if it is missing.
    pub(super) async fn comment_in_place(
        &self,
        account: &ForgeAccount,
        claimed: &ClaimedEffect,
        repo: &RepoRef,
        on: Number,
        view: &View,
    ) -> Result<Receipt, EffectError> {
        let key = "status".to_owned();
        let marker = self.marker(claimed, &key);
        let body = self.marked(view, &marker);
        let digest = digest(body.as_str());
        let known = self.posted(&claimed.subject, &key).await?;
        if known.as_ref().is_some_and(|known| known.digest == digest) {
            return Ok(Receipt::text("unchanged"));
        }
        let mut there = known.map(|known| CommentId(known.forge_id));
        for looked in [false, true] {
            if looked && let Some(since) = self.may_exist_since(claimed).await? {
                // No comment is known, or it was deleted; an earlier attempt may have created one.
                let found = self.find_in_any_place(account, repo, on, claimed, &marker, since).await?;
                there = found.map(|found| found.id);
            }
            let Some(id) = there.take() else { continue };
            let posted = ForgePost { forge_id: id.0, digest: digest.clone() };
            match account.forge.edit_comment(repo, id, &body).await {
                Ok(()) => return Ok(Receipt { posted: Some((key, posted)), ..Receipt::text("edited") }),
                Err(e) if e.kind == ForgeErrorKind::NotFound => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.create_comment(account, claimed, repo, on, (key, marker), &body).await
    }

    pub(super) async fn posted(&self, subject: &str, key: &str) -> Result<Option<ForgePost>, EffectError> {
        let (subject, key) = (subject.to_owned(), key.to_owned());
        Ok(self.context.store.read(move |c| forge_posts::get(c, &subject, &key)).await?)
    }

    /// Returns the marker for the text that an effect writes under a key.
    pub(super) fn marker(&self, claimed: &ClaimedEffect, key: &str) -> Marker {
        Marker::new(&claimed.subject, key, &claimed.place.key(), &self.marker_key)
    }

    /// Renders a view to the text that an effect writes under a key.
    pub(super) fn text(&self, claimed: &ClaimedEffect, key: &str, view: &View) -> Outbound<BodyText> {
        self.marked(view, &self.marker(claimed, key))
    }

    /// Renders a view with its marker, and with links to the dashboard if other machines can reach the dashboard.
    fn marked(&self, view: &View, marker: &Marker) -> Outbound<BodyText> {
        self.renderer.comment(&self.with_dashboard(view.clone()), marker)
    }

    /// Adds links to the dashboard to a view if other machines can reach the dashboard.
    pub(super) fn with_dashboard(&self, mut view: View) -> View {
        if let Some(pages) = &self.dashboard {
            pages.link(&mut view);
        }
        view
    }

    /// Returns the time from which the text of an effect may exist on the forge although the database has no record of
    /// it; `None` if that is impossible. The text may come from an earlier attempt. It may also come from before a
    /// backup was restored. Because a restored database cannot be recognized, every loop older than this process is
    /// checked, and everything else in the first hour.
    pub(super) async fn may_exist_since(&self, claimed: &ClaimedEffect) -> Result<Option<Timestamp>, EffectError> {
        let started = self.started_at;
        if claimed.loop_id.is_some() {
            let begun = loop_of(&self.context.store, claimed).await?.created_at;
            if begun < started {
                return Ok(Some(begun));
            }
        } else if self.context.clock.now().since(started) < HOUR_MS {
            return Ok(Some(started.plus_ms(-OLDEST_BACKUP_MS)));
        }
        Ok((claimed.attempts > 0).then_some(claimed.created_at))
    }

    /// Returns the bot's oldest comment with the marker that was changed since a time. Copies of the marker by other
    /// users are ignored.
    async fn find_comment(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        on: Number,
        marker: &Marker,
        since: Timestamp,
    ) -> Result<Option<CommentSnapshot>, EffectError> {
        let comments = account.forge.comments(repo, on, Some(since.plus_ms(-LOOK_BACK_MS))).await?;
        let own = account.own()?;
        let ours = |c: &CommentSnapshot| c.author.as_ref().is_some_and(|a| a.id == own);
        let marked = |c: &CommentSnapshot| find_marker(&c.body, &self.marker_key).as_ref() == Some(marker);
        Ok(comments.into_iter().find(|c| ours(c) && marked(c)))
    }

    /// Returns the bot's oldest comment with the marker, in its own conversation or, if that is locked, in the loop's
    /// others.
    async fn find_in_any_place(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        on: Number,
        claimed: &ClaimedEffect,
        marker: &Marker,
        since: Timestamp,
    ) -> Result<Option<CommentSnapshot>, EffectError> {
        if let Some(found) = self.find_comment(account, repo, on, marker, since).await? {
            return Ok(Some(found));
        }
        for place in self.other_places(account, claimed, repo, on).await? {
            if let Some(found) = self.find_comment(account, repo, place, marker, since).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Deletes the new comment if an earlier attempt had already created one; returns the id of the remaining comment.
    async fn delete_duplicate(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        on: Number,
        claimed: &ClaimedEffect,
        marker: &Marker,
        ours: CommentId,
    ) -> Result<CommentId, EffectError> {
        if claimed.attempts > 0
            && let Some(first) = self.find_comment(account, repo, on, marker, claimed.created_at).await?
            && first.id != ours
        {
            account.forge.delete_comment(repo, ours).await?;
            return Ok(first.id);
        }
        Ok(ours)
    }

    /// Deletes a duplicate of a bot comment that was not visible when the comment was retried, because lists of the
    /// forge lag. Recent comments are ignored, because the store may not have recorded them yet.
    pub(super) async fn delete_late_duplicate(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        comment: &CommentSnapshot,
    ) -> Result<(), IntakeError> {
        let own = account.own()?;
        let ours = comment.author.as_ref().is_some_and(|author| author.id == own);
        let old = self.context.clock.now().since(comment.created_at) >= LATE_MS;
        let Some(marker) = find_marker(&comment.body, &self.marker_key).filter(|_| ours && old) else { return Ok(()) };
        let subject = marker.subject().to_owned();
        let known = self.context.store.read(move |c| forge_posts::of_subject(c, &subject)).await?;
        let same = |(key, posted, place): &(String, ForgePost, String)| {
            Marker::new(marker.subject(), key, place, &self.marker_key) == marker && posted.forge_id != comment.id.0
        };
        if !known.iter().any(same) {
            return Ok(());
        }
        tracing::info!(%repo, comment = comment.id.0, "deleting a duplicate comment");
        match account.forge.delete_comment(repo, comment.id).await {
            Err(error) if error.kind != ForgeErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns the reason to omit a comment if the comment limit of the issue is reached; `None` if the comment may be
    /// written. Requests for an answer and final comments are always written. `operator` has the limits of comments without a loop.
    pub(super) async fn over_budget(
        &self,
        claimed: &ClaimedEffect,
        view: &View,
        operator: &Limits,
    ) -> Result<Option<String>, EffectError> {
        let spare = match view {
            View::Iteration(_) | View::Reply(_) | View::Help(_) | View::Status(_) => true,
            View::Waiting(view) => view.mention.is_none(),
            _ => false,
        };
        if !spare {
            return Ok(None);
        }
        let limits = match claimed.loop_id {
            // The repository's file may lower the limits.
            Some(_) => loop_of(&self.context.store, claimed).await?.settings.policy.limits,
            None => operator.clone(),
        };
        let (on, now) = (claimed.place.key(), self.context.clock.now());
        let (hour, day) = self
            .context
            .store
            .read(move |c| {
                let hour = forge_posts::count_since(c, &on, now.plus_ms(-HOUR_MS))?;
                Ok((hour, forge_posts::count_since(c, &on, now.plus_ms(-DAY_MS))?))
            })
            .await?;
        let full = hour >= limits.comments_per_hour || day >= limits.comments_per_day;
        Ok(full.then(|| {
            format!("omitted: {hour} comments in the last hour, {day} in the last day; see the status comment")
        }))
    }
}
