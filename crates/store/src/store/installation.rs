//! Settings of this installation: ids and keys that are generated once, and states recorded by the service.

use super::StoreResult;
use crate::store::sql::{Connection, OptionalExtension};

/// Key of the time of the last backup, in milliseconds since 1970.
pub const BACKUP: &str = "backup_at";

/// Returns a setting; `None` if it was never set.
pub fn get(c: &Connection, key: &str) -> StoreResult<Option<String>> {
    Ok(c.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional()?)
}

/// Sets a setting.
pub fn set(c: &Connection, key: &str, value: &str) -> StoreResult<()> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    c.execute(sql, [key, value])?;
    Ok(())
}

/// Returns a setting; sets it to `value` first if it was never set.
pub fn get_or_insert(c: &Connection, key: &str, value: &str) -> StoreResult<String> {
    c.execute("INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING", [key, value])?;
    Ok(c.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))?)
}
