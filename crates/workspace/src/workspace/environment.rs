//! Environments: files that the setup commands of a repository created at a base, kept for later trees.
//!
//! An environment is a folder outside of every sandbox. It contains ignored folders of the tree (`node_modules`) and package caches of
//! the home (`.cargo`). Each tree and each home gets a separate copy, so that no agent changes it for others. On a file system
//! that shares blocks between files (btrfs, xfs), the copies take no space. Paths of the tree and the home in text files are
//! replaced, because virtual environments contain them.

mod copy;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;

use self::copy::{Replacements, copy_entries};
use super::git::GitCommand;
use super::layout::TreePaths;
use super::tree::CleanCheckout;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::checks::dependencies::{deciding_files, dependency_folders};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};
use crate::domain::trust::policy::Policy;
use crate::domain::trust::tamper::is_compiled_cache;

/// Version of the format; another one is another key.
const FORMAT: u32 = 1;
/// Number of environments per repository that are kept for a later use.
const MOST_KEPT: usize = 3;
/// Time since the last use within which an environment is kept although there are more than that many.
const IN_USE: Duration = Duration::from_secs(3600);
/// Time since the last use after which an environment is deleted.
const UNUSED: Duration = Duration::from_secs(30 * 86_400);
/// Maximum number of keys that are remembered.
const MOST_KEYS: usize = 256;
/// Maximum size of a list of files, in bytes.
const LISTED_BYTES: usize = 512 << 20;
/// Name of the file that describes an environment.
const RECORD: &str = "environment.json";
/// Folders of a home that contain packages and tools. Settings of agents and shells are in none of them.
const HOME_FOLDERS: [&str; 24] = [
    ".cache",
    ".local/bin",
    ".local/lib",
    ".local/share/gem",
    ".local/share/pnpm",
    ".local/share/uv",
    ".cargo",
    ".rustup",
    ".npm",
    ".yarn",
    ".bun",
    ".deno",
    "go",
    ".gem",
    ".bundle",
    ".composer",
    ".m2",
    ".gradle",
    ".nuget",
    ".dotnet",
    ".mix",
    ".hex",
    ".pub-cache",
    ".ivy2",
];
/// Folders of a home with downloads that only installing needs. Runs of agents and checks get no copy of them.
const DOWNLOADS: [&str; 10] = [
    ".npm",
    ".cache/pip",
    ".cache/uv",
    ".cache/yarn",
    ".cache/pnpm",
    ".yarn/berry",
    ".local/share/pnpm/store",
    ".bun/install/cache",
    ".composer/cache",
    ".cache/composer",
];

/// Identity of an environment: a repository and a digest of everything that decides the result of its setup commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentKey {
    repo: RepoRef,
    digest: String,
}

impl EnvironmentKey {
    /// Returns the digest.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// Kept environment.
#[derive(Debug, Clone)]
pub struct Environment {
    folder: PathBuf,
    record: EnvironmentRecord,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct EnvironmentRecord {
    /// Positions of the setup commands that have to run again in each tree.
    repeated: Vec<usize>,
    /// Paths of the tree and the home in which the commands ran.
    tree: PathBuf,
    home: PathBuf,
    /// Kept paths, relative to the tree and to the home.
    tree_paths: Vec<PathBuf>,
    home_paths: Vec<PathBuf>,
    /// Text files and links that contain one of these paths, relative to the environment's folder.
    located: BTreeSet<PathBuf>,
}

/// Effects of setup commands on a checkout: kept folders, and all other files with a stamp of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetupEffects {
    kept: BTreeSet<PathBuf>,
    other: BTreeMap<PathBuf, Option<(u64, u64, i64, i64)>>,
}

impl SetupEffects {
    /// Whether the commands between two moments changed other files than the kept ones.
    pub fn differ_elsewhere(&self, later: &Self) -> bool {
        self.other != later.other
    }
}

impl Environment {
    /// Returns the positions of the setup commands that have to run again in each tree, because they write other files than
    /// the kept ones.
    pub fn repeated(&self) -> &[usize] {
        &self.record.repeated
    }

    /// Copies the kept folders into a tree in which no process runs. Replaces an existing folder, because a branch may contain
    /// one, and does not write through links.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub async fn copy_to_tree(&self, tree: &Path, home: &Path) -> Result<(), WorkspaceError> {
        let (environment, tree, home) = (self.clone(), tree.to_owned(), home.to_owned());
        files::blocking(move || {
            let real = |path: &&PathBuf| files::parents_are_real(&tree, path);
            let paths: Vec<&PathBuf> = environment.record.tree_paths.iter().filter(real).collect();
            for path in &paths {
                files::remove(&tree.join(path))?;
            }
            environment.copy("tree", &paths, &tree, (&tree, &home))
        })
        .await
    }

    /// Copies package caches into a home, which is created. `downloads` states whether it gets downloads that only installing
    /// needs.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub async fn copy_to_home(&self, tree: &Path, home: &Path, downloads: bool) -> Result<(), WorkspaceError> {
        let (environment, tree, home) = (self.clone(), tree.to_owned(), home.to_owned());
        files::blocking(move || {
            std::fs::create_dir_all(&home).map_err(WorkspaceError::io("create", &home))?;
            let paths: Vec<&PathBuf> = environment.record.home_paths.iter().collect();
            environment.copy_without("home", &paths, &home, (&tree, &home), if downloads { &[] } else { &DOWNLOADS })
        })
        .await
    }

    fn copy(&self, part: &str, paths: &[&PathBuf], to: &Path, now: (&Path, &Path)) -> Result<(), WorkspaceError> {
        self.copy_without(part, paths, to, now, &[])
    }

    fn copy_without(
        &self,
        part: &str,
        paths: &[&PathBuf],
        to: &Path,
        (tree, home): (&Path, &Path),
        without: &[&str],
    ) -> Result<(), WorkspaceError> {
        let record = &self.record;
        let replacements = Replacements {
            located: record.located.iter().filter_map(|path| Some(path.strip_prefix(part).ok()?.to_owned())).collect(),
            pairs: vec![(record.tree.clone(), tree.to_owned()), (record.home.clone(), home.to_owned())],
        };
        copy_entries(&self.folder.join(part), paths, to, without, &replacements)
    }
}

impl Workspaces {
    /// Returns the key of the environment of a loop's repository at a commit, under the setup commands of `policy`. Trees with
    /// the same key need the same dependencies. `programs` describes the installed programs that the commands use.
    ///
    /// # Errors
    /// The files of the commit cannot be listed.
    pub async fn environment_key(
        &self,
        (loop_id, repo): (&LoopId, &RepoRef),
        commit: &Sha,
        policy: &Policy,
        programs: &str,
    ) -> Result<EnvironmentKey, WorkspaceError> {
        let settings = format!("{FORMAT} {:?} {:?} {programs}", policy.setup, policy.environment);
        let known = (commit.clone(), settings.clone());
        let found = self.environment_keys.lock().unwrap_or_else(PoisonError::into_inner).get(&known).cloned();
        let digest = match found {
            Some(digest) => digest,
            None => {
                let store = self.opened(loop_id, repo).await?.store;
                let call = GitCommand::new("list the files of a commit", &store).output_bytes(LISTED_BYTES);
                let listed = self.git.ok(call.args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str()])).await?;
                let digest = digest(&listed.stdout, &settings, &policy.setup);
                let mut keys = self.environment_keys.lock().unwrap_or_else(PoisonError::into_inner);
                if keys.len() >= MOST_KEYS {
                    keys.clear();
                }
                keys.insert(known, digest.clone());
                digest
            }
        };
        Ok(EnvironmentKey { repo: repo.clone(), digest })
    }

    /// Locks an environment, so that only one loop at a time makes it.
    pub async fn lock_environment(&self, key: &EnvironmentKey) -> OwnedMutexGuard<()> {
        self.locks.here(&self.environment_folder(key)).await
    }

    fn environment_folder(&self, key: &EnvironmentKey) -> PathBuf {
        self.layout.environments(&key.repo).join(&key.digest)
    }

    /// Returns a kept environment, and notes its use; `None` if there is none.
    pub fn environment(&self, key: &EnvironmentKey) -> Option<Environment> {
        let folder = self.environment_folder(key);
        let file = folder.join(RECORD);
        let record = serde_json::from_slice(&std::fs::read(&file).ok()?).ok()?;
        files::set_modified(&file, self.clock.now());
        Some(Environment { folder, record })
    }

    /// Returns the effects of setup commands on a checkout so far. Ignored folders of ecosystems and the folders of `cache` are kept
    /// ones, unless they contain tracked files.
    ///
    /// # Errors
    /// git cannot list the files.
    pub async fn setup_effects(
        &self,
        checkout: &CleanCheckout,
        cache: &[String],
    ) -> Result<SetupEffects, WorkspaceError> {
        let TreePaths { dir, index, store, .. } = &checkout.tree_paths;
        let patterns = kept_patterns(cache)?;
        let tracked = self.tracked(&checkout.tree_paths).await?;
        let list = async |more: &[&str]| {
            let call = GitCommand::new("list what setup created", store).on_tree(dir, index).output_bytes(LISTED_BYTES);
            self.git.ok(call.args(["ls-files", "-z", "--exclude-standard"]).args(more)).await
        };
        let ignored = list(&["--others", "--ignored"]).await?;
        let changed = list(&["--modified", "--deleted", "--others"]).await?;
        let dir = dir.clone();
        files::blocking(move || {
            let mut effects = SetupEffects::default();
            let mut note = |path: &[u8]| {
                let path = files::path_of(path);
                if !path.to_str().is_some_and(is_compiled_cache) {
                    let found = std::fs::symlink_metadata(dir.join(&path)).ok();
                    let stamp = found.map(|found| (found.ino(), found.size(), found.ctime(), found.ctime_nsec()));
                    effects.other.insert(path, stamp);
                }
            };
            files::zero_separated(&changed.stdout).for_each(&mut note);
            let mut kept = BTreeSet::new();
            for path in files::zero_separated(&ignored.stdout) {
                let whole = files::path_of(path);
                let above = whole
                    .ancestors()
                    .filter(|above| !above.as_os_str().is_empty())
                    .filter(|above| patterns.is_match(above));
                let is_free = |above: &&Path| !tracked.holds_below(&[above.as_os_str().as_bytes(), b"/"].concat());
                match above.filter(is_free).last() {
                    Some(root) => drop(kept.insert(root.to_owned())),
                    None => note(path),
                }
            }
            effects.kept = kept;
            Ok(effects)
        })
        .await
    }

    /// Keeps the effects of setup commands that ran in a checkout with the home `home`, by moving them out of both. `repeated` are
    /// the positions of the commands that have to run again in each tree.
    ///
    /// # Errors
    /// A file cannot be moved.
    pub async fn keep_environment(
        &self,
        key: &EnvironmentKey,
        (checkout, home): (&CleanCheckout, &Path),
        effects: SetupEffects,
        repeated: Vec<usize>,
    ) -> Result<Environment, WorkspaceError> {
        let (folder, scratch) = (self.environment_folder(key), self.layout.scratch()?);
        let (tree, home, made) = (checkout.dir.clone(), home.to_owned(), scratch.path().join("environment"));
        let now = self.clock.now();
        let kept = files::blocking({
            let (folder, made) = (folder.clone(), made.clone());
            move || {
                let mut record = EnvironmentRecord {
                    repeated,
                    tree_paths: effects.kept.into_iter().collect(),
                    home_paths: HOME_FOLDERS
                        .iter()
                        .map(PathBuf::from)
                        .filter(|path| home.join(path).is_dir())
                        .collect(),
                    located: BTreeSet::new(),
                    tree,
                    home,
                };
                for (part, from, paths) in
                    [("tree", &record.tree, &record.tree_paths), ("home", &record.home, &record.home_paths)]
                {
                    for path in paths {
                        let to = made.join(part).join(path);
                        let parent = to.parent().unwrap_or(&made);
                        std::fs::create_dir_all(parent).map_err(WorkspaceError::io("create", parent))?;
                        std::fs::rename(from.join(path), &to).map_err(WorkspaceError::io("keep", &to))?;
                    }
                }
                record.located = copy::located(&made, &[&record.tree, &record.home])?;
                std::fs::create_dir_all(&made).map_err(WorkspaceError::io("create", &made))?;
                let file = made.join(RECORD);
                let text =
                    serde_json::to_vec(&record).map_err(|error| WorkspaceError::io("write", &file)(error.into()))?;
                std::fs::write(&file, text).map_err(WorkspaceError::io("write", &file))?;
                files::set_modified(&file, now);
                let parent = folder.parent().unwrap_or(&folder);
                std::fs::create_dir_all(parent).map_err(WorkspaceError::io("create", parent))?;
                Ok(Environment { folder, record })
            }
        })
        .await?;
        self.layout.discard(&folder)?;
        std::fs::rename(&made, &folder).map_err(WorkspaceError::io("keep", &folder))?;
        self.drop_environments(folder.parent().unwrap_or(&folder))?;
        Ok(kept)
    }

    /// Deletes the environments of a repository that were not used for long, and all but the newest.
    pub(super) fn drop_environments(&self, of_repository: &Path) -> Result<usize, WorkspaceError> {
        let entries = std::fs::read_dir(of_repository).map_err(WorkspaceError::io("list", of_repository))?;
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(self.clock.now().0.max(0).unsigned_abs());
        let age = |folder: &Path| {
            let used = std::fs::metadata(folder.join(RECORD)).and_then(|found| found.modified());
            used.map_or(UNUSED, |used| now.duration_since(used).unwrap_or_default())
        };
        let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        let mut by_age: Vec<(Duration, PathBuf)> = folders.map(|folder| (age(&folder), folder)).collect();
        by_age.sort();
        let mut dropped = 0;
        for (place, (age, folder)) in by_age.iter().enumerate() {
            if *age >= UNUSED || place >= MOST_KEPT && *age > IN_USE {
                self.layout.discard(folder)?;
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// Reads the setup commands that were detected for a repository, and the key for which they hold; `None` if none were.
    pub fn detected_setup(&self, repo: &RepoRef) -> Option<serde_json::Value> {
        serde_json::from_slice(&std::fs::read(self.detected_setup_file(repo)).ok()?).ok()
    }

    /// Stores the setup commands that were detected for a repository.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn store_detected_setup(&self, repo: &RepoRef, detected: &serde_json::Value) -> Result<(), WorkspaceError> {
        let file = self.detected_setup_file(repo);
        let folder = self.layout.environments(repo);
        std::fs::create_dir_all(&folder).map_err(WorkspaceError::io("create", &folder))?;
        let mut draft = tempfile::NamedTempFile::new_in(&folder).map_err(WorkspaceError::io("write", &file))?;
        std::io::Write::write_all(&mut draft, detected.to_string().as_bytes())
            .map_err(WorkspaceError::io("write", &file))?;
        draft.persist(&file).map(drop).map_err(|error| WorkspaceError::io("write", &file)(error.error))
    }

    fn detected_setup_file(&self, repo: &RepoRef) -> PathBuf {
        self.layout.environments(repo).join("detected.json")
    }
}

/// Returns the patterns of ignored folders that are kept.
fn kept_patterns(cache: &[String]) -> Result<GlobSet, WorkspaceError> {
    let mut patterns = GlobSetBuilder::new();
    let mut all: Vec<&str> = dependency_folders().collect();
    all.extend(cache.iter().map(|pattern| pattern.trim_end_matches('/')));
    for pattern in all {
        let bad = |error: globset::Error| WorkspaceError::BadPattern { pattern: pattern.to_owned(), source: error };
        let glob = Glob::new(pattern).map_err(bad)?;
        patterns.add(glob);
    }
    patterns.build().map_err(|source| WorkspaceError::BadPattern { pattern: cache.join(", "), source })
}

/// Returns the digest of the settings and of the files of a commit (in the format of `git ls-tree -r -z`) that decide the result of
/// setup commands.
fn digest(listed: &[u8], settings: &str, commands: &[String]) -> String {
    let entries = files::zero_separated(listed).filter_map(|entry| {
        let (head, path) = std::str::from_utf8(entry).ok()?.split_once('\t')?;
        Some((path, head))
    });
    let by_path: BTreeMap<&str, &str> = entries.collect();
    let paths: Vec<&str> = by_path.keys().copied().collect();
    let mut hash = Sha256::new_with_prefix(settings);
    for path in deciding_files(&paths, commands) {
        hash.update(format!("\0{path}\0{}", by_path.get(path).copied().unwrap_or_default()));
    }
    data_encoding::HEXLOWER.encode(&hash.finalize()[..16])
}
