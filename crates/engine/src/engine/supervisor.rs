//! Starts, supervises and stops the tasks of the service. The only module that spawns tasks.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use failpoint::kill_point;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Engine;
use super::claim::HeldClaim;
use crate::store::{StoreError, leases, outbox};

/// Role of a process in the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Receives webhooks.
    Ingest,
    /// Steps loops and calls the forges.
    Control,
    /// Runs agents, checks and git.
    Runner,
    /// All roles.
    All,
}

impl Role {
    /// Whether the role receives webhooks.
    pub fn ingests(self) -> bool {
        matches!(self, Self::Ingest | Self::All)
    }
    /// Whether the role steps loops and calls the forges.
    pub fn controls(self) -> bool {
        matches!(self, Self::Control | Self::All)
    }
    /// Whether the role runs agents, checks and git.
    pub fn runs(self) -> bool {
        matches!(self, Self::Runner | Self::All)
    }
}

/// Maximum number of issues per forge whose deliveries are processed concurrently.
pub(super) const INTAKE: usize = 16;
/// Maximum number of concurrent effects per forge.
pub(super) const FORGE_CALLERS: usize = 8;
/// Maximum number of concurrent acknowledgements of comments per forge.
pub(super) const SEERS: usize = 2;
/// Number of workers in addition to the slots of running loops, for effects that release trees or cancel work.
const SPARE_WORKERS: usize = 4;

/// Runs the tasks of a role until `engine.stopping` is cancelled, then waits for agents within the grace period.
pub async fn run(engine: Arc<Engine>, role: Role) {
    let mut tasks = JoinSet::new();
    engine.watch.lock().await.tells = role != Role::Runner;
    if role.controls() {
        let e = &engine;
        spawn(&mut tasks, e.clone().intake());
        start(&mut tasks, e, "step", |e| &e.wake.step, |e| async move { e.loop_step().await });
        start(&mut tasks, e, "timer", |e| &e.wake.timer, |e| async move { e.timer_step().await });
        for _ in 0..SEERS * e.forges.len() {
            start(&mut tasks, e, "seen", |e| &e.wake.seen, |e| async move { e.acknowledgement_step().await });
        }
        for _ in 0..FORGE_CALLERS * e.forges.len() {
            start(&mut tasks, e, "forge", |e| &e.wake.forge, |e| async move { e.ordinary_effect_step().await });
        }
        for at in 0..engine.channels.len() {
            let step = move |e: Arc<Engine>| async move { e.send_next_notice(&e.channels[at]).await };
            start(&mut tasks, e, "notify", |e| &e.wake.notify, step);
        }
        spawn(&mut tasks, super::reconcile::run(engine.clone()));
    }
    if role.runs() {
        spawn(&mut tasks, workers(engine.clone(), role.controls()));
    }
    if role.controls() || role.runs() {
        spawn(&mut tasks, heartbeat(engine.clone()));
    }
    spawn(&mut tasks, watch(engine.clone()));
    spawn(&mut tasks, engine.clone().await_forges());
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a task of the service failed; the service stops and has to be restarted");
            engine.stopping.cancel();
        }
    }
    // All tasks have ended; release the leases for the next process.
    let owner = engine.owner.name();
    if let Err(error) = engine.store.write(move |c| leases::end_all(c, &owner)).await {
        tracing::debug!(%error, "the leases of this process were not released; they expire by themselves");
    }
}

fn spawn(tasks: &mut JoinSet<()>, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(task);
}

fn start<F, Fut>(
    tasks: &mut JoinSet<()>,
    engine: &Arc<Engine>,
    name: &'static str,
    wake: fn(&Engine) -> &Notify,
    step: F,
) where
    F: Fn(Arc<Engine>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<bool, StoreError>> + Send,
{
    let engine = engine.clone();
    spawn(tasks, async move {
        while !engine.stopping.is_cancelled() {
            let failed = match engine.until_stopped(step(engine.clone())).await {
                None | Some(Ok(true)) => continue,
                Some(Ok(false)) => false,
                Some(Err(error)) => {
                    tracing::error!(name, %error, "a step failed");
                    true
                }
            };
            engine.rest(failed, wake(&engine)).await;
        }
    });
}

impl Engine {
    /// Waits until work may be available. After a failure, wake-ups are ignored for a while, because tasks that fail
    /// for the same reason would otherwise wake each other.
    async fn rest(&self, failed: bool, wake: &Notify) {
        tokio::select! {
            () = wake.notified(), if !failed => {}
            () = tokio::time::sleep(self.settings.wait_after_step(failed)) => {}
            () = self.stopping.cancelled() => {}
        }
    }

    /// Runs a future; returns `None` if the service stops and the future does not finish within the grace period.
    /// Unrecorded work is looked up and completed by the next process.
    pub(super) async fn until_stopped<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            outcome = what => Some(outcome),
            () = async {
                self.stopping.cancelled().await;
                tokio::time::sleep(self.settings.stop_grace).await;
            } => None,
        }
    }
}

/// Work effects of this process.
struct Workers {
    engine: Arc<Engine>,
    /// Whether a worker also steps the loop of its effect and claims the next one.
    steps: bool,
    running: JoinSet<FinishedWork>,
    /// Tokens that stop running work, by its row.
    cancels: HashMap<i64, CancellationToken>,
}

/// Row of a work effect that ended, and the work that was claimed with its outcome.
type FinishedWork = (i64, Result<Option<HeldClaim>, StoreError>);

impl Workers {
    fn begin(&mut self, work: HeldClaim) {
        let (id, engine, steps) = (work.id, self.engine.clone(), self.steps);
        self.cancels.insert(id, work.cancel.clone());
        self.running.spawn(async move {
            let ended = match steps {
                true => engine.do_work_and_claim(work).await,
                false => engine.do_work(work).await.map(|()| None),
            };
            (id, ended)
        });
    }

    /// Forgets work that ended; returns the work that was claimed with its outcome.
    fn settle(&mut self, ended: Result<FinishedWork, tokio::task::JoinError>) -> Option<HeldClaim> {
        match ended {
            Ok((id, outcome)) => {
                self.cancels.remove(&id);
                outcome.unwrap_or_else(|error| {
                    tracing::error!(%error, "an outcome could not be recorded; the work is retried when its lease expires");
                    None
                })
            }
            Err(error) => {
                tracing::error!(%error, "a work effect panicked; it is retried when its lease expires");
                None
            }
        }
    }

    /// Waits until all work has ended, and gives back what was claimed with an outcome.
    async fn drain(&mut self) {
        while let Some(ended) = self.running.join_next().await {
            let Some(claimed) = self.settle(ended) else { continue };
            if let Err(error) = self.engine.hand_over(claimed, false).await {
                tracing::debug!(%error, "work was not given back at shutdown; it is claimed when its lease expires");
            }
        }
    }
}

/// Starts work while slots are free, stops cancelled work, and waits for running work at shutdown.
async fn workers(engine: Arc<Engine>, steps: bool) {
    let slots = engine.settings.policies.values().map(|p| p.limits.loops as usize).max().unwrap_or(1);
    let mut workers = Workers { engine: engine.clone(), steps, running: JoinSet::new(), cancels: HashMap::new() };
    loop {
        let mut failed = false;
        while !engine.stopping.is_cancelled() && workers.running.len() < slots + SPARE_WORKERS {
            match engine.claim_work().await {
                Ok(Some(work)) => workers.begin(work),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "pending work could not be claimed");
                    failed = true;
                    break;
                }
            }
        }
        if engine.stopping.is_cancelled() {
            break;
        }
        tokio::select! {
            Some(ended) = workers.running.join_next() => {
                if let Some(next) = workers.settle(ended) {
                    workers.begin(next);
                }
            }
            () = engine.rest(failed, &engine.wake.work) => {}
        }
        stop_cancelled(&engine, &workers.cancels).await;
    }
    for cancel in workers.cancels.values() {
        cancel.cancel();
    }
    if tokio::time::timeout(engine.settings.stop_grace, workers.drain()).await.is_err() {
        tracing::warn!("work timed out at shutdown and will be retried");
    }
}

async fn stop_cancelled(engine: &Engine, cancels: &HashMap<i64, CancellationToken>) {
    if cancels.is_empty() {
        return;
    }
    match engine.store.read(outbox::to_stop).await {
        Ok(rows) => rows.iter().filter_map(|id| cancels.get(id)).for_each(CancellationToken::cancel),
        Err(error) => tracing::error!(%error, "cancelled work could not be looked up"),
    }
}

/// Stops the service after the database has failed; the next start reads what is on disk.
async fn watch(engine: Arc<Engine>) {
    tokio::select! {
        () = engine.store.failed() => {
            tracing::error!("the database no longer accepts writes; the service stops and has to be restarted");
            engine.stopping.cancel();
        }
        () = engine.stopping.cancelled() => {}
    }
}

/// Renews the leases of the running work. A lease that was not renewed, for whatever reason, counts as lost: the work is
/// cancelled, which ends its processes, and only then asks the store whether another process has taken over. On a full disk the
/// work continues, because no process can take over.
async fn heartbeat(engine: Arc<Engine>) {
    let lease = engine.settings.lease;
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    while !engine.stopping.is_cancelled() {
        if let Err(error) = engine.follow_clock_changes().await {
            tracing::error!(%error, "leases could not be adjusted to a change of the clock");
        }
        let held = engine.held.renewed();
        for (name, fence) in not_renewed(&engine, held, lease_ms).await {
            if engine.held.lose(&name, fence) {
                tracing::warn!(name, "the lease is lost; the work is stopped");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(lease / 3) => {}
            () = engine.stopping.cancelled() => {}
        }
    }
}

/// Renews leases, given by name and fencing number; returns those that were not renewed within a third of the lease.
async fn not_renewed(engine: &Engine, held: Vec<(String, i64)>, lease_ms: i64) -> Vec<(String, i64)> {
    if held.is_empty() {
        return held;
    }
    let owner = engine.owner.name();
    let names = held.clone();
    let now = engine.clock.now();
    let renewing = engine.store.write(move |c| leases::renew(c, &owner, &names, now, lease_ms));
    match tokio::time::timeout(engine.settings.lease / 3, renewing).await {
        Ok(Ok(lost)) => {
            kill_point("K38");
            held.into_iter().filter(|(name, _)| lost.contains(name)).collect()
        }
        Ok(Err(error @ StoreError::Full { .. })) => {
            tracing::error!(%error, "the leases could not be renewed");
            Vec::new()
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "the leases could not be renewed");
            held
        }
        Err(_) => {
            tracing::error!("the leases could not be renewed in time");
            held
        }
    }
}
