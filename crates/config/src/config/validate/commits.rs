//! Validates the settings for signing commits.

use super::Validator;
use crate::config::ConfigScope;
use crate::config::operator::{CommitSigningName, CommitsSection, SignatureFormat};
use crate::domain::model::authorship::CommitSigning;

impl Validator<'_> {
    /// Returns the settings for signing commits; `None` if commits are not signed.
    pub(super) fn commits(&mut self, section: &CommitsSection) -> Option<CommitSigning> {
        let at = |key: &str| format!("commits.{key}");
        match section.sign {
            CommitSigningName::None => {
                let unused = section.key_file.is_some() || section.key_id.is_some() || section.gnupg_home.is_some();
                if unused {
                    self.wrong(
                        &at("sign"),
                        "a key is given, but commits are not signed; set `sign: git`, or remove the key",
                    );
                }
                None
            }
            CommitSigningName::Git => match (section.format, &section.key_file, &section.key_id, &section.gnupg_home) {
                (SignatureFormat::Ssh, Some(file), None, None) => {
                    let key_file = std::path::absolute(self.base.join(file)).unwrap_or_else(|_| self.base.join(file));
                    if self.reach == ConfigScope::Service && !key_file.is_file() {
                        self.wrong(
                            &at("key_file"),
                            "there is no such file; create a key with `ssh-keygen -t ed25519 -N ''`",
                        );
                        return None;
                    }
                    self.secret_files.push((at("key_file"), key_file.clone()));
                    Some(CommitSigning::Ssh { key_file })
                }
                (SignatureFormat::OpenPgp, None, Some(key_id), Some(home)) => {
                    let home = std::path::absolute(self.base.join(home)).unwrap_or_else(|_| self.base.join(home));
                    let hexadecimal = key_id.len() >= 8 && key_id.bytes().all(|byte| byte.is_ascii_hexdigit());
                    if !hexadecimal {
                        self.wrong(&at("key_id"), "expected the fingerprint of a key, as `gpg --list-keys` shows it");
                        return None;
                    }
                    if self.reach == ConfigScope::Service && !home.is_dir() {
                        self.wrong(&at("gnupg_home"), "there is no such folder; it is the GNUPGHOME that has the key");
                        return None;
                    }
                    self.secret_files.push((at("gnupg_home"), home.clone()));
                    Some(CommitSigning::OpenPgp { key_id: key_id.clone(), home })
                }
                (SignatureFormat::Ssh, ..) => {
                    self.wrong(&at("format"), "signatures of the format `ssh` need `key_file`, and no other key");
                    None
                }
                (SignatureFormat::OpenPgp, ..) => {
                    self.wrong(
                        &at("format"),
                        "signatures of the format `openpgp` need `key_id` and `gnupg_home`, and no `key_file`",
                    );
                    None
                }
            },
        }
    }
}

/// Whether every branch `PREFIX<issue>-<slug>` is a valid ref and cannot be parsed as a git option.
pub(in crate::config) fn valid_branch_prefix(prefix: &str) -> bool {
    let harmless = prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    let parts_good = prefix.split('/').all(|part| !part.starts_with('.') && !part.ends_with(".lock"));
    !prefix.is_empty()
        && prefix.len() <= 60
        && harmless
        && parts_good
        && !prefix.starts_with(['-', '/'])
        && !prefix.contains("..")
        && !prefix.contains("//")
}
