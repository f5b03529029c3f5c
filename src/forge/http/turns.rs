//! Whose turn it is to change something on a forge: one call at a time, with a pause between two, urgent ones first. One
//! that gets no answer for long gives its turn away (`Pace::turn`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::clock::Clock;
use crate::domain::model::ids::Timestamp;

/// The turns of one credential.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Held by the first of those that are not urgent, the others wait for it in order.
    queue: Mutex<()>,
    /// Held while a call is under way.
    writer: Mutex<Last>,
    /// How many urgent ones wait.
    urgent: AtomicUsize,
    /// One of them waits no more.
    gone: Notify,
}

/// The last call.
#[derive(Debug, Default)]
struct Last {
    /// When it was sent, or its answer came.
    at: Option<Timestamp>,
    /// Tells two notes of one moment apart.
    count: u64,
}

/// A turn; it ends when this is dropped.
pub(super) struct Turn<'a> {
    last: MutexGuard<'a, Last>,
    _queue: Option<MutexGuard<'a, ()>>,
}

impl Turn<'_> {
    /// Notes that a call was sent, or has ended.
    pub(super) fn note(&mut self, now: Timestamp) {
        self.last.at = Some(now);
        self.last.count += 1;
    }
}

/// An urgent call that waits.
struct Waits<'a>(&'a Turns);

impl<'a> Waits<'a> {
    fn new(turns: &'a Turns) -> Self {
        turns.urgent.fetch_add(1, Ordering::SeqCst);
        Self(turns)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.urgent.fetch_sub(1, Ordering::SeqCst);
        self.0.gone.notify_one();
    }
}

impl Turns {
    /// Waits for a turn, `interval_ms` after the last call. An urgent one waits for that and for the call under way alone.
    pub(super) async fn take(&self, urgent: bool, clock: &Clock, interval_ms: i64) -> Turn<'_> {
        let _waits = urgent.then(|| Waits::new(self));
        let queue = if urgent { None } else { Some(self.queue.lock().await) };
        let mut rested = None;
        loop {
            let last = self.writer.lock().await;
            if !urgent && self.urgent.load(Ordering::SeqCst) > 0 {
                drop(last);
                // Nobody else waits for this: whoever does holds the queue.
                self.gone.notified().await;
                continue;
            }
            let wait = last.at.map_or(0, |at| at.plus_ms(interval_ms).since(clock.now()).min(interval_ms));
            if wait <= 0 || rested == Some(last.count) {
                return Turn { last, _queue: queue };
            }
            // Nobody is kept from the turn meanwhile: an urgent one may come before us.
            rested = Some(last.count);
            drop(last);
            tokio::time::sleep(Duration::from_millis(wait.unsigned_abs())).await;
        }
    }
}
