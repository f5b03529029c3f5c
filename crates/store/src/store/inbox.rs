//! Inbox: webhook deliveries, which are stored before they are acknowledged, and changes found by polling. They are
//! processed in order.

use std::cell::RefCell;
use std::collections::HashSet;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use ralph_types::failure::Failure;
use serde::{Deserialize, Serialize};

use super::{StoreError, StoreResult};
use crate::domain::model::event::ForgeEvent;
use crate::domain::model::ids::{ForgeName, Timestamp};
use crate::store::sql::{Connection, OptionalExtension, Row, Value, params, params_from_iter};

/// Id prefix of changes found by polling. The service rejects a webhook delivery whose id has this prefix.
pub const POLLED: &str = "poll/";

/// Verified delivery, or a change found by polling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDelivery {
    /// Forge whose webhook path received the delivery.
    pub forge: ForgeName,
    /// Id from the forge; for a change found by polling, [`POLLED`] followed by its natural key.
    pub delivery: String,
    /// Event header of the forge. It is not signed, so it is only a hint.
    pub event: String,
    /// Signed body.
    pub body: Body,
}

impl StoredDelivery {
    /// Whether polling found the change. The body is then an event created by this service.
    pub fn is_polled(&self) -> bool {
        self.delivery.starts_with(POLLED)
    }
}

/// Repository, issue and sender of a delivery, as the forge reported them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryAbout {
    /// `owner/name` of the repository.
    pub repository: String,
    /// Numeric id of the repository.
    pub repo_id: i64,
    /// Number of the issue or pull request; `None` if the event concerns none.
    pub number: Option<u64>,
    /// Login of the account that caused the event.
    pub sender: Option<String>,
}

impl DeliveryAbout {
    /// Returns the repository, issue and sender of an event; `None` if it has no repository.
    pub fn of(event: &ForgeEvent) -> Option<Self> {
        let repo = event.repo()?;
        Some(Self {
            repository: repo.full_name(),
            repo_id: repo.id.0,
            number: event.number().map(|number| number.0),
            sender: event.sender().map(|user| user.login.clone()),
        })
    }
}

/// Compressed body, about a quarter of the original size. The receiver compresses it to relieve the single writer thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body(Vec<u8>);

/// Maximum size of a body, in bytes; a larger stored length means that the row is damaged.
const LONGEST: usize = 64 << 20;

impl Body {
    /// Compresses a body.
    pub fn pack(bytes: &[u8]) -> Self {
        thread_local! {
            // Reused for all bodies, because creating a table takes as long as compressing a small body.
            static TABLE: RefCell<CompressTable> = RefCell::new(CompressTable::small());
        }
        let head = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut packed = vec![0; head.len() + get_maximum_output_size(bytes.len())];
        let (size, rest) = packed.split_at_mut(head.len());
        size.copy_from_slice(&head);
        let length = TABLE.with_borrow_mut(|table| compress_into_with_table(bytes, rest, table));
        packed.truncate(head.len() + length.expect("there is room for the longest packed form"));
        packed.shrink_to_fit();
        Self(packed)
    }

    /// Returns the compressed size in bytes.
    pub fn stored(&self) -> usize {
        self.0.len()
    }

    /// Returns the original body.
    ///
    /// # Errors
    /// `Bug` if the stored bytes are damaged.
    pub fn unpack(&self) -> StoreResult<Vec<u8>> {
        let damaged = |cause: Failure| StoreError::Bug {
            detail: Failure::new("the body of a delivery is damaged").caused_by(cause),
        };
        match lz4_flex::block::uncompressed_size(&self.0) {
            Ok((length, _)) if length > LONGEST => Err(damaged(format!("it claims {length} bytes").into())),
            Ok(_) => lz4_flex::decompress_size_prepended(&self.0).map_err(|error| damaged(Failure::of(error))),
            Err(error) => Err(damaged(Failure::of(error))),
        }
    }
}

/// A delivery that waits to be processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingDelivery {
    /// Row id.
    pub id: i64,
    /// Content of the delivery.
    pub delivery: StoredDelivery,
    /// Time of receipt.
    pub received_at: Timestamp,
    /// Number of failed processing attempts.
    pub attempts: u32,
}

/// Result of processing a delivery, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// Processed.
    Done,
    /// No effect; the reason is stored as well.
    Ignored,
    /// Rejected because the forge does not confirm the content.
    Refused,
    /// Abandoned after repeated failures; a person must act.
    Dead,
}

impl DeliveryOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
            Self::Dead => "dead",
        }
    }
}

/// Stores a delivery; returns `false` if a delivery of the forge with this id is already stored. If a webhook repeats an
/// abandoned delivery, it is processed again. Ignores a change that polling finds again.
pub fn insert(c: &Connection, delivery: &StoredDelivery, at: Timestamp) -> StoreResult<bool> {
    let mut statement = c.prepare_cached(
        "INSERT INTO inbox (forge, delivery, event, body, received_at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (forge, delivery) DO UPDATE SET state = 'new', attempts = 0, not_before = 0, reason = NULL,
             event = excluded.event, body = excluded.body, received_at = excluded.received_at
         WHERE inbox.state = 'dead' AND inbox.delivery NOT LIKE 'poll/%'",
    )?;
    let row = params![delivery.forge.as_str(), delivery.delivery, delivery.event, delivery.body.0, at.0];
    Ok(statement.execute(row)? == 1)
}

/// Returns the ids among `deliveries` that are stored for the forge and not abandoned.
pub fn stored(c: &Connection, forge: &ForgeName, deliveries: &[String]) -> StoreResult<HashSet<String>> {
    let sql = "SELECT EXISTS (SELECT 1 FROM inbox WHERE forge = ?1 AND delivery = ?2 AND state <> 'dead')";
    let mut statement = c.prepare_cached(sql)?;
    let mut found = HashSet::new();
    for delivery in deliveries {
        if statement.query_row([forge.as_str(), delivery], |row| row.get(0))? {
            found.insert(delivery.clone());
        }
    }
    Ok(found)
}

/// Returns the row ids of due deliveries, oldest first. Skips deliveries of the forges in `not_there`.
pub fn due(c: &Connection, now: Timestamp, not_there: &[ForgeName]) -> StoreResult<Vec<i64>> {
    let mut values: Vec<Value> = vec![now.0.into()];
    let mut there = String::new();
    for forge in not_there {
        values.push(forge.as_str().to_owned().into());
        there.push_str(&format!(" AND forge <> ?{}", values.len()));
    }
    let sql = format!("SELECT id FROM inbox WHERE state = 'new' AND not_before <= ?1{there} ORDER BY id");
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the deliveries that still wait, in the given order.
pub fn waiting(c: &Connection, ids: &[i64]) -> StoreResult<Vec<WaitingDelivery>> {
    let mut statement = c.prepare_cached(
        "SELECT id, forge, delivery, event, body, received_at, attempts FROM inbox WHERE id = ?1 AND state = 'new'",
    )?;
    let mut read = |id: &i64| {
        let row = statement.query_row([id], |row| {
            Ok(WaitingDelivery {
                id: row.get(0)?,
                delivery: StoredDelivery {
                    forge: ForgeName::new(row.get::<_, String>(1)?),
                    delivery: row.get(2)?,
                    event: row.get(3)?,
                    body: Body(row.get(4)?),
                },
                received_at: Timestamp(row.get(5)?),
                attempts: row.get(6)?,
            })
        });
        row.optional()
    };
    Ok(ids.iter().filter_map(|id| read(id).transpose()).collect::<Result<_, _>>()?)
}

/// Stores the result of a delivery. Deletes the body unless processing failed. Keeps the row to detect replays.
pub fn finish(c: &Connection, id: i64, outcome: DeliveryOutcome, reason: &str) -> StoreResult<()> {
    let sql =
        "UPDATE inbox SET state = ?2, reason = ?3, body = CASE WHEN ?2 = 'dead' THEN body ELSE ?4 END WHERE id = ?1";
    c.execute(sql, params![id, outcome.as_str(), reason, [0_u8; 0].as_slice()])?;
    Ok(())
}

/// Stores the repository, issue and sender of a delivery for the operator's list.
pub fn describe(c: &Connection, id: i64, about: Option<&DeliveryAbout>) -> StoreResult<()> {
    let Some(about) = about else { return Ok(()) };
    let text = serde_json::to_string(about)?;
    c.prepare_cached("UPDATE inbox SET about = ?2 WHERE id = ?1")?.execute(params![id, text])?;
    Ok(())
}

/// Postpones a delivery until `not_before`.
pub fn postpone(c: &Connection, id: i64, not_before: Timestamp, reason: &str) -> StoreResult<()> {
    let sql = "UPDATE inbox SET attempts = attempts + 1, not_before = ?2, reason = ?3 WHERE id = ?1";
    c.execute(sql, params![id, not_before.0, reason])?;
    Ok(())
}

/// Makes a waiting or abandoned delivery due now and resets its attempts. Returns `false` if it was processed or is unknown.
pub fn try_again(c: &Connection, id: i64) -> StoreResult<bool> {
    let sql = "UPDATE inbox SET state = 'new', attempts = 0, not_before = 0 WHERE id = ?1 AND state IN ('new', 'dead')";
    Ok(c.execute(sql, [id])? == 1)
}

/// Makes deliveries due now if their due time is more than `most_ms` milliseconds in the future.
pub fn cap_delay(c: &Connection, now: Timestamp, most_ms: i64) -> StoreResult<()> {
    let sql = "UPDATE inbox SET not_before = ?1 WHERE state = 'new' AND not_before > ?2";
    c.execute(sql, params![now.0, now.plus_ms(most_ms).0])?;
    Ok(())
}

/// Returns the due time of the next postponed delivery; `None` if none is postponed.
pub fn next_due(c: &Connection) -> StoreResult<Option<Timestamp>> {
    let at: Option<i64> = c.query_row("SELECT min(not_before) FROM inbox WHERE state = 'new'", [], |row| row.get(0))?;
    Ok(at.map(Timestamp))
}

/// Returns the receipt time of a forge's newest webhook delivery; `None` if there is none.
pub fn last_received(c: &Connection, forge: &ForgeName) -> StoreResult<Option<Timestamp>> {
    let sql = "SELECT max(received_at) FROM inbox WHERE forge = ?1 AND delivery NOT LIKE 'poll/%'";
    let at: Option<i64> = c.query_row(sql, [forge.as_str()], |row| row.get(0))?;
    Ok(at.map(Timestamp))
}

/// Returns the number of deliveries by state.
pub fn counts(c: &Connection) -> StoreResult<Vec<(String, u64)>> {
    // Each part uses a partial index; a scan of the whole table would read the bodies.
    let sql = "SELECT state, count(*) FROM inbox WHERE state <> 'new' GROUP BY state
        UNION ALL SELECT 'new', count(*) FROM inbox WHERE state = 'new' HAVING count(*) > 0 ORDER BY 1";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the number of waiting deliveries, and the time since when the oldest due delivery has waited.
pub fn queue(c: &Connection, now: Timestamp) -> StoreResult<(u64, Option<Timestamp>)> {
    let sql = "SELECT count(*), min(CASE WHEN not_before <= ?1 THEN max(received_at, not_before) END)
        FROM inbox WHERE state = 'new'";
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, Option<i64>>(1)?));
    let (length, oldest) = c.prepare_cached(sql)?.query_row([now.0], read)?;
    Ok((length, oldest.map(Timestamp)))
}

/// Returns the number of a forge's deliveries since `since` that the forge did not confirm, and the newest rejection's
/// reason.
pub fn refused_since(c: &Connection, forge: &ForgeName, since: Timestamp) -> StoreResult<(u64, Option<String>)> {
    let sql =
        "SELECT count(*), (SELECT reason FROM inbox WHERE forge = ?1 AND state = 'refused' ORDER BY id DESC LIMIT 1)
        FROM inbox WHERE forge = ?1 AND state = 'refused' AND received_at >= ?2";
    Ok(c.query_row(sql, params![forge.as_str(), since.0], |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)))?)
}

/// Returns state and reason of a delivery, for people and tests.
pub fn outcome(c: &Connection, forge: &ForgeName, delivery: &str) -> StoreResult<Option<(String, Option<String>)>> {
    let sql = "SELECT state, reason FROM inbox WHERE forge = ?1 AND delivery = ?2";
    Ok(c.query_row(sql, [forge.as_str(), delivery], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

/// Deletes processed deliveries received before `before`; returns their number.
pub fn purge(c: &Connection, before: Timestamp) -> StoreResult<usize> {
    let sql = "DELETE FROM inbox WHERE state IN ('done', 'ignored', 'refused') AND received_at < ?1";
    Ok(c.execute(sql, [before.0])?)
}
