//! Version of the database schema: migrations, and the lock that separates processes of different versions.
//!
//! Every process that uses a database holds a shared lock on its folder. A process needs the exclusive lock to change the
//! schema, so no process ever works with an unknown schema. The lock is on the folder, because other users could not open a
//! lock file created by root, and closing the locked database file would release SQLite's locks.

#[cfg(test)]
mod tests;

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use failpoint::kill_point;
use ralph_types::failure::Failure;
use rusqlite::{Connection, TransactionBehavior};

use super::{MIGRATIONS, StoreResult, failure, opening_failed, unusable};
use crate::clock::Stopwatch;

/// Time between two attempts to acquire the lock.
const LOCK_RETRY: Duration = Duration::from_millis(50);
/// Explanation and advice for a database changed by a newer version.
pub(super) const NEWER: &str = "a newer version of ralph-bot has used it, and there is no way back: install that version again, or stop the \
                     service and restore the backup that was made before the upgrade (RUNBOOK.md, Roll back)";

/// Lock on the schema of a database; released when it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct SchemaLock {
    _file: File,
}

/// Acquires the shared lock for a command beside the service, and checks the schema's version.
pub(super) fn share(path: &Path, connection: &Connection) -> StoreResult<SchemaLock> {
    let file = lock_of(path)?;
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(failure("another process is changing its schema; try again"));
        }
        Err(TryLockError::Error(error)) => {
            return Err(failure(Failure::new("cannot acquire its lock").caused_by(error)));
        }
    }
    check(connection)?;
    Ok(SchemaLock { _file: file })
}

/// Reason why a database cannot be used alone.
pub(super) const IN_USE: &str = "a process of ralph-bot uses it; stop the service first";

/// Acquires the exclusive lock on a database's folder, so that no other process uses the database.
pub(super) fn claim(path: &Path, patience: Duration) -> StoreResult<SchemaLock> {
    let file = lock_of(path)?;
    let waited = Stopwatch::start();
    while !taken(file.try_lock())? {
        if waited.elapsed() >= patience {
            return Err(unusable(IN_USE));
        }
        std::thread::sleep(LOCK_RETRY);
    }
    Ok(SchemaLock { _file: file })
}

/// Runs the missing migrations and returns the shared lock. Waits at most `patience` for processes with an older schema.
pub(super) fn update(path: &Path, connection: &mut Connection, patience: Duration) -> StoreResult<SchemaLock> {
    let file = lock_of(path)?;
    let waited = Stopwatch::start();
    let mut announced = false;
    loop {
        if taken(file.try_lock_shared())? {
            if version(connection)? >= MIGRATIONS.len() as u32 {
                migrate(connection)?;
                return Ok(SchemaLock { _file: file });
            }
            unlock(&file)?;
        }
        if taken(file.try_lock())? {
            let migrated = migrate(connection);
            unlock(&file)?;
            migrated?;
            // Check again with the shared lock, because an even newer version may have changed the schema in between.
            continue;
        }
        if waited.elapsed() >= patience {
            return Err(failure(format!(
                "its schema needs a change, but processes of an older version of ralph-bot still use it; stop them, then start \
                 this version again (waited {} s)",
                patience.as_secs()
            )));
        }
        // Another process may be creating the database, which takes negligible time.
        if !announced && waited.elapsed() >= LOCK_RETRY * 10 {
            announced = true;
            tracing::warn!(database = %path.display(), "waiting for processes of an older version to stop");
        }
        std::thread::sleep(LOCK_RETRY);
    }
}

/// Runs the missing migrations, each in its own transaction.
pub(super) fn migrate(connection: &mut Connection) -> StoreResult<()> {
    let known = MIGRATIONS.len() as u32;
    loop {
        let done = version(connection)?;
        if done == known {
            return Ok(());
        }
        let Some(sql) = MIGRATIONS.get(done as usize) else {
            let detail =
                format!("its schema has version {done}, and this version of ralph-bot supports {known}; {NEWER}");
            return Err(failure(detail));
        };
        let run = |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(sql)?;
            transaction.pragma_update(None, "user_version", done + 1)?;
            transaction.commit()
        };
        run(connection).map_err(opening_failed)?;
        if done + 1 < known {
            kill_point("K32");
        }
    }
}

/// Checks that the schema is from this version.
pub(super) fn check(connection: &Connection) -> StoreResult<()> {
    let ours = MIGRATIONS.len() as u32;
    match version(connection)? {
        0 => Err(failure("the file is not a database of ralph-bot")),
        v if v < ours => Err(failure("an older version of ralph-bot made it; `ralph-bot serve` brings it up to date")),
        v if v > ours => Err(failure(NEWER)),
        _ => Ok(()),
    }
}

fn version(connection: &Connection) -> StoreResult<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(opening_failed)
}

/// Opens the folder of a database in order to lock it.
fn lock_of(path: &Path) -> StoreResult<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = || Failure::new(format!("cannot open its folder {}", folder.display()));
    File::open(folder).map_err(|error| failure(failed().caused_by(error)))
}

fn taken(attempt: Result<(), TryLockError>) -> StoreResult<bool> {
    match attempt {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(failure(Failure::new("cannot acquire its lock").caused_by(error))),
    }
}

fn unlock(file: &File) -> StoreResult<()> {
    file.unlock().map_err(|error| failure(Failure::new("cannot release its lock").caused_by(error)))
}
