//! Loops with their inputs and logs.

use std::collections::HashMap;

use super::listing::{self, LoopRow};
use super::memory::StepMemory;
use super::{StoreError, StoreResult, audit, installation, outbox, timers};
use crate::domain::lifecycle::effect::{ChannelEffect, Effect, ForgeEffect, StoreEffect, TimerEffect};
use crate::domain::lifecycle::{self, StepDecision};
use crate::domain::loops::{CommandInput, EndedLoop, ForgeInput, Loop, LoopInput, LoopStart, LoopState, TimerInput};
use crate::domain::model::ids::{ForgeName, LoopId, Number, RepoRef, Timestamp};
use crate::domain::report::notice::{self, Audience, Occasion};
use crate::domain::supervision::experience::{Experience, REMEMBERED};
use crate::domain::trust::policy::{Policy, RepositorySettings};
use crate::store::sql::{Connection, OptionalExtension, params};

/// Role of an issue or pull request in a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssueRole {
    /// Issue that the loop works on.
    Issue,
    /// Pull request of the loop.
    Pull,
    /// Escalation issue of the loop.
    Escalation,
}

impl IssueRole {
    fn as_str(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::Pull => "pull",
            Self::Escalation => "escalation",
        }
    }
}

/// Returns a loop.
pub fn get(c: &Connection, id: &LoopId) -> StoreResult<Option<Loop>> {
    let mut statement = c.prepare_cached("SELECT data FROM loops WHERE id = ?1")?;
    let text: Option<String> = statement.query_row([id.as_str()], |row| row.get(0)).optional()?;
    Ok(text.map(|text| Loop::read(&text)).transpose()?)
}

/// Returns at most `most` loops, newest first. With `only_open`, skips finished loops.
pub fn list(c: &Connection, only_open: bool, most: usize) -> StoreResult<Vec<Loop>> {
    let mut statement =
        c.prepare_cached("SELECT data FROM loops WHERE (open = 1 OR ?1 = 0) ORDER BY created_at DESC, id LIMIT ?2")?;
    let rows = statement.query_map(params![only_open, most as i64], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(Loop::read(&row?)?)).collect()
}

/// Maximum number of finished loops whose resource use is reported.
const ENDED: usize = 50;
/// Values of `inputs.done`; the value is 0 while an input waits.
const DONE: i64 = 1;
const DONE_SET_ASIDE: i64 = 2;
const DONE_REFUSED: i64 = 3;

/// Returns the experience from a repository's newest finished loops, oldest first. Skips unreadable loops, so that they do
/// not block later ones.
pub fn experience(c: &Connection, repo: &RepoRef) -> StoreResult<Experience> {
    let newest_first = finished(c, repo, REMEMBERED)?;
    Ok(Experience::of(newest_first.iter().rev().map(Loop::as_earlier)))
}

/// Returns the resource use of a repository's newest finished loops, newest first. Skips unreadable loops.
pub fn ended(c: &Connection, repo: &RepoRef) -> StoreResult<Vec<EndedLoop>> {
    Ok(finished(c, repo, ENDED)?.iter().filter_map(Loop::as_ended).collect())
}

/// Returns at most `most` readable finished loops of a repository, newest first.
fn finished(c: &Connection, repo: &RepoRef, most: usize) -> StoreResult<Vec<Loop>> {
    let sql = "SELECT data FROM loops WHERE open = 0 AND forge = ?1 AND repo_id = ?2 ORDER BY rowid DESC LIMIT ?3";
    let mut statement = c.prepare_cached(sql)?;
    let rows =
        statement.query_map(params![repo.forge.as_str(), repo.id.0, most as i64], |row| row.get::<_, String>(0))?;
    let mut newest_first = Vec::new();
    for row in rows {
        newest_first.extend(Loop::read(&row?).ok());
    }
    Ok(newest_first)
}

/// Returns the ids of all open loops, or of the open loops in one state.
pub fn open_ids(c: &Connection, state: Option<LoopState>) -> StoreResult<Vec<LoopId>> {
    let mut statement = c.prepare_cached(
        "SELECT id FROM loops WHERE open = 1 AND (CAST(?1 AS TEXT) IS NULL OR state = ?1) ORDER BY id",
    )?;
    let rows = statement.query_map([state.map(LoopState::as_str)], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(LoopId::new(row?))).collect()
}

/// Returns the repositories of a forge with open loops.
pub fn open_repositories(c: &Connection, forge: &ForgeName) -> StoreResult<Vec<RepoRef>> {
    let sql = "SELECT data FROM loops WHERE id IN
        (SELECT max(id) FROM loops WHERE open = 1 AND forge = ?1 GROUP BY repo_id) ORDER BY repo_id";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([forge.as_str()], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(Loop::read(&row?)?.issue.repo)).collect()
}

/// Returns the start of a repository's oldest open loop; `None` if no loop is open.
pub fn oldest_open(c: &Connection, repo: &RepoRef) -> StoreResult<Option<Timestamp>> {
    let sql = "SELECT min(created_at) FROM loops WHERE open = 1 AND forge = ?1 AND repo_id = ?2";
    let at: Option<i64> = c.query_row(sql, params![repo.forge.as_str(), repo.id.0], |row| row.get(0))?;
    Ok(at.map(Timestamp))
}

/// Returns the open loops in a state, oldest first.
pub fn in_state(c: &Connection, state: LoopState) -> StoreResult<Vec<Loop>> {
    let mut statement =
        c.prepare_cached("SELECT data FROM loops WHERE open = 1 AND state = ?1 ORDER BY created_at, id")?;
    let rows = statement.query_map([state.as_str()], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(Loop::read(&row?)?)).collect()
}

/// Returns the open loops of a repository, oldest first.
pub fn open_of_repository(c: &Connection, repo: &RepoRef) -> StoreResult<Vec<Loop>> {
    let sql = "SELECT data FROM loops WHERE open = 1 AND forge = ?1 AND repo_id = ?2 ORDER BY created_at, id";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map(params![repo.forge.as_str(), repo.id.0], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(Loop::read(&row?)?)).collect()
}

/// Settings of a repository according to its newest open loop.
#[derive(Debug, Clone, PartialEq)]
pub struct NewestSettings {
    /// Effective settings.
    pub policy: Policy,
    /// Settings in the repository's file without effect, one sentence each.
    pub overruled: Vec<String>,
    /// Settings in the repository's file; `None` if there is no file or it has not been read yet.
    pub file: Option<RepositorySettings>,
}

/// Returns the settings of a repository according to its newest open loop; `None` if no loop is open.
pub fn newest_settings(c: &Connection, repo: &RepoRef) -> StoreResult<Option<NewestSettings>> {
    let sql = "SELECT l.id, l.data FROM loop_summaries s CROSS JOIN loops l
        WHERE l.id = s.loop_id AND s.open = 1 AND s.forge = ?1 AND s.repo_id = ?2 ORDER BY s.id DESC LIMIT 1";
    let mut statement = c.prepare_cached(sql)?;
    let found: Option<(String, String)> = statement
        .query_row(params![repo.forge.as_str(), repo.id.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, text)) = found else { return Ok(None) };
    // The start of the entry names the input. The condition is the partial index's condition, so SQLite reads no other
    // entries.
    let sql = "SELECT json_extract(input, '$.tree.settings') FROM loop_events
        WHERE loop_id = ?1 AND substr(input, 1, 19) = '{\"input\":\"prepared\"' ORDER BY seq DESC LIMIT 1";
    let file: Option<Option<String>> = c.prepare_cached(sql)?.query_row([&id], |row| row.get(0)).optional()?;
    let stored = Loop::read(&text)?.settings;
    let file = file.flatten().map(|file| serde_json::from_str(&file)).transpose()?;
    Ok(Some(NewestSettings { policy: stored.policy, overruled: stored.overruled, file }))
}

/// Returns the number of loops of an issue, open or finished.
pub fn count_of_issue(c: &Connection, repo: &RepoRef, issue: Number) -> StoreResult<u32> {
    let sql = "SELECT count(*) FROM loops WHERE forge = ?1 AND repo_id = ?2 AND issue = ?3";
    Ok(c.query_row(sql, params![repo.forge.as_str(), repo.id.0, issue.0 as i64], |row| row.get(0))?)
}

/// Returns the number of open loops by state.
pub fn counts(c: &Connection) -> StoreResult<Vec<(String, u64)>> {
    let mut statement = c.prepare_cached("SELECT state, count(*) FROM loops WHERE open = 1 GROUP BY state")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the newest loop that an issue or pull request belongs to, its role there, and whether the loop is open.
/// Open loops take precedence over newer finished ones.
pub fn find(c: &Connection, repo: &RepoRef, number: Number) -> StoreResult<Option<(LoopId, IssueRole, bool)>> {
    let mut statement = c.prepare_cached(
        "SELECT n.loop_id, n.role, l.open FROM loop_numbers n JOIN loops l ON l.id = n.loop_id
         WHERE n.forge = ?1 AND n.repo_id = ?2 AND n.number = ?3 ORDER BY l.open DESC, l.created_at DESC LIMIT 1",
    )?;
    let found = statement
        .query_row(params![repo.forge.as_str(), repo.id.0, number.0 as i64], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?))
        })
        .optional()?;
    Ok(found.map(|(id, role, open)| {
        let role = match role.as_str() {
            "pull" => IssueRole::Pull,
            "escalation" => IssueRole::Escalation,
            _ => IssueRole::Issue,
        };
        (LoopId::new(id), role, open)
    }))
}

/// Assigns an issue or pull request to a loop.
pub fn add_number(c: &Connection, repo: &RepoRef, number: Number, id: &LoopId, role: IssueRole) -> StoreResult<()> {
    let sql = "INSERT INTO loop_numbers (forge, repo_id, number, loop_id, role) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT DO NOTHING";
    c.execute(sql, params![repo.forge.as_str(), repo.id.0, number.0 as i64, id.as_str(), role.as_str()])?;
    Ok(())
}

/// Returns the issues or pull requests of a loop with a role.
pub fn numbers(c: &Connection, id: &LoopId, role: IssueRole) -> StoreResult<Vec<Number>> {
    let mut statement =
        c.prepare_cached("SELECT number FROM loop_numbers WHERE loop_id = ?1 AND role = ?2 ORDER BY number")?;
    let rows = statement.query_map([id.as_str(), role.as_str()], |row| row.get::<_, i64>(0))?;
    rows.map(|row| Ok(Number(row? as u64))).collect()
}

/// Creates a loop with its row, log and effects in one transaction. Returns `false` if the issue has an open loop or if this
/// `origin` already created a loop.
pub fn begin(c: &Connection, start: LoopStart, origin: &str, now: Timestamp) -> StoreResult<bool> {
    let input = LoopInput::Command(CommandInput::Start(Box::new(start.clone())));
    let sql = "INSERT INTO inputs (loop_id, origin, at, input, done) VALUES (?1, ?2, ?3, '', 1) ON CONFLICT DO NOTHING";
    if c.execute(sql, params![start.id.as_str(), origin, now.0])? == 0 {
        return Ok(false);
    }
    let decision = lifecycle::start(start, now);
    if !save(c, &decision.next, true)? {
        return Ok(false);
    }
    let place = &decision.next.issue;
    add_number(c, &place.repo, place.issue, &decision.next.id, IssueRole::Issue)?;
    log(c, &decision, &input, now)?;
    apply(c, &decision, &[], now)?;
    Ok(true)
}

/// Adds an input for a loop. Returns `false` and changes nothing if an input with this `origin` already exists.
pub fn enqueue_input(
    c: &Connection,
    id: &LoopId,
    origin: &str,
    input: &LoopInput,
    now: Timestamp,
) -> StoreResult<bool> {
    let mut statement = c.prepare_cached(
        "INSERT INTO inputs (loop_id, origin, at, input) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (origin) DO NOTHING",
    )?;
    Ok(statement.execute(params![id.as_str(), origin, now.0, serde_json::to_string(input)?])? == 1)
}

/// Processes the oldest waiting input: runs its loop's step and stores the loop, log, effects and messages to the
/// `audiences` in the caller's transaction. Sets an input aside if it cannot be read or its loop does not exist, so that it
/// does not block other loops. `memory` stores the step's events and learnings. Returns `None` if no input waits.
pub fn step_next(
    c: &Connection,
    audiences: &[Audience],
    memory: &StepMemory,
    now: Timestamp,
) -> StoreResult<Option<StepDecision>> {
    loop {
        let mut statement =
            c.prepare_cached("SELECT id, loop_id, input FROM inputs WHERE done = 0 ORDER BY id LIMIT 1")?;
        let row: Option<(i64, String, String)> =
            statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
        let Some((input_id, loop_id, text)) = row else { return Ok(None) };
        let id = LoopId::new(loop_id);
        let why = match (get(c, &id), serde_json::from_str::<LoopInput>(&text)) {
            (Ok(Some(current)), Ok(input)) => {
                finish_input(c, input_id, DONE)?;
                let noted = input.clone();
                let decision = step(c, &current, input, audiences, now)?;
                if decision.refused {
                    finish_input(c, input_id, DONE_REFUSED)?;
                }
                memory.note(c, &current, &decision.next, &noted, now)?;
                memory.learn_from(c, &current, &decision.next, &noted, now)?;
                return Ok(Some(decision));
            }
            (Ok(None), _) => "its loop does not exist".to_owned(),
            (Ok(_), Err(error)) => error.to_string(),
            (Err(StoreError::Bug { detail }), _) => format!("{detail:#}"),
            (Err(error), _) => return Err(error),
        };
        tracing::error!(loop_id = %id, input = input_id, why, "cannot process an input; it is set aside");
        c.execute("UPDATE inputs SET done = ?2 WHERE id = ?1", params![input_id, DONE_SET_ASIDE])?;
    }
}

/// Sets the result of a processed input. Deletes its content, because the loop's log contains it.
fn finish_input(c: &Connection, id: i64, done: i64) -> StoreResult<()> {
    c.prepare_cached("UPDATE inputs SET done = ?2, input = '' WHERE id = ?1")?.execute([id, done])?;
    Ok(())
}

fn step(
    c: &Connection,
    current: &Loop,
    input: LoopInput,
    audiences: &[Audience],
    now: Timestamp,
) -> StoreResult<StepDecision> {
    // The loop's time must not go backwards if the clock was set back.
    let now = now.max(current.updated_at);
    let decision = lifecycle::step(current, input.clone(), now);
    save(c, &decision.next, false)?;
    log(c, &decision, &input, now)?;
    if let LoopInput::Forge(ForgeInput::PullOpened { number, .. }) = &input {
        add_number(c, &current.issue.repo, *number, &current.id, IssueRole::Pull)?;
    }
    apply(c, &decision, audiences, now)?;
    Ok(decision)
}

/// Sets the oldest waiting input aside because its step fails, so that other inputs can be processed; returns its loop.
pub fn discard_next_input(c: &Connection) -> StoreResult<Option<String>> {
    let sql = "UPDATE inputs SET done = ?1 WHERE id = (SELECT min(id) FROM inputs WHERE done = 0) RETURNING origin";
    Ok(c.query_row(sql, [DONE_SET_ASIDE], |row| row.get(0)).optional()?)
}

/// Deletes inputs processed before `before`, which must be older than any repeated delivery; returns their number.
pub fn purge_inputs(c: &Connection, before: Timestamp) -> StoreResult<usize> {
    let sql = "DELETE FROM inputs WHERE done IN (?2, ?3) AND at < ?1";
    Ok(c.execute(sql, params![before.0, DONE, DONE_REFUSED])?)
}

/// Result of processing an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputOutcome {
    /// The loop processed it.
    Taken,
    /// The loop rejected the input, which is a command.
    Refused,
    /// The input could not be processed; the service's log contains the reason.
    SetAside,
}

/// Returns the result of the input with this origin; `None` if there is none or it still waits.
pub fn outcome_of_input(c: &Connection, origin: &str) -> StoreResult<Option<InputOutcome>> {
    let mut statement = c.prepare_cached("SELECT done FROM inputs WHERE origin = ?1")?;
    let done: Option<i64> = statement.query_row([origin], |row| row.get(0)).optional()?;
    Ok(match done {
        Some(DONE) => Some(InputOutcome::Taken),
        Some(DONE_REFUSED) => Some(InputOutcome::Refused),
        Some(DONE_SET_ASIDE) => Some(InputOutcome::SetAside),
        _ => None,
    })
}

/// Whether any input waits.
pub fn has_inputs(c: &Connection) -> StoreResult<bool> {
    Ok(c.query_row("SELECT EXISTS (SELECT 1 FROM inputs WHERE done = 0)", [], |row| row.get(0))?)
}

/// Whether any input of the loop is pending.
pub fn has_inputs_of(c: &Connection, id: &LoopId) -> StoreResult<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM inputs WHERE done = 0 AND loop_id = ?1)";
    Ok(c.query_row(sql, [id.as_str()], |row| row.get(0))?)
}

/// Maximum numbers of concurrent loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Maximum number in total.
    pub all: u32,
    /// Maximum number per forge.
    pub per_forge: u32,
    /// Maximum number per repository; its configuration file can lower it.
    pub per_repository: u32,
}

/// Grants free slots to waiting loops, oldest first; returns the loops that received a slot.
pub fn grant_slots(c: &Connection, slots: Slots, now: Timestamp) -> StoreResult<Vec<LoopId>> {
    let mut occupied = slots_taken(c)?;
    let mut statement = c.prepare_cached(
        "SELECT id, forge, repo_id, version FROM loops WHERE state = 'queued'
         AND NOT EXISTS (SELECT 1 FROM inputs i WHERE i.loop_id = loops.id AND i.done = 0 AND i.origin LIKE 'slot/%')
         ORDER BY queued_at, id",
    )?;
    let waiting = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
    })?;
    let mut granted = Vec::new();
    for row in waiting.collect::<Result<Vec<_>, _>>()? {
        let (id, forge, repo, version) = row;
        let on_forge = occupied.iter().filter(|t| t.0 == forge).count();
        let in_repository = occupied.iter().filter(|t| t.0 == forge && t.1 == repo).count();
        if occupied.len() >= slots.all as usize {
            break;
        }
        if on_forge >= slots.per_forge as usize || in_repository >= slots.per_repository as usize {
            continue;
        }
        if in_repository > 0 && in_repository >= allowed(c, &forge, repo)? {
            continue;
        }
        let id = LoopId::new(id);
        if enqueue_input(c, &id, &format!("slot/{id}/{version}"), &LoopInput::Timer(TimerInput::SlotGranted), now)? {
            occupied.push((forge, repo));
            granted.push(id);
        }
    }
    Ok(granted)
}

/// Returns the repositories of loops that hold a slot or have a granted slot that is not processed yet.
fn slots_taken(c: &Connection) -> StoreResult<Vec<(String, i64)>> {
    let mut statement = c.prepare_cached(
        "SELECT forge, repo_id FROM loops WHERE open = 1 AND (state IN ('running', 'waiting') OR EXISTS
           (SELECT 1 FROM inputs i WHERE i.loop_id = loops.id AND i.done = 0 AND i.origin LIKE 'slot/%'))",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Stores the maximum number of concurrent loops from a repository's configuration file.
pub fn set_repository_limit(c: &Connection, repo: &RepoRef, loops: u32) -> StoreResult<()> {
    installation::set(c, &allowed_key(repo.forge.as_str(), repo.id.0), &loops.to_string())
}

/// Returns the limit from [`set_repository_limit`]; 1 until the service has read the repository's file.
fn allowed(c: &Connection, forge: &str, repo: i64) -> StoreResult<usize> {
    let limit = installation::get(c, &allowed_key(forge, repo))?;
    Ok(limit.and_then(|text| text.parse().ok()).unwrap_or(1))
}

fn allowed_key(forge: &str, repo: i64) -> String {
    format!("loops/{forge}/{repo}")
}

/// Entry of a loop's log.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LogLine {
    /// 1-based position in the log.
    pub seq: i64,
    /// Time of the entry.
    pub at: Timestamp,
    /// Input of the step.
    pub input: LoopInput,
    /// Reasons of the decision.
    pub reasons: Vec<String>,
}

/// Returns a loop's log, oldest first.
pub fn history(c: &Connection, id: &LoopId) -> StoreResult<Vec<LogLine>> {
    let mut statement =
        c.prepare_cached("SELECT seq, at, input, reasons FROM loop_events WHERE loop_id = ?1 ORDER BY seq")?;
    let rows = statement.query_map([id.as_str()], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get::<_, String>(3)?))
    })?;
    rows.map(|row| {
        let (seq, at, input, reasons) = row?;
        let (input, reasons) = (serde_json::from_str(&input)?, serde_json::from_str(&reasons)?);
        Ok(LogLine { seq, at: Timestamp(at), input, reasons })
    })
    .collect()
}

/// Returns the first entry with this input after the position `after` in a loop's log; `None` if there is none.
pub fn step_of_input(c: &Connection, id: &LoopId, after: u64, input: &LoopInput) -> StoreResult<Option<LogLine>> {
    let sql =
        "SELECT seq, at, reasons FROM loop_events WHERE loop_id = ?1 AND seq > ?2 AND input = ?3 ORDER BY seq LIMIT 1";
    let mut statement = c.prepare_cached(sql)?;
    let row = params![id.as_str(), after as i64, serde_json::to_string(input)?];
    let found = statement.query_row(row, |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))).optional()?;
    found
        .map(|(seq, at, reasons)| {
            Ok(LogLine { seq, at: Timestamp(at), input: input.clone(), reasons: serde_json::from_str(&reasons)? })
        })
        .transpose()
}

/// Stores a loop. Returns `false` and stores nothing if a new loop or an open loop of the issue already exists.
fn save(c: &Connection, next: &Loop, new: bool) -> StoreResult<bool> {
    let sql = if new {
        "INSERT INTO loops (id, forge, repo_id, issue, state, open, queued_at, data, version, created_at, updated_at, runs_on)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING"
    } else {
        "UPDATE loops SET forge = ?2, repo_id = ?3, issue = ?4, state = ?5, open = ?6, queued_at = ?7, data = ?8,
            version = ?9, created_at = ?10, updated_at = ?11, runs_on = ?12 WHERE id = ?1"
    };
    let labels = &next.settings.policy.runs_on;
    let runs_on = (!labels.is_empty()).then(|| serde_json::to_string(labels)).transpose()?;
    let saved = c.prepare_cached(sql)?.execute(params![
        next.id.as_str(),
        next.issue.repo.forge.as_str(),
        next.issue.repo.id.0,
        next.issue.issue.0 as i64,
        next.state.as_str(),
        next.state.is_open(),
        next.run.queued_at.map(|at| at.0),
        serde_json::to_string(next)?,
        next.version as i64,
        next.created_at.0,
        next.updated_at.0,
        runs_on,
    ])?;
    if saved == 0 {
        return Ok(false);
    }
    listing::save(c, &LoopRow::of(next))?;
    Ok(true)
}

fn log(c: &Connection, decision: &StepDecision, input: &LoopInput, now: Timestamp) -> StoreResult<()> {
    let sql = "INSERT INTO loop_events (loop_id, seq, at, input, reasons) VALUES (?1, ?2, ?3, ?4, ?5)";
    let (input, reasons) = (serde_json::to_string(input)?, serde_json::to_string(&decision.reasons)?);
    c.prepare_cached(sql)?.execute(params![
        decision.next.id.as_str(),
        decision.next.version as i64,
        now.0,
        input,
        reasons
    ])?;
    Ok(())
}

fn apply(c: &Connection, decision: &StepDecision, audiences: &[Audience], now: Timestamp) -> StoreResult<()> {
    let next = &decision.next;
    // The state before the step, because the step does not end the escalations that it raises.
    let mut open = HashMap::new();
    let goes_back = |effect: &Effect| match effect {
        Effect::Forge(ForgeEffect::CloseEscalations { .. } | ForgeEffect::Escalate { reminder: true, .. }) => true,
        Effect::Channel(ChannelEffect::Warn { notice }) => notice.occasion == Occasion::Reminder,
        Effect::Work(_) | Effect::Forge(_) | Effect::Channel(_) | Effect::Timer(_) | Effect::Store(_) => false,
    };
    let goes_back = decision.effects.iter().any(goes_back);
    for audience in audiences.iter().filter(|_| goes_back) {
        let sent = outbox::channel_keys(c, next.id.as_str(), &audience.channel)?;
        open.insert(audience.channel.as_str(), notice::open_causes(sent.iter().map(String::as_str)));
    }
    let open = |channel: &str| open.get(channel).cloned().unwrap_or_default();
    for effect in &decision.effects {
        match effect {
            Effect::Timer(TimerEffect::Set { kind, at }) => timers::set(c, &next.id, kind.as_str(), *at)?,
            Effect::Timer(TimerEffect::Clear { kind }) => timers::clear(c, &next.id, kind.as_str())?,
            Effect::Store(StoreEffect::CancelWork) => outbox::cancel_work(c, &next.id, now)?,
            Effect::Store(StoreEffect::Audit { entries }) => audit::append(c, &next.id, entries, now)?,
            Effect::Work(_) | Effect::Forge(_) | Effect::Channel(_) => {
                outbox::enqueue(c, next.id.as_str(), Some(&next.id), &next.issue, effect, now)?;
                for notice in lifecycle::notices(effect, next, audiences, open, now) {
                    outbox::enqueue(c, next.id.as_str(), Some(&next.id), &next.issue, &notice, now)?;
                }
            }
        }
    }
    Ok(())
}
