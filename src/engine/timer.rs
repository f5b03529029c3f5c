//! Due times in the store become inputs of their loops.

use super::Engine;
use crate::domain::effect::TimerKind;
use crate::domain::lifecycle::Input;
use crate::store::{StoreError, loops, timers};

impl Engine {
    /// Turns timers that are due into inputs; `true` where there were any.
    pub async fn timer_step(&self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let due = self
            .store
            .write(move |c| {
                let due = timers::take_due(c, now)?;
                for (id, kind, at) in &due {
                    if let Some(timer) = TimerKind::parse(kind) {
                        let origin = format!("timer/{id}/{kind}/{}", at.0);
                        loops::tell(c, id, &origin, &Input::TimerDue { timer }, now)?;
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
}
