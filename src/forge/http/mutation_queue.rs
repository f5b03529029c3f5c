//! Queue of mutating requests: one at a time, with a minimum time between two, urgent ones first. A request without a
//! response gives up its permit after [`RateSettings::mutation_hold`](super::RateSettings::mutation_hold).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::clock::Clock;
use crate::domain::model::ids::Timestamp;

/// Queue of the mutating requests of one credential.
#[derive(Debug, Default)]
pub(super) struct MutationQueue {
    /// Held by the first request that is not urgent; the others wait for it in order.
    queue: Mutex<()>,
    /// Held while a request is in progress.
    active: Mutex<LastMutation>,
    /// Number of urgent requests that wait.
    urgent: AtomicUsize,
    /// Notified when an urgent request stops waiting.
    urgent_done: Notify,
}

/// Last mutating request.
#[derive(Debug, Default)]
struct LastMutation {
    /// Time at which it was sent or answered.
    at: Option<Timestamp>,
    /// Number of recorded times; distinguishes two that are equal.
    count: u64,
}

/// Permission to send a mutating request; released on drop.
pub(super) struct MutationPermit<'a> {
    last: MutexGuard<'a, LastMutation>,
    _queue: Option<MutexGuard<'a, ()>>,
}

impl MutationPermit<'_> {
    /// Records that a request was sent or has ended.
    pub(super) fn record_use(&mut self, now: Timestamp) {
        self.last.at = Some(now);
        self.last.count += 1;
    }
}

/// Counts an urgent request as waiting until it is dropped.
struct UrgentWaiter<'a>(&'a MutationQueue);

impl<'a> UrgentWaiter<'a> {
    fn new(turns: &'a MutationQueue) -> Self {
        turns.urgent.fetch_add(1, Ordering::SeqCst);
        Self(turns)
    }
}

impl Drop for UrgentWaiter<'_> {
    fn drop(&mut self) {
        self.0.urgent.fetch_sub(1, Ordering::SeqCst);
        self.0.urgent_done.notify_one();
    }
}

impl MutationQueue {
    /// Waits for the requests before this one, and until `interval_ms` after the last one. An urgent request overtakes those
    /// that wait.
    pub(super) async fn acquire(&self, urgent: bool, clock: &Clock, interval_ms: i64) -> MutationPermit<'_> {
        let _waiter = urgent.then(|| UrgentWaiter::new(self));
        let queue = if urgent { None } else { Some(self.queue.lock().await) };
        let mut waited_after = None;
        loop {
            let last = self.active.lock().await;
            if !urgent && self.urgent.load(Ordering::SeqCst) > 0 {
                drop(last);
                // Only the holder of the queue waits for this.
                self.urgent_done.notified().await;
                continue;
            }
            let wait = last.at.map_or(0, |at| at.plus_ms(interval_ms).since(clock.now()).min(interval_ms));
            if wait <= 0 || waited_after == Some(last.count) {
                return MutationPermit { last, _queue: queue };
            }
            // Released meanwhile: an urgent request may come first.
            waited_after = Some(last.count);
            drop(last);
            tokio::time::sleep(Duration::from_millis(wait.unsigned_abs())).await;
        }
    }
}
