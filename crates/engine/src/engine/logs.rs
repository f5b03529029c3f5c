//! Retention of the per-loop folders with prompts, output and sessions of agent runs.

use std::collections::HashSet;
use std::path::Path;
use std::time::UNIX_EPOCH;
use std::{fs, io};

use crate::domain::model::ids::{LoopId, Timestamp};

/// Removes the folders of loops that are not in `live` and were last written before `before`. Returns the number of
/// removed folders and one sentence per failure. Failed removals are retried by the next call.
pub(super) fn forget(logs: &Path, live: &HashSet<LoopId>, before: Timestamp) -> (usize, Vec<String>) {
    let live: HashSet<&str> = live.iter().map(LoopId::as_str).collect();
    let (mut removed, mut failures) = (0, Vec::new());
    for entry in fs::read_dir(logs).into_iter().flatten().flatten() {
        let folder = entry.path();
        if entry.file_name().to_str().is_none_or(|name| live.contains(name)) {
            continue;
        }
        match last_written(&folder).map(|written| written < before) {
            Ok(true) => match fs::remove_dir_all(&folder) {
                Ok(()) => removed += 1,
                Err(error) => failures.push(format!("could not remove {}: {error}", folder.display())),
            },
            Ok(false) => {}
            Err(error) => failures.push(format!("could not read {}: {error}", folder.display())),
        }
    }
    (removed, failures)
}

/// Returns the time of the last write to a folder or its entries.
fn last_written(folder: &Path) -> io::Result<Timestamp> {
    let mut latest = written(folder)?;
    for file in fs::read_dir(folder)? {
        latest = latest.max(written(&file?.path())?);
    }
    Ok(latest)
}

fn written(path: &Path) -> io::Result<Timestamp> {
    let since = fs::symlink_metadata(path)?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forget_removes_only_old_folders_of_ended_loops() {
        let logs = tempfile::tempdir().unwrap();
        for name in ["live", "ended"] {
            fs::create_dir(logs.path().join(name)).unwrap();
            fs::write(logs.path().join(name).join("001-1.log"), "x").unwrap();
        }
        let now = last_written(&logs.path().join("ended")).unwrap();
        let live = HashSet::from([LoopId::new("live")]);
        assert_eq!(forget(logs.path(), &live, now), (0, vec![]));
        assert_eq!(forget(logs.path(), &live, now.plus_ms(1)), (1, vec![]));
        assert!(logs.path().join("live/001-1.log").exists() && !logs.path().join("ended").exists());
        assert_eq!(forget(&logs.path().join("none"), &live, now), (0, vec![]));
    }
}
