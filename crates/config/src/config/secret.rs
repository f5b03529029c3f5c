//! Reads secrets from the environment and from files.

use std::io;
use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;
use secrecy::SecretString;

use super::env::Env;
use crate::domain::model::authorship::CommitSigning;

/// Minimum length of a webhook secret, in bytes: the output size of HMAC-SHA-256.
pub const WEBHOOK_SECRET_MIN: usize = 32;

/// Maximum size of a secret file, in bytes; a private key has about 3 KiB.
const SECRET_FILE_MAX: u64 = 64 * 1024;

/// Source of a secret.
#[derive(Debug, Clone)]
pub(super) enum SecretSource {
    Variable(String),
    File(PathBuf),
}

/// Reads a secret without surrounding white space. The error message does not contain the secret.
pub(super) fn read(source: &SecretSource, env: &Env, base: &Path) -> Result<SecretString, Failure> {
    let (text, name) = match source {
        SecretSource::Variable(name) => {
            let value = env.get(name).ok_or_else(|| Failure::new(format!("environment variable {name} is not set")))?;
            (value.to_owned(), format!("environment variable {name}"))
        }
        SecretSource::File(path) => {
            let path = base.join(path);
            let text = read_file(&path)
                .map_err(|problem| Failure::new(format!("cannot read file {}", path.display())).caused_by(problem))?;
            (text, format!("file {}", path.display()))
        }
    };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(Failure::new(format!("{name} is empty")));
    }
    Ok(SecretString::from(trimmed.to_owned()))
}

/// Environment variables that contain credentials of an OpenTelemetry exporter.
const HEADERS_OF_TRACES: [&str; 2] = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

/// Returns secrets that the service masks but does not use itself, each with its name: the commit signing key and the values
/// of OpenTelemetry headers. Skips an unreadable key file, because signing reports the error.
pub(super) fn of_others(signing: Option<&CommitSigning>, env: &Env) -> Vec<(String, SecretString)> {
    let mut found = Vec::new();
    if let Some(CommitSigning::Ssh { key_file }) = signing
        && let Ok(key) = read_file(key_file)
        // A public key is not a secret; an agent holds its private key.
        && key.contains("PRIVATE KEY")
    {
        found.push(("the key of signatures".to_owned(), SecretString::from(key.trim().to_owned())));
    }
    let headers = HEADERS_OF_TRACES.into_iter().filter_map(|name| env.get(name)).flat_map(|all| all.split(','));
    for pair in headers {
        // The values are percent-encoded like addresses, where a plus sign does not mean a space.
        let pair = pair.replace('+', "%2B");
        let Some((_, value)) = url::form_urlencoded::parse(pair.as_bytes()).next() else { continue };
        // The scheme before a token is not a secret.
        let token = value.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        found.push(("a header of traces".to_owned(), SecretString::from(token)));
    }
    found
}

/// Reads a plain file of at most 64 KiB.
pub(super) fn read_file(path: &Path) -> io::Result<String> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if metadata.len() > SECRET_FILE_MAX {
        let why = format!("it has {} bytes, the maximum is {SECRET_FILE_MAX}", metadata.len());
        return Err(io::Error::other(why));
    }
    std::fs::read_to_string(path)
}
