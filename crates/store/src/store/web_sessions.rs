//! Dashboard sessions of people, and started logins. Their keys are digests of the values in cookies and URLs.

use super::StoreResult;
use crate::domain::model::ids::{AccountKind, ForgeName, Timestamp, User, UserId};
use crate::domain::trust::viewer::{SESSION_IDLE_MS, SESSION_MS, session_has_ended};
use crate::store::sql::{Connection, OptionalExtension, params};

/// Maximum number of started logins; the oldest ones are deleted first.
const MAX_LOGINS: i64 = 10_000;
/// Minimum time between two records of a session's use, in milliseconds.
const USE_WRITTEN_MS: i64 = 60_000;

/// Dashboard session of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSession {
    /// Account of the person; `None` if the operator's token was used.
    pub account: Option<(ForgeName, User)>,
    /// Time of the login.
    pub created_at: Timestamp,
    /// Time of the last use, to the minute.
    pub used_at: Timestamp,
}

/// Started login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunLogin {
    /// Digest of the cookie in the browser that started the login.
    pub browser: String,
    /// Forge to which the person was redirected.
    pub forge: ForgeName,
    /// Path to redirect to after the login.
    pub next: String,
    /// Deadline for completing the login.
    pub expires_at: Timestamp,
}

/// Starts a session, and deletes expired sessions.
pub fn start(c: &Connection, id: &str, account: Option<&(ForgeName, User)>, now: Timestamp) -> StoreResult<()> {
    let ended = "DELETE FROM web_sessions WHERE used_at <= ?1 OR created_at <= ?2";
    c.prepare_cached(ended)?.execute(params![now.0 - SESSION_IDLE_MS, now.0 - SESSION_MS])?;
    let sql =
        "INSERT INTO web_sessions (id, forge, user_id, login, created_at, used_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)";
    let (forge, user) = account.map(|(forge, user)| (forge.as_str(), user)).unzip();
    c.prepare_cached(sql)?.execute(params![id, forge, user.map(|u| u.id.0), user.map(|u| &u.login), now.0])?;
    Ok(())
}

/// Returns a session that has not expired at `now`; `None` if there is none.
pub fn find(c: &Connection, id: &str, now: Timestamp) -> StoreResult<Option<WebSession>> {
    let sql = "SELECT forge, user_id, login, created_at, used_at FROM web_sessions WHERE id = ?1";
    let found = c.prepare_cached(sql)?.query_row([id], |row| {
        let (forge, id, login): (Option<String>, Option<i64>, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let user = |id, login| User { id: UserId(id), login, kind: AccountKind::User };
        let account = forge.zip(id).map(|(forge, id)| (ForgeName::new(forge), user(id, login.unwrap_or_default())));
        Ok(WebSession { account, created_at: Timestamp(row.get(3)?), used_at: Timestamp(row.get(4)?) })
    });
    Ok(found.optional()?.filter(|session| !session_has_ended(session.created_at, session.used_at, now)))
}

/// Whether a use of a session at `now` should be recorded.
pub fn is_use_due(session: &WebSession, now: Timestamp) -> bool {
    now.since(session.used_at) >= USE_WRITTEN_MS
}

/// Records the use of a session.
pub fn used(c: &Connection, id: &str, now: Timestamp) -> StoreResult<()> {
    c.prepare_cached("UPDATE web_sessions SET used_at = max(used_at, ?2) WHERE id = ?1")?
        .execute(params![id, now.0])?;
    Ok(())
}

/// Ends a session; does nothing if it does not exist.
pub fn end(c: &Connection, id: &str) -> StoreResult<()> {
    c.execute("DELETE FROM web_sessions WHERE id = ?1", [id])?;
    Ok(())
}

/// Stores a started login under the digest of its OAuth state.
pub fn begin_login(c: &Connection, state: &str, login: &BegunLogin, now: Timestamp) -> StoreResult<()> {
    c.prepare_cached("DELETE FROM web_logins WHERE expires_at <= ?1")?.execute([now.0])?;
    let sql = "INSERT INTO web_logins (state, browser, forge, next, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)";
    c.prepare_cached(sql)?.execute(params![
        state,
        login.browser,
        login.forge.as_str(),
        login.next,
        login.expires_at.0
    ])?;
    let oldest = "DELETE FROM web_logins WHERE state IN (SELECT state FROM web_logins ORDER BY expires_at DESC LIMIT -1 OFFSET ?1)";
    c.prepare_cached(oldest)?.execute([MAX_LOGINS])?;
    Ok(())
}

/// Removes and returns a started login; `None` if it is unknown, was already used, or has expired.
pub fn take_login(c: &Connection, state: &str, now: Timestamp) -> StoreResult<Option<BegunLogin>> {
    let sql = "DELETE FROM web_logins WHERE state = ?1 RETURNING browser, forge, next, expires_at";
    let found = c.prepare_cached(sql)?.query_row([state], |row| {
        let forge = ForgeName::new(row.get::<_, String>(1)?);
        Ok(BegunLogin { browser: row.get(0)?, forge, next: row.get(2)?, expires_at: Timestamp(row.get(3)?) })
    });
    Ok(found.optional()?.filter(|login| now < login.expires_at))
}
