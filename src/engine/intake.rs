//! Turns deliveries into inputs of loops, after checking the sender's permission.
//!
//! Fails closed: if the forge cannot be asked for a permission, the delivery is retried later.

mod comments;
mod delivery_queues;
mod labels;
mod pulls;

use sha2::{Digest, Sha256};

use self::pulls::Reviewed;
use super::{Engine, ForgeAccount};
use crate::domain::lifecycle::effect::Effect;
use crate::domain::loops::LoopInput;
use crate::domain::model::event::{CommentSnapshot, ForgeEvent};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{LoopId, Number, RepoRef, Timestamp, User};
use crate::domain::trust::permit::{self, AccessLevel, Authorization, DenyAnswer, PermitFacts};
use crate::domain::trust::policy::{Floor, Policy};
use crate::forge::{ForgeError, ForgeErrorKind, ParsedDelivery, Permission};
use crate::store::inbox::{self, DeliveryOutcome, WaitingDelivery};
use crate::store::loops::{self, IssueRole};
use crate::store::{StoreError, forge_state, outbox};

/// Time before the label within which an edit by a user without write access makes the text need confirmation, in
/// milliseconds: the person who set the label may have read the text before the edit.
pub(super) const QUIET_BEFORE_LABEL_MS: i64 = 120_000;
/// Maximum number of attempts per delivery.
const MAX_TRIES: u32 = 20;

/// Origin of an input; an input with a known origin is ignored.
pub(super) struct Origin {
    key: String,
    received_at: Timestamp,
}

impl Origin {
    fn delivery(waiting: &WaitingDelivery) -> Self {
        Self { key: format!("delivery/{}", waiting.id), received_at: waiting.received_at }
    }

    /// Returns the origin of a comment, independent of the delivery or reconciliation that reported it.
    fn comment(repo: &RepoRef, comment: &CommentSnapshot, received_at: Timestamp) -> Self {
        Self { key: format!("comment/{}/{}/{}", repo.forge, repo.id, comment.id), received_at }
    }

    /// Returns the origin of a review remark, whether delivered alone or with its review.
    fn remark(repo: &RepoRef, comment: &CommentSnapshot, received_at: Timestamp) -> Self {
        Self { key: format!("remark/{}/{}/{}", repo.forge, repo.id, comment.id), received_at }
    }

    /// Returns the origin of a label found by the reconciler; the same until the label is set again.
    pub(super) fn missed_label(repo: &RepoRef, issue: Number, at: Timestamp) -> Self {
        Self { key: format!("label/{}/{}/{issue}/{}", repo.forge, repo.id, at.0), received_at: at }
    }

    /// Returns the origin of a review found by the reconciler.
    fn missed_review(repo: &RepoRef, id: i64, at: Timestamp) -> Self {
        Self { key: format!("review/{}/{}/{id}", repo.forge, repo.id), received_at: at }
    }

    fn part(&self, part: usize) -> String {
        format!("{}/{part}", self.key)
    }
}

/// Result of a delivery.
pub(super) enum IntakeOutcome {
    Done(String),
    Ignored(String),
    /// The reported state of a label is outdated.
    Stale(String),
}

/// Reason a delivery could not be processed.
#[derive(Debug)]
pub(super) enum IntakeError {
    /// Retry after `after_ms` milliseconds, or after the default backoff if `None`.
    Retry { after_ms: Option<i64>, why: String },
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for IntakeError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ForgeError> for IntakeError {
    fn from(error: ForgeError) -> Self {
        let after_ms = match error.kind {
            ForgeErrorKind::RateLimited { after_ms } => Some(after_ms),
            ForgeErrorKind::Transient { after_ms, .. } => after_ms,
            _ => None,
        };
        Self::Retry { after_ms, why: error.to_string() }
    }
}

pub(super) type IntakeResult = Result<IntakeOutcome, IntakeError>;

fn ignored(why: impl Into<String>) -> IntakeResult {
    Ok(IntakeOutcome::Ignored(why.into()))
}

fn done(what: impl Into<String>) -> IntakeResult {
    Ok(IntakeOutcome::Done(what.into()))
}

impl Engine {
    /// Parses a delivery; the error is the reason to ignore it.
    fn parse_delivery(&self, waiting: &WaitingDelivery) -> Result<(&ForgeAccount, Box<ForgeEvent>), String> {
        let Some(account) = self.forges.get(&waiting.delivery.forge) else {
            return Err("this forge is no longer configured".into());
        };
        let body = waiting.delivery.body.unpack().map_err(|error| format!("not understood: {error}"))?;
        let webhooks = account.forge.webhooks().ok_or("this forge has no webhooks")?;
        match webhooks.parse(&waiting.delivery.event, &body) {
            ParsedDelivery::Event(event) => Ok((account, event)),
            ParsedDelivery::Ignored(why) => Err(why),
            ParsedDelivery::Malformed(why) => Err(format!("not understood: {why}")),
        }
    }

    /// Processes a delivery; returns `false` if it was postponed.
    async fn handle(
        &self,
        waiting: &WaitingDelivery,
        account: &ForgeAccount,
        event: ForgeEvent,
    ) -> Result<bool, StoreError> {
        let id = waiting.id;
        let outcome = self.event(account, event, &Origin::delivery(waiting)).await;
        let now = self.clock.now();
        match outcome {
            Ok(IntakeOutcome::Done(what)) => {
                self.store.write(move |c| inbox::finish(c, id, DeliveryOutcome::Done, &what)).await?;
                self.wake.loop_stepped();
            }
            Ok(IntakeOutcome::Ignored(why) | IntakeOutcome::Stale(why)) => {
                tracing::debug!(delivery = waiting.delivery.delivery, why, "delivery ignored");
                self.store.write(move |c| inbox::finish(c, id, DeliveryOutcome::Ignored, &why)).await?;
            }
            Err(IntakeError::Store(error)) => return Err(error),
            Err(IntakeError::Retry { why, .. }) if waiting.attempts >= MAX_TRIES => {
                tracing::error!(delivery = waiting.delivery.delivery, why, "delivery given up");
                self.store.write(move |c| inbox::finish(c, id, DeliveryOutcome::Dead, &why)).await?;
            }
            Err(IntakeError::Retry { after_ms, why }) => {
                tracing::warn!(delivery = waiting.delivery.delivery, why, "delivery put off");
                let at = now.plus_ms(after_ms.unwrap_or_else(|| self.settings.backoff_ms(waiting.attempts + 1)));
                self.store.write(move |c| inbox::postpone(c, id, at, &why)).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn event(&self, account: &ForgeAccount, event: ForgeEvent, origin: &Origin) -> IntakeResult {
        let Some(repo) = event.repo().cloned() else {
            self.wake.reconcile.notify_one();
            return done("the App's installation changed");
        };
        if !self.settings.watches(&repo) {
            return ignored(format!("{repo} is not watched"));
        }
        let now = self.clock.now();
        let seen = repo.clone();
        self.store.write(move |c| forge_state::save_repository(c, &seen, now)).await?;
        let own = event.sender().is_some_and(|sender| sender.id == account.user_id);
        match event {
            ForgeEvent::LabelSet { repo, issue, sender } => self.label_set(account, repo, issue, sender, origin).await,
            _ if own => ignored("our own doing"),
            ForgeEvent::Labeled { repo, issue, label, sender } => {
                if label != self.run_label(&repo) {
                    return ignored(format!("the label {label} has no effect"));
                }
                self.label_changed(account, repo, issue, sender, true, origin).await
            }
            ForgeEvent::Unlabeled { repo, issue, label, sender } => {
                if label != self.run_label(&repo) {
                    return ignored(format!("the label {label} has no effect"));
                }
                self.label_changed(account, repo, issue, sender, false, origin).await
            }
            ForgeEvent::IssueOpened { repo, issue, sender } => {
                // Where label events name their label, one follows by itself.
                if account.forge.server_info().await?.label_deltas {
                    return ignored("a new issue; its labels are delivered separately");
                }
                self.label_set(account, repo, issue, sender, origin).await
            }
            ForgeEvent::IssueEdited { repo, issue, sender } => {
                let at = issue.updated_at;
                self.store.write(move |c| forge_state::add_edit(c, &repo, issue.number, at, &sender)).await?;
                done("the edit is noted")
            }
            ForgeEvent::IssueClosed { repo, issue, .. } => {
                self.issue_closed(account, &repo, issue.number, origin).await
            }
            ForgeEvent::IssueReopened { .. } => ignored("reopened; the label starts a loop"),
            ForgeEvent::IssueGone { repo, number, .. } => {
                let input = LoopInput::IssueEnded { how: "deleted or moved away".into() };
                self.enqueue_for_open_loop(&repo, number, IssueRole::Issue, input, origin).await
            }
            ForgeEvent::CommentCreated { repo, issue, comment, sender } => {
                self.comment(account, repo, issue, comment, sender, origin.received_at).await
            }
            ForgeEvent::PullChanged { repo, pull, .. } => self.pull_changed(&repo, &pull, origin).await,
            ForgeEvent::ReviewSubmitted { repo, pull, id, verdict, body, sender, at } => {
                self.review(account, repo, pull, Reviewed { id, verdict, body, sender, at }, origin).await
            }
            ForgeEvent::ReviewCommented { repo, pull, comment, path, sender } => {
                self.remark(account, repo, pull, comment, path, sender, origin).await
            }
            ForgeEvent::ChecksChanged { repo, sha, .. } => {
                self.inspect_where(&repo, |l| l.pushed.as_ref() == Some(&sha)).await
            }
            ForgeEvent::Pushed { repo, branch, .. } => self.inspect_where(&repo, |l| l.base_branch == branch).await,
            ForgeEvent::RepositoryChanged { action, .. } => {
                self.wake.reconcile.notify_one();
                done(format!("the repository was {action}"))
            }
            ForgeEvent::InstallationChanged { action } => done(action),
        }
    }

    /// Returns the name of the label that starts a loop.
    pub(super) fn run_label(&self, repo: &RepoRef) -> String {
        format!("{}run", self.settings.policy(&repo.forge).label_prefix)
    }

    /// Asks the forge for the actor's current permission and returns the decision.
    pub(super) async fn permitted_now(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        actor: &User,
    ) -> Result<Authorization, ForgeError> {
        let policy = self.settings.policy(&repo.forge);
        let level = level(account.forge.permission(repo, actor).await?);
        let mut facts = PermitFacts {
            floor: floor(&policy),
            allowed: &policy.allow,
            in_allowed_team: false,
            allowed_bots: &policy.allow_bots,
            own: account.user_id,
        };
        let verdict = permit::may(actor, level, &facts);
        if !matches!(verdict, Authorization::Deny { answer: DenyAnswer::ThumbsDown, .. }) {
            return Ok(verdict);
        }
        if let Some(teams) = account.forge.teams() {
            for team in &policy.teams {
                facts.in_allowed_team |= teams.is_team_member(repo, team, actor).await?;
            }
        }
        Ok(permit::may(actor, level, &facts))
    }

    async fn permitted(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        actor: &User,
    ) -> Result<Authorization, IntakeError> {
        Ok(self.permitted_now(account, repo, actor).await?)
    }

    /// Enqueues an effect on an issue without a loop.
    pub(super) async fn enqueue_effect(&self, place: &IssueRef, effect: Effect) -> Result<(), IntakeError> {
        let (place, now) = (place.clone(), self.clock.now());
        self.store.write(move |c| outbox::enqueue(c, &place.key(), None, &place, &effect, now)).await?;
        self.wake.effects_queued();
        Ok(())
    }

    async fn issue_closed(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        number: Number,
        origin: &Origin,
    ) -> IntakeResult {
        let Some(current) = self.open_loop(repo, number).await? else {
            return ignored("no loop is open there");
        };
        if current.place.issue != number {
            // Closing an escalation issue by hand does not end the loop.
            return ignored("it is not the loop's issue");
        }
        let merged = match &current.pull {
            Some(pull) => account.forge.pull(repo, pull.number).await?.merged,
            None => false,
        };
        let input = if merged { LoopInput::PullMerged } else { LoopInput::IssueEnded { how: "closed".into() } };
        self.enqueue_input(&current.id, input, origin, 0).await
    }

    async fn open_loop(
        &self,
        repo: &RepoRef,
        number: Number,
    ) -> Result<Option<crate::domain::loops::Loop>, IntakeError> {
        let repo = repo.clone();
        let found = self
            .store
            .read(move |c| match loops::find(c, &repo, number)? {
                Some((id, _, true)) => loops::get(c, &id),
                _ => Ok(None),
            })
            .await?;
        Ok(found)
    }

    async fn enqueue_for_open_loop(
        &self,
        repo: &RepoRef,
        number: Number,
        role: IssueRole,
        input: LoopInput,
        origin: &Origin,
    ) -> IntakeResult {
        let at = repo.clone();
        match self.store.read(move |c| loops::find(c, &at, number)).await? {
            Some((id, found, true)) if found == role => self.enqueue_input(&id, input, origin, 0).await,
            _ => ignored("no loop is open there"),
        }
    }

    /// Enqueues an input for a loop; an input with a known origin is ignored.
    async fn enqueue_input(&self, id: &LoopId, input: LoopInput, origin: &Origin, part: usize) -> IntakeResult {
        let origin = origin.part(part);
        let (to, now) = (id.clone(), self.clock.now());
        self.store.write(move |c| loops::enqueue_input(c, &to, &origin, &input, now)).await?;
        self.wake.step.notify_one();
        done(format!("told {id}"))
    }
}

/// Returns the SHA-256 of title and body in hexadecimal, as used by `--confirm`.
pub(super) fn text_hash(title: &str, body: &str) -> String {
    let digest = Sha256::digest(format!("{title}\0{body}"));
    data_encoding::HEXLOWER.encode(&digest)
}

fn floor(policy: &Policy) -> AccessLevel {
    match policy.floor {
        Floor::Write => AccessLevel::Write,
        Floor::Maintain => AccessLevel::Maintain,
        Floor::Admin => AccessLevel::Admin,
    }
}

pub(super) fn level(permission: Permission) -> AccessLevel {
    match permission {
        Permission::None => AccessLevel::None,
        Permission::Read => AccessLevel::Read,
        Permission::Triage => AccessLevel::Triage,
        Permission::Write => AccessLevel::Write,
        Permission::Maintain => AccessLevel::Maintain,
        Permission::Admin => AccessLevel::Admin,
    }
}
