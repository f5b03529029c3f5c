//! `ralph-bot backup`: copies the database consistently while the service runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ralph_types::failure::Failure;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::{block_on, load, print};
use crate::app;
use crate::clock::Clock;
use crate::config::{ConfigScope, Env};
use crate::store::{self, DatabaseAddress, Store, installation};

/// Arguments of `backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    /// File to create; it must not exist
    pub file: PathBuf,
}

/// Writes the copy and prints its size.
///
/// # Errors
/// Fails on an invalid configuration, a missing database, an existing file, or a write error.
pub fn run(args: &BackupArgs, global: &Global, env: &Env) -> CliResult {
    failpoint::arm(|variable| env.get(variable)).map_err(|error| CliError::usage(Failure::of(error)))?;
    let config = load(ConfigScope::Store, global, env)?;
    let address = app::database::address(&config).map_err(|error| CliError::failed(Failure::of(error)))?;
    let DatabaseAddress::File(from) = address else {
        return Err(CliError::failed(format!(
            "{} is on a server of PostgreSQL; use `pg_dump` or the server's own backup",
            address.shown().display()
        )));
    };
    let bytes = copy(&from, &args.file)?;
    note(&from);
    if global.json {
        return print(&format!("{}\n", serde_json::json!({ "file": args.file.display().to_string(), "bytes": bytes })));
    }
    let mib = bytes as f64 / f64::from(1 << 20);
    print(&format!("wrote {} ({mib:.1} MiB), a copy of {}\n", args.file.display(), from.display()))
}

/// Records the time of a backup in the copied database, for the metric and alerts. Failures are ignored.
fn note(database: &Path) {
    let now = Clock::System.now().0.to_string();
    let noted = block_on(async {
        let store = Store::attach(database).map_err(|error| CliError::failed(Failure::of(error)))?;
        let noted = store.write(move |c| installation::set(c, installation::BACKUP, &now)).await;
        store.close().await;
        noted.map(|()| ExitCode::SUCCESS).map_err(|error| CliError::failed(Failure::of(error)))
    });
    if let Err(error) = noted {
        tracing::warn!(%error, "could not record the backup time");
    }
}

fn copy(from: &Path, to: &Path) -> Result<u64, CliError> {
    if !from.is_file() {
        return Err(CliError::failed(format!("there is no database {}; `ralph-bot serve` creates it", from.display())));
    }
    if std::fs::symlink_metadata(to).is_ok() {
        return Err(CliError::usage(format!("{} exists; choose another file", to.display())));
    }
    let failed = || Failure::new(format!("could not write {}", to.display()));
    store::backup_file(from, to).map_err(|error| CliError::failed(failed().caused_by(error)))?;
    Ok(std::fs::metadata(to).map_err(|error| CliError::failed(failed().caused_by(error)))?.len())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn backup_of_a_database_in_use_opens() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("ralph.db"), folder.path().join("copy.db"));
        let store = Store::open(&from).expect("opened");
        store.write(|c| installation::set(c, "note", "kept")).await.expect("written");
        let bytes = copy(&from, &to).expect("copied");
        assert_eq!(bytes, std::fs::metadata(&to).expect("a file").len());
        assert_eq!(std::fs::metadata(&to).expect("a file").permissions().mode() & 0o777, 0o600);
        store.write(|c| installation::set(c, "note", "changed later")).await.expect("written");

        let restored = Store::open(&to).expect("opened");
        assert_eq!(restored.read(|c| installation::get(c, "note")).await.expect("read").as_deref(), Some("kept"));
        assert_eq!(restored.integrity().await.expect("looked over"), Vec::<String>::new());
    }

    #[test]
    fn backup_needs_a_database_and_does_not_overwrite_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("ralph.db"), folder.path().join("copy.db"));
        let error = copy(&from, &to).expect_err("no database");
        assert!(error.to_string().contains("there is no database"), "{error}");
        assert_eq!((error.exit_code(), to.exists()), (1, false));
        drop(Store::open(&from).expect("opened"));
        std::fs::write(&to, "precious").expect("written");
        let error = copy(&from, &to).expect_err("it exists");
        assert_eq!((error.exit_code(), std::fs::read_to_string(&to).expect("read").as_str()), (2, "precious"));
        let to = folder.path().join("no/such/folder/copy.db");
        let error = copy(&from, &to).expect_err("no folder");
        assert_eq!(error.exit_code(), 1);
        let mut causes = std::iter::successors(std::error::Error::source(&error), |&cause| cause.source());
        assert!(causes.any(|cause| cause.is::<store::StoreError>()), "{error:?}");
        let start = format!("could not write {}: the database {0} failed: No such file or directory", to.display());
        assert!(error.to_string().starts_with(&start), "{error}");
    }
}
