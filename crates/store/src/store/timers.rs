//! Timers of loops. A due timer becomes an input of its loop.

use super::StoreResult;
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::store::sql::{Connection, OptionalExtension, params};

/// Sets or moves a timer.
pub fn set(c: &Connection, id: &LoopId, kind: &str, due_at: Timestamp) -> StoreResult<()> {
    let sql = "INSERT INTO timers (loop_id, kind, due_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (loop_id, kind) DO UPDATE SET due_at = excluded.due_at";
    c.execute(sql, params![id.as_str(), kind, due_at.0])?;
    Ok(())
}

/// Returns the time of a timer; `None` if it is not set.
pub fn due(c: &Connection, id: &LoopId, kind: &str) -> StoreResult<Option<Timestamp>> {
    let sql = "SELECT due_at FROM timers WHERE loop_id = ?1 AND kind = ?2";
    let at: Option<i64> = c.query_row(sql, [id.as_str(), kind], |row| row.get(0)).optional()?;
    Ok(at.map(Timestamp))
}

/// Removes a timer; does nothing if it is not set.
pub fn clear(c: &Connection, id: &LoopId, kind: &str) -> StoreResult<()> {
    c.execute("DELETE FROM timers WHERE loop_id = ?1 AND kind = ?2", [id.as_str(), kind])?;
    Ok(())
}

/// Removes and returns the timers that are due.
pub fn take_due(c: &Connection, now: Timestamp) -> StoreResult<Vec<(LoopId, String, Timestamp)>> {
    let mut statement = c.prepare_cached("DELETE FROM timers WHERE due_at <= ?1 RETURNING loop_id, kind, due_at")?;
    let rows = statement
        .query_map([now.0], |row| Ok((LoopId::new(row.get::<_, String>(0)?), row.get(1)?, Timestamp(row.get(2)?))))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the time of the next timer.
pub fn next_due(c: &Connection) -> StoreResult<Option<Timestamp>> {
    let at: Option<i64> = c.query_row("SELECT min(due_at) FROM timers", params![], |row| row.get(0))?;
    Ok(at.map(Timestamp))
}
