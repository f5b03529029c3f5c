//! What the service does about memory beside its loops' steps: summaries, and what is kept no longer.

use super::Engine;
use crate::domain::knowledge::session;
use crate::domain::loops::Loop;
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::store::memory::{self, StepMemory};
use crate::store::session as sessions;
use crate::store::{StoreError, installation, loops};

/// Time between two looks for what is kept no longer.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Calls of one look at most; what is left then waits for the next day.
const ROUNDS: usize = 1_000;
/// Ended loops without their last summary that are looked at in one go.
const LOOPS: usize = 100;

impl Engine {
    /// What the store needs to learn.
    pub(super) fn memory(&self) -> StepMemory {
        StepMemory { settings: self.settings.memory.clone(), masker: self.checks.masker.clone() }
    }

    /// Sums a loop's iterations up where enough have ended, or the loop has. What fails is told in the log: the next step,
    /// or the daily look, makes up for it.
    pub(super) async fn summarise(&self, current: &Loop) {
        let ended = current.iterations.iter().rev().find(|iteration| iteration.ended_at.is_some());
        let done = ended.map_or(0, |iteration| iteration.number);
        let interval = self.settings.memory.summary_interval.max(1);
        // Most steps end no iteration: those are not worth a look at the database.
        if current.state.is_open() && done < interval {
            return;
        }
        let summed = self.sum_up(current.id.clone(), done, !current.state.is_open()).await;
        if let Err(error) = summed {
            tracing::warn!(loop_id = %current.id, %error, "iterations could not be summed up");
        }
    }

    async fn sum_up(&self, id: LoopId, done: u32, ended: bool) -> Result<(), StoreError> {
        let (interval, now) = (self.settings.memory.summary_interval, self.clock.now());
        let of = id.clone();
        let read = self.store.read(move |c| {
            // Of a loop that ended, also the runs that did not count have their place in a summary.
            let done = if ended { done.max(sessions::last_iteration(c, &of)?) } else { done };
            let Some(range) = session::due(done, sessions::summarised_to(c, &of)?, interval, ended) else {
                return Ok(None);
            };
            let (turns, events) = (sessions::turns(c, &of, range.clone())?, sessions::events(c, &of, range.clone())?);
            // A loop of which nothing is recorded has nothing to be summed up.
            let told = !turns.is_empty() || !events.is_empty();
            Ok(told.then(|| session::extract(*range.start(), *range.end(), &turns, &events, now)))
        });
        let Some(summary) = read.await? else { return Ok(()) };
        self.store.write(move |c| sessions::add_summary(c, &id, &summary)).await
    }

    /// Once a day: last summaries that are missing, turns and events that are kept no longer, learnings that nobody used.
    pub(super) async fn keep_memory(&self) -> Result<(), StoreError> {
        const LOOKED: &str = "memory_kept_at";
        let now = self.clock.now();
        let last =
            self.store.read(|c| installation::get(c, LOOKED)).await?.and_then(|text| text.parse().ok().map(Timestamp));
        if last.is_some_and(|last| (0..DAY_MS).contains(&now.since(last))) {
            return Ok(());
        }
        for id in self.store.read(|c| sessions::unsummarised(c, LOOPS)).await? {
            if let Some(current) = self.store.read(move |c| loops::get(c, &id)).await? {
                self.summarise(&current).await;
            }
        }
        let settings = &self.settings.memory;
        let retention =
            sessions::SessionRetention { days: settings.retention_days, max_raw_turns: settings.max_raw_turns };
        for _ in 0..ROUNDS {
            let removed = self.store.write(move |c| sessions::apply_retention(c, retention, now)).await?;
            tracing::debug!(?removed, "old turns and events were removed");
            if !removed.more {
                break;
            }
        }
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
