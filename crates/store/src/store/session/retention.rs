//! Retention of session memory.

use crate::domain::model::ids::Timestamp;
use crate::store::StoreResult;
use crate::store::sql::{Connection, params};

/// Milliseconds per day.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Maximum number of rows removed per table and call, so that other writes do not wait long.
const AT_ONCE: usize = 2_000;

/// Retention periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRetention {
    /// Number of days to keep turns and events, and the summaries and reflections of finished loops.
    pub days: u32,
    /// Maximum number of turns per loop. The oldest are removed first; summaries are kept.
    pub max_raw_turns: u32,
}

impl Default for SessionRetention {
    fn default() -> Self {
        Self { days: 30, max_raw_turns: 1000 }
    }
}

/// Numbers of removed rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemovedRows {
    /// Number of removed turns.
    pub turns: usize,
    /// Number of removed events.
    pub events: usize,
    /// Number of removed summaries.
    pub summaries: usize,
    /// Number of removed reflections.
    pub reflections: usize,
    /// Whether more rows may remain; call again.
    pub more: bool,
}

/// Removes expired rows, at most 2,000 per table, so that other writes do not wait long.
pub fn apply_retention(c: &Connection, retention: SessionRetention, now: Timestamp) -> StoreResult<RemovedRows> {
    let before = now.plus_ms(-i64::from(retention.days).saturating_mul(DAY_MS)).0;
    super::running::remove_before(c, before)?;
    let old = "SELECT id FROM session_turns WHERE ended_at < ?1 LIMIT ?2";
    let mut turns = remove(c, "session_turns", &ids(c, old, before)?)?;
    turns += remove(c, "session_turns", &surplus(c, retention.max_raw_turns)?)?;
    let old = "SELECT id FROM session_events WHERE at < ?1 LIMIT ?2";
    let events = remove(c, "session_events", &ids(c, old, before)?)?;
    let ended = "SELECT s.id FROM session_summaries s JOIN loops l ON l.id = s.loop_id
        WHERE l.open = 0 AND l.updated_at < ?1 AND s.made_at < ?1 LIMIT ?2";
    let summaries = remove(c, "session_summaries", &ids(c, ended, before)?)?;
    let sql = "DELETE FROM reflections WHERE (loop_id, iteration) IN (
            SELECT r.loop_id, r.iteration FROM reflections r JOIN loops l ON l.id = r.loop_id
            WHERE l.open = 0 AND l.updated_at < ?1 AND r.at < ?1 LIMIT ?2)";
    let reflections = c.prepare_cached(sql)?.execute(params![before, AT_ONCE as i64])?;
    let more = [turns, events, summaries, reflections].into_iter().any(|removed| removed >= AT_ONCE);
    Ok(RemovedRows { turns, events, summaries, reflections, more })
}

fn ids(c: &Connection, sql: &str, before: i64) -> StoreResult<Vec<i64>> {
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map(params![before, AT_ONCE as i64], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the row ids of the oldest turns beyond the maximum number per loop.
fn surplus(c: &Connection, most: u32) -> StoreResult<Vec<i64>> {
    let mut statement = c.prepare_cached(
        "SELECT id FROM (
             SELECT id, row_number() OVER (PARTITION BY loop_id ORDER BY iteration DESC, started_at DESC, id DESC) AS nth
             FROM session_turns WHERE loop_id IN (SELECT loop_id FROM session_turns GROUP BY loop_id HAVING count(*) > ?1)) AS numbered
         WHERE nth > ?1 LIMIT ?2",
    )?;
    let rows = statement.query_map(params![most, AT_ONCE as i64], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Removes rows and their index entries.
fn remove(c: &Connection, table: &str, ids: &[i64]) -> StoreResult<usize> {
    let mut row = c.prepare_cached(&format!("DELETE FROM {table} WHERE id = ?1"))?;
    let mut words = c.prepare_cached(&format!("DELETE FROM {table}_words WHERE rowid = ?1"))?;
    for id in ids {
        row.execute([id])?;
        words.execute([id])?;
    }
    Ok(ids.len())
}
