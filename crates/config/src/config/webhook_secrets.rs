//! Webhook secrets of single repositories, in the data folder: `webhook-secrets/FORGE/REPOSITORY-ID`, one secret per line,
//! current secret first. `init --webhook` creates them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};

use super::secret::WEBHOOK_SECRET_MIN;
use crate::domain::model::ids::{ForgeName, RepoId};

/// Folder below the data folder.
const FOLDER: &str = "webhook-secrets";
/// Length of a new secret, in bytes; stored in hexadecimal.
pub const SECRET_BYTES: usize = 32;
/// Maximum number of a repository's secrets: the current one and its predecessor.
const KEPT: usize = 2;

/// Secrets for the deliveries of one repository.
#[derive(Debug, Clone)]
pub struct RepositorySecrets {
    /// Numeric id of the repository.
    pub repo: RepoId,
    /// Secrets, current one first.
    pub secrets: Vec<SecretString>,
}

/// Treatment of an existing secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingSecret {
    /// Keeps the current secret and drops its predecessor.
    Keep,
    /// Replaces the current secret; both are accepted until the next call with `Keep`.
    Replace,
}

/// Reads the secrets of a forge's repositories, ordered by id.
///
/// # Errors
/// A file cannot be read, its name is not a number, or a secret is too short; the message names the file.
pub fn read(data: &Path, forge: &ForgeName) -> Result<Vec<RepositorySecrets>, Failure> {
    let folder = folder(data, forge);
    let unreadable =
        |error: io::Error| Failure::new(format!("cannot read the folder {}", folder.display())).caused_by(error);
    let entries = match std::fs::read_dir(&folder) {
        // If the data folder is a file, the start reports it.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(unreadable(error)),
        Ok(entries) => entries,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with('.') {
            continue;
        }
        let repo = name.parse().map(RepoId).map_err(|_| {
            let primary = format!("{}: the name is not the number of a repository", path.display());
            Failure::new(primary).with_hint("remove the file")
        })?;
        found.push(RepositorySecrets { repo, secrets: secrets_in(&path)? });
    }
    found.sort_by_key(|of| of.repo);
    Ok(found)
}

/// Creates a repository's secret, or keeps or replaces an existing one according to `change`. Returns all accepted secrets,
/// current one first.
///
/// # Errors
/// A file cannot be read or written; the message names it.
pub fn keep(
    data: &Path,
    forge: &ForgeName,
    repo: RepoId,
    existing: ExistingSecret,
) -> Result<RepositorySecrets, Failure> {
    let folder = folder(data, forge);
    let path = folder.join(repo.to_string());
    let failed = |error: io::Error| Failure::new(format!("cannot write {}", path.display())).caused_by(error);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    let mut secrets = if path.exists() { secrets_in(&path)? } else { Vec::new() };
    if secrets.is_empty() || existing == ExistingSecret::Replace {
        secrets.insert(0, SecretString::from(random_secret().map_err(failed)?));
        secrets.truncate(KEPT);
    } else {
        secrets.truncate(1);
    }
    let text: String = secrets.iter().map(|secret| format!("{}\n", secret.expose_secret())).collect();
    let draft = folder.join(format!(".{repo}.new"));
    // Left behind by an interrupted run.
    let _ = std::fs::remove_file(&draft);
    write_private(&draft, &text).and_then(|()| std::fs::rename(&draft, &path)).map_err(failed)?;
    Ok(RepositorySecrets { repo, secrets })
}

/// Returns a random secret in hexadecimal.
///
/// # Errors
/// The system has no source of randomness.
pub fn random_secret() -> io::Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(HEXLOWER.encode(&bytes))
}

/// Creates a file that is readable only by its owner.
///
/// # Errors
/// The file exists or cannot be written.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn folder(data: &Path, forge: &ForgeName) -> PathBuf {
    data.join(FOLDER).join(forge.as_str())
}

fn secrets_in(path: &Path) -> Result<Vec<SecretString>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {}", path.display())).caused_by(error))?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() || lines.iter().any(|line| line.len() < WEBHOOK_SECRET_MIN) {
        let fix = "remove the file and run `ralph-bot init --webhook` again";
        let primary = format!("{} has a secret shorter than {WEBHOOK_SECRET_MIN} bytes", path.display());
        return Err(Failure::new(primary).with_hint(fix));
    }
    Ok(lines.into_iter().map(SecretString::from).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const REPO: RepoId = RepoId(7);

    fn texts(of: &RepositorySecrets) -> Vec<&str> {
        of.secrets.iter().map(ExposeSecret::expose_secret).collect()
    }

    #[test]
    fn secret_is_made_once_and_replaced_on_request() {
        let data = tempfile::tempdir().unwrap();
        let forge = ForgeName::new("work");
        let keep = |existing| keep(data.path(), &forge, REPO, existing).unwrap();
        assert!(read(data.path(), &forge).unwrap().is_empty());
        let first = keep(ExistingSecret::Keep);
        assert_eq!((first.secrets.len(), texts(&first)[0].len()), (1, 2 * SECRET_BYTES));
        assert_eq!(texts(&keep(ExistingSecret::Keep)), texts(&first));
        let second = keep(ExistingSecret::Replace);
        assert_eq!(texts(&second)[1], texts(&first)[0]);
        assert_ne!(texts(&second)[0], texts(&first)[0]);
        let found = read(data.path(), &forge).unwrap();
        assert_eq!((found.len(), found[0].repo, texts(&found[0])), (1, REPO, texts(&second)));
        let third = keep(ExistingSecret::Replace);
        assert_eq!((texts(&third).len(), texts(&third)[1]), (2, texts(&second)[0]));
        assert_eq!(texts(&keep(ExistingSecret::Keep)), &texts(&third)[..1]);
        assert!(read(data.path(), &ForgeName::new("other")).unwrap().is_empty());
    }

    #[test]
    fn secrets_are_private_and_damaged_ones_are_reported() {
        let data = tempfile::tempdir().unwrap();
        let forge = ForgeName::new("work");
        keep(data.path(), &forge, REPO, ExistingSecret::Keep).unwrap();
        let folder = data.path().join("webhook-secrets/work");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("7"))), (0o700, 0o600));
        std::fs::write(folder.join("8"), "short\n").unwrap();
        let why = read(data.path(), &forge).unwrap_err().to_string();
        assert!(why.contains("webhook-secrets/work/8 has a secret shorter than 32"));
        std::fs::write(folder.join("8"), "\n").unwrap();
        assert!(read(data.path(), &forge).is_err());
        std::fs::remove_file(folder.join("8")).unwrap();
        std::fs::write(folder.join("name"), "x".repeat(40)).unwrap();
        let why = read(data.path(), &forge).unwrap_err().to_string();
        assert!(why.contains("not the number of a repository"));
    }
}
