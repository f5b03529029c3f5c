//! Rows of the pages, read without the complete state of loops where a few columns are enough.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};
use serde::Serialize;

use crate::domain::loops::{Loop, LoopState};
use crate::domain::model::ids::{LoopId, RepoRef, Timestamp};
use crate::store::{StoreError, StoreResult};

/// Repositories whose loops are read, and further conditions.
#[derive(Debug, Clone, Default)]
pub(super) struct LoopFilter {
    /// Forge and id of the visible repositories; `None` for all.
    pub repositories: Option<Vec<(String, i64)>>,
    /// Login of the person who asked for the loop.
    pub person: Option<String>,
}

/// Row of a list of loops.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LoopRow {
    pub id: String,
    pub state: String,
    pub title: String,
    /// `forge:owner/name`.
    pub repository: String,
    pub issue: i64,
    pub iteration: i64,
    pub max_iterations: i64,
    /// Millionths of a dollar.
    pub cost: i64,
    pub person: String,
    pub why: String,
    /// Milliseconds since 1970.
    pub updated_at: i64,
}

/// Returns the repositories that have loops.
pub(super) fn repositories(c: &Connection) -> StoreResult<Vec<RepoRef>> {
    let sql = "SELECT json_extract(data, '$.place.repo') FROM loops
        WHERE rowid IN (SELECT max(rowid) FROM loops GROUP BY forge, repo_id) ORDER BY forge, repo_id";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
}

/// Returns the condition for some states, with its parameters.
fn condition(filter: &LoopFilter, states: &[LoopState]) -> (String, Vec<Value>) {
    let marks = |count: usize| vec!["?"; count].join(", ");
    let mut values: Vec<Value> = states.iter().map(|state| Value::from(state.as_str().to_owned())).collect();
    let mut sql = format!("state IN ({})", marks(states.len()));
    if let Some(repositories) = &filter.repositories {
        let pairs = vec!["(?, ?)"; repositories.len()].join(", ");
        match repositories.is_empty() {
            true => sql.push_str(" AND 0"),
            false => sql.push_str(&format!(" AND (forge, repo_id) IN (VALUES {pairs})")),
        }
        for (forge, id) in repositories {
            values.extend([Value::from(forge.clone()), Value::from(*id)]);
        }
    }
    if let Some(person) = &filter.person {
        sql.push_str(" AND lower(json_extract(data, '$.requested_by.login')) = lower(?)");
        values.push(Value::from(person.clone()));
    }
    (sql, values)
}

/// Returns loops in some states, newest first.
pub(super) fn rows(
    c: &Connection,
    filter: &LoopFilter,
    states: &[LoopState],
    limit: usize,
    offset: usize,
) -> StoreResult<Vec<LoopRow>> {
    let (condition, mut values) = condition(filter, states);
    let sql = format!(
        "SELECT id, state, json_extract(data, '$.task.title'), json_extract(data, '$.place.repo'), issue,
            json_extract(data, '$.spent.iterations'), json_extract(data, '$.limits.iterations'),
            json_extract(data, '$.spent.cost'), json_extract(data, '$.requested_by.login'), json_extract(data, '$.why'),
            updated_at
         FROM loops WHERE {condition} ORDER BY rowid DESC LIMIT ? OFFSET ?"
    );
    values.extend([Value::from(limit as i64), Value::from(offset as i64)]);
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), loop_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn loop_row(row: &Row<'_>) -> rusqlite::Result<LoopRow> {
    let repository: String = row.get(3)?;
    let repository = serde_json::from_str::<RepoRef>(&repository).map_or(repository, |repo| repo.to_string());
    Ok(LoopRow {
        id: row.get(0)?,
        state: row.get(1)?,
        title: row.get(2)?,
        repository,
        issue: row.get(4)?,
        iteration: row.get(5)?,
        max_iterations: row.get(6)?,
        cost: row.get(7)?,
        person: row.get(8)?,
        why: row.get(9)?,
        updated_at: row.get(10)?,
    })
}

/// Returns the number of loops in some states.
pub(super) fn count(c: &Connection, filter: &LoopFilter, states: &[LoopState]) -> StoreResult<i64> {
    let (condition, values) = condition(filter, states);
    let sql = format!("SELECT count(*) FROM loops WHERE {condition}");
    Ok(c.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?)
}

/// Returns complete loops in some states, oldest first.
pub(super) fn loops(
    c: &Connection,
    filter: &LoopFilter,
    states: &[LoopState],
    limit: usize,
    offset: usize,
) -> StoreResult<Vec<Loop>> {
    let (condition, mut values) = condition(filter, states);
    let sql = format!("SELECT data FROM loops WHERE {condition} ORDER BY rowid LIMIT ? OFFSET ?");
    values.extend([Value::from(limit as i64), Value::from(offset as i64)]);
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
}

/// Step of a loop's log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StepRow {
    pub seq: i64,
    pub at: i64,
    pub input: String,
    pub reasons: Vec<String>,
}

/// Returns the newest steps of a loop's log, newest first.
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

/// Returns the reasons of one step; empty if there is none.
pub(super) fn reasons_of(c: &Connection, id: &LoopId, seq: i64) -> StoreResult<Vec<String>> {
    let sql = "SELECT reasons FROM loop_events WHERE loop_id = ?1 AND seq = ?2";
    match c.prepare_cached(sql)?.query_row(params![id.as_str(), seq], |row| row.get::<_, String>(0)) {
        Ok(reasons) => Ok(serde_json::from_str(&reasons)?),
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(Vec::new()),
        Err(error) => Err(StoreError::from(error)),
    }
}

/// Calls of a backend on one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DayRow {
    pub backend: String,
    /// Milliseconds since 1970 of the day's beginning.
    pub at: i64,
    pub calls: i64,
    /// Millionths of a dollar.
    pub cost: i64,
}

/// Returns the calls and the cost of each backend by day, since a time; newest first.
pub(super) fn calls_by_day(c: &Connection, since: Timestamp) -> StoreResult<Vec<DayRow>> {
    const DAY_MS: i64 = 24 * 3_600_000;
    let sql = "SELECT backend, day, count(*), sum(coalesce(cost, max(reserved, coalesce(shown, 0)))) FROM calls
        WHERE day >= ?1 GROUP BY backend, day ORDER BY day DESC, backend";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([since.0 / DAY_MS], |row| {
        Ok(DayRow { backend: row.get(0)?, at: row.get::<_, i64>(1)? * DAY_MS, calls: row.get(2)?, cost: row.get(3)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Delivery of a webhook.
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
}

/// Returns deliveries, newest first; of one state, if there is one.
pub(super) fn deliveries(
    c: &Connection,
    state: Option<&str>,
    limit: usize,
    offset: usize,
) -> StoreResult<Vec<DeliveryRow>> {
    let sql = "SELECT id, forge, delivery, event, received_at, state, coalesce(reason, ''), attempts FROM inbox
        WHERE ?1 IS NULL OR state = ?1 ORDER BY id DESC LIMIT ?2 OFFSET ?3";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map(params![state, limit as i64, offset as i64], |row| {
        Ok(DeliveryRow {
            id: row.get(0)?,
            forge: row.get(1)?,
            delivery: row.get(2)?,
            event: row.get(3)?,
            received_at: row.get(4)?,
            state: row.get(5)?,
            reason: row.get(6)?,
            attempts: row.get(7)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the repository of a loop.
pub(super) fn repository_of(c: &Connection, id: &LoopId) -> StoreResult<Option<RepoRef>> {
    let sql = "SELECT json_extract(data, '$.place.repo') FROM loops WHERE id = ?1";
    match c.prepare_cached(sql)?.query_row([id.as_str()], |row| row.get::<_, String>(0)) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
