//! PostgreSQL: connects, and its part of the differences between the engines.
//!
//! One write transaction runs at a time in a database: each starts with an advisory lock. Therefore statements that first
//! read and then write are as safe as on SQLite, transactions neither deadlock nor fail to serialize, and ids grow in the
//! order of commits, so that a reader of the feed never misses a late commit with a smaller id. Writes that wait in one process
//! share a commit. The server ends an idle transaction after some seconds, so that a hanging host does not block the others.

mod connection;
mod failures;
mod schema;
mod settings;
mod statement;
#[cfg(test)]
mod tests;
mod values;
mod words;

use std::time::Duration;

use ::postgres::SimpleQueryMessage;

use super::engine::DatabaseEngine;
use crate::store::{Mode, StoreError, StoreResult};
pub(super) use connection::{PgConnection, PgStatement};
pub(in crate::store) use schema::ROWID_TABLES;
pub use settings::PgSettings;
pub(super) use values::{PgRow, value};

/// Shortest time limit of a statement. The server sends the rows of a query together, so a statement that reaches its limit
/// returns none.
const LEAST_LIMIT: Duration = Duration::from_millis(500);

/// Connects for writing, creates the tables in [`Mode::Own`] and brings them up to date.
pub(in crate::store) fn open(settings: &PgSettings, mode: Mode, patience: Duration) -> StoreResult<PgConnection> {
    let connection = PgConnection::unconnected(settings.clone());
    let (mut client, schema) = settings.connect()?;
    match mode {
        Mode::Beside => schema::check(&mut client, schema)?,
        Mode::Own | Mode::Memory => schema::update(&mut client, schema, patience)?,
    }
    connection.take(client, schema);
    Ok(connection)
}

/// Connects to a database that no other process uses while the connection exists. Creates its tables if `creates` is set and it
/// has none.
pub(in crate::store) fn open_alone(
    settings: &PgSettings,
    creates: bool,
    patience: Duration,
) -> StoreResult<PgConnection> {
    let connection = PgConnection::unconnected(settings.clone());
    let (mut client, schema) = settings.connect()?;
    schema::claim(&mut client, schema, creates, patience)?;
    // The connection waits for the other database, in a transaction.
    let unlimited = client.batch_execute("SET idle_in_transaction_session_timeout = 0");
    unlimited.map_err(|error| failures::classified(&error))?;
    connection.take(client, schema);
    Ok(connection)
}

/// Opens a connection for reads.
pub(in crate::store) fn reader(settings: &PgSettings) -> StoreResult<PgConnection> {
    let connection = PgConnection::unconnected(settings.clone());
    connection.connect()?;
    Ok(connection)
}

impl DatabaseEngine for PgConnection {
    fn begin_read(&self) -> StoreResult<()> {
        self.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").map(drop)
    }

    fn begin_write(&self) -> StoreResult<()> {
        let found = self.begin("BEGIN; SELECT pg_advisory_xact_lock({write}); SELECT pg_current_xact_id()::text")?;
        let rows = found.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        self.set_transaction(rows.last().and_then(|id| id.parse().ok()));
        Ok(())
    }

    fn commit(&self) -> StoreResult<()> {
        let transaction = self.set_transaction(None);
        match self.batch("COMMIT") {
            // The connection was lost, and the server may have committed.
            Err(StoreError::Busy) => match transaction.map(|id| self.was_committed(id)) {
                Some(Ok(true)) => Ok(()),
                _ => Err(StoreError::Busy),
            },
            other => other,
        }
    }

    fn roll_back(&self) -> StoreResult<()> {
        self.set_transaction(None);
        match self.batch("ROLLBACK") {
            // A lost connection has rolled back.
            Err(StoreError::Busy) => Ok(()),
            other => other,
        }
    }

    fn is_in_transaction(&self) -> bool {
        self.is_connected()
    }

    fn begin_limit(&self, limit: Duration) -> StoreResult<()> {
        let limit = limit.max(LEAST_LIMIT).as_millis();
        self.batch(&format!("SAVEPOINT limited; SET LOCAL statement_timeout = {limit}"))
    }

    fn end_limit(&self, failed: bool) -> StoreResult<()> {
        let undo = if failed { "ROLLBACK TO limited; " } else { "" };
        self.batch(&format!("{undo}RELEASE limited; SET LOCAL statement_timeout = 0"))
    }

    fn matches(&self, words: &str, parameter: usize) -> String {
        format!("{} @@ ?{parameter}", words::vector_of(words))
    }

    fn rank(&self, words: &str, weights: &[f64], parameter: usize) -> String {
        let weights = words::weights_of(words, weights);
        // The loop is the same for all matches. As a part of the expression, it would change their rank by its distance.
        let words_only = format!("regexp_replace(CAST(?{parameter} AS TEXT), '^''[0-9a-z]+'':D & ', '')");
        // Longer texts rank lower, by the logarithm of their length.
        format!("-ts_rank('{weights}', {}, CAST({words_only} AS TSQUERY), 1)", words::vector_of(words))
    }

    fn last_id(&self, table: &str) -> String {
        format!("(SELECT last FROM last_ids WHERE name = '{table}')")
    }

    fn continue_ids(&self, table: &str, column: &str, last: i64, is_never_reused: bool) -> StoreResult<()> {
        if is_never_reused {
            self.batch(&format!(
                "INSERT INTO last_ids (name, last) VALUES ('{table}', {last})
                 ON CONFLICT (name) DO UPDATE SET last = greatest(last_ids.last, excluded.last)"
            ))?;
        }
        let next = last.max(1);
        self.batch(&format!("SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {next})"))
    }

    fn server_time(&self) -> StoreResult<Option<i64>> {
        // The time of the statement, because a transaction may have waited for the write lock.
        self.number("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)::text").map(Some)
    }

    fn sizes(&self) -> StoreResult<(u64, u64)> {
        let size = self.number("SELECT pg_database_size(current_database())::text")?;
        Ok((u64::try_from(size).unwrap_or_default(), 0))
    }

    fn problems(&self) -> StoreResult<Vec<String>> {
        // The server's administrator checks its files.
        Ok(Vec::new())
    }

    fn settle(&self) {}
}
