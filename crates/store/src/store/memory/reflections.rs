//! Reflections of iterations, for later iterations of the same loop.

use crate::domain::knowledge::memory::Reflection;
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::process::Masker;
use crate::store::StoreResult;
use crate::store::sql::{Connection, params};

/// Stores an iteration's reflection and masks its secrets; replaces an earlier reflection of the same iteration.
pub fn add_reflection(
    c: &Connection,
    masker: &Masker,
    id: &LoopId,
    reflection: &Reflection,
    now: Timestamp,
) -> StoreResult<()> {
    let mask = |text: &str| masker.mask(text).into_owned();
    let masked = Reflection {
        approach: mask(&reflection.approach),
        failed: mask(&reflection.failed),
        why: mask(&reflection.why),
        next: mask(&reflection.next),
        ..reflection.clone()
    };
    let sql = "INSERT INTO reflections (loop_id, iteration, at, data) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (loop_id, iteration) DO UPDATE SET at = excluded.at, data = excluded.data";
    let row = params![id.as_str(), masked.iteration, now.0, serde_json::to_string(&masked)?];
    c.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// Returns the newest reflections of a loop, oldest first. Skips unreadable ones.
pub fn reflections(c: &Connection, id: &LoopId, count: usize) -> StoreResult<Vec<Reflection>> {
    let sql = "SELECT data FROM reflections WHERE loop_id = ?1 ORDER BY iteration DESC LIMIT ?2";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map(params![id.as_str(), count as i64], |row| row.get::<_, String>(0))?;
    let mut found = Vec::new();
    for row in rows {
        match serde_json::from_str(&row?) {
            Ok(reflection) => found.push(reflection),
            Err(error) => tracing::warn!(loop_id = %id, %error, "cannot read a reflection; it is skipped"),
        }
    }
    found.reverse();
    Ok(found)
}
