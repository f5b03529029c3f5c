//! Faults of hosts and of the database, at random times.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ralph_bot::clock::Clock;
use ralph_bot::domain::model::ids::Timestamp;
use rustix::process::Signal;
use tokio::task::{JoinHandle, spawn_blocking};

use super::machines::{Cut, HOSTS, HostMachine};
use super::servers::Servers;
use super::{ChaosStory, LEASE};

/// Interval at which the state of the hosts is looked at.
const TICK: Duration = Duration::from_millis(50);
/// Maximum time between two faults.
const GAP_MS: u64 = 6_000;
/// Change of a clock, in seconds.
const CLOCK_CHANGE: i64 = 600;
/// Time within which a service manager starts an ended service again.
const RESTART: Duration = Duration::from_millis(500);

/// Kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    KillService,
    KillHost,
    PauseService,
    PauseHost,
    CutDatabase,
    CutForge,
    Clock,
    Upgrade,
    RestartDatabase,
    Failover,
}

impl FaultKind {
    const ALL: [Self; 10] = [
        Self::KillService,
        Self::KillHost,
        Self::PauseService,
        Self::PauseHost,
        Self::CutDatabase,
        Self::CutForge,
        Self::Clock,
        Self::Upgrade,
        Self::RestartDatabase,
        Self::Failover,
    ];

    fn is_of_database(self) -> bool {
        matches!(self, Self::RestartDatabase | Self::Failover)
    }

    /// Whether the fault may cost the iterations that run on its hosts.
    fn costs_iterations(self) -> bool {
        !matches!(self, Self::CutForge | Self::Clock)
    }
}

/// Fault that happened.
#[derive(Debug, Clone)]
pub struct Fault {
    pub kind: FaultKind,
    /// Index of the host; `None` for a fault of the database.
    pub host: Option<usize>,
    pub from: Timestamp,
    /// `None` while it lasts.
    pub until: Option<Timestamp>,
}

impl Fault {
    /// Whether the fault may have cost an iteration on a host that started and was repeated at these times.
    pub fn explains(&self, host: usize, started: Timestamp, repeated: Timestamp) -> bool {
        let lease = i64::try_from(LEASE.as_millis()).expect("in range");
        self.kind.costs_iterations()
            && self.host.is_none_or(|of| of == host)
            && self.from <= repeated
            && self.until.is_none_or(|until| until.plus_ms(lease) >= started)
    }
}

/// State of a host.
#[derive(Debug, Clone, Copy)]
enum Healing {
    /// Nothing: it works since then.
    Works(Instant),
    /// The end of the fault, at a time.
    At(Instant),
    /// The end of the service, which then starts in the other version.
    Upgrades,
    /// The start of an ended service, at a time. No fault of the plan caused the end.
    Restarts(Instant),
}

/// Whether hosts and database work, and since when.
#[derive(Debug, Clone, Copy)]
pub struct HostHealth {
    pub hosts: [Option<Instant>; HOSTS],
    pub database: Option<Instant>,
}

/// Hosts with their faults.
pub struct Chaos {
    pub machines: Vec<HostMachine>,
    servers: Arc<Mutex<Servers>>,
    /// Running fault of the servers.
    operation: Option<JoinHandle<()>>,
    hosts: [Healing; HOSTS],
    /// Time since which the database works.
    database: Option<Instant>,
    random: fastrand::Rng,
    pub faults: Vec<Fault>,
    /// Number of services that ended without a fault of the plan, by host.
    pub exits: Vec<String>,
}

impl Chaos {
    /// Starts the services of all hosts.
    pub async fn new(story: &ChaosStory, mut machines: Vec<HostMachine>, servers: Servers, seed: u64) -> Self {
        for machine in &mut machines {
            machine.start(&story.service).await;
        }
        let now = Instant::now();
        let random = fastrand::Rng::with_seed(seed);
        Self {
            machines,
            servers: Arc::new(Mutex::new(servers)),
            operation: None,
            hosts: [Healing::Works(now); HOSTS],
            database: Some(now),
            random,
            faults: Vec::new(),
            exits: Vec::new(),
        }
    }

    /// Applies `count` faults, then waits until all have ended.
    pub async fn run(&mut self, story: &ChaosStory, count: usize) {
        let mut next = Instant::now() + RESTART;
        let mut last_kinds: Vec<FaultKind> = Vec::new();
        while self.faults.len() < count || self.health().hosts.contains(&None) || self.health().database.is_none() {
            self.heal(story).await;
            if self.faults.len() < count && Instant::now() >= next {
                // Each kind occurs once before any occurs again.
                if last_kinds.is_empty() {
                    last_kinds = FaultKind::ALL.to_vec();
                    self.random.shuffle(&mut last_kinds);
                }
                let kind = last_kinds[last_kinds.len() - 1];
                if self.begin(story, kind).await {
                    last_kinds.pop();
                    next = Instant::now() + Duration::from_millis(self.random.u64(..GAP_MS));
                }
            }
            story.watch.set(self.health());
            tokio::time::sleep(TICK).await;
        }
    }

    /// Starts services that end, as a service manager does; never returns.
    pub async fn keep_running(&mut self, story: &ChaosStory) {
        loop {
            self.heal(story).await;
            story.watch.set(self.health());
            tokio::time::sleep(TICK).await;
        }
    }

    pub fn health(&self) -> HostHealth {
        let works = |healing: Healing| match healing {
            Healing::Works(since) => Some(since),
            _ => None,
        };
        HostHealth { hosts: self.hosts.map(works), database: self.database }
    }

    /// Number of faults by kind.
    pub fn counts(&self) -> BTreeMap<FaultKind, usize> {
        self.faults.iter().fold(BTreeMap::new(), |mut counts, fault| {
            *counts.entry(fault.kind).or_default() += 1;
            counts
        })
    }

    fn up_to(&mut self, limit: Duration) -> Instant {
        let limit = u64::try_from(limit.as_millis()).expect("in range");
        Instant::now() + Duration::from_millis(self.random.u64(200..limit))
    }

    /// Starts a fault; returns `false` if everything that it could hit has another one.
    async fn begin(&mut self, story: &ChaosStory, kind: FaultKind) -> bool {
        let from = Clock::System.now();
        let hit = if kind.is_of_database() {
            self.begin_on_database(story, kind).then_some(None)
        } else {
            let free: Vec<usize> = (0..HOSTS).filter(|host| matches!(self.hosts[*host], Healing::Works(_))).collect();
            match self.random.choice(free) {
                Some(host) => self.begin_on_host(story, kind, host).await.then_some(Some(host)),
                None => None,
            }
        };
        let Some(host) = hit else { return false };
        let until = (kind == FaultKind::Clock).then_some(from);
        self.faults.push(Fault { kind, host, from, until });
        true
    }

    /// Starts a fault of the servers, which other faults do not wait for.
    fn begin_on_database(&mut self, story: &ChaosStory, kind: FaultKind) -> bool {
        if self.database.take().is_none() {
            return false;
        }
        let down = self.up_to(LEASE / 3) - Instant::now();
        let servers = self.servers.clone();
        self.operation = Some(spawn_blocking(move || {
            let mut servers = servers.lock().expect("not poisoned");
            servers.crash();
            if kind == FaultKind::Failover {
                servers.promote();
                servers.follow();
            } else {
                std::thread::sleep(down);
                servers.restart();
            }
        }));
        story.note(&format!("{kind:?}"));
        true
    }

    async fn begin_on_host(&mut self, story: &ChaosStory, kind: FaultKind, host: usize) -> bool {
        // Half of the services start again before their leases expire.
        let short = self.random.bool();
        let down = self.up_to(if short { LEASE / 6 } else { LEASE * 5 / 4 });
        let paused = self.up_to(LEASE / 4) + LEASE;
        let cut = self.up_to(LEASE * 5 / 4);
        let machine = &mut self.machines[host];
        if machine.has_ended() {
            return false;
        }
        self.hosts[host] = match kind {
            FaultKind::KillService => {
                machine.signal_service(Signal::KILL).await;
                Healing::At(down)
            }
            FaultKind::KillHost => {
                machine.lose().await;
                Healing::At(down)
            }
            FaultKind::PauseService => {
                machine.signal_service(Signal::STOP).await;
                Healing::At(paused)
            }
            FaultKind::PauseHost => {
                machine.signal_all(Signal::STOP).await;
                Healing::At(paused)
            }
            FaultKind::CutDatabase => {
                machine.cut(Cut::Database, true).await;
                Healing::At(cut)
            }
            FaultKind::CutForge => {
                machine.cut(Cut::Forge, true).await;
                Healing::At(cut)
            }
            FaultKind::Upgrade => {
                machine.signal_service(Signal::TERM).await;
                Healing::Upgrades
            }
            FaultKind::Clock => {
                let others = [-CLOCK_CHANGE, 0, CLOCK_CHANGE];
                let others = others.into_iter().filter(|other| *other != machine.clock_ahead());
                let to = self.random.choice(others.collect::<Vec<_>>()).expect("two others");
                machine.set_clock_ahead(to);
                self.hosts[host]
            }
            FaultKind::RestartDatabase | FaultKind::Failover => unreachable!("a fault of the database"),
        };
        story.note(&format!("{kind:?} of host-{host}"));
        true
    }

    /// Ends faults whose time is over, and starts services that have ended.
    async fn heal(&mut self, story: &ChaosStory) {
        for host in 0..HOSTS {
            let now = Instant::now();
            let machine = &mut self.machines[host];
            let ended = match self.hosts[host] {
                Healing::Works(_) if machine.has_ended() => {
                    self.exits.push(format!("{} at {}", machine.name, Clock::System.now().0));
                    self.hosts[host] = Healing::Restarts(now + RESTART);
                    continue;
                }
                Healing::Works(_) => continue,
                Healing::Restarts(at) if now >= at => {
                    machine.start(&story.service).await;
                    self.hosts[host] = Healing::Works(Instant::now());
                    continue;
                }
                Healing::Upgrades if machine.has_ended() => {
                    machine.version = 1 - machine.version;
                    true
                }
                Healing::At(at) => now >= at,
                Healing::Upgrades | Healing::Restarts(_) => false,
            };
            if ended {
                self.end(story, host).await;
            }
        }
        if let Some(ended) = self.operation.take_if(|operation| operation.is_finished()) {
            ended.await.expect("the servers work again");
            let fault = self.faults.iter_mut().rev().find(|fault| fault.host.is_none()).expect("its fault");
            fault.until = Some(Clock::System.now());
            story.note(&format!("end of {:?}", fault.kind));
            self.database = Some(Instant::now());
        }
    }

    /// Ends the fault of a host.
    async fn end(&mut self, story: &ChaosStory, host: usize) {
        let mut of_host = self.faults.iter_mut().rev().filter(|fault| fault.host == Some(host));
        let fault = of_host.find(|fault| fault.until.is_none()).expect("its fault");
        let machine = &mut self.machines[host];
        match fault.kind {
            FaultKind::PauseService => machine.signal_service(Signal::CONT).await,
            FaultKind::PauseHost => machine.signal_all(Signal::CONT).await,
            FaultKind::CutDatabase => machine.cut(Cut::Database, false).await,
            FaultKind::CutForge => machine.cut(Cut::Forge, false).await,
            _ => {}
        }
        if machine.has_ended() {
            machine.start(&story.service).await;
        }
        fault.until = Some(Clock::System.now());
        story.note(&format!("end of {:?} of host-{host}", fault.kind));
        self.hosts[host] = Healing::Works(Instant::now());
    }
}
