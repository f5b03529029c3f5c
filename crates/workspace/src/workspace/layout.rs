//! Paths on disk, and the encoding of names in file and ref names.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::WorkspaceError;
use super::git::FILE_REMOTES;
use crate::domain::model::ids::{LoopId, RepoRef};
use crate::process::private;

/// Layout of the folders below the root.
#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    /// Folder of this process in `tmp/`. Garbage collection by other processes skips it while the lock file beside it
    /// is held.
    scratches: PathBuf,
    _alive: File,
    /// Entries of that folder that are in use. Garbage collection skips them.
    in_use: Arc<Mutex<HashSet<PathBuf>>>,
}

/// Paths of a work tree and its private index.
#[derive(Debug, Clone)]
pub(super) struct TreePaths {
    /// Folder with the files.
    pub dir: PathBuf,
    /// Index of the service, which the agent cannot access.
    pub index: PathBuf,
    /// Mirror of the repository, which contains fetched objects.
    pub mirror: PathBuf,
    /// Store that contains the loop's own commits.
    pub store: PathBuf,
}

/// Extensions of source files whose changes are always shown as text, so that a NUL byte in a comment cannot hide a
/// change.
const SOURCES: &str = "rs py pyi pyx js jsx mjs cjs ts tsx mts cts vue svelte go java kt kts scala sbt groovy gradle c h cc cpp \
    cxx hh hpp hxx m mm cs fs vb swift rb rake gemspec php ex exs erl hs ml lua pl pm t r jl dart sh bash zsh fish bats ps1 sql \
    json jsonc json5 yml yaml toml ini cfg conf properties xml csproj feature snap mk cmake bzl bazel proto txt csv";
/// Names of source files without an extension.
const NAMED_SOURCES: &str =
    "Makefile GNUmakefile makefile Rakefile Gemfile Dockerfile Justfile justfile BUILD WORKSPACE Jenkinsfile Procfile";

/// Returns git attributes that show source files as text.
fn source_attributes() -> String {
    let ending = SOURCES.split_whitespace().map(|ending| format!("*.{ending} diff\n"));
    ending.chain(NAMED_SOURCES.split_whitespace().map(|name| format!("{name} diff\n"))).collect()
}

impl Layout {
    pub fn open(root: &Path) -> Result<Self, WorkspaceError> {
        private::create_folder(root).map_err(WorkspaceError::io("create", root))?;
        let root = root.canonicalize().map_err(WorkspaceError::io("find", root))?;
        let tmp = root.join("tmp");
        std::fs::create_dir_all(&tmp).map_err(WorkspaceError::io("create", &tmp))?;
        let (scratches, alive) = claim(&tmp)?;
        let layout = Self { root, scratches, _alive: alive, in_use: Arc::default() };
        for dir in [
            layout.mirrors(),
            layout.stores(),
            layout.trees(),
            layout.pools(),
            layout.all_environments(),
            layout.home(),
        ] {
            std::fs::create_dir_all(&dir).map_err(WorkspaceError::io("create", &dir))?;
        }
        let attributes = layout.source_attributes();
        std::fs::write(&attributes, source_attributes()).map_err(WorkspaceError::io("write", &attributes))?;
        let file_remotes = layout.home().with_file_name(FILE_REMOTES);
        std::fs::write(&file_remotes, "[safe]\n\tdirectory = *\n")
            .map_err(WorkspaceError::io("write", &file_remotes))?;
        Ok(layout)
    }

    pub fn mirrors(&self) -> PathBuf {
        self.root.join("mirrors")
    }
    /// Returns the folder that contains the stores of loops, by repository.
    pub fn stores(&self) -> PathBuf {
        self.root.join("loops")
    }
    pub fn trees(&self) -> PathBuf {
        self.root.join("trees")
    }
    pub fn pools(&self) -> PathBuf {
        self.root.join("pool")
    }
    /// Returns the folder of all environments, by repository.
    pub fn all_environments(&self) -> PathBuf {
        self.root.join("environments")
    }
    pub fn environments(&self, repo: &RepoRef) -> PathBuf {
        self.all_environments().join(repo_name(repo))
    }
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }
    /// Returns the attributes file that makes git show source files of any content as text.
    pub fn source_attributes(&self) -> PathBuf {
        self.root.join("source-attributes")
    }
    /// Returns an empty folder that is git's home.
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
            store: self.stores().join(repo_name(repo)).join(format!("{}.git", loop_name(loop_id))),
            mirror,
        }
    }

    /// Creates an empty folder on the same disk. Garbage collection skips it until it is dropped.
    pub fn scratch(&self) -> Result<ScratchFolder, WorkspaceError> {
        Ok(ScratchFolder { path: self.folder_of_process()?, in_use: self.in_use.clone() })
    }

    /// Creates an empty folder on the same disk. Garbage collection deletes it after this process has ended.
    pub fn folder_of_process(&self) -> Result<PathBuf, WorkspaceError> {
        // Locked during the creation, so that garbage collection does not see the folder without its entry.
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let path = new_folder(&self.scratches)?;
        in_use.insert(path.clone());
        Ok(path)
    }

    /// Returns entries of `tmp/` that are not in use, of this process and of processes that have ended.
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

    /// Moves a file or folder away atomically, to be deleted later. A missing one is ignored.
    pub fn discard(&self, path: &Path) -> Result<(), WorkspaceError> {
        if std::fs::symlink_metadata(path).is_err() {
            return Ok(());
        }
        let scratch = self.scratch()?;
        std::fs::rename(path, scratch.path().join("discarded")).map_err(WorkspaceError::io("put aside", path))
    }
}

/// Creates the folder of this process in `tmp/`, with a lock that is held while the process runs.
fn claim(tmp: &Path) -> Result<(PathBuf, File), WorkspaceError> {
    let _claims = claims(tmp)?;
    let folder = new_folder(tmp)?;
    let path = lock_of(&folder);
    let lock = File::create(&path).map_err(WorkspaceError::io("create", &path))?;
    lock.lock().map_err(WorkspaceError::io("lock", &path))?;
    Ok((folder, lock))
}

/// Locks `tmp/` while folders are created or listed, so that no folder is seen without its lock.
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

/// Whether the process of a folder still holds its lock.
fn is_alive(folder: &Path) -> bool {
    let lock = File::open(lock_of(folder));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

fn new_folder(parent: &Path) -> Result<PathBuf, WorkspaceError> {
    let folder = tempfile::Builder::new().prefix("x-").tempdir_in(parent);
    Ok(folder.map_err(WorkspaceError::io("create a folder in", parent))?.keep())
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, WorkspaceError> {
    let entries = std::fs::read_dir(dir).map_err(WorkspaceError::io("list", dir))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Temporary folder. After it is dropped, garbage collection deletes it.
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
        // Usually empty; otherwise garbage collection deletes it.
        let _ = std::fs::remove_dir(&self.path);
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}

/// Returns the folder of a mirror that contains private indexes.
pub(super) fn indexes(mirror: &Path) -> PathBuf {
    mirror.join("ralph-indexes")
}

/// Returns the folder of a mirror's or store's objects, which agents' repositories borrow.
pub(super) fn objects(mirror: &Path) -> PathBuf {
    mirror.join("objects")
}

/// Returns the encoded name of a loop for paths and refs.
pub(super) fn loop_name(loop_id: &LoopId) -> String {
    encoded(loop_id.as_str())
}

/// Returns the encoded name of a repository for paths.
pub(super) fn repo_name(repo: &RepoRef) -> String {
    format!("{}.{}", encoded(repo.forge.as_str()), encoded(&repo.id.to_string()))
}

/// Encodes a name as a single component of a path or ref. The result contains no slashes, so that `a` and `a/b` can
/// both exist.
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

/// Fails for branch names that git rejects or could interpret as an option.
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
    fn encoded_names_are_safe_and_distinct() {
        let names = ["a", "A", "a/b", "a_b", "a.b", "../x", "", "_", "_2f", "é", "a b"];
        let safe: HashSet<String> = names.iter().map(|name| encoded(name)).collect();
        assert_eq!(safe.len(), names.len());
        for name in safe {
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{name}");
        }
    }

    /// See docs/research/threats.md#g11.
    #[test]
    fn invalid_branch_names_are_refused() {
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
