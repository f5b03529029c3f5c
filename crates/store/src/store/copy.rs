//! Copies a whole database into an empty one, on the same or the other engine.
//!
//! Both databases are locked for other processes during the copy. One transaction of the target writes all rows, fills the
//! full-text indexes, and reads the rows again to compare their number and digest with the source, so an interrupted copy
//! leaves no rows.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::HEXLOWER;
use rusqlite::types::Value;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::store::schema::SchemaLock;
use crate::store::sql::{Connection, Database, OptionalExtension, params_from_iter, postgres, sqlite};
use crate::store::{DatabaseAddress, Mode, StoreResult, failure, listing, memory, session, unusable, with_path};

/// Number of rows that are read and written at a time.
const PAGE: usize = 64;
/// Maximum time that a copy waits for other processes to release a database.
const PATIENCE: Duration = Duration::from_secs(5);

/// Table of a copied database.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CopiedTable {
    /// Name of the table.
    pub name: String,
    /// Number of rows.
    pub rows: u64,
    /// SHA-256 of the rows in the order of their keys, in hexadecimal; the same on both engines.
    pub sha256: String,
}

/// Copies all tables of a database into an empty database of PostgreSQL, or into a new file. Blocks the thread.
///
/// # Errors
/// `Unusable` if both are files, if a process uses one of the databases, or if the target has rows or exists; the errors of
/// [`Store::attach`](crate::store::Store::attach) for the source and for a target with tables. After an error the target has no rows.
pub fn copy_database(from: &DatabaseAddress, to: &DatabaseAddress) -> StoreResult<Vec<CopiedTable>> {
    copy_within(from, to, PATIENCE)
}

/// Copies a database; waits at most `patience` for other processes to release each of the two.
fn copy_within(from: &DatabaseAddress, to: &DatabaseAddress, patience: Duration) -> StoreResult<Vec<CopiedTable>> {
    if let (DatabaseAddress::File(_), DatabaseAddress::File(path)) = (from, to) {
        return Err(with_path(unusable("both databases are files; `ralph-bot backup` copies a file"), path));
    }
    let source = LockedDatabase::source(from, patience).map_err(|error| with_path(error, &from.shown()))?;
    let target = LockedDatabase::target(to, patience).map_err(|error| with_path(error, &to.shown()))?;
    let on_target = |error| with_path(error, &target.shown);
    let tables = tables()?;
    source.connection.engine().begin_read().map_err(|error| with_path(error, &source.shown))?;
    target.connection.engine().begin_write().map_err(on_target)?;
    let copied = copy_rows(&source, &target, &tables);
    let ended = match &copied {
        Ok(_) => target.connection.engine().commit(),
        Err(_) => target.connection.engine().roll_back(),
    };
    let copied = copied?;
    ended.map_err(on_target)?;
    let shown = target.shown.clone();
    target.keep().map_err(|error| with_path(error, &shown))?;
    Ok(copied)
}

/// Copies the rows of all tables in the open transactions.
fn copy_rows(source: &LockedDatabase, target: &LockedDatabase, tables: &[Table]) -> StoreResult<Vec<CopiedTable>> {
    let on_target = |error| with_path(error, &target.shown);
    for table in tables {
        if table.has_rows(&target.connection).map_err(on_target)? {
            let detail = format!("it is not empty, its table {} has rows; use an empty database", table.name);
            return Err(on_target(unusable(detail)));
        }
    }
    let mut copied = Vec::new();
    for table in tables {
        let read = table.scan(source, |rows| table.insert(&target.connection, rows).map_err(on_target))?;
        table.continue_ids(source, target)?;
        copied.push(read);
    }
    let index_all = || {
        session::index_all(&target.connection)?;
        memory::index_all(&target.connection)?;
        listing::index_all(&target.connection)
    };
    index_all().map_err(on_target)?;
    for (table, read) in tables.iter().zip(&copied) {
        let written = table.scan(target, |_| Ok(()))?;
        if written != *read {
            let detail = format!(
                "the copy of the table {} differs: {} rows with the digest {}, and {} rows with the digest {} in the source",
                table.name, written.rows, written.sha256, read.rows, read.sha256
            );
            return Err(on_target(failure(detail)));
        }
    }
    Ok(copied)
}

/// Database that no other process uses. The connection closes before the lock is released.
struct LockedDatabase {
    connection: Connection,
    /// Address for messages.
    shown: PathBuf,
    /// Lock on a file; a server's lock belongs to the connection.
    _lock: Option<SchemaLock>,
    /// New file under a temporary name.
    part: Option<NamedTempFile>,
}

impl LockedDatabase {
    /// Opens an existing database.
    fn source(address: &DatabaseAddress, patience: Duration) -> StoreResult<Self> {
        let shown = address.shown();
        match address {
            DatabaseAddress::File(path) => {
                let (connection, lock) = sqlite::open_alone(path, patience)?;
                Ok(Self { connection: Connection(Database::Sqlite(connection)), shown, _lock: Some(lock), part: None })
            }
            DatabaseAddress::Postgres(settings) => {
                let connection = postgres::open_alone(settings, false, patience)?;
                let connection = Connection(Database::Postgres(Box::new(connection)));
                Ok(Self { connection, shown, _lock: None, part: None })
            }
        }
    }

    /// Creates a file under a temporary name, or the tables of a server's database if it has none.
    fn target(address: &DatabaseAddress, patience: Duration) -> StoreResult<Self> {
        let shown = address.shown();
        match address {
            DatabaseAddress::File(path) => {
                let created = sqlite::create_alone(path, patience)?;
                let connection = Connection(Database::Sqlite(created.connection));
                Ok(Self { connection, shown, _lock: Some(created.lock), part: Some(created.part) })
            }
            DatabaseAddress::Postgres(settings) => {
                let connection = postgres::open_alone(settings, true, patience)?;
                let connection = Connection(Database::Postgres(Box::new(connection)));
                Ok(Self { connection, shown, _lock: None, part: None })
            }
        }
    }

    /// Closes the database, and gives a new file its name.
    fn keep(self) -> StoreResult<()> {
        drop(self.connection);
        match self.part {
            Some(part) => sqlite::publish(part, &self.shown),
            None => Ok(()),
        }
    }
}

/// Table with the columns of both engines.
struct Table {
    name: String,
    columns: Vec<String>,
    /// Positions of the key's columns.
    key: Vec<usize>,
    /// Column whose values the database assigns.
    number: Option<String>,
    /// Whether numbers of deleted rows are never used again.
    is_never_reused: bool,
}

/// Returns the tables of this version in the order of their creation, without the full-text indexes.
fn tables() -> StoreResult<Vec<Table>> {
    let (connection, _) = sqlite::open(Path::new(":memory:"), Mode::Memory, Duration::ZERO)?;
    let connection = Connection(Database::Sqlite(connection));
    let sql = "SELECT s.name, s.sql LIKE '%AUTOINCREMENT%' FROM sqlite_schema s
        JOIN pragma_table_list l ON l.schema = 'main' AND l.name = s.name
        WHERE l.type = 'table' AND s.name NOT LIKE 'sqlite%' ORDER BY s.rowid";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut tables = Vec::new();
    while let Some(row) = rows.next()? {
        tables.push(Table::of(&connection, row.get(0)?, row.get(1)?)?);
    }
    Ok(tables)
}

impl Table {
    fn of(c: &Connection, name: String, is_never_reused: bool) -> StoreResult<Self> {
        let mut statement = c.prepare("SELECT name, pk, type = 'INTEGER' FROM pragma_table_info(?1) ORDER BY cid")?;
        let found = statement.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let found: Vec<(String, i64, bool)> = found.collect::<Result<_, _>>()?;
        let mut columns: Vec<String> = found.iter().map(|(name, ..)| name.clone()).collect();
        if postgres::ROWID_TABLES.contains(&name.as_str()) {
            columns.insert(0, "rowid".to_owned());
            return Ok(Self { name, columns, key: vec![0], number: Some("rowid".to_owned()), is_never_reused });
        }
        let mut key: Vec<usize> = (0..found.len()).filter(|at| found[*at].1 > 0).collect();
        key.sort_by_key(|at| found[*at].1);
        let number = match key[..] {
            [only] if found[only].2 => Some(columns[only].clone()),
            _ => None,
        };
        Ok(Self { name, columns, key, number, is_never_reused })
    }

    fn has_rows(&self, c: &Connection) -> StoreResult<bool> {
        let sql = format!("SELECT 1 FROM \"{}\" LIMIT 1", self.name);
        Ok(c.query_row(&sql, [], |_| Ok(())).optional()?.is_some())
    }

    /// Reads all rows in the order of their keys, in pages; returns their number and digest.
    fn scan(
        &self,
        of: &LockedDatabase,
        mut each: impl FnMut(&[Vec<Value>]) -> StoreResult<()>,
    ) -> StoreResult<CopiedTable> {
        let mut digest = Sha256::new();
        let mut count = 0;
        let mut after: Option<Vec<Value>> = None;
        loop {
            let rows = self.page(&of.connection, after).map_err(|error| with_path(error, &of.shown))?;
            rows.iter().flatten().for_each(|value| add_to(&mut digest, value));
            count += rows.len() as u64;
            if !rows.is_empty() {
                each(&rows)?;
            }
            match rows.last() {
                Some(last) if rows.len() == PAGE => {
                    after = Some(self.key.iter().map(|at| last[*at].clone()).collect());
                }
                _ => break,
            }
        }
        Ok(CopiedTable { name: self.name.clone(), rows: count, sha256: HEXLOWER.encode(&digest.finalize()) })
    }

    /// Returns the next rows after a key.
    fn page(&self, c: &Connection, after: Option<Vec<Value>>) -> StoreResult<Vec<Vec<Value>>> {
        let columns = quoted(self.columns.iter());
        let key = quoted(self.key.iter().map(|at| &self.columns[*at]));
        let from = match &after {
            Some(_) => format!(" WHERE ({key}) > ({})", parameters(1, self.key.len())),
            None => String::new(),
        };
        let sql = format!("SELECT {columns} FROM \"{}\"{from} ORDER BY {key} LIMIT {PAGE}", self.name);
        let mut statement = c.prepare_cached(&sql)?;
        let rows = statement.query_map(params_from_iter(after.unwrap_or_default()), |row| {
            (0..self.columns.len()).map(|at| row.get(at)).collect::<Result<Vec<Value>, _>>()
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn insert(&self, c: &Connection, rows: &[Vec<Value>]) -> StoreResult<()> {
        let width = self.columns.len();
        let places: Vec<String> =
            (0..rows.len()).map(|row| format!("({})", parameters(row * width + 1, width))).collect();
        let columns = quoted(self.columns.iter());
        let sql = format!("INSERT INTO \"{}\" ({columns}) VALUES {}", self.name, places.join(", "));
        c.prepare_cached(&sql)?.execute(params_from_iter(rows.iter().flatten()))?;
        Ok(())
    }

    /// Lets the target assign numbers after the source's last number.
    fn continue_ids(&self, source: &LockedDatabase, target: &LockedDatabase) -> StoreResult<()> {
        let Some(column) = &self.number else { return Ok(()) };
        let last_of = |of: &LockedDatabase, sql: &str| -> StoreResult<Option<i64>> {
            Ok(of.connection.query_row(sql, [], |row| row.get(0)).optional()?.flatten())
        };
        let largest = last_of(target, &format!("SELECT max(\"{column}\") FROM \"{}\"", self.name));
        let mut last = largest.map_err(|error| with_path(error, &target.shown))?;
        if self.is_never_reused {
            let noted = last_of(source, &format!("SELECT {}", source.connection.last_id(&self.name)));
            last = last.max(noted.map_err(|error| with_path(error, &source.shown))?);
        }
        let Some(last) = last else { return Ok(()) };
        let continued = target.connection.engine().continue_ids(&self.name, column, last, self.is_never_reused);
        continued.map_err(|error| with_path(error, &target.shown))
    }
}

/// Returns names in quotation marks, separated by commas.
fn quoted<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// Returns `count` parameters from the number `first`, separated by commas.
fn parameters(first: usize, count: usize) -> String {
    (first..first + count).map(|number| format!("?{number}")).collect::<Vec<_>>().join(", ")
}

/// Adds a value to a digest.
fn add_to(digest: &mut Sha256, value: &Value) {
    let mut add = |kind: u8, bytes: &[u8]| {
        digest.update([kind]);
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    match value {
        Value::Null => add(0, &[]),
        Value::Integer(n) => add(1, &n.to_le_bytes()),
        // SQLite stores no negative zero.
        Value::Real(n) => add(2, &(n + 0.0).to_le_bytes()),
        // PostgreSQL stores no NUL in a text.
        Value::Text(text) => add(3, text.replace('\0', "\u{FFFD}").as_bytes()),
        Value::Blob(bytes) => add(4, bytes),
    }
}
