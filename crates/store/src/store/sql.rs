//! Connection to the database in the form of rusqlite, so that each statement is written once for SQLite and PostgreSQL.
//!
//! Statements reach SQLite unchanged and without an additional allocation. Values have rusqlite's types on both engines.

pub(super) mod checkpointer;
mod engine;
mod error;
mod params;
pub(super) mod postgres;
mod rows;
pub(super) mod sqlite;

use std::sync::Arc;

pub use rusqlite::params;
pub use rusqlite::types::{FromSql, ToSql, ToSqlOutput, Value, ValueRef};

use engine::DatabaseEngine;
pub use error::{OptionalExtension, SqlError, SqlResult, SqliteError};
pub use params::{Binder, Params, params_from_iter};
use postgres::{PgConnection, PgStatement};
pub use rows::{MappedRows, Row, Rows};

/// Connection to the database.
pub struct Connection(pub(super) Database);

/// DatabaseEngine of a connection.
pub(super) enum Database {
    Sqlite(rusqlite::Connection),
    Postgres(Box<PgConnection>),
}

impl Connection {
    /// Returns the connection of SQLite, for tests and figures about SQLite itself.
    pub fn as_sqlite(&self) -> Option<&rusqlite::Connection> {
        match &self.0 {
            Database::Sqlite(connection) => Some(connection),
            Database::Postgres(_) => None,
        }
    }

    pub(super) fn engine(&self) -> &dyn DatabaseEngine {
        match &self.0 {
            Database::Sqlite(connection) => connection,
            Database::Postgres(connection) => connection.as_ref(),
        }
    }

    /// Returns the condition that a row of the full-text index `words` matches the expression in the parameter `?parameter`.
    pub(super) fn matches(&self, words: &str, parameter: usize) -> String {
        self.engine().matches(words, parameter)
    }

    /// Returns the term that sorts the matches of [`matches`](Self::matches) best first, with a weight for each column.
    pub(super) fn rank(&self, words: &str, weights: &[f64], parameter: usize) -> String {
        self.engine().rank(words, weights, parameter)
    }

    /// Returns the query for the last id of a table whose ids are never used again.
    pub(super) fn last_id(&self, table: &str) -> String {
        self.engine().last_id(table)
    }

    /// Prepares a statement that runs once.
    pub fn prepare(&self, sql: &str) -> SqlResult<Statement<'_>> {
        match &self.0 {
            Database::Sqlite(connection) => Ok(Statement(StatementKind::Once(connection, connection.prepare(sql)?))),
            Database::Postgres(connection) => {
                Ok(Statement(StatementKind::Postgres(connection, connection.prepare(sql)?)))
            }
        }
    }

    /// Prepares a statement, or takes it from the connection's cache.
    pub fn prepare_cached(&self, sql: &str) -> SqlResult<Statement<'_>> {
        match &self.0 {
            Database::Sqlite(connection) => {
                Ok(Statement(StatementKind::Cached(connection, connection.prepare_cached(sql)?)))
            }
            Database::Postgres(connection) => {
                Ok(Statement(StatementKind::Postgres(connection, connection.prepare(sql)?)))
            }
        }
    }

    /// Runs a statement; returns the number of changed rows.
    pub fn execute<P: Params>(&self, sql: &str, params: P) -> SqlResult<usize> {
        self.prepare(sql)?.execute(params)
    }

    /// Runs a query and maps its first row.
    ///
    /// # Errors
    /// [`SqlError::NoRow`] if the query returns no row.
    pub fn query_row<T, P: Params>(
        &self,
        sql: &str,
        params: P,
        map: impl FnOnce(&Row<'_>) -> SqlResult<T>,
    ) -> SqlResult<T> {
        self.prepare(sql)?.query_row(params, map)
    }

    /// Runs several statements without parameters.
    pub fn execute_batch(&self, sql: &str) -> SqlResult<()> {
        match &self.0 {
            Database::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            Database::Postgres(connection) => connection.batch(sql).map_err(SqlError::Store),
        }
    }
}

/// StatementKind statement.
pub struct Statement<'c>(StatementKind<'c>);

enum StatementKind<'c> {
    Once(&'c rusqlite::Connection, rusqlite::Statement<'c>),
    Cached(&'c rusqlite::Connection, rusqlite::CachedStatement<'c>),
    Postgres(&'c PgConnection, Arc<PgStatement>),
}

/// Statement of SQLite or PostgreSQL with its connection.
enum StatementTarget<'s, 'c> {
    Sqlite(&'c rusqlite::Connection, &'s mut rusqlite::Statement<'c>),
    Postgres(&'c PgConnection, &'s PgStatement),
}

impl<'c> Statement<'c> {
    fn target(&mut self) -> StatementTarget<'_, 'c> {
        match &mut self.0 {
            StatementKind::Once(connection, statement) => StatementTarget::Sqlite(connection, statement),
            StatementKind::Cached(connection, statement) => StatementTarget::Sqlite(connection, statement),
            StatementKind::Postgres(connection, statement) => StatementTarget::Postgres(connection, statement),
        }
    }

    /// Runs the statement; returns the number of changed rows.
    pub fn execute<P: Params>(&mut self, params: P) -> SqlResult<usize> {
        match self.target() {
            StatementTarget::Sqlite(_, statement) => {
                params::bind(statement, params)?;
                Ok(statement.raw_execute()?)
            }
            StatementTarget::Postgres(connection, statement) => connection.execute(statement, &params::values(params)?),
        }
    }

    /// Runs an `INSERT` without `RETURNING` into a table whose key is `id`; returns the id of the new row, and `None` if the
    /// statement added no row.
    pub fn insert<P: Params>(&mut self, params: P) -> SqlResult<Option<i64>> {
        match self.target() {
            StatementTarget::Sqlite(connection, statement) => {
                params::bind(statement, params)?;
                let added = statement.raw_execute()? > 0;
                Ok(added.then(|| connection.last_insert_rowid()))
            }
            StatementTarget::Postgres(connection, statement) => connection.insert(statement, &params::values(params)?),
        }
    }

    /// Runs a query.
    pub fn query<P: Params>(&mut self, params: P) -> SqlResult<Rows<'_>> {
        match self.target() {
            StatementTarget::Sqlite(_, statement) => {
                params::bind(statement, params)?;
                Ok(Rows::of_sqlite(statement.raw_query()))
            }
            StatementTarget::Postgres(connection, statement) => {
                Ok(Rows::of_postgres(connection.query(statement, &params::values(params)?)?))
            }
        }
    }

    /// Runs a query and maps its rows.
    pub fn query_map<T, P: Params, F: FnMut(&Row<'_>) -> SqlResult<T>>(
        &mut self,
        params: P,
        map: F,
    ) -> SqlResult<MappedRows<'_, F>> {
        Ok(MappedRows::new(self.query(params)?, map))
    }

    /// Runs a query and maps its first row.
    ///
    /// # Errors
    /// [`SqlError::NoRow`] if the query returns no row.
    pub fn query_row<T, P: Params>(&mut self, params: P, map: impl FnOnce(&Row<'_>) -> SqlResult<T>) -> SqlResult<T> {
        let mut rows = self.query(params)?;
        let row = rows.next()?.ok_or(SqlError::NoRow)?;
        map(&row)
    }
}
