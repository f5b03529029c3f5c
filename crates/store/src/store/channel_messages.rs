//! Messages about loops in channels. Later notices edit them or reply to them.

use super::StoreResult;
use crate::domain::model::ids::Timestamp;
use crate::domain::report::notice::PostedMessage;
use crate::store::sql::{Connection, OptionalExtension, params};

/// Returns the message about a loop in a channel; `None` if there is none, or if another version stored it in an unreadable
/// format.
pub fn get(c: &Connection, subject: &str, channel: &str) -> StoreResult<Option<PostedMessage>> {
    let sql = "SELECT message FROM channel_messages WHERE subject = ?1 AND channel = ?2";
    let text: Option<String> = c.prepare_cached(sql)?.query_row([subject, channel], |row| row.get(0)).optional()?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

/// Stores the message about a loop in a channel.
pub fn put(c: &Connection, subject: &str, channel: &str, message: &PostedMessage, at: Timestamp) -> StoreResult<()> {
    let sql = "INSERT INTO channel_messages (subject, channel, message, at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (subject, channel) DO UPDATE SET message = excluded.message, at = excluded.at";
    c.prepare_cached(sql)?.execute(params![subject, channel, serde_json::to_string(message)?, at.0])?;
    Ok(())
}
