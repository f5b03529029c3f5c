//! Servers of a database, and how to connect to them.

use std::time::Duration;

use postgres::config::{SslMode, TargetSessionAttrs};
use postgres::{Client, Config, NoTls};
use rustls::ClientConfig;
use secrecy::{ExposeSecret, SecretString};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failures::{not_connected, reason};
use super::schema::SchemaKey;
use crate::domain::model::database::{DatabaseHost, PostgresAddress};
use crate::net;
use crate::store::{StoreResult, unusable};

/// Time after which the server ends the transaction of a host that hangs. Meanwhile no other host can renew its leases, which
/// count as lost after a third of their duration.
const IDLE_TRANSACTION: Duration = Duration::from_secs(3);
/// Time without an answer after which a connection counts as lost.
const UNANSWERED: Duration = Duration::from_secs(10);
/// Default of the maximum time for connecting to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time that a write waits for writes of other processes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
/// Oldest version of the server.
const OLDEST_SERVER: i32 = 140_000;

/// Servers of a database, and how to connect to them.
#[derive(Debug, Clone)]
pub struct PgSettings {
    /// Servers in the order in which they are tried.
    servers: Vec<PgServer>,
    /// Address without a password.
    shown: String,
}

/// One server, which has its own password and TLS configuration.
#[derive(Debug, Clone)]
struct PgServer {
    host: DatabaseHost,
    config: Config,
    tls: Option<ClientConfig>,
}

impl PgSettings {
    /// Returns the settings of an address. `passwords` has one for each host, in order.
    ///
    /// # Errors
    /// `Unusable` if the certificates for TLS cannot be read.
    pub fn new(address: &PostgresAddress, passwords: &[Option<SecretString>]) -> StoreResult<Self> {
        let mut base = Config::new();
        base.application_name("ralph-bot")
            .user(&address.user)
            .dbname(&address.database)
            .connect_timeout(address.connect_timeout.unwrap_or(CONNECT_TIMEOUT))
            .tcp_user_timeout(UNANSWERED)
            .keepalives_idle(UNANSWERED)
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        if let Some(options) = &address.options {
            base.options(options);
        }
        let has_tls = |host: &DatabaseHost| !host.is_socket() && address.tls.unwrap_or(!host.is_local());
        let tls = if address.hosts.iter().any(has_tls) {
            Some(net::tls(address.root_certificate.as_deref()).map_err(unusable)?)
        } else {
            None
        };
        let servers = address.hosts.iter().enumerate().map(|(index, host)| {
            let mut config = base.clone();
            config.host(&host.name).port(host.port);
            if let Some(Some(password)) = passwords.get(index) {
                config.password(password.expose_secret());
            }
            let tls = tls.clone().filter(|_| has_tls(host));
            config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
            PgServer { host: host.clone(), config, tls }
        });
        Ok(Self { servers: servers.collect(), shown: address.to_string() })
    }

    /// Connects to the first server that accepts writes; also returns the numbers of the schema's locks.
    ///
    /// # Errors
    /// `Unusable` with the reason of each server.
    pub(super) fn connect(&self) -> StoreResult<(Client, SchemaKey)> {
        let mut reasons: Vec<String> = Vec::new();
        for server in &self.servers {
            match server.connect() {
                Ok(client) => return prepared(client),
                Err(error) => {
                    let has_password = server.config.get_password().is_some();
                    reasons.push(not_connected(&server.host, has_password, &error));
                }
            }
        }
        Err(unusable(reasons.join(", and ")))
    }

    /// Returns the address without a password for messages.
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

impl PgServer {
    fn connect(&self) -> Result<Client, postgres::Error> {
        match &self.tls {
            Some(tls) => self.config.connect(MakeRustlsConnect::new(tls.clone())),
            None => self.config.connect(NoTls),
        }
    }
}

/// Sets the limits of a session and checks the server's version.
fn prepared(mut client: Client) -> StoreResult<(Client, SchemaKey)> {
    let failed = |error: postgres::Error| unusable(reason(&error));
    let set = format!(
        "SET idle_in_transaction_session_timeout = {}; SET lock_timeout = {}; SET client_min_messages = warning;
         SET timezone = 'UTC'; SET jit = off",
        IDLE_TRANSACTION.as_millis(),
        LOCK_TIMEOUT.as_millis()
    );
    client.batch_execute(&set).map_err(failed)?;
    let sql = "SELECT coalesce((SELECT oid::int8 FROM pg_namespace WHERE nspname = current_schema()), 0),
        current_setting('server_version_num')::int4";
    let row = client.query_one(sql, &[]).map_err(failed)?;
    let (schema, version): (i64, i32) = (row.get(0), row.get(1));
    if version < OLDEST_SERVER {
        let detail = format!("the server has version {}, and ralph-bot needs 14 or newer", version / 10_000);
        return Err(unusable(detail));
    }
    Ok((client, SchemaKey(schema as i32)))
}
