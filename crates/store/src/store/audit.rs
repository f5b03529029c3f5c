//! Audit log of loops. It is append-only: the database rejects changes.

use serde::{Deserialize, Serialize};

use super::StoreResult;
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::domain::supervision::oversight::AuditEntry;
use crate::store::sql::{Connection, params};

/// Entry of the audit log with its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditLine {
    /// Time of the change.
    pub at: Timestamp,
    /// Action.
    #[serde(flatten)]
    pub entry: AuditEntry,
}

/// Appends entries to a loop's audit log.
pub fn append(c: &Connection, id: &LoopId, entries: &[AuditEntry], now: Timestamp) -> StoreResult<()> {
    let mut statement = c.prepare_cached("INSERT INTO audit (loop_id, at, entry) VALUES (?1, ?2, ?3)")?;
    for entry in entries {
        statement.execute(params![id.as_str(), now.0, serde_json::to_string(entry)?])?;
    }
    Ok(())
}

/// Returns a loop's audit log, oldest first.
pub fn trail(c: &Connection, id: &LoopId) -> StoreResult<Vec<AuditLine>> {
    let mut statement = c.prepare_cached("SELECT at, entry FROM audit WHERE loop_id = ?1 ORDER BY id")?;
    let rows = statement.query_map([id.as_str()], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (at, entry) = row?;
        Ok(AuditLine { at: Timestamp(at), entry: serde_json::from_str(&entry)? })
    })
    .collect()
}
