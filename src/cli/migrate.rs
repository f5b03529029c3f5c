//! `ralph-bot migrate`: moves the data to another database while the service is stopped.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ralph_types::failure::Failure;

use crate::app;
use crate::cli::{CliError, CliResult, Global, attach, block_on, load, print, table};
use crate::config::{Config, ConfigScope, Env, operator_file};
use crate::store::{CopiedTable, DatabaseAddress, copy_database};

/// Arguments of `migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// Empty database of PostgreSQL (postgres://user@host/name), new SQLite file, or data folder for the file
    #[arg(long, value_name = "ADDRESS")]
    pub to: String,
    /// Environment variable with the password of the new database, if it is not in the password file of libpq
    #[arg(long, value_name = "NAME", conflicts_with = "password_file")]
    pub password_env: Option<String>,
    /// File with the password of the new database
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

/// Copies the configured database to another one and prints the number of rows of each table.
///
/// # Errors
/// Fails on an invalid configuration or address, while the service runs, or if the target is not empty.
pub fn run(args: &MigrateArgs, global: &Global, env: &Env) -> CliResult {
    let config = load(ConfigScope::Store, global, env)?;
    let from = address(&config)?;
    let to = target(args, global, env)?;
    // Checks the source's installation before anything is created.
    block_on(async {
        attach(&config).await?.close().await;
        Ok(ExitCode::SUCCESS)
    })?;
    let copied = copy_database(&from, &to).map_err(|error| CliError::failed(Failure::of(error)))?;
    let file = operator_file(global.config.as_deref(), env);
    print(&if global.json { json(&copied, &from, &to) } else { text(&copied, &from, &to, &file) })
}

fn address(config: &Config) -> Result<DatabaseAddress, CliError> {
    app::database::address(config).map_err(|error| CliError::failed(Failure::of(error)))
}

/// Returns the address of the target. A server has the same keys and checks as `database` in the operator's file.
fn target(args: &MigrateArgs, global: &Global, env: &Env) -> Result<DatabaseAddress, CliError> {
    if !args.to.contains("://") {
        if args.password_env.is_some() || args.password_file.is_some() {
            return Err(CliError::usage("a file has no password; remove `--password-env` or `--password-file`"));
        }
        let path = PathBuf::from(&args.to);
        return Ok((&if path.is_dir() { path.join(app::database::FILE) } else { path }).into());
    }
    let mut env = env.clone().with("RALPH_DATABASE", &args.to);
    if let Some(name) = &args.password_env {
        env = env.with("RALPH_DATABASE_PASSWORD_ENV", name);
    }
    if let Some(path) = &args.password_file {
        let path = std::path::absolute(path);
        let path = path.map_err(|error| CliError::usage(Failure::new("`--password-file`").caused_by(error)))?;
        env = env.with("RALPH_DATABASE_PASSWORD_FILE", &path.display().to_string());
    }
    address(&load(ConfigScope::Store, global, &env)?)
}

fn json(copied: &[CopiedTable], from: &DatabaseAddress, to: &DatabaseAddress) -> String {
    let shown = |address: &DatabaseAddress| address.shown().display().to_string();
    format!("{}\n", serde_json::json!({ "from": shown(from), "to": shown(to), "tables": copied }))
}

fn text(copied: &[CopiedTable], from: &DatabaseAddress, to: &DatabaseAddress, file: &Path) -> String {
    let filled = copied.iter().filter(|table| table.rows > 0);
    let rows: Vec<[String; 2]> = filled.map(|table| [table.name.clone(), table.rows.to_string()]).collect();
    let total: u64 = copied.iter().map(|table| table.rows).sum();
    let next = match to {
        DatabaseAddress::File(_) => "remove `database` and its password from",
        DatabaseAddress::Postgres(_) => "set `database` to the new address in",
    };
    format!(
        "{}copied {total} rows from {} to {}; all tables have the same digests\nnext: {next} {}, then start the service\n",
        table(&rows),
        from.shown().display(),
        to.shown().display(),
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Color;

    #[test]
    fn target_is_a_server_a_file_or_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ralph-control.yaml");
        let text = "forges: [{ name: w, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, updates: poll }]\n\
                    backends: { mine: { type: script, command: [sh] } }\n";
        std::fs::write(&file, text).expect("written");
        let global = Global { config: Some(file), json: false, color: Color::Never };
        let env = Env::of([("P", "hunter2")]);
        let shown = |to: &str, password: Option<&str>| {
            let args = MigrateArgs { to: to.into(), password_env: password.map(Into::into), password_file: None };
            target(&args, &global, &env).map(|address| address.shown().display().to_string())
        };
        let refused = |to: &str, password| shown(to, password).expect_err("refused").to_string();
        let data = folder.path().display().to_string();
        assert_eq!(shown(&data, None).expect("a folder"), format!("{data}/ralph.db"));
        assert_eq!(shown(&format!("{data}/x.db"), None).expect("a file"), format!("{data}/x.db"));
        let server = shown("postgres://ralph@db.example.org/ralph?sslmode=disable", Some("P"));
        assert_eq!(server.expect("a server"), "postgres://ralph@db.example.org/ralph");
        assert!(refused("x.db", Some("P")).contains("a file has no password"));
        let other = refused("mysql://ralph@db/ralph", None);
        assert!(other.contains("expected an address such as postgres://"), "{other}");
        let password = refused("postgres://ralph:hunter2@db/ralph", None);
        assert!(password.contains("must not contain a password") && !password.contains("hunter2"), "{password}");
        let unset = refused("postgres://ralph@db/ralph", Some("UNSET"));
        assert!(unset.contains("UNSET"), "{unset}");
    }

    #[test]
    fn result_names_tables_and_the_next_step() {
        let copied = [("heard", 12), ("loops", 3), ("tokens", 0)].map(|(name, rows)| CopiedTable {
            name: name.into(),
            rows,
            sha256: "00".into(),
        });
        let from = DatabaseAddress::from("/data/ralph.db");
        insta::assert_snapshot!(text(&copied, &from, &from, Path::new("ralph-control.yaml")), @r"
        heard  12
        loops  3
        copied 15 rows from /data/ralph.db to /data/ralph.db; all tables have the same digests
        next: remove `database` and its password from ralph-control.yaml, then start the service
        ");
        assert!(json(&copied, &from, &from).contains(r#"{"name":"heard","rows":12,"sha256":"00"}"#));
    }
}
