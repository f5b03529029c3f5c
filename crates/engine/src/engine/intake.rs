//! Turns deliveries into inputs of loops, after confirming their content and the sender's permission with the forge.
//!
//! A delivery is only a hint: its signature proves that the sender knows the secret, not that the content is true. A
//! delivery that the forge does not confirm has no effect and is reported to the operator. If the forge cannot be
//! asked, the delivery is retried later.

mod approved_text;
mod comments;
mod confirm;
mod dashboard;
mod delivery_queues;
mod existing_pulls;
mod labels;
mod page;
mod plan_comments;
pub(super) mod pulls;
mod templates;

use sha2::{Digest, Sha256};

pub use self::dashboard::{CommandPath, DashboardAnswer, DashboardAuthor, DashboardCommandError, DashboardOutcome};
use self::pulls::Reviewed;
use super::executor::EffectError;
use super::{Engine, ForgeAccount};
use crate::domain::lifecycle::effect::{Effect, ForgeEffect};
use crate::domain::loops::{ForgeInput, Loop, LoopInput};
use crate::domain::model::event::{CommentSnapshot, ForgeEvent, is_same_label};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{LoopId, Number, RepoRef, Timestamp, User, UserId};
use crate::domain::supervision::oversight::AuditEntry;
use crate::domain::trust::permit::{self, AccessLevel, Authorization, DenyAnswer, PermitFacts};
use crate::domain::trust::policy::{MinimumAccess, Policy};
use crate::forge::{ForgeError, ForgeErrorKind, ParsedDelivery, Permission, Webhooks};
use crate::store::inbox::{self, DeliveryAbout, DeliveryOutcome, WaitingDelivery};
use crate::store::loops::{self, IssueRole};
use crate::store::{StoreError, audit, forge_state, outbox};

/// Time before a label was set, in milliseconds, in which an edit by a user without write access makes a confirmation
/// of the text necessary. The person who set the label may have read the text before the edit.
pub(super) const QUIET_BEFORE_LABEL_MS: i64 = 120_000;
/// Maximum number of attempts per delivery.
const MAX_TRIES: u32 = 20;
/// Waits for the forge to show what a delivery reports, in milliseconds. A server can send a delivery before all of
/// its replicas have the change. After the last wait the delivery is refused.
const NOT_SHOWN_WAITS_MS: [i64; 2] = [1_000, 4_000];

/// Unique key of the cause of an input. An input whose origin was processed before is ignored.
pub(super) struct Origin {
    key: String,
    received_at: Timestamp,
    /// Whether only a delivery reports the event, so that the forge has to confirm it.
    reported: bool,
    /// Whether polling found the event, which is some time after it happened.
    polled: bool,
    /// Entry that is added to the loop's audit log with the input.
    entry: Option<AuditEntry>,
}

impl Origin {
    fn delivery(waiting: &WaitingDelivery) -> Self {
        let key = format!("delivery/{}", waiting.id);
        Self {
            key,
            received_at: waiting.received_at,
            reported: true,
            polled: waiting.delivery.is_polled(),
            entry: None,
        }
    }

    /// Returns the origin of the forge's current state of a loop. It is the same for deliveries and for the
    /// reconciler.
    pub(super) fn state(current: &Loop, what: &str) -> String {
        format!("reconcile/{}/{what}/{}", current.id, current.updated_at.0)
    }

    /// Returns the origin of an event that the service read from the forge.
    fn found(at: Timestamp) -> Self {
        Self { key: String::new(), received_at: at, reported: false, polled: false, entry: None }
    }

    /// Returns the origin of a comment that was read from the forge.
    pub(super) fn found_comment(repo: &RepoRef, comment: &CommentSnapshot, at: Timestamp) -> Self {
        Self::found(at).comment(repo, comment)
    }

    /// Returns the origin of a comment. It does not depend on the delivery or reconciliation that reported the
    /// comment.
    fn comment(&self, repo: &RepoRef, comment: &CommentSnapshot) -> Self {
        self.with_key(format!("comment/{}/{}/{}", repo.forge, repo.id, comment.id))
    }

    /// Returns the origin of a review comment. It is the same whether the comment is delivered alone or with its
    /// review.
    fn remark(&self, repo: &RepoRef, comment: &CommentSnapshot) -> Self {
        self.with_key(format!("remark/{}/{}/{}", repo.forge, repo.id, comment.id))
    }

    /// Returns the origin of a review comment that was read from the forge. It equals the origin of the comment's
    /// delivery.
    fn found_remark(repo: &RepoRef, comment: &CommentSnapshot, at: Timestamp) -> Self {
        Self::found(at).remark(repo, comment)
    }

    /// Returns the origin of a change of the run label, by the forge's id of the change. It is the same for each
    /// delivery that reports the change.
    fn label_change(&self, repo: &RepoRef, issue: Number, id: i64) -> Self {
        self.with_key(format!("label/{}/{}/{issue}/event/{id}", repo.forge, repo.id))
    }

    /// Returns the origin of a label found by the reconciler, by the forge's id of the change. It equals the origin of
    /// the change's delivery.
    pub(super) fn missed_label(repo: &RepoRef, issue: Number, id: i64, at: Timestamp) -> Self {
        Self::found(at).label_change(repo, issue, id)
    }

    /// Returns the origin of a review found by the reconciler.
    fn missed_review(repo: &RepoRef, id: i64, at: Timestamp) -> Self {
        Self::found(at).with_key(format!("review/{}/{}/{id}", repo.forge, repo.id))
    }

    /// Returns the origin of the content of a delivered review. It is the same for each delivery that reports the
    /// review.
    fn review(&self, repo: &RepoRef, id: i64) -> Self {
        self.with_key(format!("review-delivery/{}/{}/{id}", repo.forge, repo.id))
    }

    fn with_key(&self, key: String) -> Self {
        Self { key, received_at: self.received_at, reported: self.reported, polled: self.polled, entry: None }
    }

    fn part(&self, part: usize) -> String {
        format!("{}/{part}", self.key)
    }
}

/// Result of a delivery.
pub(super) enum IntakeOutcome {
    Done(String),
    Ignored(String),
    /// The same event was processed before, from another delivery.
    Repeated,
    /// The reported state of a label is outdated. Reported to the operator in the same way as a contradicted delivery.
    Stale(String),
}

/// Reason a delivery could not be processed.
#[derive(Debug)]
pub(super) enum IntakeError {
    /// Retry after `after_ms` milliseconds, or after the default backoff if `None`.
    Retry { after_ms: Option<i64>, why: String },
    /// The forge does not show what the delivery reports yet; it may do so soon.
    NotShown(String),
    /// The forge contradicts the delivery.
    Contradicted(String),
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

impl From<IntakeError> for EffectError {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::Store(error) => error.into(),
            IntakeError::Retry { after_ms, why } => Self::Retry { after_ms, ambiguous: false, why },
            IntakeError::NotShown(why) | IntakeError::Contradicted(why) => {
                Self::Retry { after_ms: None, ambiguous: false, why }
            }
        }
    }
}

/// Event that a delivery reports.
struct Report<'a> {
    account: &'a ForgeAccount,
    webhooks: &'a dyn Webhooks,
    event: ForgeEvent,
    /// GitHub App installation that the delivery names; `None` if it names none.
    installation: Option<u64>,
}

pub(super) type IntakeResult = Result<IntakeOutcome, IntakeError>;

fn ignored(why: impl Into<String>) -> IntakeResult {
    Ok(IntakeOutcome::Ignored(why.into()))
}

fn done(what: impl Into<String>) -> IntakeResult {
    Ok(IntakeOutcome::Done(what.into()))
}

impl Engine {
    /// Parses a delivery. The error is the outcome of a delivery without an event, and the reason.
    fn parse_delivery(&self, waiting: &WaitingDelivery) -> Result<Report<'_>, (DeliveryOutcome, String)> {
        let ignored = |why: &str| (DeliveryOutcome::Ignored, why.to_owned());
        let refused = |why: String| (DeliveryOutcome::Refused, format!("not understood: {why}"));
        let Some(account) = self.forges.get(&waiting.delivery.forge) else {
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
    fn tell_refused(&self, waiting: &WaitingDelivery, why: &str) {
        let (forge, delivery, event) = (&waiting.delivery.forge, &waiting.delivery.delivery, &waiting.delivery.event);
        tracing::warn!(%forge, delivery, event, why, "delivery not obeyed: the forge does not confirm it");
        self.metrics.delivery(forge.as_str(), "unconfirmed");
    }

    /// Processes a delivery; returns `false` if it was postponed.
    async fn handle(&self, waiting: &WaitingDelivery, report: Report<'_>) -> Result<bool, StoreError> {
        let about = DeliveryAbout::of(&report.event);
        // Boxed, because the futures of all events are one large one.
        let outcome = Box::pin(self.event(report, &Origin::delivery(waiting))).await;
        let (outcome, why) = match outcome {
            Ok(IntakeOutcome::Done(what)) => (DeliveryOutcome::Done, what),
            Ok(IntakeOutcome::Ignored(why)) => (DeliveryOutcome::Ignored, why),
            Ok(IntakeOutcome::Repeated) => {
                self.metrics.delivery(waiting.delivery.forge.as_str(), "repeated");
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
        let finished = self.store.write(move |c| {
            inbox::finish(c, id, outcome, &why)?;
            inbox::describe(c, id, about.as_ref())
        });
        finished.await?;
        if outcome == DeliveryOutcome::Done {
            self.delivery_span(waiting).await;
            self.wake.loop_stepped();
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
        let after_ms = after_ms.unwrap_or_else(|| self.settings.backoff_ms(waiting.attempts + 1));
        let (id, at) = (waiting.id, self.clock.now().plus_ms(after_ms));
        let postponed = self.store.write(move |c| {
            inbox::postpone(c, id, at, &why)?;
            inbox::describe(c, id, about.as_ref())
        });
        postponed.await?;
        Ok(false)
    }

    async fn event(&self, report: Report<'_>, origin: &Origin) -> IntakeResult {
        let Report { account, webhooks, mut event, installation } = report;
        let Some(reported) = event.repo().cloned() else {
            self.wake.reconcile.notify_one();
            return done("the App's installation changed");
        };
        if !self.settings.watches(&reported) {
            return ignored(format!("{reported} is not watched"));
        }
        if let ForgeEvent::RepositoryChanged { action, .. } = event {
            self.wake.reconcile.notify_one();
            return done(format!("the repository was {action}"));
        }
        let repo = self.confirmed_repository(account, webhooks, &reported, installation).await?;
        if !self.settings.watches(&repo) {
            return ignored(format!("{repo} is not watched"));
        }
        event.set_repo(repo);
        let own_id = account.own()?;
        let starts_trial = self.settings.is_trial && matches!(event, ForgeEvent::Labeled { .. });
        let own = event.sender().is_some_and(|sender| sender.id == own_id) && !starts_trial;
        match event {
            ForgeEvent::LabelSet { repo, issue, sender } => self.label_set(account, repo, issue, sender, origin).await,
            // A merge that the bot asked for is the forge's doing.
            ForgeEvent::PullChanged { repo, pull, .. } if pull.merged => self.pull_changed(account, &repo, &pull).await,
            _ if own => ignored("our own doing"),
            ForgeEvent::Labeled { repo, issue, label, sender } => {
                let Some(label) = self.start_labels(&repo).into_iter().find(|known| is_same_label(&label, known))
                else {
                    return ignored(format!("the label {label} has no effect"));
                };
                self.label_added(account, &repo, (&issue, &label), sender, origin).await
            }
            ForgeEvent::Unlabeled { repo, issue, label, sender } => {
                let Some(label) = self.start_labels(&repo).into_iter().find(|known| is_same_label(&label, known))
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
                if !self.start_labels(&repo).iter().any(|label| issue.has_label(label)) {
                    return ignored("a new issue without the label");
                }
                self.label_set(account, repo, issue, sender, origin).await
            }
            ForgeEvent::IssueEdited { repo, issue, sender } => {
                self.edit_exists(account, &repo, &issue).await?;
                let at = issue.updated_at;
                self.store.write(move |c| forge_state::add_edit(c, &repo, issue.number, at, &sender)).await?;
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

    /// Returns the name of the label that starts a loop.
    pub(super) fn run_label(&self, repo: &RepoRef) -> String {
        let [run, _] = self.start_labels(repo);
        run
    }

    /// Returns the names of the labels that start a loop: without and with a plan first.
    pub(super) fn start_labels(&self, repo: &RepoRef) -> [String; 2] {
        self.settings.policy(&repo.forge).start_labels()
    }

    /// Asks the forge for the actor's current permission and returns the decision.
    pub(super) async fn permitted_now(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        actor: &User,
    ) -> Result<Authorization, ForgeError> {
        let level = level(account.forge.permission(repo, actor).await?);
        self.permitted_at(account, repo, actor, level).await
    }

    /// Returns the decision about an actor with permission `level` in the repository. Team membership is read from the
    /// forge.
    pub(super) async fn permitted_at(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        actor: &User,
        level: AccessLevel,
    ) -> Result<Authorization, ForgeError> {
        let policy = self.settings.policy(&repo.forge);
        let mut facts = PermitFacts {
            floor: floor(&policy),
            allowed: &policy.allow,
            in_allowed_team: false,
            allowed_bots: &policy.allow_bots,
            own: if self.settings.is_trial { UserId(0) } else { account.own()? },
        };
        let verdict = permit::may(actor, level, &facts);
        if !matches!(verdict, Authorization::Deny { answer: DenyAnswer::ThumbsDown, .. }) {
            return Ok(verdict);
        }
        let Some(teams) = account.forge.teams() else { return Ok(verdict) };
        let mut hidden = Vec::new();
        for team in &policy.teams {
            match teams.is_team_member(repo, team, actor).await {
                Err(error) if error.kind == ForgeErrorKind::Denied => hidden.push(team.clone()),
                found => facts.in_allowed_team |= found?,
            }
        }
        let verdict = permit::may(actor, level, &facts);
        if verdict == Authorization::Allow {
            return Ok(verdict);
        }
        if facts.floor <= AccessLevel::Write {
            hidden.extend(teams.hidden_teams(repo).await?);
        }
        Ok(if hidden.is_empty() { verdict } else { permit::cannot_tell(actor, hidden) })
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
    pub(super) async fn enqueue_effect(&self, place: &IssueRef, effect: ForgeEffect) -> Result<(), IntakeError> {
        let (place, effect, now) = (place.clone(), Effect::Forge(effect), self.clock.now());
        self.store.write(move |c| outbox::enqueue(c, &place.key(), None, &place, &effect, now)).await?;
        self.wake.effects_queued();
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

    /// Enqueues the forge's current state of an issue or pull request as an input of its open loop.
    async fn tell_state(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        (number, role): (Number, IssueRole),
        what: &str,
        input: LoopInput,
    ) -> IntakeResult {
        let at = repo.clone();
        let open = self.store.read(move |c| match loops::find(c, &at, number)? {
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
    async fn enqueue_input(&self, id: &LoopId, input: LoopInput, origin: &Origin, part: usize) -> IntakeResult {
        self.enqueue(id, input, origin.part(part), origin.entry.clone()).await
    }

    async fn enqueue(&self, id: &LoopId, input: LoopInput, key: String, entry: Option<AuditEntry>) -> IntakeResult {
        let (to, now) = (id.clone(), self.clock.now());
        let new = self.store.write(move |c| {
            let new = loops::enqueue_input(c, &to, &key, &input, now)?;
            if let Some(entry) = entry.filter(|_| new) {
                audit::append(c, &to, &[entry], now)?;
            }
            Ok(new)
        });
        if !new.await? {
            return Ok(IntakeOutcome::Repeated);
        }
        self.wake.step.notify_one();
        done(format!("told {id}"))
    }
}

/// Returns the SHA-256 hash of title and body in hexadecimal, as passed to `--confirm`.
pub(super) fn text_hash(title: &str, body: &str) -> String {
    let digest = Sha256::digest(format!("{title}\0{body}"));
    data_encoding::HEXLOWER.encode(&digest)
}

fn floor(policy: &Policy) -> AccessLevel {
    match policy.floor {
        MinimumAccess::Write => AccessLevel::Write,
        MinimumAccess::Maintain => AccessLevel::Maintain,
        MinimumAccess::Admin => AccessLevel::Admin,
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
