//! Reading secrets from the environment and from files, and refusing what cannot be one.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::env::Env;

/// Shortest webhook secret, in bytes: what HMAC-SHA-256 is strong with, and more than a person would think up.
pub const WEBHOOK_SECRET_MIN: usize = 32;

/// Largest file that is read as a secret, in bytes; a private key has 3 KiB.
const SECRET_FILE_MAX: u64 = 64 * 1024;

/// Where a secret is.
#[derive(Debug, Clone)]
pub(super) enum SecretSource {
    Variable(String),
    File(PathBuf),
}

/// Reads a secret; the error is a sentence without the secret.
pub(super) fn read(source: &SecretSource, env: &Env, base: &Path) -> Result<SecretString, String> {
    let (text, name) = match source {
        SecretSource::Variable(name) => {
            let value = env.get(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
            (value.to_owned(), format!("the environment variable {name}"))
        }
        SecretSource::File(path) => {
            let path = base.join(path);
            let text =
                read_file(&path).map_err(|error| format!("the file {} is not readable: {error}", path.display()))?;
            (text, format!("the file {}", path.display()))
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
        return Err("not a file".to_owned());
    }
    if metadata.len() > SECRET_FILE_MAX {
        return Err(format!("it has {} bytes, which no secret has", metadata.len()));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}
