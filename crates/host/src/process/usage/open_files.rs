//! Files that the processes of a run have open, and the watches of its epoll and inotify instances.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::process::stat::ProcessStat;

/// Size of the blocks that `stat` counts, in bytes.
const BLOCK: u64 = 512;
/// Maximum number of descriptors that the processes of a run may have open together. Reading more takes too long.
pub(super) const MOST_OPEN: u64 = 131_072;
/// Beginnings of the lines about watches in `/proc/PID/fdinfo`, by the end of the name of an instance.
const EPOLL: (&[u8], &[u8]) = (b"[eventpoll]", b"tfd:");
const INOTIFY: (&[u8], &[u8]) = (b"inotify", b"inotify wd:");

/// Deleted files, sockets, pipes and watches that processes have open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OpenFiles {
    /// Number of bytes in deleted files that are in memory.
    pub(super) in_memory: u64,
    /// Number of bytes in deleted files on the run's devices.
    pub(super) deleted: u64,
    /// Number of sockets, each counted once.
    pub(super) sockets: u64,
    /// Number of pipes, each counted once.
    pub(super) pipes: u64,
    /// Number of descriptors, at most one more than are examined.
    pub(super) descriptors: u64,
    /// Number of watches of epoll instances, in each process that has the instance.
    pub(super) epoll_watches: u64,
    /// Number of inotify instances, in each process that has the instance.
    pub(super) inotify_instances: u64,
    /// Number of watches of these instances.
    pub(super) inotify_watches: u64,
    /// Process whose files the service may not list.
    pub(super) hidden: Option<u32>,
}

/// Counts the files that processes have open; deleted files, sockets and pipes once each. `devices` are the devices of
/// the run's folders. Stops after `most` descriptors, and after `most_watches` of epoll; counts no watches if it is
/// `None`. The files of `root`, which is trusted, may be hidden.
pub(super) fn open_files(
    root: u32,
    pids: impl Iterator<Item = u32>,
    devices: &BTreeSet<u64>,
    most: u64,
    most_watches: Option<u64>,
) -> OpenFiles {
    let mut known = BTreeSet::new();
    let mut found = OpenFiles::default();
    for pid in pids {
        let listed = fs::read_dir(format!("/proc/{pid}/fd"));
        if pid != root && listed.as_ref().is_err_and(|error| hides_files(pid, error)) {
            found.hidden = Some(pid);
        }
        for open in listed.into_iter().flatten().flatten() {
            found.descriptors += 1;
            if found.descriptors > most {
                return found;
            }
            let Ok(file) = fs::metadata(open.path()) else { continue };
            let is_nameless = file.is_file() && file.nlink() == 0;
            let kind = file.file_type();
            if file.mode() & libc::S_IFMT == 0 {
                let name = fs::read_link(open.path()).unwrap_or_default();
                most_watches.inspect(|most| found.add_watches(pid, &open.file_name(), name.as_os_str(), *most));
                if most_watches.is_some_and(|most| found.epoll_watches > most) {
                    return found;
                }
                continue;
            }
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

/// Whether a process keeps the service from listing its files. A process that ends has no memory left, and its files
/// cannot be listed either.
fn hides_files(pid: u32, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && ProcessStat::of(pid).is_some_and(|process| process.size > 0)
}

impl OpenFiles {
    /// Adds an instance with its watches, by the name of the file behind a descriptor.
    fn add_watches(&mut self, pid: u32, descriptor: &OsStr, name: &OsStr, most: u64) {
        let watches = |instance: (&[u8], &[u8])| {
            let file = || format!("/proc/{pid}/fdinfo/{}", descriptor.to_string_lossy());
            name.as_bytes().ends_with(instance.0).then(|| lines_with(&file(), instance.1, most))
        };
        if let Some(watches) = watches(EPOLL) {
            self.epoll_watches += watches;
        } else if let Some(watches) = watches(INOTIFY) {
            self.inotify_instances += 1;
            self.inotify_watches += watches;
        }
    }
}

/// Counts the lines of a file that start with `prefix`, at most one more than `most`.
fn lines_with(path: &str, prefix: &[u8], most: u64) -> u64 {
    let Ok(file) = File::open(path) else { return 0 };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut count = 0;
    while count <= most && matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        count += u64::from(line.starts_with(prefix));
        line.clear();
    }
    count
}

/// Whether sockets of a process contain passed files that were not received yet.
pub(super) fn has_files_in_flight(pid: u32) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let text = open.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let count = |text: String| text.lines().find_map(|line| line.strip_prefix("scm_fds:")?.trim().parse::<u64>().ok());
    text.filter_map(count).any(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use rustix::event::epoll;

    use super::*;

    fn own(most: u64, most_watches: Option<u64>) -> OpenFiles {
        open_files(0, [std::process::id()].into_iter(), &BTreeSet::new(), most, most_watches)
    }

    /// See docs/research/threats.md#s10.
    #[test]
    fn sockets_are_counted_once_each() {
        let count = || own(MOST_OPEN, None).sockets;
        let pairs: Vec<_> = (0..200).map(|_| std::os::unix::net::UnixStream::pair().unwrap()).collect();
        let copies: Vec<_> = pairs.iter().map(|(one, _)| one.try_clone().unwrap()).collect();
        let (with, before) = (count(), pairs.len() as u64 * 2);
        assert!((before..before + 100).contains(&with), "{with} of {before}");
        drop((pairs, copies));
    }

    /// See docs/research/threats.md#s10.
    #[test]
    fn pipes_are_counted_once_up_to_the_number_of_descriptors() {
        let pipes: Vec<_> = (0..200).map(|_| std::io::pipe().unwrap()).collect();
        let copies: Vec<_> = pipes.iter().map(|(one, _)| one.try_clone().unwrap()).collect();
        let found = own(MOST_OPEN, None);
        assert!((200..300).contains(&found.pipes) && found.descriptors >= 600, "{found:?}");
        let few = own(100, None);
        assert!(few.descriptors == 101 && few.pipes <= 100, "{few:?}");
        drop((pipes, copies));
    }

    /// See docs/research/threats.md#s10.
    #[test]
    fn watches_are_counted_up_to_a_maximum() {
        let pipes: Vec<_> = (0..100).map(|_| std::io::pipe().unwrap()).collect();
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for (reader, _) in &pipes {
            epoll::add(&instance, reader, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let inotify = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).unwrap();
        rustix::fs::inotify::add_watch(&inotify, folder.path(), rustix::fs::inotify::WatchFlags::CREATE).unwrap();
        let found = own(MOST_OPEN, Some(1_000));
        assert!((100..300).contains(&found.epoll_watches), "{found:?}");
        assert!(found.inotify_instances >= 1 && found.inotify_watches >= 1, "{found:?}");
        assert!((11..100).contains(&own(MOST_OPEN, Some(10)).epoll_watches), "it stops");
        assert_eq!(own(MOST_OPEN, None).epoll_watches, 0, "they are the limit of a separate user");
    }
}
