//! Reads secrets from the environment and from files.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::env::Env;

/// Minimum length of a webhook secret, in bytes; the output size of HMAC-SHA-256.
pub const WEBHOOK_SECRET_MIN: usize = 32;

/// Maximum size of a file with a secret, in bytes; a private key has about 3 KiB.
const SECRET_FILE_MAX: u64 = 64 * 1024;

/// Source of a secret.
#[derive(Debug, Clone)]
pub(super) enum SecretSource {
    Variable(String),
    File(PathBuf),
}

/// Reads a secret, without surrounding white space. The error message does not contain it.
pub(super) fn read(source: &SecretSource, env: &Env, base: &Path) -> Result<SecretString, String> {
    let (text, name) = match source {
        SecretSource::Variable(name) => {
            let value = env.get(name).ok_or_else(|| format!("environment variable {name} is not set"))?;
            (value.to_owned(), format!("environment variable {name}"))
        }
        SecretSource::File(path) => {
            let path = base.join(path);
            let text = read_file(&path).map_err(|error| format!("cannot read file {}: {error}", path.display()))?;
            (text, format!("file {}", path.display()))
        }
    };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(format!("{name} is empty"));
    }
    Ok(SecretString::from(trimmed.to_owned()))
}

fn read_file(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    if metadata.len() > SECRET_FILE_MAX {
        return Err(format!("it has {} bytes, the maximum is {SECRET_FILE_MAX}", metadata.len()));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}
