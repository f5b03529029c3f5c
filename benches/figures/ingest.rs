//! Ingest of deliveries: throughput, latency, and durability.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::Context;

use crate::bare;
use crate::load::{self, CONNECTIONS, Load, LoadAnswers};
use crate::report::{FigureRow, FigureTarget};
use crate::service::{self, BenchService, SECRET, Seat};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The real binary `serve --role ingest` stores and syncs signed bodies of 8 KiB with distinct ids over 64 \
    keep-alive connections before it answers 202. The baselines are `probot` 14 with one empty handler, which \
    verifies and stores nothing, and its middleware alone. Runs alternate, and the figures are medians. The delay \
    adds 5 ms to each sync; it limits 64 connections to 12,800 deliveries per second, but does not limit 512 \
    connections. The bare handler stores the same rows by the same store, without signatures, limits and other routes. \
    For latencies by the duration of a sync, the database lies in memory, and 80 % is the share of the throughput of the \
    same server; at 100/s, the target is 3 ms beside the sync. Response times start at the planned time of a request.";

const NAME: &str = "ingest";
/// Library that delays sync calls like a slow disk.
const SLOW_DISK: &str = r#"#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
static int later(const char *name, int file) {
    int (*sync)(int) = dlsym(RTLD_NEXT, name);
    int done = sync(file);
    usleep(atoi(getenv("SYNC_DELAY_US")));
    return done;
}
int fsync(int file) { return later("fsync", file); }
int fdatasync(int file) { return later("fdatasync", file); }
"#;
/// Number of connections at which a delayed sync does not limit the throughput.
const MANY: usize = 512;
/// Numbers of connections of the comparison with the bare handler.
pub const BY_CONNECTIONS: &[usize] = &[1, 16, 64, 256];
/// Durations of a sync in the figures of latency, in microseconds.
const SYNC_DELAYS_US: &[u32] = &[100, 1_000, 5_000];
/// `probot` as started by `probot run`, without logging.
pub const PROBOT: &str = r#"import { createServer } from "node:net";
import { generateKeyPairSync } from "node:crypto";
import { pino } from "pino";
import { Probot, Server } from "probot";
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const key = privateKey.export({ type: "pkcs8", format: "pem" });
const free = createServer().listen(0, "127.0.0.1", async () => {
  const { port } = free.address();
  free.close();
  const log = pino({ level: "info" }, pino.destination("/dev/null"));
  const own = Probot.defaults({ appId: 1, privateKey: key, secret: process.env.SECRET, log });
  const server = new Server({ host: "127.0.0.1", port, webhookPath: "/webhooks/github", log, Probot: own });
  await server.load((app) => { app.on("issues", async () => {}); });
  await server.start();
  console.log(`127.0.0.1:${port}`);
});
"#;
/// Middleware of `probot` in a plain Node server, without logging and other routes.
const MIDDLEWARE: &str = r#"import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import { Probot, createNodeMiddleware } from "probot";
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const key = privateKey.export({ type: "pkcs8", format: "pem" });
const probot = new Probot({ appId: 1, privateKey: key, secret: process.env.SECRET, logLevel: "fatal" });
const act = (app) => { app.on("issues", async () => {}); };
const middleware = await createNodeMiddleware(act, { probot, webhooksPath: "/webhooks/github" });
const server = createServer((request, response) => middleware(request, response, () => response.writeHead(404).end()));
server.listen(0, "127.0.0.1", () => console.log(`127.0.0.1:${server.address().port}`));
"#;

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let (rounds, seconds, burst) = match run.size {
        Size::Brief => (1, 1.0, 500),
        _ => (3, 5.0, 10_000),
    };
    let full = Load { count: u64::MAX, seconds, rate: 0.0, connections: CONNECTIONS };
    let many = Load { connections: MANY, ..full };
    let preload = slow_disk(run);
    let slow_disk = preload.as_ref().map(|library| [library.as_str(), "SYNC_DELAY_US=5000"]);
    if let Err(error) = &slow_disk {
        run.note(format!("no run with delayed syncs: {error:#}"));
    }
    let (mut own, mut slow, mut peer, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut slow_of_many, mut peer_of_many) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        own.push(measured(run, &[], full)?);
        for (script, runs) in [(PROBOT, &mut peer), (MIDDLEWARE, &mut bare)] {
            match PeerServer::probot(script) {
                Ok(probot) => runs.push(load::send(probot.address, full)?),
                Err(error) => run.note(format!("no comparison with probot: {error:#}")),
            }
        }
        if let Ok([library, delay]) = slow_disk {
            slow.push(measured(run, &["env", library, delay], full)?);
            slow_of_many.push(measured(run, &["env", library, delay], many)?);
            if let Ok(probot) = PeerServer::probot(PROBOT) {
                peer_of_many.push(load::send(probot.address, many)?);
            }
        }
    }
    let (peer, peer_of_many) = (middle(&peer), middle(&peer_of_many));
    for (what, answers, peer) in [
        ("durable deliveries", middle(&own), peer),
        ("the same, each sync delayed by 5 ms", middle(&slow), peer),
        ("the same over 512 connections", middle(&slow_of_many), peer_of_many),
    ] {
        let Some(rate) = answers else { continue };
        let row = FigureRow::new(NAME, what, rate, "/s");
        run.add(match peer {
            Some(peer) => row.beside("probot, which stores nothing", peer).target(FigureTarget::RatioAtLeast(3.0)),
            None => row,
        });
    }
    if let (Some(own), Some(bare)) = (middle(&own), middle(&bare)) {
        run.add(
            FigureRow::new(NAME, "durable deliveries, against the middleware", own, "/s")
                .beside("probot's middleware alone", bare),
        );
    }
    beside_the_bare_handler(run, rounds, full)?;
    pace(run, Load { rate: 100.0, ..full })?;
    if let Ok(library) = &preload {
        for delay in SYNC_DELAYS_US {
            latency_by_sync(run, library, *delay, full)?;
        }
    }
    let folder = run.folder()?;
    let service = BenchService::start(&folder, &Seat::nobody(), "ingest", &[])?;
    let answers = load::send(service.address, Load { count: burst, seconds: 60.0, ..full })?;
    drop(service);
    let lost = burst as f64 - service::stored(&folder).await? as f64;
    let what = format!("lost deliveries of a burst of {burst}, with a kill after the last answer");
    run.add(FigureRow::new(NAME, what, lost, "deliveries").target(FigureTarget::AtMost(0.0)));
    run.add(FigureRow::new(NAME, format!("time for that burst ({} refused)", answers.bad), answers.seconds, "s"));
    Ok(())
}

/// Measures the throughput by number of connections, each beside the bare handler.
fn beside_the_bare_handler(run: &mut FigureRun, rounds: usize, full: Load) -> anyhow::Result<()> {
    for connections in BY_CONNECTIONS {
        let load = Load { connections: *connections, ..full };
        let (mut own, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            own.push(measured(run, &[], load)?);
            let handler = PeerServer::bare(run.folder()?.as_os_str())?;
            bare.push(load::send(handler.address, load)?);
        }
        let (Some(own), Some(bare)) = (middle(&own), middle(&bare)) else { continue };
        let what = format!("durable deliveries over {connections} connections");
        let row = FigureRow::new(NAME, what, own, "/s").beside("bare axum handler, same group commit", bare);
        run.add(row.target(FigureTarget::RatioAtLeast(0.9)));
    }
    Ok(())
}

/// Measures the latency at 100 deliveries per second and at 80 % of saturation, with a database in memory whose syncs take a
/// given time.
fn latency_by_sync(run: &mut FigureRun, library: &str, delay_us: u32, full: Load) -> anyhow::Result<()> {
    let delay = format!("SYNC_DELAY_US={delay_us}");
    let memory = || tempfile::Builder::new().prefix("figures-").tempdir_in("/dev/shm");
    let measured = |load: Load| -> anyhow::Result<LoadAnswers> {
        let folder = memory()?;
        let service = BenchService::start(folder.path(), &Seat::nobody(), "ingest", &["env", library, &delay])?;
        let answers = load::send(service.address, load)?;
        anyhow::ensure!(answers.bad == 0, "{} deliveries were refused", answers.bad);
        Ok(answers)
    };
    let sync = f64::from(delay_us) / 1e3;
    let quiet = measured(Load { rate: 100.0, ..full })?;
    let what = format!("answer at 100/s, each sync {sync} ms, 99th percentile");
    run.add(FigureRow::new(NAME, what, quiet.p99_ms, "ms").target(FigureTarget::AtMost(3.0 + sync)));
    let saturation = measured(full)?.rate();
    let busy = measured(Load { rate: 0.8 * saturation, ..full })?;
    let what = format!("answer at 80 % of {saturation:.0}/s, each sync {sync} ms, 99th percentile");
    run.add(FigureRow::new(NAME, what, busy.p99_ms, "ms").target(FigureTarget::AtMost(20.0)));
    Ok(())
}

/// Measures the latency at a constant rate far below the maximum.
fn pace(run: &mut FigureRun, even: Load) -> anyhow::Result<()> {
    let service = BenchService::start(&run.folder()?, &Seat::nobody(), "ingest", &[])?;
    let own = load::send(service.address, even)?;
    drop(service);
    anyhow::ensure!(own.bad == 0, "{} deliveries were refused", own.bad);
    let peer = PeerServer::probot(PROBOT).and_then(|probot| load::send(probot.address, even)).ok();
    for (what, own, peer, target) in [
        ("answer at 100/s, median", own.p50_ms, peer.as_ref().map(|p| p.p50_ms), FigureTarget::None),
        ("answer at 100/s, 99th percentile", own.p99_ms, peer.as_ref().map(|p| p.p99_ms), FigureTarget::Below(25.0)),
    ] {
        let row = FigureRow::new(NAME, what, own, "ms").target(target);
        run.add(match peer {
            Some(peer) => row.beside("probot, which stores nothing", peer),
            None => row,
        });
    }
    Ok(())
}

/// Builds the library that delays syncs; returns the environment variable that preloads it.
fn slow_disk(run: &FigureRun) -> anyhow::Result<String> {
    let folder = run.folder()?;
    let (source, library) = (folder.join("slow.c"), folder.join("slow.so"));
    std::fs::write(&source, SLOW_DISK)?;
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").output();
    let made = made.context("there is no C compiler")?;
    anyhow::ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok(format!("LD_PRELOAD={}", library.display()))
}

fn measured(run: &FigureRun, wrap: &[&str], load: Load) -> anyhow::Result<LoadAnswers> {
    let service = BenchService::start(&run.folder()?, &Seat::nobody(), "ingest", wrap)?;
    let answers = load::send(service.address, load)?;
    anyhow::ensure!(answers.bad == 0, "{} deliveries were refused", answers.bad);
    Ok(answers)
}

/// Returns the median rate of several runs; `None` without runs.
pub fn middle(runs: &[LoadAnswers]) -> Option<f64> {
    let mut rates: Vec<f64> = runs.iter().map(LoadAnswers::rate).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

/// Folder with third-party programs.
fn parts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/parts")
}

/// Running server to compare with; dropping it kills the process.
pub struct PeerServer {
    child: Child,
    pub address: SocketAddr,
}

impl PeerServer {
    /// Starts probot. Returns an error if it is not installed.
    pub fn probot(source: &str) -> anyhow::Result<Self> {
        let parts = parts();
        let missing = "install it with `npm install --prefix target/parts --no-audit --no-fund --no-save probot@14`";
        anyhow::ensure!(parts.join("node_modules/probot").is_dir(), missing);
        let script = parts.join("acknowledge.mjs");
        std::fs::write(&script, source)?;
        let mut command = Command::new("node");
        command.arg(&script).env("SECRET", SECRET).env("NODE_ENV", "production");
        Self::start(command).context("probot")
    }

    /// Starts the bare handler with a database in a folder, or on a server of PostgreSQL.
    pub fn bare(database: &OsStr) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(bare::ARGUMENT).arg(database);
        Self::start(command).context("the bare handler")
    }

    fn start(command: Command) -> anyhow::Result<Self> {
        let (child, line) = service::first_line(command)?;
        let mut server = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        server.address = line.trim().parse().context("it did not start")?;
        Ok(server)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        service::end(&mut self.child);
    }
}
