//! Data folders of `ralph-bot local`: the folder of `--data`, otherwise a folder per repository below the user's state
//! folder. Each concurrent run on a repository uses a separate folder.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;

use crate::cli::CliError;
use crate::config::Env;
use crate::domain::model::ids::RepoRef;

/// Maximum number of concurrent runs on a repository.
const MOST_RUNS: usize = 64;
/// Name of the file that is locked while a run uses the folder.
const LOCK: &str = "local.lock";
/// Name of the database file in a folder.
const DATABASE: &str = "ralph.db";

/// Folder that this process has locked. A temporary folder is deleted when this is dropped.
pub(super) struct DataFolder {
    /// Path of the folder.
    pub path: PathBuf,
    /// Whether the folder is deleted when this is dropped.
    pub temporary: bool,
    _lock: FolderLock,
    _deleted: Option<tempfile::TempDir>,
}

/// Lock on a folder. It is released explicitly, because a child process that is being started may have inherited the
/// file.
struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::debug!(%error, "a data folder stays locked until the process ends");
        }
    }
}

/// Folders that can contain the data of a repository.
pub(super) struct FolderChoice {
    given: Option<PathBuf>,
    /// First folder for the repository; `None` if there is no home folder.
    base: Option<PathBuf>,
}

impl FolderChoice {
    /// Returns the folders of `repo`; `given` is the value of `--data`.
    pub(super) fn of(given: Option<&Path>, repo: &RepoRef, env: &Env) -> Self {
        let name = format!("{}-{:013x}", repo.name, repo.id.0);
        Self { given: given.map(Path::to_path_buf), base: state_folder(env).map(|folder| folder.join(name)) }
    }

    /// Returns the paths of existing databases, in the order of the folders.
    pub(super) fn databases(&self) -> Vec<PathBuf> {
        self.candidates().map(|folder| folder.join(DATABASE)).filter(|database| database.is_file()).collect()
    }

    /// Locks the first folder that no other run uses.
    ///
    /// # Errors
    /// The folder of `--data` is in use or cannot be created.
    pub(super) fn claim(&self) -> Result<DataFolder, CliError> {
        for folder in self.candidates() {
            match lock(&folder) {
                Ok(Some(claimed)) => return Ok(claimed),
                Ok(None) if self.given.is_some() => return Err(in_use(&folder)),
                Ok(None) => {}
                Err(error) if self.given.is_some() => {
                    return Err(CliError::failed(
                        Failure::new(format!("could not use --data {}", folder.display())).caused_by(error),
                    ));
                }
                Err(error) => {
                    tracing::warn!(folder = %folder.display(), %error, "cannot be created; the data of this run is not kept");
                    break;
                }
            }
        }
        temporary()
            .map_err(|error| CliError::failed(Failure::new("could not create a temporary folder").caused_by(error)))
    }

    fn candidates(&self) -> impl Iterator<Item = PathBuf> {
        let numbered = self.base.iter().filter(|_| self.given.is_none()).flat_map(|base| {
            (1..=MOST_RUNS).map(move |number| match number {
                1 => base.clone(),
                _ => PathBuf::from(format!("{}-{number}", base.display())),
            })
        });
        self.given.clone().into_iter().chain(numbered)
    }
}

/// Locks the folder of an existing database.
///
/// # Errors
/// Another run uses the folder.
pub(super) fn claim_of(database: &Path) -> Result<DataFolder, CliError> {
    let folder = database.parent().unwrap_or(Path::new("."));
    let claimed = lock(folder).map_err(|error| {
        CliError::failed(Failure::new(format!("could not use {}", folder.display())).caused_by(error))
    });
    claimed?.ok_or_else(|| in_use(folder))
}

fn in_use(folder: &Path) -> CliError {
    CliError::usage(format!("another `ralph-bot local` uses the data folder {}; wait for its end", folder.display()))
}

/// Creates and locks a folder; `None` if another process holds the lock.
fn lock(folder: &Path) -> std::io::Result<Option<DataFolder>> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // A sandbox shows no path with `..`.
    let folder = folder.canonicalize()?;
    let lock = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(DataFolder { path: folder, temporary: false, _lock: FolderLock(lock), _deleted: None })),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

fn temporary() -> std::io::Result<DataFolder> {
    let deleted = tempfile::Builder::new().prefix("ralph-local-").tempdir()?;
    let path = deleted.path().join("data");
    let claimed = lock(&path)?.ok_or(std::io::ErrorKind::WouldBlock)?;
    Ok(DataFolder { temporary: true, _deleted: Some(deleted), ..claimed })
}

/// Returns `ralph-bot/local` in the user's state folder; `None` without a home folder.
pub fn state_folder(env: &Env) -> Option<PathBuf> {
    let absolute = |name: &str| env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("ralph-bot/local"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::{ForgeName, RepoId};

    fn repo() -> RepoRef {
        RepoRef { forge: ForgeName::new("local"), id: RepoId(0x2a), owner: "local".into(), name: "app".into() }
    }

    #[test]
    fn concurrent_runs_use_different_folders() {
        let home = tempfile::tempdir().expect("a folder");
        let text = home.path().display().to_string();
        let choice = FolderChoice::of(None, &repo(), &Env::of([("HOME", text.as_str())]));
        let base = home.path().join(".local/state/ralph-bot/local/app-000000000002a");
        let first = choice.claim().expect("claimed");
        assert_eq!(first.path, base);
        let second = choice.claim().expect("claimed");
        assert_eq!(second.path, PathBuf::from(format!("{}-2", base.display())));
        drop(first);
        assert_eq!(choice.claim().expect("claimed").path, base, "free again");
        assert!(choice.databases().is_empty());
        std::fs::write(second.path.join(DATABASE), "").expect("written");
        assert_eq!(choice.databases(), [second.path.join(DATABASE)]);
        let error = claim_of(&second.path.join(DATABASE)).map(drop).expect_err("in use");
        assert!(error.to_string().contains("another `ralph-bot local` uses the data folder"), "{error}");
    }

    #[test]
    fn unusable_configured_folder_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let choice = FolderChoice::of(Some(folder.path()), &repo(), &Env::of([("HOME", "/home/u")]));
        let locked = choice.claim().expect("claimed");
        assert_eq!((locked.path.as_path(), locked.temporary), (folder.path(), false));
        assert_eq!(choice.claim().map(drop).expect_err("in use").exit_code(), 2);
    }

    #[test]
    fn without_a_home_folder_data_is_temporary() {
        let claimed = FolderChoice::of(None, &repo(), &Env::of([])).claim().expect("claimed");
        let path = claimed.path.clone();
        assert!(claimed.temporary && path.is_dir());
        drop(claimed);
        assert!(!path.exists());
    }

    #[test]
    fn state_folder_prefers_the_variable_of_xdg() {
        let of = |variables: &[(&str, &str)]| state_folder(&Env::of(variables.iter().copied()));
        assert_eq!(of(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Some(PathBuf::from("/s/ralph-bot/local")));
        assert_eq!(
            of(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]),
            Some(PathBuf::from("/h/.local/state/ralph-bot/local"))
        );
        assert_eq!(of(&[]), None);
    }
}
