//! Store in SQLite or PostgreSQL: one writer thread with group commit, a pool of read connections, and one file per group of
//! tables.
//!
//! Invariants: Every write runs in a transaction on this process's single writer connection, and only one such transaction
//! runs at a time in the database. A caller gets `Ok` only after its commit was synced. A job that fails or panics is rolled
//! back to its savepoint and does not affect other jobs of the same commit. After an I/O error at commit, the store rejects
//! all further writes, because a failed sync must not be retried. Writes fail while the disk is full or the database is busy,
//! except outcomes, which stay in memory until they can be written.

pub mod access_audit;
pub mod audit;
pub mod calls;
pub mod channel_messages;
mod copy;
pub mod costs;
pub mod feed;
pub mod forge_posts;
pub mod forge_state;
pub mod hosts;
pub mod inbox;
pub mod installation;
pub mod leases;
pub mod listing;
pub mod loop_files;
pub mod loops;
pub mod memory;
pub mod outbox;
mod paging;
mod schema;
mod scope;
pub mod session;
pub mod sql;
#[cfg(any(test, feature = "testing"))]
pub mod test_server;
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

use ralph_types::failure::Failure;
use tokio_util::sync::CancellationToken;

pub use copy::{CopiedTable, copy_database};
use schema::SchemaLock;
pub use sql::SqliteError;
use sql::checkpointer::Checkpointer;
pub use sql::postgres::PgSettings;
pub use sql::sqlite::backup_file;
use sql::{Connection, Database, postgres, sqlite};
pub use write_group::{PendingWrite, WriteGroup};
use writer::write_loop;

/// Maximum time that a schema change waits for processes of an older version to stop.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of job groups that wait for the writer; further callers get `Busy`.
const QUEUE: usize = 16_384;
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
    include_str!("../../../migrations/0017_hosts.sql"),
];

/// Error of the store. `Display` prints the causes of a detail, because the sentence ends with the remedy.
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
    #[error("the row already exists: {detail:#}")]
    Duplicate {
        #[source]
        detail: Failure,
    },
    /// The database is damaged or unreachable; the process must stop.
    #[error(
        "the database {path} failed: {detail:#}; stop the service, check the disk, and restore a backup if necessary"
    )]
    Failed {
        path: PathBuf,
        #[source]
        detail: Failure,
    },
    /// The address, the user, its rights, or the database's content do not fit; the service changed nothing.
    #[error("the database {path} cannot be used: {detail:#}")]
    Unusable {
        path: PathBuf,
        #[source]
        detail: Failure,
    },
    /// The server's database has no tables yet.
    #[error("the database {path} has no tables of ralph-bot yet; `ralph-bot serve` creates them")]
    NotCreated { path: PathBuf },
    /// [`within`] interrupted a query.
    #[error("the query took too long")]
    TooSlow,
    /// A statement or a stored value does not match this version.
    #[error("the database contains a value that this version does not understand: {detail:#}")]
    Bug {
        #[source]
        detail: Failure,
    },
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
            Some(Code::ConstraintViolation) => Self::Duplicate { detail: Failure::of(SqliteError(error)) },
            Some(Code::SystemIoFailure | Code::DatabaseCorrupt | Code::NotADatabase | Code::ReadOnly) => {
                Self::Failed { path: PathBuf::new(), detail: Failure::of(SqliteError(error)) }
            }
            _ => Self::Bug { detail: Failure::of(SqliteError(error)) },
        }
    }
}

/// Runs queries with a time limit of about `limit`. SQLite limits the queries together, PostgreSQL each of them.
///
/// # Errors
/// [`StoreError::TooSlow`] if the queries take longer.
pub fn within<T>(c: &Connection, limit: Duration, work: impl FnOnce(&Connection) -> StoreResult<T>) -> StoreResult<T> {
    c.engine().begin_limit(limit)?;
    let result = work(c);
    c.engine().end_limit(result.is_err())?;
    result
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull => Self::Full { path: PathBuf::new() },
            _ => failure(Failure::of(error)),
        }
    }
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Bug { detail: Failure::of(error) }
    }
}

/// Returns an error for the operator; [`with_path`] adds the database's address.
fn failure(detail: impl Into<Failure>) -> StoreError {
    StoreError::Failed { path: PathBuf::new(), detail: detail.into() }
}

/// Returns the error of a database that cannot be opened or created: a full disk, or an error for the operator.
fn opening_failed<E: ToString + Into<StoreError>>(error: E) -> StoreError {
    let text = error.to_string();
    match error.into() {
        full @ StoreError::Full { .. } => full,
        StoreError::Duplicate { detail } | StoreError::Failed { detail, .. } | StoreError::Bug { detail }
            if detail.to_string() == text =>
        {
            failure(detail)
        }
        _ => failure(text),
    }
}

/// Returns an error about the address, the user or the content of a database; [`with_path`] adds its address.
fn unusable(detail: impl Into<Failure>) -> StoreError {
    StoreError::Unusable { path: PathBuf::new(), detail: detail.into() }
}

/// Result of a call to the store.
pub type StoreResult<T> = Result<T, StoreError>;

/// Database of the service. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<StoreInner>,
}

struct StoreInner {
    source: DatabaseAddress,
    /// Address of the database in messages.
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
    _schema: Option<SchemaLock>,
}

/// Address of a database, which decides the engine.
#[derive(Debug, Clone)]
pub enum DatabaseAddress {
    /// File of SQLite.
    File(PathBuf),
    /// Server of PostgreSQL.
    Postgres(Box<PgSettings>),
}

impl<P: AsRef<Path> + ?Sized> From<&P> for DatabaseAddress {
    fn from(path: &P) -> Self {
        Self::File(path.as_ref().to_path_buf())
    }
}

impl From<PgSettings> for DatabaseAddress {
    fn from(settings: PgSettings) -> Self {
        Self::Postgres(Box::new(settings))
    }
}

/// Connection for writing, the lock on the schema of a file, and whether the last process ended without closing the file.
struct OpenedDatabase {
    connection: Connection,
    schema: Option<SchemaLock>,
    unclean: bool,
}

impl DatabaseAddress {
    /// Returns the address for messages, without a password.
    pub fn shown(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Postgres(settings) => settings.shown().into(),
        }
    }

    /// Opens the database for writing.
    fn open(&self, mode: Mode, patience: Duration) -> StoreResult<OpenedDatabase> {
        let (connection, schema) = match self {
            Self::File(path) => {
                let (connection, schema) = sqlite::open(path, mode, patience)?;
                (Connection(Database::Sqlite(connection)), schema)
            }
            Self::Postgres(settings) => {
                (Connection(Database::Postgres(Box::new(postgres::open(settings, mode, patience)?))), None)
            }
        };
        if mode == Mode::Beside {
            return Ok(OpenedDatabase { connection, schema, unclean: false });
        }
        listing::fill(&connection).map_err(opening_failed)?;
        // The server of PostgreSQL repairs its files itself.
        if matches!(self, Self::Postgres(_)) {
            return Ok(OpenedDatabase { connection, schema, unclean: false });
        }
        let before = installation::get(&connection, "stopped_cleanly").map_err(opening_failed)?;
        installation::set(&connection, "stopped_cleanly", "no").map_err(opening_failed)?;
        Ok(OpenedDatabase { connection, schema, unclean: before.as_deref() == Some("no") })
    }

    /// Opens a connection for reads.
    fn reader(&self) -> StoreResult<Connection> {
        Ok(Connection(match self {
            Self::File(path) => Database::Sqlite(sqlite::reader(path)?),
            Self::Postgres(settings) => Database::Postgres(Box::new(postgres::reader(settings)?)),
        }))
    }
}

/// Mode in which a database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The service's own database.
    Own,
    /// OpenedDatabase by a command while a service may be running; leaves the schema, the clean-stop mark and the write-ahead log
    /// unchanged.
    Beside,
    /// Database in memory, with one connection: reads use the writer.
    Memory,
}

impl Store {
    /// Opens or creates a database and brings its schema up to date.
    ///
    /// # Errors
    /// `Failed` if the file is not a ralph-bot database, was written by a newer version, is not writable, or needs a schema
    /// change while processes of an older version use it. `Unusable` if no server accepts the user and its writes.
    pub fn open(address: impl Into<DatabaseAddress>) -> StoreResult<Self> {
        Self::start(address.into(), Mode::Own, SCHEMA_PATIENCE)
    }

    /// Opens the database like [`open`](Self::open), but waits at most `patience` for processes of an older version to stop.
    #[cfg(test)]
    fn open_within(path: &Path, patience: Duration) -> StoreResult<Self> {
        Self::start(path.into(), Mode::Own, patience)
    }

    /// Opens an existing database while a service may be running on it. Leaves its schema and the clean-stop mark unchanged.
    ///
    /// # Errors
    /// `Failed` if the file does not exist or the schema is from another version, `NotCreated` if a server's database has no
    /// tables, and `Unusable` if no server accepts the user and its writes.
    pub fn attach(address: impl Into<DatabaseAddress>) -> StoreResult<Self> {
        let address = address.into();
        if let DatabaseAddress::File(path) = &address
            && !path.is_file()
        {
            let detail = "the file does not exist; `ralph-bot serve` creates it".into();
            return Err(StoreError::Failed { path: path.clone(), detail });
        }
        Self::start(address, Mode::Beside, SCHEMA_PATIENCE)
    }

    /// Opens an in-memory database for the simulation.
    pub fn in_memory() -> StoreResult<Self> {
        #[cfg(test)]
        if let Some(settings) = tests::databases::postgres() {
            return Self::open(settings);
        }
        Self::start(DatabaseAddress::File(":memory:".into()), Mode::Memory, SCHEMA_PATIENCE)
    }

    fn start(source: DatabaseAddress, mode: Mode, patience: Duration) -> StoreResult<Self> {
        let path = source.shown();
        let failed = |detail: Failure| StoreError::Failed { path: path.clone(), detail };
        let opened = match &source {
            DatabaseAddress::File(_) => source.open(mode, patience),
            // The caller may be a task, in which connecting must not block.
            DatabaseAddress::Postgres(_) => {
                let opening = || source.open(mode, patience);
                let joined = std::thread::scope(|scope| scope.spawn(opening).join());
                joined.unwrap_or_else(|_| Err(failure("connecting ended early")))
            }
        };
        let OpenedDatabase { connection, schema, unclean } = opened.map_err(|error| with_path(error, &path))?;
        let (queue, jobs) = mpsc::sync_channel(QUEUE);
        let broken = CancellationToken::new();
        let checkpointer = match (&source, connection.as_sqlite()) {
            (DatabaseAddress::File(file), Some(sqlite)) if mode == Mode::Own => {
                Some(Checkpointer::start(file, sqlite, &broken).map_err(|error| with_path(error, &path))?)
            }
            _ => None,
        };
        let writer = {
            let (path, broken) = (path.clone(), broken.clone());
            std::thread::Builder::new()
                .name("store-writer".into())
                .spawn(move || write_loop(connection, &jobs, &path, &broken, checkpointer, mode))
                .map_err(|error| failed(Failure::new("could not start the writer thread").caused_by(error)))?
        };
        Ok(Self {
            inner: Arc::new(StoreInner {
                source,
                path,
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
                None => inner.source.reader()?,
            };
            connection.engine().begin_read()?;
            let result = work(&connection);
            connection.engine().commit()?;
            let mut idle = lock(&inner.readers);
            if idle.len() < IDLE_READERS {
                idle.push(connection);
            }
            result
        });
        done.await.unwrap_or_else(|e| Err(StoreError::Bug { detail: Failure::new("a read ended early").caused_by(e) }))
    }

    /// Whether the database is a server, which several hosts can use.
    pub fn is_server(&self) -> bool {
        matches!(self.inner.source, DatabaseAddress::Postgres(_))
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
    pub async fn sizes(&self) -> (u64, u64) {
        self.read(|c| c.engine().sizes()).await.unwrap_or_default()
    }

    /// Whether the last process ended without closing the database.
    pub fn was_unclean(&self) -> bool {
        self.inner.unclean
    }

    /// Checks the integrity of the whole file; returns the problems found.
    pub async fn integrity(&self) -> StoreResult<Vec<String>> {
        self.read(|c| c.engine().problems()).await
    }

    /// Writes a consistent copy of the database to `to` while the service runs; fails if `to` exists.
    ///
    /// # Errors
    /// `Bug` on PostgreSQL, whose own programs make backups.
    pub async fn backup(&self, to: PathBuf) -> StoreResult<()> {
        let DatabaseAddress::File(path) = self.inner.source.clone() else {
            let detail = "`pg_dump` makes backups of a database of PostgreSQL".into();
            return Err(StoreError::Bug { detail });
        };
        let done = tokio::task::spawn_blocking(move || backup_file(&path, &to));
        done.await.unwrap_or_else(|error| Err(StoreError::Bug { detail: Failure::of(error) }))
    }

    /// Finishes queued writes, marks the clean stop, and closes the database. Rejects further writes.
    pub async fn close(&self) {
        if self.inner.mode != Mode::Beside && matches!(self.inner.source, DatabaseAddress::File(_)) {
            let noted = self.write(|c| installation::set(c, "stopped_cleanly", "yes")).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "could not record the clean stop");
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_path(error: StoreError, path: &Path) -> StoreError {
    match error {
        StoreError::Full { .. } => StoreError::Full { path: path.to_path_buf() },
        StoreError::Failed { detail, .. } => StoreError::Failed { path: path.to_path_buf(), detail },
        StoreError::Unusable { detail, .. } => StoreError::Unusable { path: path.to_path_buf(), detail },
        StoreError::NotCreated { .. } => StoreError::NotCreated { path: path.to_path_buf() },
        other => other,
    }
}
