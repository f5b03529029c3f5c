//! Embedding vectors of learnings: finds learnings without a vector, and learnings near a vector.
//!
//! A vector is recomputed if its row names another model, or if the learning has no row. An empty vector means that the
//! model knows none of the words.

use super::StoredLearning;
use crate::domain::knowledge::memory::Embedding;
use crate::store::StoreResult;
use crate::store::sql::{Connection, Value, params};

/// Maximum number of learnings whose vectors are compared, newest first. It bounds the time of a lookup.
const COMPARED: usize = 20_000;
/// Size of one vector component, in bytes.
const NUMBER: usize = size_of::<f32>();

/// Learning without a vector of the current model.
#[derive(Debug, Clone, PartialEq)]
pub struct MissingVector {
    row: i64,
    checksum: String,
    /// Text to embed.
    pub text: String,
}

/// Returns at most `most` learnings without a vector of this model, oldest first.
pub fn missing(c: &Connection, model: &str, most: usize) -> StoreResult<Vec<MissingVector>> {
    let found = "SELECT row FROM learnings_vectors WHERE model < ?1
        UNION ALL SELECT row FROM learnings_vectors WHERE model > ?1
        UNION ALL SELECT id FROM learnings WHERE id > (SELECT coalesce(max(row), 0) FROM learnings_vectors)";
    let sql = format!(
        "SELECT {} FROM ({found} LIMIT ?2) AS found JOIN learnings l ON l.id = found.row",
        StoredLearning::COLUMNS
    );
    let mut statement = c.prepare_cached(&sql)?;
    let rows =
        statement.query_map(params![model, most as i64], StoredLearning::read)?.collect::<Result<Vec<_>, _>>()?;
    // A damaged learning gets an empty vector; reading it quarantines it.
    let text = |stored: &StoredLearning| stored.open().map(|learning| learning.search_text()).unwrap_or_default();
    Ok(rows
        .iter()
        .map(|stored| MissingVector { row: stored.row, checksum: stored.checksum.clone(), text: text(stored) })
        .collect())
}

/// Stores the vectors of learnings, except for learnings that changed in the meantime.
pub fn keep(c: &Connection, made: &[(MissingVector, Embedding)]) -> StoreResult<()> {
    let sql = "INSERT INTO learnings_vectors (row, model, vector)
        SELECT id, CASE WHEN checksum = ?2 THEN ?3 ELSE '' END, ?4 FROM learnings WHERE id = ?1
        ON CONFLICT (row) DO UPDATE SET model = excluded.model, vector = excluded.vector";
    let mut statement = c.prepare_cached(sql)?;
    for (MissingVector { row, checksum, .. }, Embedding { model, vector }) in made {
        let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
        statement.execute(params![row, checksum, model, bytes])?;
    }
    Ok(())
}

/// Marks a row's vector as outdated.
pub(super) fn outdate(c: &Connection, row: i64) -> StoreResult<()> {
    c.prepare_cached("UPDATE learnings_vectors SET model = '' WHERE row = ?1")?.execute([row])?;
    Ok(())
}

/// Removes a row's vector.
pub(super) fn remove(c: &Connection, row: i64) -> StoreResult<()> {
    c.prepare_cached("DELETE FROM learnings_vectors WHERE row = ?1")?.execute([row])?;
    Ok(())
}

/// Returns the rows of the learnings with the nearest vectors, nearest first, if the cosine similarity is positive. `scope`
/// is the column that limits the search to a repository or its owner.
pub(super) fn nearest(
    c: &Connection,
    wanted: &Embedding,
    (forge, scope, whose): (&str, &str, Value),
    min_confidence: f64,
    most: usize,
) -> StoreResult<Vec<i64>> {
    if wanted.vector.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT v.row, v.vector FROM learnings_vectors v CROSS JOIN learnings l
         WHERE l.id = v.row AND v.model = ?1 AND l.forge = ?2 AND l.{scope} = ?3 AND l.state = 'active' AND l.confidence >= ?4
         ORDER BY v.row DESC LIMIT ?5"
    );
    let mut statement = c.prepare_cached(&sql)?;
    let mut rows = statement.query(params![wanted.model, forge, whose, min_confidence, COMPARED as i64])?;
    let mut near: Vec<(f32, i64)> = Vec::new();
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(1)?.as_blob().unwrap_or_default();
        let numbers = bytes.as_chunks::<NUMBER>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let cosine: f32 = numbers.zip(&wanted.vector).map(|(one, other)| one * other).sum();
        if cosine > 0.0 {
            near.push((cosine, row.get(0)?));
        }
    }
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    Ok(near.into_iter().take(most).map(|(_, row)| row).collect())
}
