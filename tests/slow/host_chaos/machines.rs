//! Hosts as namespaces of this machine: each has its own address, processes, data folder and clock.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::LEASE;
use crate::harness::parts::{self, command, output};
use crate::harness::service::Service;

/// Number of hosts.
pub const HOSTS: usize = 3;
/// Hardware address without a machine: packets to it are lost silently.
const NOWHERE: &str = "02:00:00:00:00:99";
/// First process of a host: waits for orphans until it is killed.
const INIT: &str = "while :; do sleep 86400 & wait; done";
/// Starts the service with its own log, and ends with it.
const START: &str = "cd \"$HOST_FOLDER\" && exec >>\"$HOST_LOG\" 2>&1 && { \"$@\" & wait $!; }";
/// Library that adds the seconds in the file `$CLOCK_AHEAD` to the clock of a process. Monotonic clocks do not change.
const CLOCK: &str = r#"
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *ahead;

__attribute__((constructor)) static void map_offset(void) {
  const char *name = getenv("CLOCK_AHEAD");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *at = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) ahead = at;
  close(file);
}

int clock_gettime(clockid_t id, struct timespec *out) {
  int failed = (int)syscall(SYS_clock_gettime, id, out);
  if (!failed && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) out->tv_sec += *ahead;
  return failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"#;

/// Network of the hosts: a bridge on which the forge and both servers of the database have an address.
pub struct HostNetwork {
    bridge: String,
    third: u32,
    /// Library of the hosts' clocks.
    clock: PathBuf,
}

impl HostNetwork {
    /// Creates the bridge; `None` without the rights or programs for it, which is reported.
    pub async fn new(folder: &Path) -> Option<Self> {
        for (names, to_get_it) in [
            (&["ip"][..], "install iproute2"),
            (&["unshare"], "install util-linux"),
            (&["nsenter"], "install util-linux"),
            (&["cc"], "install gcc"),
        ] {
            parts::program(names, to_get_it)?;
        }
        let source = folder.join("clock.c");
        let clock = folder.join("clock.so");
        std::fs::write(&source, CLOCK).expect("written");
        output(command("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&clock).arg(&source)).await;
        let number = std::process::id();
        let network = Self { bridge: format!("ralph{number}"), third: number % 250, clock };
        let mut bridge = command("ip");
        bridge.args(["link", "add", &network.bridge, "type", "bridge"]).stderr(std::process::Stdio::null());
        if !bridge.status().await.expect("it starts").success() {
            skipped_tests::skip_in_ci_as_well("the hosts are network namespaces, which only root can create");
            return None;
        }
        for last in 1..=3 {
            ip(&format!("address add {}/24 dev {}", network.address(last), network.bridge)).await;
        }
        ip(&format!("link set {} up", network.bridge)).await;
        Some(network)
    }

    /// Address in the network: 1 is the forge's, 2 and 3 are the addresses of the database's servers.
    pub fn address(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, u8::try_from(self.third).expect("below 250"), last)
    }
}

impl Drop for HostNetwork {
    #[expect(clippy::disallowed_methods, reason = "a destructor cannot wait for tasks")]
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["link", "delete", &self.bridge]).status();
    }
}

/// Runs `ip`, which must succeed.
async fn ip(arguments: &str) {
    output(command("ip").args(arguments.split(' '))).await;
}

/// Part of the network that a cut host does not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Database,
    Forge,
}

/// One host.
pub struct HostMachine {
    /// Name of the host.
    pub name: String,
    namespace: String,
    /// Addresses of the forge and of the database's servers.
    addresses: [Ipv4Addr; 3],
    init: Child,
    /// Process that started the service, and ends with it.
    service: Option<Child>,
    /// Environment of the service.
    env: Vec<(&'static str, String)>,
    clock: PathBuf,
    /// Programs of both versions, and the index of the running one.
    pub programs: [PathBuf; 2],
    pub version: usize,
}

impl HostMachine {
    /// Creates host number `index` with a data folder and a log in `folder`, without a service.
    pub async fn new(network: &HostNetwork, index: usize, folder: &Path, programs: [PathBuf; 2]) -> Self {
        let name = format!("host-{index}");
        let namespace = format!("{}-{index}", network.bridge);
        let link = format!("r{}-{index}", std::process::id());
        ip(&format!("netns add {namespace}")).await;
        ip(&format!("link add {link} type veth peer name eth0 netns {namespace}")).await;
        ip(&format!("link set {link} master {} up", network.bridge)).await;
        let own = network.address(11 + u8::try_from(index).expect("a small number"));
        for setting in [&format!("address add {own}/24 dev eth0"), "link set eth0 up", "link set lo up"] {
            ip(&format!("-n {namespace} {setting}")).await;
        }
        let clock = folder.join(format!("{name}.clock"));
        std::fs::write(&clock, 0_i64.to_ne_bytes()).expect("written");
        let file = |extension: &str| folder.join(format!("{name}.{extension}")).display().to_string();
        let env = vec![
            ("RALPH_DATA_DIR", folder.join(&name).display().to_string()),
            ("RALPH_RUNNER__NAME", name.clone()),
            ("RALPH_SERVER__LISTEN", "127.0.0.1:8080".to_owned()),
            ("HOST_FOLDER", folder.display().to_string()),
            ("HOST_LOG", file("log")),
            ("CLOCK_AHEAD", clock.display().to_string()),
            (failpoint::LEASE_VARIABLE, LEASE.as_secs().to_string()),
            ("LD_PRELOAD", network.clock.display().to_string()),
        ];
        let init = boot(&namespace);
        let addresses = [1, 2, 3].map(|last| network.address(last));
        Self { name, namespace, addresses, init, service: None, env, clock, programs, version: 0 }
    }

    /// Starts the service, and the host if it was lost.
    pub async fn start(&mut self, service: &Service) {
        if self.init.try_wait().expect("our child").is_some() {
            self.init = boot(&self.namespace);
        }
        let init = child_of(&self.init).await.to_string();
        let mut command = Command::new("nsenter");
        // Without another process that waits for the service, because it would stop with a paused service.
        command.args(["--target", &init, "--net", "--pid", "--mount", "--no-fork", "sh", "-c", START, "sh"]);
        command.arg(&self.programs[self.version]);
        self.service = Some(service.start(command, "all", None, self.env.clone()));
    }

    /// Whether the service has ended or was never started.
    pub fn has_ended(&mut self) -> bool {
        self.service.as_mut().is_none_or(|child| child.try_wait().expect("our child").is_some())
    }

    /// Sends a signal to the service; does nothing if it has ended.
    pub async fn signal_service(&mut self, signal: Signal) {
        if self.has_ended() {
            return;
        }
        let starter = self.service.as_ref().expect("a service");
        if let Ok(service) = tokio::time::timeout(Duration::from_secs(5), child_of(starter)).await {
            let _ = kill_process(service, signal);
        }
    }

    /// Sends a signal to all processes of the host.
    pub async fn signal_all(&self, signal: Signal) {
        let listed = output(command("ip").args(["netns", "pids", &self.namespace])).await;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let all = listed.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
        for process in all.chain(pid(&self.init)) {
            let _ = kill_process(process, signal);
        }
    }

    /// Kills all processes of the host at once, as a loss of its power does.
    pub async fn lose(&mut self) {
        let init = child_of(&self.init).await;
        let _ = kill_process(init, Signal::KILL);
        let _ = self.init.wait().await;
        if let Some(service) = &mut self.service {
            let _ = service.wait().await;
        }
    }

    /// Cuts the host's connections to a part of the network, or joins them again.
    pub async fn cut(&self, part: Cut, is_cut: bool) {
        let addresses = if part == Cut::Forge { &self.addresses[..1] } else { &self.addresses[1..] };
        for address in addresses {
            let to = if is_cut {
                format!("replace {address} lladdr {NOWHERE} dev eth0 nud permanent")
            } else {
                format!("delete {address} dev eth0")
            };
            ip(&format!("-n {} neigh {to}", self.namespace)).await;
        }
    }

    /// Returns by how many seconds the clock is ahead.
    pub fn clock_ahead(&self) -> i64 {
        let bytes = std::fs::read(&self.clock).expect("read");
        i64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// Sets the clock ahead by some seconds.
    pub fn set_clock_ahead(&self, seconds: i64) {
        // The services map the file, which must stay the same one.
        let mut file = std::fs::File::options().write(true).open(&self.clock).expect("opened");
        file.write_all(&seconds.to_ne_bytes()).expect("written");
    }

    /// Stops the service and waits for its end.
    pub async fn stop(&mut self) {
        self.signal_service(Signal::TERM).await;
        let service = self.service.as_mut().expect("a service");
        let status = tokio::time::timeout(Duration::from_secs(60), service.wait()).await.expect("it ends in time");
        assert!(status.expect("our child").success(), "{} did not end as it should", self.name);
    }
}

impl Drop for HostMachine {
    #[expect(clippy::disallowed_methods, reason = "a destructor cannot wait for tasks")]
    fn drop(&mut self) {
        // The first process is a child of ours in a namespace whose processes end with it.
        let _ = self.init.start_kill();
        let _ = std::process::Command::new("ip").args(["netns", "delete", &self.namespace]).status();
    }
}

/// Starts the first process of a host.
fn boot(namespace: &str) -> Child {
    let mut init = command("ip");
    init.args(["netns", "exec", namespace, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    // A killed `unshare` complains.
    init.arg(INIT).stderr(std::process::Stdio::null()).spawn().expect("started")
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

/// Waits for the only child process of a process.
async fn child_of(child: &Child) -> Pid {
    let id = child.id().expect("a running process");
    loop {
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        if let Some(found) = children.split_whitespace().next().and_then(|id| Pid::from_raw(id.parse().ok()?)) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
