//! Takes effects on, has them done, and records what came of it. It makes no choices of its own: what to do is in the
//! effect, and what follows from the outcome is decided by the loop's next step.
//!
//! Protocol: the row is the intent; `attempts` above 0 says that it may have happened already, so it is looked up by its
//! natural key first; the receipt and the outcome's input are committed together, under the fence of our lease.

use std::time::Duration;

use failpoint::kill_point;

use super::Engine;
use super::hands::Hands;
use crate::domain::lifecycle::effect::{Effect, Lane, SEEN_QUEUE};
use crate::domain::loops::LoopInput;
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::LoopId;
use crate::domain::trust::policy::PolicyLimits;
use crate::forge::{ForgeError, ForgeErrorKind};
use crate::store::loops::{IssueRole, Slots};
use crate::store::outbox::{self, ClaimedEffect, EffectOutcome};
use crate::store::{StoreError, forge_posts, loops};

/// What came of an effect.
#[derive(Debug, Default)]
pub(super) struct Receipt {
    /// For people and the audit.
    pub text: String,
    /// What the loop is told.
    pub input: Option<LoopInput>,
    /// What now exists on the forge, by key and text digest.
    pub posted: Option<(String, forge_posts::ForgePost)>,
    /// An issue or pull request that now belongs to the loop.
    pub number: Option<(crate::domain::model::ids::Number, IssueRole)>,
}

impl Receipt {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(super) fn telling(text: impl Into<String>, input: LoopInput) -> Self {
        Self { input: Some(input), ..Self::text(text) }
    }
}

/// Why an effect is not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// Try again, not before so many milliseconds from now where known; `began` says whether it may have happened.
    Later { after_ms: Option<i64>, began: bool, why: String },
    /// It will never be done.
    Never { why: String },
    /// It was stopped before its end.
    Stopped { why: String },
}

impl From<ForgeError> for Failure {
    fn from(error: ForgeError) -> Self {
        let why = error.to_string();
        match error.kind {
            ForgeErrorKind::Transient { after_ms, ambiguous } => Self::Later { after_ms, began: ambiguous, why },
            ForgeErrorKind::RateLimited { after_ms } => Self::Later { after_ms: Some(after_ms), began: false, why },
            // A credential may be mended by the operator without a restart.
            ForgeErrorKind::Unauthorized => Self::Later { after_ms: Some(60_000), began: false, why },
            _ => Self::Never { why },
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Later { after_ms: None, began: false, why: error.to_string() }
    }
}

impl Engine {
    /// Takes one piece of work on, where one is due.
    pub(super) async fn claim_work(&self) -> Result<Option<ClaimedEffect>, StoreError> {
        self.claim(Lane::Work.as_str().to_owned(), |_| true).await
    }

    /// Takes on the oldest effect of a queue, of what may be done where it goes.
    pub(super) async fn claim(
        &self,
        queue: String,
        may: impl Fn(&IssueRef) -> bool + Send + 'static,
    ) -> Result<Option<ClaimedEffect>, StoreError> {
        self.mind_the_clock().await?;
        let (owner, now) = (self.owner.name(), self.clock.now());
        let lease = i64::try_from(self.settings.lease.as_millis()).unwrap_or(i64::MAX);
        let claimed = self.store.write(move |c| outbox::claim(c, &queue, may, &owner, now, lease)).await?;
        if claimed.is_some() {
            kill_point("K07");
        }
        Ok(claimed)
    }

    /// Does one effect for the forge, what says that a comment was seen first; `true` where there was one.
    pub async fn talk_step(&self) -> Result<bool, StoreError> {
        Ok(self.seen_step().await? || self.say_step().await?)
    }

    /// Says that a comment was seen; `true` where there was one.
    pub(super) async fn seen_step(&self) -> Result<bool, StoreError> {
        self.talk_of(SEEN_QUEUE, &self.hands.seen).await
    }

    /// Does one other effect for the forge; `true` where there was one.
    pub(super) async fn say_step(&self) -> Result<bool, StoreError> {
        self.talk_of(Lane::Talk.as_str(), &self.hands.talk).await
    }

    async fn talk_of(&self, queue: &'static str, hands: &Hands) -> Result<bool, StoreError> {
        let choosing = hands.choosing().await;
        let full = hands.full();
        let claimed = self.claim(queue.to_owned(), move |place| full.admits(&place.repo)).await?;
        let Some(claimed) = claimed else { return Ok(false) };
        let _under_way = hands.begin(&claimed.place.repo);
        drop(choosing);
        if claimed.abandoned {
            // Whoever began it is gone, but its call may be under way still, and lists lag behind.
            let why = "its outcome is not known; it is looked up after a while".to_owned();
            self.record(claimed, Err(Failure::Later { after_ms: Some(0), began: true, why })).await?;
            return Ok(true);
        }
        let outcome = self.talk(&claimed).await;
        self.record(claimed, outcome).await?;
        Ok(true)
    }

    /// Records what came of an effect, and tells the loop.
    pub(super) async fn record(
        &self,
        claimed: ClaimedEffect,
        outcome: Result<Receipt, Failure>,
    ) -> Result<(), StoreError> {
        self.mind_the_clock().await?;
        let (owner, now) = (self.owner.name(), self.clock.now());
        let kind = claimed.key.split('/').next().unwrap_or_default().to_owned();
        let origin = format!("effect/{}/{}", claimed.id, claimed.fence);
        let recorded = match outcome {
            Ok(receipt) => {
                self.metrics.effect(&kind, "done");
                self.store
                    .write(move |c| {
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
                        kill_point("K11");
                        Ok(())
                    })
                    .await
            }
            Err(Failure::Later { after_ms, began, why }) => {
                self.metrics.effect(&kind, "retried");
                let tries = claimed.tries + 1;
                tracing::warn!(subject = claimed.subject, key = claimed.key, tries, why, "an effect is put off");
                let waiting = if began { self.settings.ambiguity_wait } else { Duration::ZERO };
                let least = i64::try_from(waiting.as_millis()).unwrap_or(i64::MAX);
                let wait = after_ms.unwrap_or_else(|| self.settings.backoff_ms(tries)).max(least);
                let at = now.plus_ms(wait);
                self.store
                    .write(move |c| {
                        outbox::reschedule(c, &claimed, &owner, at, began, &why)?;
                        let Some((id, ticket)) = claimed.loop_id.as_ref().zip(claimed.effect.ticket()) else {
                            return Ok(());
                        };
                        loops::enqueue_input(c, id, &origin, &LoopInput::PutOff { ticket, until: at }, now).map(drop)
                    })
                    .await
            }
            Err(Failure::Never { why }) => {
                self.metrics.effect(&kind, "rejected");
                tracing::warn!(subject = claimed.subject, key = claimed.key, why, "an effect was refused for good");
                self.store.write(move |c| outbox::finish(c, &claimed, &owner, EffectOutcome::Rejected, &why, now)).await
            }
            Err(Failure::Stopped { why }) => {
                self.store
                    .write(move |c| outbox::finish(c, &claimed, &owner, EffectOutcome::Cancelled, &why, now))
                    .await
            }
        };
        self.wake.decided();
        match recorded {
            // Somebody else has taken over and will do what is to be done.
            Err(StoreError::Fenced { name }) => {
                tracing::warn!(name, "an outcome came under an old lease and is dropped");
                Ok(())
            }
            other => other,
        }
    }

    /// Lets loops take their steps; `true` where any did.
    pub async fn loop_step(&self) -> Result<bool, StoreError> {
        self.mind_the_clock().await?;
        let now = self.clock.now();
        let (audiences, memory) = (self.audiences(), self.memory());
        let decision = match self.store.write(move |c| loops::step_next(c, &audiences, &memory, now)).await {
            Err(StoreError::Bug { detail }) => {
                let origin = self.store.write(loops::discard_next_input).await?;
                tracing::error!(origin, detail, "an input was set aside: no step could be made of it");
                return Ok(true);
            }
            other => other?,
        };
        if let Some(decision) = &decision {
            let next = &decision.next;
            if next.supervision.as_ref().is_some_and(|known| known.overseer.is_held()) {
                kill_point("held");
            }
            tracing::info!(loop_id = %next.id, state = next.state.as_str(), why = decision.reasons.join("; "), "step");
            self.wake.decided();
            self.summarise(next).await;
            if decision.effects.iter().any(|effect| matches!(effect, Effect::SetTimer { .. })) {
                self.wake.timer.notify_one();
            }
            return Ok(true);
        }
        self.grant_slots().await
    }

    async fn grant_slots(&self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        // The limits over all forges are the operator's; the lowest of the configured policies holds.
        let lowest =
            |of: fn(&PolicyLimits) -> u32| self.settings.policies.values().map(|p| of(&p.limits)).min().unwrap_or(1);
        let slots = Slots {
            all: lowest(|limits| limits.loops),
            per_forge: lowest(|limits| limits.loops_per_forge.unwrap_or(limits.loops)),
            per_repository: lowest(|limits| limits.loops_per_repository),
        };
        let granted: Vec<LoopId> = self.store.write(move |c| loops::grant_slots(c, slots, now)).await?;
        Ok(!granted.is_empty())
    }
}
