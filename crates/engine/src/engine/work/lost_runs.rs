//! Work that was started and for which the loop no longer waits, and agent runs whose process died. Their costs are recorded.

use crate::domain::lifecycle::effect::WorkEffect;
use crate::domain::loops::{Loop, WorkOutcome};
use crate::domain::model::ids::Money;
use crate::domain::model::opinion::{OpinionEnd, OpinionRun};
use crate::domain::providers::prices::TokenUsage;
use crate::engine::Engine;
use crate::engine::executor::{EffectError, Receipt};
use crate::store::outbox::ClaimedEffect;
use crate::store::{StoreError, calls, session};

impl Engine {
    /// Ends work for which the loop no longer waits. The cost of a lost run is recorded nevertheless.
    pub(super) async fn outdated(
        &self,
        claimed: &ClaimedEffect,
        effect: &WorkEffect,
        current: &Loop,
    ) -> Result<Receipt, EffectError> {
        let why = "nobody waits for it any more".to_owned();
        let was_started = claimed.attempts > 0;
        match *effect {
            WorkEffect::Agent { ticket, .. } | WorkEffect::Plan { ticket, .. } if was_started => {
                let cost = self.settle_lost(current, ticket).await?;
                Ok(Receipt::outcome(why, ticket, WorkOutcome::AgentLost { salvaged: None, cost }))
            }
            WorkEffect::SecondOpinion { ticket, ref commit } if was_started => {
                let cost = self.settle_lost(current, ticket).await?;
                let backend = current.settings.policy.review.as_ref().map_or("", |review| review.backend.as_str());
                let lost = OpinionRun::free(commit.clone(), backend, OpinionEnd::Lost);
                let run = Box::new(OpinionRun { cost, estimated: true, ..lost });
                Ok(Receipt::outcome(why, ticket, WorkOutcome::SecondOpinionGiven { run }))
            }
            WorkEffect::Prepare { .. }
            | WorkEffect::Check { .. }
            | WorkEffect::Plan { .. }
            | WorkEffect::Agent { .. }
            | WorkEffect::Commit { .. }
            | WorkEffect::Push { .. }
            | WorkEffect::Merge { .. }
            | WorkEffect::Restore { .. }
            | WorkEffect::SecondOpinion { .. }
            | WorkEffect::ApplySuggestions { .. }
            | WorkEffect::Hooks { .. }
            | WorkEffect::HooksAfterEnd { .. }
            | WorkEffect::Release { .. } => Err(EffectError::Stopped { why }),
        }
    }

    /// Settles the calls of a run whose process died, stores its turn as interrupted, and returns the run's total
    /// cost. Calls that had ended were recorded, but the loop had not received them.
    pub(super) async fn settle_lost(&self, current: &Loop, ticket: u64) -> Result<Money, StoreError> {
        let (id, settings, now) = (current.id.clone(), self.settings.backends.clone(), self.clock.now());
        let ended = self.store.write(move |c| {
            let lost = calls::abandon(c, &id, &settings, now)?;
            session::cut_turn(c, &id)?;
            Ok((lost, calls::cost_of(c, &calls::key_prefix(&id, ticket))?))
        });
        let (lost, cost) = ended.await?;
        for (backend, role, cost) in lost {
            self.metrics.call((&backend, role.word()), "lost", TokenUsage::default().by_kind(), cost.usd());
        }
        Ok(cost)
    }
}
