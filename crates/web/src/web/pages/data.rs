//! Database rows for pages about single loops and for operators. `store::listing` has the lists of loops.

use serde::Serialize;

use crate::domain::model::ids::{LoopId, Timestamp};
use crate::store::StoreResult;
use crate::store::inbox::DeliveryAbout;
use crate::store::sql::{Connection, OptionalExtension, params};

/// Step of a loop's log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StepRow {
    pub seq: i64,
    pub at: i64,
    pub input: String,
    pub reasons: Vec<String>,
}

/// Returns the newest steps in a loop's log, newest first.
pub(super) fn newest_steps(c: &Connection, id: &LoopId, most: usize) -> StoreResult<Vec<StepRow>> {
    let sql = "SELECT seq, at, json_extract(input, '$.input'), json_extract(input, '$.command.command'), reasons
        FROM loop_events WHERE loop_id = ?1 ORDER BY seq DESC LIMIT ?2";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map(params![id.as_str(), most as i64], |row| {
        let (input, command): (String, Option<String>) = (row.get(2)?, row.get(3)?);
        let input = command.map_or(input.clone(), |command| format!("{input} {command}"));
        Ok((row.get(0)?, row.get(1)?, input, row.get::<_, String>(4)?))
    })?;
    rows.map(|row| {
        let (seq, at, input, reasons) = row?;
        Ok(StepRow { seq, at, input, reasons: serde_json::from_str(&reasons)? })
    })
    .collect()
}

/// Returns the number of steps in a loop's log.
pub(super) fn count_of_steps(c: &Connection, id: &LoopId) -> StoreResult<i64> {
    let sql = "SELECT count(*) FROM loop_events WHERE loop_id = ?1";
    Ok(c.prepare_cached(sql)?.query_row([id.as_str()], |row| row.get(0))?)
}

/// Returns the reasons of one step; empty if the step does not exist.
pub(super) fn reasons_of(c: &Connection, id: &LoopId, seq: i64) -> StoreResult<Vec<String>> {
    let sql = "SELECT reasons FROM loop_events WHERE loop_id = ?1 AND seq = ?2";
    let found =
        c.prepare_cached(sql)?.query_row(params![id.as_str(), seq], |row| row.get::<_, String>(0)).optional()?;
    Ok(found.map(|reasons| serde_json::from_str(&reasons)).transpose()?.unwrap_or_default())
}

/// Number and cost of a backend's finished calls on one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DayRow {
    pub backend: String,
    /// Start of the day, in milliseconds since 1970.
    pub at: i64,
    pub calls: i64,
    /// Cost in millionths of a dollar.
    pub cost: i64,
}

/// Returns the calls and the cost of each backend by day, since a time; newest first.
pub(super) fn calls_by_day(c: &Connection, since: Timestamp) -> StoreResult<Vec<DayRow>> {
    const DAY_MS: i64 = 24 * 3_600_000;
    let sql = "SELECT backend, day, sum(calls), sum(cost) FROM daily_costs
        WHERE day >= ?1 GROUP BY backend, day ORDER BY day DESC, backend";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([since.0 / DAY_MS], |row| {
        Ok(DayRow { backend: row.get(0)?, at: row.get::<_, i64>(1)? * DAY_MS, calls: row.get(2)?, cost: row.get(3)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Webhook delivery.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DeliveryRow {
    pub id: i64,
    pub forge: String,
    pub delivery: String,
    pub event: String,
    pub received_at: i64,
    pub state: String,
    pub reason: String,
    pub attempts: i64,
    /// Repository, issue and sender; `None` if the delivery still waits or could not be parsed.
    pub about: Option<DeliveryAbout>,
    /// Newest loop of the issue or pull request; `None` if there is none.
    pub loop_id: Option<String>,
}

/// Returns the deliveries before a position, newest first, optionally only those in one state or from one forge.
pub(super) fn deliveries(
    c: &Connection,
    (state, forge): (Option<&str>, Option<&str>),
    before: Option<i64>,
    limit: usize,
) -> StoreResult<Vec<DeliveryRow>> {
    // The second condition selects the partial index.
    let condition = match state {
        None => "CAST(?1 AS TEXT) IS NULL",
        Some("new") => "?1 = 'new' AND state = 'new'",
        Some(_) => "state = ?1 AND state <> 'new'",
    };
    // Do not use the index by forge, because it has no order: read rows from the newest on.
    let of_forge = if forge.is_some() { "forge || '' = ?4" } else { "CAST(?4 AS TEXT) IS NULL" };
    // Do not use `loops`, whose rows contain the whole state before the time of creation.
    let of_issue = "SELECT n.loop_id FROM loop_numbers n JOIN loop_summaries s ON s.loop_id = n.loop_id
        WHERE n.forge = inbox.forge AND n.repo_id = CAST(json_extract(about, '$.repo_id') AS BIGINT)
            AND n.number = CAST(json_extract(about, '$.number') AS BIGINT)
        ORDER BY s.open DESC, s.id DESC LIMIT 1";
    let sql = format!(
        "SELECT id, forge, delivery, event, received_at, state, coalesce(reason, ''), attempts, about, ({of_issue})
         FROM inbox WHERE id IN
         (SELECT id FROM inbox WHERE id < ?3 AND {condition} AND {of_forge} ORDER BY id DESC LIMIT ?2) ORDER BY id DESC"
    );
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params![state, limit as i64, before.unwrap_or(i64::MAX), forge], |row| {
        let about: Option<String> = row.get(8)?;
        Ok(DeliveryRow {
            id: row.get(0)?,
            forge: row.get(1)?,
            delivery: row.get(2)?,
            event: row.get(3)?,
            received_at: row.get(4)?,
            state: row.get(5)?,
            reason: row.get(6)?,
            attempts: row.get(7)?,
            about: about.and_then(|about| serde_json::from_str(&about).ok()),
            loop_id: row.get(9)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
