//! Comments, pull requests and issues that the service created on a forge, by natural key.

use sha2::{Digest, Sha256};

use super::StoreResult;
use crate::domain::model::ids::Timestamp;
use crate::store::sql::{Connection, OptionalExtension, Row, params};

/// A comment, pull request or issue that the service created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgePost {
    /// Id of the comment, or number of the issue or pull request.
    pub forge_id: i64,
    /// Digest of the last sent text; empty if unknown.
    pub digest: String,
}

/// Returns the digest of a text, as stored in `ForgePost::digest`.
pub fn digest(text: &str) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(text)[..16])
}

/// Returns the post with this key.
pub fn get(c: &Connection, subject: &str, key: &str) -> StoreResult<Option<ForgePost>> {
    let sql = "SELECT forge_id, digest FROM posted WHERE subject = ?1 AND key = ?2";
    let read = |row: &Row<'_>| Ok(ForgePost { forge_id: row.get(0)?, digest: row.get(1)? });
    Ok(c.query_row(sql, [subject, key], read).optional()?)
}

/// Returns all posts of a subject: key, post, and the issue whose comment limit counts the post.
pub fn of_subject(c: &Connection, subject: &str) -> StoreResult<Vec<(String, ForgePost, String)>> {
    let mut statement = c.prepare_cached("SELECT key, forge_id, digest, counted_on FROM posted WHERE subject = ?1")?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, ForgePost { forge_id: row.get(1)?, digest: row.get(2)? }, row.get(3)?));
    Ok(statement.query_map([subject], read)?.collect::<Result<_, _>>()?)
}

/// Stores the post with this key. `counted_on` is the issue whose comment limit counts the post.
pub fn put(
    c: &Connection,
    subject: &str,
    key: &str,
    posted: &ForgePost,
    counted_on: &str,
    at: Timestamp,
) -> StoreResult<()> {
    let sql = "INSERT INTO posted (subject, key, forge_id, digest, at, counted_on) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (subject, key) DO UPDATE SET forge_id = excluded.forge_id, digest = excluded.digest";
    c.execute(sql, params![subject, key, posted.forge_id, posted.digest, at.0, counted_on])?;
    Ok(())
}

/// Deletes the record of a post that no longer exists on the forge.
pub fn forget(c: &Connection, subject: &str, key: &str) -> StoreResult<()> {
    c.execute("DELETE FROM posted WHERE subject = ?1 AND key = ?2", [subject, key])?;
    Ok(())
}

/// Returns the number of comments by the bot on an issue since `since`; does not count descriptions of pull requests or
/// escalation issues.
pub fn count_since(c: &Connection, counted_on: &str, since: Timestamp) -> StoreResult<u32> {
    let sql = "SELECT count(*) FROM posted WHERE counted_on = ?1 AND at > ?2
        AND key <> 'pull' AND key NOT LIKE 'escalation/%'";
    Ok(c.query_row(sql, params![counted_on, since.0], |row| row.get(0))?)
}
