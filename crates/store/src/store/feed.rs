//! Events of loops after a position: the loops' steps, their agents' actions, and the output of running agents.

use super::listing::repository;
use super::{StoreResult, session};
use crate::domain::knowledge::session::SessionEvent;
use crate::domain::loops::LoopState;
use crate::domain::model::ids::{LoopId, Money, Ratio, RepoRef, Timestamp};
use crate::store::sql::{Connection, params};

/// Position in the feed: the last row of the loops' logs, the agents' events, and the running agents' output. Positions only
/// grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedPosition {
    /// Row of the last step.
    pub step: i64,
    /// Row of the last event of an agent.
    pub activity: i64,
    /// Row of the last output of a running agent.
    pub output: i64,
}

impl FeedPosition {
    /// Parses `STEP-ACTIVITY-OUTPUT`; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
        let mut parts = text.splitn(3, '-').map(number);
        let mut next = || parts.next().flatten();
        Some(Self { step: next()?, activity: next()?, output: next()? })
    }

    /// Returns the position after this event.
    pub fn after(self, event: &FeedEvent) -> Self {
        match event.what {
            FeedKind::Step { .. } => Self { step: self.step.max(event.row), ..self },
            FeedKind::Activity(_) => Self { activity: self.activity.max(event.row), ..self },
            FeedKind::Output { .. } => Self { output: self.output.max(event.row), ..self },
        }
    }

    /// Returns the later of two positions for each kind of event.
    pub fn latest(self, other: Self) -> Self {
        Self {
            step: self.step.max(other.step),
            activity: self.activity.max(other.activity),
            output: self.output.max(other.output),
        }
    }

    /// Whether an event comes after this position.
    pub fn is_before(self, event: &FeedEvent) -> bool {
        match event.what {
            FeedKind::Step { .. } => event.row > self.step,
            FeedKind::Activity(_) => event.row > self.activity,
            FeedKind::Output { .. } => event.row > self.output,
        }
    }
}

impl std::fmt::Display for FeedPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.step, self.activity, self.output)
    }
}

/// Event of the feed.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedEvent {
    /// Row id in its table.
    pub row: i64,
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Its repository.
    pub repo: RepoRef,
    /// Time of the event.
    pub at: Timestamp,
    /// Kind and content of the event.
    pub what: FeedKind,
}

/// Kind and content of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedKind {
    /// A step of a loop.
    Step {
        /// 1-based position in the loop's log.
        seq: i64,
        /// Name of the step's input, such as `agent_ended`.
        input: String,
        /// Reasons of the decision.
        reasons: Vec<String>,
        /// Loop state at the time of reading.
        now: FeedState,
    },
    /// An agent, a check or the overseer did something within an iteration.
    Activity(SessionEvent),
    /// A running agent wrote text.
    Output {
        /// 1-based iteration.
        iteration: u32,
        /// Text, of one or several lines.
        text: String,
    },
}

/// State of a loop when an event is read.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedState {
    /// State of the loop.
    pub state: LoopState,
    /// Number of started iterations.
    pub iteration: u32,
    /// Completion at the last measurement.
    pub completion: Ratio,
    /// Total cost.
    pub cost: Money,
    /// Reason of the state.
    pub reason: String,
}

/// Returns the newest position.
pub fn newest(c: &Connection) -> StoreResult<FeedPosition> {
    // Output is removed when its run ends, but the sequence still contains the last id.
    let sql = format!(
        "SELECT (SELECT coalesce(max(rowid), 0) FROM loop_events), (SELECT coalesce(max(id), 0) FROM session_events),
        coalesce({}, 0)",
        c.last_id("session_output")
    );
    let mut statement = c.prepare_cached(&sql)?;
    let position = statement
        .query_row([], |row| Ok(FeedPosition { step: row.get(0)?, activity: row.get(1)?, output: row.get(2)? }))?;
    Ok(position)
}

/// Returns the events after a position, ordered by time, of one loop or all loops, at most `limit` of each kind. `None` if
/// there are more events, or if the position belongs to another database.
pub fn since(
    c: &Connection,
    after: FeedPosition,
    of: Option<&LoopId>,
    limit: usize,
) -> StoreResult<Option<Vec<FeedEvent>>> {
    let newest = newest(c)?;
    if newest == after {
        return Ok(Some(Vec::new()));
    }
    if after.step > newest.step || after.activity > newest.activity || after.output > newest.output {
        return Ok(None);
    }
    let steps = steps(c, after.step, of, limit + 1)?;
    let activities = activities(c, after.activity, of, limit + 1)?;
    let outputs = outputs(c, after.output, of, limit + 1)?;
    if [&steps, &activities, &outputs].iter().any(|events| events.len() > limit) {
        return Ok(None);
    }
    Ok(Some(merged(steps, merged(activities, outputs))))
}

/// Merges two lists by time; for equal times, the event of the second list comes first. Each list keeps its order even if
/// the clock was set back, because positions only grow.
fn merged(one: Vec<FeedEvent>, other: Vec<FeedEvent>) -> Vec<FeedEvent> {
    let mut events = Vec::with_capacity(one.len() + other.len());
    let (mut one, mut other) = (one.into_iter().peekable(), other.into_iter().peekable());
    while let (Some(first), Some(second)) = (one.peek(), other.peek()) {
        let next = if second.at <= first.at { other.next() } else { one.next() };
        events.extend(next);
    }
    events.extend(one);
    events.extend(other);
    events
}

fn steps(c: &Connection, after: i64, of: Option<&LoopId>, limit: usize) -> StoreResult<Vec<FeedEvent>> {
    let condition = if of.is_some() { "e.loop_id = ?3" } else { "CAST(?3 AS TEXT) IS NULL" };
    let sql = format!(
        "SELECT e.rowid, e.loop_id, s.forge, s.repo_id, s.owner, s.name, e.at, e.seq, json_extract(e.input, '$.input'),
             e.reasons, s.state, s.iterations, s.completion, s.cost, s.reason
         FROM loop_events e CROSS JOIN loop_summaries s
         WHERE s.loop_id = e.loop_id AND e.rowid > ?1 AND {condition} ORDER BY e.rowid LIMIT ?2"
    );
    let mut statement = c.prepare_cached(&sql)?;
    let mut rows = statement.query(params![after, limit as i64, of.map(LoopId::as_str)])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let state: String = row.get(10)?;
        events.push(FeedEvent {
            row: row.get(0)?,
            loop_id: LoopId::new(row.get::<_, String>(1)?),
            repo: repository(&row, 2)?,
            at: Timestamp(row.get(6)?),
            what: FeedKind::Step {
                seq: row.get(7)?,
                input: row.get::<_, Option<String>>(8)?.unwrap_or_default(),
                reasons: serde_json::from_str(&row.get::<_, String>(9)?)?,
                now: FeedState {
                    state: LoopState::parse(&state).unwrap_or(LoopState::Failed),
                    iteration: row.get(11)?,
                    completion: Ratio::new(row.get(12)?),
                    cost: Money(row.get(13)?),
                    reason: row.get(14)?,
                },
            },
        });
    }
    Ok(events)
}

fn activities(c: &Connection, after: i64, of: Option<&LoopId>, limit: usize) -> StoreResult<Vec<FeedEvent>> {
    let condition = if of.is_some() { "e.loop_id = ?3" } else { "CAST(?3 AS TEXT) IS NULL" };
    let sql = format!(
        "SELECT e.iteration, e.kind, e.tool, e.path, e.text, e.failed, e.at, e.id, e.loop_id, s.forge, s.repo_id, s.owner, s.name
         FROM session_events e CROSS JOIN loop_summaries s
         WHERE s.loop_id = e.loop_id AND e.id > ?1 AND {condition} ORDER BY e.id LIMIT ?2"
    );
    let mut statement = c.prepare_cached(&sql)?;
    let mut rows = statement.query(params![after, limit as i64, of.map(LoopId::as_str)])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let event = session::event(&row)?;
        events.push(FeedEvent {
            row: row.get(7)?,
            loop_id: LoopId::new(row.get::<_, String>(8)?),
            repo: repository(&row, 9)?,
            at: event.at,
            what: FeedKind::Activity(event),
        });
    }
    Ok(events)
}

fn outputs(c: &Connection, after: i64, of: Option<&LoopId>, limit: usize) -> StoreResult<Vec<FeedEvent>> {
    let condition = if of.is_some() { "o.loop_id = ?3" } else { "CAST(?3 AS TEXT) IS NULL" };
    let sql = format!(
        "SELECT o.id, o.loop_id, s.forge, s.repo_id, s.owner, s.name, o.at, o.iteration, o.text
         FROM session_output o CROSS JOIN loop_summaries s
         WHERE s.loop_id = o.loop_id AND o.id > ?1 AND {condition} ORDER BY o.id LIMIT ?2"
    );
    let mut statement = c.prepare_cached(&sql)?;
    let mut rows = statement.query(params![after, limit as i64, of.map(LoopId::as_str)])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(FeedEvent {
            row: row.get(0)?,
            loop_id: LoopId::new(row.get::<_, String>(1)?),
            repo: repository(&row, 2)?,
            at: Timestamp(row.get(6)?),
            what: FeedKind::Output { iteration: row.get(7)?, text: session::stored_text(row.get_ref(8)?)? },
        });
    }
    Ok(events)
}
