//! Who works on what. A lease ends by itself; its fence tells work done under an older one.

use rusqlite::{Connection, OptionalExtension, params};

use super::{StoreError, StoreResult};
use crate::domain::model::ids::Timestamp;

/// Takes a free or ended lease; the new fence, or `None` where somebody holds it.
pub fn take(c: &Connection, name: &str, owner: &str, now: Timestamp, until: Timestamp) -> StoreResult<Option<i64>> {
    let mut statement = c.prepare_cached(
        "INSERT INTO leases (name, owner, fence, expires_at) VALUES (?1, ?2, 1, ?4)
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = leases.fence + 1, expires_at = excluded.expires_at
         WHERE leases.expires_at <= ?3
         RETURNING fence",
    )?;
    Ok(statement.query_row(params![name, owner, now.0, until.0], |row| row.get(0)).optional()?)
}

/// Errors with `Fenced` unless `owner` holds the lease under this fence.
pub fn check(c: &Connection, name: &str, owner: &str, fence: i64) -> StoreResult<()> {
    let sql = "SELECT 1 FROM leases WHERE name = ?1 AND owner = ?2 AND fence = ?3";
    let held = c.query_row(sql, params![name, owner, fence], |_| Ok(())).optional()?;
    held.ok_or_else(|| StoreError::Fenced { name: name.to_owned() })
}

/// Prolongs all leases of an owner that have not ended; how many.
pub fn renew(c: &Connection, owner: &str, now: Timestamp, until: Timestamp) -> StoreResult<usize> {
    let sql = "UPDATE leases SET expires_at = ?3 WHERE owner = ?1 AND expires_at > ?2";
    Ok(c.execute(sql, params![owner, now.0, until.0])?)
}

/// Moves the leases of an owner that had not ended, after its clock was set by so many milliseconds to `now`.
pub fn shift(c: &Connection, owner: &str, by_ms: i64, now: Timestamp) -> StoreResult<usize> {
    let sql = "UPDATE leases SET expires_at = expires_at + ?2 WHERE owner = ?1 AND expires_at > ?3";
    Ok(c.execute(sql, params![owner, by_ms, now.plus_ms(by_ms.saturating_neg()).0])?)
}

/// Gives a lease back.
pub fn release(c: &Connection, name: &str, owner: &str, fence: i64) -> StoreResult<()> {
    let sql = "UPDATE leases SET expires_at = 0 WHERE name = ?1 AND owner = ?2 AND fence = ?3";
    c.execute(sql, params![name, owner, fence])?;
    Ok(())
}

/// Owners of leases that have not ended.
pub fn owners(c: &Connection, now: Timestamp) -> StoreResult<Vec<String>> {
    let mut statement = c.prepare_cached("SELECT DISTINCT owner FROM leases WHERE expires_at > ?1")?;
    let rows = statement.query_map([now.0], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Ends all leases of an owner that is known to be dead.
pub fn end_all(c: &Connection, owner: &str) -> StoreResult<usize> {
    Ok(c.execute("UPDATE leases SET expires_at = 0 WHERE owner = ?1 AND expires_at > 0", [owner])?)
}
