//! Author and signature of the bot's commits.

use std::path::PathBuf;

use super::ids::User;

/// Author and committer of the bot's commits on a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitAuthor {
    /// Name of the author.
    pub name: String,
    /// Email address. A forge attributes a commit to the account with this address.
    pub email: String,
}

impl CommitAuthor {
    /// Returns `user` as author, with a no-reply address on `host` in GitHub's format.
    pub fn noreply(user: &User, host: &str) -> Self {
        Self { name: user.login.clone(), email: format!("{}+{}@users.noreply.{host}", user.id, user.login) }
    }

    /// Returns the author if the name and address are valid in a commit header. `None` if one is empty or contains a line
    /// break, or if the address contains an angle bracket.
    pub fn checked(name: &str, email: &str) -> Option<Self> {
        let plain = |text: &str, others: &[char]| {
            let text = text.trim();
            !text.is_empty() && text.len() <= 200 && !text.contains(|c: char| c.is_control() || others.contains(&c))
        };
        let usable = plain(name, &['<', '>']) && plain(email, &['<', '>', ' ']) && email.contains('@');
        usable.then(|| Self { name: name.trim().to_owned(), email: email.trim().to_owned() })
    }
}

/// Key that signs the bot's commits. Agents never see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitSigning {
    /// Private SSH key without a passphrase.
    Ssh { key_file: PathBuf },
    /// OpenPGP key without a passphrase, in a GnuPG home directory.
    OpenPgp { key_id: String, home: PathBuf },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::{AccountKind, UserId};

    #[test]
    fn noreply_address_names_id_and_account() {
        let bot = User { id: UserId(4711), login: "ralph-bot[bot]".into(), kind: AccountKind::Bot };
        let author = CommitAuthor::noreply(&bot, "github.com");
        assert_eq!(author.name, "ralph-bot[bot]");
        assert_eq!(author.email, "4711+ralph-bot[bot]@users.noreply.github.com");
    }

    #[test]
    fn author_name_with_header_syntax_is_refused() {
        assert!(CommitAuthor::checked("ralph", "ralph@noreply.example").is_some());
        for (name, email) in
            [("", "a@b"), ("a", ""), ("a", "ab"), ("a\nb", "a@b"), ("a", "a@b>\nx"), ("a <b", "a@b"), ("a", "a b@c")]
        {
            assert_eq!(CommitAuthor::checked(name, email), None, "{name:?} {email:?}");
        }
    }
}
