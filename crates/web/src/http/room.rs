//! Memory budget for the bodies of concurrent deliveries. An unverified body has no claim to its memory. If the budget is
//! used up, the body is dropped that used the most memory for the longest time. So neither large bodies nor clients that send slowly or
//! stop delay a delivery of usual size.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::clock::Stopwatch;
use crate::domain::trust::bounds::DELIVERIES_BYTES;

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
    /// Memory of the open bodies, in bytes.
    used: usize,
}

impl Bodies {
    /// Counts more bytes of a body if the budget permits it; `false` if not. A dropped body counts no bytes.
    fn add(&mut self, id: u64, bytes: usize) -> bool {
        let Some(body) = self.open.get_mut(&id) else { return true };
        let fits = self.used + bytes <= DELIVERIES_BYTES;
        if fits {
            body.bytes += bytes;
            self.used += bytes;
        }
        fits
    }

    /// Removes a body and returns it; `None` if it was removed before.
    fn remove(&mut self, id: u64) -> Option<OpenBody> {
        let body = self.open.remove(&id)?;
        self.used -= body.bytes;
        Some(body)
    }

    /// Returns the incomplete body with the highest cost; `bytes` more bytes of the body `arriving` are not counted yet.
    fn costliest(&self, arriving: u64, bytes: usize) -> Option<u64> {
        let incomplete = self.open.iter().filter(|(_, body)| !body.is_complete);
        let costs = incomplete.map(|(&id, body)| (id, body.cost(if id == arriving { bytes } else { 0 })));
        costs.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(id, _)| id)
    }
}

struct OpenBody {
    bytes: usize,
    age: Stopwatch,
    is_complete: bool,
    dropped: Arc<Notify>,
}

impl OpenBody {
    /// Returns the product of memory and time, in byte seconds, including `more` uncounted bytes.
    fn cost(&self, more: usize) -> f64 {
        (self.bytes + more) as f64 * self.age.elapsed().as_secs_f64()
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
        let body = OpenBody { bytes: 0, age: Stopwatch::start(), is_complete: false, dropped: dropped.clone() };
        bodies.open.insert(id, body);
        BodyPlace { room: self, id, dropped }
    }
}

impl BodyPlace<'_> {
    /// Counts received bytes. If the budget is used up, waits for complete bodies, because the service is about to verify
    /// and store them. Without complete bodies, drops the costliest body, which may be this one.
    pub(super) async fn add(&self, bytes: usize) {
        if self.room.bodies().add(self.id, bytes) {
            return;
        }
        loop {
            let freed = self.room.freed.notified();
            tokio::pin!(freed);
            // Register before reading the state, so that no release is missed.
            freed.as_mut().enable();
            {
                let mut bodies = self.room.bodies();
                if bodies.add(self.id, bytes) {
                    return;
                }
                if !bodies.open.values().any(|body| body.is_complete) {
                    let costliest = bodies.costliest(self.id, bytes).unwrap_or(self.id);
                    if let Some(body) = bodies.remove(costliest) {
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

    /// Marks the body as complete, so it keeps its memory until it is released; `false` if it must be dropped.
    pub(super) fn complete(&self) -> bool {
        let mut bodies = self.room.bodies();
        let body = bodies.open.get_mut(&self.id);
        body.map(|body| body.is_complete = true).is_some()
    }
}

impl Drop for BodyPlace<'_> {
    fn drop(&mut self) {
        self.room.bodies().remove(self.id);
        self.room.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    impl BodyPlace<'_> {
        fn is_dropped(&self) -> bool {
            !self.room.bodies().open.contains_key(&self.id)
        }
    }

    #[tokio::test]
    async fn large_body_yields_to_a_small_one() {
        let room = BodyRoom::default();
        let (small, large) = (room.enter(), room.enter());
        small.add(1024).await;
        large.add(DELIVERIES_BYTES - 1024).await;
        assert!(!small.is_dropped() && !large.is_dropped());
        small.add(1).await;
        assert!(large.is_dropped() && !small.is_dropped());
        let other = room.enter();
        other.add(DELIVERIES_BYTES).await;
        assert!(other.is_dropped(), "a body may be the costliest itself");
        drop(small);
        room.enter().add(DELIVERIES_BYTES).await;
    }

    #[tokio::test]
    async fn stalled_body_yields_to_a_larger_new_one() {
        let room = BodyRoom::default();
        let stopped: Vec<BodyPlace<'_>> = std::iter::repeat_with(|| room.enter()).take(80).collect();
        for body in &stopped {
            body.add(DELIVERIES_BYTES / 80).await;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        let begins = room.enter();
        begins.add(DELIVERIES_BYTES / 40).await;
        assert_eq!(stopped.iter().filter(|body| body.is_dropped()).count(), 2);
        assert!(!begins.is_dropped());
    }

    #[tokio::test]
    async fn server_waits_for_complete_bodies() {
        let room = BodyRoom::default();
        let (complete, late) = (room.enter(), room.enter());
        complete.add(DELIVERIES_BYTES).await;
        assert!(complete.complete());
        let mut adding = Box::pin(late.add(1));
        assert!(adding.as_mut().now_or_never().is_none());
        drop(complete);
        adding.await;
        assert!(!late.is_dropped());
        assert_eq!(room.bodies().used, 1);
    }
}
