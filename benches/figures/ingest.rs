//! Ingest of deliveries: throughput, latency, and durability.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::Context;

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
    connections. Response times start at the planned time of a request.";

const NAME: &str = "ingest";
/// Library that delays sync calls like a slow disk.
const SLOW_DISK: &str = r#"#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static int later(const char *name, int file) {
    int (*sync)(int) = dlsym(RTLD_NEXT, name);
    int done = sync(file);
    usleep(5000);
    return done;
}
int fsync(int file) { return later("fsync", file); }
int fdatasync(int file) { return later("fdatasync", file); }
"#;
/// Number of connections at which a delayed sync does not limit the throughput.
const MANY: usize = 512;
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
    let slow_disk = slow_disk(run);
    if let Err(error) = &slow_disk {
        run.note(format!("no run with delayed syncs: {error:#}"));
    }
    let (mut own, mut slow, mut peer, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut slow_of_many, mut peer_of_many) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        own.push(measured(run, &[], full)?);
        for (script, runs) in [(PROBOT, &mut peer), (MIDDLEWARE, &mut bare)] {
            match Probot::start(script) {
                Ok(probot) => runs.push(load::send(probot.address, full)?),
                Err(error) => run.note(format!("no comparison with probot: {error:#}")),
            }
        }
        if let Ok(preload) = &slow_disk {
            slow.push(measured(run, &["env", preload], full)?);
            slow_of_many.push(measured(run, &["env", preload], many)?);
            if let Ok(probot) = Probot::start(PROBOT) {
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
    pace(run, Load { rate: 100.0, ..full })?;
    let folder = run.folder()?;
    let service = BenchService::start(&folder, &Seat::nobody(), "ingest", &[])?;
    let answers = load::send(service.address, Load { count: burst, seconds: 60.0, ..full })?;
    drop(service);
    let lost = burst as f64 - service::stored(&folder).await? as f64;
    let what = format!("deliveries lost of a burst of {burst}, killed after the last answer");
    run.add(FigureRow::new(NAME, what, lost, "deliveries").target(FigureTarget::AtMost(0.0)));
    run.add(FigureRow::new(NAME, format!("time for that burst ({} refused)", answers.bad), answers.seconds, "s"));
    Ok(())
}

/// Measures the latency at a constant rate far below the maximum.
fn pace(run: &mut FigureRun, even: Load) -> anyhow::Result<()> {
    let service = BenchService::start(&run.folder()?, &Seat::nobody(), "ingest", &[])?;
    let own = load::send(service.address, even)?;
    drop(service);
    anyhow::ensure!(own.bad == 0, "{} deliveries were refused", own.bad);
    let peer = Probot::start(PROBOT).and_then(|probot| load::send(probot.address, even)).ok();
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
fn middle(runs: &[LoadAnswers]) -> Option<f64> {
    let mut rates: Vec<f64> = runs.iter().map(LoadAnswers::rate).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

/// Folder with third-party programs.
fn parts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/parts")
}

/// Running probot.
pub struct Probot {
    child: Child,
    address: SocketAddr,
}

impl Probot {
    /// Starts probot. Returns an error if it is not installed.
    pub fn start(source: &str) -> anyhow::Result<Self> {
        let parts = parts();
        let missing = "install it with `npm install --prefix target/parts --no-audit --no-fund --no-save probot@14`";
        anyhow::ensure!(parts.join("node_modules/probot").is_dir(), missing);
        let script = parts.join("acknowledge.mjs");
        std::fs::write(&script, source)?;
        let mut command = Command::new("node");
        command.arg(&script).env("SECRET", SECRET).env("NODE_ENV", "production");
        let (child, line) = service::first_line(command).context("node")?;
        let mut probot = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        probot.address = line.trim().parse().context("probot did not start")?;
        Ok(probot)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Probot {
    fn drop(&mut self) {
        service::end(&mut self.child);
    }
}
