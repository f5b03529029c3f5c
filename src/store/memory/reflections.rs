//! What iterations say to the next ones of their loop.

use rusqlite::{Connection, params};

use crate::domain::knowledge::memory::Reflection;
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::process::Masker;
use crate::store::StoreResult;

/// Keeps an iteration's reflection, masked; a second one of the same iteration replaces it.
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

/// The newest reflections of a loop, oldest first. One that cannot be read is left out.
pub fn reflections(c: &Connection, id: &LoopId, count: usize) -> StoreResult<Vec<Reflection>> {
    let sql = "SELECT data FROM reflections WHERE loop_id = ?1 ORDER BY iteration DESC LIMIT ?2";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map(params![id.as_str(), count as i64], |row| row.get::<_, String>(0))?;
    let mut found = Vec::new();
    for row in rows {
        match serde_json::from_str(&row?) {
            Ok(reflection) => found.push(reflection),
            Err(error) => tracing::warn!(loop_id = %id, %error, "a reflection cannot be read and is left out"),
        }
    }
    found.reverse();
    Ok(found)
}
