//! Where everything lies on disk, and how names from outside become file and ref names.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::WorkspaceError;
use crate::domain::model::ids::{LoopId, RepoRef};

/// Folders below the root.
#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    /// This process's folder in `tmp/`. As long as the lock beside it is held, no other process's reaper looks inside.
    scratches: PathBuf,
    _alive: File,
    /// Entries of that folder that are used now; the reaper leaves them alone.
    in_use: Arc<Mutex<HashSet<PathBuf>>>,
}

/// A work tree with the private index that belongs to it.
#[derive(Debug, Clone)]
pub(super) struct TreePaths {
    /// The files.
    pub dir: PathBuf,
    /// The service's index of them, out of the agent's reach.
    pub index: PathBuf,
    /// The mirror that holds the objects.
    pub mirror: PathBuf,
}

impl Layout {
    pub fn open(root: &Path) -> Result<Self, WorkspaceError> {
        std::fs::create_dir_all(root).map_err(WorkspaceError::io("create", root))?;
        let root = root.canonicalize().map_err(WorkspaceError::io("find", root))?;
        let tmp = root.join("tmp");
        std::fs::create_dir_all(&tmp).map_err(WorkspaceError::io("create", &tmp))?;
        let (scratches, alive) = claim(&tmp)?;
        let layout = Self { root, scratches, _alive: alive, in_use: Arc::default() };
        for dir in [layout.mirrors(), layout.trees(), layout.pools(), layout.home()] {
            std::fs::create_dir_all(&dir).map_err(WorkspaceError::io("create", &dir))?;
        }
        Ok(layout)
    }

    pub fn mirrors(&self) -> PathBuf {
        self.root.join("mirrors")
    }
    pub fn trees(&self) -> PathBuf {
        self.root.join("trees")
    }
    pub fn pools(&self) -> PathBuf {
        self.root.join("pool")
    }
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }
    /// An empty folder that is git's HOME.
    pub fn home(&self) -> PathBuf {
        self.root.join("empty-home")
    }
    pub fn mirror(&self, repo: &RepoRef) -> PathBuf {
        self.mirrors().join(format!("{}.git", repo_name(repo)))
    }
    pub fn pool(&self, repo: &RepoRef) -> PathBuf {
        self.pools().join(repo_name(repo))
    }
    pub fn tree(&self, loop_id: &LoopId, repo: &RepoRef) -> TreePaths {
        let mirror = self.mirror(repo);
        TreePaths {
            dir: self.trees().join(loop_name(loop_id)).join(repo_name(repo)),
            index: indexes(&mirror).join(format!("{}.index", loop_name(loop_id))),
            mirror,
        }
    }

    /// A new empty folder on the same disk that the reaper leaves alone as long as the value lives.
    pub fn scratch(&self) -> Result<ScratchFolder, WorkspaceError> {
        // Held while the folder comes up, so that the reaper cannot see it without its entry.
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let path = new_folder(&self.scratches)?;
        in_use.insert(path.clone());
        Ok(ScratchFolder { path, in_use: self.in_use.clone() })
    }

    /// What was put aside or left in `tmp/`, by this process and by those that are gone.
    pub fn leftovers(&self) -> Result<Vec<PathBuf>, WorkspaceError> {
        let tmp = self.tmp();
        let _claims = claims(&tmp)?;
        let mut found = entries(&tmp)?;
        found.retain(|path| {
            let folder = path.with_extension("");
            folder != self.scratches && *path != claims_path(&tmp) && !is_alive(&folder)
        });
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(entries(&self.scratches)?.into_iter().filter(|path| !in_use.contains(path)));
        Ok(found)
    }

    /// Puts something out of the way in one step; the reaper deletes it later. Missing things are fine.
    pub fn discard(&self, path: &Path) -> Result<(), WorkspaceError> {
        if std::fs::symlink_metadata(path).is_err() {
            return Ok(());
        }
        let scratch = self.scratch()?;
        std::fs::rename(path, scratch.path().join("discarded")).map_err(WorkspaceError::io("put aside", path))
    }
}

/// A folder of this process's own in `tmp/`, and the lock that says that the process lives.
fn claim(tmp: &Path) -> Result<(PathBuf, File), WorkspaceError> {
    let _claims = claims(tmp)?;
    let folder = new_folder(tmp)?;
    let path = lock_of(&folder);
    let lock = File::create(&path).map_err(WorkspaceError::io("create", &path))?;
    lock.lock().map_err(WorkspaceError::io("lock", &path))?;
    Ok((folder, lock))
}

/// Held for moments while folders are claimed or looked through, so that none is seen without its lock.
fn claims(tmp: &Path) -> Result<File, WorkspaceError> {
    let path = claims_path(tmp);
    let lock = File::create(&path).map_err(WorkspaceError::io("create", &path))?;
    lock.lock().map_err(WorkspaceError::io("lock", &path))?;
    Ok(lock)
}

fn claims_path(tmp: &Path) -> PathBuf {
    tmp.join("claims.lock")
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// Whether the process that claimed a folder still holds its lock.
fn is_alive(folder: &Path) -> bool {
    let lock = File::open(lock_of(folder));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

fn new_folder(parent: &Path) -> Result<PathBuf, WorkspaceError> {
    let made = tempfile::Builder::new().prefix("x-").tempdir_in(parent);
    Ok(made.map_err(WorkspaceError::io("create a folder in", parent))?.keep())
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, WorkspaceError> {
    let entries = std::fs::read_dir(dir).map_err(WorkspaceError::io("list", dir))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// A scratch folder, left for the reaper when dropped.
#[derive(Debug)]
pub(super) struct ScratchFolder {
    path: PathBuf,
    in_use: Arc<Mutex<HashSet<PathBuf>>>,
}

impl ScratchFolder {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // Empty by now as a rule; what is not is the reaper's.
        let _ = std::fs::remove_dir(&self.path);
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}

/// Folder of private indexes in a mirror.
pub(super) fn indexes(mirror: &Path) -> PathBuf {
    mirror.join("ralph-indexes")
}

/// A mirror's objects, which agents' repositories borrow.
pub(super) fn objects(mirror: &Path) -> PathBuf {
    mirror.join("objects")
}

/// Name of a loop in paths and refs.
pub(super) fn loop_name(loop_id: &LoopId) -> String {
    encoded(loop_id.as_str())
}

/// Name of a repository in paths.
pub(super) fn repo_name(repo: &RepoRef) -> String {
    format!("{}.{}", encoded(repo.forge.as_str()), encoded(&repo.id.to_string()))
}

/// Name of a branch as one ref component: without slashes, `a` and `a/b` can both be kept.
pub(super) fn encoded(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' => safe.push(byte as char),
            _ => safe.push_str(&format!("_{byte:02x}")),
        }
    }
    if safe.is_empty() { "_".to_owned() } else { safe }
}

/// Refuses branch names that git would refuse, and those that could be taken for an option.
pub(super) fn check_branch(name: &str) -> Result<(), WorkspaceError> {
    let bad_part = |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
    let bad = name.len() > 244
        || name.starts_with('-')
        || name.ends_with('.')
        || name == "@"
        || name == "HEAD"
        || name.contains("..")
        || name.contains("@{")
        || name.chars().any(|c| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c))
        || name.split('/').any(bad_part);
    if bad { Err(WorkspaceError::BadName { what: "branch", name: name.to_owned() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_safe_and_stay_apart() {
        let names = ["a", "A", "a/b", "a_b", "a.b", "../x", "", "_", "_2f", "é", "a b"];
        let safe: HashSet<String> = names.iter().map(|name| encoded(name)).collect();
        assert_eq!(safe.len(), names.len());
        for name in safe {
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{name}");
        }
    }

    /// G11.
    #[test]
    fn branch_names_follow_gits_rules() {
        for good in ["main", "ralph/42-slug", "feature/a.b", "a@b", "é"] {
            assert!(check_branch(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-rf",
            "a..b",
            "a b",
            "a\u{3000}b",
            "x@{1}",
            "a.lock",
            "a.lock/b",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a.",
            "a:b",
            "a\nb",
            "HEAD",
            "@",
        ] {
            assert!(check_branch(bad).is_err(), "{bad:?}");
        }
        assert!(check_branch(&"x".repeat(300)).is_err());
    }
}
