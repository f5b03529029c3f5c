//! Steps loops, and records the outcomes of effects. Decisions are made elsewhere: the effect states what to do, and the
//! loop's next step handles the outcome.
//!
//! Protocol: the row of an effect is stored before its execution. If `attempts` is above 0, the effect may have
//! happened already, so the object is first looked up on the forge by its natural key. The receipt and the loop's
//! input with the outcome are committed in one transaction, which fails if another process has taken over the lease.

use std::sync::Arc;
use std::time::Duration;

use failpoint::kill_point;

use crate::clock::Stopwatch;
use crate::domain::lifecycle::StepDecision;
use crate::domain::lifecycle::effect::{Effect, EffectQueue, ForgeEffect, TimerEffect};
use crate::domain::loops::{ForgeChange, ForgeInput, LoopInput, WorkOutcome};
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::domain::report::notice::{Audience, level_name};
use crate::engine::claim::HeldClaim;
use crate::engine::context::ServiceContext;
use crate::engine::leases::Leases;
use crate::engine::memory::summarize;
use crate::engine::receipt::{EffectError, Receipt};
use crate::engine::spans::{effect_span, loop_span};
use crate::store::loops::{self, Slots};
use crate::store::memory::StepMemory;
use crate::store::outbox::{self, EffectOutcome};
use crate::store::sql::Connection;
use crate::store::{StoreError, StoreResult, WriteGroup, forge_posts, loop_files};

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

/// Steps loops and records the outcomes of effects.
pub struct Executor {
    pub(super) context: ServiceContext,
    pub(super) leases: Arc<Leases>,
    /// Channels that notices are addressed to.
    pub(super) audiences: Vec<Audience>,
    /// Settings of memory, and the masker of stored texts.
    pub memory: StepMemory,
    /// Maximum numbers of concurrent loops.
    pub(super) slots: Slots,
}

impl Executor {
    /// Records the outcome of an effect and enqueues its input for the loop. While the disk is full, the outcome is kept.
    pub(super) async fn record(
        &self,
        claimed: HeldClaim,
        outcome: Result<Receipt, EffectError>,
    ) -> Result<(), StoreError> {
        self.leases.follow_clock_before_outcome().await;
        let recorded = self.context.store.write_kept(self.recording(claimed, outcome)).await;
        self.context.wake.loop_stepped();
        unless_fenced(recorded)
    }

    /// Records the outcome of a work effect, steps its loop and claims the next work effect, all in one commit. Each of the three is
    /// rolled back separately if it fails; the remaining work waits for the tasks of the service. While the disk is full, the outcome is
    /// kept.
    pub(super) async fn record_and_claim(
        &self,
        claimed: HeldClaim,
        outcome: Result<Receipt, EffectError>,
    ) -> Result<Option<HeldClaim>, StoreError> {
        self.leases.follow_clock_before_outcome().await;
        let mut group = WriteGroup::default();
        let recorded = group.add_kept(self.recording(claimed, outcome));
        let stepped = group.add(self.stepping());
        let next = group.add(self.leases.claiming(EffectQueue::Work.as_str().to_owned(), |_| true));
        let age = Stopwatch::start();
        self.context.store.submit(group)?;
        let recorded = self.context.store.outcome(recorded).await;
        self.context.wake.loop_stepped();
        // An input that cannot be processed is met again, and discarded, by the task that steps loops.
        if let Ok(Some(decision)) = self.context.store.outcome(stepped).await {
            self.stepped(&decision).await;
        }
        if let Err(error) = unless_fenced(recorded) {
            tracing::warn!(%error, "could not record an outcome; the service retries the work when its lease expires");
        }
        // Where the claim failed, the next look at the queue repeats it.
        let next = self.context.store.outcome(next).await.unwrap_or_default();
        Ok(next.map(|claimed| self.leases.held(claimed, age)))
    }

    /// Returns the write that records the outcome of an effect and enqueues its input for the loop. It can be repeated.
    fn recording(
        &self,
        claimed: HeldClaim,
        outcome: Result<Receipt, EffectError>,
    ) -> Box<dyn FnMut(&Connection) -> StoreResult<()> + Send> {
        effect_span(&self.context, &claimed, &outcome);
        claimed.end_heartbeats();
        let (owner, now) = (self.leases.owner.name(), self.context.clock.now());
        let kind = claimed.key.split('/').next().unwrap_or_default().to_owned();
        let origin = format!("effect/{}/{}", claimed.id, claimed.fence);
        match outcome {
            Ok(receipt) => {
                self.context.metrics.effect(&kind, "done");
                Box::new(move |c| {
                    if let Some((id, saved)) = claimed.loop_id.as_ref().zip(receipt.saved.as_ref()) {
                        loop_files::save_commits(c, id, saved, &claimed.token(&owner))?;
                    }
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
                self.context.metrics.effect(&kind, "retried");
                let tries = claimed.tries + 1;
                tracing::warn!(
                    subject = claimed.subject,
                    key = claimed.key,
                    tries,
                    why,
                    "effect failed; the service retries it"
                );
                let waiting = if ambiguous { self.leases.pace.ambiguity_wait } else { Duration::ZERO };
                let least = i64::try_from(waiting.as_millis()).unwrap_or(i64::MAX);
                let wait = after_ms.unwrap_or_else(|| self.leases.pace.backoff_ms(tries)).max(least);
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
                self.context.metrics.effect(&kind, "rejected");
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
        self.leases.follow_clock_changes().await?;
        let decision = match self.context.store.write(self.stepping()).await {
            Err(StoreError::Bug { detail }) => {
                let origin = self.context.store.write(loops::discard_next_input).await?;
                tracing::error!(
                    origin,
                    detail = format!("{detail:#}"),
                    "could not process an input and discarded it; please report this bug"
                );
                return Ok(true);
            }
            other => other?,
        };
        if let Some(decision) = &decision {
            self.context.wake.loop_stepped();
            self.stepped(decision).await;
            return Ok(true);
        }
        self.grant_slots().await
    }

    /// Returns the write that steps one loop that has a pending input.
    fn stepping(&self) -> impl FnOnce(&Connection) -> StoreResult<Option<StepDecision>> + Send + 'static + use<> {
        let audiences = self.audiences.clone();
        let memory = self.memory.clone();
        let now = self.context.clock.now();
        move |c| loops::step_next(c, &audiences, &memory, now)
    }

    /// Reports a step to logs, metrics, traces and the timer, and summarizes the loop's iterations when due.
    async fn stepped(&self, decision: &StepDecision) {
        let (next, now) = (&decision.next, self.context.clock.now());
        if next.supervision.state.as_ref().is_some_and(|known| known.overseer.is_held()) {
            kill_point("held");
        }
        tracing::info!(loop_id = %next.id, state = next.state.as_str(), why = decision.reasons.join("; "), "step");
        let judged = decision.judged.and_then(|number| next.iterations.iter().rev().find(|i| i.number == number));
        judged.into_iter().for_each(|iteration| self.context.metrics.iteration(iteration));
        for effect in &decision.effects {
            if let Effect::Forge(ForgeEffect::Escalate { cause, level, reminder: false, .. }) = effect {
                self.context.metrics.escalation(&cause.to_string(), level_name(*level));
            }
        }
        if decision.ended {
            self.context.metrics.effects_of_interventions(&next.oversight_report());
            loop_span(&self.context, next, now);
        }
        summarize(&self.context, &self.memory.settings, next).await;
        if decision.effects.iter().any(|effect| matches!(effect, Effect::Timer(TimerEffect::Set { .. }))) {
            self.context.wake.timer.notify_one();
        }
    }

    async fn grant_slots(&self) -> Result<bool, StoreError> {
        let now = self.context.clock.now();
        // Limits across forges are the operator's: the lowest of the configured policies applies.
        let slots = self.slots;
        let granted: Vec<LoopId> = self.context.store.write(move |c| loops::grant_slots(c, slots, now)).await?;
        Ok(!granted.is_empty())
    }
}
