//! Turns due timers into inputs of their loops.

use super::Engine;
use crate::domain::loops::TimerKind;
use crate::domain::loops::{LoopInput, LoopState, TimerInput};
use crate::store::{StoreError, leases, loops, timers};

impl Engine {
    /// Turns due timers into inputs; returns `true` if there were any.
    pub async fn timer_step(&self) -> Result<bool, StoreError> {
        self.follow_clock_changes().await?;
        let now = self.clock.now();
        let due = self
            .store
            .write(move |c| {
                let due = timers::take_due(c, now)?;
                for (id, kind, at) in &due {
                    if let Some(timer) = TimerKind::parse(kind) {
                        let origin = format!("timer/{id}/{kind}/{}", at.0);
                        loops::enqueue_input(c, id, &origin, &LoopInput::Timer(TimerInput::TimerDue { timer }), now)?;
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

    /// Adjusts leases and running loops after the system clock was changed, so that leases keep their remaining
    /// duration and loops do not count the difference as elapsed time. Called before any use of either.
    pub(super) async fn follow_clock_changes(&self) -> Result<(), StoreError> {
        let mut watch = self.watch.lock().await;
        let before = watch.clone();
        let Some(by_ms) = watch.set_by_ms() else { return Ok(()) };
        let (owner, now, tells) = (self.owner.name(), self.clock.now(), watch.tells);
        let follow = move |c: &_| {
            leases::shift(c, &owner, by_ms, now)?;
            // Only one of several processes informs the loops.
            let running = if tells { loops::open_ids(c, Some(LoopState::Running))? } else { Vec::new() };
            let enqueue = |id| {
                loops::enqueue_input(
                    c,
                    id,
                    &format!("clock/{id}/{}", now.0),
                    &LoopInput::Timer(TimerInput::ClockSet { by_ms }),
                    now,
                )
                .map(drop)
            };
            running.iter().try_for_each(enqueue)
        };
        if let Err(error) = self.store.write(follow).await {
            // Restore the state so that the change is detected again.
            *watch = before;
            return Err(error);
        }
        tracing::warn!(by_ms, "the system clock was changed; leases and timers were adjusted");
        if watch.is_doubtful() && !before.is_doubtful() {
            tracing::warn!(
                "the system clock was changed by days; nothing is deleted by age until the service restarts"
            );
        }
        Ok(())
    }
}
