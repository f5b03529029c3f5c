//! Leases on work. A lease expires by itself. Each acquisition has a new fencing number, which exposes writes under an older
//! lease.
//!
//! Leases expire by the clock of PostgreSQL's server, because hosts may have different clocks. A file belongs to one host, so
//! there the caller's time counts.

use super::{StoreError, StoreResult};
use crate::domain::model::ids::Timestamp;
use crate::store::sql::{Connection, OptionalExtension, params};

/// One acquisition of a lease. A write of the holder first checks that no other acquisition followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseToken {
    /// Name of the lease.
    pub name: String,
    /// Process that acquired it.
    pub owner: String,
    /// Fencing number of the acquisition.
    pub fence: i64,
}

impl LeaseToken {
    /// Checks in a write transaction that the lease still belongs to this acquisition.
    ///
    /// # Errors
    /// `Fenced` if not.
    pub fn check(&self, c: &Connection) -> StoreResult<()> {
        check(c, &self.name, &self.owner, self.fence)
    }

    /// Returns `work` for a write transaction that first checks the lease. The work returns `Fenced` and writes no data if another
    /// process has taken over.
    pub fn guard<T, F>(&self, work: F) -> impl FnOnce(&Connection) -> StoreResult<T> + Send + 'static + use<T, F>
    where
        F: FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    {
        let lease = self.clone();
        move |c| lease.check(c).and_then(|()| work(c))
    }
}

/// Returns the time by which leases expire: the server's, or `now`, which is the caller's, if the database is a file.
pub fn time(c: &Connection, now: Timestamp) -> StoreResult<Timestamp> {
    Ok(c.engine().server_time()?.map_or(now, Timestamp))
}

/// Acquires a free or expired lease for `lease_ms` milliseconds; returns its fencing number, or `None` if another owner holds
/// the lease.
pub fn take(c: &Connection, name: &str, owner: &str, now: Timestamp, lease_ms: i64) -> StoreResult<Option<i64>> {
    let now = time(c, now)?;
    let mut statement = c.prepare_cached(
        "INSERT INTO leases (name, owner, fence, expires_at) VALUES (?1, ?2, 1, ?4)
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = leases.fence + 1, expires_at = excluded.expires_at
         WHERE leases.expires_at <= ?3
         RETURNING fence",
    )?;
    Ok(statement.query_row(params![name, owner, now.0, now.plus_ms(lease_ms).0], |row| row.get(0)).optional()?)
}

/// Checks that `owner` holds the lease with this fencing number.
///
/// # Errors
/// `Fenced` if not.
pub fn check(c: &Connection, name: &str, owner: &str, fence: i64) -> StoreResult<()> {
    let sql = "SELECT 1 FROM leases WHERE name = ?1 AND owner = ?2 AND fence = ?3";
    let held = c.query_row(sql, params![name, owner, fence], |_| Ok(())).optional()?;
    held.ok_or_else(|| StoreError::Fenced { name: name.to_owned() })
}

/// Extends the owner's leases, given by name and fencing number, to `lease_ms` milliseconds from now; returns the names of
/// leases that another owner has taken or that were released. Also extends an expired lease that no other owner took.
pub fn renew(
    c: &Connection,
    owner: &str,
    held: &[(String, i64)],
    now: Timestamp,
    lease_ms: i64,
) -> StoreResult<Vec<String>> {
    let until = time(c, now)?.plus_ms(lease_ms);
    let sql = "UPDATE leases SET expires_at = ?4 WHERE name = ?1 AND owner = ?2 AND fence = ?3 AND expires_at > 0";
    let mut statement = c.prepare_cached(sql)?;
    let mut lost = Vec::new();
    for (name, fence) in held {
        if statement.execute(params![name, owner, fence, until.0])? == 0 {
            lost.push(name.clone());
        }
    }
    Ok(lost)
}

/// Shifts the unexpired leases of an owner by `by_ms` milliseconds after a change of the clock to `now`; returns their
/// number. Leases by a server's clock stay as they are.
pub fn shift(c: &Connection, owner: &str, by_ms: i64, now: Timestamp) -> StoreResult<usize> {
    if c.engine().server_time()?.is_some() {
        return Ok(0);
    }
    let sql = "UPDATE leases SET expires_at = expires_at + ?2 WHERE owner = ?1 AND expires_at > ?3";
    Ok(c.execute(sql, params![owner, by_ms, now.plus_ms(by_ms.saturating_neg()).0])?)
}

/// Releases a lease.
pub fn release(c: &Connection, name: &str, owner: &str, fence: i64) -> StoreResult<()> {
    let sql = "UPDATE leases SET expires_at = 0 WHERE name = ?1 AND owner = ?2 AND fence = ?3";
    c.execute(sql, params![name, owner, fence])?;
    Ok(())
}

/// Returns the owners of unexpired leases.
pub fn owners(c: &Connection, now: Timestamp) -> StoreResult<Vec<String>> {
    let now = time(c, now)?;
    let mut statement = c.prepare_cached("SELECT DISTINCT owner FROM leases WHERE expires_at > ?1")?;
    let rows = statement.query_map([now.0], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Expires all leases of a dead owner; returns their number.
pub fn end_all(c: &Connection, owner: &str) -> StoreResult<usize> {
    Ok(c.execute("UPDATE leases SET expires_at = 0 WHERE owner = ?1 AND expires_at > 0", [owner])?)
}
