//! Entries of the full-text indexes: for a new row, and for all rows of a copied database.

use crate::domain::knowledge::session::{SessionEvent, SessionSummary, SessionTurn};
use crate::domain::model::ids::LoopId;
use crate::store::StoreResult;
use crate::store::paging::for_each_row;
use crate::store::session::packed::indexed;
use crate::store::session::{EVENT_COLUMNS, TURN_COLUMNS, event, scope, turn};
use crate::store::sql::{Connection, params};

/// Adds a turn to the index; its texts have at most the indexed length.
pub(super) fn index_turn(c: &Connection, row: i64, id: &LoopId, turn: &SessionTurn) -> StoreResult<()> {
    let sql = "INSERT INTO session_turns_words (rowid, scope, prompt, response) VALUES (?1, ?2, ?3, ?4)";
    let answer = format!("{}\n{}", turn.response, turn.error.as_deref().unwrap_or_default());
    c.prepare_cached(sql)?.execute(params![row, scope(id), turn.prompt, answer])?;
    Ok(())
}

/// Adds an event to the index.
pub(super) fn index_event(c: &Connection, row: i64, id: &LoopId, event: &SessionEvent) -> StoreResult<()> {
    let sql = "INSERT INTO session_events_words (rowid, scope, text) VALUES (?1, ?2, ?3)";
    let searched = [event.tool.as_deref(), event.path.as_deref(), Some(&event.text)].into_iter().flatten();
    c.prepare_cached(sql)?.execute(params![row, scope(id), searched.collect::<Vec<_>>().join("\n")])?;
    Ok(())
}

/// Adds a summary to the index.
pub(super) fn index_summary(c: &Connection, row: i64, id: &LoopId, summary: &SessionSummary) -> StoreResult<()> {
    let sql = "INSERT INTO session_summaries_words (rowid, scope, text) VALUES (?1, ?2, ?3)";
    c.prepare_cached(sql)?.execute(params![row, scope(id), summary_text(summary)])?;
    Ok(())
}

/// Returns the searched text of a summary.
pub(super) fn summary_text(summary: &SessionSummary) -> String {
    let errors = summary.errors.iter().map(|error| error.signature.as_str());
    let parts = summary.decisions.iter().chain(&summary.files).map(String::as_str).chain(errors);
    std::iter::once(summary.text.as_str()).chain(parts).collect::<Vec<_>>().join("\n")
}

/// Fills the empty indexes of a copied database. A damaged row stays without an entry.
pub(in crate::store) fn index_all(c: &Connection) -> StoreResult<()> {
    for_each_row(c, "session_turns", &format!("{TURN_COLUMNS}, id, loop_id"), |row| {
        let number: i64 = row.get(16)?;
        match turn(row) {
            Ok(mut turn) => {
                turn.prompt = indexed(&turn.prompt);
                turn.response = indexed(&turn.response);
                index_turn(c, number, &LoopId::new(row.get::<_, String>(17)?), &turn)?;
            }
            Err(error) => tracing::warn!(number, %error, "cannot read a turn; searches do not find it"),
        }
        Ok(number)
    })?;
    for_each_row(c, "session_events", &format!("{EVENT_COLUMNS}, id, loop_id"), |row| {
        let number: i64 = row.get(7)?;
        match event(row) {
            Ok(event) => index_event(c, number, &LoopId::new(row.get::<_, String>(8)?), &event)?,
            Err(error) => tracing::warn!(number, %error, "cannot read an event; searches do not find it"),
        }
        Ok(number)
    })?;
    for_each_row(c, "session_summaries", "id, loop_id, data", |row| {
        let number: i64 = row.get(0)?;
        match serde_json::from_str(&row.get::<_, String>(2)?) {
            Ok(summary) => index_summary(c, number, &LoopId::new(row.get::<_, String>(1)?), &summary)?,
            Err(error) => tracing::warn!(number, %error, "cannot read a summary; searches do not find it"),
        }
        Ok(number)
    })
}
