//! Disk space of a run's folders, measured with limits and without following links.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat, statvfs};

use crate::clock::Stopwatch;

/// Maximum number of files and folders that are counted; a run that has more exceeds its limit.
const MOST_FILES: u64 = 4_000_000;
/// Maximum depth of folders that is measured, because each level needs a descriptor.
const MOST_DEPTH: usize = 128;
/// Size of the blocks that `stat` counts, in bytes.
const BLOCK: u64 = 512;
/// Divisor of the free inodes of a file system: a run may use one part of this many.
const INODES_PART: u64 = 4;
/// Decrease of free space, in bytes, after which the folders are measured again.
const NOTABLE: u64 = 32 << 20;
/// Decrease of free inodes after which the folders are measured again.
const NOTABLE_FILES: u64 = 20_000;
/// Time after which the folders are measured again in any case.
const AT_LEAST: Duration = Duration::from_secs(60);
/// Divisor of the time: measuring takes at most this fraction of the time.
const SHARE: u32 = 20;

/// Space used by folders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DiskUse {
    /// Allocated bytes.
    pub(super) bytes: u64,
    /// Number of files and folders.
    pub(super) files: u64,
    /// Whether some folders could not be read or are nested too deeply.
    pub(super) incomplete: bool,
}

/// Watcher that measures the folders of a run when their file system has lost space.
#[derive(Debug)]
pub(super) struct DiskWatch {
    folders: Vec<PathBuf>,
    limit: u64,
    free_at_start: u64,
    free: u64,
    /// Free inodes at the last check; `None` if the file system has no fixed number.
    inodes: Option<u64>,
    /// Free inodes at the start.
    inodes_at_start: Option<u64>,
    /// Number of files at the first measurement.
    files_at_start: Option<u64>,
    measured: Stopwatch,
    took: Duration,
    last: DiskUse,
}

impl DiskWatch {
    /// Creates a watcher for these folders; the limit is in bytes.
    pub(super) fn new(folders: Vec<PathBuf>, limit: u64) -> Self {
        let (free, inodes) = (free(&folders), free_inodes(&folders));
        // Measured at the first look, because folders may be large before the run.
        let last = DiskUse { incomplete: true, ..DiskUse::default() };
        Self {
            folders,
            limit,
            free_at_start: free,
            free,
            inodes,
            inodes_at_start: inodes,
            files_at_start: None,
            measured: Stopwatch::start(),
            took: AT_LEAST,
            last,
        }
    }

    /// Returns the number of files above which a run is stopped: those at the start plus a part of the inodes that
    /// were free.
    fn most_files(&self) -> u64 {
        let new = self.inodes_at_start.map_or(MOST_FILES, |free| free / INODES_PART);
        self.files_at_start.unwrap_or(0).saturating_add(new).min(MOST_FILES)
    }

    /// Returns the devices of the folders.
    pub(super) fn devices(&self) -> BTreeSet<u64> {
        self.folders.iter().filter_map(|folder| Some(statat(CWD, folder, AtFlags::empty()).ok()?.st_dev)).collect()
    }

    /// Returns the reason if the limit is exceeded. `deleted` is the number of bytes in deleted files that are still
    /// open. Blocking.
    pub(super) fn exceeded(&mut self, deleted: u64) -> Option<String> {
        let free_now = free(&self.folders);
        let is_first = self.took == AT_LEAST;
        let since = self.measured.elapsed();
        let inodes_now = free_inodes(&self.folders);
        let created = self.inodes.zip(inodes_now).map_or(0, |(before, now)| before.saturating_sub(now));
        let lost = self.free.saturating_sub(free_now);
        // Space that was lost since the start may belong to the run, and may exceed the limit even if it is small.
        let may_exceed = self.last.files.saturating_add(created) > self.most_files()
            || self.last.bytes.saturating_add(lost) > self.limit;
        let due = lost >= NOTABLE || created >= NOTABLE_FILES || may_exceed;
        if is_first || (due && since >= self.took * SHARE) || since >= AT_LEAST {
            let start = Stopwatch::start();
            self.last = used(&self.folders, self.limit);
            (self.measured, self.free, self.inodes) = (Stopwatch::start(), free_now, inodes_now);
            // Files that were created before the first look are the run's.
            let new = self.inodes_at_start.zip(inodes_now).map_or(0, |(before, now)| before.saturating_sub(now));
            self.files_at_start.get_or_insert(self.last.files.saturating_sub(new));
            self.took = start.elapsed().min(AT_LEAST / 2);
        }
        let limit_mib = self.limit >> 20;
        let bytes = self.last.bytes.saturating_add(deleted);
        let most_files = self.most_files();
        if self.last.files > most_files {
            Some(format!("it has {} files; {most_files} are allowed on this file system", self.last.files))
        } else if bytes > self.limit {
            Some(format!("it used {} MiB of disk space; the limit is {limit_mib} MiB", bytes >> 20))
        } else if self.last.incomplete && self.free_at_start.saturating_sub(free_now) > self.limit {
            Some(format!(
                "its folders cannot be measured, and more than {limit_mib} MiB of disk space were used while it ran"
            ))
        } else {
            None
        }
    }
}

/// Returns the free bytes of a folder's file system; `None` if they cannot be determined.
pub fn free_space(folder: &Path) -> Option<u64> {
    statvfs(folder).ok().map(|found| found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns the free bytes of the file system of the first folder.
fn free(folders: &[PathBuf]) -> u64 {
    folders.first().and_then(|folder| free_space(folder)).unwrap_or(u64::MAX)
}

/// Returns the free inodes of the first folder's file system; `None` if it has no fixed number of inodes.
fn free_inodes(folders: &[PathBuf]) -> Option<u64> {
    statvfs(folders.first()?).ok().filter(|found| found.f_files > 0).map(|found| found.f_favail)
}

/// Measures folders; stops when they exceed `limit` bytes.
fn used(folders: &[PathBuf], limit: u64) -> DiskUse {
    let (mut found, mut linked) = (DiskUse::default(), BTreeSet::new());
    for folder in folders {
        measure(folder, limit, &mut found, &mut linked);
    }
    found
}

fn measure(folder: &Path, limit: u64, found: &mut DiskUse, linked: &mut BTreeSet<(u64, u64)>) {
    let Some(first) = open(CWD, folder) else {
        found.incomplete |= folder.is_dir();
        return;
    };
    let mut levels = vec![first];
    while let Some(level) = levels.last_mut() {
        if found.bytes > limit || found.files > MOST_FILES {
            return;
        }
        let Some(Ok(entry)) = level.read() else {
            levels.pop();
            continue;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat: Option<Stat> = level.fd().ok().and_then(|fd| statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        let Some(stat) = stat else { continue };
        found.files += 1;
        let is_shared = stat.st_nlink > 1 && FileType::from_raw_mode(stat.st_mode) != FileType::Directory;
        if !is_shared || linked.insert((stat.st_dev, stat.st_ino)) {
            found.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let below = if levels.len() < MOST_DEPTH {
                levels.last().and_then(|level| open(level.fd().ok()?, name))
            } else {
                None
            };
            match below {
                Some(below) => levels.push(below),
                None => found.incomplete = true,
            }
        }
    }
}

fn open(at: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> Option<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder: OwnedFd = openat(at, name, flags, Mode::empty()).ok()?;
    Dir::new(folder).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// See docs/research/threats.md#s10.
    #[test]
    fn files_are_measured_once_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("large"), vec![1; 4 << 20]).unwrap();
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(at("a/b/file"), at("again")).unwrap();
        std::os::unix::fs::symlink(outside.path(), at("link")).unwrap();
        let sparse = fs::File::create(at("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let found = used(&[folder.path().to_owned()], u64::MAX);
        assert!((1 << 20..2 << 20).contains(&found.bytes) && !found.incomplete, "{found:?}");
        assert_eq!(found.files, 6);
        assert!(used(&[folder.path().to_owned()], 1000).bytes > 1000);
        assert_eq!(used(&["/nonexistent".into()], 1), DiskUse::default());
    }

    #[test]
    fn too_deep_folder_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut deep = folder.path().to_owned();
        for _ in 0..MOST_DEPTH + 1 {
            deep.push("d");
        }
        fs::create_dir_all(deep).unwrap();
        assert!(used(&[folder.path().to_owned()], u64::MAX).incomplete);
    }

    /// See docs/research/threats.md#s10.
    #[test]
    fn empty_files_are_limited_by_the_inodes_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("before"), "").unwrap();
        let mut watch = DiskWatch::new(vec![folder.path().to_owned()], 1 << 30);
        if watch.inodes.is_none() {
            return skipped_tests::skip_in_ci_as_well("the file system has no fixed number of inodes");
        }
        (watch.inodes_at_start, watch.inodes) = (Some(40), Some(u64::MAX));
        assert_eq!((watch.exceeded(0), watch.most_files()), (None, 11));
        for number in 0..11 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        // No byte of space was used, less than a minute passed, and the disk lost few inodes: fewer than are notable.
        (watch.inodes, watch.took) = (free_inodes(&watch.folders).map(|free| free + NOTABLE_FILES / 2), Duration::ZERO);
        assert!(watch.exceeded(0).unwrap().contains("it has 12 files; 11 are allowed"));
        watch.inodes_at_start = None;
        assert_eq!(watch.most_files(), MOST_FILES);
        // A run that creates its files before the first look has no more room than others. Other programs may free inodes meanwhile.
        let mut late = DiskWatch::new(vec![folder.path().to_owned()], 1 << 30);
        late.inodes_at_start = late.inodes_at_start.map(|free| free + 1_000_000);
        assert_eq!(late.exceeded(0), None);
        assert_eq!(late.files_at_start, Some(0));
    }

    #[test]
    fn limit_is_exceeded_only_above_its_value() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), vec![1; 2 << 20]).unwrap();
        let watch = |limit: u64| DiskWatch::new(vec![folder.path().to_owned()], limit);
        assert_eq!(watch(8 << 20).exceeded(0), None);
        assert!(watch(1 << 20).exceeded(0).unwrap().contains("MiB of disk space; the limit is 1 MiB"));
        assert!(watch(8 << 20).exceeded(9 << 20).unwrap().contains("11 MiB of disk space"));
    }
}
