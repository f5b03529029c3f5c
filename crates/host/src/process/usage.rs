//! Memory, processes and disk space of a running sandbox, and their limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cgroup::RunCgroup;
use super::disk::DiskWatch;
use super::stat::ProcessStat;
use crate::domain::trust::limits::SandboxLimits;

/// Time between two measurements.
const INTERVAL: Duration = Duration::from_millis(500);
/// Size of the blocks that `stat` counts, in bytes.
const BLOCK: u64 = 512;
/// Number of bytes that a socket can hold by the kernel's default, if the machine's settings do not set a larger
/// number.
const SOCKET_DEFAULT: u64 = 212_992;
/// Number of bytes that a pipe can hold if its user's pipes have reached `fs.pipe-user-pages-soft` pages in total.
const PIPE: u64 = 8 << 10;
/// Bytes of the kernel for a mapping of memory, with its part of the tree of mappings.
const MAPPING: u64 = 256;
/// Maximum number of mappings that the processes of a run may have together. Reading more takes too long.
const MOST_MAPPINGS: u64 = 4 << 20;
/// Number of sockets up to which it is not asked what is queued in those of TCP.
const FEW_SOCKETS: u64 = 16;
/// Maximum number of descriptors that the processes of a run may have open together. Reading more takes too long.
const MOST_OPEN: u64 = 131_072;
/// Folders of a sandbox that are in memory.
const IN_MEMORY: [&str; 3] = ["tmp", "dev/shm", "home/agent"];

/// Memory and processes of a sandbox at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    memory_mib: u64,
    processes: u64,
    /// Number of bytes in deleted files that are still open in the run's folders.
    deleted: u64,
    /// Number of open sockets, each counted once.
    sockets: u64,
    /// Number of open pipes, each counted once.
    pipes: u64,
    /// Number of open descriptors, at most one more than a run may have.
    descriptors: u64,
    /// Bytes that wait in TCP sockets of the run.
    queued: u64,
}

/// Returns the reason if a limit is exceeded; otherwise `None`. `socket` is the number of bytes that a socket can
/// hold, or 0 if a control group accounts for sockets and pipes.
fn reason(limits: SandboxLimits, usage: Usage, socket: u64) -> Option<String> {
    let Usage { sockets, pipes, .. } = usage;
    let of_pipes = if socket == 0 { 0 } else { pipes.saturating_mul(PIPE) };
    let of_sockets = if socket == 0 { 0 } else { sockets.saturating_mul(socket).max(usage.queued) };
    let held_mib = of_sockets.saturating_add(of_pipes) >> 20;
    if usage.descriptors > MOST_OPEN {
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
    } else {
        None
    }
}

/// Measures the process `root`, its descendants, and these writable folders; completes with the reason when they
/// exceed a limit. `group` is the control group in which the kernel limits them, if there is one.
pub(super) async fn exceeded(
    root: u32,
    limits: SandboxLimits,
    folders: Vec<PathBuf>,
    group: Option<Arc<RunCgroup>>,
) -> String {
    let mut disk = DiskWatch::new(folders, limits.disk_mib << 20);
    let devices = Arc::new(disk.devices());
    let shared_at_start = shared_kib();
    let socket = if group.is_none() { bytes_of_socket() } else { 0 };
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Some(reason) = group.as_deref().and_then(RunCgroup::exceeded) {
            return reason;
        }
        let (devices, is_counted) = (devices.clone(), group.is_some());
        let measured = tokio::task::spawn_blocking(move || {
            let usage = measure(root, limits, &devices, shared_at_start, is_counted);
            let reason = reason(limits, usage, socket).or_else(|| disk.exceeded(usage.deleted));
            (disk, reason)
        });
        match measured.await {
            Ok((_, Some(reason))) => return reason,
            Ok((watch, None)) => disk = watch,
            Err(error) => return format!("it could not be measured: {error}"),
        }
    }
}

/// Measures a run. `shared_at_start` is what the machine's files in memory took when it began, in KiB. What the kernel holds for its
/// processes is left out if a control group counts it.
fn measure(root: u32, limits: SandboxLimits, devices: &BTreeSet<u64>, shared_at_start: u64, is_counted: bool) -> Usage {
    let running = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = running.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<ProcessStat> = pids.filter_map(ProcessStat::of).collect();
    let inside = descendants(root, &all);
    let found = || all.iter().filter(|process| inside.contains(&process.pid));
    let pages: u64 = found().map(|process| process.pages).sum();
    let page = rustix::param::page_size() as u64;
    let mut memory_mib = (pages * page) >> 20;
    if memory_mib > limits.memory_mib {
        // Pages that several processes share were counted several times; dividing them takes longer to read.
        memory_mib = found().filter_map(|process| proportional_kib(process.pid)).sum::<u64>() >> 10;
    }
    let OpenFiles { in_memory, deleted, sockets, pipes, descriptors } =
        open_files(found().map(|process| process.pid), devices, MOST_OPEN);
    let tables_kib: u64 = found().filter_map(|process| page_tables_kib(process.pid)).sum();
    let last = found().map(|process| process.pid).max();
    let kernel = if is_counted {
        0
    } else {
        mappings(found().map(|process| process.pid), MOST_MAPPINGS.min(limits.memory_mib << 12)) * MAPPING
    };
    let asks_tcp = !is_counted && sockets > FEW_SOCKETS;
    let queued = last.filter(|_| asks_tcp).map_or(0, queued_by_tcp);
    memory_mib += (in_memory + kernel + (tables_kib << 10) + last.map_or(0, folders_in_memory)) >> 20;
    // A file in memory that is on its way through a socket is open in no process. Only the machine's sum shows its size.
    let grown_mib = shared_kib().saturating_sub(shared_at_start) >> 10;
    if grown_mib > limits.memory_mib && found().any(|process| has_files_in_flight(process.pid)) {
        memory_mib = memory_mib.max(grown_mib);
    }
    let processes = found().map(|process| process.threads).sum();
    Usage { memory_mib, processes, deleted, sockets, pipes, descriptors, queued }
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

/// Deleted files, sockets and pipes that processes have open.
#[derive(Debug, Default)]
struct OpenFiles {
    /// Number of bytes in deleted files that are in memory.
    in_memory: u64,
    /// Number of bytes in deleted files on the run's devices.
    deleted: u64,
    /// Number of sockets.
    sockets: u64,
    /// Number of pipes.
    pipes: u64,
    /// Number of descriptors, at most one more than are examined.
    descriptors: u64,
}

/// Counts the deleted files, sockets and pipes that processes have open, each once. `devices` are the devices of the
/// run's folders. Stops after `most` descriptors.
fn open_files(pids: impl Iterator<Item = u32>, devices: &BTreeSet<u64>, most: u64) -> OpenFiles {
    let (mut known, mut found) = (BTreeSet::new(), OpenFiles::default());
    for pid in pids {
        for open in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            found.descriptors += 1;
            if found.descriptors > most {
                return found;
            }
            let Ok(file) = fs::metadata(open.path()) else { continue };
            let (is_nameless, kind) = (file.is_file() && file.nlink() == 0, file.file_type());
            if !(is_nameless || kind.is_socket() || kind.is_fifo()) || !known.insert((file.dev(), file.ino())) {
                continue;
            }
            if kind.is_socket() {
                found.sockets += 1;
            } else if kind.is_fifo() {
                found.pipes += 1;
            } else {
                let bytes = if devices.contains(&file.dev()) { &mut found.deleted } else { &mut found.in_memory };
                *bytes += file.blocks() * BLOCK;
            }
        }
    }
    found
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

/// Returns the number of bytes in a sandbox's in-memory folders, read through one of its processes.
fn folders_in_memory(pid: u32) -> u64 {
    let used = |folder: &&str| {
        let found = rustix::fs::statvfs(format!("/proc/{pid}/root/{folder}")).ok()?;
        Some(found.f_blocks.saturating_sub(found.f_bfree) * found.f_frsize)
    };
    let is_apart = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok() != fs::read_link("/proc/self/ns/mnt").ok();
    // Until the sandbox is built, its root is the machine's, whose folders are on a disk.
    let root = |path: &str| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let own = root(&format!("/proc/{pid}/root/"));
    if is_apart && own.is_some() && own != root("/") { IN_MEMORY.iter().filter_map(used).sum() } else { 0 }
}

/// Returns the size of files in memory and shared memory on this machine, in KiB; 0 if the kernel does not report it.
fn shared_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Shmem:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

/// Whether sockets of a process contain passed files that were not received yet.
fn has_files_in_flight(pid: u32) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let text = open.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let count = |text: String| text.lines().find_map(|line| line.strip_prefix("scm_fds:")?.trim().parse::<u64>().ok());
    text.filter_map(count).any(|count| count > 0)
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
            .map(|(pid, parent)| ProcessStat { pid, parent, zombie: false, threads: 1, started: 1, pages: 1 })
            .into();
        assert_eq!(descendants(7, &all), BTreeSet::from([7, 8, 9, 10]));
    }

    #[test]
    fn limits_are_exceeded_above_their_number() {
        let limits = SandboxLimits { memory_mib: 10, processes: 3, ..SandboxLimits::default() };
        let usage = |memory_mib, processes, sockets| Usage { memory_mib, processes, sockets, ..Usage::default() };
        assert_eq!(reason(limits, usage(10, 3, 40), 1 << 18), None);
        for (memory_mib, processes, sockets, words) in [
            (11, 1, 0, "11 MiB of memory; the limit is 10"),
            (1, 4, 0, "4 processes"),
            (1, 1, 44, "it had 44 sockets and 0 pipes, which can hold 11 MiB of memory; the limit is 10 MiB"),
        ] {
            assert!(reason(limits, usage(memory_mib, processes, sockets), 1 << 18).unwrap().contains(words));
        }
        assert_eq!(reason(limits, usage(10, 3, u64::MAX), 0), None, "a control group counts them");
        let pipes = |pipes| Usage { pipes, ..usage(10, 3, 40) };
        assert_eq!(
            reason(limits, pipes(128), 1 << 18),
            Some("it had 40 sockets and 128 pipes, which can hold 11 MiB of memory; the limit is 10 MiB".to_owned(),)
        );
        assert_eq!((reason(limits, pipes(127), 1 << 18), reason(limits, pipes(u64::MAX), 0)), (None, None));
        let queued = Usage { queued: 11 << 20, ..usage(10, 3, 40) };
        assert!(reason(limits, queued, 1).unwrap().contains("40 sockets") && reason(limits, queued, 0).is_none());
        let open = |descriptors| reason(limits, Usage { descriptors, ..usage(10, 3, 0) }, 1 << 18);
        assert_eq!(open(MOST_OPEN), None);
        assert!(open(MOST_OPEN + 1).unwrap().contains("more than 131072 descriptors"));
    }

    #[test]
    fn own_processes_are_measured() {
        let usage = measure(
            std::process::id(),
            SandboxLimits { memory_mib: 0, processes: 1, ..SandboxLimits::default() },
            &BTreeSet::new(),
            shared_kib(),
            false,
        );
        assert!(usage.memory_mib > 0 && usage.processes > 0, "{usage:?}");
    }

    /// See docs/research/threats.md#s10.
    #[test]
    fn sockets_are_counted_once_each() {
        let count = || open_files([std::process::id()].into_iter(), &BTreeSet::new(), MOST_OPEN).sockets;
        let pairs: Vec<_> = (0..200).map(|_| std::os::unix::net::UnixStream::pair().unwrap()).collect();
        let copies: Vec<_> = pairs.iter().map(|(one, _)| one.try_clone().unwrap()).collect();
        let (with, before) = (count(), pairs.len() as u64 * 2);
        assert!((before..before + 100).contains(&with), "{with} of {before}");
        drop((pairs, copies));
        assert!(bytes_of_socket() >= SOCKET_DEFAULT);
    }

    /// See docs/research/threats.md#s10.
    #[test]
    fn pipes_are_counted_once_each_and_not_beyond_the_number_of_descriptors() {
        let open = |most| open_files([std::process::id()].into_iter(), &BTreeSet::new(), most);
        let pipes: Vec<_> = (0..200).map(|_| std::io::pipe().unwrap()).collect();
        let copies: Vec<_> = pipes.iter().map(|(one, _)| one.try_clone().unwrap()).collect();
        let found = open(MOST_OPEN);
        assert!((200..300).contains(&found.pipes) && found.descriptors >= 600, "{found:?}");
        let few = open(100);
        assert!(few.descriptors == 101 && few.pipes <= 100, "{few:?}");
        drop((pipes, copies));
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

    /// Reading untouched memory maps a page of zeros, which is no memory of the process; its page tables are.
    /// See docs/research/threats.md#s10.
    #[test]
    #[expect(unsafe_code, reason = "memory is mapped and read")]
    fn page_tables_are_measured() {
        const STEP: usize = 2 << 20;
        const STEPS: usize = 8 << 10;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let limits = SandboxLimits { memory_mib: 16, ..SandboxLimits::default() };
        let used = || measure(std::process::id(), limits, &BTreeSet::new(), shared_kib(), false).memory_mib;
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
    fn memory_that_is_on_its_way_through_a_socket_is_measured() {
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
        let used = |start| measure(std::process::id(), limits, &BTreeSet::new(), start, false).memory_mib;
        let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", theirs.as_raw_fd())).unwrap();
        if !about.contains("scm_fds:") {
            return skipped_tests::skip("this kernel does not tell the files in flight");
        }
        let all_mib = shared_kib() >> 10;
        assert!(used(0) + 8 >= all_mib.max(MIB), "{} of {all_mib}", used(0));
        drop(theirs);
    }
}
