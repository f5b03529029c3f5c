//! Address of a database, and how to connect to it.

use std::path::PathBuf;
use std::time::Duration;

use postgres::{Client, Config, NoTls};

use super::failures::reason;
use super::schema::SchemaKey;
use crate::store::{StoreResult, failure};

/// Time after which the server ends an idle transaction.
const IDLE: Duration = Duration::from_secs(10);
/// Maximum time for connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time that a write waits for writes of other processes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// Address of a database, and how to connect to it.
#[derive(Debug, Clone)]
pub struct PgSettings {
    config: Config,
}

impl PgSettings {
    /// Parses an address, such as `postgres://ralph@db.example.org/ralph`.
    ///
    /// # Errors
    /// `Failed` without the password.
    pub fn parse(url: &str) -> StoreResult<Self> {
        let mut config: Config = url.parse().map_err(|error| failure(reason(&error)))?;
        config
            .application_name("ralph-bot")
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(IDLE)
            .keepalives_idle(IDLE);
        Ok(Self { config })
    }

    /// Connects; also returns the numbers of the schema's locks.
    pub(super) fn connect(&self) -> Result<(Client, SchemaKey), postgres::Error> {
        let mut client = self.config.connect(NoTls)?;
        let set = format!(
            "SET idle_in_transaction_session_timeout = {}; SET lock_timeout = {}; SET client_min_messages = warning;
             SET timezone = 'UTC'; SET jit = off",
            IDLE.as_millis(),
            LOCK_TIMEOUT.as_millis()
        );
        client.batch_execute(&set)?;
        let sql = "SELECT coalesce((SELECT oid::int8 FROM pg_namespace WHERE nspname = current_schema()), 0)";
        let oid: i64 = client.query_one(sql, &[])?.get(0);
        Ok((client, SchemaKey(oid as i32)))
    }

    /// Returns the address without password for messages.
    pub fn shown(&self) -> PathBuf {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            postgres::config::Host::Tcp(name) => name.clone(),
            postgres::config::Host::Unix(folder) => folder.display().to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        format!("postgres://{hosts}/{}", self.config.get_dbname().unwrap_or_default()).into()
    }
}
