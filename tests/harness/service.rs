//! The real binary as one or several processes on a world: started, killed, started again, looked at from outside.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use ralph_bot::domain::loops::Loop;
use ralph_bot::failpoint;
use ralph_bot::store::{Store, facts, inbox, loops, outbox};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

use super::invariants::invariants;
use super::parts;
use super::setup::{SECRET, Setup};
use super::world::World;

/// Longest wait for anything here; the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(25);
/// Quick, so that a story takes seconds.
const QUICK: &str = "engine: { poll_ms: 50, ambiguity_wait_ms: 100, retry_first_ms: 50, mutation_interval_ms: 0 }";

/// A world and where its service listens.
pub struct Service {
    pub world: World,
    pub port: u16,
    store: OnceCell<Store>,
    resent: std::sync::Mutex<HashSet<usize>>,
}

/// A port that nobody listens on, outside of the range that outgoing connections take theirs from.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 100).expect("small") * 100;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::SeqCst)) % 10_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

impl Service {
    /// A world without processes yet. Without a sandbox a killed service leaves more behind, and starts sooner.
    pub async fn new(setup: Setup, sandboxed: bool) -> Self {
        let world = World::without_service(setup.config(QUICK), true).await;
        let port = free_port();
        let text = world.config_text(&format!("127.0.0.1:{port}"), sandboxed);
        std::fs::write(world.folder.path().join("ralph-control.yaml"), text).expect("the operator's file");
        let service = Self { world, port, store: OnceCell::new(), resent: std::sync::Mutex::default() };
        let hook = format!("http://127.0.0.1:{port}/webhooks/forge");
        service.world.forge.add_hook(service.world.repo, &hook, SECRET).await.expect("the hook is made");
        service
    }

    /// Starts a process in a role, told to die at a kill point where one is named.
    pub fn spawn(&self, role: &str, kill: Option<&str>) -> Child {
        self.spawn_with(role, kill, None)
    }

    /// Starts a whole service on the same database that listens on another port.
    pub fn spawn_elsewhere(&self, port: u16) -> Child {
        self.spawn_with("all", None, Some(format!("127.0.0.1:{port}")))
    }

    /// Starts a whole service whose system calls are tampered with; `None` where there is no strace, which has been said
    /// then.
    pub fn spawn_tampered(&self, inject: &str) -> Option<Child> {
        let calls = inject.split(':').next().unwrap_or_default();
        let options = ["-qq", "-e", &format!("trace={calls}"), "-e", &format!("inject={inject}")];
        self.spawn_traced(&self.world.folder.path().join("strace.log"), &options, "all")
    }

    /// Starts a process in a role under strace, which writes to `log`; `None` where there is none, which has been said
    /// then. The process is the service itself: strace watches from beside it.
    pub fn spawn_traced(&self, log: &Path, options: &[&str], role: &str) -> Option<Child> {
        let strace = parts::program(&["strace"], "install the package strace")?;
        let mut command = Command::new(strace);
        command.args(["-D", "-f", "-o"]).arg(log).args(options).arg(env!("CARGO_BIN_EXE_ralph-bot"));
        Some(self.start(command, role, None, None))
    }

    #[expect(clippy::disallowed_methods, reason = "the real binary, seen from outside")]
    fn spawn_with(&self, role: &str, kill: Option<&str>, listen: Option<String>) -> Child {
        self.start(Command::new(env!("CARGO_BIN_EXE_ralph-bot")), role, kill, listen)
    }

    fn start(&self, mut command: Command, role: &str, kill: Option<&str>, listen: Option<String>) -> Child {
        let folder = self.world.folder.path();
        let log = std::fs::File::options().create(true).append(true).open(self.log_path()).expect("a log");
        command.arg("--config").arg(folder.join("ralph-control.yaml")).args(["serve", "--role", role]);
        command.current_dir(folder).env_clear().envs(self.world.environment());
        command.env("RALPH_LOG", "info").envs(kill.map(|point| (failpoint::VARIABLE, point)));
        command.envs(listen.map(|address| ("RALPH_SERVER__LISTEN", address)));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log).kill_on_drop(true);
        command.spawn().expect("the binary starts")
    }

    /// Starts a whole service that has a disk of so many MiB for some folders of its data; `None` where a process cannot
    /// have mounts of its own, which has been said then.
    pub async fn spawn_with_disk(&self, folders: &[&str], mib: u32) -> Option<Child> {
        let unshare = parts::program(&["unshare"], "install util-linux")?;
        let data = self.world.folder.path().join("data");
        std::fs::create_dir_all(data.join("small")).expect("a folder");
        for folder in folders {
            std::os::unix::fs::symlink(data.join("small").join(folder), data.join(folder)).expect("a link");
        }
        let (at, all) = (data.join("small").display().to_string(), folders.join(" "));
        let mount =
            format!("mount -t tmpfs -o size={mib}m none '{at}' && (cd '{at}' && mkdir {all}) && exec \"$0\" \"$@\"");
        let command = |program: &str| {
            let mut command = Command::new(&unshare);
            command.args(["--map-root-user", "--mount", "sh", "-c", &mount, program]);
            command
        };
        if !command("true").status().await.expect("it starts").success() {
            assert!(parts::setting("CI").is_none(), "user namespaces are needed, as for the sandbox");
            eprintln!("skipped: no mounts of its own for a process here");
            return None;
        }
        Some(self.start(command(env!("CARGO_BIN_EXE_ralph-bot")), "all", None, None))
    }

    /// Copies the database by a process of its own, told to die at a kill point where one is named.
    #[expect(clippy::disallowed_methods, reason = "the real binary, seen from outside")]
    pub async fn backup(&self, to: &Path, kill: Option<&str>) -> ExitStatus {
        let folder = self.world.folder.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ralph-bot"));
        command.arg("--config").arg(folder.join("ralph-control.yaml")).arg("backup").arg(to);
        command.current_dir(folder).env_clear().envs(self.world.environment());
        command.envs(kill.map(|point| (failpoint::VARIABLE, point)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command.status().await.expect("the binary starts")
    }

    fn log_path(&self) -> PathBuf {
        self.world.folder.path().join("service.log")
    }

    fn whole_log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Whether one of the processes has said so.
    pub fn has_said(&self, what: &str) -> bool {
        self.whole_log().contains(what)
    }

    /// What the processes have said, its end only.
    pub fn log(&self) -> String {
        let text = self.whole_log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Whether a process listens.
    pub async fn listens(&self) -> bool {
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.is_ok()
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            let newest = self.newest().await.map(|l| (l.state, l.step, l.why));
            panic!("waited for {what} in vain: {newest:#?}\n{}", self.log());
        }
    }

    /// The database, beside whoever runs on it; `None` before the first process has made it.
    pub async fn store(&self) -> Option<Store> {
        let path = self.world.folder.path().join("data/ralph.db");
        self.store.get_or_try_init(async || Store::attach(&path)).await.ok().cloned()
    }

    pub async fn newest(&self) -> Option<Loop> {
        let found = self.store().await?.read(|c| loops::list(c, false, 1)).await.ok()?;
        found.into_iter().next()
    }

    /// Waits until the newest loop is as it should be.
    pub async fn until_loop(&self, what: &str, holds: impl Fn(&Loop) -> bool) -> Loop {
        self.until(what, async || self.newest().await.is_some_and(|l| holds(&l))).await;
        self.newest().await.expect("it was there")
    }

    /// Whether nothing waits in the database.
    pub async fn is_at_rest(&self) -> bool {
        let Some(store) = self.store().await else { return false };
        let look = store.read(|c| Ok((inbox::counts(c)?, outbox::counts(c)?, loops::has_inputs(c)?)));
        let Ok((inbox, outbox, inputs)) = look.await else { return false };
        let waiting = inbox.iter().any(|(state, count)| state == "new" && *count > 0);
        !waiting && !inputs && outbox.iter().all(|(_, count)| *count == 0)
    }

    /// Waits until nothing is to be done any more, and what the forge tells of the last of it has been handled too.
    pub async fn rest(&self) {
        self.until("rest", async || {
            let before = self.is_at_rest().await;
            self.world.forge.flush().await;
            before && self.is_at_rest().await
        })
        .await;
    }

    /// Sends deliveries again that nobody answered, or that were refused for a while, each once: what an operator does,
    /// and GitHub's own list of failed deliveries is for.
    /// How many there were.
    pub fn resend(&self) -> usize {
        let mut count = 0;
        for (tried, past) in self.world.forge.hooks().log().iter().enumerate() {
            let failed = past.status.is_none_or(|status| status >= 500);
            // By the try, not by the id: what is sent again can fail again, and keeps its id on GitHub.
            if failed && self.resent.lock().expect("no panic in here").insert(tried) {
                self.world.forge.hooks().redeliver(past);
                count += 1;
            }
        }
        count
    }

    /// What carries the marks of this installation.
    pub async fn instance(&self) -> String {
        let store = self.store().await.expect("a database");
        store.read(|c| facts::meta(c, "instance")).await.expect("read").expect("a name")
    }

    /// The invariants, once every process has ended and nothing waits.
    pub async fn finish(&self) {
        let store = self.store().await.expect("a database");
        assert_eq!(store.integrity().await.expect("looked over"), Vec::<String>::new());
        let owners = store.read(|c| ralph_bot::store::leases::owners(c, self_now())).await.expect("owners");
        assert_eq!(owners, Vec::<String>::new(), "leases are left");
        invariants(&self.world, &store, &self.instance().await, true).await;
    }
}

/// Now, for leases.
fn self_now() -> ralph_bot::domain::model::ids::Timestamp {
    ralph_bot::clock::Clock::System.now()
}

/// Sends a signal.
pub fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw).expect("it runs");
    kill_process(pid, signal).expect("the signal is sent");
}

/// Asks a process to end, and waits until it has.
pub async fn stop(child: &mut Child) -> ExitStatus {
    signal(child, Signal::TERM);
    tokio::time::timeout(PATIENCE, child.wait()).await.expect("it ends in time").expect("it is our child")
}

/// Whether a process was ended by SIGKILL.
pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}
