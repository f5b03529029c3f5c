//! Reports to loops that their work waits for a host with certain labels.

use crate::domain::loops::{LoopInput, TimerInput};
use crate::domain::model::host::LoopWithoutHost;
use crate::engine::context::ServiceContext;
use crate::store::sql::Connection;
use crate::store::{StoreError, hosts, loops};

/// Minimum time that the work has been waiting, in milliseconds. A scheduler may be starting a host.
const WAIT_MS: i64 = 120_000;

/// Enqueues an input for each loop whose work has been waiting for two minutes, and which does not show it yet.
pub(super) async fn report(context: &ServiceContext) -> Result<(), StoreError> {
    let now = context.clock.now();
    let report = move |c: &Connection| {
        let waiting = hosts::loops_without_host(c, now)?;
        for LoopWithoutHost { id, labels, .. } in waiting.into_iter().filter(|one| one.waiting_ms >= WAIT_MS) {
            let Some(current) = loops::get(c, &id)? else { continue };
            if current.run.labels_without_host != labels {
                let origin = format!("no-host/{id}/{}", current.run.ticket);
                loops::enqueue_input(c, &id, &origin, &LoopInput::Timer(TimerInput::NoHost { labels }), now)?;
            }
        }
        Ok(())
    };
    context.store.write(report).await?;
    context.wake.step.notify_one();
    Ok(())
}
