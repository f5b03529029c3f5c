//! Claims of effects on which this process works. The heartbeat renews the leases of these, and of no others: a lease whose
//! work ended in any way expires by itself.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::Stopwatch;
use crate::store::outbox::ClaimedEffect;

#[derive(Debug)]
struct HeldLease {
    fence: i64,
    /// Runs since before the last write that took or renewed the lease.
    age: Stopwatch,
    cancel: CancellationToken,
    /// Whether the heartbeat renews the lease: until it was lost, and until the outcome is written.
    is_renewed: bool,
    /// Whether a heartbeat found the lease lost.
    is_lost: bool,
}

/// Leases of the effects on which this process works, by name.
#[derive(Debug, Clone)]
pub struct HeldLeases {
    leases: Arc<Mutex<HashMap<String, HeldLease>>>,
    /// Duration of a lease.
    duration: Duration,
}

impl HeldLeases {
    /// Creates an empty list of leases of this duration.
    pub fn new(duration: Duration) -> Self {
        Self { leases: Arc::default(), duration }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HeldLease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the lease of a claimed effect. `age` was started before the claim was written.
    pub(super) fn hold(&self, effect: ClaimedEffect, age: Stopwatch) -> HeldClaim {
        let cancel = CancellationToken::new();
        let lease = HeldLease { fence: effect.fence, age, cancel: cancel.clone(), is_renewed: true, is_lost: false };
        self.lock().insert(effect.lease(), lease);
        HeldClaim { effect, cancel, held: self.clone() }
    }

    /// Notes that a heartbeat renewed a lease. `age` was started before the heartbeat was written.
    pub(super) fn renew(&self, name: &str, fence: i64, age: Stopwatch) {
        if let Some(lease) = self.lock().get_mut(name).filter(|lease| lease.fence == fence) {
            lease.age = age;
        }
    }

    /// Whether this process works under the lease.
    pub(super) fn contains(&self, lease: &str) -> bool {
        self.lock().contains_key(lease)
    }

    /// Returns names and fencing numbers of the leases that the heartbeat renews.
    pub(super) fn renewed(&self) -> Vec<(String, i64)> {
        let held = self.lock();
        let renewed = held.iter().filter(|(_, lease)| lease.is_renewed);
        renewed.map(|(name, lease)| (name.clone(), lease.fence)).collect()
    }

    /// Cancels the work under a lost lease; returns `false` if the work has ended or its outcome is being written.
    pub(super) fn lose(&self, name: &str, fence: i64) -> bool {
        let mut held = self.lock();
        let Some(lease) = held.get_mut(name).filter(|lease| lease.fence == fence && lease.is_renewed) else {
            return false;
        };
        lease.is_renewed = false;
        lease.is_lost = true;
        lease.cancel.cancel();
        true
    }
}

/// Claimed effect, whose lease is renewed until this value is dropped.
#[derive(Debug)]
pub(super) struct HeldClaim {
    effect: ClaimedEffect,
    /// Cancelled when the work is to stop.
    pub(super) cancel: CancellationToken,
    held: HeldLeases,
}

impl HeldClaim {
    /// Ends the heartbeats of the lease, before the outcome is written. The process still claims no other work under the lease.
    pub(super) fn end_heartbeats(&self) {
        if let Some(lease) = self.held.lock().get_mut(&self.effect.lease()).filter(|l| l.fence == self.effect.fence) {
            lease.is_renewed = false;
        }
    }

    /// Executes work until it ends or the lease is lost: by a heartbeat, or because no heartbeat renewed it in time, as after a pause
    /// of the process. Returns `None` if the lease is lost; a request that the work has sent may then arrive.
    pub(super) async fn while_held<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut lost = pin!(self.cancel.cancelled());
        poll_fn(|context| {
            if lost.as_mut().poll(context).is_ready() || self.has_expired() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    fn has_expired(&self) -> bool {
        let held = self.held.lock();
        let lease = held.get(&self.effect.lease()).filter(|lease| lease.fence == self.effect.fence);
        lease.is_none_or(|lease| lease.age.elapsed() >= self.held.duration)
    }

    /// Whether a heartbeat found the lease lost.
    pub(super) fn is_lost(&self) -> bool {
        self.held.lock().get(&self.effect.lease()).is_none_or(|lease| lease.fence != self.effect.fence || lease.is_lost)
    }
}

impl Deref for HeldClaim {
    type Target = ClaimedEffect;

    fn deref(&self) -> &ClaimedEffect {
        &self.effect
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        let (name, mut held) = (self.effect.lease(), self.held.lock());
        if held.get(&name).is_some_and(|lease| lease.fence == self.effect.fence) {
            held.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::lifecycle::effect::{Effect, EffectQueue, WorkEffect};
    use crate::domain::model::ids::{ForgeName, IssueRef, Number, RepoId, RepoRef, Timestamp};

    fn effect(fence: i64) -> ClaimedEffect {
        let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(7), owner: "acme".into(), name: "app".into() };
        ClaimedEffect {
            id: 1,
            subject: "s".into(),
            loop_id: None,
            lane: EffectQueue::Work,
            queue: "work".into(),
            key: "prepare/1".into(),
            effect: Effect::Work(WorkEffect::Prepare { ticket: 1 }),
            place: IssueRef { repo, issue: Number(1) },
            attempts: 0,
            tries: 0,
            abandoned: false,
            fence,
            created_at: Timestamp(0),
            claimed_at: Timestamp(0),
        }
    }

    #[test]
    fn lease_is_held_until_its_newest_claim_ends() {
        let held = HeldLeases::new(Duration::from_secs(30));
        let first = held.hold(effect(1), Stopwatch::start());
        assert_eq!(held.renewed(), [("s/work".to_owned(), 1)]);
        let second = held.hold(effect(2), Stopwatch::start());
        drop(first);
        assert!(held.contains("s/work"), "an older claim does not end the newer one");
        assert!(!held.lose("s/work", 1) && !second.cancel.is_cancelled() && !second.is_lost());
        assert!(held.lose("s/work", 2) && second.cancel.is_cancelled() && second.is_lost());
        assert_eq!(held.renewed(), [], "a lost lease is not renewed");
        drop(second);
        assert!(!held.contains("s/work"));
    }

    #[test]
    fn heartbeats_end_before_the_outcome_is_written() {
        let held = HeldLeases::new(Duration::from_secs(30));
        let claim = held.hold(effect(1), Stopwatch::start());
        claim.end_heartbeats();
        assert_eq!(held.renewed(), []);
        assert!(held.contains("s/work"), "the process claims no other work under the lease");
        assert!(!held.lose("s/work", 1) && !claim.is_lost(), "a late heartbeat does not stop an outcome");
    }

    #[tokio::test]
    async fn work_ends_with_its_lease() {
        let held = HeldLeases::new(Duration::from_secs(30));
        let claim = held.hold(effect(1), Stopwatch::start());
        assert_eq!(claim.while_held(async { 7 }).await, Some(7));
        let lost = async {
            tokio::task::yield_now().await;
            held.lose("s/work", 1)
        };
        let (sent, lost) = tokio::join!(claim.while_held(std::future::pending::<()>()), lost);
        assert!(sent.is_none() && lost, "a heartbeat found the lease lost");

        let paused = HeldLeases::new(Duration::ZERO);
        let claim = paused.hold(effect(1), Stopwatch::start());
        assert_eq!(claim.while_held(async { 7 }).await, None, "the lease has expired, and no heartbeat noticed it yet");
    }

    #[test]
    fn heartbeat_renews_only_the_lease_that_it_named() {
        let held = HeldLeases::new(Duration::from_secs(30));
        let old = Stopwatch::start();
        std::thread::yield_now();
        let claim = held.hold(effect(2), old);
        let age = || held.lock()["s/work"].age.elapsed();
        let before = age();
        held.renew("s/work", 1, Stopwatch::start());
        assert!(age() >= before, "an older claim's heartbeat does not count");
        let fresh = Stopwatch::start();
        held.renew("s/work", 2, fresh);
        assert!(age() <= fresh.elapsed() && fresh.elapsed() < old.elapsed());
        drop(claim);
    }
}
