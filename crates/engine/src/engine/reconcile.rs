//! Compares store, forge, processes and work trees, and creates inputs for the differences. Webhooks are hints; the
//! state read here is authoritative. Runs at start, on request, and at intervals.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};

use crate::domain::lifecycle::effect::{Effect, ForgeEffect};
use crate::domain::loops::{CommandInput, ForgeInput, Loop, LoopInput, LoopState, TaskText, WaitReason, WorkOutcome};
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, names_label};
use crate::domain::model::ids::{IssueRef, LoopId, Number, RepoRef, Timestamp};
use crate::engine::comments::Comments;
use crate::engine::context::ServiceContext;
use crate::engine::forges::Forges;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::forges::repository_access::RepositoryAccess;
use crate::engine::housekeeping::Housekeeping;
use crate::engine::intake::page::page_of;
use crate::engine::intake::{Intake, IntakeError, Origin, QUIET_BEFORE_LABEL_MS};
use crate::engine::look_schedule::LookSchedule;
use crate::engine::missing_hosts;
use crate::engine::settings::RoundSettings;
use crate::forge::{ForgeErrorKind, RecordedChanges};
use crate::store::loops::{self, IssueRole};
use crate::store::{StoreError, forge_state, inbox, installation, outbox};

/// Size of the write-ahead log above which a warning is logged, in bytes; four times the checkpoint size.
const LARGE_LOG: u64 = 256 << 20;
/// Maximum number of open loops that are checked individually per full round.
const LOOKS: usize = 50;
/// Maximum number of repositories per forge, and of loops, checked concurrently.
const AT_ONCE: usize = 4;
/// Maximum delay of a postponed row, in milliseconds. A longer delay can only result from a clock that was set back,
/// because no forge pauses for more than an hour.
const LONGEST_WAIT_MS: i64 = 2 * 3_600_000;
/// Time that is left for an event's delivery before the event is read from the forge, in milliseconds.
const DELIVERY_MS: i64 = 10_000;
/// Overlap with the previous listing of comments, in milliseconds.
pub(super) const LOOK_BACK_MS: i64 = 120_000;

/// Rounds of the reconciliation: their intervals, and when each repository is due.
pub(super) struct Rounds {
    pub(super) settings: RoundSettings,
    /// Times at which watched repositories are polled or reconciled next.
    pub(super) looks: Mutex<LookSchedule>,
}

/// Compares the store with forges, processes and work trees, and turns the differences into inputs.
pub struct Reconciler {
    pub(super) context: ServiceContext,
    pub(super) forges: Arc<Forges>,
    pub(super) comments: Arc<Comments>,
    pub(super) intake: Arc<Intake>,
    pub(super) housekeeping: Housekeeping,
    pub(super) rounds: Rounds,
}

impl Reconciler {
    pub(super) async fn run(self: Arc<Self>, grace: Duration) {
        let (mut last_idle, mut last_live): (Option<Timestamp>, Option<Timestamp>) = (None, None);
        while !self.context.stopping.is_cancelled() {
            let now = self.context.clock.now();
            // A clock that was set back must not delay the next round.
            let over = |last: Option<Timestamp>, limit: Duration| {
                last.is_none_or(|at| now < at || now.since(at) >= i64::try_from(limit.as_millis()).unwrap_or(i64::MAX))
            };
            let everything = over(last_idle, self.rounds.settings.idle);
            let live = everything || over(last_live, self.rounds.settings.live);
            let round = async { if live { self.reconcile_step(everything).await } else { self.look_at_due().await } };
            if let Some(Err(error)) = self.context.until_stopped(grace, round).await {
                tracing::warn!(%error, "the reconciliation failed; the next round starts over");
            }
            if everything {
                last_idle = Some(now);
            }
            if live {
                last_live = Some(now);
            }
            tokio::select! {
                () = self.context.wake.reconcile.notified() => last_idle = None,
                () = tokio::time::sleep(self.until_next_look()) => {}
                () = self.context.stopping.cancelled() => {}
            }
        }
    }

    /// Performs one round of reconciliation: over the repositories with open loops, or over all watched ones if
    /// `everything`.
    pub async fn reconcile_step(&self, everything: bool) -> Result<(), StoreError> {
        let (_, log) = self.context.store.sizes().await;
        if log > LARGE_LOG {
            tracing::warn!(
                mib = log >> 20,
                "the database's write-ahead log is large: does another program keep it open?"
            );
        }
        let now = self.context.clock.now();
        self.context
            .store
            .write(move |c| {
                inbox::cap_delay(c, now, LONGEST_WAIT_MS)?;
                outbox::cap_delay(c, now, LONGEST_WAIT_MS)
            })
            .await?;
        let forges = self.forges.accounts.values().map(|account| self.reconcile_forge(account, everything));
        join_all(forges).await.into_iter().collect::<Result<(), _>>()?;
        // Lists of the forge contain neither CI results nor deleted issues.
        let mut with_ci = self.context.store.read(|c| loops::open_ids(c, Some(LoopState::Review))).await?;
        if everything {
            let paused = self.context.store.read(|c| loops::in_state(c, LoopState::Paused)).await?;
            with_ci.extend(paused.into_iter().filter(Loop::reads_ci).map(|current| current.id));
        }
        for id in with_ci {
            self.look_at_ci(&id, everything).await?;
        }
        missing_hosts::report(&self.context).await?;
        let standing = self.housekeeping.standing();
        let open = self.context.store.read(|c| loops::open_ids(c, None)).await?;
        if everything {
            self.reconcile_some(&open).await?;
        }
        self.housekeeping.clean(standing, open.into_iter().collect(), everything).await
    }

    /// Checks the watched repositories that are due between two rounds.
    async fn look_at_due(&self) -> Result<(), StoreError> {
        let there = self.forges.accounts.values().filter(|account| account.user_id().is_some());
        let forges = there.map(async |account| {
            let due = self.due_repositories(account).await?;
            self.reconcile_repositories(account, due, false).await
        });
        join_all(forges).await.into_iter().collect()
    }

    /// Returns the time until the next round or check of a repository, at least one second.
    fn until_next_look(&self) -> Duration {
        let now = self.context.clock.now();
        let looks = self.rounds.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let next = looks.until_next_ms(now).and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        next.map_or(self.rounds.settings.live, |next| next.min(self.rounds.settings.live).max(Duration::from_secs(1)))
    }

    /// Checks the repositories of a forge: those that have open loops or are due, or all watched ones if `everything`.
    async fn reconcile_forge(&self, account: &ForgeAccount, everything: bool) -> Result<(), StoreError> {
        // The service's own actions there cannot be distinguished from people's actions.
        if account.user_id().is_none() {
            return Ok(());
        }
        if everything && self.forges.settings.updates(account.forge.name()).webhooks {
            self.ask_for_missed(account).await?;
        }
        let with_loops = self.repositories(account, everything).await?;
        let due = self.due_repositories(account).await?;
        let due = due.into_iter().filter(|repo| !with_loops.iter().any(|known| known.id == repo.id)).collect();
        self.reconcile_repositories(account, with_loops, true).await?;
        self.reconcile_repositories(account, due, false).await
    }

    /// Returns the watched repositories of a forge that are due for a check.
    async fn due_repositories(&self, account: &ForgeAccount) -> Result<Vec<RepoRef>, StoreError> {
        let (of, now) = (account.forge.name().clone(), self.context.clock.now());
        let mut known = self.context.store.read(move |c| forge_state::repositories(c, &of)).await?;
        known.retain(|repo| self.forges.settings.watches(repo));
        let looks = self.rounds.looks.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|repo| looks.is_due(repo, now));
        Ok(known)
    }

    /// Checks repositories of a forge concurrently, so that a slow one does not delay the others. With `fully`,
    /// repositories are also checked if the forge lists no change in them.
    async fn reconcile_repositories(
        &self,
        account: &ForgeAccount,
        repos: Vec<RepoRef>,
        fully: bool,
    ) -> Result<(), StoreError> {
        let longest = i64::try_from(self.rounds.settings.idle.as_millis()).unwrap_or(i64::MAX);
        let looks = repos.into_iter().map(async |repo| {
            let looked = self.reconcile_repository(account, &repo, fully).await;
            let busy = *looked.as_ref().unwrap_or(&false);
            let (now, interval) = (self.context.clock.now(), self.forges.settings.updates(&repo.forge).poll);
            let mut schedule = self.rounds.looks.lock().unwrap_or_else(PoisonError::into_inner);
            match interval {
                Some(interval) => schedule.polled(&repo, now, interval, busy),
                None => schedule.looked(&repo, now, busy, longest),
            }
            drop(schedule);
            match looked {
                Ok(_) => Ok(()),
                Err(IntakeError::Store(error)) => Err(error),
                Err(trouble) => {
                    tracing::warn!(%repo, ?trouble, "could not reconcile this repository");
                    Ok(())
                }
            }
        });
        stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn repositories(&self, account: &ForgeAccount, everything: bool) -> Result<Vec<RepoRef>, StoreError> {
        let name = account.forge.name();
        let of = name.clone();
        let mut all = self.context.store.read(move |c| loops::open_repositories(c, &of)).await?;
        let mut seen: HashSet<i64> = all.iter().map(|repo| repo.id.0).collect();
        if everything {
            match account.forge.repositories().await {
                Ok(found) => {
                    // Somebody may start a loop in an empty repository, too, which is answered.
                    let polled = self.forges.settings.updates(name).poll.is_some();
                    let found = found.into_iter().filter(|r| !r.archived && (polled || !r.empty)).map(|r| r.repo);
                    let found: Vec<_> = found.filter(|r| self.forges.settings.watches(r)).collect();
                    let now = self.context.clock.now();
                    self.rounds.looks.lock().unwrap_or_else(PoisonError::into_inner).keep(name, &found);
                    for repo in found {
                        let known = repo.clone();
                        self.context.store.write(move |c| forge_state::save_repository(c, &known, now)).await?;
                        if seen.insert(repo.id.0) {
                            all.push(repo);
                        }
                    }
                }
                Err(error) => tracing::warn!(forge = %name, %error, "could not list repositories"),
            }
        }
        Ok(all)
    }

    /// Processes the missed events of a repository: labels, comments, closed issues and pull requests, reviews. Sends
    /// three requests, and a few more for each loop whose issue or pull request changed; sends one request if nothing
    /// changed and `fully` is false. Returns `true` if anything changed since the last check.
    async fn reconcile_repository(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        fully: bool,
    ) -> Result<bool, IntakeError> {
        let repo = &self.forges.present_name(repo).await.unwrap_or_else(|_| repo.clone());
        let begun = self.context.clock.now();
        let Some(polling) = account.forge.polling() else {
            return self.missed_labels(account, repo).await.map(|()| false);
        };
        if self.forges.settings.updates(&repo.forge).poll.is_some() {
            return self.poll_repository(account, polling, repo).await;
        }
        let (looked_at, r) = (format!("looked_at/{}/{}", repo.forge, repo.id.0), repo.clone());
        let key = looked_at.clone();
        let last =
            self.context.store.read(move |c| Ok((installation::get(c, &key)?, loops::oldest_open(c, &r)?))).await?;
        let first = last.0.is_none();
        let fully = fully || first;
        let last = match last {
            (Some(text), _) => text.parse().map_or(begun, Timestamp),
            (None, oldest) => oldest.unwrap_or(begun),
        };
        // If the clock was set back, the last round lies in the future.
        let since = last.min(begun).plus_ms(-LOOK_BACK_MS);
        let changed = polling.issues_changed_since(repo, since).await?;
        let busy = !changed.is_empty();
        // The time stays the same while nothing changes: another repository may have answered.
        if !busy && !fully {
            return Ok(false);
        }
        self.missed_labels(account, repo).await?;
        let comments = match polling.comments_changed_since(repo, since).await {
            // Servers that are only like the forge lack this list; their deliveries have to do.
            Err(error) if error.kind == ForgeErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let news = busy || !comments.is_empty() || first;
        for (number, comment) in comments {
            self.comments.delete_late_duplicate(account, repo, &comment).await?;
            self.missed_comment(account, repo, number, comment, since).await?;
        }
        for issue in changed {
            let r = repo.clone();
            let found = self.context.store.read(move |c| loops::find(c, &r, issue.number)).await?;
            if let Some((id, role, true)) = found {
                self.reconcile_loop(id.clone()).await?;
                if issue.is_pull && role != IssueRole::Escalation && issue.open {
                    self.intake.missed_reviews(account, repo, &id, issue.number, since).await?;
                }
            }
        }
        if news && self.forges.is_named(account, repo).await {
            self.context.store.write(move |c| installation::set(c, &looked_at, &begun.0.to_string())).await?;
        }
        Ok(busy)
    }

    /// Processes added labels that start loops and whose events were missed.
    async fn missed_labels(&self, account: &ForgeAccount, repo: &RepoRef) -> Result<(), IntakeError> {
        for label in self.forges.start_labels(repo) {
            self.missed_label_named(account, repo, &label).await?;
        }
        Ok(())
    }

    async fn missed_label_named(&self, account: &ForgeAccount, repo: &RepoRef, run: &str) -> Result<(), IntakeError> {
        for issue in account.forge.open_issues_with_label(repo, run).await? {
            let (r, n) = (repo.clone(), issue.number);
            let known = self.context.store.read(move |c| Ok((loops::find(c, &r, n)?, forge_state::labels(c, &r, n)?)));
            let (found, labels) = known.await?;
            let heard = labels.is_some_and(|labels| names_label(&labels, run));
            let waited = self.context.clock.now().since(issue.updated_at);
            // An ended loop removed the label, so its presence requests another loop.
            let open = found.is_some_and(|(_, _, open)| open);
            if open || heard || waited < DELIVERY_MS {
                continue;
            }
            // The forge's record of the label is the same here and in its delivery.
            if self.missed_label(account, repo, &issue, run).await?
                || waited < self.rounds.settings.missed_event_after_ms
            {
                continue;
            }
            if !self.forges.is_named(account, repo).await {
                return Ok(());
            }
            tracing::info!(%repo, issue = %issue.number, "a label whose delivery was missed needs a confirmation");
            self.ask_about(account, repo, &issue, run).await?;
        }
        Ok(())
    }

    /// Determines from the forge's history who set the label, if the history also shows that the text has not changed
    /// since. Returns `false` if this is unknown.
    async fn missed_label(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        issue: &IssueSnapshot,
        run: &str,
    ) -> Result<bool, IntakeError> {
        let Some(history) = account.forge.history() else { return Ok(false) };
        let Some(label) = history.label_assignment(repo, issue.number, run).await? else { return Ok(false) };
        let edits = history.issue_edits(repo, issue.number).await?;
        let changed = edits.iter().map(|edit| edit.at).chain(label.renamed_at);
        if changed.into_iter().any(|at| at >= label.at.plus_ms(-QUIET_BEFORE_LABEL_MS)) {
            return Ok(false);
        }
        let recorded = RecordedChanges { renamed_at: label.renamed_at, last_recorded_at: label.last_recorded_at };
        if !history.records_edits()
            && !self.intake.text_is_as_recorded(account, repo, issue, (label.at, recorded)).await?
        {
            return Ok(false);
        }
        tracing::info!(%repo, issue = %issue.number, "a label whose delivery was missed");
        let origin = Origin::missed_label(repo, issue.number, label.id, label.at);
        self.intake.label_set(account, repo.clone(), issue.clone(), label.by, &origin).await?;
        Ok(true)
    }

    /// Comments that a command is needed as confirmation, because it is unknown who set the label and for which text.
    async fn ask_about(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        issue: &IssueSnapshot,
        run: &str,
    ) -> Result<(), IntakeError> {
        let place = IssueRef { repo: repo.clone(), issue: issue.number };
        let hash = super::intake::text_hash(&issue.title, &issue.body);
        let html = page_of(account, repo, &issue.body, issue.html.clone()).await?;
        let text = TaskText::new(issue.title.as_str(), issue.body.as_str(), html.as_deref());
        let view = crate::domain::report::missed_label(&text, &hash);
        let effect = Effect::Forge(ForgeEffect::Comment {
            key: format!("missed/{}", &hash[..8]),
            on: issue.number,
            view: Box::new(view),
        });
        let (labels, at, now) = (issue.labels.clone(), issue.updated_at, self.context.clock.now());
        let run = run.to_owned();
        let kept = self
            .context
            .store
            .write(move |c| {
                debug_assert!(names_label(&labels, &run));
                forge_state::save_labels(c, &place.repo, place.issue, &labels, at)?;
                outbox::enqueue(c, &place.key(), None, &place, &effect, now)
            })
            .await;
        if let Err(error) = kept {
            tracing::warn!(%error, "could not store the question about a missed label");
        }
        self.context.wake.effects_queued();
        Ok(())
    }

    /// Checks a limited number of open loops; the next round continues with the remaining ones.
    async fn reconcile_some(&self, open: &[LoopId]) -> Result<(), StoreError> {
        const CURSOR: &str = "reconciled_loop";
        let last = self.context.store.read(|c| installation::get(c, CURSOR)).await?.unwrap_or_default();
        let first = open.partition_point(|id| id.as_str() <= last.as_str());
        let round: Vec<LoopId> = open[first..].iter().chain(&open[..first]).take(LOOKS).cloned().collect();
        let looked = round.last().map_or(last, |id| id.to_string());
        let looks = round.into_iter().map(|id| self.reconcile_loop(id));
        stream::iter(looks).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        self.context.store.write(move |c| installation::set(c, CURSOR, &looked)).await
    }

    /// Enqueues an inspection of the CI of a loop's commit. With `doubting`, asks git about conflicts regardless of the forge's
    /// answer: the delivery of a push to the base may be lost, and the forge may not have checked since.
    async fn look_at_ci(&self, id: &LoopId, doubting: bool) -> Result<(), StoreError> {
        let (id, now) = (id.clone(), self.context.clock.now());
        let asked = self.context.store.write(move |c| {
            let Some(current) = loops::get(c, &id)? else { return Ok(false) };
            let Some(commit) = current.branch.pushed else { return Ok(false) };
            let effect = Effect::Forge(ForgeEffect::Inspect { commit, base_moved: doubting });
            outbox::enqueue(c, id.as_str(), Some(&id), &current.issue, &effect, now)?;
            Ok(true)
        });
        if asked.await? {
            self.context.wake.effects_queued();
        }
        Ok(())
    }

    /// Checks the issue and pull request of an open loop.
    pub(super) async fn reconcile_loop(&self, id: LoopId) -> Result<(), StoreError> {
        let Some(current) = self.context.store.read(move |c| loops::get(c, &id)).await? else { return Ok(()) };
        let Some(account) = self.forges.accounts.get(&current.issue.repo.forge) else { return Ok(()) };
        let repo = match self.forges.present_name(&current.issue.repo).await {
            Ok(repo) => repo,
            Err(_) => return Ok(()),
        };
        let tell = async |what: &str, input: LoopInput| {
            let (id, origin, now) = (current.id.clone(), Origin::state(&current, what), self.context.clock.now());
            let told = self.context.store.write(move |c| loops::enqueue_input(c, &id, &origin, &input, now)).await;
            self.context.wake.step.notify_one();
            told.map(drop)
        };
        if current.run.wait.is_some_and(|wait| wait.on == WaitReason::Repository) {
            return match self.forges.place(account, &repo, true).await {
                Ok(RepositoryAccess::Usable(_)) => {
                    let (id, now) = (current.id.clone(), self.context.clock.now());
                    self.context.store.write(move |c| outbox::make_due(c, &id, now)).await?;
                    self.context.wake.effects_queued();
                    tell("repository-back", LoopInput::Forge(ForgeInput::RepositoryBack)).await
                }
                _ => Ok(()),
            };
        }
        // An answer under a name that another repository has taken over says nothing about this loop.
        let tell_if_named = async |what: &str, input: LoopInput| match self.forges.is_named(account, &repo).await {
            true => tell(what, input).await,
            false => Ok(()),
        };
        let issue = match account.forge.issue(&repo, current.issue.issue).await {
            Err(e) if matches!(e.kind, ForgeErrorKind::NotFound | ForgeErrorKind::Denied) => {
                return match self.forges.place(account, &repo, true).await {
                    // In a deleted repository or one without issues, nothing ended: the loop waits.
                    Ok(RepositoryAccess::Unusable { why }) => {
                        tell(
                            "unavailable",
                            LoopInput::Outcome {
                                ticket: current.run.ticket,
                                outcome: WorkOutcome::RepositoryUnavailable { why },
                            },
                        )
                        .await
                    }
                    Ok(RepositoryAccess::Usable(now)) if e.kind == ForgeErrorKind::NotFound && now == repo => {
                        tell("gone", LoopInput::Forge(ForgeInput::IssueEnded { how: "deleted or moved away".into() }))
                            .await
                    }
                    _ => Ok(()),
                };
            }
            Err(error) => {
                tracing::debug!(%error, "could not read the issue");
                return Ok(());
            }
            Ok(issue) => issue,
        };
        let closed = LoopInput::Forge(ForgeInput::IssueEnded { how: "closed".into() });
        if let Some(pull) = &current.pull.opened {
            match account.forge.pull(&repo, pull.number).await {
                // A merge may also close the issue.
                Ok(now) if now.merged => {
                    return tell_if_named("merged", LoopInput::Forge(ForgeInput::PullMerged)).await;
                }
                Ok(now) if !now.open => {
                    return tell_if_named("pull-closed", LoopInput::Forge(ForgeInput::PullClosed)).await;
                }
                Ok(_) if !issue.open => return tell_if_named("closed", closed).await,
                Ok(now) if now.base_branch != current.branch.base_branch => {
                    let input = LoopInput::Forge(ForgeInput::PullRetargeted { base: now.base_branch.clone() });
                    return tell_if_named(&format!("pull-to-{}", now.base_branch), input).await;
                }
                Ok(_) => {}
                Err(error) if error.kind == ForgeErrorKind::NotFound => {
                    return tell_if_named("pull-gone", LoopInput::Forge(ForgeInput::PullGone)).await;
                }
                Err(error) => tracing::debug!(%error, "could not read the pull request"),
            }
        } else if !issue.open {
            return tell_if_named("closed", closed).await;
        }
        self.missed_removal(account, &current, &repo, issue).await
    }

    /// Pauses the loop if its labels were removed without a delivery. It is unknown who removed them, and pausing is
    /// the safe choice.
    async fn missed_removal(
        &self,
        account: &ForgeAccount,
        current: &Loop,
        repo: &RepoRef,
        issue: IssueSnapshot,
    ) -> Result<(), StoreError> {
        let (all, now) = (self.forges.start_labels(repo), self.context.clock.now());
        if all.iter().any(|label| issue.has_label(label))
            || now.since(issue.updated_at) < self.rounds.settings.missed_event_after_ms
            || !self.forges.is_named(account, repo).await
        {
            return Ok(());
        }
        let (id, repo) = (current.id.clone(), repo.clone());
        let origin = format!("reconcile/{id}/unlabeled/{}", current.updated_at.0);
        let told = self.context.store.write(move |c| {
            let knows = |c: &_| {
                let known = forge_state::labels(c, &repo, issue.number)?.unwrap_or_default();
                Ok::<_, StoreError>(all.iter().any(|label| names_label(&known, label)))
            };
            if !knows(c)? {
                return Ok(false);
            }
            forge_state::save_labels(c, &repo, issue.number, &issue.labels, issue.updated_at)?;
            // If the stored set stays, it is newer than the one read here.
            Ok(!knows(c)?
                && loops::enqueue_input(
                    c,
                    &id,
                    &origin,
                    &LoopInput::Command(CommandInput::RunLabelRemoved { by: None }),
                    now,
                )?)
        });
        if told.await? {
            self.context.wake.step.notify_one();
        }
        Ok(())
    }

    /// Processes a comment whose delivery may have been missed in the same way as a delivery: the permission is
    /// checked, and commands are executed only once.
    async fn missed_comment(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        number: Number,
        comment: CommentSnapshot,
        since: Timestamp,
    ) -> Result<(), IntakeError> {
        let own_id = account.own()?;
        let own = comment.author.as_ref().is_none_or(|author| author.id == own_id);
        // The original text is unknown, and edited comments are never executed.
        if own
            || comment.edited
            || comment.created_at < since
            || !crate::domain::loops::command::is_mentioned(&comment.body)
        {
            return Ok(());
        }
        let Some(sender) = comment.author.clone() else { return Ok(()) };
        let issue = account.forge.issue(repo, number).await?;
        let origin = Origin::found_comment(repo, &comment, self.context.clock.now());
        self.intake.comment(account, repo.clone(), issue, comment, sender, &origin).await.map(drop)
    }
}
