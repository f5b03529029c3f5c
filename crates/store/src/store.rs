//! SQLite store: one writer thread with group commit, a pool of read connections, and one file per group of tables.
//!
//! Invariants: Every write runs in an IMMEDIATE transaction on this process's single writer connection. A caller gets `Ok`
//! only after its commit was synced. A job that fails or panics is rolled back to its savepoint and does not affect other
//! jobs of the same commit. After an I/O error at commit, the store rejects all further writes, because a failed sync must
//! not be retried. Writes fail while the disk is full, except outcomes, which stay in memory until there is space.

pub mod access_audit;
pub mod audit;
pub mod calls;
pub mod channel_messages;
pub mod costs;
pub mod feed;
pub mod forge_posts;
pub mod forge_state;
pub mod inbox;
pub mod installation;
pub mod leases;
pub mod listing;
pub mod loops;
pub mod memory;
pub mod outbox;
mod schema;
mod scope;
pub mod session;
#[cfg(test)]
mod tests;
pub mod timers;
pub mod tokens;
pub mod web_sessions;
mod write_group;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use failpoint::kill_point;
use rusqlite::{Connection, OpenFlags};
use tokio_util::sync::CancellationToken;

use crate::clock::Stopwatch;
use crate::process::private;
use schema::SchemaShare;
pub use write_group::{PendingWrite, WriteGroup};
use writer::write_loop;

/// Oldest SQLite version without the WAL-reset corruption bug (3.51.3).
const OLDEST_SQLITE: i32 = 3_051_003;
/// Maximum time that a statement waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of attempts to open a database that another process may be creating, and the delay between two attempts.
const OPEN_TRIES: u32 = 10;
const OPEN_RETRY: Duration = Duration::from_millis(50);
/// Maximum time that a schema change waits for processes of an older version to stop.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(60);
/// Size of the write-ahead log, in pages, at which SQLite copies it into the database (64 MiB). It is small enough for a
/// fast start after a crash and large enough not to slow down a burst of deliveries.
const CHECKPOINT_PAGES: u32 = 16_384;
/// Maximum number of job groups that wait for the writer; further callers get `Busy`.
const QUEUE: usize = 16_384;
/// Number of prepared statements cached per connection.
const STATEMENTS: usize = 128;
/// Page cache of a read connection, in KiB; only pages that were read use memory. One search over all loops reads more than
/// SQLite's default of 2 MiB.
const READER_CACHE_KIB: i64 = 8 * 1024;
/// Maximum idle read connections.
const IDLE_READERS: usize = 8;

/// Migrations in order. The database's `user_version` is the number of applied migrations.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/0001_first.sql"),
    include_str!("../../../migrations/0002_memory.sql"),
    include_str!("../../../migrations/0003_session.sql"),
    include_str!("../../../migrations/0004_calls.sql"),
    include_str!("../../../migrations/0005_vectors.sql"),
    include_str!("../../../migrations/0006_due.sql"),
    include_str!("../../../migrations/0007_proposals.sql"),
    include_str!("../../../migrations/0008_search.sql"),
    include_str!("../../../migrations/0009_sessions.sql"),
    include_str!("../../../migrations/0010_polling.sql"),
    include_str!("../../../migrations/0011_tokens.sql"),
    include_str!("../../../migrations/0012_pages.sql"),
    include_str!("../../../migrations/0013_channel_messages.sql"),
    include_str!("../../../migrations/0014_running_turns.sql"),
    include_str!("../../../migrations/0015_audit_and_deliveries.sql"),
    include_str!("../../../migrations/0016_prepared.sql"),
];

/// Error of the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The disk is full; the write changed nothing.
    #[error("the disk that holds {path} is full; free some space, nothing was lost")]
    Full { path: PathBuf },
    /// Another process locked the database for too long, or too many writes are queued.
    #[error("the database is busy; try again")]
    Busy,
    /// Another owner has taken over this write's work.
    #[error("another process has taken over the lease on {name}")]
    Fenced { name: String },
    /// A row violates a unique constraint.
    #[error("the row already exists: {detail}")]
    Duplicate { detail: String },
    /// The database is damaged or unreachable; the process must stop.
    #[error(
        "the database {path} failed: {detail}; stop the service, check the disk, and restore a backup if necessary"
    )]
    Failed { path: PathBuf, detail: String },
    /// [`within`] interrupted a query.
    #[error("the query took too long")]
    TooSlow,
    /// A statement or a stored value does not match this version.
    #[error("the database contains a value that this version does not understand: {detail}")]
    Bug { detail: String },
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        // The index of the write-ahead log could not grow, which only happens on a full disk.
        let extended = error.sqlite_error().map(|error| error.extended_code);
        if extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) {
            return Self::Full { path: PathBuf::new() };
        }
        match error.sqlite_error_code() {
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => Self::Busy,
            Some(Code::OperationInterrupted) => Self::TooSlow,
            Some(Code::DiskFull) => Self::Full { path: PathBuf::new() },
            Some(Code::ConstraintViolation) => Self::Duplicate { detail: error.to_string() },
            Some(Code::SystemIoFailure | Code::DatabaseCorrupt | Code::NotADatabase | Code::ReadOnly) => {
                Self::Failed { path: PathBuf::new(), detail: error.to_string() }
            }
            _ => Self::Bug { detail: error.to_string() },
        }
    }
}

/// Number of SQLite virtual-machine instructions between two checks of the time limit. They take about a millisecond in
/// FTS5, which executes few instructions per index page, and less elsewhere.
const LOOK_AT_TIME: i32 = 1_000;

/// Runs queries with a time limit of about `limit`.
///
/// # Errors
/// [`StoreError::TooSlow`] if the queries take longer.
pub fn within<T>(c: &Connection, limit: Duration, work: impl FnOnce(&Connection) -> StoreResult<T>) -> StoreResult<T> {
    let watch = Stopwatch::start();
    c.progress_handler(LOOK_AT_TIME, Some(move || watch.elapsed() > limit))?;
    let result = work(c);
    c.progress_handler(0, None::<fn() -> bool>)?;
    result
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Bug { detail: error.to_string() }
    }
}

/// Result of a call to the store.
pub type StoreResult<T> = Result<T, StoreError>;

/// Database of the service. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<StoreInner>,
}

struct StoreInner {
    path: PathBuf,
    /// Sender to the writer thread; `None` once the store is closed.
    queue: Mutex<Option<mpsc::SyncSender<WriteGroup>>>,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
    readers: Mutex<Vec<Connection>>,
    mode: Mode,
    /// Cancelled when a write did not reach the disk.
    failed: CancellationToken,
    unclean: bool,
    /// Shared lock that prevents processes of newer versions from changing the schema; `None` for an in-memory database.
    _schema: Option<SchemaShare>,
}

/// Mode in which a database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The service's own database.
    Own,
    /// Opened by a command while a service may be running; leaves the schema, the clean-stop mark and the write-ahead log
    /// unchanged.
    Beside,
    /// Database in memory, with one connection: reads use the writer.
    Memory,
}

impl Store {
    /// Opens or creates the database at `path` and brings its schema up to date.
    ///
    /// Fails with `Failed` if the file is not a ralph-bot database, was written by a newer version, is not writable, or
    /// needs a schema change while processes of an older version use it.
    pub fn open(path: &Path) -> StoreResult<Self> {
        Self::start(path, Mode::Own, SCHEMA_PATIENCE)
    }

    /// Opens the database like [`open`](Self::open), but waits at most `patience` for processes of an older version to stop.
    #[cfg(test)]
    fn open_within(path: &Path, patience: Duration) -> StoreResult<Self> {
        Self::start(path, Mode::Own, patience)
    }

    /// Opens the existing database at `path` while a service may be running on it. Leaves its schema and the clean-stop mark
    /// unchanged.
    ///
    /// Fails with `Failed` if the database does not exist or its schema is from another version.
    pub fn attach(path: &Path) -> StoreResult<Self> {
        if !path.is_file() {
            let detail = "the file does not exist; `ralph-bot serve` creates it".to_owned();
            return Err(StoreError::Failed { path: path.to_path_buf(), detail });
        }
        Self::start(path, Mode::Beside, SCHEMA_PATIENCE)
    }

    /// Opens an in-memory database for the simulation.
    pub fn in_memory() -> StoreResult<Self> {
        Self::start(Path::new(":memory:"), Mode::Memory, SCHEMA_PATIENCE)
    }

    fn start(path: &Path, mode: Mode, patience: Duration) -> StoreResult<Self> {
        let failed = |detail: String| StoreError::Failed { path: path.to_path_buf(), detail };
        if rusqlite::version_number() < OLDEST_SQLITE {
            return Err(failed(format!("SQLite {} is too old, 3.51.3 is needed", rusqlite::version())));
        }
        if mode != Mode::Memory {
            writable(path).map_err(failed)?;
        }
        if mode == Mode::Own {
            // SQLite gives the log and the other files beside the database the same mode.
            private::create_file(path).map_err(|e| failed(e.to_string()))?;
        }
        let existing = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let mut connection = match mode {
            Mode::Memory => Connection::open_in_memory(),
            Mode::Own => Connection::open_with_flags(path, existing | OpenFlags::SQLITE_OPEN_CREATE),
            Mode::Beside => Connection::open_with_flags(path, existing),
        }
        .map_err(|e| failed(e.to_string()))?;
        let beside = (mode == Mode::Beside).then(|| schema::share(path, &connection));
        let beside = beside.transpose().map_err(failed)?;
        retrying(|| configure(&connection)).map_err(|e| failed(e.to_string()))?;
        let schema = match mode {
            Mode::Own => Some(schema::update(path, &mut connection, patience).map_err(failed)?),
            Mode::Beside => beside,
            Mode::Memory => {
                schema::migrate(&mut connection).map_err(failed)?;
                None
            }
        };
        let unclean = if mode == Mode::Beside {
            false
        } else {
            listing::fill(&mut connection).map_err(|e| failed(format!("the rows of lists cannot be made: {e}")))?;
            let before = installation::get(&connection, "stopped_cleanly").map_err(|e| failed(e.to_string()))?;
            installation::set(&connection, "stopped_cleanly", "no").map_err(|e| failed(e.to_string()))?;
            before.as_deref() == Some("no")
        };

        // Otherwise, SQLite would create the small journals of savepoints in the system's temporary folder for each write.
        connection.pragma_update(None, "temp_store", "MEMORY").map_err(|e| failed(e.to_string()))?;
        let (queue, jobs) = mpsc::sync_channel(QUEUE);
        let broken = CancellationToken::new();
        let writer = {
            let (path, broken) = (path.to_path_buf(), broken.clone());
            std::thread::Builder::new()
                .name("store-writer".into())
                .spawn(move || write_loop(connection, &jobs, &path, &broken, mode))
                .map_err(|e| failed(format!("the writer thread could not be started: {e}")))?
        };
        Ok(Self {
            inner: Arc::new(StoreInner {
                path: path.to_path_buf(),
                queue: Mutex::new(Some(queue)),
                writer: Mutex::new(Some(writer)),
                readers: Mutex::new(Vec::new()),
                mode,
                failed: broken,
                unclean,
                _schema: schema,
            }),
        })
    }

    /// Runs `work` in a write transaction; `Ok` means that the commit is on disk.
    pub async fn write<T, F>(&self, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    {
        let mut group = WriteGroup::default();
        let pending = group.add(work);
        self.submit(group)?;
        self.outcome(pending).await
    }

    /// Runs `work` in a write transaction like [`write`](Self::write), and repeats it while the disk is full. Used for
    /// outcomes that cannot be produced again.
    pub async fn write_kept<T, F>(&self, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> StoreResult<T> + Send + 'static,
    {
        let mut group = WriteGroup::default();
        let pending = group.add_kept(work);
        self.submit(group)?;
        self.outcome(pending).await
    }

    /// Queues a group of writes for one commit; [`outcome`](Self::outcome) waits for their results.
    pub fn submit(&self, group: WriteGroup) -> StoreResult<()> {
        let sender = lock(&self.inner.queue).clone();
        match sender.ok_or_else(|| self.closed())?.try_send(group) {
            Ok(()) => Ok(()),
            Err(mpsc::TrySendError::Full(_)) => Err(StoreError::Busy),
            Err(mpsc::TrySendError::Disconnected(_)) => Err(self.closed()),
        }
    }

    /// Returns the result of a submitted write; `Ok` means that it is on disk.
    pub async fn outcome<T>(&self, pending: PendingWrite<T>) -> StoreResult<T> {
        pending.answer().await.unwrap_or_else(|| Err(self.closed()))
    }

    /// Runs `work` on a consistent snapshot.
    pub async fn read<T, F>(&self, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    {
        if self.inner.mode == Mode::Memory {
            return self.write(work).await;
        }
        let inner = self.inner.clone();
        let done = tokio::task::spawn_blocking(move || {
            let pooled = lock(&inner.readers).pop();
            let connection = match pooled {
                Some(connection) => connection,
                None => {
                    let connection = Connection::open_with_flags(&inner.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
                    connection.busy_timeout(BUSY_TIMEOUT)?;
                    connection.set_prepared_statement_cache_capacity(STATEMENTS);
                    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
                    connection
                }
            };
            connection.execute_batch("BEGIN")?;
            let result = work(&connection);
            connection.execute_batch("COMMIT")?;
            let mut idle = lock(&inner.readers);
            if idle.len() < IDLE_READERS {
                idle.push(connection);
            }
            result
        });
        done.await.unwrap_or_else(|e| Err(StoreError::Bug { detail: format!("a read ended early: {e}") }))
    }

    /// Whether the store still accepts writes.
    pub fn healthy(&self) -> bool {
        !self.inner.failed.is_cancelled() && lock(&self.inner.queue).is_some()
    }

    /// Returns as soon as a write did not reach the disk; the store then accepts no further writes.
    pub async fn failed(&self) {
        self.inner.failed.cancelled().await;
    }

    /// Returns the sizes of the database file and its write-ahead log, in bytes; 0 for a missing file. SQLite regularly
    /// copies the log into the database. The log grows while another program keeps a read transaction open, which prevents
    /// this.
    pub fn sizes(&self) -> (u64, u64) {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let mut log = self.inner.path.clone().into_os_string();
        log.push("-wal");
        (size(&self.inner.path), size(Path::new(&log)))
    }

    /// Whether the last process ended without closing the database.
    pub fn was_unclean(&self) -> bool {
        self.inner.unclean
    }

    /// Checks the integrity of the whole file; returns the problems found.
    pub async fn integrity(&self) -> StoreResult<Vec<String>> {
        self.read(|c| {
            let mut statement = c.prepare("PRAGMA quick_check")?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
            Ok(lines.into_iter().filter(|line| line != "ok").collect())
        })
        .await
    }

    /// Writes a consistent copy of the database to `to` while the service runs; fails if `to` exists.
    pub async fn backup(&self, to: PathBuf) -> StoreResult<()> {
        let path = self.inner.path.clone();
        let done = tokio::task::spawn_blocking(move || backup_file(&path, &to));
        done.await.unwrap_or_else(|e| Err(StoreError::Bug { detail: e.to_string() }))
    }

    /// Finishes queued writes, marks the clean stop, and closes the database. Rejects further writes.
    pub async fn close(&self) {
        if self.inner.mode != Mode::Beside {
            let noted = self.write(|c| installation::set(c, "stopped_cleanly", "yes")).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "the clean stop could not be recorded");
            }
        }
        drop(lock(&self.inner.queue).take());
        let writer = lock(&self.inner.writer).take();
        if let Some(writer) = writer {
            let joined = tokio::task::spawn_blocking(move || writer.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the store's writer failed");
            }
        }
    }

    fn closed(&self) -> StoreError {
        StoreError::Failed { path: self.inner.path.clone(), detail: "it was closed".into() }
    }
}

/// Copies the database file at `from` to `to` consistently, even while a service uses it. Afterwards, `to` is either
/// complete and readable only by its owner, or it does not exist.
pub fn backup_file(from: &Path, to: &Path) -> StoreResult<()> {
    if std::fs::symlink_metadata(to).is_ok() {
        return Err(StoreError::Duplicate { detail: format!("{} already exists; choose another file", to.display()) });
    }
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|e| StoreError::Failed { path: from.to_path_buf(), detail: e.to_string() })?;
    source.busy_timeout(BUSY_TIMEOUT)?;
    let failed = |e: std::io::Error| StoreError::Failed { path: to.to_path_buf(), detail: e.to_string() };
    // Write the copy under a temporary name, readable only by its owner, because it contains issues of private repositories.
    // If the process dies, only this file remains.
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part = tempfile::Builder::new().prefix(".ralph-backup-").tempfile_in(folder).map_err(failed)?;
    let into = source.execute("VACUUM INTO ?1", [part.path().display().to_string()]);
    into.map_err(|e| with_path(e.into(), to))?;
    kill_point("K34");
    part.as_file().sync_all().map_err(failed)?;
    part.persist_noclobber(to).map_err(|e| failed(e.error))?;
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
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

/// Checks that a database can be written at `path`, because SQLite only reports that it cannot open the file. The error is a
/// message for the operator.
fn writable(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for place in [folder, path] {
        match rustix::fs::access(place, rustix::fs::Access::WRITE_OK) {
            Err(rustix::io::Errno::NOENT) | Ok(()) => {}
            Err(why) => return Err(format!("{} cannot be written: {why}", place.display())),
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    Ok(())
}

fn with_path(error: StoreError, path: &Path) -> StoreError {
    match error {
        StoreError::Full { .. } => StoreError::Full { path: path.to_path_buf() },
        StoreError::Failed { detail, .. } => StoreError::Failed { path: path.to_path_buf(), detail },
        other => other,
    }
}
