//! Outbox: stores an effect before it is executed, and its receipt afterwards. The effects of one loop and queue are
//! executed one at a time, under a lease with a fencing number.

use super::leases::{self, LeaseToken};
use super::{StoreError, StoreResult};
use crate::domain::lifecycle::effect::{Effect, EffectQueue, channel_queue};
use crate::domain::model::host::has_labels;
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{ForgeName, LoopId, Timestamp};
use crate::store::sql::{Connection, OptionalExtension, Row, params};

/// Minimum delay, in milliseconds, of a postponed status or label for which later effects of the loop do not wait.
const PUT_OFF_MS: i64 = 5_000;
/// Number of effects that a claim reads at a time, because PostgreSQL sends the rows of a query together.
const CLAIM_PAGE: i64 = 64;
/// Time for which only the previous host of a loop, if it is alive, may start a run of its agent, in milliseconds.
const START_RESERVED_MS: i64 = 5_000;
/// Time for which only the previous host of a loop, if it is alive, may continue an iteration, in milliseconds. Another host
/// would lose the files that are not committed.
const CONTINUE_RESERVED_MS: i64 = 60_000;
/// Condition that a work effect `o` needs no uncommitted files of the loop's tree.
pub(super) const STARTS: &str = "(o.key LIKE 'agent/%' OR o.key LIKE 'plan/%' OR o.key LIKE 'prepare/%')";

/// Process that claims effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimant {
    /// Name of the process as an owner of leases.
    pub owner: String,
    /// Id of its host.
    pub host: String,
    /// Labels of its host.
    pub labels: Vec<String>,
    /// Loop whose iteration the process continues; it then claims no work of other loops and starts no run.
    pub continues: Option<LoopId>,
}

impl Claimant {
    /// Returns a process whose host has no row and no labels.
    pub fn without_host(owner: &str) -> Self {
        Self { owner: owner.to_owned(), host: String::new(), labels: Vec::new(), continues: None }
    }
}

/// An effect claimed for execution.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedEffect {
    /// Row id.
    pub id: i64,
    /// Id of the loop, or key of the issue if there is no loop.
    pub subject: String,
    /// Loop of the effect; `None` if the effect concerns an issue without a loop.
    pub loop_id: Option<LoopId>,
    /// Kind of the queue.
    pub lane: EffectQueue,
    /// Name of the queue.
    pub queue: String,
    /// Natural key within the subject.
    pub key: String,
    /// The effect.
    pub effect: Effect,
    /// Issue or pull request that the effect concerns.
    pub place: IssueRef,
    /// Number of earlier started attempts; above 0, the effect may have happened already.
    pub attempts: u32,
    /// Number of earlier claims; the delay between two attempts grows with it.
    pub tries: u32,
    /// Whether the effect's last owner died during execution, so its result is unknown.
    pub abandoned: bool,
    /// Fencing number of the effect's lease.
    pub fence: i64,
    /// Time of its creation; for work, by the database's clock.
    pub created_at: Timestamp,
    /// Time of this claim.
    pub claimed_at: Timestamp,
}

impl ClaimedEffect {
    /// Returns the name of the effect's lease.
    pub fn lease(&self) -> String {
        lease_name(&self.subject, &self.queue)
    }

    /// Returns the acquisition of the effect's lease by `owner`.
    pub fn token(&self, owner: &str) -> LeaseToken {
        LeaseToken { name: self.lease(), owner: owner.to_owned(), fence: self.fence }
    }
}

/// Returns the name of the lease on a subject's effects of a queue.
pub fn lease_name(subject: &str, queue: &str) -> String {
    format!("{subject}/{queue}")
}

/// Adds an effect to its queue. If it replaces older effects, removes those that wait and were never started.
pub fn enqueue(
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
    // Work is reserved for a host since its creation, and the clocks of hosts may differ.
    let created_at = if effect.lane() == Some(EffectQueue::Work) { leases::time(c, now)? } else { now };
    let sql = "INSERT INTO outbox (subject, lane, loop_id, key, effect, place, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    c.prepare_cached(sql)?.execute(params![
        subject,
        effect.queue(),
        loop_id.map(LoopId::as_str),
        key,
        serde_json::to_string(effect)?,
        serde_json::to_string(place)?,
        created_at.0
    ])?;
    Ok(())
}

/// Receipt prefix of a comment that waits because the conversation is locked.
pub const LOCKED_PREFIX: &str = "locked: ";

/// Returns the number of comments on a forge that wait because of a locked conversation, and the newest one's receipt.
pub fn locked_out(c: &Connection, forge: &ForgeName) -> StoreResult<(u64, Option<String>)> {
    let sql = "SELECT count(*), max(receipt) FROM outbox
        WHERE state = 'ready' AND receipt LIKE 'locked: %' AND json_extract(place, '$.repo.forge') = ?1";
    Ok(c.query_row(sql, [forge.as_str()], |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)))?)
}

/// Claims the oldest effect of a queue whose subject is free and whose lease and target `may` permits. Claims a dead owner's
/// started effects again, with `attempts` above 0. Later effects do not wait for a postponed effect that was never sent, if
/// it is a status or label with a long delay, or a comment in a locked conversation.
///
/// A host claims only work of loops whose labels it has, and releases of trees. For some time after work became due, it is
/// reserved for the host with the loop's tree. While a host drains, it continues iterations of the loops whose trees it has
/// and starts none.
pub fn claim(
    c: &Connection,
    queue: &str,
    may: impl Fn(&str, &IssueRef) -> bool,
    by: &Claimant,
    now: Timestamp,
    lease_ms: i64,
) -> StoreResult<Option<ClaimedEffect>> {
    let mut statement = c.prepare_cached(claim_query())?;
    let lease_time = leases::time(c, now)?;
    let mut after = 0;
    loop {
        let mut rows = statement.query(params![
            queue,
            now.0,
            PUT_OFF_MS,
            after,
            CLAIM_PAGE,
            lease_time.0,
            by.host,
            lease_time.plus_ms(-lease_ms).0,
            lease_time.plus_ms(-START_RESERVED_MS).0,
            lease_time.plus_ms(-CONTINUE_RESERVED_MS).0,
            lease_time.plus_ms(START_RESERVED_MS).0,
            by.continues.as_ref().map(LoopId::as_str),
        ])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let (id, key): (i64, String) = (row.get(0)?, row.get(3)?);
            after = id;
            count += 1;
            let (effect, place): (String, String) = (row.get(4)?, row.get(5)?);
            let (Ok(effect), Ok(place)) =
                (serde_json::from_str::<Effect>(&effect), serde_json::from_str::<IssueRef>(&place))
            else {
                // Another version wrote it; later effects must not wait for it.
                drop(rows);
                let sql =
                    "UPDATE outbox SET state = 'rejected', ended_at = ?2, receipt = 'not understood' WHERE id = ?1";
                c.prepare_cached(sql)?.execute(params![id, now.0])?;
                tracing::error!(id, key, "could not parse an effect of the outbox and rejected it");
                return Ok(None);
            };
            let subject: String = row.get(1)?;
            let needed: Option<String> = row.get(10)?;
            let needed: Vec<String> = needed.map_or(Ok(Vec::new()), |needed| serde_json::from_str(&needed))?;
            if !may(&lease_name(&subject, queue), &place) || !has_labels(&by.labels, &needed) {
                continue;
            }
            let claimed = ClaimedEffect {
                id,
                subject,
                loop_id: row.get::<_, Option<String>>(2)?.map(LoopId::new),
                lane: effect.lane().unwrap_or(EffectQueue::Forge),
                queue: queue.to_owned(),
                key,
                effect,
                place,
                attempts: row.get(6)?,
                tries: row.get(9)?,
                abandoned: row.get(8)?,
                fence: 0,
                created_at: Timestamp(row.get(7)?),
                claimed_at: now,
            };
            drop(rows);
            let Some(fence) = leases::take(c, &claimed.lease(), &by.owner, now, lease_ms)? else {
                return Ok(None);
            };
            let sql = "UPDATE outbox SET state = 'running', attempts = attempts + 1, tries = tries + 1, fence = ?2 WHERE id = ?1";
            c.prepare_cached(sql)?.execute(params![id, fence])?;
            return Ok(Some(ClaimedEffect { fence, ..claimed }));
        }
        if count < CLAIM_PAGE {
            return Ok(None);
        }
    }
}

/// Returns the query of [`claim`]. Parameters: queue (1), time (2), delay of a postponed effect (3), last id (4), number of rows (5),
/// time of leases (6), host (7), time of the last heartbeat of a live host (8), times since which starts (9) and continuations (10) are
/// reserved, and until which (11), and the only loop (12), or `NULL`.
fn claim_query() -> &'static str {
    static QUERY: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        format!(
            "SELECT o.id, o.subject, o.loop_id, o.key, o.effect, o.place, o.attempts, o.created_at, o.state = 'running', o.tries,
                CASE WHEN o.lane = 'work' AND o.key <> 'release' THEN (SELECT l.runs_on FROM loops l WHERE l.id = o.loop_id) END
         FROM outbox o
         WHERE o.lane = ?1 AND o.id > ?4 AND o.state IN ('ready', 'running') AND o.not_before <= ?2
           AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.subject = o.subject AND e.lane = o.lane
                             AND e.state IN ('ready', 'running') AND e.id < o.id
                             AND NOT (e.state = 'ready' AND e.attempts = 0 AND e.not_before > ?2
                                      AND (e.key IN ('status', 'label') AND e.not_before > ?2 + ?3
                                           OR e.receipt LIKE 'locked: %')))
           AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.name = o.subject || '/' || o.lane AND l.expires_at > ?6)
           AND (o.lane <> 'work' OR NOT EXISTS (
                SELECT 1 FROM loop_files f JOIN hosts h ON h.id = f.host
                WHERE f.loop_id = o.loop_id AND f.host <> ?7 AND h.seen_at > ?8 AND h.stopped = 0 AND o.state = 'ready'
                  AND max(o.created_at, o.not_before) BETWEEN CASE WHEN {STARTS} THEN CAST(?9 AS BIGINT) ELSE CAST(?10 AS BIGINT) END AND ?11
                  AND NOT (h.draining = 1 AND {STARTS})))
           AND (o.lane <> 'work' OR NOT EXISTS (SELECT 1 FROM hosts h WHERE h.id = ?7 AND h.draining = 1)
                OR NOT {STARTS} AND NOT EXISTS (SELECT 1 FROM loop_files f WHERE f.loop_id = o.loop_id AND f.host <> ?7))
           AND (CAST(?12 AS TEXT) IS NULL OR o.subject = ?12 AND NOT {STARTS})
         ORDER BY o.id LIMIT ?5"
        )
    });
    &QUERY
}

/// Result of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectOutcome {
    /// Done.
    Done,
    /// Rejected permanently.
    Rejected,
    /// Cancelled before it was done.
    Cancelled,
}

impl EffectOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Stores the receipt and releases the lease.
///
/// # Errors
/// `Fenced` if another owner has taken over.
pub fn finish(
    c: &Connection,
    claimed: &ClaimedEffect,
    owner: &str,
    ended: EffectOutcome,
    receipt: &str,
    now: Timestamp,
) -> StoreResult<()> {
    claimed.token(owner).check(c)?;
    let sql = "UPDATE outbox SET state = ?2, receipt = ?3, ended_at = ?4 WHERE id = ?1 AND fence = ?5";
    let changed = c.prepare_cached(sql)?.execute(params![claimed.id, ended.as_str(), receipt, now.0, claimed.fence])?;
    unless_taken(claimed, changed)?;
    leases::release(c, &claimed.lease(), owner, claimed.fence)
}

/// Returns an effect to its queue for another attempt, not before `not_before`. `began` states whether the effect may have
/// happened.
pub fn reschedule(
    c: &Connection,
    claimed: &ClaimedEffect,
    owner: &str,
    not_before: Timestamp,
    began: bool,
    why: &str,
) -> StoreResult<()> {
    claimed.token(owner).check(c)?;
    let sql = "UPDATE outbox SET state = 'ready', not_before = ?2, receipt = ?3,
        attempts = CASE WHEN ?4 THEN attempts ELSE attempts - 1 END WHERE id = ?1 AND fence = ?5";
    let changed = c.prepare_cached(sql)?.execute(params![claimed.id, not_before.0, why, began, claimed.fence])?;
    unless_taken(claimed, changed)?;
    leases::release(c, &claimed.lease(), owner, claimed.fence)
}

/// Returns `Fenced` if a write of the holder changed no row.
fn unless_taken(claimed: &ClaimedEffect, changed: usize) -> StoreResult<()> {
    if changed == 0 { Err(StoreError::Fenced { name: claimed.lease() }) } else { Ok(()) }
}

/// Makes a loop's postponed effects due now, unless they may have happened already.
pub fn make_due(c: &Connection, id: &LoopId, now: Timestamp) -> StoreResult<()> {
    let sql =
        "UPDATE outbox SET not_before = ?2 WHERE subject = ?1 AND state = 'ready' AND attempts = 0 AND not_before > ?2";
    c.prepare_cached(sql)?.execute(params![id.as_str(), now.0])?;
    Ok(())
}

/// Cancels a loop's waiting work effects, except the release of its work tree, and marks running work to be stopped.
pub fn cancel_work(c: &Connection, id: &LoopId, now: Timestamp) -> StoreResult<()> {
    let sql = "UPDATE outbox SET state = 'cancelled', ended_at = ?2, receipt = 'taken back'
        WHERE subject = ?1 AND lane = 'work' AND state = 'ready' AND key <> 'release'";
    c.prepare_cached(sql)?.execute(params![id.as_str(), now.0])?;
    let sql =
        "UPDATE outbox SET cancel = 1 WHERE subject = ?1 AND lane = 'work' AND state = 'running' AND key <> 'release'";
    c.prepare_cached(sql)?.execute([id.as_str()])?;
    Ok(())
}

/// Returns the loops with started work and an expired lease.
pub fn lost_work(c: &Connection, now: Timestamp) -> StoreResult<Vec<LoopId>> {
    let now = leases::time(c, now)?;
    let mut statement = c.prepare_cached(
        "SELECT DISTINCT o.loop_id FROM outbox o WHERE o.lane = 'work' AND o.state = 'running' AND o.loop_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.name = o.subject || '/' || o.lane AND l.expires_at > ?1)",
    )?;
    let rows = statement.query_map([now.0], |row| Ok(LoopId::new(row.get::<_, String>(0)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the row ids of running work that must stop.
pub fn to_stop(c: &Connection) -> StoreResult<Vec<i64>> {
    let mut statement =
        c.prepare_cached("SELECT id FROM outbox WHERE lane = 'work' AND state IN ('ready', 'running') AND cancel = 1")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether the effect with this row id must stop.
pub fn is_cancelled(c: &Connection, id: i64) -> StoreResult<bool> {
    let flag: Option<bool> =
        c.query_row("SELECT cancel FROM outbox WHERE id = ?1", [id], |row| row.get(0)).optional()?;
    Ok(flag.unwrap_or(true))
}

/// Returns the keys of all messages about a loop to a channel, oldest first.
pub fn channel_keys(c: &Connection, subject: &str, channel: &str) -> StoreResult<Vec<String>> {
    let mut statement = c.prepare_cached("SELECT key FROM outbox WHERE subject = ?1 AND lane = ?2 ORDER BY id")?;
    let rows = statement.query_map([subject, &channel_queue(channel)], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns whether an effect with this natural key waits or runs, and the newest URL in the receipts of such effects.
pub fn opened(c: &Connection, subject: &str, key: &str) -> StoreResult<(bool, Option<String>)> {
    let sql = "SELECT EXISTS (SELECT 1 FROM outbox WHERE subject = ?1 AND key = ?2 AND state IN ('ready', 'running')),
        (SELECT receipt FROM outbox WHERE subject = ?1 AND key = ?2 AND state = 'done' AND receipt LIKE 'http%'
         ORDER BY id DESC LIMIT 1)";
    Ok(c.prepare_cached(sql)?.query_row([subject, key], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Cancels messages to channels that are no longer configured; returns their number.
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

/// Makes effects due now if their due time is more than `most_ms` milliseconds in the future.
pub fn cap_delay(c: &Connection, now: Timestamp, most_ms: i64) -> StoreResult<()> {
    let sql = "UPDATE outbox SET not_before = ?1 WHERE state IN ('ready', 'running') AND not_before > ?2";
    c.execute(sql, params![now.0, now.plus_ms(most_ms).0])?;
    Ok(())
}

/// Returns the number of effects that wait or run, by queue.
pub fn counts(c: &Connection) -> StoreResult<Vec<(String, u64)>> {
    let mut statement =
        c.prepare_cached("SELECT lane, count(*) FROM outbox WHERE state IN ('ready', 'running') GROUP BY lane")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns each queue's label in metrics, its length, and the time since when the oldest due effect has waited.
pub fn queues(c: &Connection, now: Timestamp) -> StoreResult<Vec<(&'static str, u64, Option<Timestamp>)>> {
    let sql =
        "SELECT count(*), min(CASE WHEN state = 'ready' AND not_before <= ?2 THEN max(created_at, not_before) END)
        FROM outbox WHERE state IN ('ready', 'running') AND (lane = ?1 OR lane LIKE ?1 || '/%')";
    let mut statement = c.prepare_cached(sql)?;
    let mut queue = |queue: EffectQueue| -> StoreResult<(&'static str, u64, Option<Timestamp>)> {
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, Option<i64>>(1)?));
        let (length, oldest) = statement.query_row(params![queue.as_str(), now.0], read)?;
        Ok((queue.label(), length, oldest.map(Timestamp)))
    };
    [EffectQueue::Forge, EffectQueue::Work, EffectQueue::Channels].into_iter().map(&mut queue).collect()
}

/// State of an effect, for people and tests.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct EffectRow {
    /// Natural key.
    pub key: String,
    /// State: `ready`, `running`, `done`, `rejected` or `cancelled`.
    pub state: String,
    /// Number of claims.
    pub attempts: u32,
    /// Result as text; `None` until the effect is finished.
    pub receipt: Option<String>,
    /// Time of its creation.
    pub created_at: Timestamp,
}

/// Returns all effects of a subject, oldest first.
pub fn of_subject(c: &Connection, subject: &str) -> StoreResult<Vec<EffectRow>> {
    let mut statement =
        c.prepare_cached("SELECT key, state, tries, receipt, created_at FROM outbox WHERE subject = ?1 ORDER BY id")?;
    let rows = statement.query_map([subject], |r| {
        Ok(EffectRow {
            key: r.get(0)?,
            state: r.get(1)?,
            attempts: r.get(2)?,
            receipt: r.get(3)?,
            created_at: Timestamp(r.get(4)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
