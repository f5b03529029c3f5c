//! Several hosts on PostgreSQL: deliveries, steps of several control processes, takeover from a dead host, and an idle installation.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ralph_bot::clock::{Clock, Stopwatch};
use ralph_bot::domain::lifecycle::effect::{Effect, EffectQueue, WorkEffect};
use ralph_bot::domain::loops::command::{LoopCommand, Pause};
use ralph_bot::domain::loops::{CommandInput, LoopInput, LoopState};
use ralph_bot::domain::model::ids::{AccountKind, User, UserId};
use ralph_bot::store::memory::StepMemory;
use ralph_bot::store::outbox::Claimant;
use ralph_bot::store::test_server::{PostgresServer, settings};
use ralph_bot::store::{Store, inbox, loops, outbox};

use crate::ingest::{BY_CONNECTIONS, PeerServer, middle};
use crate::load::{self, Load};
use crate::report::{FigureRow, FigureTarget};
use crate::service::{BenchService, Parked, Seat};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    A server of PostgreSQL on the same machine syncs each commit. The bare handler stores the same rows over the same pool. A step is \
    a command for a paused loop; the processes do nothing else. For the takeover, the database has parked loops, some of which have \
    work that a dead host had started; its leases have expired, and one process claims all of it. The idle installation is one \
    service in all roles; transactions are counted by the server.";

const NAME: &str = "hosts";
/// First argument of a process that makes steps; the second is the address of the database.
pub const ARGUMENT: &str = "--steps";
/// Number of commands for each loop.
const COMMANDS: u64 = 10;
/// Duration of the leases in the figure of the takeover, in milliseconds.
const LEASE_MS: i64 = 30_000;

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let sizes = match run.size {
        Size::Brief => Sizes { rounds: 1, seconds: 1.0, stepping: 10, open: 50, lost: 5, idle: Duration::from_secs(2) },
        _ => Sizes { rounds: 3, seconds: 5.0, stepping: 200, open: 10_000, lost: 100, idle: Duration::from_secs(60) },
    };
    let synced = ["fsync=on", "full_page_writes=on"];
    let Some(server) = tokio::task::block_in_place(|| PostgresServer::start_with(&synced, |_| {})) else {
        run.note("PostgreSQL is missing; install the package `postgresql`".to_owned());
        return Ok(());
    };
    let databases = Databases { server, count: 0.into() };
    deliveries(run, &databases, &sizes).await?;
    steps(run, &databases, &sizes).await?;
    takeover(run, &databases, &sizes).await?;
    idle(run, &databases, &sizes).await
}

struct Sizes {
    rounds: usize,
    /// Duration of a load, in seconds.
    seconds: f64,
    /// Number of loops that make steps.
    stepping: u64,
    /// Number of open loops in the figure of the takeover.
    open: u64,
    /// Number of them with work of the dead host.
    lost: usize,
    idle: Duration,
}

struct Databases {
    server: PostgresServer,
    count: std::cell::Cell<u32>,
}

impl Databases {
    /// Creates a database; returns its address.
    fn create(&self) -> String {
        self.count.set(self.count.get() + 1);
        let name = format!("figures{}", self.count.get());
        self.server.run(&format!("CREATE DATABASE {name}"));
        self.server.address().replace("/postgres?", &format!("/{name}?"))
    }
}

async fn deliveries(run: &mut FigureRun, databases: &Databases, sizes: &Sizes) -> anyhow::Result<()> {
    for connections in BY_CONNECTIONS {
        let load = Load { count: u64::MAX, seconds: sizes.seconds, rate: 0.0, connections: *connections };
        let (mut own, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..sizes.rounds {
            let address = databases.create();
            let service = BenchService::start_on(&run.folder()?, &Seat::nobody(), "ingest", &address)?;
            let answers = load::send(service.address, load)?;
            drop(service);
            let store = Store::attach(settings(&address))?;
            let stored: u64 = store.read(inbox::counts).await?.iter().map(|(_, count)| count).sum();
            store.close().await;
            ensure!(answers.bad == 0 && stored >= answers.good, "{stored} of {} deliveries are stored", answers.good);
            own.push(answers);
            let handler = PeerServer::bare(OsStr::new(&databases.create()))?;
            bare.push(load::send(handler.address, load)?);
        }
        let (Some(own), Some(bare)) = (middle(&own), middle(&bare)) else { continue };
        let row = FigureRow::new(NAME, format!("durable deliveries over {connections} connections"), own, "/s");
        run.add(row.beside("bare axum handler, same pool", bare).target(FigureTarget::RatioAtLeast(0.8)));
    }
    Ok(())
}

async fn steps(run: &mut FigureRun, databases: &Databases, sizes: &Sizes) -> anyhow::Result<()> {
    let mut alone = None;
    for processes in [1, 2, 4] {
        let address = databases.create();
        let _forge = Parked::prepare_in(Store::open(settings(&address))?, sizes.stepping, 0).await?;
        let store = Store::attach(settings(&address))?;
        let asked = store.write(|c| {
            let by = User { id: UserId(1), login: "mira".into(), kind: AccountKind::User };
            let parked = loops::in_state(c, LoopState::Paused)?;
            for (round, parked) in (0..COMMANDS).flat_map(|round| parked.iter().map(move |parked| (round, parked))) {
                let command = LoopCommand::Pause(Pause { now: false, reason: String::new() });
                let input = LoopInput::Command(CommandInput::Given { by: by.clone(), command, comment: None });
                let origin = format!("figures/{}/{round}", parked.id);
                loops::enqueue_input(c, &parked.id, &origin, &input, Clock::System.now())?;
            }
            Ok(parked.len() as u64 * COMMANDS)
        });
        let asked = asked.await?;
        store.close().await;
        let rate = asked as f64 / tokio::task::block_in_place(|| step_all(&address, processes, asked))?.as_secs_f64();
        let row = FigureRow::new(NAME, format!("steps by {processes} control processes"), rate, "/s");
        run.add(match alone {
            Some(alone) => row.beside("one process", alone),
            None => row,
        });
        alone.get_or_insert(rate);
    }
    Ok(())
}

/// Lets several processes make all steps; returns the time.
fn step_all(address: &str, processes: usize, asked: u64) -> anyhow::Result<Duration> {
    let start = || -> anyhow::Result<_> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args([ARGUMENT, address]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("a pipe")?);
        output.read_line(&mut String::new())?;
        Ok((child, output))
    };
    let mut started = (0..processes).map(|_| start()).collect::<anyhow::Result<Vec<_>>>()?;
    let watch = Stopwatch::start();
    for (child, _) in &mut started {
        child.stdin.take().context("a pipe")?.write_all(b"go\n")?;
    }
    let mut made = 0;
    for (child, output) in &mut started {
        let mut line = String::new();
        output.read_line(&mut line)?;
        made += line.trim().parse::<u64>().context("a number of steps")?;
        child.wait()?;
    }
    ensure!(made == asked, "{made} of {asked} steps were made");
    Ok(watch.elapsed())
}

/// Main function of a process that makes steps until no input waits, and prints their number.
pub async fn make_steps(arguments: &[String]) -> anyhow::Result<()> {
    let [address] = arguments else { bail!("an address is needed") };
    let store = Store::attach(settings(address))?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let mut made = 0;
    while store.write(|c| Ok(loops::step_next(c, &[], &StepMemory::default(), Clock::System.now())?.is_some())).await? {
        made += 1;
    }
    println!("{made}");
    store.close().await;
    Ok(())
}

async fn takeover(run: &mut FigureRun, databases: &Databases, sizes: &Sizes) -> anyhow::Result<()> {
    let address = databases.create();
    let _forge = Parked::prepare_in(Store::open(settings(&address))?, sizes.open, 0).await?;
    let store = Store::attach(settings(&address))?;
    let lost = sizes.lost;
    let enqueued = store.write(move |c| {
        let now = Clock::System.now();
        for parked in loops::in_state(c, LoopState::Paused)?.iter().take(lost) {
            let work = Effect::from(WorkEffect::Prepare { ticket: 1 });
            outbox::enqueue(c, parked.id.as_str(), Some(&parked.id), &parked.issue, &work, now)?;
        }
        Ok(())
    });
    enqueued.await?;
    let claimed = claim_all(&store, "dead").await?;
    ensure!(claimed == lost, "{claimed} of {lost} were claimed");
    store.write(|c| ralph_bot::store::leases::end_all(c, "dead").map(drop)).await?;
    let watch = Stopwatch::start();
    let taken = claim_all(&store, "alive").await?;
    let took = watch.elapsed();
    ensure!(taken == lost, "{taken} of {lost} were taken over");
    store.close().await;
    let what = format!("takeover of the work of {lost} loops among {} open ones", sizes.open);
    run.add(FigureRow::new(NAME, what, took.as_secs_f64(), "s").target(FigureTarget::AtMost(2.0)));
    Ok(())
}

/// Claims work for a process until there is none; returns its number.
async fn claim_all(store: &Store, owner: &'static str) -> anyhow::Result<usize> {
    let mut claimed = 0;
    loop {
        let next = store.write(move |c| {
            let (queue, by) = (EffectQueue::Work.as_str(), Claimant::without_host(owner));
            outbox::claim(c, queue, |_, _| true, &by, Clock::System.now(), LEASE_MS)
        });
        match next.await? {
            Some(_) => claimed += 1,
            None => return Ok(claimed),
        }
    }
}

async fn idle(run: &mut FigureRun, databases: &Databases, sizes: &Sizes) -> anyhow::Result<()> {
    let address = databases.create();
    let parked = Parked::prepare_in(Store::open(settings(&address))?, 0, 0).await?;
    let service = BenchService::start_on(&run.folder()?, &parked.seat, "all", &address)?;
    let store = Store::attach(settings(&address))?;
    let transactions = || {
        let sql = "SELECT CAST(xact_commit + xact_rollback AS BIGINT) FROM pg_stat_database WHERE datname = current_database()";
        store.read(move |c| Ok(c.query_row(sql, [], |row| row.get::<_, i64>(0))?))
    };
    tokio::time::sleep(sizes.idle / 10).await;
    let (before, watch) = (transactions().await?, Stopwatch::start());
    tokio::time::sleep(sizes.idle).await;
    let rate = (transactions().await? - before) as f64 / watch.elapsed().as_secs_f64();
    drop(service);
    store.close().await;
    run.add(FigureRow::new(NAME, "transactions of an idle service", rate, "/s"));
    Ok(())
}
