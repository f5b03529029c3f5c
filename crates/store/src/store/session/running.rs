//! Turns of running agents: started, extended in batches, and finished or interrupted.

use super::packed::{self, Packed, shortened};
use super::{MAX_EVENT, MAX_TEXT, NewEvent, NewTurn, add_events, add_turn};
use crate::domain::knowledge::session::{OutputText, RunningTurn, SessionEvent, SessionTurn};
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::store::StoreResult;
use crate::store::sql::{Connection, params};

/// Maximum size of a running agent's stored output, in bytes after compression; the store removes the oldest output first.
const MAX_OUTPUT: usize = 256 * 1024;
/// Error text of an interrupted turn.
const CUT: &str = "the run was interrupted; the answer is the agent's output until then";

/// Started turn that is ready to be stored.
#[derive(Debug, Clone)]
pub struct NewRunningTurn {
    turn: SessionTurn,
    prompt: Packed,
}

impl NewRunningTurn {
    /// Compresses the prompt of a turn with masked secrets. Omits the middle of prompts longer than 1 MiB.
    pub fn pack(mut turn: SessionTurn) -> Self {
        let prompt = Packed::new(&shortened(std::mem::take(&mut turn.prompt), MAX_TEXT));
        Self { turn, prompt }
    }
}

/// Events and output of an agent since the last batch, ready to be stored.
#[derive(Debug, Clone)]
pub struct RunBatch {
    events: Vec<NewEvent>,
    output: Vec<(Timestamp, Packed)>,
}

impl RunBatch {
    /// Compresses events and output with masked secrets.
    pub fn pack(events: Vec<SessionEvent>, output: Vec<OutputText>) -> Self {
        let packed = |output: OutputText| (output.at, Packed::new(&shortened(output.text, MAX_EVENT)));
        Self {
            events: events.into_iter().map(NewEvent::pack).collect(),
            output: output.into_iter().map(packed).collect(),
        }
    }
}

/// Stores the start of a turn. Stores an unfinished turn of the loop as interrupted.
pub fn begin_turn(c: &Connection, id: &LoopId, new: &NewRunningTurn) -> StoreResult<()> {
    cut_turn(c, id)?;
    let NewRunningTurn { turn, prompt } = new;
    let row = params![id.as_str(), turn.iteration, serde_json::to_string(turn)?, prompt, turn.started.0];
    c.prepare_cached(
        "INSERT INTO running_turns (loop_id, iteration, turn, prompt, started_at, seen_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
    )?
    .execute(row)?;
    Ok(())
}

/// Adds a batch to the loop's running turn. Returns `false` and adds nothing if no turn is running.
pub fn add_batch(c: &Connection, id: &LoopId, batch: &RunBatch, now: Timestamp) -> StoreResult<bool> {
    let seen = "UPDATE running_turns SET seen_at = max(seen_at, ?2) WHERE loop_id = ?1";
    if c.prepare_cached(seen)?.execute(params![id.as_str(), now.0])? == 0 {
        return Ok(false);
    }
    add_events(c, id, &batch.events)?;
    let mut insert = c.prepare_cached(
        "INSERT INTO session_output (loop_id, iteration, text, at)
         SELECT loop_id, iteration, ?2, ?3 FROM running_turns WHERE loop_id = ?1",
    )?;
    for (at, text) in &batch.output {
        insert.execute(params![id.as_str(), text, at.0])?;
    }
    let surplus = "DELETE FROM session_output WHERE id IN (
        SELECT id FROM (SELECT id, sum(length(text)) OVER (ORDER BY id DESC) AS size FROM session_output WHERE loop_id = ?1) AS sized
        WHERE size > ?2)";
    c.prepare_cached(surplus)?.execute(params![id.as_str(), MAX_OUTPUT as i64])?;
    Ok(true)
}

/// Stores the end of the loop's running turn, with the events since the last batch. Returns `false` and adds nothing
/// if the turn is already stored.
pub fn end_turn(c: &Connection, id: &LoopId, turn: &NewTurn, events: &[NewEvent]) -> StoreResult<bool> {
    remove(c, id)?;
    if !add_turn(c, id, turn)? {
        return Ok(false);
    }
    add_events(c, id, events)?;
    Ok(true)
}

/// Stores the loop's running turn as interrupted, with the agent's output as its answer. Returns `false` if no turn is
/// running.
pub fn cut_turn(c: &Connection, id: &LoopId) -> StoreResult<bool> {
    let Some(running) = find(c, id, None)? else { return Ok(false) };
    end_turn(c, id, &NewTurn::pack(running.cut(CUT)), &[])?;
    Ok(true)
}

/// Returns the turn of an iteration's running agent; `None` if no agent is running.
pub fn running_turn(c: &Connection, id: &LoopId, iteration: u32) -> StoreResult<Option<RunningTurn>> {
    find(c, id, Some(iteration))
}

fn find(c: &Connection, id: &LoopId, iteration: Option<u32>) -> StoreResult<Option<RunningTurn>> {
    let mut statement = c.prepare_cached(
        "SELECT turn, prompt, seen_at FROM running_turns WHERE loop_id = ?1 AND iteration = coalesce(?2, iteration)",
    )?;
    let mut rows = statement.query(params![id.as_str(), iteration])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut turn: SessionTurn = serde_json::from_str(&row.get::<_, String>(0)?)?;
    turn.prompt = packed::text(row.get_ref(1)?)?;
    turn.ended = Timestamp(row.get(2)?);
    let mut statement = c.prepare_cached("SELECT at, text FROM session_output WHERE loop_id = ?1 ORDER BY id")?;
    let mut rows = statement.query([id.as_str()])?;
    let mut output = Vec::new();
    while let Some(row) = rows.next()? {
        output.push(OutputText { at: Timestamp(row.get(0)?), text: packed::text(row.get_ref(1)?)? });
    }
    Ok(Some(RunningTurn { turn, output }))
}

fn remove(c: &Connection, id: &LoopId) -> StoreResult<()> {
    c.prepare_cached("DELETE FROM running_turns WHERE loop_id = ?1")?.execute([id.as_str()])?;
    c.prepare_cached("DELETE FROM session_output WHERE loop_id = ?1")?.execute([id.as_str()])?;
    Ok(())
}

/// Removes running turns with no batch since a time, and their output.
pub(super) fn remove_before(c: &Connection, before: i64) -> StoreResult<()> {
    let mut old = c.prepare_cached("DELETE FROM running_turns WHERE seen_at < ?1 RETURNING loop_id")?;
    let removed = old.query_map([before], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    removed.into_iter().try_for_each(|id| remove(c, &LoopId::new(id)))
}
