//! Events of deliveries: parses them, confirms them by the forge, and turns them into inputs of loops.

use super::pulls;
use crate::domain::lifecycle::effect::{Effect, ForgeEffect};
use crate::domain::loops::{ForgeInput, LoopInput};
use crate::domain::model::event::{ForgeEvent, is_same_label};
use crate::domain::model::ids::{IssueRef, LoopId, Number, RepoRef, User};
use crate::domain::supervision::oversight::AuditEntry;
use crate::domain::trust::permit::Authorization;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::pulls::Reviewed;
use crate::engine::intake::{Intake, IntakeError, IntakeOutcome, IntakeResult, Origin, Report, done, ignored};
use crate::engine::spans::delivery_span;
use crate::forge::{ForgeErrorKind, ParsedDelivery};
use crate::store::inbox::{self, DeliveryAbout, DeliveryOutcome, WaitingDelivery};
use crate::store::loops::{self, IssueRole};
use crate::store::{StoreError, audit, forge_state, outbox};

/// Maximum number of attempts per delivery.
const MAX_TRIES: u32 = 20;
/// Waits for the forge to show a reported change, in milliseconds. A server can send a delivery before all of
/// its replicas have the change. After the last wait the delivery is refused.
const NOT_SHOWN_WAITS_MS: [i64; 2] = [1_000, 4_000];

impl Intake {
    /// Parses a delivery. The error is the outcome of a delivery without an event, and the reason.
    pub(super) fn parse_delivery(&self, waiting: &WaitingDelivery) -> Result<Report<'_>, (DeliveryOutcome, String)> {
        let ignored = |why: &str| (DeliveryOutcome::Ignored, why.to_owned());
        let refused = |why: String| (DeliveryOutcome::Refused, format!("not understood: {why}"));
        let Some(account) = self.forges.accounts.get(&waiting.delivery.forge) else {
            return Err(ignored("this forge is no longer configured"));
        };
        let body = waiting.delivery.body.unpack().map_err(|error| refused(error.to_string()))?;
        let webhooks = account.forge.webhooks().ok_or_else(|| ignored("this forge has no webhooks"))?;
        if waiting.delivery.is_polled() {
            let event = serde_json::from_slice(&body).map_err(|error| refused(error.to_string()))?;
            return Ok(Report { account, webhooks, event, installation: None });
        }
        match webhooks.parse(&waiting.delivery.event, &body) {
            ParsedDelivery::Event(event) => {
                let installation = webhooks.named_installation(&body);
                Ok(Report { account, webhooks, event: *event, installation })
            }
            ParsedDelivery::Ignored(why) => Err(ignored(&why)),
            ParsedDelivery::Malformed(why) => Err(refused(why)),
        }
    }

    /// Reports a refused delivery to the operator: by the log, a counter, and the stored outcome that `ralph-bot
    /// check` shows.
    pub(super) fn tell_refused(&self, waiting: &WaitingDelivery, why: &str) {
        let (forge, delivery, event) = (&waiting.delivery.forge, &waiting.delivery.delivery, &waiting.delivery.event);
        tracing::warn!(%forge, delivery, event, why, "delivery ignored: the forge does not confirm it");
        self.context.metrics.delivery(forge.as_str(), "unconfirmed");
    }

    /// Processes a delivery; returns `false` if it was postponed.
    pub(super) async fn handle(&self, waiting: &WaitingDelivery, report: Report<'_>) -> Result<bool, StoreError> {
        let about = DeliveryAbout::of(&report.event);
        // Boxed, because the futures of all events are one large one.
        let outcome = Box::pin(self.event(report, &Origin::delivery(waiting))).await;
        let (outcome, why) = match outcome {
            Ok(IntakeOutcome::Done(what)) => (DeliveryOutcome::Done, what),
            Ok(IntakeOutcome::Ignored(why)) => (DeliveryOutcome::Ignored, why),
            Ok(IntakeOutcome::Repeated) => {
                self.context.metrics.delivery(waiting.delivery.forge.as_str(), "repeated");
                (DeliveryOutcome::Ignored, "repeated: it was processed before".to_owned())
            }
            Ok(IntakeOutcome::Stale(why)) => (DeliveryOutcome::Refused, why),
            Err(IntakeError::Store(error)) => return Err(error),
            Err(IntakeError::Contradicted(why)) => (DeliveryOutcome::Refused, why),
            Err(IntakeError::NotShown(why)) => match NOT_SHOWN_WAITS_MS.get(waiting.attempts as usize) {
                Some(wait) => return self.put_off((waiting, about), Some(*wait), why).await,
                None => (DeliveryOutcome::Refused, why),
            },
            Err(IntakeError::Retry { why, .. }) if waiting.attempts >= MAX_TRIES => {
                tracing::error!(delivery = waiting.delivery.delivery, why, "delivery given up");
                (DeliveryOutcome::Dead, why)
            }
            Err(IntakeError::Retry { after_ms, why }) => return self.put_off((waiting, about), after_ms, why).await,
        };
        match outcome {
            DeliveryOutcome::Refused => self.tell_refused(waiting, &why),
            DeliveryOutcome::Ignored => tracing::debug!(delivery = waiting.delivery.delivery, why, "delivery ignored"),
            DeliveryOutcome::Done | DeliveryOutcome::Dead => {}
        }
        let id = waiting.id;
        let finished = self.context.store.write(move |c| {
            inbox::finish(c, id, outcome, &why)?;
            inbox::describe(c, id, about.as_ref())
        });
        finished.await?;
        if outcome == DeliveryOutcome::Done {
            delivery_span(&self.context, waiting).await;
            self.context.wake.loop_stepped();
        }
        Ok(true)
    }

    /// Postpones a delivery; returns `false`.
    async fn put_off(
        &self,
        (waiting, about): (&WaitingDelivery, Option<DeliveryAbout>),
        after_ms: Option<i64>,
        why: String,
    ) -> Result<bool, StoreError> {
        tracing::warn!(delivery = waiting.delivery.delivery, why, "delivery put off");
        let after_ms = after_ms.unwrap_or_else(|| self.pace.backoff_ms(waiting.attempts + 1));
        let (id, at) = (waiting.id, self.context.clock.now().plus_ms(after_ms));
        let postponed = self.context.store.write(move |c| {
            inbox::postpone(c, id, at, &why)?;
            inbox::describe(c, id, about.as_ref())
        });
        postponed.await?;
        Ok(false)
    }

    async fn event(&self, report: Report<'_>, origin: &Origin) -> IntakeResult {
        let Report { account, webhooks, mut event, installation } = report;
        let Some(reported) = event.repo().cloned() else {
            self.context.wake.reconcile.notify_one();
            return done("the App's installation changed");
        };
        if !self.forges.settings.watches(&reported) {
            return ignored(format!("{reported} is not watched"));
        }
        if let ForgeEvent::RepositoryChanged { action, .. } = event {
            self.context.wake.reconcile.notify_one();
            return done(format!("the repository was {action}"));
        }
        let repo = self.confirmed_repository(account, webhooks, &reported, installation).await?;
        if !self.forges.settings.watches(&repo) {
            return ignored(format!("{repo} is not watched"));
        }
        event.set_repo(repo);
        let own_id = account.own()?;
        let starts_trial = self.forges.settings.is_trial && matches!(event, ForgeEvent::Labeled { .. });
        let own = event.sender().is_some_and(|sender| sender.id == own_id) && !starts_trial;
        match event {
            ForgeEvent::LabelSet { repo, issue, sender } => self.label_set(account, repo, issue, sender, origin).await,
            // A merge that the bot asked for is the forge's doing.
            ForgeEvent::PullChanged { repo, pull, .. } if pull.merged => self.pull_changed(account, &repo, &pull).await,
            _ if own => ignored("our own doing"),
            ForgeEvent::Labeled { repo, issue, label, sender } => {
                let Some(label) =
                    self.forges.start_labels(&repo).into_iter().find(|known| is_same_label(&label, known))
                else {
                    return ignored(format!("the label {label} has no effect"));
                };
                self.label_added(account, &repo, (&issue, &label), sender, origin).await
            }
            ForgeEvent::Unlabeled { repo, issue, label, sender } => {
                let Some(label) =
                    self.forges.start_labels(&repo).into_iter().find(|known| is_same_label(&label, known))
                else {
                    return ignored(format!("the label {label} has no effect"));
                };
                self.label_removed(account, &repo, (&issue, &label), sender, origin).await
            }
            ForgeEvent::IssueOpened { repo, issue, sender } => {
                // Where label events name their label, one follows by itself.
                if account.forge.server_info().await?.label_deltas {
                    return ignored("a new issue; its labels are delivered separately");
                }
                if !self.forges.start_labels(&repo).iter().any(|label| issue.has_label(label)) {
                    return ignored("a new issue without the label");
                }
                self.label_set(account, repo, issue, sender, origin).await
            }
            ForgeEvent::IssueEdited { repo, issue, sender } => {
                self.edit_exists(account, &repo, &issue).await?;
                let at = issue.updated_at;
                self.context.store.write(move |c| forge_state::add_edit(c, &repo, issue.number, at, &sender)).await?;
                done("the edit is noted")
            }
            ForgeEvent::IssueClosed { repo, issue, .. } => self.issue_closed(account, &repo, issue.number).await,
            ForgeEvent::IssueReopened { .. } => ignored("reopened; the label starts a loop"),
            ForgeEvent::IssueGone { repo, number, .. } => {
                self.issue_is_gone(account, &repo, number).await?;
                let input = LoopInput::Forge(ForgeInput::IssueEnded { how: "deleted or moved away".into() });
                self.tell_state(account, &repo, (number, IssueRole::Issue), "gone", input).await
            }
            ForgeEvent::CommentCreated { repo, issue, comment, sender } => {
                let origin = origin.comment(&repo, &comment);
                self.comment(account, repo, issue, comment, sender, &origin).await
            }
            ForgeEvent::PullChanged { repo, pull, .. } => self.pull_changed(account, &repo, &pull).await,
            ForgeEvent::ReviewSubmitted { repo, pull, id, verdict, body, sender, at } => {
                self.review(account, repo, pull, Reviewed { id, verdict, body, sender, at }, origin).await
            }
            ForgeEvent::ReviewCommented { repo, pull, comment, sender, .. } => {
                self.remark(account, repo, pull.number, comment, sender, origin).await
            }
            ForgeEvent::ChecksChanged { repo, sha, .. } => {
                self.inspect_where(&repo, false, |l| l.reads_ci() && l.branch.pushed.as_ref() == Some(&sha)).await
            }
            ForgeEvent::Pushed { repo, branch, .. } => {
                self.inspect_where(&repo, true, |l| pulls::in_review(l) && l.branch.base_branch == branch).await
            }
            ForgeEvent::RepositoryChanged { action, .. } | ForgeEvent::InstallationChanged { action } => done(action),
        }
    }

    pub(in crate::engine) async fn permitted(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        actor: &User,
    ) -> Result<Authorization, IntakeError> {
        Ok(self.forges.permitted_now(account, repo, actor).await?)
    }

    /// Enqueues an effect on an issue without a loop.
    pub(super) async fn enqueue_effect(&self, place: &IssueRef, effect: ForgeEffect) -> Result<(), IntakeError> {
        let (place, effect, now) = (place.clone(), Effect::Forge(effect), self.context.clock.now());
        self.context.store.write(move |c| outbox::enqueue(c, &place.key(), None, &place, &effect, now)).await?;
        self.context.wake.effects_queued();
        Ok(())
    }

    async fn issue_closed(&self, account: &ForgeAccount, repo: &RepoRef, number: Number) -> IntakeResult {
        let Some(current) = self.open_loop(repo, number).await? else {
            return ignored("no loop is open there");
        };
        if current.issue.issue != number {
            // Closing an escalation issue by hand does not end the loop.
            return ignored("it is not the loop's issue");
        }
        let pull = async {
            match &current.pull.opened {
                Some(pull) => account.forge.pull(repo, pull.number).await.map(|pull| pull.merged),
                None => Ok(false),
            }
        };
        let (issue, merged) = futures::future::join(account.forge.issue(repo, number), pull).await;
        match issue {
            Err(error) if error.kind == ForgeErrorKind::NotFound => self.issue_is_gone(account, repo, number).await?,
            issue => {
                if issue?.open {
                    return Err(IntakeError::NotShown(format!("the issue #{number} is open")));
                }
            }
        }
        let merged = merged?;
        let (what, input) = match merged {
            true => ("merged", LoopInput::Forge(ForgeInput::PullMerged)),
            false => ("closed", LoopInput::Forge(ForgeInput::IssueEnded { how: "closed".into() })),
        };
        self.tell_state(account, repo, (number, IssueRole::Issue), what, input).await
    }

    pub(in crate::engine) async fn open_loop(
        &self,
        repo: &RepoRef,
        number: Number,
    ) -> Result<Option<crate::domain::loops::Loop>, IntakeError> {
        let repo = repo.clone();
        let found = self
            .context
            .store
            .read(move |c| match loops::find(c, &repo, number)? {
                Some((id, _, true)) => loops::get(c, &id),
                _ => Ok(None),
            })
            .await?;
        Ok(found)
    }

    pub(in crate::engine) async fn enqueue_for_open_loop(
        &self,
        repo: &RepoRef,
        number: Number,
        role: IssueRole,
        input: LoopInput,
        origin: &Origin,
    ) -> IntakeResult {
        let at = repo.clone();
        match self.context.store.read(move |c| loops::find(c, &at, number)).await? {
            Some((id, found, true)) if found == role => self.enqueue_input(&id, input, origin, 0).await,
            _ => ignored("no loop is open there"),
        }
    }

    /// Enqueues the forge's current state of an issue or pull request as an input of its open loop.
    pub(in crate::engine) async fn tell_state(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        (number, role): (Number, IssueRole),
        what: &str,
        input: LoopInput,
    ) -> IntakeResult {
        let at = repo.clone();
        let open = self.context.store.read(move |c| match loops::find(c, &at, number)? {
            Some((id, found, true)) if found == role => loops::get(c, &id),
            _ => Ok(None),
        });
        match open.await? {
            Some(current) => {
                self.still_named(account, repo).await?;
                self.enqueue(&current.id, input, Origin::state(&current, what), None).await
            }
            None => ignored("no loop is open there"),
        }
    }

    /// Enqueues an input for a loop. An input whose origin was processed before is ignored.
    pub(in crate::engine) async fn enqueue_input(
        &self,
        id: &LoopId,
        input: LoopInput,
        origin: &Origin,
        part: usize,
    ) -> IntakeResult {
        self.enqueue(id, input, origin.part(part), origin.entry.clone()).await
    }

    async fn enqueue(&self, id: &LoopId, input: LoopInput, key: String, entry: Option<AuditEntry>) -> IntakeResult {
        let (to, now) = (id.clone(), self.context.clock.now());
        let new = self.context.store.write(move |c| {
            let new = loops::enqueue_input(c, &to, &key, &input, now)?;
            if let Some(entry) = entry.filter(|_| new) {
                audit::append(c, &to, &[entry], now)?;
            }
            Ok(new)
        });
        if !new.await? {
            return Ok(IntakeOutcome::Repeated);
        }
        self.context.wake.step.notify_one();
        done(format!("told {id}"))
    }
}
