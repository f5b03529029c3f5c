//! A connection that is made again after it was lost.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use postgres::{Client, Row, SimpleQueryMessage, Statement};

use super::failures::{classified, is_lost};
use super::schema::{self, SchemaKey};
use super::settings::PgSettings;
use super::statement;
use super::values::{Encoded, encode};
use crate::store::sql::{SqlError, SqlResult, Value};
use crate::store::{StoreError, StoreResult};

/// Class of the advisory lock of write transactions. The second number of a lock is the schema's, so that several schemas
/// of one database are independent.
const WRITE_LOCK: i32 = 0x7261_6c01;
/// Number of prepared statements cached per connection.
const STATEMENTS: usize = 512;

/// Statement that the server has prepared.
pub struct PgStatement {
    sql: String,
    prepared: Statement,
}

/// Connection to a server. It is made again for the next transaction after it was lost.
pub struct PgConnection {
    settings: PgSettings,
    client: RefCell<Option<Client>>,
    statements: RefCell<HashMap<String, Arc<PgStatement>>>,
    schema: Cell<SchemaKey>,
    transaction: Cell<Option<i64>>,
}

impl PgConnection {
    pub(super) fn unconnected(settings: PgSettings) -> Self {
        Self {
            settings,
            client: RefCell::new(None),
            statements: RefCell::default(),
            schema: Cell::new(SchemaKey(0)),
            transaction: Cell::new(None),
        }
    }

    /// Uses a new connection, which holds the lock on the schema's version.
    pub(super) fn take(&self, client: Client, schema: SchemaKey) {
        self.schema.set(schema);
        self.forget();
        self.client.replace(Some(client));
    }

    /// Connects to a database with this version's schema.
    pub(super) fn connect(&self) -> StoreResult<()> {
        let (mut client, schema) = self.settings.connect().map_err(|error| {
            tracing::warn!(%error, database = self.settings.shown(), "cannot connect to the database");
            StoreError::Busy
        })?;
        schema::check(&mut client, schema)?;
        self.take(client, schema);
        Ok(())
    }

    /// Starts a transaction; connects first if the connection was lost. `{write}` in `sql` becomes the numbers of the write lock.
    pub(super) fn begin(&self, sql: &str) -> StoreResult<Vec<SimpleQueryMessage>> {
        let begin = || {
            let sql = sql.replace("{write}", &format!("{WRITE_LOCK}, {}", self.schema.get().0));
            self.on(|client| client.simple_query(&sql))
        };
        if self.is_connected() {
            match begin() {
                Ok(found) => return Ok(found),
                Err(error) if self.is_connected() => {
                    self.batch("ROLLBACK")?;
                    return Err(error.into());
                }
                Err(_) => {}
            }
        }
        self.connect()?;
        Ok(begin()?)
    }

    /// Runs statements without parameters.
    pub(in crate::store) fn batch(&self, sql: &str) -> StoreResult<()> {
        Ok(self.on(|client| client.batch_execute(sql))?)
    }

    /// Returns the number that a query returns as a text.
    pub(super) fn number(&self, sql: &str) -> StoreResult<i64> {
        let text: String = self.on(|client| client.query_one(sql, &[]))?.get(0);
        text.parse().map_err(|_| StoreError::Bug { detail: format!("{text} is not a number").into() })
    }

    /// Whether a transaction of a lost connection was committed.
    pub(super) fn was_committed(&self, transaction: i64) -> StoreResult<bool> {
        self.connect()?;
        let sql = format!("SELECT coalesce(pg_xact_status('{transaction}'::xid8), '')");
        let status: String = self.on(|client| client.query_one(&sql, &[]))?.get(0);
        Ok(status == "committed")
    }

    /// Sets the id of the open write transaction, and returns the previous one.
    pub(super) fn set_transaction(&self, id: Option<i64>) -> Option<i64> {
        self.transaction.replace(id)
    }

    /// Whether the connection exists and no statement found it lost.
    pub(super) fn is_connected(&self) -> bool {
        self.client.borrow().is_some()
    }

    /// Prepares a statement, or takes it from the cache.
    pub(in crate::store) fn prepare(&self, sql: &str) -> SqlResult<Arc<PgStatement>> {
        if let Some(known) = self.statements.borrow().get(sql) {
            return Ok(known.clone());
        }
        let prepared = self.on(|client| client.prepare(&statement::translated(sql)))?;
        let new = Arc::new(PgStatement { sql: sql.to_owned(), prepared });
        let mut statements = self.statements.borrow_mut();
        if statements.len() >= STATEMENTS {
            statements.clear();
        }
        statements.insert(sql.to_owned(), new.clone());
        Ok(new)
    }

    /// Runs a statement; returns the number of changed rows.
    pub(in crate::store) fn execute(&self, statement: &PgStatement, values: &[Value]) -> SqlResult<usize> {
        let encoded = encoded(statement, values)?;
        let count = self.on(|client| client.execute(&statement.prepared, &as_parameters(&encoded)))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Runs a query.
    pub(in crate::store) fn query(&self, statement: &PgStatement, values: &[Value]) -> SqlResult<Vec<Row>> {
        let encoded = encoded(statement, values)?;
        self.on(|client| client.query(&statement.prepared, &as_parameters(&encoded)))
    }

    /// Runs an `INSERT` without `RETURNING`; returns the id of the new row.
    pub(in crate::store) fn insert(&self, statement: &PgStatement, values: &[Value]) -> SqlResult<Option<i64>> {
        let returning = self.prepare(&format!("{} RETURNING id", statement.sql))?;
        Ok(self.query(&returning, values)?.first().map(|row| row.get(0)))
    }

    fn on<T>(&self, work: impl FnOnce(&mut Client) -> Result<T, postgres::Error>) -> SqlResult<T> {
        let mut client = self.client.borrow_mut();
        let result = match client.as_mut() {
            Some(client) => work(client),
            None => return Err(SqlError::Store(StoreError::Busy)),
        };
        result.map_err(|error| {
            if is_lost(&error) {
                drop_apart(client.take());
                self.forget();
            }
            SqlError::Store(classified(&error))
        })
    }

    /// Forgets the statements of a lost connection.
    fn forget(&self) {
        self.statements.borrow_mut().clear();
    }
}

impl Drop for PgConnection {
    fn drop(&mut self) {
        drop_apart(self.client.take());
    }
}

/// Closes a connection on its own thread, because closing blocks and the caller may be a task.
fn drop_apart(client: Option<Client>) {
    if let Some(client) = client {
        std::thread::spawn(move || drop(client));
    }
}

fn encoded(statement: &PgStatement, values: &[Value]) -> SqlResult<Vec<Encoded>> {
    let types = statement.prepared.params();
    if types.len() != values.len() {
        return Err(rusqlite::Error::InvalidParameterCount(values.len(), types.len()).into());
    }
    values.iter().zip(types).map(|(value, of)| encode(value, of)).collect()
}

fn as_parameters(encoded: &[Encoded]) -> Vec<&(dyn postgres::types::ToSql + Sync)> {
    encoded.iter().map(|value| value as &(dyn postgres::types::ToSql + Sync)).collect()
}
