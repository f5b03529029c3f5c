//! Work that was started and for which the loop no longer waits, and agent runs whose process died. Their costs are recorded.

use crate::domain::lifecycle::effect::WorkEffect;
use crate::domain::loops::{Loop, WorkOutcome};
use crate::domain::model::opinion::{OpinionEnd, OpinionRun};
use crate::engine::providers::{Calls, LostCalls};
use crate::engine::receipt::{EffectError, Receipt};
use crate::store::leases::LeaseToken;
use crate::store::outbox::ClaimedEffect;

/// Ends work for which the loop no longer waits. The cost of a lost run is recorded nevertheless.
pub(super) async fn outdated(
    calls: &Calls,
    claimed: &ClaimedEffect,
    effect: &WorkEffect,
    current: &Loop,
    lease: &LeaseToken,
) -> Result<Receipt, EffectError> {
    let why = "the loop no longer waits for this work".to_owned();
    let was_started = claimed.attempts > 0;
    match *effect {
        WorkEffect::Agent { ticket, .. } | WorkEffect::Plan { ticket, .. } if was_started => {
            let LostCalls { cost, before_start } = calls.settle_lost(current, ticket, lease).await?;
            Ok(Receipt::outcome(why, ticket, WorkOutcome::AgentLost { salvaged: None, cost, before_start }))
        }
        WorkEffect::SecondOpinion { ticket, ref commit } if was_started => {
            let cost = calls.settle_lost(current, ticket, lease).await?.cost;
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
