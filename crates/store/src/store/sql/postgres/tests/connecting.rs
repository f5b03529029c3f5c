//! Tests on real servers: TLS, passwords, several hosts, and the reason of each refusal.

use std::path::Path;
use std::process::{Command, Stdio};

use secrecy::SecretString;

use crate::domain::model::database::PostgresAddress;
use crate::store::test_server::{self, PostgresServer};
use crate::store::{PgSettings, Store, StoreError, StoreResult};

/// Writes a certificate of `127.0.0.1` and its key, and requires passwords over TCP.
fn with_certificate(data: &Path) {
    let mut openssl = test_server::command("openssl".into());
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=database", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(data.join("server.key")).arg("-out").arg(data.join("server.crt"));
    assert!(openssl.status().expect("started").success(), "openssl failed");
    let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(data.join("pg_hba.conf"), rules).expect("written");
}

fn has_openssl() -> bool {
    #[expect(clippy::disallowed_methods, reason = "a program of the tests, not of the service")]
    let found = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !found {
        skipped_tests::skip("OpenSSL is missing; install the package `openssl`");
    }
    found
}

fn opened(address: &str, password: Option<&str>) -> StoreResult<Store> {
    let address = PostgresAddress::parse(address).expect("an address");
    let passwords = vec![password.map(SecretString::from); address.hosts.len()];
    Store::open(PgSettings::new(&address, &passwords)?)
}

fn refusal(opened: StoreResult<Store>) -> String {
    let error = opened.map(drop).expect_err("refused");
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn tls_with_a_known_certificate_and_the_right_password_connects() {
    if !has_openssl() {
        return;
    }
    let port = test_support::free_port();
    let settings = ["listen_addresses=127.0.0.1", &format!("port={port}"), "ssl=on"];
    let Some(server) = PostgresServer::start_with(&settings, with_certificate) else { return };
    server.run("CREATE ROLE bot LOGIN PASSWORD 'correct'; CREATE SCHEMA bot AUTHORIZATION bot");
    let certificate = server.folder().join("data/server.crt");
    let certificate = certificate.display();
    let address = format!("postgres://bot@127.0.0.1:{port}/postgres?sslmode=require&sslrootcert={certificate}");
    let store = opened(&address, Some("correct")).expect("opened");
    server.run("DO $$ BEGIN ASSERT (SELECT bool_or(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'bot'); END $$");
    drop(store);
    let wrong = refusal(opened(&address, Some("wrong")));
    assert!(wrong.contains("rejects the login"), "{wrong}");
    let missing = refusal(opened(&address, None));
    assert!(missing.contains("without a password"), "{missing}");
    let foreign =
        refusal(opened(&format!("postgres://bot@127.0.0.1:{port}/postgres?sslmode=verify-full"), Some("correct")));
    assert!(foreign.contains("certificate"), "{foreign}");
    let name = format!("postgres://bot@localhost:{port}/postgres?sslmode=require&sslrootcert={certificate}");
    let other_name = refusal(opened(&name, Some("correct")));
    assert!(other_name.contains("certificate"), "{other_name}");
    opened(&format!("postgres://bot@127.0.0.1:{port}/postgres?sslmode=disable"), Some("correct")).expect("without TLS");
    let unreadable = opened(&format!("{address}.missing"), Some("correct"));
    assert!(refusal(unreadable).contains("cannot read the certificates"), "a missing file");
}

#[test]
fn server_without_tls_is_refused_if_tls_is_required() {
    let port = test_support::free_port();
    let settings = ["listen_addresses=127.0.0.1", &format!("port={port}")];
    let Some(_server) = PostgresServer::start_with(&settings, |_| {}) else { return };
    let refused = refusal(opened(&format!("postgres://ralph@127.0.0.1:{port}/postgres?sslmode=require"), Some("any")));
    assert!(refused.contains("does not support TLS"), "{refused}");
}

#[test]
fn hosts_that_are_down_or_read_only_are_passed_over() {
    let Some(writable) = PostgresServer::start() else { return };
    let Some(standby) = PostgresServer::start_with(&["default_transaction_read_only=on"], |_| {}) else { return };
    let host = |server: &PostgresServer| server.folder().display().to_string().replace('/', "%2F");
    let (down, good, standby) = ("%2Fmissing", host(&writable), host(&standby));
    let store = opened(&format!("postgres://ralph@{down},{standby},{good}/postgres"), None).expect("opened");
    drop(store);
    writable.run("SELECT 1 FROM schema_version");
    let refused = refusal(opened(&format!("postgres://ralph@{down},{standby}/postgres"), None));
    assert!(refused.contains("%2Fmissing".replace("%2F", "/").as_str()) && refused.contains(", and "), "{refused}");
    assert!(refused.contains("does not allow writes"), "{refused}");
}

#[test]
fn missing_right_schema_and_database_are_reported() {
    let Some(server) = PostgresServer::start() else { return };
    server.run("CREATE ROLE guest LOGIN; CREATE SCHEMA closed");
    let host = server.folder().display().to_string().replace('/', "%2F");
    let at = |rest: &str| format!("postgres://guest@{host}/{rest}");
    let closed = at("postgres?options=-c%20search_path%3Dclosed");
    // Without the right to use a schema, it is not the current one.
    server.run("GRANT USAGE ON SCHEMA closed TO guest");
    let no_right = refusal(opened(&closed, None));
    assert!(no_right.contains("GRANT CREATE ON SCHEMA closed TO guest"), "{no_right}");
    let attached = Store::attach(test_server::settings(&closed)).map(drop).expect_err("refused").to_string();
    assert!(attached.contains("GRANT CREATE ON SCHEMA closed TO guest"), "{attached}");
    let no_schema = refusal(opened(&at("postgres?options=-c%20search_path%3Dnone"), None));
    assert!(no_schema.contains("CREATE SCHEMA guest"), "{no_schema}");
    let no_database = refusal(opened(&at("absent"), None));
    assert!(no_database.contains("database \"absent\" does not exist"), "{no_database}");
}
