//! Starts, supervises and stops the tasks of the service. The only module that spawns tasks.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use failpoint::kill_point;
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::clock::Stopwatch;
use crate::engine::Engine;
use crate::engine::channel_effects::Channels;
use crate::engine::claim::HeldClaim;
use crate::engine::concurrency_limits::{FORGE_CALLERS, SEERS};
use crate::engine::context::{ServiceContext, Wake};
use crate::engine::forge_effects::ForgeEffects;
use crate::engine::leases::{Continuation, Leases};
use crate::engine::settings::Pace;
use crate::store::sql::Connection;
use crate::store::{StoreError, hosts, leases as rows, outbox};

/// Maximum time of a heartbeat whose answer sets a shared clock: the largest error of this clock.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

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

/// Part of the service that a process executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duty {
    /// Role.
    pub role: Role,
    /// Whether the process ends after one work effect and the rest of its iteration. Only for the role `Runner`.
    pub once: bool,
}

/// End of a process that executes one work effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnceEnd {
    /// The outcome is recorded, or the work is given back.
    Worked,
    /// No work was due for this host.
    NoWork,
    /// The work could not be claimed, or its outcome could not be recorded.
    Failed,
}

/// Runs the tasks of a role until `engine.context.stopping` is cancelled, then waits for agents within the grace period.
/// Returns the end of a process that executes one work effect.
pub async fn run(engine: Arc<Engine>, Duty { role, once }: Duty) -> Option<OnceEnd> {
    let end = Arc::new(OnceLock::new());
    let mut tasks = ServiceTasks {
        running: JoinSet::new(),
        names: HashMap::new(),
        context: engine.context.clone(),
        pace: engine.leases.pace,
    };
    engine.leases.watch.lock().await.tells = role != Role::Runner && !engine.clock.is_shared();
    if role.controls() {
        control(&mut tasks, &engine);
    }
    if role.runs() {
        let host = engine.leases.host.clone();
        let now = engine.clock.now();
        if let Err(error) = engine.store.write(move |c| hosts::start(c, &host, now)).await {
            tracing::warn!(%error, "could not add this host to the list of hosts; the next heartbeat tries again");
        }
        let workers = Workers::new(engine.clone(), role.controls());
        if once {
            let end = end.clone();
            tasks.spawn("worker", async move { end.set(workers.run_once().await).unwrap_or_default() });
        } else {
            tasks.spawn("workers", workers.run());
        }
    }
    if role.runs() && !role.controls() {
        let reconciler = engine.reconciler.clone();
        tasks.spawn("housekeeping", async move {
            reconciler.housekeeping.clean_host_at(reconciler.rounds.settings.idle).await;
        });
    }
    if role.controls() || role.runs() {
        tasks.spawn("leases", heartbeat(engine.leases.clone(), role.runs()));
    }
    tasks.spawn("watch", watch(engine.context.clone()));
    tasks.spawn("presence", engine.presence.clone().await_forges());
    while let Some(ended) = tasks.running.join_next_with_id().await {
        if let Err(error) = ended {
            let name = tasks.names.get(&error.id()).copied();
            tracing::error!(name, %error, "a task of the service failed; the service stops and needs a restart");
            engine.context.stopping.cancel();
        }
    }
    // All tasks have ended; release the leases for the next process, and the host's loops for other hosts.
    let owner = engine.leases.owner.name();
    let host = engine.leases.host.id.clone();
    let leave = move |c: &Connection| {
        if role.runs() {
            hosts::leave(c, &host)?;
        }
        rows::end_all(c, &owner)
    };
    if let Err(error) = engine.context.store.write(leave).await {
        tracing::debug!(%error, "could not release the leases of this process; they expire");
    }
    end.get().copied()
}

/// Starts the tasks that step loops and call the forges.
fn control(tasks: &mut ServiceTasks, engine: &Arc<Engine>) {
    let Engine { executor, forge_effects, channels, .. } = &**engine;
    tasks.spawn("intake", engine.intake.clone().intake());
    tasks.start("step", |wake| &wake.step, executor, |executor| async move { executor.loop_step().await });
    tasks.start("timer", |wake| &wake.timer, executor, |executor| async move { executor.timer_step().await });
    let forges = engine.forges.accounts.len();
    for _ in 0..SEERS * forges {
        let step = |effects: Arc<ForgeEffects>| async move { effects.acknowledgement_step().await };
        tasks.start("seen", |wake| &wake.seen, forge_effects, step);
    }
    for _ in 0..FORGE_CALLERS * forges {
        let step = |effects: Arc<ForgeEffects>| async move { effects.ordinary_effect_step().await };
        tasks.start("forge", |wake| &wake.forge, forge_effects, step);
    }
    for at in 0..channels.channels.len() {
        let step =
            move |channels: Arc<Channels>| async move { channels.send_next_notice(&channels.channels[at]).await };
        tasks.start("notify", |wake| &wake.notify, channels, step);
    }
    tasks.spawn("reconciler", engine.reconciler.clone().run(engine.leases.pace.stop_grace));
}

/// Tasks of this process.
struct ServiceTasks {
    running: JoinSet<()>,
    /// Name of each task, for logs.
    names: HashMap<Id, &'static str>,
    context: ServiceContext,
    pace: Pace,
}

impl ServiceTasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.running.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// Starts a task that calls a step of a service whenever work may be available.
    fn start<S, F, Fut>(&mut self, name: &'static str, wake: fn(&Wake) -> &Notify, service: &Arc<S>, step: F)
    where
        S: Send + Sync + 'static,
        F: Fn(Arc<S>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<bool, StoreError>> + Send,
    {
        let (service, context, pace) = (service.clone(), self.context.clone(), self.pace);
        self.spawn(name, async move {
            while !context.stopping.is_cancelled() {
                let failed = match context.until_stopped(pace.stop_grace, step(service.clone())).await {
                    None | Some(Ok(true)) => continue,
                    Some(Ok(false)) => false,
                    Some(Err(error)) => {
                        tracing::warn!(name, %error, "a step failed");
                        true
                    }
                };
                context.rest(pace.wait_after_step(failed), failed, wake(&context.wake)).await;
            }
        });
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
    /// Whether an outcome could not be recorded.
    has_failed: bool,
}

/// Row of a work effect that ended, and the work that was claimed with its outcome.
type FinishedWork = (i64, Result<Option<HeldClaim>, StoreError>);

impl Workers {
    fn new(engine: Arc<Engine>, steps: bool) -> Self {
        Self { engine, steps, running: JoinSet::new(), cancels: HashMap::new(), has_failed: false }
    }

    fn begin(&mut self, work: HeldClaim) {
        let (id, service, steps) = (work.id, self.engine.work.clone(), self.steps);
        self.cancels.insert(id, work.cancel.clone());
        self.running.spawn(async move {
            let ended = match steps {
                true => service.do_work_and_claim(work).await,
                false => service.do_work(work).await.map(|()| None),
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
                    self.has_failed = true;
                    tracing::warn!(%error, "could not record an outcome; the service retries the work when its lease expires");
                    None
                })
            }
            Err(error) => {
                self.has_failed = true;
                tracing::error!(%error, "a work effect panicked, which is a fault of this program; the service retries it when its lease expires");
                None
            }
        }
    }

    /// Waits until all work has ended, and releases the claimed work with an outcome.
    async fn drain(&mut self) {
        while let Some(ended) = self.running.join_next().await {
            let Some(claimed) = self.settle(ended) else { continue };
            if let Err(error) = self.engine.leases.hand_over(claimed, false).await {
                tracing::debug!(%error, "could not release work at shutdown; another process claims it when its lease expires");
            }
        }
    }

    /// Starts work while slots are free, stops cancelled work, and waits for running work at shutdown.
    async fn run(mut self) {
        let engine = self.engine.clone();
        let context = &engine.context;
        loop {
            let mut failed = false;
            while !context.stopping.is_cancelled() && self.running.len() < engine.leases.workers {
                match engine.leases.claim_work().await {
                    Ok(Some(work)) => self.begin(work),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "could not claim pending work");
                        failed = true;
                        break;
                    }
                }
            }
            if context.stopping.is_cancelled() {
                break;
            }
            self.rest(failed).await;
        }
        self.stop().await;
    }

    /// Executes one work effect, and then the effects that continue its iteration, because other hosts lack its uncommitted files.
    /// Then stops the service.
    async fn run_once(mut self) -> OnceEnd {
        let engine = self.engine.clone();
        let end = match engine.leases.claim_work().await {
            Ok(None) => OnceEnd::NoWork,
            Ok(Some(work)) => self.continue_from(work).await,
            Err(error) => {
                tracing::error!(%error, "could not claim pending work");
                OnceEnd::Failed
            }
        };
        engine.context.stopping.cancel();
        self.stop().await;
        if self.has_failed { OnceEnd::Failed } else { end }
    }

    /// Executes a work effect and the effects that continue its iteration, until the service stops.
    async fn continue_from(&mut self, work: HeldClaim) -> OnceEnd {
        let engine = self.engine.clone();
        let loop_id = work.loop_id.clone();
        self.begin(work);
        while !engine.context.stopping.is_cancelled() {
            let mut failed = false;
            if self.running.is_empty() {
                let Some(id) = loop_id.as_ref().filter(|_| !self.has_failed) else { break };
                match engine.leases.claim_continuation(id).await {
                    Ok(Continuation::Claimed(work)) => self.begin(*work),
                    Ok(Continuation::Undecided) => {}
                    Ok(Continuation::Ended) => break,
                    Err(error) => {
                        tracing::warn!(%error, "could not claim pending work");
                        failed = true;
                    }
                }
            }
            self.rest(failed).await;
        }
        OnceEnd::Worked
    }

    /// Waits until work may have ended or may be available, and stops cancelled work. Starts the work that was claimed with an
    /// outcome.
    async fn rest(&mut self, failed: bool) {
        let context = &self.engine.context;
        tokio::select! {
            Some(ended) = self.running.join_next() => {
                if let Some(next) = self.settle(ended) {
                    self.begin(next);
                }
            }
            () = context.rest(self.engine.leases.pace.wait_after_step(failed), failed, &context.wake.work) => {}
        }
        stop_cancelled(&self.engine.context, &self.cancels).await;
    }

    /// Ends running work at shutdown.
    async fn stop(&mut self) {
        for cancel in self.cancels.values() {
            cancel.cancel();
        }
        let grace = self.engine.leases.pace.stop_grace;
        if tokio::time::timeout(grace, self.drain()).await.is_err() {
            tracing::warn!("work timed out at shutdown; the service retries it");
        }
    }
}

async fn stop_cancelled(context: &ServiceContext, cancels: &HashMap<i64, CancellationToken>) {
    if cancels.is_empty() {
        return;
    }
    match context.store.read(outbox::to_stop).await {
        Ok(rows) => rows.iter().filter_map(|id| cancels.get(id)).for_each(CancellationToken::cancel),
        Err(error) => tracing::warn!(%error, "could not look up cancelled work"),
    }
}

/// Stops the service after the database has failed; the next start reads the state on disk.
async fn watch(context: ServiceContext) {
    tokio::select! {
        () = context.store.failed() => {
            tracing::error!("the database no longer accepts writes; the service stops and needs a restart");
            context.stopping.cancel();
        }
        () = context.stopping.cancelled() => {}
    }
}

/// Renews the leases of the running work. A lease that was not renewed for any reason counts as lost: the heartbeat cancels the
/// work, which ends its processes, and only then asks the store whether another process has taken over. On a full disk the work
/// continues, because no process can take over. With `runs`, also records the heartbeat of the host.
async fn heartbeat(leases: Arc<Leases>, runs: bool) {
    let third = leases.pace.lease / 3;
    while !leases.context.stopping.is_cancelled() {
        if let Err(error) = leases.follow_clock_changes().await {
            tracing::warn!(%error, "could not adjust leases to a clock change");
        }
        let held = leases.held.renewed();
        for (name, fence) in not_renewed(&leases, held, runs).await {
            if leases.held.lose(&name, fence) {
                tracing::warn!(name, "the lease is lost; the service stops the work");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(third) => {}
            () = leases.context.stopping.cancelled() => {}
        }
    }
}

/// Renews leases, given by name and fencing number, and with `runs` records the heartbeat of the host; returns the leases that
/// were not renewed within a third of their duration. Sets a shared clock to the time of the database.
async fn not_renewed(leases: &Leases, held: Vec<(String, i64)>, runs: bool) -> Vec<(String, i64)> {
    let lease = leases.pace.lease;
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    let owner = leases.owner.name();
    let names = held.clone();
    let now = leases.context.clock.now();
    let host = runs.then(|| leases.host.clone());
    let watch = Stopwatch::start();
    let renewing = leases.context.store.write(move |c| {
        let lost = rows::renew(c, &owner, &names, now, lease_ms)?;
        if let Some(host) = &host {
            hosts::beat(c, host, now)?;
        }
        Ok((lost, rows::time(c, now)?))
    });
    match tokio::time::timeout(lease / 3, renewing).await {
        Ok(Ok((lost, time))) => {
            // A late answer has an old time.
            if watch.elapsed() < CLOCK_TOLERANCE {
                leases.context.clock.follow(time);
            }
            if !held.is_empty() {
                kill_point("K38");
            }
            let (lost, renewed): (Vec<_>, Vec<_>) = held.into_iter().partition(|(name, _)| lost.contains(name));
            renewed.iter().for_each(|(name, fence)| leases.held.renew(name, *fence, watch));
            lost
        }
        Ok(Err(error @ StoreError::Full { .. })) => {
            tracing::warn!(%error, "could not renew the leases");
            held.iter().for_each(|(name, fence)| leases.held.renew(name, *fence, watch));
            Vec::new()
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "could not renew the leases");
            held
        }
        Err(_) => {
            tracing::warn!("could not renew the leases in time");
            held
        }
    }
}
