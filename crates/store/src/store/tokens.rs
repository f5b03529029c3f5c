//! Personal API tokens. The database contains only their digests.

use super::StoreResult;
use crate::domain::model::ids::{AccountKind, ForgeName, Timestamp, User, UserId};
use crate::store::sql::{Connection, OptionalExtension, Row, SqlResult, params};

/// Minimum time between two records of a token's use, in milliseconds; it avoids a write for every request.
const USE_STEP_MS: i64 = 60_000;
/// Maximum number of valid tokens per account.
pub const MAX_TOKENS: usize = 50;

/// Owner of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOwner {
    /// Account on its forge; `None` for the operator of the machine.
    pub account: Option<(ForgeName, User)>,
    /// Whether the owner can see all repositories.
    pub operator: bool,
}

/// Permissions of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApiScope {
    /// Read the data visible to the owner.
    Read,
    /// Read, and make changes within the owner's permissions.
    Write,
}

impl ApiScope {
    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Stored token without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredToken {
    /// Number of the token.
    pub id: i64,
    /// Name that the owner chose.
    pub name: String,
    /// Last four characters of the token.
    pub hint: String,
    /// Owner of the token.
    pub owner: TokenOwner,
    /// Permissions.
    pub scope: ApiScope,
    /// Time of creation.
    pub created_at: Timestamp,
    /// End of its validity.
    pub expires_at: Timestamp,
    /// Time of the last use, to the minute; `None` if it was never used.
    pub used_at: Option<Timestamp>,
    /// Time of revocation; `None` if the token is not revoked.
    pub revoked_at: Option<Timestamp>,
}

impl StoredToken {
    /// Whether the token is valid at `now`.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && now < self.expires_at
    }
}

/// Token to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRequest {
    /// Name of the token.
    pub name: String,
    /// Owner of the token.
    pub owner: TokenOwner,
    /// Permissions.
    pub scope: ApiScope,
    /// End of its validity.
    pub expires_at: Timestamp,
}

const COLUMNS: &str =
    "id, name, hint, forge, account_id, login, kind, operator, scope, created_at, expires_at, used_at, revoked_at";

fn read(row: &Row<'_>) -> SqlResult<StoredToken> {
    let (forge, account): (Option<String>, Option<i64>) = (row.get(3)?, row.get(4)?);
    let (login, kind): (String, String) = (row.get(5)?, row.get(6)?);
    let kind = if kind == "bot" { AccountKind::Bot } else { AccountKind::User };
    let account = forge.zip(account).map(|(forge, id)| (ForgeName::new(forge), User { id: UserId(id), login, kind }));
    let scope: String = row.get(8)?;
    Ok(StoredToken {
        id: row.get(0)?,
        name: row.get(1)?,
        hint: row.get(2)?,
        owner: TokenOwner { account, operator: row.get(7)? },
        // An unknown scope grants the fewest permissions.
        scope: if scope == "write" { ApiScope::Write } else { ApiScope::Read },
        created_at: Timestamp(row.get(9)?),
        expires_at: Timestamp(row.get(10)?),
        used_at: row.get::<_, Option<i64>>(11)?.map(Timestamp),
        revoked_at: row.get::<_, Option<i64>>(12)?.map(Timestamp),
    })
}

/// Stores a token by its digest and last characters. Returns `None` if the owner already has the maximum number of
/// valid tokens.
pub fn add(
    c: &Connection,
    request: &TokenRequest,
    digest: &[u8; 32],
    hint: &str,
    now: Timestamp,
) -> StoreResult<Option<StoredToken>> {
    let valid = of_owner(c, &request.owner)?.iter().filter(|token| token.is_valid(now)).count();
    if valid >= MAX_TOKENS {
        return Ok(None);
    }
    let (forge, account) = key(&request.owner);
    let user = request.owner.account.as_ref().map(|(_, user)| user);
    let login = user.map_or("the operator", |user| user.login.as_str());
    let kind = if user.is_some_and(|user| user.kind == AccountKind::Bot) { "bot" } else { "user" };
    let sql = format!(
        "INSERT INTO tokens (digest, hint, name, forge, account_id, login, kind, operator, scope, created_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) RETURNING {COLUMNS}"
    );
    let scope = request.scope.as_str();
    let row = params![
        digest.as_slice(),
        hint,
        request.name,
        forge,
        account,
        login,
        kind,
        request.owner.operator,
        scope,
        now.0,
        request.expires_at.0
    ];
    Ok(Some(c.query_row(&sql, row, read)?))
}

/// Returns the tokens of an owner including invalid ones, newest first.
pub fn of_owner(c: &Connection, owner: &TokenOwner) -> StoreResult<Vec<StoredToken>> {
    let sql = format!("SELECT {COLUMNS} FROM tokens WHERE forge IS ?1 AND account_id IS ?2 ORDER BY id DESC");
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(key(owner), read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the valid token with this digest; `None` if there is none.
pub fn find(c: &Connection, digest: &[u8; 32], now: Timestamp) -> StoreResult<Option<StoredToken>> {
    let sql = format!("SELECT {COLUMNS} FROM tokens WHERE digest = ?1");
    let found = c.prepare_cached(&sql)?.query_row([digest.as_slice()], read).optional()?;
    Ok(found.filter(|token| token.is_valid(now)))
}

/// Whether the token with this number is valid at `now`.
pub fn is_valid(c: &Connection, id: i64, now: Timestamp) -> StoreResult<bool> {
    let sql = format!("SELECT {COLUMNS} FROM tokens WHERE id = ?1");
    let found = c.prepare_cached(&sql)?.query_row([id], read).optional()?;
    Ok(found.is_some_and(|token| token.is_valid(now)))
}

/// Whether a recent record makes it unnecessary to record a use of the token at `now`.
pub fn is_use_recorded(token: &StoredToken, now: Timestamp) -> bool {
    token.used_at.is_some_and(|at| now.since(at) < USE_STEP_MS)
}

/// Records the use of a token.
pub fn used(c: &Connection, id: i64, now: Timestamp) -> StoreResult<()> {
    c.prepare_cached("UPDATE tokens SET used_at = ?2 WHERE id = ?1")?.execute(params![id, now.0])?;
    Ok(())
}

/// Revokes an owner's token; returns `false` if the owner has no valid token with this number.
pub fn revoke(c: &Connection, owner: &TokenOwner, id: i64, now: Timestamp) -> StoreResult<bool> {
    let (forge, account) = key(owner);
    let sql = "UPDATE tokens SET revoked_at = ?4
        WHERE id = ?1 AND forge IS ?2 AND account_id IS ?3 AND revoked_at IS NULL AND expires_at > ?4";
    Ok(c.execute(sql, params![id, forge, account, now.0])? > 0)
}

/// Deletes tokens that expired before `before`; returns their number.
pub fn purge(c: &Connection, before: Timestamp) -> StoreResult<usize> {
    Ok(c.execute("DELETE FROM tokens WHERE coalesce(revoked_at, expires_at) < ?1", [before.0])?)
}

fn key(owner: &TokenOwner) -> (Option<String>, Option<i64>) {
    owner.account.as_ref().map(|(forge, user)| (forge.as_str().to_owned(), user.id.0)).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    const DAY: i64 = 86_400_000;

    fn owner(id: i64) -> TokenOwner {
        let user = User { id: UserId(id), login: format!("user{id}"), kind: AccountKind::User };
        TokenOwner { account: Some((ForgeName::new("f"), user)), operator: false }
    }

    fn request(owner: TokenOwner) -> TokenRequest {
        TokenRequest { name: "ci".into(), owner, scope: ApiScope::Write, expires_at: Timestamp(DAY) }
    }

    async fn added(store: &Store, owner: TokenOwner, digest: u8) -> StoredToken {
        let added = store.write(move |c| add(c, &request(owner), &[digest; 32], "abcd", Timestamp(1)));
        added.await.expect("stored").expect("not too many")
    }

    async fn found(store: &Store, digest: u8, now: i64) -> Option<i64> {
        let found = store.read(move |c| find(c, &[digest; 32], Timestamp(now))).await.expect("read");
        found.map(|token| token.id)
    }

    #[tokio::test]
    async fn token_is_found_by_its_digest_until_it_ends() {
        let store = Store::in_memory().expect("opened");
        let operator = TokenOwner { account: None, operator: true };
        let (of_user, of_operator) = (added(&store, owner(7), 1).await, added(&store, operator.clone(), 2).await);
        assert_eq!(of_user.owner, owner(7));
        assert_eq!(of_operator.owner, operator);
        assert_eq!(found(&store, 1, DAY - 1).await, Some(of_user.id));
        assert_eq!(found(&store, 1, DAY).await, None, "expired");
        assert_eq!(found(&store, 3, 2).await, None, "unknown");
    }

    #[tokio::test]
    async fn only_the_owner_revokes_and_lists_a_token() {
        let store = Store::in_memory().expect("opened");
        let token = added(&store, owner(7), 1).await;
        let id = token.id;
        let revoke_by = |by: TokenOwner| store.write(move |c| revoke(c, &by, id, Timestamp(5)));
        assert!(!revoke_by(owner(8)).await.expect("asked"));
        assert!(!revoke_by(TokenOwner { account: None, operator: true }).await.expect("asked"));
        assert_eq!(found(&store, 1, 6).await, Some(id));
        let valid = |id: i64, now: i64| store.read(move |c| is_valid(c, id, Timestamp(now)));
        assert!(valid(id, 6).await.expect("read") && !valid(id, DAY).await.expect("read"), "until it expires");
        assert!(!valid(id + 1, 6).await.expect("read"), "unknown");
        assert!(revoke_by(owner(7)).await.expect("asked"));
        assert!(!revoke_by(owner(7)).await.expect("asked"), "once");
        assert_eq!(found(&store, 1, 6).await, None);
        assert!(!valid(id, 6).await.expect("read"), "revoked");
        let listed = store.read(|c| of_owner(c, &owner(7))).await.expect("read");
        assert_eq!(listed.iter().map(|token| token.revoked_at).collect::<Vec<_>>(), [Some(Timestamp(5))]);
        assert!(store.read(|c| of_owner(c, &owner(8))).await.expect("read").is_empty());
        assert_eq!(store.write(|c| purge(c, Timestamp(6))).await.expect("purged"), 1);
    }

    #[tokio::test]
    async fn use_is_recorded_once_a_minute() {
        let store = Store::in_memory().expect("opened");
        let mut token = added(&store, owner(7), 1).await;
        assert!(!is_use_recorded(&token, Timestamp(10)));
        store.write(move |c| used(c, token.id, Timestamp(10))).await.expect("recorded");
        token = store.read(|c| find(c, &[1; 32], Timestamp(11))).await.expect("read").expect("valid");
        assert!(is_use_recorded(&token, Timestamp(11)) && !is_use_recorded(&token, Timestamp(10 + USE_STEP_MS)));
    }

    #[tokio::test]
    async fn number_of_valid_tokens_of_an_account_is_bounded() {
        let store = Store::in_memory().expect("opened");
        for digest in 0..MAX_TOKENS {
            added(&store, owner(7), digest as u8).await;
        }
        let one_more = |now: i64| {
            store.write(move |c| Ok(add(c, &request(owner(7)), &[now as u8; 32], "abcd", Timestamp(now))?.is_some()))
        };
        assert!(!one_more(99).await.expect("asked"));
        store.write(|c| revoke(c, &owner(7), 1, Timestamp(3)).map(drop)).await.expect("revoked");
        assert!(one_more(100).await.expect("asked"));
    }
}
