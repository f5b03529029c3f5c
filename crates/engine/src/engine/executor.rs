//! Claims effects, executes them and records their outcomes. Decisions are made elsewhere: the effect states what to
//! do, and the loop's next step handles the outcome.
//!
//! Protocol: the row of an effect is stored before its execution. If `attempts` is above 0, the effect may have
//! happened already, so the object is first looked up on the forge by its natural key. The receipt and the loop's
//! input with the outcome are committed in one transaction, which fails if another process has taken over the lease.

use std::time::Duration;

use failpoint::kill_point;
use tracing::Instrument as _;

use super::Engine;
use super::claim::HeldClaim;
use super::concurrency_limits::ConcurrencyLimits;
use crate::domain::lifecycle::StepDecision;
use crate::domain::lifecycle::effect::{Effect, EffectQueue, ForgeEffect, SEEN_QUEUE, TimerEffect};
use crate::domain::loops::{ForgeChange, ForgeInput, LoopInput, WorkOutcome};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::domain::report::notice::level_name;
use crate::domain::trust::limits::Limits;
use crate::forge::{ForgeError, ForgeErrorKind};
use crate::store::loops::{IssueRole, Slots};
use crate::store::outbox::{self, ClaimedEffect, EffectOutcome};
use crate::store::sql::Connection;
use crate::store::{StoreError, StoreResult, WriteGroup, forge_posts, loops};

/// Result of a completed effect.
#[derive(Debug, Default)]
pub(super) struct Receipt {
    /// Result as text, for people and the audit log.
    pub text: String,
    /// Input for the loop.
    pub input: Option<LoopInput>,
    /// Object that now exists on the forge, by key and text digest.
    pub posted: Option<(String, forge_posts::ForgePost)>,
    /// Changes of the forge that are part of the effect and succeeded.
    pub made: Vec<ForgeChange>,
    /// Changes of the forge that are part of the effect and were refused permanently, each with the forge's response.
    pub refused: Vec<(ForgeChange, String)>,
    /// Issue or pull request that now belongs to the loop.
    pub number: Option<(crate::domain::model::ids::Number, IssueRole)>,
}

impl Receipt {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Records the outcome of a change that is part of the effect. Returns an error if the change failed without being
    /// refused.
    pub(super) fn part(
        &mut self,
        change: ForgeChange,
        outcome: Result<(), impl Into<EffectError>>,
    ) -> Result<(), EffectError> {
        match outcome.map_err(Into::into) {
            Ok(()) => self.made.push(change),
            Err(EffectError::Permanent { why }) => self.refused.push((change, why)),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    pub(super) fn with_input(text: impl Into<String>, input: impl Into<LoopInput>) -> Self {
        Self { input: Some(input.into()), ..Self::text(text) }
    }

    /// Returns the receipt of work with this ticket.
    pub(super) fn outcome(text: impl Into<String>, ticket: u64, outcome: WorkOutcome) -> Self {
        Self::with_input(text, LoopInput::Outcome { ticket, outcome })
    }
}

/// Reason an effect did not complete.
#[derive(Debug)]
pub(super) enum EffectError {
    /// Transient failure: retry after `after_ms` milliseconds, or after the default backoff if `None`. `ambiguous`
    /// means that the effect may have happened.
    Retry { after_ms: Option<i64>, ambiguous: bool, why: String },
    /// Permanent failure.
    Permanent { why: String },
    /// The effect was cancelled.
    Stopped { why: String },
}

impl EffectError {
    /// Returns the error of an effect that another lane executes.
    pub(super) fn wrong_lane(claimed: &ClaimedEffect) -> Self {
        Self::Permanent { why: format!("{} is in the queue {}, which does not execute it", claimed.key, claimed.queue) }
    }
}

impl From<ForgeError> for EffectError {
    fn from(error: ForgeError) -> Self {
        let why = error.to_string();
        match error.kind {
            ForgeErrorKind::Transient { after_ms, ambiguous } => Self::Retry { after_ms, ambiguous, why },
            ForgeErrorKind::RateLimited { after_ms } => Self::Retry { after_ms: Some(after_ms), ambiguous: false, why },
            // The operator may replace a credential without a restart.
            ForgeErrorKind::Unauthorized => Self::Retry { after_ms: Some(60_000), ambiguous: false, why },
            _ => Self::Permanent { why },
        }
    }
}

impl From<StoreError> for EffectError {
    fn from(error: StoreError) -> Self {
        Self::Retry { after_ms: None, ambiguous: false, why: error.to_string() }
    }
}

/// Returns the context of the log lines of an effect.
pub(super) fn effect_context(claimed: &ClaimedEffect) -> tracing::Span {
    match &claimed.loop_id {
        Some(id) => tracing::info_span!("effect", loop_id = %id, key = claimed.key),
        None => tracing::info_span!("effect", subject = claimed.subject, key = claimed.key),
    }
}

/// Enqueues an input that names the changes that the forge refused, and those that succeeded after an earlier refusal.
fn tell_changes(
    c: &Connection,
    id: &LoopId,
    origin: &str,
    mut made: Vec<ForgeChange>,
    refused: Vec<(ForgeChange, String)>,
    now: Timestamp,
) -> StoreResult<()> {
    if made.is_empty() && refused.is_empty() {
        return Ok(());
    }
    let known = loops::get(c, id)?.map(|current| current.pull.refused).unwrap_or_default();
    made.retain(|change| known.iter().any(|one| one.change == *change) && refused.iter().all(|(one, _)| one != change));
    let made = made.into_iter().map(|change| (change, LoopInput::Forge(ForgeInput::ChangeMade { change })));
    let refused = refused
        .into_iter()
        .map(|(change, detail)| (change, LoopInput::Forge(ForgeInput::ChangeRefused { change, detail })));
    for (change, input) in made.chain(refused) {
        loops::enqueue_input(c, id, &format!("{origin}/{}", change.name()), &input, now)?;
    }
    Ok(())
}

/// Turns the loss of a lease into success: another process has taken over and executes the effect.
fn unless_fenced(recorded: StoreResult<()>) -> StoreResult<()> {
    match recorded {
        Err(StoreError::Fenced { name }) => {
            tracing::warn!(name, "discarded the outcome of an expired lease; another process has taken over");
            Ok(())
        }
        other => other,
    }
}

impl Engine {
    /// Claims the next due work effect.
    pub(super) async fn claim_work(&self) -> Result<Option<HeldClaim>, StoreError> {
        self.claim(EffectQueue::Work.as_str().to_owned(), |_| true).await
    }

    /// Claims the oldest due effect of a queue whose issue satisfies `may`.
    pub(super) async fn claim(
        &self,
        queue: String,
        may: impl Fn(&IssueRef) -> bool + Send + 'static,
    ) -> Result<Option<HeldClaim>, StoreError> {
        self.follow_clock_changes().await?;
        let claimed = self.store.write(self.claiming(queue, may)).await?;
        Ok(claimed.map(|claimed| self.held(claimed)))
    }

    /// Takes responsibility for an effect that was claimed.
    fn held(&self, claimed: ClaimedEffect) -> HeldClaim {
        let claim = self.held.hold(claimed);
        kill_point("K07");
        claim
    }

    /// Returns the write that claims the oldest due effect of a queue whose issue satisfies `may`. Effects on which this process
    /// works are left out: on a full disk their leases expire unrenewed.
    fn claiming<F: Fn(&IssueRef) -> bool + Send + 'static>(
        &self,
        queue: String,
        may: F,
    ) -> impl FnOnce(&Connection) -> StoreResult<Option<ClaimedEffect>> + Send + 'static + use<F> {
        let (owner, held, now) = (self.owner.name(), self.held.clone(), self.clock.now());
        let lease = i64::try_from(self.settings.lease.as_millis()).unwrap_or(i64::MAX);
        let may = move |name: &str, place: &IssueRef| !held.contains(name) && may(place);
        move |c| outbox::claim(c, &queue, may, &owner, now, lease)
    }

    /// Executes one effect on a forge, acknowledgements first; returns `true` if there was one.
    pub async fn forge_effect_step(&self) -> Result<bool, StoreError> {
        Ok(self.acknowledgement_step().await? || self.ordinary_effect_step().await?)
    }

    /// Executes one acknowledgement of a comment; returns `true` if there was one.
    pub(super) async fn acknowledgement_step(&self) -> Result<bool, StoreError> {
        self.forge_effect_of(SEEN_QUEUE, &self.call_limits.seen).await
    }

    /// Executes one other effect on a forge; returns `true` if there was one.
    pub(super) async fn ordinary_effect_step(&self) -> Result<bool, StoreError> {
        self.forge_effect_of(EffectQueue::Forge.as_str(), &self.call_limits.forge).await
    }

    async fn forge_effect_of(&self, queue: &'static str, call_limits: &ConcurrencyLimits) -> Result<bool, StoreError> {
        let selection = call_limits.lock_selection().await;
        let saturated = call_limits.saturated();
        let claimed = self.claim(queue.to_owned(), move |place| saturated.admits(&place.repo)).await?;
        let Some(claimed) = claimed else { return Ok(false) };
        let _under_way = call_limits.acquire(&claimed.place.repo);
        drop(selection);
        let context = effect_context(&claimed);
        if claimed.abandoned {
            // Its previous owner has ended, but the call may still be in progress and lists of the forge lag.
            let why = "the outcome of an earlier attempt is unknown; looked up after a wait".to_owned();
            let outcome = Err(EffectError::Retry { after_ms: Some(0), ambiguous: true, why });
            self.record(claimed, outcome).instrument(context).await?;
            return Ok(true);
        }
        let outcome = self.forge_effect(&claimed).instrument(context.clone()).await;
        self.record(claimed, outcome).instrument(context).await?;
        Ok(true)
    }

    /// Records the outcome of an effect and enqueues its input for the loop. While the disk is full, the outcome is kept.
    pub(super) async fn record(
        &self,
        claimed: HeldClaim,
        outcome: Result<Receipt, EffectError>,
    ) -> Result<(), StoreError> {
        self.follow_clock_before_outcome().await;
        let recorded = self.store.write_kept(self.recording(claimed, outcome)).await;
        self.wake.loop_stepped();
        unless_fenced(recorded)
    }

    /// Records the outcome of a work effect, steps its loop and claims the next work effect, all in one commit. Each of the three is
    /// rolled back by itself if it fails; what is then left waits for the tasks of the service. While the disk is full, the outcome is
    /// kept.
    pub(super) async fn record_and_claim(
        &self,
        claimed: HeldClaim,
        outcome: Result<Receipt, EffectError>,
    ) -> Result<Option<HeldClaim>, StoreError> {
        self.follow_clock_before_outcome().await;
        let mut group = WriteGroup::default();
        let recorded = group.add_kept(self.recording(claimed, outcome));
        let stepped = group.add(self.stepping());
        let next = group.add(self.claiming(EffectQueue::Work.as_str().to_owned(), |_| true));
        self.store.submit(group)?;
        let recorded = self.store.outcome(recorded).await;
        self.wake.loop_stepped();
        // An input that cannot be processed is met again, and discarded, by the task that steps loops.
        if let Ok(Some(decision)) = self.store.outcome(stepped).await {
            self.stepped(&decision).await;
        }
        if let Err(error) = unless_fenced(recorded) {
            tracing::error!(%error, "an outcome could not be recorded; the work is retried when its lease expires");
        }
        // Where the claim failed, the next look at the queue repeats it.
        let next = self.store.outcome(next).await.unwrap_or_default();
        Ok(next.map(|claimed| self.held(claimed)))
    }

    /// Follows a change of the clock before an outcome is stored. A failure does not lose the outcome: the heartbeat tries again.
    async fn follow_clock_before_outcome(&self) {
        if let Err(error) = self.follow_clock_changes().await {
            tracing::warn!(%error, "leases could not be adjusted to a change of the clock");
        }
    }

    /// Returns the write that records the outcome of an effect and enqueues its input for the loop. It can be repeated.
    fn recording(
        &self,
        claimed: HeldClaim,
        outcome: Result<Receipt, EffectError>,
    ) -> Box<dyn FnMut(&Connection) -> StoreResult<()> + Send> {
        self.effect_span(&claimed, &outcome);
        claimed.end_heartbeats();
        let (owner, now) = (self.owner.name(), self.clock.now());
        let kind = claimed.key.split('/').next().unwrap_or_default().to_owned();
        let origin = format!("effect/{}/{}", claimed.id, claimed.fence);
        match outcome {
            Ok(receipt) => {
                self.metrics.effect(&kind, "done");
                Box::new(move |c| {
                    outbox::finish(c, &claimed, &owner, EffectOutcome::Done, &receipt.text, now)?;
                    if let Some((key, what)) = &receipt.posted {
                        forge_posts::put(c, &claimed.subject, key, what, &claimed.place.key(), now)?;
                    }
                    let Some(id) = &claimed.loop_id else { return Ok(()) };
                    if let Some((number, role)) = receipt.number {
                        loops::add_number(c, &claimed.place.repo, number, id, role)?;
                    }
                    if let Some(input) = &receipt.input {
                        loops::enqueue_input(c, id, &origin, input, now)?;
                    }
                    let made = claimed.effect.change().into_iter().chain(receipt.made.iter().cloned());
                    tell_changes(c, id, &origin, made.collect(), receipt.refused.clone(), now)?;
                    kill_point("K11");
                    Ok(())
                })
            }
            Err(EffectError::Retry { after_ms, ambiguous, why }) => {
                self.metrics.effect(&kind, "retried");
                let tries = claimed.tries + 1;
                tracing::warn!(
                    subject = claimed.subject,
                    key = claimed.key,
                    tries,
                    why,
                    "effect failed; will be retried"
                );
                let waiting = if ambiguous { self.settings.ambiguity_wait } else { Duration::ZERO };
                let least = i64::try_from(waiting.as_millis()).unwrap_or(i64::MAX);
                let wait = after_ms.unwrap_or_else(|| self.settings.backoff_ms(tries)).max(least);
                let at = now.plus_ms(wait);
                Box::new(move |c| {
                    outbox::reschedule(c, &claimed, &owner, at, ambiguous, &why)?;
                    let Some((id, ticket)) = claimed.loop_id.as_ref().zip(claimed.effect.ticket()) else {
                        return Ok(());
                    };
                    loops::enqueue_input(
                        c,
                        id,
                        &origin,
                        &LoopInput::Outcome { ticket, outcome: WorkOutcome::PutOff { until: at } },
                        now,
                    )
                    .map(drop)
                })
            }
            Err(EffectError::Permanent { why }) => {
                self.metrics.effect(&kind, "rejected");
                tracing::warn!(subject = claimed.subject, key = claimed.key, why, "effect failed permanently");
                Box::new(move |c| {
                    outbox::finish(c, &claimed, &owner, EffectOutcome::Rejected, &why, now)?;
                    let Some(id) = &claimed.loop_id else { return Ok(()) };
                    let refused = claimed.effect.change().map(|change| (change, why.clone())).into_iter().collect();
                    tell_changes(c, id, &origin, Vec::new(), refused, now)
                })
            }
            Err(EffectError::Stopped { why }) => {
                Box::new(move |c| outbox::finish(c, &claimed, &owner, EffectOutcome::Cancelled, &why, now))
            }
        }
    }

    /// Steps one loop that has a pending input, or grants free slots; returns `true` if anything changed.
    pub async fn loop_step(&self) -> Result<bool, StoreError> {
        self.follow_clock_changes().await?;
        let decision = match self.store.write(self.stepping()).await {
            Err(StoreError::Bug { detail }) => {
                let origin = self.store.write(loops::discard_next_input).await?;
                tracing::error!(
                    origin,
                    detail,
                    "discarded an input that could not be processed; please report this bug"
                );
                return Ok(true);
            }
            other => other?,
        };
        if let Some(decision) = &decision {
            self.wake.loop_stepped();
            self.stepped(decision).await;
            return Ok(true);
        }
        self.grant_slots().await
    }

    /// Returns the write that steps one loop that has a pending input.
    fn stepping(&self) -> impl FnOnce(&Connection) -> StoreResult<Option<StepDecision>> + Send + 'static + use<> {
        let (audiences, memory, now) = (self.audiences(), self.memory(), self.clock.now());
        move |c| loops::step_next(c, &audiences, &memory, now)
    }

    /// Tells logs, metrics, traces and the timer about a step, and summarizes the loop's iterations where it is time.
    async fn stepped(&self, decision: &StepDecision) {
        let (next, now) = (&decision.next, self.clock.now());
        if next.supervision.state.as_ref().is_some_and(|known| known.overseer.is_held()) {
            kill_point("held");
        }
        tracing::info!(loop_id = %next.id, state = next.state.as_str(), why = decision.reasons.join("; "), "step");
        let judged = decision.judged.and_then(|number| next.iterations.iter().rev().find(|i| i.number == number));
        judged.into_iter().for_each(|iteration| self.metrics.iteration(iteration));
        for effect in &decision.effects {
            if let Effect::Forge(ForgeEffect::Escalate { cause, level, reminder: false, .. }) = effect {
                self.metrics.escalation(&cause.to_string(), level_name(*level));
            }
        }
        if decision.ended {
            self.metrics.effects_of_interventions(&next.oversight_report());
            self.loop_span(next, now);
        }
        self.summarize(next).await;
        if decision.effects.iter().any(|effect| matches!(effect, Effect::Timer(TimerEffect::Set { .. }))) {
            self.wake.timer.notify_one();
        }
    }

    async fn grant_slots(&self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        // Limits across forges are the operator's: the lowest of the configured policies applies.
        let lowest = |of: fn(&Limits) -> u32| self.settings.policies.values().map(|p| of(&p.limits)).min().unwrap_or(1);
        let slots = Slots {
            all: lowest(|limits| limits.loops),
            per_forge: lowest(|limits| limits.loops_per_forge.unwrap_or(limits.loops)),
            per_repository: lowest(|limits| limits.loops_per_repository),
        };
        let granted: Vec<LoopId> = self.store.write(move |c| loops::grant_slots(c, slots, now)).await?;
        Ok(!granted.is_empty())
    }
}
