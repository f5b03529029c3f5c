//! Leases on effects: which process works on an effect, and for how long.

use failpoint::kill_point;
use tokio::sync::Mutex;

use crate::clock::{ClockWatch, Stopwatch};
use crate::domain::lifecycle::effect::EffectQueue;
use crate::domain::loops::{LoopInput, LoopState, TimerInput};
use crate::domain::model::host::Host;
use crate::domain::model::ids::{IssueRef, LoopId};
use crate::engine::claim::{HeldClaim, HeldLeases};
use crate::engine::context::ServiceContext;
use crate::engine::settings::Pace;
use crate::store::outbox::{self, Claimant, ClaimedEffect};
use crate::store::sql::Connection;
use crate::store::{StoreError, StoreResult, leases, loops};

/// Claims effects for this process and follows changes of the system clock.
pub struct Leases {
    pub(super) context: ServiceContext,
    /// Identity of this process as an owner of leases.
    pub owner: LeaseOwner,
    /// Host of this process.
    pub host: Host,
    /// Maximum number of work effects that this process executes at the same time.
    pub(super) workers: usize,
    /// Leases of the effects on which this process works.
    pub(super) held: HeldLeases,
    /// Durations of leases, waits and retries.
    pub(super) pace: Pace,
    /// Detects changes of the system clock.
    pub(super) watch: Mutex<ClockWatch>,
}

/// Next work effect of an iteration.
pub(super) enum Continuation {
    /// It is claimed.
    Claimed(Box<HeldClaim>),
    /// A pending input of the loop may request one.
    Undecided,
    /// The loop has no effect that this process may execute now.
    Ended,
}

/// Identity of a process that owns leases. Processes on the same host and boot can be checked for being alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOwner {
    /// Id of the host and host name, `id@name`.
    pub host: String,
    /// Boot id of the host.
    pub boot: String,
    /// Process id.
    pub pid: u32,
    /// Random value that distinguishes processes with the same id.
    pub nonce: String,
}

impl LeaseOwner {
    /// Returns the name of the owner, `host/boot/pid/nonce`.
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.host, self.boot, self.pid, self.nonce)
    }

    /// Parses `host/boot/pid/nonce`; `None` if it is malformed.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.splitn(4, '/');
        let (host, boot, pid, nonce) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self { host: host.into(), boot: boot.into(), pid: pid.parse().ok()?, nonce: nonce.into() })
    }

    /// Whether the owner is known to have ended: it belongs to an earlier boot of the host `here`, or its process on
    /// this host has exited. `alive` returns `true` if a process id belongs to a running process of this installation.
    pub fn is_gone(&self, here: &LeaseOwner, alive: impl Fn(u32) -> bool) -> bool {
        self.host == here.host
            && (self.boot != here.boot
                || (self.pid != here.pid && !alive(self.pid))
                || (self.pid == here.pid && self.nonce != here.nonce))
    }
}

impl Leases {
    /// Claims the next due work effect.
    pub(super) async fn claim_work(&self) -> Result<Option<HeldClaim>, StoreError> {
        self.claim(EffectQueue::Work.as_str().to_owned(), |_| true).await
    }

    /// Claims the next due work effect that continues the iteration of a loop. Returns [`Continuation::Ended`] if there is none and
    /// no input of the loop is pending.
    pub(super) async fn claim_continuation(&self, id: &LoopId) -> Result<Continuation, StoreError> {
        self.follow_clock_changes().await?;
        let by = Claimant { continues: Some(id.clone()), ..self.claimant() };
        let claiming = self.claiming_as(by, EffectQueue::Work.as_str().to_owned(), |_| true);
        let id = id.clone();
        let claim = move |c: &Connection| Ok((claiming(c)?, loops::has_inputs_of(c, &id)?));
        let age = Stopwatch::start();
        Ok(match self.context.store.write(claim).await? {
            (Some(claimed), _) => Continuation::Claimed(Box::new(self.held(claimed, age))),
            (None, true) => Continuation::Undecided,
            (None, false) => Continuation::Ended,
        })
    }

    /// Claims the oldest due effect of a queue whose issue satisfies `may`.
    pub(super) async fn claim(
        &self,
        queue: String,
        may: impl Fn(&IssueRef) -> bool + Send + 'static,
    ) -> Result<Option<HeldClaim>, StoreError> {
        self.follow_clock_changes().await?;
        let age = Stopwatch::start();
        let claimed = self.context.store.write(self.claiming(queue, may)).await?;
        Ok(claimed.map(|claimed| self.held(claimed, age)))
    }

    /// Takes responsibility for an effect that was claimed. `age` was started before the claim was written.
    pub(in crate::engine) fn held(&self, claimed: ClaimedEffect, age: Stopwatch) -> HeldClaim {
        let claim = self.held.hold(claimed, age);
        kill_point("K07");
        claim
    }

    /// Returns the write that claims the oldest due effect of a queue whose issue satisfies `may`. Effects on which this process
    /// works are left out: on a full disk their leases expire unrenewed.
    pub(in crate::engine) fn claiming<F: Fn(&IssueRef) -> bool + Send + 'static>(
        &self,
        queue: String,
        may: F,
    ) -> impl FnOnce(&Connection) -> StoreResult<Option<ClaimedEffect>> + Send + 'static + use<F> {
        self.claiming_as(self.claimant(), queue, may)
    }

    /// Returns this process as a claimant of any work.
    fn claimant(&self) -> Claimant {
        let labels = self.host.labels.clone();
        Claimant { owner: self.owner.name(), host: self.host.id.clone(), labels, continues: None }
    }

    fn claiming_as<F: Fn(&IssueRef) -> bool + Send + 'static>(
        &self,
        by: Claimant,
        queue: String,
        may: F,
    ) -> impl FnOnce(&Connection) -> StoreResult<Option<ClaimedEffect>> + Send + 'static + use<F> {
        let held = self.held.clone();
        let now = self.context.clock.now();
        let lease = i64::try_from(self.pace.lease.as_millis()).unwrap_or(i64::MAX);
        let may = move |name: &str, place: &IssueRef| !held.contains(name) && may(place);
        move |c| outbox::claim(c, &queue, may, &by, now, lease)
    }

    /// Adjusts leases and running loops after the system clock was changed, so that leases keep their remaining duration and
    /// loops do not count the difference as elapsed time. Must run before the first use of leases or times.
    pub(super) async fn follow_clock_changes(&self) -> Result<(), StoreError> {
        let mut watch = self.watch.lock().await;
        let before = watch.clone();
        let Some(by_ms) = watch.set_by_ms() else { return Ok(()) };
        let (owner, now, tells) = (self.owner.name(), self.context.clock.now(), watch.tells);
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
        if let Err(error) = self.context.store.write(follow).await {
            // Restore the state so that the change is detected again.
            *watch = before;
            return Err(error);
        }
        tracing::warn!(by_ms, "the system clock was changed; leases and timers were adjusted");
        if watch.is_doubtful() && !before.is_doubtful() {
            tracing::warn!(
                "the system clock was changed by days; the service deletes no data by age until it restarts"
            );
        }
        Ok(())
    }

    /// Follows a change of the clock before an outcome is stored. A failure does not lose the outcome: the heartbeat tries again.
    pub(in crate::engine) async fn follow_clock_before_outcome(&self) {
        if let Err(error) = self.follow_clock_changes().await {
            tracing::warn!(%error, "could not adjust leases to a clock change");
        }
    }

    /// Releases the work at shutdown, or after a failed heartbeat if no other process has taken the lease. Its next owner starts
    /// it again. `began` states whether it may have taken effect.
    pub(super) async fn hand_over(&self, claimed: HeldClaim, began: bool) -> Result<(), StoreError> {
        claimed.end_heartbeats();
        let why = if claimed.is_lost() { "the lease was lost" } else { "the service stopped" };
        let owner = self.owner.name();
        let now = self.context.clock.now();
        let given = self.context.store.write(move |c| outbox::reschedule(c, &claimed, &owner, now, began, why)).await;
        match given {
            Err(StoreError::Fenced { .. }) => Ok(()),
            other => other,
        }
    }
}
