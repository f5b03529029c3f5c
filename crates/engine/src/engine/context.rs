//! Handles that every service of the engine shares, and the signals that wake its tasks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::store::Store;
use crate::telemetry::{Metrics, Tracer};

/// Wakes the tasks of this process when work is available; other processes poll.
#[derive(Debug, Default)]
pub struct Wake {
    /// Deliveries are due.
    pub intake: Notify,
    /// An input of a loop is pending, or a slot for a running loop may be free.
    pub step: Notify,
    /// A timer was set.
    pub timer: Notify,
    /// Effects on a forge are pending.
    pub forge: Notify,
    /// Acknowledgements of comments are pending.
    pub seen: Notify,
    /// Messages for notification channels are pending.
    pub notify: Notify,
    /// Work effects are pending or were canceled.
    pub work: Notify,
    /// A round of reconciliation was requested.
    pub reconcile: Notify,
}

impl Wake {
    /// Signals that effects on a forge were queued.
    pub fn effects_queued(&self) {
        self.seen.notify_one();
        self.forge.notify_one();
    }

    /// Signals that a loop has taken a step, so that effects, messages and work may be pending.
    pub fn loop_stepped(&self) {
        self.effects_queued();
        self.notify.notify_waiters();
        self.work.notify_one();
        self.step.notify_one();
    }
}

/// Handles that every service shares. Clones are cheap and refer to the same database, signals and metrics.
#[derive(Clone)]
pub struct ServiceContext {
    /// Connection to the database.
    pub store: Store,
    /// Source of the current time.
    pub clock: Clock,
    /// Wake-up signals between the tasks of this process.
    pub wake: Arc<Wake>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Traces.
    pub tracer: Tracer,
    /// Cancelled when the service stops; no new work is started.
    pub stopping: CancellationToken,
}

impl ServiceContext {
    /// Runs a future; returns `None` if the service stops and the future does not finish within the grace period.
    /// Unrecorded work is looked up and completed by the next process.
    pub(super) async fn until_stopped<T>(&self, grace: Duration, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            outcome = what => Some(outcome),
            () = async {
                self.stopping.cancelled().await;
                tokio::time::sleep(grace).await;
            } => None,
        }
    }

    /// Waits until work may be available, at most `wait`. After a failure, wake-ups are ignored for a while, because tasks
    /// that fail for the same reason would otherwise wake each other.
    pub(super) async fn rest(&self, wait: Duration, failed: bool, wake: &Notify) {
        tokio::select! {
            () = wake.notified(), if !failed => {}
            () = tokio::time::sleep(wait) => {}
            () = self.stopping.cancelled() => {}
        }
    }
}

/// Returns 32 random bits for ids and nonces.
pub(super) fn random() -> u32 {
    (uuid::Uuid::now_v7().as_u128() & u128::from(u32::MAX)) as u32
}
