//! Files of the setup, which are created with mode 0600 and never overwritten.

use std::io::{self, Write as _};
use std::path::Path;

use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};

use crate::config::webhook_secrets::write_private;

/// Result of creating a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileCreation {
    /// The file was created.
    Created,
    /// The file already exists with the same content.
    Same,
}

/// Returns the problem of a file that already exists.
pub(super) fn in_the_way(path: &Path) -> Failure {
    Failure::new(format!("{} exists and is not overwritten", path.display()))
        .with_hint("move it away, or choose another name for the forge")
}

/// Creates a file that only its owner can read. An incompletely written file is removed.
///
/// # Errors
/// The file exists with other content or cannot be written; the message names the file and contains advice.
pub(super) fn create(path: &Path, text: &SecretString) -> Result<FileCreation, Failure> {
    match write_private(path, text.expose_secret()) {
        Ok(()) => Ok(FileCreation::Created),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let known = std::fs::read_to_string(path).unwrap_or_default();
            if known == text.expose_secret() { Ok(FileCreation::Same) } else { Err(in_the_way(path)) }
        }
        Err(error) => {
            // It was created exclusively, so that it is ours if it is there.
            let _ = std::fs::remove_file(path);
            let problem = Failure::new(format!("cannot write {}", path.display())).caused_by(error);
            Err(problem.with_hint("check the folder's permissions and free space"))
        }
    }
}

/// Creates the operator's file, or replaces it if it still contains the text `known`.
///
/// # Errors
/// The file cannot be written, or was changed in the meantime.
pub(super) fn write_config(path: &Path, known: Option<&str>, text: &str) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error: io::Error| {
        let problem = Failure::new(format!("cannot write {}", path.display())).caused_by(error);
        problem.with_hint("check the folder's permissions")
    };
    let changed = |how: &str| Failure::new(format!("{} was {how} meanwhile", path.display())).with_hint("try again");
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    draft.write_all(text.as_bytes()).and_then(|()| draft.as_file().sync_all()).map_err(failed)?;
    match known {
        None => draft.persist_noclobber(path).map(drop).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => changed("created"),
            _ => failed(error.error),
        }),
        Some(known) => {
            let now = std::fs::read_to_string(path).map_err(failed)?;
            if now != known {
                return Err(changed("changed"));
            }
            let permissions = std::fs::metadata(path).map_err(failed)?.permissions();
            draft.as_file().set_permissions(permissions).map_err(failed)?;
            draft.persist(path).map(drop).map_err(|error| failed(error.error))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn existing_file_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        assert_eq!(create(&path, &"one".into()).unwrap(), FileCreation::Created);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(create(&path, &"one".into()).unwrap(), FileCreation::Same);
        let why = create(&path, &"two".into()).unwrap_err().to_string();
        assert!(why.contains("key.pem exists and is not overwritten; move it away"), "{why}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        let why = format!("{:#}", create(&folder.path().join("none/key.pem"), &"two".into()).unwrap_err());
        assert!(why.contains("none/key.pem") && !why.contains("two"), "{why}");
    }

    #[test]
    fn configuration_changed_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ralph-control.yaml");
        write_config(&path, None, "a").unwrap();
        assert!(write_config(&path, None, "b").unwrap_err().to_string().contains("was created meanwhile"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        write_config(&path, Some("a"), "b").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(write_config(&path, Some("a"), "c").unwrap_err().to_string().contains("was changed meanwhile"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "b");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }
}
