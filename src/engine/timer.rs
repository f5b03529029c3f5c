//! Due times in the store become inputs of their loops.

use super::Engine;
use crate::domain::loops::TimerKind;
use crate::domain::loops::{LoopInput, LoopState};
use crate::store::{StoreError, leases, loops, timers};

impl Engine {
    /// Turns timers that are due into inputs; `true` where there were any.
    pub async fn timer_step(&self) -> Result<bool, StoreError> {
        self.mind_the_clock().await?;
        let now = self.clock.now();
        let due = self
            .store
            .write(move |c| {
                let due = timers::take_due(c, now)?;
                for (id, kind, at) in &due {
                    if let Some(timer) = TimerKind::parse(kind) {
                        let origin = format!("timer/{id}/{kind}/{}", at.0);
                        loops::enqueue_input(c, id, &origin, &LoopInput::TimerDue { timer }, now)?;
                    }
                }
                Ok(!due.is_empty())
            })
            .await?;
        if due {
            self.wake.step.notify_one();
        }
        Ok(due)
    }

    /// Where the clock was set anew, our leases go with it (else they would be over, or held for as long), and loops that
    /// run do not count that. Called before whatever goes by either.
    pub(super) async fn mind_the_clock(&self) -> Result<(), StoreError> {
        let mut watch = self.watch.lock().await;
        let before = watch.clone();
        let Some(by_ms) = watch.set_by_ms() else { return Ok(()) };
        let (owner, now, tells) = (self.owner.name(), self.clock.now(), watch.tells);
        let follow = move |c: &_| {
            leases::shift(c, &owner, by_ms, now)?;
            // Of several processes one tells the loops.
            let running = if tells { loops::open_ids(c, Some(LoopState::Running))? } else { Vec::new() };
            let tell = |id| {
                loops::enqueue_input(c, id, &format!("clock/{id}/{}", now.0), &LoopInput::ClockSet { by_ms }, now)
                    .map(drop)
            };
            running.iter().try_for_each(tell)
        };
        if let Err(error) = self.store.write(follow).await {
            // Not followed yet: it is noticed again.
            *watch = before;
            return Err(error);
        }
        tracing::warn!(by_ms, "the machine's clock was set anew");
        if watch.is_doubtful() && !before.is_doubtful() {
            tracing::warn!("by days: nothing is removed for its age until the service is started anew");
        }
        Ok(())
    }
}
