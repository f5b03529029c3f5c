//! SQLite: opens the file, and its part of the differences between the engines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use failpoint::kill_point;
use ralph_types::failure::Failure;
use rusqlite::{Connection, OpenFlags};
use tempfile::NamedTempFile;

use super::engine::DatabaseEngine;
use crate::clock::Stopwatch;
use crate::process::private;
use crate::store::schema::{self, SchemaLock};
use crate::store::{Mode, SqliteError, StoreError, StoreResult, failure, opening_failed, unusable, with_path};

/// Oldest SQLite version without the WAL-reset corruption bug (3.51.3).
const OLDEST_SQLITE: i32 = 3_051_003;
/// Maximum time that a statement waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of attempts to open a database that another process may be creating, and the delay between two attempts.
const OPEN_TRIES: u32 = 10;
const OPEN_RETRY: Duration = Duration::from_millis(50);
/// Size of the write-ahead log, in pages, at which a command beside the service copies it into the database (64 MiB).
const CHECKPOINT_PAGES: u32 = 16_384;
/// Number of prepared statements cached per connection.
const STATEMENTS: usize = 128;
/// Page cache of a read connection, in KiB; only pages that were read use memory. One search over all loops reads more than
/// SQLite's default of 2 MiB.
const READER_CACHE_KIB: i64 = 8 * 1024;
/// Number of SQLite virtual-machine instructions between two checks of the time limit. They take about a millisecond in
/// FTS5, which executes few instructions per index page, and less elsewhere.
const LOOK_AT_TIME: i32 = 1_000;

/// Opens a database for writing, creates it in [`Mode::Own`] and brings its schema up to date. Also returns the lock on its
/// schema.
pub(in crate::store) fn open(
    path: &Path,
    mode: Mode,
    patience: Duration,
) -> StoreResult<(Connection, Option<SchemaLock>)> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(failure(format!("SQLite {} is too old, 3.51.3 is needed", rusqlite::version())));
    }
    if mode != Mode::Memory {
        check_writable(path)?;
    }
    if mode == Mode::Own {
        // SQLite gives the log and the other files beside the database the same mode.
        private::create_file(path).map_err(opening_failed)?;
    }
    let existing = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let mut connection = match mode {
        Mode::Memory => Connection::open_in_memory(),
        Mode::Own => Connection::open_with_flags(path, existing | OpenFlags::SQLITE_OPEN_CREATE),
        Mode::Beside => Connection::open_with_flags(path, existing),
    }
    .map_err(opening_failed)?;
    let beside = (mode == Mode::Beside).then(|| schema::share(path, &connection)).transpose()?;
    retrying(|| configure(&connection)).map_err(opening_failed)?;
    let schema = match mode {
        Mode::Own => Some(schema::update(path, &mut connection, patience)?),
        Mode::Beside => beside,
        Mode::Memory => {
            schema::migrate(&mut connection)?;
            None
        }
    };
    Ok((connection, schema))
}

/// Opens an existing database that no other process uses while the lock exists.
pub(in crate::store) fn open_alone(path: &Path, patience: Duration) -> StoreResult<(Connection, SchemaLock)> {
    if !path.is_file() {
        return Err(failure("the file does not exist; `ralph-bot serve` creates it"));
    }
    check_writable(path)?;
    let lock = schema::claim(path, patience)?;
    let opened = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|connection| {
        configure(&connection)?;
        Ok(connection)
    });
    let connection = opened.map_err(opening_failed)?;
    schema::check(&connection)?;
    Ok((connection, lock))
}

/// New database under a temporary name, which no other process uses while the lock exists.
pub(in crate::store) struct NewDatabase {
    pub connection: Connection,
    pub lock: SchemaLock,
    pub part: NamedTempFile,
}

/// Creates a database with the newest schema under a temporary name in the folder of `path`; [`publish`] gives it its name.
pub(in crate::store) fn create_alone(path: &Path, patience: Duration) -> StoreResult<NewDatabase> {
    // SQLite would apply a log with this name to the new file.
    for existing in [path.to_path_buf(), log_of(path)] {
        if std::fs::symlink_metadata(&existing).is_ok() {
            let detail = format!("{} already exists; choose another file, or move it away", existing.display());
            return Err(unusable(detail));
        }
    }
    check_writable(path)?;
    let lock = schema::claim(path, patience)?;
    let part = tempfile::Builder::new().prefix(".ralph-copy-").tempfile_in(folder_of(path));
    let part = part.map_err(opening_failed)?;
    let opened = Connection::open_with_flags(part.path(), OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|connection| {
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY")?;
        Ok(connection)
    });
    let mut connection = opened.map_err(opening_failed)?;
    schema::migrate(&mut connection)?;
    Ok(NewDatabase { connection, lock, part })
}

/// Gives a complete database file its name, which must not exist.
pub(in crate::store) fn publish(part: NamedTempFile, to: &Path) -> StoreResult<()> {
    let failed = |error: std::io::Error| with_path(error.into(), to);
    part.as_file().sync_all().map_err(failed)?;
    part.persist_noclobber(to).map_err(|error| failed(error.error))?;
    std::fs::File::open(folder_of(to)).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Opens another connection that writes to an open database.
pub(super) fn beside_writer(path: &Path) -> StoreResult<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    configure(&connection)?;
    Ok(connection)
}

/// Opens a connection for reads.
pub(in crate::store) fn reader(path: &Path) -> StoreResult<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    Ok(connection)
}

impl DatabaseEngine for Connection {
    fn begin_read(&self) -> StoreResult<()> {
        Ok(self.execute_batch("BEGIN")?)
    }

    fn begin_write(&self) -> StoreResult<()> {
        Ok(self.execute_batch("BEGIN IMMEDIATE")?)
    }

    fn commit(&self) -> StoreResult<()> {
        Ok(self.execute_batch("COMMIT")?)
    }

    fn roll_back(&self) -> StoreResult<()> {
        // The failed statement may have ended the transaction.
        if self.is_in_transaction() { Ok(self.execute_batch("ROLLBACK")?) } else { Ok(()) }
    }

    fn is_in_transaction(&self) -> bool {
        !self.is_autocommit()
    }

    fn begin_limit(&self, limit: Duration) -> StoreResult<()> {
        let watch = Stopwatch::start();
        Ok(self.progress_handler(LOOK_AT_TIME, Some(move || watch.elapsed() > limit))?)
    }

    fn end_limit(&self, _: bool) -> StoreResult<()> {
        Ok(self.progress_handler(0, None::<fn() -> bool>)?)
    }

    fn matches(&self, words: &str, parameter: usize) -> String {
        format!("{words} MATCH ?{parameter}")
    }

    fn rank(&self, words: &str, weights: &[f64], _: usize) -> String {
        if weights.is_empty() {
            return "rank".to_owned();
        }
        let weights: String = weights.iter().map(|weight| format!(", {weight:.1}")).collect();
        format!("bm25({words}{weights})")
    }

    fn last_id(&self, table: &str) -> String {
        format!("(SELECT seq FROM sqlite_sequence WHERE name = '{table}')")
    }

    fn continue_ids(&self, table: &str, _: &str, last: i64, is_never_reused: bool) -> StoreResult<()> {
        if is_never_reused {
            self.execute("DELETE FROM sqlite_sequence WHERE name = ?1", [table])?;
            self.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", (table, last))?;
        }
        Ok(())
    }

    fn server_time(&self) -> StoreResult<Option<i64>> {
        Ok(None)
    }

    fn sizes(&self) -> StoreResult<(u64, u64)> {
        let path = PathBuf::from(self.path().unwrap_or_default());
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        Ok((size(&path), size(&log_of(&path))))
    }

    fn problems(&self) -> StoreResult<Vec<String>> {
        let mut statement = self.prepare("PRAGMA quick_check")?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    }

    fn settle(&self) {
        if let Err(error) = self.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
            tracing::debug!(%error, "the final checkpoint failed; the next start repeats it");
        }
    }
}

/// Copies the database file at `from` to `to` consistently, even while a service uses it. Afterwards, `to` is either
/// complete and readable only by its owner, or it does not exist.
pub fn backup_file(from: &Path, to: &Path) -> StoreResult<()> {
    if std::fs::symlink_metadata(to).is_ok() {
        return Err(StoreError::Duplicate {
            detail: format!("{} already exists; choose another file", to.display()).into(),
        });
    }
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|e| StoreError::Failed { path: from.to_path_buf(), detail: Failure::of(SqliteError(e)) })?;
    source.busy_timeout(BUSY_TIMEOUT)?;
    let failed = |error: std::io::Error| with_path(error.into(), to);
    // Write the copy under a temporary name, readable only by its owner, because it contains issues of private repositories.
    // If the process dies, only this file remains.
    let part = tempfile::Builder::new().prefix(".ralph-backup-").tempfile_in(folder_of(to)).map_err(failed)?;
    let into = source.execute("VACUUM INTO ?1", [part.path().display().to_string()]);
    into.map_err(|e| with_path(e.into(), to))?;
    kill_point("K34");
    publish(part, to)
}

/// Returns the name of a database's write-ahead log.
fn log_of(path: &Path) -> PathBuf {
    let mut log = path.to_path_buf().into_os_string();
    log.push("-wal");
    log.into()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Runs work and repeats it while it fails, because another process may be creating the same database at the same time.
fn retrying<E>(mut work: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    for _ in 1..OPEN_TRIES {
        if work().is_ok() {
            return Ok(());
        }
        std::thread::sleep(OPEN_RETRY);
    }
    work()
}

/// Checks that a database can be written at `path`, because SQLite only reports that it cannot open the file.
fn check_writable(path: &Path) -> StoreResult<()> {
    for place in [folder_of(path), path] {
        match rustix::fs::access(place, rustix::fs::Access::WRITE_OK) {
            Err(rustix::io::Errno::NOENT) | Ok(()) => {}
            Err(error) => {
                let problem = Failure::new(format!("{} cannot be written", place.display()));
                return Err(failure(problem.caused_by(error)));
            }
        }
    }
    Ok(())
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Setting a pragma contends with other processes, so set only values that differ.
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode != "wal" && mode != "memory" {
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA mmap_size = 0;")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise, SQLite would create the small journals of savepoints in the system's temporary folder for each write.
    connection.pragma_update(None, "temp_store", "MEMORY")
}
