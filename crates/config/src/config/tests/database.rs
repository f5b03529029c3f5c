//! Tests of the database's keys.

use std::os::unix::fs::PermissionsExt as _;

use secrecy::ExposeSecret as _;

use super::{SMALL, env, problems};
use crate::config::{Config, ConfigScope, DatabaseConfig, Env};

/// Loads a file with these lines in a new folder.
fn loaded(lines: &str, scope: ConfigScope, more: &[(&str, &str)]) -> Option<DatabaseConfig> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ralph-control.yaml");
    std::fs::write(&file, format!("{SMALL}{lines}\n")).expect("written");
    std::fs::write(folder.path().join("password"), "from-file\n").expect("written");
    let variables = [("T", "t"), ("S", super::SECRET)].into_iter().chain(more.iter().copied());
    let config = Config::load_for(scope, &file, &Env::of(variables)).expect("valid");
    let mut database = config.database?;
    let relative = |path: std::path::PathBuf| path.strip_prefix(folder.path()).expect("below").to_path_buf();
    database.address.root_certificate = database.address.root_certificate.map(relative);
    Some(database)
}

fn passwords(database: &DatabaseConfig) -> Vec<Option<&str>> {
    database.passwords.iter().map(|password| password.as_ref().map(|password| password.expose_secret())).collect()
}

#[test]
fn passwords_come_from_a_variable_a_file_or_the_password_file() {
    let address = "database: postgres://ralph@db1,db2/bot?sslrootcert=ca.pem";
    let variable = format!("{address}\ndatabase_password_env: P");
    let file = format!("{address}\ndatabase_password_file: password");
    let folder = tempfile::tempdir().expect("a folder");
    let of_libpq = folder.path().join("pgpass");
    std::fs::write(&of_libpq, "db2:*:*:*:of-libpq\n").expect("written");
    std::fs::set_permissions(&of_libpq, std::fs::Permissions::from_mode(0o600)).expect("set");
    let of_libpq = of_libpq.display().to_string();
    for scope in [ConfigScope::Service, ConfigScope::Store] {
        let database = loaded(&variable, scope, &[("P", "from-variable")]).expect("a server");
        assert_eq!(passwords(&database), [Some("from-variable"); 2]);
        assert_eq!(database.address.root_certificate.as_deref(), Some("ca.pem".as_ref()));
        let database = loaded(&file, scope, &[]).expect("a server");
        assert_eq!(passwords(&database), [Some("from-file"); 2]);
        let database = loaded(address, scope, &[("PGPASSFILE", &of_libpq)]).expect("a server");
        assert_eq!(passwords(&database), [None, Some("of-libpq")]);
    }
    assert!(loaded("", ConfigScope::Service, &[]).is_none(), "SQLite is the default");
    assert!(loaded(address, ConfigScope::Local, &[]).is_none(), "local runs use SQLite");
}

#[test]
fn invalid_databases_are_refused_without_their_passwords() {
    let refused = |lines: &str| {
        let found = problems(&format!("{SMALL}{lines}\n"));
        assert!(!found.contains("hunter2"), "{found}");
        found
    };
    let password = refused("database: 'postgres://ralph:hunter2@db/bot'");
    assert!(password.contains("4:11: `database`: the address must not contain a password"), "{password}");
    let key = refused("database_password: hunter2");
    assert!(key.contains("`database_password_env`"), "{key}");
    let form = refused("database: data/ralph.db");
    assert!(form.contains("expected an address such as postgres://ralph@db.example.org/ralph"), "{form}");
    let parameter = refused("database: 'postgres://ralph@db/bot?sslmode=allow'");
    assert!(parameter.contains("`sslmode` must be `disable`, `require` or `verify-full`"), "{parameter}");
    let alone = refused("database_password_env: T");
    assert!(alone.contains("`database_password_env`: it needs `database`"), "{alone}");
    let both = refused("database: postgres://ralph@db/bot\ndatabase_password_env: T\ndatabase_password_file: f");
    assert!(both.contains("cannot be combined"), "{both}");
    let unset = refused("database: postgres://ralph@db/bot\ndatabase_password_env: UNSET");
    assert!(unset.contains("environment variable UNSET is not set"), "{unset}");
    assert!(env().get("UNSET").is_none());
}
