//! Comments of ours on a forge: written once, found again by their marker, edited in place, within a budget.

use sha2::{Digest, Sha256};

use failpoint::kill_point;

use super::executor::{Failure, Receipt};
use super::intake::Trouble;
use super::{Engine, ForgeSeat};
use crate::domain::model::event::CommentSnapshot;
use crate::domain::model::ids::{CommentId, Number, RepoRef};
use crate::domain::report::view::View;
use crate::forge::ForgeErrorKind;
use crate::render::{Marker, find_marker};
use crate::store::forge_posts::{self, ForgePost};
use crate::store::outbox::ClaimedEffect;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Lists of comments are read from a little before the intent: clocks differ.
const LOOK_BACK_MS: i64 = 120_000;
/// From this age on a comment is in every list of the forge, and what is known of it in the store.
const LATE_MS: i64 = 60_000;

/// Digest of a text, to see whether it has to be sent again.
pub(super) fn digest(text: &str) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(text)[..16])
}

impl Engine {
    /// Writes a comment once.
    pub(super) async fn comment_once(
        &self,
        seat: &ForgeSeat,
        claimed: &ClaimedEffect,
        repo: &RepoRef,
        on: Number,
        view: &View,
    ) -> Result<Receipt, Failure> {
        if self.posted(&claimed.subject, &claimed.key).await?.is_some() {
            return Ok(Receipt::text("it is there already"));
        }
        if let Some(why) = self.over_budget(claimed, view).await? {
            return Ok(Receipt::text(why));
        }
        self.comment_under(seat, claimed, repo, on, &claimed.key, view).await
    }

    /// Writes a comment under a key, or finds the one that an earlier try wrote.
    pub(super) async fn comment_under(
        &self,
        seat: &ForgeSeat,
        claimed: &ClaimedEffect,
        repo: &RepoRef,
        on: Number,
        key: &str,
        view: &View,
    ) -> Result<Receipt, Failure> {
        let (key, marker) = (key.to_owned(), self.marker(claimed, key));
        if claimed.attempts > 0
            && let Some(found) = self.find_comment(seat, repo, on, claimed, &marker).await?
        {
            let posted = ForgePost { forge_id: found.id.0, digest: String::new() };
            return Ok(Receipt { posted: Some((key, posted)), ..Receipt::text("found again by its marker") });
        }
        let body = self.renderer.comment(view, &marker);
        let created = seat.forge.create_comment(repo, on, &body).await?;
        kill_point("K10");
        let kept = self.sweep_twins(seat, repo, on, claimed, &marker, created.id).await?;
        let digest = if kept == created.id { digest(&body) } else { String::new() };
        let posted = ForgePost { forge_id: kept.0, digest };
        Ok(Receipt { posted: Some((key, posted)), ..Receipt::text(created.url) })
    }

    /// Brings a comment that is edited in place up to date, or writes it where it is not there (any more).
    pub(super) async fn comment_in_place(
        &self,
        seat: &ForgeSeat,
        claimed: &ClaimedEffect,
        repo: &RepoRef,
        on: Number,
        view: &View,
    ) -> Result<Receipt, Failure> {
        let key = "status".to_owned();
        let marker = self.marker(claimed, &key);
        let body = self.renderer.comment(view, &marker);
        let digest = digest(&body);
        let known = self.posted(&claimed.subject, &key).await?;
        if known.as_ref().is_some_and(|known| known.digest == digest) {
            return Ok(Receipt::text("it says so already"));
        }
        let mut there = known.map(|known| CommentId(known.forge_id));
        for looked in [false, true] {
            if looked && claimed.attempts > 0 {
                // What was known is gone; an earlier try may have written it anew.
                there = self.find_comment(seat, repo, on, claimed, &marker).await?.map(|found| found.id);
            }
            let Some(id) = there.take() else { continue };
            let posted = ForgePost { forge_id: id.0, digest: digest.clone() };
            match seat.forge.edit_comment(repo, id, &body).await {
                Ok(()) => return Ok(Receipt { posted: Some((key, posted)), ..Receipt::text("edited") }),
                Err(e) if e.kind == ForgeErrorKind::NotFound => {}
                Err(e) => return Err(e.into()),
            }
        }
        let created = seat.forge.create_comment(repo, on, &body).await?;
        kill_point("K10");
        let kept = self.sweep_twins(seat, repo, on, claimed, &marker, created.id).await?;
        let digest = if kept == created.id { digest } else { String::new() };
        let posted = ForgePost { forge_id: kept.0, digest };
        Ok(Receipt { posted: Some((key, posted)), ..Receipt::text(created.url) })
    }

    pub(super) async fn posted(&self, subject: &str, key: &str) -> Result<Option<ForgePost>, Failure> {
        let (subject, key) = (subject.to_owned(), key.to_owned());
        Ok(self.store.read(move |c| forge_posts::get(c, &subject, &key)).await?)
    }

    /// The marker of the text that an effect writes under a key.
    pub(super) fn marker(&self, claimed: &ClaimedEffect, key: &str) -> Marker {
        Marker::new(&claimed.subject, key, &claimed.place.key(), &self.marker_key)
    }

    /// A view as the text that an effect writes under a key.
    pub(super) fn text(&self, claimed: &ClaimedEffect, key: &str, view: &View) -> String {
        self.renderer.comment(view, &self.marker(claimed, key))
    }

    /// Our oldest comment that bears the marker, where there is one. Other people's copies of it do not count.
    pub(super) async fn find_comment(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        on: Number,
        claimed: &ClaimedEffect,
        marker: &Marker,
    ) -> Result<Option<CommentSnapshot>, Failure> {
        let since = claimed.created_at;
        let comments = seat.forge.comments(repo, on, Some(since.plus_ms(-LOOK_BACK_MS))).await?;
        let ours = |c: &CommentSnapshot| c.author.as_ref().is_some_and(|a| a.id == seat.own);
        let marked = |c: &CommentSnapshot| find_marker(&c.body, &self.marker_key).as_ref() == Some(marker);
        Ok(comments.into_iter().find(|c| ours(c) && marked(c)))
    }

    /// A call that seemed lost may have arrived after all: the newer twin goes. The one that stays.
    async fn sweep_twins(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        on: Number,
        claimed: &ClaimedEffect,
        marker: &Marker,
        ours: CommentId,
    ) -> Result<CommentId, Failure> {
        if claimed.attempts > 0
            && let Some(first) = self.find_comment(seat, repo, on, claimed, marker).await?
            && first.id != ours
        {
            seat.forge.delete_comment(repo, ours).await?;
            return Ok(first.id);
        }
        Ok(ours)
    }

    /// Removes a comment of ours that is not the one that we know under its key. Where lists of the forge lag behind, an
    /// earlier try is found neither before it is made again nor right after. Only one that has been there for a while is
    /// looked at: what is known of younger ones may be on its way into the store.
    pub(super) async fn remove_late_twin(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        comment: &CommentSnapshot,
    ) -> Result<(), Trouble> {
        let ours = comment.author.as_ref().is_some_and(|author| author.id == seat.own);
        let old = self.clock.now().since(comment.created_at) >= LATE_MS;
        let Some(marker) = find_marker(&comment.body, &self.marker_key).filter(|_| ours && old) else { return Ok(()) };
        let subject = marker.subject().to_owned();
        let known = self.store.read(move |c| forge_posts::of_subject(c, &subject)).await?;
        let same = |(key, posted, place): &(String, ForgePost, String)| {
            Marker::new(marker.subject(), key, place, &self.marker_key) == marker && posted.forge_id != comment.id.0
        };
        if !known.iter().any(same) {
            return Ok(());
        }
        tracing::info!(%repo, comment = comment.id.0, "a comment stood twice; the one that is not known goes");
        match seat.forge.delete_comment(repo, comment.id).await {
            Err(error) if error.kind != ForgeErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Why a comment is left out, where the issue has had enough of them. What people have to answer to, and what ends a
    /// loop, is always said.
    pub(super) async fn over_budget(&self, claimed: &ClaimedEffect, view: &View) -> Result<Option<String>, Failure> {
        let spare = match view {
            View::Iteration(_) | View::Reply(_) | View::Help(_) | View::Status(_) => true,
            View::Waiting(view) => view.mention.is_none(),
            _ => false,
        };
        if !spare {
            return Ok(None);
        }
        let limits = match claimed.loop_id {
            // The repository's file may have set less.
            Some(_) => self.current(claimed).await?.policy.limits,
            None => self.settings.policy(&claimed.place.repo.forge).limits,
        };
        let (on, now) = (claimed.place.key(), self.clock.now());
        let (hour, day) = self
            .store
            .read(move |c| {
                let hour = forge_posts::count_since(c, &on, now.plus_ms(-HOUR_MS))?;
                Ok((hour, forge_posts::count_since(c, &on, now.plus_ms(-DAY_MS))?))
            })
            .await?;
        let full = hour >= limits.comments_per_hour || day >= limits.comments_per_day;
        Ok(full.then(|| format!("left out: {hour} comments in an hour, {day} in a day; the status comment has it all")))
    }
}
