//! Method by which git's objects reach the disk. It depends on the file system: not on all of them does the sync of one
//! file make files durable that were written before it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Type of ext2, ext3 and ext4 in `statfs(2)`.
const EXT: u64 = 0xef53;
/// Type of XFS in `statfs(2)`.
const XFS: u64 = 0x5846_5342;

/// Method by which git's objects reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::workspace) enum SyncMethod {
    /// A file system with a journal: the sync of any file makes all changes before it durable. Objects are written to
    /// the disk before they get their names, so a power failure leaves each of them whole or without a name.
    Journal,
    /// Each object gets a separate sync. On btrfs, the sync of a file does not cover other files.
    EachObject,
}

impl SyncMethod {
    /// Returns the method for the file system of a folder. If the file system cannot be determined, each object is
    /// synced.
    pub fn of(folder: &Path) -> Self {
        let kind = rustix::fs::statfs(folder).map(|found| found.f_type);
        let kind = kind.ok().and_then(|kind| u64::try_from(kind).ok());
        let journal = match kind {
            Some(XFS) => true,
            Some(EXT) => has_journal(folder),
            _ => false,
        };
        if journal { Self::Journal } else { Self::EachObject }
    }

    /// Returns git's setting for a command. `synced_by_ref` is set if a ref is updated before its objects are needed.
    pub fn setting(self, synced_by_ref: bool) -> &'static str {
        match (self, synced_by_ref) {
            (Self::Journal, true) => "core.fsyncMethod=writeout-only",
            (Self::Journal, false) => "core.fsyncMethod=batch",
            (Self::EachObject, _) => "core.fsyncMethod=fsync",
        }
    }
}

/// Whether the ext4 file system of a folder has a journal that the kernel lists.
fn has_journal(folder: &Path) -> bool {
    let Ok(device) = folder.metadata().map(|found| found.dev()) else { return false };
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut devices: Vec<PathBuf> = source_of(&number, &mounts).into_iter().collect();
    // A mapped device has a journal by its own name: `/dev/mapper/data` is a link to `/dev/dm-0`.
    let links =
        devices.iter().map(std::fs::canonicalize).chain([std::fs::read_link(format!("/sys/dev/block/{number}"))]);
    devices.extend(links.flatten().collect::<Vec<_>>());
    let journals = std::fs::read_dir("/proc/fs/jbd2").into_iter().flatten().flatten();
    let journals: Vec<String> = journals.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    devices.iter().any(|device| is_journaled(device, &journals))
}

/// Returns the device of a mount, from its device number (`8:1`) and the contents of `/proc/PID/mountinfo`.
fn source_of(number: &str, mountinfo: &str) -> Option<PathBuf> {
    let mut mounts = mountinfo.lines().filter_map(|line| line.split_once(" - "));
    let (_, after) = mounts.find(|(before, _)| before.split(' ').nth(2) == Some(number))?;
    after.split(' ').nth(1).map(PathBuf::from)
}

/// Whether one of the journals, which are named by device and inode (`sda1-8`), belongs to a device.
fn is_journaled(device: &Path, journals: &[String]) -> bool {
    let Some(name) = device.file_name() else { return false };
    journals.iter().any(|journal| journal.rsplit_once('-').is_some_and(|(of, _)| *of == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_without_known_journal_has_each_object_synced() {
        for folder in ["/proc", "/sys", "/missing"] {
            assert_eq!(SyncMethod::of(Path::new(folder)), SyncMethod::EachObject, "{folder}");
        }
    }

    #[test]
    fn journal_of_a_device_is_found_by_its_number() {
        let mounts = "22 27 0:21 / /proc rw - proc proc rw\n27 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw,discard\n";
        let source = source_of("8:1", mounts).unwrap();
        assert_eq!((source.as_path(), source_of("8:2", mounts)), (Path::new("/dev/sda1"), None));
        let journals = ["sda1-8".to_owned(), "dm-0-8".to_owned()];
        for (device, expected) in
            [("/dev/sda1", true), ("../../block/dm-0", true), ("/dev/sda", false), ("/dev/dm", false)]
        {
            assert_eq!(is_journaled(Path::new(device), &journals), expected, "{device}");
        }
    }

    #[test]
    fn objects_are_synced_with_the_ref_only_on_a_journaling_file_system() {
        let settings = |method: SyncMethod| [true, false].map(|by_ref| method.setting(by_ref));
        let method = |name: &str| format!("core.fsyncMethod={name}");
        assert_eq!(settings(SyncMethod::Journal), [method("writeout-only"), method("batch")]);
        assert_eq!(settings(SyncMethod::EachObject), [method("fsync"), method("fsync")]);
    }
}
