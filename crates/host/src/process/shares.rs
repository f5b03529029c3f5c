//! Share of one run of the limits that the kernel keeps for each user.
//!
//! Unless the service is root, its programs have its kernel user. The kernel then counts what they hold together with
//! what the service and other runs hold, and refuses more to all of them.

use std::ffi::CString;
use std::fs;

use super::usage::OpenFiles;

/// Divisor of a user's limits: a run may use one part of this many.
pub(super) const PART: u64 = 4;
/// Maximum number of epoll watches of a run: two for each descriptor that its processes may have. Counting more takes
/// too long.
const MOST_EPOLL_WATCHES: u64 = 262_144;
/// Limits of a user that the kernel also keeps for each user namespace: the name below `/proc/sys/fs`, and the file of
/// the namespace.
const IN_NAMESPACE: [(&str, &str); 2] = [
    ("inotify/max_user_instances", "/proc/sys/user/max_inotify_instances"),
    ("inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"),
];

/// Bytes of the kernel for an epoll watch.
const EPOLL_WATCH: u64 = 192;

/// Maximum numbers of what the kernel counts for each user.
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

    /// Returns the reason if a run exceeds its share.
    pub(super) fn exceeded(&self, open: &OpenFiles) -> Option<String> {
        [
            (open.epoll_watches, self.epoll_watches, "epoll watches", "epoll.max_user_watches"),
            (open.inotify_instances, self.inotify_instances, "inotify instances", "inotify.max_user_instances"),
            (open.inotify_watches, self.inotify_watches, "inotify watches", "inotify.max_user_watches"),
        ]
        .into_iter()
        .find(|(count, most, ..)| count > most)
        .map(|(_, most, what, setting)| {
            format!("it had more than {most} {what}, its share of the limit of the service's user, `fs.{setting}`")
        })
    }
}

/// Returns the files of a new user namespace by which the kernel limits what its processes hold, and their contents.
pub(super) fn of_namespace() -> Vec<(CString, Vec<u8>)> {
    let limits = IN_NAMESPACE.into_iter().filter_map(|(name, file)| Some((file, part_of(name)?)));
    limits.filter_map(|(file, most)| Some((CString::new(file).ok()?, most.to_string().into_bytes()))).collect()
}

/// Returns the share of a limit of the machine; `None` if the kernel does not have the limit.
fn part_of(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/fs/{name}")).ok()?;
    Some(text.trim().parse::<u64>().ok()? / PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_exceeds_its_share_above_the_number() {
        let share = UserShare { epoll_watches: 10, half_of_watches_kib: 1, inotify_instances: 2, inotify_watches: 5 };
        let open = |epoll_watches, inotify_instances, inotify_watches| OpenFiles {
            epoll_watches,
            inotify_instances,
            inotify_watches,
            ..OpenFiles::default()
        };
        assert_eq!(share.exceeded(&open(10, 2, 5)), None);
        for (open, words) in [
            (open(11, 0, 0), "it had more than 10 epoll watches"),
            (
                open(0, 3, 0),
                "more than 2 inotify instances, its share of the limit of the service's user, `fs.inotify.max_user_instances`",
            ),
            (open(0, 0, 6), "more than 5 inotify watches"),
        ] {
            assert!(share.exceeded(&open).unwrap().contains(words), "{words}");
        }
        assert_eq!(UserShare::here(true).exceeded(&open(0, 1 << 40, 1 << 40)), None, "the kernel enforces them");
        assert!(UserShare::here(false).exceeded(&open(0, 1 << 40, 0)).is_some());
    }
}
