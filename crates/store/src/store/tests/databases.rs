//! Databases for tests: in memory, or on a server of PostgreSQL if [`ENGINE`] names one.

use std::path::Path;
use std::time::Duration;

use crate::store::sql::{Connection, Database, postgres as engine, sqlite};
use crate::store::{Mode, PgSettings, test_server};

/// Environment variable with the address of a server, on which each database of a test gets a new schema.
pub(in crate::store) const ENGINE: &str = "RALPH_TEST_STORE";

/// Returns a connection to an empty database with the newest schema.
pub(in crate::store) fn database() -> Connection {
    if let Some(settings) = postgres() {
        let opened = std::thread::spawn(move || {
            let connection = engine::open(&settings, Mode::Own, Duration::ZERO).expect("a database");
            // The store's functions run in a transaction.
            connection.batch("BEGIN").expect("begun");
            connection
        });
        return Connection(Database::Postgres(Box::new(opened.join().expect("no panic"))));
    }
    let opened = sqlite::open(Path::new(":memory:"), Mode::Memory, Duration::ZERO);
    Connection(Database::Sqlite(opened.expect("a database").0))
}

/// Returns a new schema on the server of this test run; `None` if the run uses SQLite.
pub(in crate::store) fn postgres() -> Option<PgSettings> {
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, no part of the service's configuration")]
    let server = std::env::var(ENGINE).ok()?;
    Some(test_server::new_schema(&server))
}
