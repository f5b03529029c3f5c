//! Memory, processes and disk space of a running sandbox, and their limits.

mod open_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::open_files::{MOST_OPEN, OpenFiles, has_files_in_flight, open_files};
use super::cgroup::RunCgroup;
use super::disk::DiskWatch;
use super::shares::{PART, UserShare};
use super::stat::ProcessStat;
use crate::domain::trust::limits::SandboxLimits;

/// Time between two measurements.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time between two looks at the kernel's memory, which grows before the limits of the service's user are reached.
const LOOK: Duration = Duration::from_millis(50);
/// Number of bytes that a socket can hold by the kernel's default, if the machine's settings do not set a larger
/// number.
const SOCKET_DEFAULT: u64 = 212_992;
/// Number of bytes that a pipe can hold if its user's pipes have reached `fs.pipe-user-pages-soft` pages in total.
const PIPE: u64 = 8 << 10;
/// Bytes of the kernel for a mapping of memory, with its part of the tree of mappings.
const MAPPING: u64 = 256;
/// Maximum number of mappings that the processes of a run may have together. Reading more takes too long.
const MOST_MAPPINGS: u64 = 4 << 20;
/// Number of sockets up to which the queues of TCP sockets are not measured.
const FEW_SOCKETS: u64 = 16;
/// Writable folders of a sandbox that are in memory.
const IN_MEMORY: [&str; 4] = ["tmp", "dev/shm", "home/agent", "run"];
/// Bytes of the kernel for a file in a folder in memory, and the unit in which the kernel counts its attributes.
const INODE: u64 = 1 << 10;
/// Prefixes of the names of mappings whose file is in memory and in no folder.
const NAMELESS: [&str; 3] = ["/dev/zero (deleted)", "/memfd:", "/SYSV"];

/// Fields of `/proc/meminfo`: files in memory with shared memory, and objects of the kernel that it cannot free.
const FILES_IN_MEMORY: &str = "Shmem:";
const KERNEL_OBJECTS: &str = "SUnreclaim:";

/// Memory in files of all runs that is visible in folders or as open files, in bytes.
static VISIBLE: AtomicU64 = AtomicU64::new(0);

/// Memory and processes of a sandbox at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    memory_mib: u64,
    processes: u64,
    open: OpenFiles,
    /// Whether files in transit through sockets may be instances with most of the user's epoll watches.
    hides_watches: bool,
    /// Bytes that wait in TCP sockets of the run.
    queued: u64,
}

/// Returns the reason if a limit is exceeded; otherwise `None`. `socket` is the number of bytes that a socket can
/// hold, or 0 if a control group accounts for sockets and pipes.
fn reason(limits: SandboxLimits, share: Option<&UserShare>, usage: Usage, socket: u64) -> Option<String> {
    let OpenFiles { sockets, pipes, descriptors, .. } = usage.open;
    let of_pipes = if socket == 0 { 0 } else { pipes.saturating_mul(PIPE) };
    let of_sockets = if socket == 0 { 0 } else { sockets.saturating_mul(socket).max(usage.queued) };
    let held_mib = of_sockets.saturating_add(of_pipes) >> 20;
    if let Some(pid) = usage.open.hidden {
        Some(format!(
            "its process {pid} ran a program that may not be read, or hid its open files, which cannot be counted"
        ))
    } else if descriptors > MOST_OPEN {
        // The rest was not looked at.
        Some(format!("its processes had more than {MOST_OPEN} descriptors open together"))
    } else if usage.memory_mib > limits.memory_mib {
        Some(format!("it used {} MiB of memory; the limit is {} MiB", usage.memory_mib, limits.memory_mib))
    } else if held_mib > limits.memory_mib {
        let most = limits.memory_mib;
        Some(format!(
            "it had {sockets} sockets and {pipes} pipes, which can hold {held_mib} MiB of memory; the limit is {most} MiB"
        ))
    } else if usage.processes > limits.processes {
        Some(format!("it had {} processes and threads; the limit is {}", usage.processes, limits.processes))
    } else if usage.hides_watches {
        Some(
            "it passed files through sockets while the kernel's memory grew as for millions of epoll watches"
                .to_owned(),
        )
    } else {
        share.and_then(|share| exceeded_share(*share, usage.open))
    }
}

/// Returns the reason if open files exceed the run's share of the limits of the service's user; otherwise `None`.
fn exceeded_share(share: UserShare, open: OpenFiles) -> Option<String> {
    [
        (open.epoll_watches, share.epoll_watches, "epoll watches", "epoll.max_user_watches"),
        (open.inotify_instances, share.inotify_instances, "inotify instances", "inotify.max_user_instances"),
        (open.inotify_watches, share.inotify_watches, "inotify watches", "inotify.max_user_watches"),
    ]
    .into_iter()
    .find(|(count, most, ..)| count > most)
    .map(|(_, most, what, setting)| {
        format!("it had more than {most} {what}, its share of the limit of the service's user, `fs.{setting}`")
    })
}

/// Run to measure.
#[derive(Debug, Clone)]
pub(super) struct MeasuredRun {
    /// Id of the process from which all others of the run descend.
    pub(super) root: u32,
    pub(super) limits: SandboxLimits,
    /// Writable folders.
    pub(super) folders: Vec<PathBuf>,
    /// Control group in which the kernel limits the run, if there is one.
    pub(super) group: Option<Arc<RunCgroup>>,
    /// Share of the limits of the service's user; `None` if the run has a separate user.
    pub(super) share: Option<UserShare>,
}

/// Measures a run; completes with the reason when it exceeds a limit.
pub(super) async fn exceeded(run: MeasuredRun) -> String {
    let MeasuredRun { root, limits, folders, group, share } = run;
    let mut disk = DiskWatch::new(folders, limits.disk_mib << 20);
    let memory = Arc::new(MachineMemory::now());
    let devices = Arc::new(disk.devices());
    let socket = if group.is_none() { bytes_of_socket() } else { 0 };
    loop {
        wait(&memory, share.as_ref()).await;
        if let Some(reason) = group.as_deref().and_then(RunCgroup::exceeded) {
            return reason;
        }
        let (devices, memory, is_counted) = (devices.clone(), memory.clone(), group.is_some());
        let measured = tokio::task::spawn_blocking(move || {
            let usage = measure(root, limits, &devices, &memory, share.as_ref(), is_counted);
            let reason = reason(limits, share.as_ref(), usage, socket).or_else(|| disk.exceeded(usage.open.deleted));
            (disk, reason)
        });
        match measured.await {
            Ok((_, Some(reason))) => return reason,
            Ok((watch, None)) => disk = watch,
            Err(error) => return format!("could not measure it: {error}"),
        }
    }
}

/// Waits until the next measurement: [`INTERVAL`], or less if the kernel's memory grows meanwhile as for a part of the
/// user's epoll watches, because a run that adds watches reaches the limit of the user in two seconds.
async fn wait(memory: &MachineMemory, share: Option<&UserShare>) {
    let Some(share) = share else { return tokio::time::sleep(INTERVAL).await };
    let sudden_kib = memory.kernel_kib().saturating_add(share.half_of_watches_kib / PART);
    for _ in 0..INTERVAL.as_millis() / LOOK.as_millis() {
        tokio::time::sleep(LOOK).await;
        if memory.kernel_kib() >= sudden_kib {
            return;
        }
    }
}

/// Measures a run. `share` is its share of the limits of the service's user; `None` if it has a separate user. Memory
/// that the kernel holds for its processes is left out if a control group counts it.
fn measure(
    root: u32,
    limits: SandboxLimits,
    devices: &BTreeSet<u64>,
    memory: &MachineMemory,
    share: Option<&UserShare>,
    is_counted: bool,
) -> Usage {
    let running = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = running.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<ProcessStat> = pids.filter_map(ProcessStat::of).collect();
    let inside = descendants(root, &all);
    let found: Vec<ProcessStat> =
        all.iter().filter(|process| inside.contains(&process.pid)).map(ProcessStat::live_thread).collect();
    let pids = || found.iter().map(|process| process.pid);
    let pages: u64 = found.iter().map(|process| process.pages).sum();
    let page = rustix::param::page_size() as u64;
    let mut memory_mib = (pages * page) >> 20;
    if memory_mib > limits.memory_mib {
        // Pages that several processes share were counted several times; dividing them takes longer to read.
        memory_mib = pids().filter_map(proportional_kib).sum::<u64>() >> 10;
    }
    let open = open_files(root, pids(), devices, MOST_OPEN, share.map(|share| share.epoll_watches));
    let tables_kib: u64 = pids().filter_map(page_tables_kib).sum();
    let last = pids().max();
    let kernel = if is_counted { 0 } else { mappings(pids(), MOST_MAPPINGS.min(limits.memory_mib << 12)) * MAPPING };
    let asks_tcp = !is_counted && open.sockets > FEW_SOCKETS;
    let queued = last.filter(|_| asks_tcp).map_or(0, queued_by_tcp);
    let visible = open.in_memory + last.map_or(0, folders_in_memory);
    memory_mib += (visible + kernel + (tables_kib << 10)) >> 20;
    // A file in memory that only a socket or a mapping holds is open in no process, and its pages may be mapped in none.
    // Only the machine's sum shows its size.
    let held_mib = (memory.files_kib(visible) + (visible >> 10)) >> 10;
    if held_mib > limits.memory_mib && pids().any(|pid| has_files_in_flight(pid) || maps_nameless_file(pid)) {
        memory_mib = memory_mib.max(held_mib);
    }
    let processes = found.iter().map(|process| process.threads).sum();
    let hides_watches =
        share.is_some_and(|share| memory.kernel_kib() > share.half_of_watches_kib) && pids().any(has_files_in_flight);
    Usage { memory_mib, processes, open, hides_watches, queued }
}

/// Growth of the machine's memory since a run started.
#[derive(Debug)]
struct MachineMemory {
    files_at_start_kib: u64,
    kernel_at_start_kib: u64,
    /// Bytes of the run's own visible files in memory at the last measurement.
    visible: AtomicU64,
}

impl MachineMemory {
    fn now() -> Self {
        Self {
            files_at_start_kib: unseen_files_kib(),
            kernel_at_start_kib: meminfo_kib(KERNEL_OBJECTS),
            visible: AtomicU64::new(0),
        }
    }

    /// Returns the growth of files in memory without the visible files of all runs, in KiB. `visible` are the bytes of
    /// the run's own visible files.
    fn files_kib(&self, visible: u64) -> u64 {
        VISIBLE.fetch_add(visible, Ordering::Relaxed);
        VISIBLE.fetch_sub(self.visible.swap(visible, Ordering::Relaxed), Ordering::Relaxed);
        unseen_files_kib().saturating_sub(self.files_at_start_kib)
    }

    /// Returns the growth of the kernel's objects, in KiB.
    fn kernel_kib(&self) -> u64 {
        meminfo_kib(KERNEL_OBJECTS).saturating_sub(self.kernel_at_start_kib)
    }
}

impl Drop for MachineMemory {
    fn drop(&mut self) {
        VISIBLE.fetch_sub(*self.visible.get_mut(), Ordering::Relaxed);
    }
}

/// Returns the size of the machine's files in memory without the visible files of runs, in KiB.
fn unseen_files_kib() -> u64 {
    meminfo_kib(FILES_IN_MEMORY).saturating_sub(VISIBLE.load(Ordering::Relaxed) >> 10)
}

/// Whether a process maps a file that is in memory and in no folder.
fn maps_nameless_file(pid: u32) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    // Names may be of any bytes.
    maps.split(|byte| *byte == b'\n')
        .filter_map(|line| line.iter().position(|byte| *byte == b'/').map(|at| &line[at..]))
        .any(|path| NAMELESS.iter().any(|prefix| path.starts_with(prefix.as_bytes())))
}

/// Counts the mappings of processes, which are in no process's resident memory. Stops when there are `most`.
fn mappings(pids: impl Iterator<Item = u32>, most: u64) -> u64 {
    let (mut count, mut buffer) = (0, vec![0; 64 << 10]);
    for pid in pids {
        let Ok(mut maps) = fs::File::open(format!("/proc/{pid}/maps")) else { continue };
        while let Ok(read @ 1..) = maps.read(&mut buffer) {
            count += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
            if count >= most {
                return count;
            }
        }
    }
    count
}

/// Returns the bytes that wait in the TCP sockets of a sandbox, seen through one of its processes: the kernel lets their buffers grow
/// while they are used. 0 for a process in the service's own network.
fn queued_by_tcp(pid: u32) -> u64 {
    let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = network(&pid.to_string());
    if own.is_none() || own == network("self") {
        return 0;
    }
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).map(queued_bytes).sum()
}

/// Returns the bytes that wait in a socket by its line in a table of the kernel: the fifth word, as `sent:received` in hexadecimal.
fn queued_bytes(line: &str) -> u64 {
    let queues = line.split_whitespace().nth(4).and_then(|queues| queues.split_once(':'));
    let bytes = |text| u64::from_str_radix(text, 16).unwrap_or(0);
    queues.map_or(0, |(sent, received)| bytes(sent).saturating_add(bytes(received)))
}

/// Returns the number of bytes that a socket can hold. Programs in a sandbox without a control group cannot request
/// more ([`super::sandbox`]); the last message may exceed the buffer by a quarter.
fn bytes_of_socket() -> u64 {
    let setting = |name| {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let most = ["wmem_default", "rmem_default"].into_iter().filter_map(setting).fold(SOCKET_DEFAULT, u64::max);
    most.saturating_add(most / 4)
}

/// Returns the number of bytes in a sandbox's in-memory folders with their files' metadata, read through one of its
/// processes.
fn folders_in_memory(pid: u32) -> u64 {
    let used = |folder: &&str| {
        let found = rustix::fs::statvfs(format!("/proc/{pid}/root/{folder}")).ok()?;
        let files = found.f_files.saturating_sub(found.f_ffree);
        Some(found.f_blocks.saturating_sub(found.f_bfree) * found.f_frsize + files * INODE)
    };
    let is_apart = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok() != fs::read_link("/proc/self/ns/mnt").ok();
    // Until the sandbox is built, its root is the machine's, whose folders are on a disk.
    let root = |path: &str| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let own = root(&format!("/proc/{pid}/root/"));
    if is_apart && own.is_some() && own != root("/") { IN_MEMORY.iter().filter_map(used).sum() } else { 0 }
}

/// Returns a size in `/proc/meminfo`, in KiB; 0 if the kernel does not report it.
fn meminfo_kib(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

/// Returns the size of a process's page tables, in KiB, which are not part of its resident memory; `None` if it is
/// unknown.
fn page_tables_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("VmPTE:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// Returns the proportional set size of a process, in KiB; `None` if it is unknown.
fn proportional_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// Returns `root` and all processes below it.
fn descendants(root: u32, all: &[ProcessStat]) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let (mut found, mut left) = (BTreeSet::new(), vec![root]);
    while let Some(pid) = left.pop() {
        if found.insert(pid) {
            left.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_in_any_order() {
        let all: Vec<ProcessStat> = [(9, 8), (8, 7), (7, 1), (6, 1), (10, 7)]
            .map(|(pid, parent)| ProcessStat { pid, parent, zombie: false, threads: 1, started: 1, size: 1, pages: 1 })
            .into();
        assert_eq!(descendants(7, &all), BTreeSet::from([7, 8, 9, 10]));
    }

    #[test]
    fn limits_are_exceeded_only_above_their_value() {
        let limits = SandboxLimits { memory_mib: 10, processes: 3, ..SandboxLimits::default() };
        let usage = |memory_mib, processes, sockets| {
            let open = OpenFiles { sockets, ..OpenFiles::default() };
            Usage { memory_mib, processes, open, ..Usage::default() }
        };
        assert_eq!(reason(limits, None, usage(10, 3, 40), 1 << 18), None);
        for (memory_mib, processes, sockets, words) in [
            (11, 1, 0, "11 MiB of memory; the limit is 10"),
            (1, 4, 0, "4 processes"),
            (1, 1, 44, "it had 44 sockets and 0 pipes, which can hold 11 MiB of memory; the limit is 10 MiB"),
        ] {
            assert!(reason(limits, None, usage(memory_mib, processes, sockets), 1 << 18).unwrap().contains(words));
        }
        assert_eq!(reason(limits, None, usage(10, 3, u64::MAX), 0), None, "a control group counts them");
        let with = |open| Usage { open, ..usage(10, 3, 0) };
        let pipes = |pipes| with(OpenFiles { sockets: 40, pipes, ..OpenFiles::default() });
        assert_eq!(
            reason(limits, None, pipes(128), 1 << 18),
            Some("it had 40 sockets and 128 pipes, which can hold 11 MiB of memory; the limit is 10 MiB".to_owned(),)
        );
        assert_eq!((reason(limits, None, pipes(127), 1 << 18), reason(limits, None, pipes(u64::MAX), 0)), (None, None));
        let queued = Usage { queued: 11 << 20, ..usage(10, 3, 40) };
        assert!(
            reason(limits, None, queued, 1).unwrap().contains("40 sockets")
                && reason(limits, None, queued, 0).is_none()
        );
        let open = |descriptors| reason(limits, None, with(OpenFiles { descriptors, ..OpenFiles::default() }), 1 << 18);
        assert_eq!(open(MOST_OPEN), None);
        assert!(open(MOST_OPEN + 1).unwrap().contains("more than 131072 descriptors"));
        let share = UserShare::here(false);
        let watches = with(OpenFiles { epoll_watches: u64::MAX, ..OpenFiles::default() });
        assert!(reason(limits, Some(&share), watches, 0).unwrap().contains("epoll watches"));
        let hides_watches = Usage { hides_watches: true, ..usage(1, 1, 0) };
        assert!(reason(limits, Some(&share), hides_watches, 0).unwrap().contains("passed files through sockets"));
        let hidden = with(OpenFiles { hidden: Some(7), ..OpenFiles::default() });
        assert!(reason(limits, None, hidden, 0).unwrap().contains("its process 7"));
    }

    #[test]
    fn share_is_exceeded_only_above_its_value() {
        let share = UserShare { epoll_watches: 10, half_of_watches_kib: 1, inotify_instances: 2, inotify_watches: 5 };
        let open = |epoll_watches, inotify_instances, inotify_watches| OpenFiles {
            epoll_watches,
            inotify_instances,
            inotify_watches,
            ..OpenFiles::default()
        };
        assert_eq!(exceeded_share(share, open(10, 2, 5)), None);
        for (open, words) in [
            (open(11, 0, 0), "it had more than 10 epoll watches"),
            (
                open(0, 3, 0),
                "2 inotify instances, its share of the limit of the service's user, `fs.inotify.max_user_instances`",
            ),
            (open(0, 0, 6), "more than 5 inotify watches"),
        ] {
            assert!(exceeded_share(share, open).unwrap().contains(words), "{words}");
        }
        let by_kernel = UserShare::here(true);
        assert_eq!(exceeded_share(by_kernel, open(0, 1 << 40, 1 << 40)), None, "the kernel enforces them");
        assert!(exceeded_share(UserShare::here(false), open(0, 1 << 40, 0)).is_some());
    }

    #[test]
    fn own_processes_are_measured() {
        let usage = measure(
            std::process::id(),
            SandboxLimits { memory_mib: 0, processes: 1, ..SandboxLimits::default() },
            &BTreeSet::new(),
            &MachineMemory::now(),
            None,
            false,
        );
        assert!(usage.memory_mib > 0 && usage.processes > 0, "{usage:?}");
    }

    /// See docs/research/threats.md#s10.
    #[test]
    fn mappings_are_counted_up_to_a_maximum() {
        let own = || mappings([std::process::id()].into_iter(), u64::MAX);
        let files: Vec<_> = (0..3).map(|_| fs::read_to_string("/proc/self/maps").unwrap().lines().count()).collect();
        assert!(own() + 50 >= files[0] as u64 && own() > 10, "{} of {files:?}", own());
        assert_eq!(mappings([u32::MAX].into_iter(), u64::MAX), 0, "a process that ended");
        let twice = [std::process::id(); 2].into_iter();
        assert!(mappings(twice, 1) <= own() + 50, "it stops");
    }

    #[test]
    fn queues_of_sockets_are_read() {
        let line = "   1: 0100007F:0CEA 0100007F:D2F0 01 0000000A:00000100 01:00000014 00000000 0 0 1 2 0 20 4 0 10 -1";
        assert_eq!(queued_bytes(line), 266);
        for odd in ["", "  sl  local_address", "1: a b 01 zz:1", "1: a b 01 5"] {
            assert!(queued_bytes(odd) <= 1, "{odd}");
        }
        assert_eq!(queued_by_tcp(std::process::id()), 0, "the service's own network");
    }

    /// Reading untouched memory maps a page of zeros, which does not belong to the process; its page tables do.
    /// See docs/research/threats.md#s10.
    #[test]
    #[expect(unsafe_code, reason = "memory is mapped and read")]
    fn page_tables_are_measured() {
        const STEP: usize = 2 << 20;
        const STEPS: usize = 8 << 10;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let limits = SandboxLimits { memory_mib: 16, ..SandboxLimits::default() };
        let used =
            || measure(std::process::id(), limits, &BTreeSet::new(), &MachineMemory::now(), None, false).memory_mib;
        let grown = || {
            let before = used();
            // SAFETY: the memory is new, only read, and unmapped when nothing refers to it any more.
            unsafe {
                let start = libc::mmap(std::ptr::null_mut(), STEP * STEPS, libc::PROT_READ, flags, -1, 0);
                assert_ne!(start, libc::MAP_FAILED);
                for step in 0..STEPS {
                    std::ptr::read_volatile(start.cast::<u8>().add(step * STEP));
                }
                let after = used();
                assert_eq!(libc::munmap(start, STEP * STEPS), 0);
                after.saturating_sub(before)
            }
        };
        // Other tests of this process allocate and free memory at the same time.
        let mut measured: Vec<u64> = (0..5).map(|_| grown()).collect();
        measured.sort_unstable();
        assert!(measured[2] >= 24, "{measured:?} MiB");
    }

    /// See docs/research/threats.md#s10.
    #[test]
    fn memory_queued_in_a_socket_is_measured() {
        use std::io::IoSlice;
        use std::mem::MaybeUninit;
        use std::os::fd::{AsFd, AsRawFd};

        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

        const MIB: u64 = 64;
        let file = fs::File::from(rustix::fs::memfd_create("flight", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, MIB << 20).unwrap();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        assert!(message.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(&ours, &[IoSlice::new(b"x")], &mut message, SendFlags::empty()).unwrap();
        drop(file);
        let limits = SandboxLimits { memory_mib: MIB / 2, ..SandboxLimits::default() };
        let since_boot = MachineMemory { files_at_start_kib: 0, kernel_at_start_kib: 0, visible: AtomicU64::new(0) };
        let used = || measure(std::process::id(), limits, &BTreeSet::new(), &since_boot, None, false).memory_mib;
        let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", theirs.as_raw_fd())).unwrap();
        if !about.contains("scm_fds:") {
            return skipped_tests::skip("this kernel does not tell the files in flight");
        }
        let all_mib = meminfo_kib(FILES_IN_MEMORY) >> 10;
        assert!(used() + 8 >= all_mib.max(MIB), "{} of {all_mib}", used());
        let watches = |share: &UserShare| {
            measure(std::process::id(), limits, &BTreeSet::new(), &since_boot, Some(share), false).hides_watches
        };
        let share = UserShare::here(false);
        assert!(watches(&UserShare { half_of_watches_kib: 0, ..share }));
        assert!(!watches(&UserShare { half_of_watches_kib: u64::MAX, ..share }));
        drop(theirs);
    }
}
