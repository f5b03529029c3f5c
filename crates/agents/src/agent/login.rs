//! Logins of subscriptions in files. A run gets a copy of the user's file in its home. If the program refreshed its tokens, the new
//! file is written back, so that the user's own program and later runs stay logged in.
//!
//! A run can write to its copy. A changed file is accepted only if it is the old one with other tokens and times, of the same account
//! as far as the tokens name it, and only if a refresh was due.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use data_encoding::BASE64URL_NOPAD;
use ralph_types::failure::Failure;
use serde_json::Value;

use crate::domain::model::ids::Timestamp;
use crate::process::{private, untrusted};

/// Maximum size of a login file, in bytes.
const MOST_BYTES: u64 = 256 * 1024;
/// Time before the end of a token's validity from which programs refresh it, in milliseconds.
const EARLY_MS: i64 = 30 * 60_000;
/// Minimum length of a secret in a login file, in bytes.
const SECRET_MIN: usize = 16;
/// Parts of the names of fields that a refresh changes.
const REFRESHED: [&str; 4] = ["token", "expir", "refresh", "access"];

/// Lock that makes runs write back one at a time.
static WRITING: Mutex<()> = Mutex::new(());

/// Login of a user for a preset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginFile {
    /// The user's file.
    pub source: PathBuf,
    /// Path of the copy, relative to the home of a run.
    pub in_home: &'static str,
}

/// Copy of a login in the home of a run.
pub(super) struct PlacedLogin<'a> {
    of: &'a LoginFile,
    copy: PathBuf,
    before: String,
}

impl LoginFile {
    /// Reads the file.
    ///
    /// # Errors
    /// It is missing, too large or not JSON.
    fn read(&self) -> io::Result<String> {
        let mut text = String::new();
        fs::File::open(&self.source)?.take(MOST_BYTES).read_to_string(&mut text)?;
        serde_json::from_str::<Value>(&text)?;
        Ok(text)
    }

    /// Returns the secrets in the file; empty if it cannot be read.
    pub fn secrets(&self) -> BTreeSet<String> {
        let mut secrets = BTreeSet::new();
        let parsed = self.read().ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        collect_secrets("", &parsed, &mut secrets);
        secrets
    }

    /// Copies the file into the home of a run.
    ///
    /// # Errors
    /// A message that names the file and a remedy.
    pub(super) fn place(&self, home: &Path) -> Result<PlacedLogin<'_>, Failure> {
        let shown = self.source.display();
        let unreadable = || Failure::new(format!("cannot read the login in {shown}")).with_hint("log in again");
        let before = self.read().map_err(|error| unreadable().caused_by(error))?;
        let copy = home.join(self.in_home);
        let write = || {
            private::create_folder(copy.parent().unwrap_or(home))?;
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&copy)?;
            io::Write::write_all(&mut file, before.as_bytes())
        };
        let not_copied = || Failure::new(format!("could not copy the login to {}", copy.display()));
        write().map_err(|error| not_copied().caused_by(error))?;
        Ok(PlacedLogin { of: self, copy, before })
    }
}

impl PlacedLogin<'_> {
    /// Writes a refreshed login back to the user's file, if the file is still the copied one. `now` is the end of the run.
    /// Returns `true` if it was written.
    ///
    /// # Errors
    /// A message for the log: the copy is not a refreshed login, or the file cannot be written.
    pub(super) fn write_back(self, now: Timestamp) -> Result<bool, Failure> {
        let after = untrusted::read_text(&self.copy, MOST_BYTES).unwrap_or_default();
        if after.is_empty() || after == self.before {
            return Ok(false);
        }
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let (old, new) = (parse(&self.before), parse(&after));
        if old == new {
            return Ok(false);
        }
        if !is_refresh("", &old, &new) {
            return Err(Failure::new(
                "the run changed more than the tokens in its copy of the login; the service drops the change",
            ));
        }
        if valid_until(&old).is_some_and(|until| until > now.0 + EARLY_MS) {
            return Err(Failure::new(
                "the run changed its copy of the login although no refresh was due; the service drops the change",
            ));
        }
        let _one = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        if self.of.read().ok().as_deref() != Some(self.before.as_str()) {
            return Ok(false);
        }
        let file = self.of.source.canonicalize().unwrap_or_else(|_| self.of.source.clone());
        let unwritten = || Failure::new(format!("could not write the refreshed login to {}", file.display()));
        replace(&file, &after).map_err(|error| unwritten().caused_by(error))?;
        Ok(true)
    }
}

/// Replaces a file atomically, with its mode.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mode = fs::metadata(file)?.permissions().mode() & 0o777;
    let draft = file.with_extension(format!("ralph-{}", std::process::id()));
    let write = || {
        private::write(&draft, text)?;
        fs::set_permissions(&draft, fs::Permissions::from_mode(mode))?;
        fs::File::open(&draft)?.sync_all()?;
        fs::rename(&draft, file)
    };
    write().inspect_err(|_| drop(fs::remove_file(&draft)))
}

fn is_refreshed(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    REFRESHED.iter().any(|part| key.contains(part))
}

/// Whether two values differ only in tokens and times, as a refresh changes them. `key` is the name of their field.
fn is_refresh(key: &str, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len()
                && old.iter().all(|(key, value)| new.get(key).is_some_and(|now| is_refresh(key, value, now)))
        }
        (Value::String(old), Value::String(new)) if old != new => {
            is_refreshed(key)
                && !new.is_empty()
                && subject(old).is_none_or(|whose| subject(new).is_some_and(|now| now == whose))
        }
        (Value::Number(_), Value::Number(_)) if old != new => is_refreshed(key),
        (old, new) => old == new,
    }
}

/// Returns who a token is for, if the token is a JSON Web Token: its issuer and its subject.
fn subject(token: &str) -> Option<(Value, Value)> {
    let parsed = payload(token)?;
    parsed.get("sub").map(|subject| (parsed["iss"].clone(), subject.clone()))
}

fn payload(token: &str) -> Option<Value> {
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    serde_json::from_slice(&BASE64URL_NOPAD.decode(payload.as_bytes()).ok()?).ok()
}

/// Returns when the first access token of a login ends, in milliseconds; `None` if the file does not say.
fn valid_until(login: &Value) -> Option<i64> {
    let Value::Object(fields) = login else { return None };
    let of_field = |(key, value): (&String, &Value)| match value {
        Value::Object(_) => valid_until(value),
        Value::Number(time) if key.to_ascii_lowercase().contains("expir") => {
            time.as_f64().map(|time| if time < 1e11 { time * 1000.0 } else { time }).map(|ms| ms as i64)
        }
        Value::String(token) if key.to_ascii_lowercase().contains("access") => {
            payload(token)?["exp"].as_i64().map(|seconds| seconds.saturating_mul(1000))
        }
        _ => None,
    };
    fields.iter().filter_map(of_field).min()
}

fn collect_secrets(key: &str, value: &Value, secrets: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| collect_secrets(key, value, secrets)),
        Value::Array(values) => values.iter().for_each(|value| collect_secrets(key, value, secrets)),
        Value::String(text)
            if text.len() >= SECRET_MIN && (is_refreshed(key) || key.to_ascii_lowercase().contains("key")) =>
        {
            secrets.insert(text.clone());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn jwt(subject: &str, seconds: i64) -> String {
        let payload = format!(r#"{{"iss":"https://auth.example","sub":"{subject}","exp":{seconds}}}"#);
        format!("eyJhbGciOiJub25lIn0.{}.signature", BASE64URL_NOPAD.encode(payload.as_bytes()))
    }

    /// Places `before` in a home, has the run write `after`, and returns the result, `None` for an error, and the user's file.
    fn written_back(before: &str, after: &str, meanwhile: Option<&str>) -> (Option<bool>, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("auth.json");
        private::write(&source, before).expect("written");
        let login = LoginFile { source: source.clone(), in_home: ".tool/auth.json" };
        let home = folder.path().join("home");
        private::create_folder(&home).expect("made");
        let placed = login.place(&home).expect("placed");
        assert_eq!(fs::read_to_string(home.join(".tool/auth.json")).expect("copied"), before);
        fs::write(home.join(".tool/auth.json"), after).expect("written");
        if let Some(text) = meanwhile {
            fs::write(&source, text).expect("written");
        }
        let result = placed.write_back(NOW);
        assert_eq!(fs::metadata(&source).expect("there").permissions().mode() & 0o777, 0o600);
        (result.ok(), fs::read_to_string(&source).expect("there"))
    }

    fn claude(access: &str, until: i64) -> String {
        format!(
            r#"{{"claudeAiOauth":{{"accessToken":"{access}","refreshToken":"r-{access}","expiresAt":{until},"scopes":["a"],"subscriptionType":"max"}}}}"#
        )
    }

    /// See docs/research/threats.md#s18.
    #[test]
    fn only_refreshed_tokens_are_written_back() {
        let (old, new) = (claude("old", NOW.0 - 1), claude("new", NOW.0 + 3_600_000));
        assert_eq!(written_back(&old, &new, None), (Some(true), new.clone()));
        assert_eq!(written_back(&old, &old, None), (Some(false), old.clone()));
        assert_eq!(written_back(&old, "", None).0, Some(false));
        let other = claude("other", NOW.0 + 1);
        assert_eq!(written_back(&old, &new, Some(&other)), (Some(false), other), "the user's own refresh stays");
        for changed in [
            new.replace("\"max\"", "\"pro\""),
            new.replace("\"scopes\":[\"a\"],", ""),
            new.replace("}}", "},\"more\":1}"),
            "no JSON".to_owned(),
        ] {
            let (result, left) = written_back(&old, &changed, None);
            assert!(result.is_none() && left == old, "{changed}");
        }
        let valid = claude("old", NOW.0 + 4 * 3_600_000);
        assert!(written_back(&valid, &new, None).0.is_none(), "no refresh was due");
    }

    /// See docs/research/threats.md#s18.
    #[test]
    fn tokens_of_another_account_are_not_written_back() {
        let codex = |subject: &str, account: &str, seconds: i64| {
            let (id, access) = (jwt(subject, seconds), jwt(subject, seconds));
            format!(
                r#"{{"OPENAI_API_KEY":null,"tokens":{{"id_token":"{id}","access_token":"{access}","refresh_token":"rt-{seconds}","account_id":"{account}"}},"last_refresh":"t{seconds}"}}"#
            )
        };
        let old = codex("me", "a", NOW.0 / 1000 - 5);
        let refreshed = codex("me", "a", NOW.0 / 1000 + 864_000);
        assert_eq!(written_back(&old, &refreshed, None), (Some(true), refreshed));
        assert!(written_back(&old, &codex("evil", "a", NOW.0 / 1000 + 9), None).0.is_none());
        assert!(written_back(&old, &codex("me", "b", NOW.0 / 1000 + 9), None).0.is_none());
    }

    #[test]
    fn login_file_yields_its_secrets() {
        let folder = tempfile::tempdir().expect("a folder");
        let login = LoginFile { source: folder.path().join("auth.json"), in_home: "auth.json" };
        assert!(login.secrets().is_empty());
        private::write(&login.source, claude("sk-ant-oat01-0123456789", 0)).expect("written");
        assert_eq!(
            login.secrets().into_iter().collect::<Vec<_>>(),
            ["r-sk-ant-oat01-0123456789", "sk-ant-oat01-0123456789"]
        );
        let error = LoginFile { source: "/nonexistent/auth.json".into(), ..login }.place(folder.path()).map(drop);
        let error = error.expect_err("missing");
        assert!(error.to_string().contains("cannot read the login in /nonexistent/auth.json"));
        assert!(std::error::Error::source(&error).is_some_and(|cause| cause.is::<io::Error>()), "{error:?}");
        assert_eq!(
            format!("{error:#}"),
            "cannot read the login in /nonexistent/auth.json: No such file or directory (os error 2); log in again"
        );
    }
}
