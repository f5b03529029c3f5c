//! Memory budget for the bodies of concurrent deliveries. An unverified body has no claim to its memory. If the budget is
//! used up, the slowest body is dropped, so clients that send slowly or not at all do not delay other deliveries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::clock::Stopwatch;

/// Memory budget for all bodies, in bytes; three bodies of the maximum size fit.
const ROOM: usize = 80 * 1024 * 1024;
/// Seconds added to a body's age when its rate is computed, because the rate in the first milliseconds is not meaningful.
const FIRST_SECONDS: f64 = 0.05;
/// Time without a byte after which a body makes room before those that still arrive, in seconds.
const IDLE_SECONDS: f64 = 0.05;

/// Memory of all bodies.
#[derive(Default)]
pub(super) struct BodyRoom {
    bodies: Mutex<Bodies>,
    freed: Notify,
}

#[derive(Default)]
struct Bodies {
    open: BTreeMap<u64, OpenBody>,
    next: u64,
}

impl Bodies {
    fn used(&self) -> usize {
        self.open.values().map(|body| body.bytes).sum()
    }

    /// Returns the slowest incomplete body, of those that stopped if there are any; `bytes` more bytes of the body `arriving` are
    /// not counted yet. Ignores bodies without any bytes, because they use no memory.
    fn slowest(&self, arriving: u64, bytes: usize) -> Option<u64> {
        let incomplete = self.open.iter().filter(|(_, body)| !body.is_complete);
        let rates = incomplete.map(|(&id, body)| {
            let more = if id == arriving { bytes } else { 0 };
            let stopped = id != arriving && body.idle.elapsed().as_secs_f64() > IDLE_SECONDS;
            (id, !stopped, body.rate(more))
        });
        let with_bytes = rates.filter(|(_, _, rate)| *rate > 0.0);
        let slowest = with_bytes.min_by(|(_, a, slow), (_, b, fast)| a.cmp(b).then(slow.total_cmp(fast)));
        slowest.map(|(id, _, _)| id)
    }
}

struct OpenBody {
    bytes: usize,
    age: Stopwatch,
    /// Time since the last bytes.
    idle: Stopwatch,
    is_complete: bool,
    dropped: Arc<Notify>,
}

impl OpenBody {
    /// Returns the rate so far, in bytes per second, including `more` uncounted bytes.
    fn rate(&self, more: usize) -> f64 {
        (self.bytes + more) as f64 / (self.age.elapsed().as_secs_f64() + FIRST_SECONDS)
    }
}

/// Memory of one body. Dropping the value releases it.
pub(super) struct BodyPlace<'a> {
    room: &'a BodyRoom,
    id: u64,
    /// Notified once when the body must be dropped.
    dropped: Arc<Notify>,
}

impl BodyRoom {
    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an empty body.
    pub(super) fn enter(&self) -> BodyPlace<'_> {
        let dropped = Arc::new(Notify::new());
        let mut bodies = self.bodies();
        let id = bodies.next;
        bodies.next += 1;
        let body = OpenBody {
            bytes: 0,
            age: Stopwatch::start(),
            idle: Stopwatch::start(),
            is_complete: false,
            dropped: dropped.clone(),
        };
        bodies.open.insert(id, body);
        BodyPlace { room: self, id, dropped }
    }
}

impl BodyPlace<'_> {
    /// Counts received bytes. If the budget is used up, waits for complete bodies, because the service is about to verify
    /// and store them. Without complete bodies, drops the slowest body, which may be this one.
    pub(super) async fn add(&self, bytes: usize) {
        loop {
            let freed = self.room.freed.notified();
            tokio::pin!(freed);
            // Register before reading the state, so that no release is missed.
            freed.as_mut().enable();
            {
                let mut bodies = self.room.bodies();
                if bodies.used() + bytes <= ROOM || !bodies.open.contains_key(&self.id) {
                    if let Some(body) = bodies.open.get_mut(&self.id) {
                        body.bytes += bytes;
                        body.idle = Stopwatch::start();
                    }
                    return;
                }
                if !bodies.open.values().any(|body| body.is_complete) {
                    let slowest = bodies.slowest(self.id, bytes).unwrap_or(self.id);
                    if let Some(body) = bodies.open.remove(&slowest) {
                        body.dropped.notify_one();
                    }
                    continue;
                }
            }
            freed.await;
        }
    }

    /// Waits until the body must be dropped.
    pub(super) async fn until_dropped(&self) {
        self.dropped.notified().await;
    }

    /// Whether the body must be dropped.
    pub(super) fn is_dropped(&self) -> bool {
        !self.room.bodies().open.contains_key(&self.id)
    }

    /// Marks the body as complete, so it keeps its memory until it is released.
    pub(super) fn complete(&self) {
        if let Some(body) = self.room.bodies().open.get_mut(&self.id) {
            body.is_complete = true;
        }
    }
}

impl Drop for BodyPlace<'_> {
    fn drop(&mut self) {
        self.room.bodies().open.remove(&self.id);
        self.room.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn slowest_body_makes_room() {
        let room = BodyRoom::default();
        let (slow, fast) = (room.enter(), room.enter());
        slow.add(1).await;
        fast.add(ROOM - 1).await;
        assert!(!slow.is_dropped());
        fast.add(1).await;
        assert!(slow.is_dropped() && !fast.is_dropped());
        let other = room.enter();
        other.add(1).await;
        assert!(other.is_dropped(), "a body may be the slowest itself");
        drop(fast);
        room.enter().add(ROOM).await;
    }

    #[tokio::test]
    async fn body_that_stopped_makes_room_for_one_that_begins() {
        let room = BodyRoom::default();
        let stopped = room.enter();
        stopped.add(1024 * 1024).await;
        let other = room.enter();
        other.add(ROOM - 1024 * 1024).await;
        std::thread::sleep(std::time::Duration::from_millis(200));
        // On average, both have sent more per second.
        let begins = room.enter();
        begins.add(1024).await;
        assert!(stopped.is_dropped() && !begins.is_dropped());
    }

    #[tokio::test]
    async fn complete_bodies_are_waited_for() {
        let room = BodyRoom::default();
        let (complete, late) = (room.enter(), room.enter());
        complete.add(ROOM).await;
        complete.complete();
        let mut adding = Box::pin(late.add(1));
        assert!(adding.as_mut().now_or_never().is_none());
        drop(complete);
        adding.await;
        assert!(!late.is_dropped());
        assert_eq!(room.bodies().used(), 1);
    }
}
