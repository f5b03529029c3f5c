//! OAuth clients for logins, created by `ralph-bot init --login`. The data folder stores each as `login-clients/FORGE`, with
//! the client id on the first line and the secret on the second.

use std::io;
use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};

use super::webhook_secrets::write_private;
use crate::domain::model::ids::ForgeName;

/// Name of the folder in the data folder.
const FOLDER: &str = "login-clients";

/// OAuth client for logins with a forge.
#[derive(Debug, Clone)]
pub struct LoginClientConfig {
    /// Client id.
    pub id: String,
    /// Client secret.
    pub secret: SecretString,
}

/// Reads the OAuth client of a forge; `None` if there is none.
///
/// # Errors
/// The file cannot be read or is damaged; the message names it.
pub fn read(data: &Path, forge: &ForgeName) -> Result<Option<LoginClientConfig>, Failure> {
    let path = path(data, forge);
    let text = match std::fs::read_to_string(&path) {
        // If the data folder is a file, the start reports it.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        read => read.map_err(|error| Failure::new(format!("cannot read {}", path.display())).caused_by(error))?,
    };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let [id, secret] = lines.as_slice() else {
        let fix = "remove the file and run `ralph-bot init --login` again";
        let primary = format!("{} does not contain two lines, a client id and a secret", path.display());
        return Err(Failure::new(primary).with_hint(fix));
    };
    Ok(Some(LoginClientConfig { id: (*id).to_owned(), secret: SecretString::from(*secret) }))
}

/// Stores a forge's OAuth client, replacing a previous one, and returns the file's path.
///
/// # Errors
/// The file cannot be written; the message names it.
pub fn keep(data: &Path, forge: &ForgeName, client: &LoginClientConfig) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let path = path(data, forge);
    let failed = |error: io::Error| Failure::new(format!("cannot write {}", path.display())).caused_by(error);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data.join(FOLDER)).map_err(failed)?;
    let draft = data.join(FOLDER).join(format!(".{forge}.new"));
    // Left behind by an interrupted run.
    let _ = std::fs::remove_file(&draft);
    let text = format!("{}\n{}\n", client.id, client.secret.expose_secret());
    write_private(&draft, &text).and_then(|()| std::fs::rename(&draft, &path)).map_err(failed)?;
    Ok(path)
}

/// Returns the path of the file with a forge's OAuth client.
pub fn path(data: &Path, forge: &ForgeName) -> PathBuf {
    data.join(FOLDER).join(forge.as_str())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn client_is_private_and_replaced() {
        let data = tempfile::tempdir().unwrap();
        let forge = ForgeName::new("work");
        assert!(read(data.path(), &forge).unwrap().is_none());
        for (id, secret) in [("one", "first"), ("two", "second")] {
            let client = LoginClientConfig { id: id.into(), secret: secret.into() };
            let file = keep(data.path(), &forge, &client).unwrap();
            let found = read(data.path(), &forge).unwrap().unwrap();
            assert_eq!((found.id.as_str(), found.secret.expose_secret()), (id, secret));
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(read(data.path(), &ForgeName::new("other")).unwrap().is_none());
    }

    #[test]
    fn damaged_client_is_reported() {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join(FOLDER)).unwrap();
        for text in ["", "only-an-id\n", "a\nb\nc\n"] {
            std::fs::write(data.path().join(FOLDER).join("work"), text).unwrap();
            let why = read(data.path(), &ForgeName::new("work")).unwrap_err().to_string();
            assert!(
                why.contains("login-clients/work does not contain two lines") && why.contains("init --login"),
                "{why}"
            );
        }
    }
}
