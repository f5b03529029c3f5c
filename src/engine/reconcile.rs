//! Compares store, forge, processes and trees, and makes events of what differs. Takes no input: a webhook is a hint,
//! this is the truth. Runs at start, on a nudge, and at intervals that follow live work.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::intake::Trouble;
use super::{Engine, ForgeSeat, Owner};
use crate::domain::effect::{Effect, Place};
use crate::domain::ids::{LoopId, Number, RepoRef, Timestamp};
use crate::domain::lifecycle::{Input, Loop, State};
use crate::failpoint::kill_point;
use crate::forge::{ForgeErrorKind, ForgeResult};
use crate::process;
use crate::store::{StoreError, facts, inbox, leases, loops, outbox};

/// How long handled deliveries are remembered against replays, milliseconds (30 days).
const REMEMBER_MS: i64 = 30 * 24 * 3_600_000;
/// Comments are read again from a little before the last look.
const LOOK_BACK_MS: i64 = 120_000;

pub(super) async fn run(engine: Arc<Engine>) {
    let mut last_idle: Option<Timestamp> = None;
    while !engine.stopping.is_cancelled() {
        let now = engine.clock.now();
        let idle_ms = i64::try_from(engine.settings.reconcile_idle.as_millis()).unwrap_or(i64::MAX);
        let everything = last_idle.is_none_or(|at| now.since(at) >= idle_ms);
        if let Err(error) = engine.reconcile_step(everything).await {
            tracing::error!(%error, "reconciling failed; the next round begins anew");
        }
        if everything {
            last_idle = Some(now);
        }
        tokio::select! {
            () = engine.wake.reconcile.notified() => last_idle = None,
            () = tokio::time::sleep(engine.settings.reconcile_live) => {}
            () = engine.stopping.cancelled() => {}
        }
    }
}

impl Engine {
    /// One round: repositories with open loops, or all that are watched.
    pub async fn reconcile_step(&self, everything: bool) -> Result<(), StoreError> {
        let open = self.store.read(|c| loops::list(c, true, usize::MAX >> 1)).await?;
        for seat in self.forges.values() {
            for repo in self.repositories(seat, &open, everything).await? {
                if let Err(error) = self.reconcile_repository(seat, &repo).await {
                    tracing::warn!(%repo, %error, "this repository could not be looked at");
                }
            }
        }
        for current in &open {
            self.reconcile_loop(current).await?;
        }
        let live: HashSet<LoopId> = open.iter().map(|l| l.id.clone()).collect();
        match self.workspaces.reap(&live).await {
            Ok(report) => tracing::debug!(?report, "reaped"),
            Err(error) => tracing::warn!(%error, "trees could not be reaped"),
        }
        let before = self.clock.now().plus_ms(-REMEMBER_MS);
        self.store.write(move |c| inbox::purge(c, before).and(loops::purge_inputs(c, before))).await?;
        Ok(())
    }

    async fn repositories(
        &self,
        seat: &ForgeSeat,
        open: &[Loop],
        everything: bool,
    ) -> Result<Vec<RepoRef>, StoreError> {
        let name = seat.forge.name();
        let mut seen: HashSet<i64> = HashSet::new();
        let live = open.iter().map(|l| l.place.repo.clone()).filter(|r| r.forge == *name);
        let mut all: Vec<RepoRef> = live.filter(|r| seen.insert(r.id.0)).collect();
        if everything {
            match seat.forge.repositories().await {
                Ok(found) => {
                    let found = found.into_iter().filter(|r| !r.archived && !r.empty).map(|r| r.repo);
                    let found: Vec<_> = found.filter(|r| self.settings.watches(r)).collect();
                    let now = self.clock.now();
                    for repo in found {
                        let known = repo.clone();
                        self.store.write(move |c| facts::save_repository(c, &known, now)).await?;
                        if seen.insert(repo.id.0) {
                            all.push(repo);
                        }
                    }
                }
                Err(error) => tracing::warn!(forge = %name, %error, "repositories could not be listed"),
            }
        }
        Ok(all)
    }

    /// Labels that were set, and comments that were written, without our having heard of it.
    async fn reconcile_repository(&self, seat: &ForgeSeat, repo: &RepoRef) -> ForgeResult<()> {
        let run = self.run_label(repo);
        for issue in seat.forge.issues_labelled(repo, &run).await? {
            let (r, n) = (repo.clone(), issue.number);
            let known = self.store.read(move |c| Ok((loops::find(c, &r, n)?, facts::labels(c, &r, n)?))).await;
            let (found, labels) = match known {
                Ok(known) => known,
                Err(error) => {
                    tracing::warn!(%error, "the store could not be asked");
                    continue;
                }
            };
            let heard = labels.is_some_and(|labels| labels.contains(&run));
            let late = self.clock.now().since(issue.updated_at) >= self.settings.event_patience_ms;
            // A loop that has ended took the label off; that it is there again is a wish for another.
            let open = found.is_some_and(|(_, _, open)| open);
            if !open && !heard && late {
                // Nobody knows who set the label; the forge's own record of the event may say, a person can.
                tracing::info!(%repo, issue = %issue.number, "a label whose event never came");
                self.missed(repo, &issue, &run).await;
            }
        }
        Ok(())
    }

    /// A label whose event was missed: who set it and what the text was then is not known, so nothing starts; the bot
    /// asks to be told by a command.
    async fn missed(&self, repo: &RepoRef, issue: &crate::domain::event::IssueSnapshot, run: &str) {
        let place = Place { repo: repo.clone(), issue: issue.number };
        let hash = super::intake::text_hash(&issue.title, &issue.body);
        let view = crate::domain::view::View::NeedsConfirm(crate::domain::view::NeedsConfirmView {
            loop_id: None,
            reason: crate::domain::view::Confirm::MissedEvent,
            text: format!("{}\n\n{}", issue.title, issue.body),
            hash: hash.get(..8).unwrap_or_default().to_owned(),
            editor: None,
        });
        let effect = Effect::Comment { key: format!("missed/{}", &hash[..8]), on: issue.number, view: Box::new(view) };
        let (labels, at, now) = (issue.labels.clone(), issue.updated_at, self.clock.now());
        let run = run.to_owned();
        let kept = self
            .store
            .write(move |c| {
                debug_assert!(labels.contains(&run));
                facts::save_labels(c, &place.repo, place.issue, &labels, at)?;
                outbox::push(c, &place.key(), None, &place, &effect, now)
            })
            .await;
        if let Err(error) = kept {
            tracing::warn!(%error, "the question about a missed label could not be stored");
        }
        self.wake.talk.notify_one();
    }

    /// What became of an open loop's issue and pull request.
    async fn reconcile_loop(&self, current: &Loop) -> Result<(), StoreError> {
        let Some(seat) = self.forges.get(&current.place.repo.forge) else { return Ok(()) };
        let repo = match self.present_name(&current.place.repo).await {
            Ok(repo) => repo,
            Err(_) => return Ok(()),
        };
        let at = current.updated_at.0;
        let tell = async |what: &str, input: Input| {
            let (id, origin, now) =
                (current.id.clone(), format!("reconcile/{}/{what}/{at}", current.id), self.clock.now());
            let told = self.store.write(move |c| loops::tell(c, &id, &origin, &input, now)).await;
            self.wake.step.notify_one();
            told.map(drop)
        };
        let mut numbers = vec![current.place.issue];
        match seat.forge.issue(&repo, current.place.issue).await {
            Err(e) if e.kind == ForgeErrorKind::NotFound => {
                return tell("gone", Input::IssueEnded { how: "deleted or moved away".into() }).await;
            }
            Err(error) => {
                tracing::debug!(%error, "the issue could not be looked at");
                return Ok(());
            }
            Ok(issue) if !issue.open && current.pull.is_none() => {
                return tell("closed", Input::IssueEnded { how: "closed".into() }).await;
            }
            Ok(_) => {}
        }
        if let Some(pull) = &current.pull {
            numbers.push(pull.number);
            match seat.forge.pull(&repo, pull.number).await {
                Ok(now) if now.merged => return tell("merged", Input::PullMerged).await,
                Ok(now) if !now.open => return tell("pull-closed", Input::PullClosed).await,
                Ok(_) if current.state == State::Review => {
                    if let Some(commit) = current.pushed.clone() {
                        let (id, place, now) = (current.id.clone(), current.place.clone(), self.clock.now());
                        let effect = Effect::Inspect { commit };
                        self.store
                            .write(move |c| outbox::push(c, id.as_str(), Some(&id), &place, &effect, now))
                            .await?;
                        self.wake.talk.notify_one();
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "the pull request could not be looked at"),
            }
        }
        let escalations = current.id.clone();
        numbers.extend(self.store.read(move |c| loops::numbers(c, &escalations, loops::Role::Escalation)).await?);
        for number in numbers {
            self.missed_comments(seat, &repo, current, number).await?;
        }
        Ok(())
    }

    /// Commands whose delivery never came: comments since the loop's last look that no delivery told of. They take the
    /// way of a delivery, so that permission is asked and nothing is done twice.
    async fn missed_comments(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        current: &Loop,
        number: Number,
    ) -> Result<(), StoreError> {
        let since = current.updated_at.plus_ms(-LOOK_BACK_MS).max(current.created_at);
        let comments = match seat.forge.comments(repo, number, Some(since)).await {
            Ok(comments) => comments,
            Err(error) => {
                tracing::debug!(%error, "comments could not be read");
                return Ok(());
            }
        };
        for comment in comments {
            let own = comment.author.as_ref().is_none_or(|a| a.id == seat.own);
            if own || comment.created_at < since || crate::domain::command::parse(&comment.body).is_empty() {
                continue;
            }
            let (Some(sender), Ok(issue)) = (comment.author.clone(), seat.forge.issue(repo, number).await) else {
                continue;
            };
            let now = self.clock.now();
            if let Err(Trouble::Store(error)) = self.comment(seat, repo.clone(), issue, comment, sender, now).await {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the leases of processes that are gone, and what they left running.
    pub async fn recover(&self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let here = self.owner.clone();
        let own = here.name();
        let owners = self.store.read(move |c| leases::owners(c, now)).await?;
        for name in owners.into_iter().filter(|name| *name != own) {
            let gone = Owner::parse(&name).is_some_and(|o| o.is_gone(&here, process::is_alive));
            if gone {
                tracing::info!(owner = name, "a process is gone; its work is taken over");
                self.store.write(move |c| leases::end_all(c, &name)).await?;
                kill_point("K37");
            }
        }
        // What the lost left running is ended now: nobody may come for their work for a long time, or ever.
        let lost = self.store.read(move |c| outbox::lost_work(c, now)).await?;
        let ended = lost.iter().map(async |id| {
            let left = process::end_survivors(&self.cookie_of(id), Duration::ZERO).await;
            if left > 0 {
                tracing::error!(loop_id = %id, left, "processes of a lost run could not be ended");
            }
        });
        futures::future::join_all(ended).await;
        Ok(())
    }
}
