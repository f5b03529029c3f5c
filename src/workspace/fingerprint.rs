//! Fingerprints of work trees, which show without a start of git that no file changed.
//!
//! The kernel sets a file's change time (ctime) at each change of its content or attributes, and no system call sets it to a chosen
//! time. A change that restores a file's size and modification time is therefore seen as well.

use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

/// Age from which a file's change time is told apart from that of a later change. Kernels set it by a clock of 1 to 10 ms.
const SETTLED_AFTER: Duration = Duration::from_millis(50);
/// As above, for file systems that keep whole seconds.
const SETTLED_AFTER_SECONDS: Duration = Duration::from_secs(3);

/// Names of all files and folders of a tree, and attributes of its files, without the repository at its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

/// Fingerprint that is being made.
#[derive(Debug, Default)]
pub(super) struct Fingerprinter {
    hash: Sha256,
    /// Newest change time of a file, in seconds and nanoseconds since 1970.
    newest: (i64, i64),
}

impl Fingerprinter {
    /// Adds a folder by its path in the tree.
    pub fn add_folder(&mut self, path: &[u8]) {
        self.hash.update(path);
        self.hash.update([0, 0]);
    }

    /// Adds a file or link by its path in the tree.
    pub fn add_file(&mut self, path: &[u8], found: &Metadata) {
        let change = (found.ctime(), found.ctime_nsec());
        self.newest = self.newest.max(change);
        self.hash.update(path);
        self.hash.update([0, 1]);
        for value in [found.dev(), found.ino(), found.size(), u64::from(found.mode())] {
            self.hash.update(value.to_le_bytes());
        }
        for value in [change.0, change.1, found.mtime(), found.mtime_nsec()] {
            self.hash.update(value.to_le_bytes());
        }
    }

    /// Returns the fingerprint.
    pub fn finish(self) -> Fingerprint {
        Fingerprint(self.hash.finalize().into())
    }

    /// Returns the fingerprint of a tree that was read from `start` on; `None` if a file changed shortly before, so that a further
    /// change could leave the same change time.
    pub fn finish_settled(self, start: SystemTime) -> Option<Fingerprint> {
        let (seconds, nanoseconds) = self.newest;
        let margin = if nanoseconds == 0 { SETTLED_AFTER_SECONDS } else { SETTLED_AFTER };
        let newest = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        let start = start.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        (newest + margin < start).then(|| self.finish())
    }
}

/// Returns the fingerprint of a tree. Does not follow links.
pub(super) fn fingerprint_of(dir: &Path) -> io::Result<Fingerprint> {
    let mut made = Fingerprinter::default();
    // Folders, each with its path below `dir`, which is empty or ends with a slash.
    let mut waiting = vec![(dir.to_path_buf(), Vec::new())];
    while let Some((here, prefix)) = waiting.pop() {
        for entry in std::fs::read_dir(&here)? {
            let entry = entry?;
            if prefix.is_empty() && entry.file_name() == ".git" {
                continue;
            }
            let mut path = prefix.clone();
            path.extend_from_slice(entry.file_name().as_bytes());
            if entry.file_type()?.is_dir() {
                made.add_folder(&path);
                path.push(b'/');
                waiting.push((entry.path(), path));
            } else {
                made.add_file(&path, &entry.metadata()?);
            }
        }
    }
    Ok(made.finish())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn settled(dir: &Path, start: SystemTime) -> Option<Fingerprint> {
        let mut made = Fingerprinter::default();
        made.add_file(b"file", &std::fs::symlink_metadata(dir.join("file")).unwrap());
        made.finish_settled(start)
    }

    #[test]
    fn changes_of_files_change_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), "one").unwrap();
        let written = std::fs::metadata(root.join("a/b/file")).unwrap().modified().unwrap();
        let mut seen = vec![fingerprint_of(root).unwrap()];
        let changes: [(&str, &dyn Fn()); 7] = [
            ("the same size and modification time", &|| {
                std::fs::write(root.join("a/b/file"), "two").unwrap();
                std::fs::File::options()
                    .write(true)
                    .open(root.join("a/b/file"))
                    .unwrap()
                    .set_modified(written)
                    .unwrap();
            }),
            ("a mode", &|| {
                std::fs::set_permissions(root.join("a/b/file"), std::fs::Permissions::from_mode(0o755)).unwrap()
            }),
            ("a further file", &|| std::fs::write(root.join("a/.git"), "").unwrap()),
            ("a further folder", &|| std::fs::create_dir(root.join("c")).unwrap()),
            ("a link", &|| std::os::unix::fs::symlink("file", root.join("a/b/link")).unwrap()),
            ("a second name of a file", &|| std::fs::hard_link(root.join("a/b/file"), dir.path().join("d")).unwrap()),
            ("a name", &|| std::fs::rename(root.join("c"), root.join("e")).unwrap()),
        ];
        for (what, change) in changes {
            // Longer than the clock of change times.
            std::thread::sleep(SETTLED_AFTER);
            change();
            let now = fingerprint_of(root).unwrap();
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        }
        std::fs::create_dir(root.join(".git")).unwrap();
        std::fs::write(root.join(".git/config"), "x").unwrap();
        assert_eq!(fingerprint_of(root).unwrap(), *seen.last().unwrap(), "the repository is no part");
    }

    #[test]
    fn fresh_files_have_no_settled_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let before = SystemTime::now();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        assert_eq!(settled(dir.path(), before), None);
        assert_eq!(settled(dir.path(), SystemTime::now()), None);
        let later = SystemTime::now() + SETTLED_AFTER_SECONDS;
        assert_eq!(settled(dir.path(), later).as_ref(), settled(dir.path(), later + SETTLED_AFTER).as_ref());
        assert!(settled(dir.path(), later).is_some());
    }
}
