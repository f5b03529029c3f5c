//! Database of the service: the server in the configuration, otherwise a file in the data folder.

use std::io::{self, Write as _};
use std::path::Path;

use ralph_types::failure::Failure;

use crate::clock::Clock;
use crate::config::Config;
use crate::store::{DatabaseAddress, PgSettings, Store, StoreError, StoreResult, installation, leases};

/// Name of the database file in the data folder.
pub const FILE: &str = "ralph.db";
/// Name of the file in the data folder with the id of the installation.
const INSTALLATION: &str = "installation";
/// Key of the installation's id in the database.
const INSTANCE: &str = "instance";

/// Returns the address of the database. SQLite is used only if the configuration has no `database`.
///
/// # Errors
/// `Unusable` if the certificates for TLS cannot be read.
pub fn address(config: &Config) -> StoreResult<DatabaseAddress> {
    match &config.database {
        Some(server) => Ok(PgSettings::new(&server.address, &server.passwords)?.into()),
        None => Ok((&config.data_dir.join(FILE)).into()),
    }
}

/// Opens or creates the service's database and returns it with the id of the installation, which is stored in the database and in a
/// file of the data folder.
///
/// # Errors
/// Fails if the database cannot be opened, if it belongs to another installation, or if the file cannot be read or written.
pub async fn open(config: &Config) -> Result<(Store, String), Failure> {
    let address = address(config).map_err(failed)?;
    let path = config.data_dir.join(INSTALLATION);
    let known = known(&path)?;
    let store = Store::open(address).map_err(failed)?;
    let new = known.clone().unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string()[20..].to_owned());
    let id = store.write(move |c| installation::get_or_insert(c, INSTANCE, &new)).await.map_err(failed)?;
    match known {
        Some(known) => compare(config, &known, &id)?,
        None => remember(&path, &id)?,
    }
    Ok((store, id))
}

/// Returns the clock of the service: the server's clock instead of the system's, because the clocks of hosts that share a server may
/// differ. A file belongs to one host.
///
/// # Errors
/// Fails if the server does not answer.
pub async fn clock(config: &Config, store: &Store, own: &Clock) -> Result<Clock, Failure> {
    if config.database.is_none() || !matches!(own, Clock::System) {
        return Ok(own.clone());
    }
    let now = own.now();
    store.read(move |c| leases::time(c, now)).await.map(Clock::shared).map_err(failed)
}

/// Opens the existing database while a service may be running on it.
///
/// # Errors
/// Fails if the database cannot be opened or belongs to another installation.
pub async fn attach(config: &Config) -> Result<Store, Failure> {
    let store = Store::attach(address(config).map_err(failed)?).map_err(failed)?;
    check_installation(config, &store).await?;
    Ok(store)
}

/// Checks that an open database belongs to the installation of the data folder.
///
/// # Errors
/// Fails if it belongs to another installation, or if the id cannot be read.
pub async fn check_installation(config: &Config, store: &Store) -> Result<(), Failure> {
    let Some(known) = known(&config.data_dir.join(INSTALLATION))? else { return Ok(()) };
    match store.read(|c| installation::get(c, INSTANCE)).await.map_err(failed)? {
        Some(id) => compare(config, &known, &id),
        None => Ok(()),
    }
}

fn failed(error: StoreError) -> Failure {
    Failure::of(error)
}

fn compare(config: &Config, known: &str, id: &str) -> Result<(), Failure> {
    if known == id {
        return Ok(());
    }
    let file = config.data_dir.join(INSTALLATION);
    Err(Failure::new("the database belongs to another installation")
        .with_detail(format!("its id is {id}, and {} contains {known}", file.display()))
        .with_hint(
            "correct `database` or `data_dir`; if this installation should continue with that database, delete the file",
        ))
}

/// Returns the id in a file; `None` before the first start.
pub(super) fn known(path: &Path) -> Result<Option<String>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|id| !id.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(format!("cannot read {}", path.display())).caused_by(error)),
    }
}

/// Writes an id into a file at the first start.
pub(super) fn remember(path: &Path, id: &str) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        writeln!(file, "{id}")?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    written().map_err(|error| Failure::new(format!("could not write {}", path.display())).caused_by(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Env;

    fn config(folder: &Path) -> Config {
        let file = folder.join("ralph-control.yaml");
        let text = "forges:\n  - { name: work, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, updates: poll }\nbackends: { claude: {} }\n";
        std::fs::write(&file, text).expect("written");
        let config = Config::load(&file, &Env::of([("T", "token")])).expect("valid");
        std::fs::create_dir_all(&config.data_dir).expect("created");
        config
    }

    #[tokio::test]
    async fn database_of_another_installation_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path());
        let (store, id) = open(&config).await.expect("opened");
        store.close().await;
        drop(store);
        let file = config.data_dir.join(INSTALLATION);
        assert_eq!(std::fs::read_to_string(&file).expect("read"), format!("{id}\n"));
        let (store, again) = open(&config).await.expect("opened again");
        assert_eq!(again, id);
        store.close().await;
        drop(store);
        attach(&config).await.expect("attached").close().await;
        std::fs::write(&file, "another\n").expect("written");
        for refused in [open(&config).await.map(drop), attach(&config).await.map(drop)] {
            let refused = refused.expect_err("refused").to_string();
            assert!(refused.starts_with("the database belongs to another installation"), "{refused}");
        }
        // A new database belongs to the installation of the folder.
        std::fs::remove_file(config.data_dir.join(FILE)).expect("removed");
        assert_eq!(open(&config).await.expect("opened").1, "another");
    }
}
