//! Personal tokens: `ralph_` followed by 256 random bits. The service stores only digests.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::domain::model::ids::{ForgeName, Timestamp, User};
use crate::store::tokens::{self, ApiScope, StoredToken, TokenOwner, TokenRequest};
use crate::store::{Store, StoreResult};

/// Prefix of each token, so that secret scanners recognize it.
const PREFIX: &str = "ralph_";
/// Number of hexadecimal characters after the prefix.
const RANDOM_CHARS: usize = 64;

/// Default and maximum number of days of validity.
pub const DEFAULT_DAYS: u32 = 90;
pub const MAX_DAYS: u32 = 366;
/// Maximum length of a name, in characters.
pub const MAX_NAME: usize = 100;
const DAY_MS: i64 = 86_400_000;

/// Reason for rejecting a token request, with advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenWishError {
    /// The request was authenticated with a personal token.
    #[error("a personal token cannot make another one")]
    ByToken,
    /// The name is invalid.
    #[error("name is empty, too long, or has control characters")]
    Name,
    /// The number of days is invalid.
    #[error("days is not a number from 1 to {MAX_DAYS}")]
    Days,
}

impl TokenWishError {
    /// Returns the advice.
    pub fn action(self) -> String {
        match self {
            Self::ByToken => "make tokens in the dashboard".to_owned(),
            Self::Name => format!("send 1 to {MAX_NAME} characters"),
            Self::Days => format!("send a number from 1 to {MAX_DAYS}"),
        }
    }
}

/// Validates the request for a token. `by_token` states whether another personal token authenticated it.
///
/// # Errors
/// The request is invalid.
pub fn request_of(
    (owner, by_token): (TokenOwner, bool),
    name: &str,
    scope: ApiScope,
    days: u32,
    now: Timestamp,
) -> Result<TokenRequest, TokenWishError> {
    if by_token {
        return Err(TokenWishError::ByToken);
    }
    let name = name.trim();
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(TokenWishError::Name);
    }
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(TokenWishError::Days);
    }
    let expires_at = now.plus_ms(i64::from(days) * DAY_MS);
    Ok(TokenRequest { name: name.to_owned(), owner, scope, expires_at })
}

/// Owner and permissions of a valid token.
#[derive(Debug, Clone)]
pub struct TokenViewer {
    /// Account of the owner; `None` for the operator of the machine.
    pub account: Option<(ForgeName, User)>,
    /// Whether the owner is the machine's operator. For an account, each request determines whether it is an operator.
    pub operator: bool,
    /// Permissions of the token.
    pub scope: ApiScope,
    /// Stored data of the token.
    pub stored: StoredToken,
}

/// Returns the owner of a personal token; `None` if the token is invalid. Records the token's use.
///
/// # Errors
/// The database cannot be read.
pub async fn viewer_of_token(store: &Store, token: &str, now: Timestamp) -> StoreResult<Option<TokenViewer>> {
    let Some(digest) = digest(token) else { return Ok(None) };
    let Some(found) = store.read(move |c| tokens::find(c, &digest, now)).await? else { return Ok(None) };
    if !tokens::is_use_recorded(&found, now) {
        let id = found.id;
        store.write(move |c| tokens::used(c, id, now)).await?;
    }
    let operator = found.owner.operator && found.owner.account.is_none();
    Ok(Some(TokenViewer { account: found.owner.account.clone(), operator, scope: found.scope, stored: found }))
}

/// Returns the digest of a token; `None` if it is malformed. Tokens are random, so the duration of a lookup by digest
/// reveals nothing useful.
fn digest(token: &str) -> Option<[u8; 32]> {
    let random = token.strip_prefix(PREFIX)?;
    let well_formed = random.len() == RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    well_formed.then(|| Sha256::digest(token.as_bytes()).into())
}

/// Creates a token; returns it with its stored data. `None` if the owner has the maximum number of tokens.
///
/// # Errors
/// The database cannot be written.
pub(super) async fn make_token(
    store: &Store,
    request: TokenRequest,
    now: Timestamp,
) -> StoreResult<Option<(String, StoredToken)>> {
    // Each has 122 random bits.
    let seed = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes).concat();
    let token = format!("{PREFIX}{}", HEXLOWER.encode(&Sha256::digest(seed)));
    let hint = token[token.len() - 4..].to_owned();
    let hashed: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let stored = store.write(move |c| tokens::add(c, &request, &hashed, &hint, now)).await?;
    Ok(stored.map(|stored| (token, stored)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(scope: ApiScope) -> TokenRequest {
        let owner = TokenOwner { account: None, operator: true };
        TokenRequest { name: "ci".into(), owner, scope, expires_at: Timestamp(DAY_MS) }
    }

    #[tokio::test]
    async fn token_is_recognized_only_by_its_complete_text() {
        let store = Store::in_memory().expect("opened");
        let made = make_token(&store, request(ApiScope::Read), Timestamp(1)).await.expect("made");
        let (token, stored) = made.expect("not too many");
        assert!(token.starts_with("ralph_") && token.len() == 70 && token.ends_with(&stored.hint), "{token}");
        let ask = |text: String| {
            let store = &store;
            async move { viewer_of_token(store, &text, Timestamp(2)).await.expect("read") }
        };
        let known = ask(token.clone()).await.expect("known");
        assert!(known.operator && known.account.is_none() && known.scope == ApiScope::Read);
        for wrong in [
            String::new(),
            "ralph_".to_owned(),
            token.to_uppercase(),
            token[..69].to_owned(),
            format!("{token}0"),
            token.replacen("ralph_", "RALPH_", 1),
            format!("ralph_{}", "0".repeat(64)),
            format!("ralph_{}", "ü".repeat(32)),
        ] {
            assert!(ask(wrong.clone()).await.is_none(), "{wrong}");
        }
        let after = viewer_of_token(&store, &token, Timestamp(DAY_MS)).await.expect("read");
        assert!(after.is_none(), "it has expired");
        let used =
            store.read(|c| tokens::of_owner(c, &TokenOwner { account: None, operator: true })).await.expect("read");
        assert_eq!(used[0].used_at, Some(Timestamp(2)));
        let file = store.read(|c| {
            Ok(c.query_row("SELECT group_concat(quote(digest) || hint) FROM tokens", [], |row| {
                row.get::<_, String>(0)
            })?)
        });
        assert!(!file.await.expect("read").to_lowercase().contains(&token[6..66]), "the token itself is not stored");
    }

    #[tokio::test]
    async fn tokens_differ() {
        let store = Store::in_memory().expect("opened");
        let mut made = Vec::new();
        for _ in 0..20 {
            made.push(make_token(&store, request(ApiScope::Write), Timestamp(1)).await.expect("made").expect("one").0);
        }
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), 20);
    }
}
