//! State of forges at the last check: labels, edits, repositories, processed comments.

use super::StoreResult;
use crate::domain::model::event::is_same_label;
use crate::domain::model::ids::{ForgeName, Number, RepoId, RepoRef, Timestamp, User};
use crate::store::sql::{Connection, OptionalExtension, params};

/// Returns the labels that an issue had at the last check; `None` if it was never checked.
pub fn labels(c: &Connection, repo: &RepoRef, issue: Number) -> StoreResult<Option<Vec<String>>> {
    let key = params![repo.forge.as_str(), repo.id.0, issue.0 as i64];
    let sql = "SELECT labels FROM issue_labels WHERE forge = ?1 AND repo_id = ?2 AND issue = ?3";
    let text: Option<String> = c.query_row(sql, key, |row| row.get(0)).optional()?;
    Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
}

/// Stores an issue's labels; ignores a snapshot older than the stored one.
pub fn save_labels(c: &Connection, repo: &RepoRef, issue: Number, labels: &[String], at: Timestamp) -> StoreResult<()> {
    let sql = "INSERT INTO issue_labels (forge, repo_id, issue, labels, seen_at) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (forge, repo_id, issue) DO UPDATE SET labels = excluded.labels, seen_at = excluded.seen_at
        WHERE excluded.seen_at >= issue_labels.seen_at";
    let row = params![repo.forge.as_str(), repo.id.0, issue.0 as i64, serde_json::to_string(labels)?, at.0];
    c.execute(sql, row)?;
    Ok(())
}

/// Removes a label from the stored labels after the service removed it on the forge.
pub fn drop_label(c: &Connection, repo: &RepoRef, issue: Number, label: &str) -> StoreResult<()> {
    let Some(mut remaining) = labels(c, repo, issue)? else { return Ok(()) };
    remaining.retain(|known| !is_same_label(known, label));
    let sql = "UPDATE issue_labels SET labels = ?4 WHERE forge = ?1 AND repo_id = ?2 AND issue = ?3";
    c.execute(sql, params![repo.forge.as_str(), repo.id.0, issue.0 as i64, serde_json::to_string(&remaining)?])?;
    Ok(())
}

/// Stores who edited an issue's text and when.
pub fn add_edit(c: &Connection, repo: &RepoRef, issue: Number, at: Timestamp, editor: &User) -> StoreResult<()> {
    let sql = "INSERT INTO issue_edits (forge, repo_id, issue, at, editor) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
    let row = params![repo.forge.as_str(), repo.id.0, issue.0 as i64, at.0, serde_json::to_string(editor)?];
    c.execute(sql, row)?;
    Ok(())
}

/// Stores the digest of an issue's text as found by polling. A new digest counts as an edit by `author` at `at`, because the
/// author is the only account that can edit the text without write access.
pub fn save_text(
    c: &Connection,
    repo: &RepoRef,
    issue: Number,
    digest: &str,
    (at, author): (Timestamp, Option<&User>),
) -> StoreResult<()> {
    let sql = "INSERT INTO issue_texts (forge, repo_id, issue, digest) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (forge, repo_id, issue) DO UPDATE SET digest = excluded.digest
        WHERE excluded.digest <> issue_texts.digest";
    let row = params![repo.forge.as_str(), repo.id.0, issue.0 as i64, digest];
    let changed = c.execute(sql, row)? > 0;
    match author.filter(|_| changed) {
        Some(author) => add_edit(c, repo, issue, at, author),
        None => Ok(()),
    }
}

/// Returns the known edits of an issue's text since `from`, oldest first.
pub fn edits_since(
    c: &Connection,
    repo: &RepoRef,
    issue: Number,
    from: Timestamp,
) -> StoreResult<Vec<(Timestamp, User)>> {
    let mut statement = c.prepare_cached(
        "SELECT at, editor FROM issue_edits WHERE forge = ?1 AND repo_id = ?2 AND issue = ?3 AND at >= ?4 ORDER BY at",
    )?;
    let rows = statement.query_map(params![repo.forge.as_str(), repo.id.0, issue.0 as i64, from.0], |row| {
        Ok((Timestamp(row.get(0)?), row.get::<_, String>(1)?))
    })?;
    rows.map(|row| {
        let (at, editor) = row?;
        Ok((at, serde_json::from_str(&editor)?))
    })
    .collect()
}

/// Stores the current name of a repository under its numeric id.
pub fn save_repository(c: &Connection, repo: &RepoRef, at: Timestamp) -> StoreResult<()> {
    let sql = "INSERT INTO repositories (forge, repo_id, data, seen_at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (forge, repo_id) DO UPDATE SET data = excluded.data, seen_at = excluded.seen_at";
    c.execute(sql, params![repo.forge.as_str(), repo.id.0, serde_json::to_string(repo)?, at.0])?;
    Ok(())
}

/// Returns the known repositories of a forge.
pub fn repositories(c: &Connection, forge: &ForgeName) -> StoreResult<Vec<RepoRef>> {
    let mut statement = c.prepare_cached("SELECT data FROM repositories WHERE forge = ?1 ORDER BY repo_id")?;
    let rows = statement.query_map([forge.as_str()], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
}

/// Returns the current name of a repository; `None` if unknown.
pub fn repository(c: &Connection, forge: &ForgeName, id: RepoId) -> StoreResult<Option<RepoRef>> {
    let sql = "SELECT data FROM repositories WHERE forge = ?1 AND repo_id = ?2";
    let text: Option<String> = c.query_row(sql, params![forge.as_str(), id.0], |row| row.get(0)).optional()?;
    Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
}

/// Whether the comment with this key was processed.
pub fn is_processed(c: &Connection, key: &str) -> StoreResult<bool> {
    Ok(c.query_row("SELECT EXISTS (SELECT 1 FROM heard WHERE key = ?1)", [key], |row| row.get(0))?)
}

/// Marks the comment with this key as processed.
pub fn mark_processed(c: &Connection, key: &str, at: Timestamp) -> StoreResult<()> {
    c.execute("INSERT INTO heard (key, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING", params![key, at.0])?;
    Ok(())
}
