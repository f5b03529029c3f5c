//! The service as one or several processes of the real binary, which a story starts, stops, kills and observes.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use ralph_bot::domain::loops::Loop;
use ralph_bot::store::test_server::settings;
use ralph_bot::store::{DatabaseAddress, Store, inbox, installation, loops, outbox};
use rustix::process::{Pid, Signal, kill_process};
use test_support::free_port;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

use super::invariants::assert_invariants;
use super::parts;
use super::setup::{SECRET, Setup};
use super::world::World;

/// Maximum wait for a condition.
pub const WAIT_LIMIT: Duration = Duration::from_secs(420);
/// Time between two evaluations of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Short intervals, so that a story takes seconds.
const SHORT_INTERVALS: &str = "engine: { poll_ms: 50, mutation_interval_ms: 0 }";

/// A world whose service runs in separate processes.
pub struct Service {
    pub world: World,
    pub port: u16,
    store: OnceCell<Store>,
    redelivered: std::sync::Mutex<HashSet<usize>>,
}

impl Service {
    /// Creates a world; no process is started. Without a sandbox a killed service leaves more processes behind, and
    /// starts sooner.
    pub async fn new(setup: Setup, sandboxed: bool) -> Self {
        let world = World::without_service(setup.config(SHORT_INTERVALS), true).await;
        let port = free_port();
        let text = world.config_text(&format!("127.0.0.1:{port}"), sandboxed);
        std::fs::write(world.folder.path().join("ralph-control.yaml"), text).expect("the operator's file");
        let service = Self { world, port, store: OnceCell::new(), redelivered: std::sync::Mutex::default() };
        let hook = format!("http://127.0.0.1:{port}/webhooks/forge");
        service.world.forge.add_hook(service.world.repo, &hook, SECRET).await.expect("the hook is made");
        service
    }

    /// Starts a process in a role, which kills itself at the kill point `kill`.
    pub fn spawn(&self, role: &str, kill: Option<&str>) -> Child {
        self.spawn_with(role, kill, Vec::new())
    }

    /// Starts a process in a role, which further arguments of `serve` may follow, with further variables.
    pub fn spawn_in(&self, role: &str, env: Vec<(&'static str, String)>) -> Child {
        self.spawn_with(role, None, env)
    }

    /// Starts a second service in all roles on the same database, on another port.
    pub fn spawn_elsewhere(&self, port: u16) -> Child {
        self.spawn_in("all", vec![("RALPH_SERVER__LISTEN", format!("127.0.0.1:{port}"))])
    }

    /// Starts a service in all roles with faults injected into its system calls; `None` if strace is missing, which is
    /// reported.
    pub fn spawn_tampered(&self, inject: &str) -> Option<Child> {
        let calls = inject.split(':').next().unwrap_or_default();
        let options = ["-qq", "-e", &format!("trace={calls}"), "-e", &format!("inject={inject}")];
        self.spawn_traced(&self.world.folder.path().join("strace.log"), &options, "all")
    }

    /// Starts a process in a role under strace, which writes to `log`; `None` if strace is missing, which is reported.
    /// The returned child is the service, not strace.
    pub fn spawn_traced(&self, log: &Path, options: &[&str], role: &str) -> Option<Child> {
        let strace = parts::program(&["strace"], "install the package strace")?;
        let mut command = Command::new(strace);
        command.args(["-D", "-f", "-o"]).arg(log).args(options).arg(env!("CARGO_BIN_EXE_ralph-bot"));
        Some(self.start(command, role, None, Vec::new()))
    }

    #[expect(clippy::disallowed_methods, reason = "the real binary as a child process")]
    fn spawn_with(&self, role: &str, kill: Option<&str>, env: Vec<(&'static str, String)>) -> Child {
        self.start(Command::new(env!("CARGO_BIN_EXE_ralph-bot")), role, kill, env)
    }

    /// Starts a process in a role by a command, to which the arguments of `serve` are added.
    pub fn start(
        &self,
        mut command: Command,
        role: &str,
        kill: Option<&str>,
        env: Vec<(&'static str, String)>,
    ) -> Child {
        let folder = self.world.folder.path();
        let log = std::fs::File::options().create(true).append(true).open(self.log_path()).expect("a log");
        command.arg("--config").arg(folder.join("ralph-control.yaml")).args(["serve", "--role"]).args(role.split(' '));
        command.current_dir(folder).env_clear().envs(self.world.environment());
        command.env("RALPH_LOG", "info").envs(kill.map(|point| (failpoint::VARIABLE, point)));
        command.envs(env);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log).kill_on_drop(true);
        command.spawn().expect("the binary starts")
    }

    /// Starts a service in all roles with these folders of its data folder on a file system of `mib` MiB, and with further
    /// variables; `None` if user namespaces are not allowed, which is reported.
    pub async fn spawn_with_disk(
        &self,
        data: &str,
        folders: &[&str],
        mib: u32,
        env: Vec<(&'static str, String)>,
    ) -> Option<Child> {
        let data = self.world.folder.path().join(data);
        std::fs::create_dir_all(data.join("small")).expect("a folder");
        for folder in folders {
            std::os::unix::fs::symlink(data.join("small").join(folder), data.join(folder)).expect("a link");
        }
        let (at, all) = (data.join("small").display().to_string(), folders.join(" "));
        let mounts = format!("mount -t tmpfs -o size={mib}m none '{at}' && (cd '{at}' && mkdir {all})");
        self.spawn_with_mounts(&mounts, env).await
    }

    /// Starts a service in all roles, with further variables, after `mounts`, a shell script whose mounts only the service
    /// sees; `None` if user namespaces are not allowed, which is reported.
    pub async fn spawn_with_mounts(&self, mounts: &str, env: Vec<(&'static str, String)>) -> Option<Child> {
        let script = format!("{mounts} && exec \"$0\" \"$@\"");
        Some(self.start(with_mounts(&script, env!("CARGO_BIN_EXE_ralph-bot")).await?, "all", None, env))
    }

    /// Runs `ralph-bot backup`, which kills itself at the kill point `kill`.
    #[expect(clippy::disallowed_methods, reason = "the real binary as a child process")]
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

    /// Everything that the processes have written.
    pub fn full_log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Whether a process has logged a text.
    pub fn has_logged(&self, what: &str) -> bool {
        self.full_log().contains(what)
    }

    /// Last 60 lines of the logs of all processes.
    pub fn log(&self) -> String {
        let text = self.full_log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Whether a process listens.
    pub async fn listens(&self) -> bool {
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.is_ok()
    }

    /// Waits until a condition holds.
    pub async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        if tokio::time::timeout(WAIT_LIMIT, waiting).await.is_err() {
            let newest = self.newest().await.map(|l| (l.state, l.run.step, l.why));
            panic!("timed out waiting for {what}: {newest:#?}\n{}", self.log());
        }
    }

    /// Connection to the database; `None` before the first process has created it.
    pub async fn store(&self) -> Option<Store> {
        let file = self.world.folder.path().join("data/ralph.db");
        let server = self.world.setup.config.lines().find_map(|line| line.strip_prefix("database: "));
        let address = server.map_or(DatabaseAddress::File(file), |server| settings(server).into());
        self.store.get_or_try_init(async || Store::attach(address)).await.ok().cloned()
    }

    /// Newest loop.
    pub async fn newest(&self) -> Option<Loop> {
        let found = self.store().await?.read(|c| loops::list(c, false, 1)).await.ok()?;
        found.into_iter().next()
    }

    /// Waits until the newest loop meets a condition, and returns it.
    pub async fn until_loop(&self, what: &str, holds: impl Fn(&Loop) -> bool) -> Loop {
        self.until(what, async || self.newest().await.is_some_and(|l| holds(&l))).await;
        self.newest().await.expect("a loop")
    }

    /// Whether no delivery, input or effect is pending.
    pub async fn is_idle(&self) -> bool {
        let Some(store) = self.store().await else { return false };
        let look = store.read(|c| Ok((inbox::counts(c)?, outbox::counts(c)?, loops::has_inputs(c)?)));
        let Ok((inbox, outbox, inputs)) = look.await else { return false };
        let waiting = inbox.iter().any(|(state, count)| state == "new" && *count > 0);
        !waiting && !inputs && outbox.iter().all(|(_, count)| *count == 0)
    }

    /// Waits until nothing is pending, including the deliveries that the last effects caused.
    pub async fn wait_until_idle(&self) {
        self.until("an idle service", async || {
            let before = self.is_idle().await;
            self.world.forge.flush().await;
            before && self.is_idle().await
        })
        .await;
    }

    /// Redelivers each delivery that was not answered, or answered with a server error; returns how many there were.
    pub fn redeliver_failed(&self) -> usize {
        let mut count = 0;
        for (attempt, past) in self.world.forge.hooks().log().iter().enumerate() {
            let failed = past.status.is_none_or(|status| status >= 500);
            // Remembered by attempt, as a redelivery keeps its id on GitHub and can fail again.
            if failed && self.redelivered.lock().expect("not poisoned").insert(attempt) {
                self.world.forge.hooks().redeliver(past);
                count += 1;
            }
        }
        count
    }

    /// Name of this installation, which marks its processes.
    pub async fn instance(&self) -> String {
        let store = self.store().await.expect("a database");
        store.read(|c| installation::get(c, "instance")).await.expect("read").expect("a name")
    }

    /// Asserts the invariants, once every process has ended and nothing is pending.
    pub async fn finish(&self) {
        let store = self.store().await.expect("a database");
        assert_eq!(store.integrity().await.expect("checked"), Vec::<String>::new());
        let owners = store
            .read(|c| ralph_bot::store::leases::owners(c, ralph_bot::clock::Clock::System.now()))
            .await
            .expect("owners");
        assert_eq!(owners, Vec::<String>::new(), "leases were not released");
        assert_invariants(&self.world, &store, &self.instance().await, true).await;
    }
}

/// Agent that completes the task, and whose first run lasts until it is ended; appends a line to `runs` at each start.
pub fn lasting_once(runs: &Path) -> String {
    let runs = runs.display();
    format!("echo run >>{runs}\nif [ \"$(wc -l <{runs})\" = 1 ]; then sleep 600; fi\necho 42 >answer.txt\n")
}

/// Sends a signal to a process.
pub fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw).expect("a running process");
    kill_process(pid, signal).expect("the signal is sent");
}

/// Sends SIGTERM to a process and waits for its end.
pub async fn stop(child: &mut Child) -> ExitStatus {
    signal(child, Signal::TERM);
    tokio::time::timeout(WAIT_LIMIT, child.wait()).await.expect("the process ends in time").expect("an exit status")
}

/// Whether a process was ended by SIGKILL.
pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

/// Command that runs a shell script with `program` as `$0`, in namespaces in which it may mount file systems; `None` if user
/// namespaces are not allowed, which is reported.
pub async fn with_mounts(script: &str, program: &str) -> Option<Command> {
    let unshare = parts::program(&["unshare"], "install util-linux")?;
    let in_namespace = |script: &str| {
        let mut command = parts::command(&unshare);
        command.args(["--map-root-user", "--mount", "sh", "-c", script, program]);
        command
    };
    if !in_namespace("mount -t tmpfs none /mnt").status().await.expect("it starts").success() {
        skipped_tests::skip("user namespaces are not allowed here; the sandbox needs them as well");
        return None;
    }
    Some(in_namespace(script))
}
