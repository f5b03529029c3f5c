//! What is to be done in the world: intent before, receipt after, one at a time a loop and queue, under a fenced lease.

use rusqlite::{Connection, OptionalExtension, params};

use super::{StoreResult, leases};
use crate::domain::lifecycle::effect::{Effect, Lane, channel_queue};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{LoopId, Timestamp};

/// An effect that we have taken on.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// Row.
    pub id: i64,
    /// Loop id, or issue key where there is no loop.
    pub subject: String,
    /// The loop.
    pub loop_id: Option<LoopId>,
    /// Where it is done.
    pub lane: Lane,
    /// The queue that it was taken from.
    pub queue: String,
    /// Natural key within the subject.
    pub key: String,
    /// What to do.
    pub effect: Effect,
    /// Where.
    pub place: IssueRef,
    /// How often it was begun before: more than 0 means that it may have happened already.
    pub attempts: u32,
    /// How often it was taken on before; the time between two tries grows with it.
    pub tries: u32,
    /// Whether its last owner was lost while it was under way: what came of it is not known.
    pub abandoned: bool,
    /// Fence of the lease that we hold for it.
    pub fence: i64,
    /// When it was asked for.
    pub created_at: Timestamp,
}

impl Claimed {
    /// Name of the lease.
    pub fn lease(&self) -> String {
        lease_name(&self.subject, &self.queue)
    }
}

fn lease_name(subject: &str, queue: &str) -> String {
    format!("{subject}/{queue}")
}

/// Puts an effect into its queue. One that replaces older ones takes those that wait and were not begun away.
pub fn push(
    c: &Connection,
    subject: &str,
    loop_id: Option<&LoopId>,
    place: &IssueRef,
    effect: &Effect,
    now: Timestamp,
) -> StoreResult<()> {
    if effect.lane().is_none() {
        return Ok(());
    }
    let key = effect.key();
    if effect.replaces_older() {
        let sql = "UPDATE outbox SET state = 'cancelled', ended_at = ?3, receipt = 'replaced'
            WHERE subject = ?1 AND key = ?2 AND state = 'ready' AND attempts = 0";
        c.prepare_cached(sql)?.execute(params![subject, key, now.0])?;
    }
    let sql = "INSERT INTO outbox (subject, lane, loop_id, key, effect, place, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    c.prepare_cached(sql)?.execute(params![
        subject,
        effect.queue(),
        loop_id.map(LoopId::as_str),
        key,
        serde_json::to_string(effect)?,
        serde_json::to_string(place)?,
        now.0
    ])?;
    Ok(())
}

/// Takes on the oldest effect of a queue whose subject is free, of what may be done where it goes. Begun ones of lost
/// owners come again here, with `attempts` above 0.
pub fn claim(
    c: &Connection,
    queue: &str,
    may: impl Fn(&IssueRef) -> bool,
    owner: &str,
    now: Timestamp,
    lease_ms: i64,
) -> StoreResult<Option<Claimed>> {
    let mut statement = c.prepare_cached(
        "SELECT o.id, o.subject, o.loop_id, o.key, o.effect, o.place, o.attempts, o.created_at, o.state = 'running', o.tries FROM outbox o
         WHERE o.lane = ?1 AND o.state IN ('ready', 'running') AND o.not_before <= ?2
           AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.subject = o.subject AND e.lane = o.lane
                             AND e.state IN ('ready', 'running') AND e.id < o.id)
           AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.name = o.subject || '/' || o.lane AND l.expires_at > ?2)
         ORDER BY o.id",
    )?;
    let mut rows = statement.query(params![queue, now.0])?;
    while let Some(row) = rows.next()? {
        let (id, key): (i64, String) = (row.get(0)?, row.get(3)?);
        let (effect, place): (String, String) = (row.get(4)?, row.get(5)?);
        let (Ok(effect), Ok(place)) =
            (serde_json::from_str::<Effect>(&effect), serde_json::from_str::<IssueRef>(&place))
        else {
            // Written by another version: nothing behind it must wait for it.
            drop(rows);
            let sql = "UPDATE outbox SET state = 'rejected', ended_at = ?2, receipt = 'not understood' WHERE id = ?1";
            c.prepare_cached(sql)?.execute(params![id, now.0])?;
            tracing::error!(id, key, "an effect of the outbox is not understood and was set aside");
            return Ok(None);
        };
        if !may(&place) {
            continue;
        }
        let claimed = Claimed {
            id,
            subject: row.get(1)?,
            loop_id: row.get::<_, Option<String>>(2)?.map(LoopId::new),
            lane: effect.lane().unwrap_or(Lane::Talk),
            queue: queue.to_owned(),
            key,
            effect,
            place,
            attempts: row.get(6)?,
            tries: row.get(9)?,
            abandoned: row.get(8)?,
            fence: 0,
            created_at: Timestamp(row.get(7)?),
        };
        drop(rows);
        let Some(fence) = leases::take(c, &claimed.lease(), owner, now, now.plus_ms(lease_ms))? else {
            return Ok(None);
        };
        let sql =
            "UPDATE outbox SET state = 'running', attempts = attempts + 1, tries = tries + 1, fence = ?2 WHERE id = ?1";
        c.prepare_cached(sql)?.execute(params![id, fence])?;
        return Ok(Some(Claimed { fence, ..claimed }));
    }
    Ok(None)
}

/// How an effect ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is done.
    Done,
    /// It was refused for good.
    Rejected,
    /// It was taken back before it was done.
    Cancelled,
}

impl Ended {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Records the receipt and gives the lease back. Errors with `Fenced` where somebody else has taken over.
pub fn finish(
    c: &Connection,
    claimed: &Claimed,
    owner: &str,
    ended: Ended,
    receipt: &str,
    now: Timestamp,
) -> StoreResult<()> {
    leases::check(c, &claimed.lease(), owner, claimed.fence)?;
    let sql = "UPDATE outbox SET state = ?2, receipt = ?3, ended_at = ?4 WHERE id = ?1";
    c.prepare_cached(sql)?.execute(params![claimed.id, ended.as_str(), receipt, now.0])?;
    leases::release(c, &claimed.lease(), owner, claimed.fence)
}

/// Puts an effect back, to be tried again from `not_before` on. `began` says whether it may have taken effect.
pub fn put_back(
    c: &Connection,
    claimed: &Claimed,
    owner: &str,
    not_before: Timestamp,
    began: bool,
    why: &str,
) -> StoreResult<()> {
    leases::check(c, &claimed.lease(), owner, claimed.fence)?;
    let sql = "UPDATE outbox SET state = 'ready', not_before = ?2, receipt = ?3,
        attempts = CASE WHEN ?4 THEN attempts ELSE attempts - 1 END WHERE id = ?1";
    c.prepare_cached(sql)?.execute(params![claimed.id, not_before.0, why, began])?;
    leases::release(c, &claimed.lease(), owner, claimed.fence)
}

/// Takes a loop's waiting work back and marks running work to be stopped. The tree of an ended loop is still released.
pub fn cancel_work(c: &Connection, id: &LoopId, now: Timestamp) -> StoreResult<()> {
    let sql = "UPDATE outbox SET state = 'cancelled', ended_at = ?2, receipt = 'taken back'
        WHERE subject = ?1 AND lane = 'work' AND state = 'ready' AND key <> 'release'";
    c.prepare_cached(sql)?.execute(params![id.as_str(), now.0])?;
    let sql =
        "UPDATE outbox SET cancel = 1 WHERE subject = ?1 AND lane = 'work' AND state = 'running' AND key <> 'release'";
    c.prepare_cached(sql)?.execute([id.as_str()])?;
    Ok(())
}

/// Loops whose work was begun by an owner that is lost: nobody holds its lease.
pub fn lost_work(c: &Connection, now: Timestamp) -> StoreResult<Vec<LoopId>> {
    let mut statement = c.prepare_cached(
        "SELECT DISTINCT o.loop_id FROM outbox o WHERE o.lane = 'work' AND o.state = 'running' AND o.loop_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.name = o.subject || '/' || o.lane AND l.expires_at > ?1)",
    )?;
    let rows = statement.query_map([now.0], |row| Ok(LoopId::new(row.get::<_, String>(0)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Rows of running work that should be stopped.
pub fn to_stop(c: &Connection) -> StoreResult<Vec<i64>> {
    let mut statement =
        c.prepare_cached("SELECT id FROM outbox WHERE lane = 'work' AND state IN ('ready', 'running') AND cancel = 1")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether a row should be stopped.
pub fn is_cancelled(c: &Connection, id: i64) -> StoreResult<bool> {
    let flag: Option<bool> =
        c.query_row("SELECT cancel FROM outbox WHERE id = ?1", [id], |row| row.get(0)).optional()?;
    Ok(flag.unwrap_or(true))
}

/// Keys of everything that a channel was to be told about a loop, oldest first.
pub fn told(c: &Connection, subject: &str, channel: &str) -> StoreResult<Vec<String>> {
    let mut statement = c.prepare_cached("SELECT key FROM outbox WHERE subject = ?1 AND lane = ?2 ORDER BY id")?;
    let rows = statement.query_map([subject, &channel_queue(channel)], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether an effect of a natural key waits or runs, and the newest address that one of them left as its receipt.
pub fn opened(c: &Connection, subject: &str, key: &str) -> StoreResult<(bool, Option<String>)> {
    let sql = "SELECT EXISTS (SELECT 1 FROM outbox WHERE subject = ?1 AND key = ?2 AND state IN ('ready', 'running')),
        (SELECT receipt FROM outbox WHERE subject = ?1 AND key = ?2 AND state = 'done' AND receipt LIKE 'http%'
         ORDER BY id DESC LIMIT 1)";
    Ok(c.prepare_cached(sql)?.query_row([subject, key], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Takes back what waits for channels that are not configured any more: nobody would ever come for it.
pub fn forget_channels(c: &Connection, configured: &[String], now: Timestamp) -> StoreResult<usize> {
    let sql = "SELECT DISTINCT lane FROM outbox WHERE lane LIKE 'notify/%' AND state IN ('ready', 'running')";
    let mut statement = c.prepare(sql)?;
    let waiting = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let known = |queue: &String| configured.iter().any(|channel| channel_queue(channel) == *queue);
    let mut count = 0;
    for queue in waiting.iter().filter(|queue| !known(queue)) {
        let sql = "UPDATE outbox SET state = 'cancelled', ended_at = ?2, receipt = 'its channel is not configured now'
            WHERE lane = ?1 AND state IN ('ready', 'running')";
        count += c.execute(sql, params![queue, now.0])?;
    }
    Ok(count)
}

/// Makes due what was put off to later than `most_ms` from now.
pub fn pull_in(c: &Connection, now: Timestamp, most_ms: i64) -> StoreResult<()> {
    let sql = "UPDATE outbox SET not_before = ?1 WHERE state IN ('ready', 'running') AND not_before > ?2";
    c.execute(sql, params![now.0, now.plus_ms(most_ms).0])?;
    Ok(())
}

/// Number of effects that wait or run, by lane.
pub fn counts(c: &Connection) -> StoreResult<Vec<(String, u64)>> {
    let mut statement =
        c.prepare_cached("SELECT lane, count(*) FROM outbox WHERE state IN ('ready', 'running') GROUP BY lane")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// One line of what was done, for people and for the oracle of the tests.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Receipt {
    /// Natural key.
    pub key: String,
    /// ready, running, done, rejected, cancelled.
    pub state: String,
    /// How often it was taken on.
    pub attempts: u32,
    /// What came of it.
    pub receipt: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
}

/// Everything that was asked for on behalf of a loop, oldest first.
pub fn of_subject(c: &Connection, subject: &str) -> StoreResult<Vec<Receipt>> {
    let mut statement =
        c.prepare_cached("SELECT key, state, tries, receipt, created_at FROM outbox WHERE subject = ?1 ORDER BY id")?;
    let rows = statement.query_map([subject], |r| {
        Ok(Receipt {
            key: r.get(0)?,
            state: r.get(1)?,
            attempts: r.get(2)?,
            receipt: r.get(3)?,
            created_at: Timestamp(r.get(4)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
