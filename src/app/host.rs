//! This host: its id in the data folder, and its settings.

use std::path::Path;

use ralph_types::failure::Failure;

use super::database;
use crate::config::Config;
use crate::domain::model::host::Host;

/// Name of the file in the data folder with the id of the host.
const FILE: &str = "host";
/// Number of work effects in addition to the default number of slots, which release trees or cancel work.
const SPARE_WORKERS: usize = 4;

/// Returns this host, whose data folder is `data`. Its id is created at the first start.
///
/// # Errors
/// Fails if the file with the id cannot be read or written.
pub fn of(config: &Config, data: &Path) -> Result<Host, Failure> {
    let file = data.join(FILE);
    let id = match database::known(&file)? {
        Some(id) => id,
        None => {
            let id = uuid::Uuid::new_v4().simple().to_string()[20..].to_owned();
            database::remember(&file, &id)?;
            id
        }
    };
    let name = config.runner.name.clone().filter(|name| !name.trim().is_empty()).unwrap_or_else(machine_name);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Host { id, name, version, slots: slots(config), labels: config.runner.labels.clone() })
}

/// Returns the id of this host; `None` before its first start.
///
/// # Errors
/// Fails if the file with the id cannot be read.
pub fn id(config: &Config) -> Result<Option<String>, Failure> {
    database::known(&config.data_dir.join(FILE))
}

/// Returns the number of slots of this host.
fn slots(config: &Config) -> u32 {
    config.runner.slots.unwrap_or(config.policy.limits.loops)
}

/// Returns the number of work effects that this host executes at the same time.
pub fn workers(config: &Config) -> usize {
    let spare = if config.runner.slots.is_some() { 0 } else { SPARE_WORKERS };
    slots(config) as usize + spare
}

/// Returns the host name of this machine.
pub fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Env;

    #[test]
    fn host_id_is_stored_in_the_data_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = |more: &str| {
            let text = format!(
                "forges: [{{ name: g, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, updates: poll }}]\n\
                backends: {{ mine: {{ type: script, command: [/bin/true] }} }}\n{more}"
            );
            Config::parse(&folder.path().join("ralph-control.yaml"), &text, &Env::of([("T", "token")]))
        };
        let plain = config("").expect("valid");
        let first = of(&plain, folder.path()).expect("created");
        let named = config("runner: { name: big, labels: [gpu], slots: 1 }\n").expect("valid");
        let wrong = config("runner: { labels: ['a b'] }\n").expect_err("a label with a space").to_string();
        assert!(wrong.contains("`runner.labels[0]`: expected at most 64 letters"), "{wrong}");
        let second = of(&named, folder.path()).expect("read");
        assert_eq!((first.id.as_str(), first.name), (second.id.as_str(), machine_name()));
        assert_eq!((second.name.as_str(), &second.labels[..], second.slots), ("big", &["gpu".to_owned()][..], 1));
        assert_eq!((workers(&named), workers(&plain)), (1, plain.policy.limits.loops as usize + SPARE_WORKERS));
        let other = tempfile::tempdir().expect("a folder");
        assert_ne!(of(&plain, other.path()).expect("created").id, second.id, "each folder is a host");
    }
}
