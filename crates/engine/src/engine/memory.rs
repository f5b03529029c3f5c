//! Maintenance of memory: summaries and retention.

use crate::domain::knowledge::memory::MemorySettings;
use crate::domain::knowledge::session;
use crate::domain::loops::Loop;
use crate::domain::model::ids::LoopId;
use crate::engine::context::ServiceContext;
use crate::store::{StoreError, session as sessions};

/// Summarizes a loop's iterations if enough of them have ended or the loop has ended. Failures are logged and
/// retried after the next step or at the daily maintenance.
pub(super) async fn summarize(context: &ServiceContext, settings: &MemorySettings, current: &Loop) {
    let ended = current.iterations.iter().rev().find(|iteration| iteration.ended_at.is_some());
    let done = ended.map_or(0, |iteration| iteration.number);
    let interval = session::interval_within(settings.summary_interval, current.limits.iterations);
    // Most steps end no iteration; skip the query.
    if current.state.is_open() && done < interval {
        return;
    }
    let summed = store_summary(context, current.id.clone(), done, interval, !current.state.is_open()).await;
    if let Err(error) = summed {
        tracing::warn!(loop_id = %current.id, %error, "could not summarize iterations; the daily maintenance tries again");
    }
}

async fn store_summary(
    context: &ServiceContext,
    id: LoopId,
    done: u32,
    interval: u32,
    ended: bool,
) -> Result<(), StoreError> {
    let now = context.clock.now();
    let of = id.clone();
    let read = context.store.read(move |c| {
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
    context.store.write(move |c| sessions::add_summary(c, &id, &summary)).await
}
