//! Fingerprints of work trees, which show without a start of git that no file changed.
//!
//! The kernel sets a file's change time (ctime) at each change of its content or attributes, and no system call sets it to a chosen
//! time. A change that restores a file's size and modification time is therefore seen as well.

use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::clock::Clock;
use crate::domain::model::ids::Timestamp;

/// Age in milliseconds from which a file's change time is told apart from that of a later change. Kernels set it by a clock of 1 to 10
/// ms.
const SETTLED_AFTER_MS: i64 = 50;
/// The same age on file systems that keep whole seconds.
const SECONDS_SETTLED_AFTER_MS: i64 = 3_000;

/// Names of all files and folders of a tree, and attributes of its files, without the repository at its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

/// Fingerprint that is being made.
#[derive(Debug)]
pub(super) struct Fingerprinter {
    /// `None` once a file was added that had changed shortly before, so that a further change could leave the same change time.
    hash: Option<Sha256>,
    /// Time of the kernel's clock, which file systems use, when this was created.
    start: Timestamp,
}

impl Fingerprinter {
    /// Creates the fingerprint of an empty tree.
    pub fn new() -> Self {
        Self { hash: Some(Sha256::new()), start: Clock::System.now() }
    }

    /// Adds a folder by its path in the tree.
    pub fn add_folder(&mut self, path: &[u8]) {
        if let Some(hash) = &mut self.hash {
            hash.update(path);
            hash.update([0, 0]);
        }
    }

    /// Adds a file or link by its path in the tree. `read` returns its attributes and is not called if they are not needed.
    pub fn add_file(&mut self, path: &[u8], read: impl FnOnce() -> io::Result<Metadata>) -> io::Result<()> {
        let Some(hash) = &mut self.hash else { return Ok(()) };
        let found = read()?;
        let age_ms = if found.ctime_nsec() == 0 { SECONDS_SETTLED_AFTER_MS } else { SETTLED_AFTER_MS };
        let changed_ms = found.ctime().saturating_mul(1000).saturating_add(found.ctime_nsec() / 1_000_000);
        if changed_ms.saturating_add(age_ms) >= self.start.0 {
            self.hash = None;
            return Ok(());
        }
        hash.update(path);
        hash.update([0, 1]);
        for value in [found.dev(), found.ino(), found.size(), u64::from(found.mode())] {
            hash.update(value.to_le_bytes());
        }
        for value in [found.ctime(), found.ctime_nsec(), found.mtime(), found.mtime_nsec()] {
            hash.update(value.to_le_bytes());
        }
        Ok(())
    }

    /// Returns the fingerprint; `None` if a file changed shortly before it was read.
    pub fn finish(self) -> Option<Fingerprint> {
        self.hash.map(|hash| Fingerprint(hash.finalize().into()))
    }
}

/// Returns the fingerprint of a tree; `None` if a file changed shortly before. Does not follow links.
pub(super) fn fingerprint_of(dir: &Path) -> io::Result<Option<Fingerprint>> {
    let mut made = Fingerprinter::new();
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
                made.add_file(&path, || entry.metadata())?;
            }
        }
    }
    Ok(made.finish())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    /// Longer than any file is fresh.
    const SETTLED: Duration = Duration::from_millis(2 * SETTLED_AFTER_MS.unsigned_abs());

    #[test]
    fn changes_of_files_change_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), "one").unwrap();
        let written = std::fs::metadata(root.join("a/b/file")).unwrap().modified().unwrap();
        let settled = || {
            std::thread::sleep(SETTLED);
            fingerprint_of(root).unwrap().expect("no fresh file")
        };
        let mut seen = vec![settled()];
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
            change();
            let now = settled();
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        }
        std::fs::create_dir(root.join(".git")).unwrap();
        std::fs::write(root.join(".git/config"), "x").unwrap();
        assert_eq!(settled(), *seen.last().unwrap(), "the repository is no part");
    }

    #[test]
    fn tree_with_a_fresh_file_has_no_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        // More than once, because a busy machine may stop the test for as long as a file is fresh.
        let is_unknown = |_| {
            std::fs::write(dir.path().join("file"), "x").unwrap();
            fingerprint_of(dir.path()).unwrap().is_none()
        };
        assert!((0..20).any(is_unknown));
        std::thread::sleep(SETTLED);
        let settled = fingerprint_of(dir.path()).unwrap();
        assert!(settled.is_some() && settled == fingerprint_of(dir.path()).unwrap());
    }
}
