//! Queues of effects on forges: acknowledgements of comments, and all other effects.

use tracing::Instrument as _;

use crate::domain::lifecycle::effect::{EffectQueue, SEEN_QUEUE};
use crate::engine::concurrency_limits::ConcurrencyLimits;
use crate::engine::forge_effects::ForgeEffects;
use crate::engine::receipt::{EffectError, effect_context};
use crate::store::StoreError;

impl ForgeEffects {
    /// Executes one effect on a forge, acknowledgements first; returns `true` if there was one.
    pub async fn forge_effect_step(&self) -> Result<bool, StoreError> {
        Ok(self.acknowledgement_step().await? || self.ordinary_effect_step().await?)
    }

    /// Executes one acknowledgement of a comment; returns `true` if there was one.
    pub(super) async fn acknowledgement_step(&self) -> Result<bool, StoreError> {
        self.forge_effect_of(SEEN_QUEUE, &self.limits.seen).await
    }

    /// Executes one other effect on a forge; returns `true` if there was one.
    pub(super) async fn ordinary_effect_step(&self) -> Result<bool, StoreError> {
        self.forge_effect_of(EffectQueue::Forge.as_str(), &self.limits.forge).await
    }

    async fn forge_effect_of(&self, queue: &'static str, call_limits: &ConcurrencyLimits) -> Result<bool, StoreError> {
        let selection = call_limits.lock_selection().await;
        let saturated = call_limits.saturated();
        let claimed = self.executor.leases.claim(queue.to_owned(), move |place| saturated.admits(&place.repo)).await?;
        let Some(claimed) = claimed else { return Ok(false) };
        let _under_way = call_limits.acquire(&claimed.place.repo);
        drop(selection);
        let context = effect_context(&claimed);
        if claimed.abandoned {
            // Its previous owner has ended, but the call may still be in progress and lists of the forge lag.
            let why = "the outcome of an earlier attempt is unknown; the service looks it up after a wait".to_owned();
            let outcome = Err(EffectError::Retry { after_ms: Some(0), ambiguous: true, why });
            self.executor.record(claimed, outcome).instrument(context).await?;
            return Ok(true);
        }
        let outcome = claimed.while_held(self.forge_effect(&claimed)).instrument(context.clone()).await;
        let outcome = outcome.unwrap_or_else(|| {
            let why = "the lease was lost during the call; the service looks the outcome up after a wait".to_owned();
            Err(EffectError::Retry { after_ms: Some(0), ambiguous: true, why })
        });
        self.executor.record(claimed, outcome).instrument(context).await?;
        Ok(true)
    }
}
