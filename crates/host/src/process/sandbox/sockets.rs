//! Files in folders of a view that programs must not reach: Unix sockets of the machine, and files that only their
//! owner may read. A network namespace does not isolate sockets, and a read-only mount does not prevent connections.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::etc::SourceStamp;
use crate::domain::trust::visible::in_system;

/// Number of fields before the path in a line of `/proc/net/unix`.
const FIELDS: usize = 7;
/// Maximum number of entries in shown folders that are searched; entries near the top come first.
const MOST_ENTRIES: usize = 10_000;
/// Maximum depth to which shown folders are searched.
const MOST_DEPTH: usize = 12;
/// Maximum number of folders whose entries are kept in memory.
const MOST_LISTINGS: usize = 2 * MOST_ENTRIES;

/// Maximum number of private files and folders; those near the top come first.
const MOST_PRIVATE: usize = 1_000;
/// Permissions of others to read a file.
const READ: u32 = 0o004;
/// Permissions of others to list and enter a folder.
const ENTER: u32 = 0o005;

/// Entries of a folder that matter to the search.
struct Listing {
    stamp: SourceStamp,
    /// Number of all entries.
    entries: usize,
    sockets: Vec<PathBuf>,
    /// Folders that others may enter.
    folders: Vec<PathBuf>,
    /// Folders that others may not enter, and files except programs that others may not read.
    private: Vec<PathBuf>,
}

/// Whether others have these permissions for a file or folder; false if the permissions cannot be read.
fn others_may(path: &Path, permissions: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.permissions().mode() & permissions == permissions)
}

/// Files in the folders of a view that programs must not reach.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unreachable {
    /// Sockets to which programs could connect.
    pub(super) sockets: Vec<PathBuf>,
    /// Files and folders that only their owner or group may read, at most [`MOST_PRIVATE`]. Omits files in a shown private
    /// folder, because the folder's permissions are no evidence about its files.
    pub(super) private: Vec<PathBuf>,
}

impl Listing {
    /// Returns the entries of a folder; `None` if it cannot be read. It is read only if it changed: tool chains have a thousand
    /// folders, and reading them takes 17 ms of each start.
    fn of(folder: &Path) -> Option<Arc<Self>> {
        static KNOWN: Mutex<Option<HashMap<PathBuf, Arc<Listing>>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        let stamp = SourceStamp::of(folder)?;
        if let Some(listing) = known.get(folder).filter(|listing| listing.stamp == stamp) {
            return Some(listing.clone());
        }
        let listing = Arc::new(Self::read(folder, stamp)?);
        if known.len() >= MOST_LISTINGS {
            known.clear();
        }
        // A later change in the same tick of the file system's clock would not change the stamp.
        if stamp.is_settled() {
            known.insert(folder.to_owned(), listing.clone());
        }
        Some(listing)
    }

    fn read(folder: &Path, stamp: SourceStamp) -> Option<Self> {
        let mut listing = Self { stamp, entries: 0, sockets: Vec::new(), folders: Vec::new(), private: Vec::new() };
        for entry in fs::read_dir(folder).ok()?.flatten().take(MOST_ENTRIES) {
            listing.entries += 1;
            match entry.file_type() {
                Ok(kind) if kind.is_socket() => listing.sockets.push(entry.path()),
                Ok(kind) if kind.is_dir() && others_may(&entry.path(), ENTER) => listing.folders.push(entry.path()),
                Ok(kind) if kind.is_dir() => listing.private.push(entry.path()),
                Ok(kind) if kind.is_file() && is_private(&entry.path()) => listing.private.push(entry.path()),
                _ => {}
            }
        }
        Some(listing)
    }
}

/// Whether a file that is not a program cannot be read by others.
fn is_private(file: &Path) -> bool {
    let mode = fs::symlink_metadata(file).map_or(READ, |found| found.permissions().mode());
    mode & READ == 0 && mode & 0o111 == 0
}

/// Returns the sockets in the system's folders and in `shown` to which programs could connect, and the private files in
/// `shown`. Files in `writable` belong to the run and are left out, as are sockets that are themselves in `shown`.
pub(super) fn unreachable(shown: &[PathBuf], writable: &[PathBuf]) -> Unreachable {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let Unreachable { sockets, mut private } = files_in(shown, writable);
    private.retain(|path| !shown.iter().any(|explicit| explicit.starts_with(path)));
    private.truncate(MOST_PRIVATE);
    let real = paths(&text).map(Path::to_owned).chain(sockets).filter_map(|path| path.canonicalize().ok());
    let mut found: Vec<PathBuf> = real.filter(|path| is_visible(path, shown, writable)).collect();
    found.sort();
    found.dedup();
    Unreachable { sockets: found, private }
}

/// Returns the sockets and private files in shown folders outside the system's folders. They are searched on disk because the
/// kernel lists a socket under the name that it was bound to, which can be relative, belong to another network
/// namespace, or be outdated.
fn files_in(shown: &[PathBuf], writable: &[PathBuf]) -> Unreachable {
    let is_skipped = |folder: &Path| in_system(folder) || writable.iter().any(|own| folder.starts_with(own));
    let (mut found, mut left) = (Unreachable::default(), MOST_ENTRIES);
    let closed: Vec<&PathBuf> = shown.iter().filter(|folder| !others_may(folder, ENTER)).collect();
    let mut level: Vec<PathBuf> = shown.iter().filter(|folder| !is_skipped(folder)).cloned().collect();
    for _ in 0..MOST_DEPTH {
        let mut below = Vec::new();
        for listing in level.iter().filter_map(|folder| Listing::of(folder)) {
            if left == 0 {
                return found;
            }
            left = left.saturating_sub(listing.entries);
            found.sockets.extend(listing.sockets.iter().cloned());
            let is_closed = |path: &Path| closed.iter().any(|folder| path.starts_with(folder));
            let (within, private): (Vec<&PathBuf>, Vec<&PathBuf>) =
                listing.private.iter().filter(|path| !is_skipped(path)).partition(|path| is_closed(path));
            found.private.extend(private.into_iter().cloned());
            let folders = listing.folders.iter().filter(|folder| !is_skipped(folder));
            below.extend(folders.chain(within.into_iter().filter(|path| path.is_dir())).cloned());
        }
        level = below;
    }
    found
}

fn is_visible(socket: &Path, shown: &[PathBuf], writable: &[PathBuf]) -> bool {
    let below = |folders: &[PathBuf]| folders.iter().any(|folder| socket.starts_with(folder));
    (in_system(socket) || below(shown)) && !below(writable) && !shown.iter().any(|path| path == socket)
}

/// Returns the absolute paths in `/proc/net/unix`; other names have no file.
fn paths(text: &str) -> impl Iterator<Item = &Path> {
    let path = |line: &'_ str| -> Option<usize> {
        let mut rest = line;
        for _ in 0..FIELDS {
            rest = rest.trim_start();
            rest = &rest[rest.find(' ')?..];
        }
        let rest = rest.trim_start();
        rest.starts_with('/').then_some(line.len() - rest.len())
    };
    text.lines().skip(1).filter_map(move |line| Some(Path::new(&line[path(line)?..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_sockets_are_read() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    000000: 00000002 00000000 00010000 0001 01 12 /opt/a b/s.sock\n\
                    000000: 00000002 00000000 00010000 0001 01 13 @abstract\n\
                    000000: 00000003 00000000 00000000 0001 03  14\n\
                    000000: 00000002 00000000 00010000 0001 01 15 /usr/run/x\n";
        let found: Vec<&Path> = paths(text).collect();
        assert_eq!(found, [Path::new("/opt/a b/s.sock"), Path::new("/usr/run/x")]);
    }

    #[test]
    fn sockets_of_the_run_stay_visible() {
        let shown = [PathBuf::from("/opt/tool"), "/data/run/memory.sock".into(), "/data/tree".into()];
        let is = |path: &str| is_visible(Path::new(path), &shown, &shown[2..]);
        assert!(is("/opt/tool/s") && is("/usr/lib/s"));
        assert!(!is("/data/run/memory.sock") && !is("/data/tree/s") && !is("/run/s") && !is("/usr/local/s"));
    }

    /// The kernel's lists do not contain a socket under its current name if it was bound to another one.
    #[test]
    fn sockets_under_other_names_are_found_by_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("tool/deep/er")).unwrap();
        fs::create_dir_all(at("tool/own")).unwrap();
        let _bound = std::os::unix::net::UnixListener::bind(at("first")).unwrap();
        fs::hard_link(at("first"), at("tool/deep/er/linked")).unwrap();
        fs::hard_link(at("first"), at("tool/own/writable")).unwrap();
        fs::rename(at("first"), at("tool/moved")).unwrap();
        let found = unreachable(&[at("tool"), at("tool/own")], &[at("tool/own")]).sockets;
        assert_eq!(found, [at("tool/deep/er/linked"), at("tool/moved")]);
    }

    /// See docs/research/threats.md#s1.
    #[test]
    fn files_that_others_may_not_read_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["app/data/deep", "app/lib", "closed/sub", "app/own"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let modes = [
            ("app/.env", 0o600),
            ("app/readme", 0o644),
            ("app/program", 0o700),
            ("app/lib/key", 0o640),
            ("app/data/deep/x", 0o644),
            ("app/own/x", 0o600),
            ("closed/x", 0o600),
            ("app/data", 0o750),
            ("app", 0o755),
            ("app/lib", 0o755),
            ("closed", 0o700),
        ];
        for (name, mode) in modes {
            if !at(name).is_dir() {
                fs::write(at(name), "").unwrap();
            }
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut found = unreachable(&[at("app"), at("closed")], &[at("app/own")]).private;
        found.sort();
        assert_eq!(found, [at("app/.env"), at("app/data"), at("app/lib/key")]);
    }

    /// Only entries that cannot change without a new stamp are kept.
    #[test]
    fn entries_of_a_folder_are_kept_until_it_changes() {
        let old = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("migrations");
        let [first, second] = [(); 2].map(|()| Listing::of(&old).unwrap());
        assert!(Arc::ptr_eq(&first, &second) && first.entries > 10, "{} entries", first.entries);
        let folder = tempfile::tempdir().unwrap();
        assert!(Listing::of(folder.path()).unwrap().sockets.is_empty());
        let _bound = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        assert_eq!(Listing::of(folder.path()).unwrap().sockets, [folder.path().join("s")]);
    }
}
