//! Turns due timers into inputs of their loops.

use crate::domain::loops::{LoopInput, TimerInput, TimerKind};
use crate::engine::executor::Executor;
use crate::store::{StoreError, loops, timers};

impl Executor {
    /// Turns due timers into inputs; returns `true` if there were any.
    pub async fn timer_step(&self) -> Result<bool, StoreError> {
        self.leases.follow_clock_changes().await?;
        let now = self.context.clock.now();
        let due = self
            .context
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
            self.context.wake.step.notify_one();
        }
        Ok(due)
    }
}
