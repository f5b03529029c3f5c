//! Control groups (cgroup v2) for runs. Used if the service may create them: in a systemd unit with `Delegate=yes`, or
//! in a container with its own writable group.
//!
//! The service moves itself into a child group and creates one sibling group per run, because a group that contains
//! processes cannot delegate controllers. It does so only if no other program is in its group.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ralph_types::failure::Failure;

use super::stat::ProcessStat;
use crate::domain::trust::limits::SandboxLimits;

/// Controllers without which groups are not used.
const NEEDED: [&str; 2] = ["memory", "pids"];
/// Optional controller.
const CPU: &str = "cpu";
/// CPU weight of a run relative to other processes; the service has 100.
const CPU_WEIGHT: u32 = 50;
/// Number of processes that bubblewrap and the starting shell add to a run.
const OWN_PROCESSES: u64 = 4;
/// Name of the group of the service itself.
const SERVICE: &str = "service";
/// Prefix of the names of runs' groups.
const RUN: &str = "run-";
/// Number of steps of 10 ms within which the processes of an ended run must leave its group.
const LEAVE_STEPS: u32 = 200;

/// Facts that decide whether control groups are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GroupFacts {
    /// Folder of the service's own group; `None` if it is unknown.
    folder: Option<PathBuf>,
    /// Whether the service's group is the root group of the machine.
    is_root: bool,
    /// Whether the service may create groups in its group.
    writable: bool,
    /// Controllers that the group may delegate.
    controllers: Vec<String>,
    /// Number of processes in the group that are neither the service nor its children.
    others: usize,
}

/// Returns the folder of the service's own group, or the reason why runs get no control groups.
fn decide(facts: &GroupFacts) -> Result<PathBuf, Failure> {
    let Some(folder) = &facts.folder else {
        return Err(Failure::new("the machine has no control groups of version 2"));
    };
    if facts.is_root {
        return Err(Failure::new("the service is in the root group"));
    }
    let missing: Vec<&str> =
        NEEDED.into_iter().filter(|name| !facts.controllers.iter().any(|found| found == name)).collect();
    if !missing.is_empty() {
        return Err(Failure::new(format!("its control group has no controller for {}", missing.join(" and "))));
    }
    if !facts.writable {
        return Err(Failure::new("it may not create control groups (systemd: `Delegate=yes`)"));
    }
    if facts.others > 0 {
        return Err(Failure::new("other programs are in its control group"));
    }
    Ok(folder.clone())
}

impl GroupFacts {
    fn here() -> Self {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let own = read(Path::new("/proc/self/cgroup"));
        let Some(folder) = folder_of(&own, &read(Path::new("/proc/self/mountinfo"))) else { return Self::default() };
        let writable = |name: &str| rustix::fs::access(folder.join(name), rustix::fs::Access::WRITE_OK).is_ok();
        let pids = read(&folder.join("cgroup.procs"));
        let pids = pids.lines().filter_map(|line| line.parse().ok());
        Self {
            is_root: !folder.join("cgroup.type").exists(),
            writable: writable("cgroup.procs") && writable("cgroup.subtree_control") && writable("."),
            controllers: read(&folder.join("cgroup.controllers")).split_whitespace().map(str::to_owned).collect(),
            others: pids.filter(|pid| !is_ours(*pid)).count(),
            folder: Some(folder),
        }
    }
}

/// Whether a process is this one or one of its descendants.
fn is_ours(pid: u32) -> bool {
    let parent = |pid: &u32| ProcessStat::of(*pid).map(|process| process.parent).filter(|parent| *parent != 0);
    std::iter::successors(Some(pid), parent).any(|pid| pid == std::process::id())
}

/// Returns the folder of a process's group, from the contents of `/proc/PID/cgroup` and `/proc/PID/mountinfo`.
fn folder_of(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, mount) = (fields.next()?, fields.next()?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        after.starts_with("cgroup2 ").then(|| Path::new(mount).join(below))
    })
}

/// Returns the folder in which groups of runs are created, or the reason why there is none. Determined once per
/// process.
pub(super) fn parent() -> Result<&'static Path, Failure> {
    static PARENT: OnceLock<Result<PathBuf, Failure>> = OnceLock::new();
    let found = PARENT.get_or_init(|| {
        let folder = decide(&GroupFacts::here())?;
        take_over(&folder).map_err(|error| Failure::new("cannot use its control group").caused_by(error))?;
        Ok(folder)
    });
    found.as_deref().map_err(Clone::clone)
}

/// Moves the processes of a group into a child group, enables controllers for other child groups, and removes groups
/// that an earlier process left.
fn take_over(folder: &Path) -> io::Result<()> {
    for left in fs::read_dir(folder)?.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(RUN)) {
        // Groups of another service that runs in this one have processes, and stay.
        let _ = fs::remove_dir(left.path());
    }
    let service = folder.join(SERVICE);
    match fs::create_dir(&service) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for pid in fs::read_to_string(folder.join("cgroup.procs"))?.lines() {
        write(&service, "cgroup.procs", pid)?;
    }
    let available = fs::read_to_string(folder.join("cgroup.controllers"))?;
    let wanted =
        NEEDED.into_iter().chain([CPU]).filter(|name| available.split_whitespace().any(|found| found == *name));
    write(folder, "cgroup.subtree_control", &wanted.map(|name| format!("+{name}")).collect::<Vec<_>>().join(" "))
}

fn write(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    // Created in tests only; the kernel does not let anybody create files.
    let mut file = OpenOptions::new().write(true).create(cfg!(test)).truncate(true).open(folder.join(name))?;
    file.write_all(text.as_bytes())
}

/// Control group of one run. Its processes are killed when it is dropped.
#[derive(Debug)]
pub(super) struct RunCgroup {
    folder: PathBuf,
    limits: SandboxLimits,
}

impl RunCgroup {
    /// Creates a group with limits.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub(super) fn create(parent: &Path, limits: SandboxLimits) -> io::Result<Self> {
        let folder = parent.join(format!("{RUN}{}", uuid::Uuid::now_v7().simple()));
        fs::create_dir(&folder)?;
        let group = Self { folder, limits };
        write(&group.folder, "memory.max", &(limits.memory_mib << 20).to_string())?;
        write(&group.folder, "pids.max", &limits.processes.saturating_add(OWN_PROCESSES).to_string())?;
        // Kernels without swap, and groups without these controllers, do not have the files.
        let _ = write(&group.folder, "memory.swap.max", "0");
        let _ = write(&group.folder, "memory.oom.group", "1");
        let _ = write(&group.folder, "cpu.weight", &CPU_WEIGHT.to_string());
        Ok(group)
    }

    /// Opens the file to which a process writes 0 to enter the group.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub(super) fn entrance(&self) -> io::Result<OwnedFd> {
        Ok(OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"))?.into())
    }

    /// Returns the reason if a limit was reached; otherwise `None`.
    pub(super) fn exceeded(&self) -> Option<String> {
        let count = |file: &str, key: &str| {
            let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
            value.unwrap_or(0)
        };
        if count("memory.events", "oom_kill ") > 0 || count("memory.events", "oom ") > 0 {
            Some(format!("it reached the limit of {} MiB of memory", self.limits.memory_mib))
        } else if count("pids.events", "max ") > 0 {
            Some(format!("it reached the limit of {} processes and threads", self.limits.processes))
        } else {
            None
        }
    }

    /// Kills the processes in the group.
    fn kill(&self) {
        // Linux 5.14. Before, the end of the sandbox's first process ends the others.
        let _ = write(&self.folder, "cgroup.kill", "1");
    }

    /// Kills the processes in the group, and removes the group when they have ended.
    pub(super) async fn end(self) {
        self.kill();
        for _ in 0..LEAVE_STEPS {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                _ => return,
            }
        }
        tracing::warn!(group = %self.folder.display(), "processes of an ended run are still in its control group");
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Moves this process into a group. Called between fork and exec, so it does not allocate.
///
/// # Errors
/// The kernel refuses the operation.
pub(super) fn enter(entrance: &OwnedFd) -> io::Result<()> {
    rustix::io::write(entrance, b"0")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_group_is_found_in_mounts() {
        let mounts = "29 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n\
                      30 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let of = |own: &str, mounts: &str| folder_of(own, mounts);
        let unit = "12:memory:/x\n0::/system.slice/ralph-bot.service\n";
        assert_eq!(of(unit, mounts), Some("/sys/fs/cgroup/system.slice/ralph-bot.service".into()));
        assert_eq!(of("0::/\n", mounts), Some("/sys/fs/cgroup".into()));
        // In a container without a separate namespace only its group is mounted.
        let inside = "29 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        assert_eq!(of("0::/docker/abc/x\n", inside), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(of("0::/other\n", inside), None);
        assert_eq!(of("4:memory:/x\n", mounts), None);
    }

    #[test]
    fn only_own_control_groups_are_used() {
        let good = GroupFacts {
            folder: Some("/sys/fs/cgroup/x".into()),
            is_root: false,
            writable: true,
            controllers: ["cpu", "memory", "pids"].map(str::to_owned).into(),
            others: 0,
        };
        assert_eq!(decide(&good).ok(), Some("/sys/fs/cgroup/x".into()));
        for (facts, words) in [
            (GroupFacts { folder: None, ..good.clone() }, "no control groups of version 2"),
            (GroupFacts { is_root: true, ..good.clone() }, "root group"),
            (GroupFacts { writable: false, ..good.clone() }, "Delegate=yes"),
            (GroupFacts { controllers: vec!["cpu".to_owned()], ..good.clone() }, "no controller for memory and pids"),
            (GroupFacts { others: 1, ..good.clone() }, "other programs"),
        ] {
            assert!(decide(&facts).unwrap_err().to_string().contains(words), "{facts:?}");
        }
    }

    /// Uses a folder with files like the kernel's, which enforces nothing.
    #[tokio::test]
    async fn run_group_enforces_limits_and_reports_reached_limit() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        fs::write(at("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        fs::create_dir(at("run-left")).unwrap();
        take_over(folder.path()).unwrap();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        assert!(!at("run-left").exists());
        assert_eq!(read(at("service/cgroup.procs")), std::process::id().to_string());
        assert_eq!(read(at("cgroup.subtree_control")), "+memory +pids +cpu");

        let limits = SandboxLimits { memory_mib: 100, processes: 30, ..SandboxLimits::default() };
        let group = RunCgroup::create(folder.path(), limits).unwrap();
        let of_run = |name: &str| group.folder.join(name);
        for (name, value) in
            [("memory.max", "104857600"), ("pids.max", "34"), ("memory.swap.max", "0"), ("cpu.weight", "50")]
        {
            assert_eq!(read(of_run(name)), value, "{name}");
        }
        fs::write(of_run("cgroup.procs"), "").unwrap();
        enter(&group.entrance().unwrap()).unwrap();
        assert_eq!(read(of_run("cgroup.procs")), "0");
        for (file, text, words) in [
            ("pids.events", "max 0\n", None),
            ("memory.events", "low 0\nhigh 9\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n", None),
            ("pids.events", "max 3\n", Some("30 processes")),
            ("memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n", Some("100 MiB of memory")),
        ] {
            fs::write(of_run(file), text).unwrap();
            let found = group.exceeded();
            assert_eq!(found.is_some(), words.is_some(), "{file}: {text}");
            assert!(words.is_none_or(|words| found.unwrap().contains(words)), "{file}: {text}");
        }
        let kill = of_run("cgroup.kill");
        group.kill();
        assert_eq!(read(kill), "1");
        fs::remove_dir_all(&group.folder).unwrap();
        group.end().await;
    }

    /// Uses the kernel's control groups, if this process may create them.
    #[tokio::test]
    async fn kernel_enforces_the_limits_of_a_group() {
        let parent = match parent() {
            Ok(parent) => parent,
            Err(reason) => {
                return skipped_tests::skip_in_ci_as_well(&format!("no control groups for runs: {reason:#}"));
            }
        };
        let limits = SandboxLimits { memory_mib: 64, processes: 16, ..SandboxLimits::default() };
        let group = RunCgroup::create(parent, limits).unwrap();
        let folder = group.folder.clone();
        assert_eq!(fs::read_to_string(folder.join("pids.max")).unwrap().trim(), "20");
        group.end().await;
        assert!(!folder.exists());
    }
}
