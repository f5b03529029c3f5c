//! Exclusive locks on mirrors and trees, within this process and between processes.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::WorkspaceError;

/// Maximum wait for another process that holds a repository's lock, because fetching a large repository takes minutes.
const FOREIGN_WAIT: Duration = Duration::from_secs(900);
/// Time between two attempts to lock.
const FOREIGN_PAUSE: Duration = Duration::from_millis(100);

/// Locks by the path of the mirror or tree.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<std::path::PathBuf, Arc<AsyncMutex<()>>>>);

/// Exclusive lock on a mirror or store, within this process and between processes.
#[derive(Debug)]
pub(super) struct RepoGuard {
    _here: OwnedMutexGuard<()>,
    _everywhere: File,
    /// Number of stale git lock files that were removed.
    pub stale: usize,
}

impl Locks {
    /// Locks a path within this process.
    pub async fn here(&self, path: &Path) -> OwnedMutexGuard<()> {
        let mutex = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if locks.len() > 256 {
                locks.retain(|_, mutex| Arc::strong_count(mutex) > 1);
            }
            locks.entry(path.to_path_buf()).or_default().clone()
        };
        mutex.lock_owned().await
    }

    /// Locks a mirror or store within this process and between processes, and removes stale git lock files.
    pub async fn repository(&self, mirror: &Path) -> Result<RepoGuard, WorkspaceError> {
        let here = self.here(mirror).await;
        let path = mirror.with_extension("lock");
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(WorkspaceError::io("create", folder))?;
        }
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(WorkspaceError::io("open", &path))?;
        let mut waited = Duration::ZERO;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if waited < FOREIGN_WAIT => {
                    tokio::time::sleep(FOREIGN_PAUSE).await;
                    waited += FOREIGN_PAUSE;
                }
                Err(TryLockError::WouldBlock) => {
                    let what = format!("wait for another process that holds {}", path.display());
                    return Err(WorkspaceError::Timeout { what, seconds: FOREIGN_WAIT.as_secs() });
                }
                Err(TryLockError::Error(source)) => return Err(WorkspaceError::io("lock", &path)(source)),
            }
        }
        Ok(RepoGuard { _here: here, _everywhere: file, stale: remove_stale_locks(mirror) })
    }
}

/// Removes `*.lock` files in the mirror and below `refs/`; returns their number.
fn remove_stale_locks(mirror: &Path) -> usize {
    fn sweep(dir: &Path, deep: bool) -> usize {
        let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
        let mut removed = 0;
        for entry in entries.flatten() {
            let path = entry.path();
            if deep && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                removed += sweep(&path, true);
            } else if path.extension().is_some_and(|extension| extension == "lock") {
                removed += usize::from(std::fs::remove_file(&path).is_ok());
            }
        }
        removed
    }
    sweep(mirror, false) + sweep(&mirror.join("refs"), true)
}
