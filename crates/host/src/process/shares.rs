//! Share of one run of the limits that the kernel keeps for each user.
//!
//! Unless the service is root, its programs have its kernel user. The kernel then counts their objects together with the
//! objects of the service and of other runs, and refuses more to all of them.

use std::ffi::CString;
use std::fs;

use rustix::process::{Resource, Rlimit};

/// Divisor of a user's limits: a run may use one part of this many.
pub(super) const PART: u64 = 4;
/// Maximum number of epoll watches of a run: two for each descriptor that its processes may have. Counting more takes
/// too long.
const MOST_EPOLL_WATCHES: u64 = 262_144;
/// Maximum number of open files of a process in a sandbox, and of files that its user has in transit through sockets.
pub(super) const MOST_DESCRIPTORS: u64 = 16_384;
/// Limits of a user that the kernel also keeps for each user namespace: the name below `/proc/sys/fs`, and the file of
/// the namespace.
const IN_NAMESPACE: [(&str, &str); 2] = [
    ("inotify/max_user_instances", "/proc/sys/user/max_inotify_instances"),
    ("inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"),
];

/// Bytes of the kernel for an epoll watch.
const EPOLL_WATCH: u64 = 192;

/// Maximum numbers of objects that the kernel counts for each user.
#[derive(Debug, Clone, Copy)]
pub(super) struct UserShare {
    pub(super) epoll_watches: u64,
    /// Memory of the kernel for half of the user's epoll watches, in KiB.
    pub(super) half_of_watches_kib: u64,
    pub(super) inotify_instances: u64,
    pub(super) inotify_watches: u64,
}

impl UserShare {
    /// Returns a part of this machine's limits. `in_namespace` states that the kernel enforces [`of_namespace`].
    pub(super) fn here(in_namespace: bool) -> Self {
        let epoll = part_of("epoll/max_user_watches").unwrap_or(u64::MAX);
        let inotify = IN_NAMESPACE.map(|(name, _)| part_of(name).filter(|_| !in_namespace).unwrap_or(u64::MAX));
        Self {
            epoll_watches: epoll.min(MOST_EPOLL_WATCHES),
            half_of_watches_kib: epoll.saturating_mul(PART / 2 * EPOLL_WATCH) >> 10,
            inotify_instances: inotify[0],
            inotify_watches: inotify[1],
        }
    }
}

/// Returns the files of a new user namespace by which the kernel limits the resources of its processes, and their contents.
pub(super) fn of_namespace() -> Vec<(CString, Vec<u8>)> {
    let limits = IN_NAMESPACE.into_iter().filter_map(|(name, file)| Some((file, part_of(name)?)));
    limits.filter_map(|(file, most)| Some((CString::new(file).ok()?, most.to_string().into_bytes()))).collect()
}

/// Returns the share of a limit of the machine; `None` if the kernel does not have the limit.
fn part_of(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/fs/{name}")).ok()?;
    Some(text.trim().parse::<u64>().ok()? / PART)
}

/// Returns the limit of a resource that the kernel counts for each user, lowered to a share.
pub(super) fn part_of_resource(resource: Resource) -> Rlimit {
    let current = rustix::process::getrlimit(resource).current;
    lowered(resource, current.map_or(u64::MAX, |most| most / PART))
}

/// Returns a limit of this process, lowered to `most`.
pub(super) fn lowered(resource: Resource, most: u64) -> Rlimit {
    let Rlimit { current, maximum } = rustix::process::getrlimit(resource);
    let lower = |value: Option<u64>| Some(value.map_or(most, |value| value.min(most)));
    Rlimit { current: lower(current), maximum: lower(maximum) }
}
