//! Session memory: turns, events and summaries of each loop, with full-text search and retention.
//!
//! Texts are stored unchanged, so callers must mask secrets first. [`NewTurn`] and [`NewEvent`] compress long texts when
//! they are created, which relieves the single writer thread. A row's loop is stored in its table; the column `scope` of the
//! indexes only makes searches faster.

mod everywhere;
mod packed;
mod retention;
mod running;
mod search;
#[cfg(test)]
mod tests;
mod words;

use std::ops::RangeInclusive;

use ralph_types::failure::Failure;

use super::{StoreError, StoreResult};
use crate::domain::knowledge::intelligence::ToolUse;
use crate::domain::knowledge::session::{EventKind, RunningTurn, SessionEvent, SessionSummary, SessionTurn, TurnRole};
use crate::domain::model::ids::{LoopId, Money, Timestamp};
use crate::store::sql::{Connection, OptionalExtension, Row, ValueRef, params};
use packed::{Packed, indexed, shortened};

pub use everywhere::{
    FoundTexts, MaskText, SearchedText, SnippetPart, TextHit, TextKind, TextPosition, TextQuery, TextRow, search_texts,
    source_of,
};
pub use retention::{RemovedRows, SessionRetention, apply_retention};
pub use running::{NewRunningTurn, RunBatch, add_batch, begin_turn, cut_turn, end_turn, running_turn};
pub use search::search;
pub(super) use words::index_all;

/// Maximum size of a stored prompt or answer, in bytes; a longer one keeps its start and end.
const MAX_TEXT: usize = 1 << 20;
/// Maximum size of an event's stored text, in bytes.
const MAX_EVENT: usize = 16 * 1024;

/// Turn that is ready to be stored.
#[derive(Debug, Clone)]
pub struct NewTurn {
    turn: SessionTurn,
    prompt: Packed,
    response: Packed,
}

impl NewTurn {
    /// Compresses a turn with masked secrets. Omits the middle of texts longer than 1 MiB.
    pub fn pack(mut turn: SessionTurn) -> Self {
        turn.prompt = shortened(std::mem::take(&mut turn.prompt), MAX_TEXT);
        turn.response = shortened(std::mem::take(&mut turn.response), MAX_TEXT);
        let (prompt, response) = (Packed::new(&turn.prompt), Packed::new(&turn.response));
        turn.prompt = indexed(&turn.prompt);
        turn.response = indexed(&turn.response);
        Self { turn, prompt, response }
    }
}

/// Event that is ready to be stored.
#[derive(Debug, Clone)]
pub struct NewEvent {
    event: SessionEvent,
    text: Packed,
}

impl NewEvent {
    /// Compresses an event with masked secrets. Omits the middle of texts longer than 16 KiB.
    pub fn pack(mut event: SessionEvent) -> Self {
        event.text = shortened(std::mem::take(&mut event.text), MAX_EVENT);
        let text = Packed::new(&event.text);
        Self { event, text }
    }
}

/// Adds a turn; returns `false` if a turn with the same iteration, attempt, role and start is already stored.
pub fn add_turn(c: &Connection, id: &LoopId, new: &NewTurn) -> StoreResult<bool> {
    let NewTurn { turn, prompt, response } = new;
    let mut insert = c.prepare_cached(
        "INSERT INTO session_turns (loop_id, iteration, attempt, role, prompt, response, backend, model, tokens_in,
             tokens_out, tokens_cached, cost, estimated, error, learnings, started_at, ended_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
         ON CONFLICT DO NOTHING",
    )?;
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let row = params![
        id.as_str(),
        turn.iteration,
        turn.attempt,
        turn.role.as_str(),
        prompt,
        response,
        turn.backend,
        turn.model,
        count(turn.tokens_in),
        count(turn.tokens_out),
        count(turn.tokens_cached),
        turn.cost.0,
        turn.estimated,
        turn.error,
        serde_json::to_string(&turn.learnings)?,
        turn.started.0,
        turn.ended.0,
    ];
    let Some(added) = insert.insert(row)? else { return Ok(false) };
    words::index_turn(c, added, id, turn)?;
    Ok(true)
}

/// Adds events, oldest first.
pub fn add_events(c: &Connection, id: &LoopId, events: &[NewEvent]) -> StoreResult<()> {
    let mut insert = c.prepare_cached(
        "INSERT INTO session_events (loop_id, iteration, kind, tool, path, text, failed, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for NewEvent { event, text } in events {
        let SessionEvent { iteration, kind, tool, path, failed, at, .. } = event;
        let added = insert.insert(params![id.as_str(), iteration, kind.as_str(), tool, path, text, failed, at.0])?;
        if let Some(added) = added {
            words::index_event(c, added, id, event)?;
        }
    }
    Ok(())
}

/// Adds a summary with masked secrets; replaces an existing summary of the same iterations.
pub fn add_summary(c: &Connection, id: &LoopId, summary: &SessionSummary) -> StoreResult<()> {
    let find = "SELECT id FROM session_summaries WHERE loop_id = ?1 AND from_iteration = ?2 AND to_iteration = ?3";
    let key = params![id.as_str(), summary.from, summary.to];
    let old: Option<i64> = c.query_row(find, key, |row| row.get(0)).optional()?;
    if let Some(old) = old {
        c.execute("DELETE FROM session_summaries WHERE id = ?1", [old])?;
        c.execute("DELETE FROM session_summaries_words WHERE rowid = ?1", [old])?;
    }
    let insert = "INSERT INTO session_summaries (loop_id, from_iteration, to_iteration, data, failed, made_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let data = serde_json::to_string(summary)?;
    let failed = !summary.errors.is_empty();
    let row = params![id.as_str(), summary.from, summary.to, data, failed, summary.made_at.0];
    match c.prepare(insert)?.insert(row)? {
        Some(added) => words::index_summary(c, added, id, summary),
        None => Ok(()),
    }
}

/// Returns the turns of some iterations, in order.
pub fn turns(c: &Connection, id: &LoopId, iterations: RangeInclusive<u32>) -> StoreResult<Vec<SessionTurn>> {
    let mut statement = c.prepare_cached(
        &format!("SELECT {TURN_COLUMNS}
         FROM session_turns WHERE loop_id = ?1 AND iteration BETWEEN ?2 AND ?3 ORDER BY iteration, attempt, started_at, id"),
    )?;
    let mut rows = statement.query(params![id.as_str(), iterations.start(), iterations.end()])?;
    let mut turns = Vec::new();
    while let Some(row) = rows.next()? {
        turns.push(turn(&row)?);
    }
    Ok(turns)
}

/// Columns of [`turn`].
const TURN_COLUMNS: &str =
    "iteration, attempt, role, prompt, response, backend, model, tokens_in, tokens_out, tokens_cached, cost,
    estimated, error, learnings, started_at, ended_at";

fn turn(row: &Row<'_>) -> StoreResult<SessionTurn> {
    let count = |at: usize| row.get::<_, i64>(at).map(|count| count.max(0) as u64);
    Ok(SessionTurn {
        iteration: row.get(0)?,
        attempt: row.get(1)?,
        role: role(&row.get::<_, String>(2)?)?,
        prompt: packed::text(row.get_ref(3)?)?,
        response: packed::text(row.get_ref(4)?)?,
        backend: row.get(5)?,
        model: row.get(6)?,
        tokens_in: count(7)?,
        tokens_out: count(8)?,
        tokens_cached: count(9)?,
        cost: Money(row.get(10)?),
        estimated: row.get(11)?,
        error: row.get(12)?,
        learnings: serde_json::from_str(&row.get::<_, String>(13)?)?,
        started: Timestamp(row.get(14)?),
        ended: Timestamp(row.get(15)?),
    })
}

fn role(name: &str) -> StoreResult<TurnRole> {
    let known = [TurnRole::Agent, TurnRole::Assistant].into_iter().find(|role| role.as_str() == name);
    known.ok_or_else(|| StoreError::Bug { detail: format!("{name:?} is not a role of a turn").into() })
}

/// Returns the events of some iterations, in order.
pub fn events(c: &Connection, id: &LoopId, iterations: RangeInclusive<u32>) -> StoreResult<Vec<SessionEvent>> {
    let mut statement = c.prepare_cached(&format!(
        "SELECT {EVENT_COLUMNS} FROM session_events
         WHERE loop_id = ?1 AND iteration BETWEEN ?2 AND ?3 ORDER BY iteration, id"
    ))?;
    let mut rows = statement.query(params![id.as_str(), iterations.start(), iterations.end()])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(event(&row)?);
    }
    Ok(events)
}

/// Stored data of an iteration: its turns, its events, and the turn of its running agent, if any.
pub type OfIteration = (Vec<SessionTurn>, Vec<SessionEvent>, Option<RunningTurn>);

/// Returns the stored data of an iteration.
pub fn of_iteration(c: &Connection, id: &LoopId, number: u32) -> StoreResult<OfIteration> {
    let (turns, events) = (turns(c, id, number..=number)?, events(c, id, number..=number)?);
    Ok((turns, events, running_turn(c, id, number)?))
}

/// Reads a text that may be stored compressed.
pub(super) fn stored_text(stored: ValueRef<'_>) -> StoreResult<String> {
    packed::text(stored)
}

/// Columns of [`event`].
const EVENT_COLUMNS: &str = "iteration, kind, tool, path, text, failed, at";

/// Reads an event from seven columns: iteration, kind, tool, path, text, failed, at.
pub(super) fn event(row: &Row<'_>) -> StoreResult<SessionEvent> {
    let kind: String = row.get(1)?;
    Ok(SessionEvent {
        iteration: row.get(0)?,
        kind: kind.parse().map_err(|detail: Failure| StoreError::Bug { detail })?,
        tool: row.get(2)?,
        path: row.get(3)?,
        text: packed::text(row.get_ref(4)?)?,
        failed: row.get(5)?,
        at: Timestamp(row.get(6)?),
    })
}

/// Returns the number of uses of each tool by a loop's agents, sorted by tool name.
pub fn tools(c: &Connection, id: &LoopId) -> StoreResult<Vec<ToolUse>> {
    let sql = "SELECT tool, count(*) FILTER (WHERE kind = ?2), count(*) FILTER (WHERE kind = ?3 AND failed = 1) FROM session_events
        WHERE loop_id = ?1 AND tool IS NOT NULL AND kind IN (?2, ?3) GROUP BY tool ORDER BY tool";
    let mut statement = c.prepare_cached(sql)?;
    let kinds = (EventKind::ToolCall.as_str(), EventKind::ToolResult.as_str());
    let rows = statement.query_map(params![id.as_str(), kinds.0, kinds.1], |row| {
        Ok(ToolUse { name: row.get(0)?, calls: row.get(1)?, errors: row.get(2)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the summaries that cover iteration `since` or later, oldest first.
pub fn summaries(c: &Connection, id: &LoopId, since: u32) -> StoreResult<Vec<SessionSummary>> {
    let sql = "SELECT data FROM session_summaries WHERE loop_id = ?1 AND to_iteration >= ?2
        ORDER BY from_iteration, to_iteration";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map(params![id.as_str(), since], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
}

/// Returns the last iteration covered by a summary; 0 if there is none.
pub fn summarized_to(c: &Connection, id: &LoopId) -> StoreResult<u32> {
    let sql = "SELECT coalesce(max(to_iteration), 0) FROM session_summaries WHERE loop_id = ?1";
    Ok(c.query_row(sql, [id.as_str()], |row| row.get(0))?)
}

/// Returns the last iteration with a turn; 0 if there is none.
pub fn last_iteration(c: &Connection, id: &LoopId) -> StoreResult<u32> {
    let sql = "SELECT coalesce(max(iteration), 0) FROM session_turns WHERE loop_id = ?1";
    Ok(c.query_row(sql, [id.as_str()], |row| row.get(0))?)
}

/// Returns at most `most` finished loops whose last iterations have no summary.
pub fn unsummarized(c: &Connection, most: usize) -> StoreResult<Vec<LoopId>> {
    let sql = "SELECT l.id FROM loops l JOIN session_turns t ON t.loop_id = l.id WHERE l.open = 0 GROUP BY l.id
        HAVING max(t.iteration) > (SELECT coalesce(max(s.to_iteration), 0) FROM session_summaries s WHERE s.loop_id = l.id)
        ORDER BY l.updated_at LIMIT ?1";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([most as i64], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(LoopId::new(row?))).collect()
}

/// Returns the term that identifies a loop in the full-text indexes.
fn scope(id: &LoopId) -> String {
    let mut word = String::from("l");
    word.extend(id.as_str().chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()));
    word
}
