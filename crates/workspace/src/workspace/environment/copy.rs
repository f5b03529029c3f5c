//! Copies of folders: regular files, folders and links, with their modes and times.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use regex::bytes::Regex;
use rustix::fs::Timespec;

use crate::workspace::{WorkspaceError, files};

/// Number of threads that copy. Most of the time goes into creating files, which the file system does on several processors.
const THREADS: usize = 4;
/// Maximum size of a file in which paths are replaced, in bytes.
const MOST_TEXT: u64 = 1 << 20;

/// Paths to replace in copies.
pub(super) struct Replacements {
    /// Files and links that contain the paths, relative to the copied folder.
    pub(super) located: BTreeSet<PathBuf>,
    /// Old and new paths.
    pub(super) pairs: Vec<(PathBuf, PathBuf)>,
}

impl Replacements {
    fn apply(&self, text: Vec<u8>) -> Vec<u8> {
        self.pairs
            .iter()
            .fold(text, |text, (old, new)| replaced(&text, old.as_os_str().as_bytes(), new.as_os_str().as_bytes()))
    }
}

/// Copies entries of `from` to the same paths below `to`, in which none of them exists. Leaves out the paths `without`, pipes, sockets
/// and devices.
pub(super) fn copy_entries(
    from: &Path,
    paths: &[&PathBuf],
    to: &Path,
    without: &[&str],
    replacements: &Replacements,
) -> Result<(), WorkspaceError> {
    let mut found = Vec::new();
    for path in paths {
        let parent = to.join(path);
        let parent = parent.parent().unwrap_or(to);
        fs::create_dir_all(parent).map_err(WorkspaceError::io("create", parent))?;
        collect(from, path, without, &mut found)?;
    }
    let (folders, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, found)| found.is_dir());
    for (path, found) in &folders {
        let folder = to.join(path);
        fs::create_dir_all(&folder).map_err(WorkspaceError::io("create", &folder))?;
        let mode = fs::Permissions::from_mode(found.permissions().mode() & 0o777 | 0o700);
        fs::set_permissions(&folder, mode).map_err(WorkspaceError::io("create", &folder))?;
    }
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(others.len()) {
            scope.spawn(|| {
                while let Some((path, found)) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let copied = copy_one(
                        (from.join(path).as_path(), found),
                        &to.join(path),
                        replacements.located.contains(path).then_some(replacements),
                    );
                    if let Err(error) = copied {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        next.store(others.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Adds an entry and everything below it, folders before their contents.
fn collect(
    from: &Path,
    path: &Path,
    without: &[&str],
    found: &mut Vec<(PathBuf, Metadata)>,
) -> Result<(), WorkspaceError> {
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        if without.iter().any(|without| path == Path::new(without)) {
            continue;
        }
        let full = from.join(&path);
        let entry = fs::symlink_metadata(&full).map_err(WorkspaceError::io("look at", &full))?;
        if entry.is_dir() {
            for below in fs::read_dir(&full).map_err(WorkspaceError::io("list", &full))? {
                waiting.push(path.join(below.map_err(WorkspaceError::io("list", &full))?.file_name()));
            }
        }
        if entry.is_dir() || entry.is_file() || entry.is_symlink() {
            found.push((path, entry));
        }
    }
    Ok(())
}

fn copy_one(
    (from, found): (&Path, &Metadata),
    to: &Path,
    replacements: Option<&Replacements>,
) -> Result<(), WorkspaceError> {
    let failed = || WorkspaceError::io("copy", from);
    if found.is_symlink() {
        let target = fs::read_link(from).map_err(failed())?.into_os_string().into_vec();
        let target = match replacements {
            Some(replacements) => replacements.apply(target),
            None => target,
        };
        return std::os::unix::fs::symlink(OsString::from_vec(target), to).map_err(failed());
    }
    match replacements {
        Some(replacements) => {
            let text = replacements.apply(fs::read(from).map_err(failed())?);
            fs::write(to, text).map_err(failed())?;
        }
        // The kernel shares the blocks where the file system can.
        None => drop(fs::copy(from, to).map_err(failed())?),
    }
    let mode = found.permissions().mode();
    if replacements.is_some() || mode & 0o7000 != 0 {
        fs::set_permissions(to, fs::Permissions::from_mode(mode & 0o777)).map_err(failed())?;
    }
    // Builds and interpreters compare times.
    files::set_times(to, Timespec { tv_sec: found.mtime(), tv_nsec: found.mtime_nsec() });
    Ok(())
}

/// Returns the text files and links below a folder that contain any of the paths, relative to the folder.
pub(super) fn located(folder: &Path, paths: &[&PathBuf]) -> Result<BTreeSet<PathBuf>, WorkspaceError> {
    let mut located = BTreeSet::new();
    let names = paths.iter().filter_map(|path| path.to_str()).map(regex::escape).collect::<Vec<_>>().join("|");
    // A path that is not UTF-8 cannot be searched for.
    let Ok(pattern) = Regex::new(&names) else { return Ok(located) };
    let mut found = Vec::new();
    if folder.exists() {
        collect(folder, Path::new(""), &[], &mut found)?;
    }
    for (path, entry) in found {
        let full = folder.join(&path);
        let text = if entry.is_symlink() {
            fs::read_link(&full).map(|target| target.into_os_string().into_vec())
        } else if entry.is_file() && entry.len() <= MOST_TEXT {
            fs::read(&full)
        } else {
            continue;
        };
        let text = text.map_err(WorkspaceError::io("read", &full))?;
        if !names.is_empty() && pattern.is_match(&text) && !text.contains(&0) {
            located.insert(path);
        }
    }
    Ok(located)
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return None;
    }
    text.windows(part.len()).position(|window| window == part)
}

fn replaced(text: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = position(rest, old) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(new);
        rest = &rest[at + old.len()..];
    }
    result.extend_from_slice(rest);
    result
}
