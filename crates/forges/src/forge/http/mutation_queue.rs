//! Queue of mutating requests: one at a time, with a minimum time between two, urgent ones first, decorations last. A request
//! without a response gives up its permit after [`RateSettings::mutation_hold`](super::RateSettings::mutation_hold).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, Notify};

use super::RequestPriority;
use crate::clock::Clock;
use crate::domain::model::ids::Timestamp;

/// Rank of a request; lower ranks go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    Urgent = 0,
    Normal = 1,
    Decoration = 2,
}

impl From<RequestPriority> for Rank {
    fn from(priority: RequestPriority) -> Self {
        match priority {
            RequestPriority::Urgent => Self::Urgent,
            RequestPriority::Normal | RequestPriority::Background => Self::Normal,
            RequestPriority::Decoration => Self::Decoration,
        }
    }
}

/// Queue of the mutating requests of one credential.
#[derive(Debug, Default)]
pub(super) struct MutationQueue {
    /// Locks for the non-urgent ranks: the first request of a rank holds its lock, and the others wait for it in
    /// order.
    queues: [Mutex<()>; 2],
    /// Lock that is held while a request is in progress.
    active: Mutex<LastMutation>,
    /// Numbers of waiting urgent and of waiting normal requests.
    waiting: [AtomicUsize; 2],
    /// Notified when a request of a lower rank stops waiting: one for the first normal request, one for the first
    /// decoration.
    done: [Notify; 2],
}

/// Record of the last mutating request.
#[derive(Debug, Default)]
struct LastMutation {
    /// Time at which the request was sent or answered; `None` before the first.
    at: Option<Timestamp>,
    /// Number of recorded times, which distinguishes two equal ones.
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

/// Counts a request as waiting until it is dropped.
struct Waiter<'a> {
    queue: &'a MutationQueue,
    rank: Rank,
}

impl<'a> Waiter<'a> {
    fn new(queue: &'a MutationQueue, rank: Rank) -> Self {
        if let Some(count) = queue.waiting.get(rank as usize) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Self { queue, rank }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.queue.waiting.get(self.rank as usize) {
            count.fetch_sub(1, Ordering::SeqCst);
            self.queue.done.iter().skip(self.rank as usize).for_each(Notify::notify_one);
        }
    }
}

impl MutationQueue {
    /// Waits for the requests before this one, and until `interval_ms` after the last one. A request overtakes waiting
    /// requests of a lower priority.
    pub(super) async fn acquire(
        &self,
        priority: RequestPriority,
        clock: &Clock,
        interval_ms: i64,
    ) -> MutationPermit<'_> {
        let rank = Rank::from(priority);
        let _waiter = Waiter::new(self, rank);
        // Urgent requests have no separate queue.
        let own = (rank as usize).checked_sub(1);
        let queue = match own {
            Some(own) => Some(self.queues[own].lock().await),
            None => None,
        };
        let overtaken = || self.waiting.iter().take(rank as usize).any(|count| count.load(Ordering::SeqCst) > 0);
        let mut waited_after = None;
        loop {
            let last = self.active.lock().await;
            if let Some(own) = own.filter(|_| overtaken()) {
                drop(last);
                // Only the holder of the queue waits for this.
                self.done[own].notified().await;
                continue;
            }
            let wait = last.at.map_or(0, |at| at.plus_ms(interval_ms).since(clock.now()).min(interval_ms));
            if wait <= 0 || waited_after == Some(last.count) {
                return MutationPermit { last, _queue: queue };
            }
            // Released meanwhile: one of higher priority may come first.
            waited_after = Some(last.count);
            drop(last);
            tokio::time::sleep(Duration::from_millis(wait.unsigned_abs())).await;
        }
    }
}
