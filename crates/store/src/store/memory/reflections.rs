//! Reflections of iterations, for later iterations of the same loop.

use crate::domain::knowledge::memory::{Reflection, ReflectionChange};
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};
use crate::process::Masker;
use crate::store::sql::{Connection, OptionalExtension, params};
use crate::store::{StoreResult, audit};

/// Loop and iteration of a reflection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReflectionRef {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// 1-based iteration.
    pub iteration: u32,
}

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

/// Applies a person's change to the reflection of an iteration, masks its secrets, and records the change in the loop's audit
/// log. `by` names the person. Returns the new reflection; `None` if there is none.
pub fn edit_reflection(
    c: &Connection,
    masker: &Masker,
    of: &ReflectionRef,
    change: &ReflectionChange,
    by: &str,
    now: Timestamp,
) -> StoreResult<Option<Reflection>> {
    let sql = "SELECT data FROM reflections WHERE loop_id = ?1 AND iteration = ?2";
    let key = params![of.loop_id.as_str(), of.iteration];
    let Some(data) = c.prepare_cached(sql)?.query_row(key, |row| row.get::<_, String>(0)).optional()? else {
        return Ok(None);
    };
    let edited = serde_json::from_str::<Reflection>(&data)?.changed(change, by);
    add_reflection(c, masker, &of.loop_id, &edited, now)?;
    record(c, of, &format!("{by} edited the reflection on iteration {}", of.iteration), now)?;
    let stored: String = c.prepare_cached(sql)?.query_row(key, |row| row.get(0))?;
    Ok(Some(serde_json::from_str(&stored)?))
}

/// Removes the reflection of an iteration, and records the removal in the loop's audit log. `by` names the person. Returns
/// `false` if there is none.
pub fn remove_reflection(c: &Connection, of: &ReflectionRef, by: &str, now: Timestamp) -> StoreResult<bool> {
    let sql = "DELETE FROM reflections WHERE loop_id = ?1 AND iteration = ?2";
    let removed = c.prepare_cached(sql)?.execute(params![of.loop_id.as_str(), of.iteration])? > 0;
    if removed {
        record(c, of, &format!("{by} removed the reflection on iteration {}", of.iteration), now)?;
    }
    Ok(removed)
}

fn record(c: &Connection, of: &ReflectionRef, reason: &str, now: Timestamp) -> StoreResult<()> {
    let entry = AuditEntry::new(of.iteration, AuditEvent::ReflectionChanged, reason.to_owned());
    audit::append(c, &of.loop_id, &[entry], now)
}
