//! Audit log of changes through the dashboard and the API: the person, the request, its address and its result. Rows
//! can only be added.

use std::net::IpAddr;

use serde::Serialize;

use super::{StoreError, StoreResult};
use crate::domain::model::ids::{ForgeName, Timestamp, User};
use crate::store::sql::{Connection, params};

/// Maximum length of a stored path, in characters.
const MAX_PATH: usize = 300;
/// Login stored for the machine's operator, who has no account.
const OPERATOR: &str = "operator";

/// Authentication of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessVia {
    /// Login: the request starts a session.
    Login,
    /// Session of a browser.
    Session,
    /// Token printed by `ralph-bot serve`.
    PrintedToken,
    /// Personal token with this name.
    PersonalToken(String),
}

impl AccessVia {
    /// Returns the stored word for the authentication, and the name of the personal token, if any.
    fn words(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Login => ("login", None),
            Self::Session => ("session", None),
            Self::PrintedToken => ("printed token", None),
            Self::PersonalToken(name) => ("personal token", Some(name)),
        }
    }
}

/// Request that makes a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRequest {
    /// Account; `None` for the operator of the machine.
    pub account: Option<(ForgeName, User)>,
    /// IP address of the client.
    pub from: IpAddr,
    /// Authentication.
    pub via: AccessVia,
    /// HTTP method.
    pub method: String,
    /// Path without its query; cut after 300 characters.
    pub path: String,
}

/// Row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccessRow {
    /// Position of the row; later rows have greater positions.
    pub id: i64,
    /// Time of the request, in milliseconds since 1970.
    pub at: i64,
    /// Name of the account's forge; `None` for the operator of the machine.
    pub forge: Option<String>,
    /// Numeric id of the account; `None` for the operator of the machine.
    pub account_id: Option<i64>,
    /// Login of the account at the time of the request.
    pub login: String,
    /// IP address.
    pub address: String,
    /// `login`, `session`, `printed token` or `personal token`.
    pub via: String,
    /// Name of the personal token; `None` if none was used.
    pub token: Option<String>,
    /// HTTP method.
    pub method: String,
    /// Path without its query.
    pub path: String,
    /// HTTP status of the response; `None` while the request runs or if it was interrupted.
    pub status: Option<u16>,
}

/// Stores a request before it changes anything; returns the position of its row.
pub fn begin(c: &Connection, request: &AccessRequest, now: Timestamp) -> StoreResult<i64> {
    let (forge, user) = request.account.as_ref().map(|(forge, user)| (forge.as_str(), user)).unzip();
    let login = user.map_or(OPERATOR, |user| user.login.as_str());
    let path: String = request.path.chars().take(MAX_PATH).collect();
    let (via, token) = request.via.words();
    let sql = "INSERT INTO access_audit (at, forge, account_id, login, address, via, token, method, path)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let id = user.map(|user| user.id.0);
    let from = request.from.to_string();
    let row = params![now.0, forge, id, login, from, via, token, request.method, path];
    let added = c.prepare_cached(sql)?.insert(row)?;
    added.ok_or_else(|| StoreError::Bug { detail: "a request was not recorded".into() })
}

/// Stores the response status of a request.
///
/// # Errors
/// The row already has a status.
pub fn finish(c: &Connection, id: i64, status: u16) -> StoreResult<()> {
    c.prepare_cached("UPDATE access_audit SET status = ?2 WHERE id = ?1")?.execute(params![id, status])?;
    Ok(())
}

/// Returns up to `most` rows before a position, newest first; without a position, the newest rows.
pub fn newest(c: &Connection, before: Option<i64>, most: usize) -> StoreResult<Vec<AccessRow>> {
    newest_of(c, None, before, most)
}

/// Returns rows like [`newest`]. With a login, returns only this account's rows and ignores letter case.
pub fn newest_of(c: &Connection, login: Option<&str>, before: Option<i64>, most: usize) -> StoreResult<Vec<AccessRow>> {
    let sql = "SELECT id, at, forge, account_id, login, address, via, token, method, path, status FROM access_audit
        WHERE id < ?1 AND (CAST(?3 AS TEXT) IS NULL OR lower(login) = lower(?3)) ORDER BY id DESC LIMIT ?2";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map(params![before.unwrap_or(i64::MAX), most as i64, login], |row| {
        Ok(AccessRow {
            id: row.get(0)?,
            at: row.get(1)?,
            forge: row.get(2)?,
            account_id: row.get(3)?,
            login: row.get(4)?,
            address: row.get(5)?,
            via: row.get(6)?,
            token: row.get(7)?,
            method: row.get(8)?,
            path: row.get(9)?,
            status: row.get(10)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::domain::model::ids::{AccountKind, UserId};
    use crate::store::Store;

    fn request(path: &str) -> AccessRequest {
        AccessRequest {
            account: Some((
                ForgeName::new("work"),
                User { id: UserId(7), login: "ann".into(), kind: AccountKind::User },
            )),
            from: Ipv4Addr::LOCALHOST.into(),
            via: AccessVia::PersonalToken("ci".into()),
            method: "POST".into(),
            path: path.into(),
        }
    }

    #[tokio::test]
    async fn rows_get_their_status_once_and_are_never_changed_or_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("ralph.db")).expect("a store");
        let long = format!("/{}", "x".repeat(2 * MAX_PATH));
        let added = store.write(move |c| {
            let first = begin(c, &request("/loops/r-1/commands"), Timestamp(1))?;
            let operator = AccessRequest { account: None, via: AccessVia::Session, ..request(&long) };
            begin(c, &operator, Timestamp(2))?;
            finish(c, first, 303)?;
            Ok(first)
        });
        let first = added.await.expect("stored");
        for sql in [
            "UPDATE access_audit SET status = 500 WHERE id = ?1",
            "UPDATE access_audit SET login = 'eve' WHERE id = ?1 OR id <> ?1",
            "DELETE FROM access_audit WHERE id = ?1",
        ] {
            let changed = store.write(move |c| Ok(c.execute(sql, [first])?)).await;
            let error = changed.expect_err(sql).to_string();
            assert!(error.contains("the audit is only added to"), "{sql}: {error}");
        }
        let rows = store.read(|c| Ok((newest(c, None, 9)?, newest(c, Some(2), 9)?))).await.expect("read");
        assert_eq!((rows.0.len(), &rows.1[..]), (2, &rows.0[1..]));
        let of = |login: &'static str| store.read(move |c| newest_of(c, Some(login), None, 9));
        assert_eq!(of("ANN").await.expect("read"), rows.0[1..]);
        assert_eq!(of(OPERATOR).await.expect("read"), rows.0[..1]);
        assert_eq!(of("an").await.expect("read"), []);
        let (operator, ann) = (&rows.0[0], &rows.0[1]);
        assert_eq!((operator.login.as_str(), operator.account_id, operator.status), (OPERATOR, None, None));
        assert_eq!(operator.path.len(), MAX_PATH);
        assert_eq!((ann.forge.as_deref(), ann.account_id, ann.login.as_str()), (Some("work"), Some(7), "ann"));
        assert_eq!((ann.via.as_str(), ann.token.as_deref(), ann.status), ("personal token", Some("ci"), Some(303)));
        assert_eq!((ann.address.as_str(), ann.path.as_str()), ("127.0.0.1", "/loops/r-1/commands"));
        store.close().await;
    }
}
