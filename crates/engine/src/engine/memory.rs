//! Maintenance of memory: summaries and retention.

use super::Engine;
use crate::domain::knowledge::session;
use crate::domain::loops::Loop;
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::store::memory::{self, StepMemory};
use crate::store::session as sessions;
use crate::store::{StoreError, installation, loops};

/// Interval of the maintenance, in milliseconds.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Maximum number of batches per maintenance; the remaining ones follow at the next one.
const ROUNDS: usize = 1_000;
/// Maximum number of ended loops that are summarized per maintenance.
const LOOPS: usize = 100;

impl Engine {
    /// Returns the settings that the store needs to record learnings.
    pub(super) fn memory(&self) -> StepMemory {
        StepMemory { settings: self.settings.memory.clone(), masker: self.checks.masker.clone() }
    }

    /// Summarizes a loop's iterations if enough of them have ended or the loop has ended. Failures are logged and
    /// retried after the next step or at the daily maintenance.
    pub(super) async fn summarize(&self, current: &Loop) {
        let ended = current.iterations.iter().rev().find(|iteration| iteration.ended_at.is_some());
        let done = ended.map_or(0, |iteration| iteration.number);
        let interval = session::interval_within(self.settings.memory.summary_interval, current.limits.iterations);
        // Most steps end no iteration; skip the query.
        if current.state.is_open() && done < interval {
            return;
        }
        let summed = self.store_summary(current.id.clone(), done, interval, !current.state.is_open()).await;
        if let Err(error) = summed {
            tracing::warn!(loop_id = %current.id, %error, "could not summarize iterations; the daily maintenance tries again");
        }
    }

    async fn store_summary(&self, id: LoopId, done: u32, interval: u32, ended: bool) -> Result<(), StoreError> {
        let now = self.clock.now();
        let of = id.clone();
        let read = self.store.read(move |c| {
            // The summary of an ended loop includes runs that were not counted.
            let done = if ended { done.max(sessions::last_iteration(c, &of)?) } else { done };
            let Some(range) = session::due(done, sessions::summarized_to(c, &of)?, interval, ended) else {
                return Ok(None);
            };
            let (turns, events) = (sessions::turns(c, &of, range.clone())?, sessions::events(c, &of, range.clone())?);
            // Without recorded turns or events there is nothing to summarize.
            let recorded = !turns.is_empty() || !events.is_empty();
            Ok(recorded.then(|| session::extract(*range.start(), *range.end(), &turns, &events, now)))
        });
        let Some(summary) = read.await? else { return Ok(()) };
        self.store.write(move |c| sessions::add_summary(c, &id, &summary)).await
    }

    /// Performs the daily maintenance: missing final summaries, retention of turns and events, decay of unused
    /// learnings, embeddings.
    pub(super) async fn maintain_memory(&self) -> Result<(), StoreError> {
        const LOOKED: &str = "memory_kept_at";
        let now = self.clock.now();
        let last =
            self.store.read(|c| installation::get(c, LOOKED)).await?.and_then(|text| text.parse().ok().map(Timestamp));
        if last.is_some_and(|last| (0..DAY_MS).contains(&now.since(last))) {
            return Ok(());
        }
        for id in self.store.read(|c| sessions::unsummarized(c, LOOPS)).await? {
            if let Some(current) = self.store.read(move |c| loops::get(c, &id)).await? {
                self.summarize(&current).await;
            }
        }
        let settings = &self.settings.memory;
        let kept_ms = i64::try_from(self.settings.keep.as_millis()).unwrap_or(i64::MAX);
        let days = u32::try_from(kept_ms / DAY_MS).unwrap_or(u32::MAX);
        let retention = sessions::SessionRetention { days, max_raw_turns: settings.max_raw_turns };
        for _ in 0..ROUNDS {
            let removed = self.store.write(move |c| sessions::apply_retention(c, retention, now)).await?;
            tracing::debug!(?removed, "old turns and events were removed");
            if !removed.more {
                break;
            }
        }
        self.store.write(move |c| memory::proposals::drop_old_remarks(c, now)).await?;
        for _ in 0..ROUNDS {
            let settings = settings.clone();
            if !settings.enabled || self.store.write(move |c| memory::decay(c, &settings, now)).await? == 0 {
                break;
            }
        }
        for _ in 0..ROUNDS {
            if self.embed_learnings().await? == 0 {
                break;
            }
        }
        self.store.write(move |c| installation::set(c, LOOKED, &now.0.to_string())).await
    }
}
