//! Reads and removes agents' untrusted files without following links.

use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt as _, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, utimensat};

use super::WorkspaceError;
use crate::domain::model::ids::Timestamp;

/// Maximum depth of folders, because git supports paths of up to 4096 bytes.
const DEEPEST: usize = 2000;

/// Converts a path in git's output.
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Joins paths with zero bytes, for git's standard input.
pub(super) fn zero_terminated(paths: &[PathBuf]) -> Vec<u8> {
    paths.iter().flat_map(|path| path.as_os_str().as_encoded_bytes().iter().copied().chain([0])).collect()
}

/// Splits output at zero bytes, for commands with `-z`.
pub(super) fn zero_separated(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty())
}

/// Returns the first `limit` bytes of a regular file below `root` without following links; `None` if there is no such file.
pub(super) fn read_beneath(root: &Path, path: &Path, limit: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open_beneath(root, path)?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Opens a regular file below `root` for reading without following links; `None` if there is no such file.
pub(super) fn open_beneath(root: &Path, path: &Path) -> Option<std::fs::File> {
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(root, folder, Mode::empty()).ok()?;
    let mut parts = path.components().peekable();
    while let Some(Component::Normal(part)) = parts.next() {
        let last = parts.peek().is_none();
        here = rustix::fs::openat(&here, part, if last { file } else { folder }, Mode::empty()).ok()?;
        if last {
            let open = std::fs::File::from(here);
            return open.metadata().is_ok_and(|found| found.is_file()).then_some(open);
        }
    }
    None
}

/// Names of files in a work tree that git reads.
const READ_BY_GIT: [&str; 4] = [".gitignore", ".gitattributes", ".gitmodules", ".mailmap"];

/// Removes named pipes below `root` that have the names of files which git reads. A process that waits for such a pipe
/// reads an empty file then. Does not follow links, and ignores errors.
pub(super) fn remove_pipes(root: &Path) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_fifo() && READ_BY_GIT.iter().any(|name| entry.file_name() == *name) {
                // With a writer, opening it for reading ends; without the writer, reading ends.
                let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let writer = rustix::fs::open(entry.path(), flags, Mode::empty());
                let _ = std::fs::remove_file(entry.path());
                drop(writer);
            }
        }
    }
}

/// Whether all parents of `path` below `root` are folders, not links.
pub(super) fn parents_are_real(root: &Path, path: &Path) -> bool {
    let mut here = root.to_path_buf();
    let Some(parent) = path.parent() else { return false };
    parent.components().all(|part| {
        let Component::Normal(part) = part else { return false };
        here.push(part);
        std::fs::symlink_metadata(&here).is_ok_and(|found| found.is_dir())
    })
}

/// Sets the modification time of a file or link; ignores errors.
pub(super) fn set_modified(path: &Path, at: Timestamp) {
    let (seconds, rest) = (at.0.div_euclid(1000), at.0.rem_euclid(1000));
    set_times(path, Timespec { tv_sec: seconds, tv_nsec: rest * 1_000_000 });
}

/// Sets access and modification time of a file or link; ignores errors, for example for files of other users.
pub(super) fn set_times(path: &Path, at: Timespec) {
    let times = Timestamps { last_access: at, last_modification: at };
    let _ = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
}

/// Removes a file, link or folder, even if folders lack permissions; ignores a missing one.
pub(super) fn remove(path: &Path) -> Result<(), WorkspaceError> {
    let attempt = || match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match attempt() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            open_up(path, 0);
            attempt()
        }
        other => other,
    }
    .or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    .map_err(WorkspaceError::io("remove", path))
}

/// Gives the owner all permissions on a folder and its subfolders, recursively.
fn open_up(dir: &Path, depth: usize) {
    let Ok(found) = std::fs::symlink_metadata(dir) else { return };
    if !found.is_dir() || depth > DEEPEST {
        return;
    }
    if found.permissions().mode() & 0o700 != 0o700 {
        // An error shows as a failed removal.
        let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700));
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path(), depth + 1);
        }
    }
}

/// Replaces the content of a regular file below `dir` without changing its permissions. Does not follow links.
pub(super) fn replace(dir: &Path, path: &Path, content: &mut impl Read) -> Result<(), WorkspaceError> {
    let file = dir.join(path);
    let wrong = |kind| WorkspaceError::io("replace", &file)(std::io::Error::from(kind));
    if !parents_are_real(dir, path) {
        return Err(wrong(std::io::ErrorKind::NotADirectory));
    }
    let found = std::fs::symlink_metadata(&file).map_err(WorkspaceError::io("replace", &file))?;
    if !found.is_file() {
        return Err(wrong(std::io::ErrorKind::InvalidInput));
    }
    remove(&file)?;
    let mut options = std::fs::OpenOptions::new();
    let created = options.write(true).create_new(true).mode(found.permissions().mode()).open(&file);
    let mut created = created.map_err(WorkspaceError::io("replace", &file))?;
    std::io::copy(content, &mut created).map(drop).map_err(WorkspaceError::io("replace", &file))
}

/// Runs blocking file operations on a separate thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(WorkspaceError::Git { what: "work on files".to_owned(), detail: error.to_string() })
    })
}

/// Writes a file durably, unless it already has this content.
pub(super) fn put(path: &Path, content: impl AsRef<[u8]>) -> std::io::Result<()> {
    if std::fs::read(path).is_ok_and(|found| found == content.as_ref()) {
        return Ok(());
    }
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(content.as_ref())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See docs/research/threats.md#g9, docs/research/threats.md#g10.
    #[test]
    fn links_and_pipes_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/f"), "0123456789").unwrap();
        std::os::unix::fs::symlink("d/f", root.join("link")).unwrap();
        std::os::unix::fs::symlink("d", root.join("dirlink")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        for (path, expected) in [
            ("d/f", Some("0123")),
            ("link", None),
            ("dirlink/f", None),
            ("fifo", None),
            ("d", None),
            ("d/../d/f", None),
            ("nothing", None),
            ("", None),
        ] {
            let read = read_beneath(root, Path::new(path), 4);
            assert_eq!(read.as_deref(), expected.map(str::as_bytes), "{path}");
        }
        assert!(parents_are_real(root, Path::new("d/f")));
        assert!(!parents_are_real(root, Path::new("dirlink/f")));
        assert!(!parents_are_real(root, Path::new("../f")));
    }

    #[test]
    fn folders_without_permissions_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::set_permissions(dir.path().join("a"), std::fs::Permissions::from_mode(0o500)).unwrap();
        remove(&dir.path().join("a")).unwrap();
        assert!(!dir.path().join("a").exists());
        remove(&dir.path().join("a")).unwrap();
    }
}
