//! Probes the sandbox: tries to escape from it with real processes.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_types::failure::Failure;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use super::running::installed_bubblewrap;
use super::sandbox::{
    BEGIN, CALLED, CONNECTED, END, Network, Sandbox, SandboxMechanism, SandboxSettings, SandboxView, ScratchHome,
};
use super::{COOKIE_VARIABLE, LineDecision, ProcessLimits, ProcessSpec, cgroup, end_survivors, private, survivors};

/// Time limit of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for a sent connection or datagram to arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(50);
/// Name of a file outside the sandbox whose permissions the script tries to change.
const FILE_WITH_MODE: &str = "mode";

/// Script that tries to escape. It opens kernel files for writing but writes nothing to them.
const SCRIPT: &str = r#"
echo ran >ran || echo no-tree
cat "$OUTSIDE/secret" 2>/dev/null
chmod 0604 "$OUTSIDE/mode" 2>/dev/null
(echo x >"$OUTSIDE/written") 2>/dev/null
(echo x >/usr/ralph-escape-test) 2>/dev/null && echo wrote-system && rm -f /usr/ralph-escape-test
cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep '^PROBE_CANARY='
for d in /proc/[0-9]*; do
  case "$(tr '\0' ' ' <$d/cmdline 2>/dev/null)" in
    *"$MARKER"*) echo sees-process; kill -s USR2 ${d#/proc/} 2>/dev/null && echo signalled;;
  esac
done
(: </etc/shadow) 2>/dev/null && echo sees-shadow
grep -v -e lo: -e '|' /proc/net/dev | sed 's/^/interface /'
bash -c ": >/dev/tcp/127.0.0.1/$PORT" 2>/dev/null && echo connected-by-tcp
bash -c "echo x >/dev/udp/127.0.0.1/$UDP_PORT" 2>/dev/null
for f in sys/kernel/core_pattern sys/kernel/ns_last_pid sys/vm/overcommit_memory sysrq-trigger irq/default_smp_affinity; do
  [ -e /proc/$f ] && (: >>/proc/$f) 2>/dev/null && echo "opened /proc/$f"
done
for f in keys timer_list sched_debug kcore; do
  [ -n "$(head -c 1 /proc/$f 2>/dev/null | tr '\0' 0)" ] && echo "read /proc/$f"
done
: >program; chmod u+s program 2>/dev/null; [ -u program ] && echo set-user-id
chmod g+s program 2>/dev/null; [ -g program ] && echo set-group-id
grep -q '^Seccomp:.*2' /proc/self/status || echo "called anything (there is no filter)"
grep -q '^NoNewPrivs:.*1' /proc/self/status || echo "called anything (privileges can be gained)"
grep -Eq '^Cap(Prm|Eff|Inh):.*[1-9a-f]' /proc/self/status && echo "called anything (it has capabilities)"
[ -z "$PROGRAM" ] || "$PROGRAM" sandbox-attempts --socket "$OUTSIDE/socket" --name "$NAME"
echo end
"#;
/// Advice if the view or the namespaces do not isolate, which no setting of the service can change.
const UPDATE: &str = "update bubblewrap and the kernel";
/// Advice if programs keep rights of root.
const NOT_AS_ROOT: &str = "run the service as a user other than root";

/// Level of isolation of agents and checks on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SandboxTier {
    /// No isolation.
    C,
    /// Files and network are isolated without namespaces (Landlock). Attempts to escape fail except those that only a
    /// namespace prevents.
    B,
    /// bubblewrap isolates, and every attempt to escape fails.
    A,
}

impl SandboxTier {
    /// All tiers, the weakest first.
    pub const ALL: [Self; 3] = [Self::C, Self::B, Self::A];

    /// Returns the name of the mechanism, for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::A => "namespaces",
            Self::B => "landlock",
            Self::C => "none",
        }
    }
}

impl std::fmt::Display for SandboxTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        })
    }
}

/// Attempt to escape from a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscapeTest {
    /// Description of the attempt.
    pub name: &'static str,
    /// Whether the sandbox prevented it.
    pub held: bool,
    /// Output of the attempt if it succeeded.
    pub detail: String,
    /// Advice if it succeeded.
    pub fix: &'static str,
}

/// Result of the probe.
#[derive(Debug, Clone)]
pub struct SandboxProbe {
    /// Level of isolation.
    pub tier: SandboxTier,
    /// Version of bubblewrap, or the reason why the sandbox cannot be used, with advice.
    pub bubblewrap: Result<String, Failure>,
    /// Attempts in a sandbox of bubblewrap; empty if bubblewrap does not run.
    pub escapes: Vec<EscapeTest>,
    /// Attempts in a sandbox without namespaces, or the reason why Landlock cannot confine programs; `None` if this
    /// was not tested, because bubblewrap isolates.
    pub landlock: Option<Result<Vec<EscapeTest>, Failure>>,
}

impl SandboxProbe {
    /// Returns the reason why bubblewrap does not isolate on this machine.
    pub fn why_no_namespaces(&self) -> String {
        match &self.bubblewrap {
            Ok(version) => {
                let failed: Vec<_> = self.escapes.iter().filter(|e| !e.held).map(|e| e.name).collect();
                format!("bubblewrap {version} does not isolate on this machine: {}", failed.join(", "))
            }
            Err(why) => format!("{why:#}"),
        }
    }
}

impl EscapeTest {
    /// Whether only a sandbox with namespaces (tier A) prevents this attempt.
    pub fn needs_namespaces(&self) -> bool {
        NEED_NAMESPACES.contains(&self.name)
    }
}

/// Names of the attempts that only namespaces prevent.
const NEED_NAMESPACES: [&str; 3] = [CHANGE_MODES, SEE_PROCESSES, READ_KERNEL];
const CHANGE_MODES: &str = "change permissions of files outside the tree";
const SEE_PROCESSES: &str = "see processes and network interfaces of the machine";
const READ_KERNEL: &str = "read data of the kernel";

/// Checks that the kernel enforces the limits of runs on this machine. The error is the reason why they are only
/// measured.
pub fn enforces_limits() -> Result<(), Failure> {
    cgroup::parent().map(drop)
}

/// Settings and working folder of the probe.
#[derive(Debug, Clone)]
pub struct ProbeSettings {
    /// Settings of the sandboxes.
    pub settings: SandboxSettings,
    /// Folder of the service's data. The probe works in this folder or its nearest existing parent, because sandboxes
    /// depend on the file system.
    pub folder: PathBuf,
    /// Path of ralph-bot itself, which makes attempts that shells cannot make; `None` to skip them.
    pub program: Option<PathBuf>,
    /// Time within which processes must end after their sandbox has ended. The kernel kills them immediately, but on a
    /// busy machine it can take seconds until they end; surviving processes would sleep for minutes.
    pub end_timeout: Duration,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        Self {
            settings: SandboxSettings::default(),
            folder: PathBuf::new(),
            program: None,
            end_timeout: Duration::from_secs(10),
        }
    }
}

/// Builds a sandbox like an agent's and tries to escape from it. If it does not isolate, a sandbox without
/// namespaces is tested as well. Takes about one second.
pub async fn probe_sandbox(settings: &ProbeSettings) -> SandboxProbe {
    let tried = match installed_bubblewrap().await {
        Ok(bubblewrap) => attempts(settings).await.map(|escapes| (bubblewrap.version.clone(), escapes)),
        Err(reason) => Err(reason),
    };
    let (bubblewrap, escapes) = match tried {
        Ok((version, escapes)) => (Ok(version), escapes),
        Err(reason) => (Err(reason), Vec::new()),
    };
    if bubblewrap.is_ok() && escapes.iter().all(|e| e.held) {
        return SandboxProbe { tier: SandboxTier::A, bubblewrap, escapes, landlock: None };
    }
    let landlock = probe_landlock(settings).await;
    let holds = landlock.as_ref().is_ok_and(|all| all.iter().all(|e| e.held || e.needs_namespaces()));
    let tier = if holds { SandboxTier::B } else { SandboxTier::C };
    SandboxProbe { tier, bubblewrap, escapes, landlock: Some(landlock) }
}

/// Tries to escape from a sandbox without namespaces.
///
/// # Errors
/// The reason why programs cannot be confined, with advice.
pub async fn probe_landlock(settings: &ProbeSettings) -> Result<Vec<EscapeTest>, Failure> {
    let program = settings.program.clone().ok_or("the path of this program is unknown")?;
    let mut settings = settings.clone();
    settings.settings.mechanism = SandboxMechanism::Landlock(program);
    attempts(&settings).await
}

async fn attempts(settings: &ProbeSettings) -> Result<Vec<EscapeTest>, Failure> {
    let existing = settings.folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    let folder = tempfile::tempdir_in(existing)
        .map_err(|error| Failure::new("no temporary folder for the test").caused_by(error))?;
    let folder_path = folder.path().canonicalize().map_err(Failure::of)?;
    let place = EscapeSetup::new(settings, &folder_path)
        .await
        .map_err(|error| Failure::new("could not prepare the sandbox test").caused_by(error))?;
    let mut escapes = place.inside().await?;
    escapes.extend(place.survival().await?);
    Ok(escapes)
}

/// View, and objects outside of it that must not be reachable.
struct EscapeSetup {
    view: SandboxView,
    tree: PathBuf,
    outside: PathBuf,
    program: Option<PathBuf>,
    listener: TcpListener,
    datagrams: UdpSocket,
    end_timeout: Duration,
    /// Mode of the file outside.
    mode: u32,
    canary: String,
    /// Sockets in the file system and in the abstract namespace; the abstract name is the reversed canary.
    _sockets: Vec<UnixListener>,
}

impl EscapeSetup {
    async fn new(settings: &ProbeSettings, folder: &Path) -> std::io::Result<Self> {
        let (tree, outside) = (folder.join("tree"), folder.join("outside"));
        fs::create_dir(&tree)?;
        fs::create_dir(&outside)?;
        let canary = format!("canary-{}", uuid::Uuid::now_v7().simple());
        fs::write(outside.join("secret"), &canary)?;
        private::create_file(&outside.join(FILE_WITH_MODE))?;
        let mode = mode_of(&outside.join(FILE_WITH_MODE))?;
        // Paths of sockets are short; one that is too long for the service is too long for the program as well.
        let by_path = UnixListener::bind(outside.join("socket")).ok();
        let by_name =
            SocketAddr::from_abstract_name(reversed(&canary)).and_then(|name| UnixListener::bind_addr(&name))?;
        let view = SandboxView {
            writable: vec![tree.clone()],
            read_only: settings.program.iter().cloned().collect(),
            home: ScratchHome::Memory,
            network: Network::None,
            settings: settings.settings.clone(),
        };
        Ok(Self {
            view,
            tree,
            outside,
            program: settings.program.clone(),
            end_timeout: settings.end_timeout,
            listener: TcpListener::bind("127.0.0.1:0").await?,
            datagrams: UdpSocket::bind("127.0.0.1:0").await?,
            mode,
            canary,
            _sockets: by_path.into_iter().chain([by_name]).collect(),
        })
    }

    fn spec(&self, script: &str, sandbox: Sandbox) -> ProcessSpec {
        let mut spec = ProcessSpec::new("/bin/sh", &self.tree).args(["-c", script]).env("PATH", "/usr/bin:/bin");
        spec.sandbox = sandbox;
        spec.limits = ProcessLimits { wall: ATTEMPT_TIMEOUT, keep_bytes: 64 * 1024, ..ProcessLimits::default() };
        spec
    }

    /// Runs the script that tries to escape in the sandbox, while a process outside has a canary in its environment.
    async fn inside(&self) -> Result<Vec<EscapeTest>, Failure> {
        let port = self.listener.local_addr().map_err(Failure::of)?.port();
        let udp_port = self.datagrams.local_addr().map_err(Failure::of)?.port();
        let in_environment = format!("environment-{}", self.canary);
        let marker = format!("marker-{}", uuid::Uuid::now_v7().simple());
        let holder = self.spec("trap '' USR2; echo up; sleep 60", Sandbox::None).args([&marker]);
        let holder = holder.env("PROBE_CANARY", &in_environment);
        let (stop, cancel) = (CancellationToken::new(), CancellationToken::new());
        let mut ready = Some(CancellationToken::new());
        let up = ready.clone().unwrap_or_default();
        let mut lines = |_, _: &str| {
            ready.take().inspect(CancellationToken::cancel);
            LineDecision::Continue
        };
        let mut holder = Box::pin(super::run(holder, &stop, Some(&mut lines)));
        tokio::select! {
            ended = &mut holder => return Err(Failure::new(format!("the test of the sandbox ended early: {ended:?}"))),
            () = up.cancelled() => {}
        }
        let program = self.program.clone().unwrap_or_default();
        let spec = self
            .spec(SCRIPT, Sandbox::of(self.view.clone()))
            .env("OUTSIDE", &self.outside)
            .env("PORT", port.to_string())
            .env("UDP_PORT", udp_port.to_string())
            .env("MARKER", &marker)
            .env("PROGRAM", &program)
            // Reversed, so that the script's own environment is not a leak.
            .env("NAME", reversed(&self.canary));
        let tried = super::run(spec, &cancel, None).await.map_err(Failure::of)?;
        drop(holder);
        let seen = tried.stdout.text();
        let ran = self.tree.join("ran").is_file() && seen.trim_end().ends_with("end");
        let called = program.as_os_str().is_empty() || (seen.contains(BEGIN) && seen.contains(END));
        if !ran || !called {
            return Err(Failure::new(format!(
                "a script in the sandbox did not run: {:?}, {}",
                tried.ended,
                tried.stderr.text()
            )));
        }
        let reached = tokio::time::timeout(ARRIVAL_TIMEOUT, self.listener.accept()).await.is_ok();
        let reached = reached || tokio::time::timeout(ARRIVAL_TIMEOUT, self.datagrams.recv(&mut [0])).await.is_ok();
        Ok(self.results(&seen, &in_environment, reached))
    }

    /// Parses the script's output.
    fn results(&self, seen: &str, in_environment: &str, reached: bool) -> Vec<EscapeTest> {
        let test = |name, fix, broken: bool| EscapeTest {
            name,
            held: !broken,
            detail: if broken { seen.replace(&self.canary, "(canary)") } else { String::new() },
            fix,
        };
        let line = |start: &str| seen.lines().any(|line| line.starts_with(start));
        let sees_environment = seen.contains(in_environment);
        let sees_files = seen.replace(in_environment, "").contains(&self.canary) || line("sees-shadow");
        let has_mode = mode_of(&self.outside.join(FILE_WITH_MODE)).is_ok_and(|mode| mode == self.mode);
        let written = self.outside.join("written").exists() || line("wrote-system");
        vec![
            test("read files outside the view", UPDATE, sees_files),
            test("write outside the tree", UPDATE, written),
            test(CHANGE_MODES, UPDATE, !has_mode),
            test("read the environment of processes outside", UPDATE, sees_environment),
            test(SEE_PROCESSES, UPDATE, line("sees-process") || line("interface ")),
            test("signal processes outside", UPDATE, line("signalled")),
            test("reach the network", UPDATE, reached || line("connected-by-tcp")),
            test("connect to sockets of the host", UPDATE, line(CONNECTED)),
            test("open settings of the kernel for writing", NOT_AS_ROOT, line("opened ")),
            test(READ_KERNEL, UPDATE, line("read ")),
            test("create programs with the rights of their owner", UPDATE, line("set-")),
            test("make system calls that are refused", UPDATE, line(CALLED)),
        ]
    }

    /// Starts a daemon inside and kills only bubblewrap, after which all processes must end. Also checks that no
    /// program has the uid of the host's root.
    async fn survival(&self) -> Result<Vec<EscapeTest>, Failure> {
        let script = "setsid sh -c 'sleep 300 & sleep 300' & echo up; sleep 300";
        let mut spec = self.spec(script, Sandbox::of(self.view.clone())).env(COOKIE_VARIABLE, &self.canary);
        spec.limits.grace = Duration::ZERO;
        let mut as_root = Vec::new();
        let mut lines = |_, _: &str| {
            let running = survivors(&self.canary).into_iter().map(|program| program.pid().as_raw_pid());
            as_root = running.filter_map(program_of_root).collect();
            LineDecision::Stop("it is up".to_owned())
        };
        super::run(spec, &CancellationToken::new(), Some(&mut lines)).await.map_err(Failure::of)?;
        let ended = tokio::time::timeout(self.end_timeout, async {
            while !survivors(&self.canary).is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let held = ended.await.is_ok();
        end_survivors(&self.canary, Duration::ZERO).await;
        let detail = if held { String::new() } else { "processes survived their sandbox".to_owned() };
        let survival = EscapeTest { name: "outlive the sandbox", held, detail, fix: UPDATE };
        let kept_root = self.view.settings.user.where_root().is_some() && !as_root.is_empty();
        let detail = if kept_root { format!("uid 0: {}", as_root.join(", ")) } else { String::new() };
        let name = "have the uid of the host's root";
        Ok(vec![survival, EscapeTest { name, held: !kept_root, detail, fix: NOT_AS_ROOT }])
    }
}

/// Returns the name of a process other than bubblewrap if one of its uids is root's; otherwise `None`.
fn program_of_root(pid: i32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let name = field("Name:").filter(|name| *name != "bwrap")?;
    let root = field("Uid:")?.split_whitespace().any(|uid| uid == "0");
    root.then(|| name.to_owned())
}

fn mode_of(file: &Path) -> std::io::Result<u32> {
    Ok(fs::metadata(file)?.permissions().mode())
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}
