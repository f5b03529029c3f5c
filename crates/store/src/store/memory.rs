//! Learnings with their full-text index, reflections, and the use of learnings in prompts.
//!
//! A learning is stored as JSON, with a checksum over its canonical form and additional columns for searches. The store
//! verifies each row when it reads it. It quarantines and counts a damaged row instead of returning an error, so loops
//! continue without the learning.

mod attribution;
pub mod proposals;
mod recall;
mod reflections;
mod step_learning;
#[cfg(test)]
mod tests;
mod transfer;
pub mod vectors;

use std::collections::{BTreeMap, BTreeSet};

use ralph_types::failure::Failure;

pub use attribution::{LoopCredit, carried, credit_iteration, credit_loop, uplift};
pub use recall::{LearningSearchResult, Lookup, recall, search};
pub use reflections::{ReflectionRef, add_reflection, edit_reflection, reflections, remove_reflection};
pub use step_learning::StepMemory;
pub use transfer::{ImportCounts, export, export_schema, import, parse};

use super::StoreResult;
use super::paging::for_each_row;
use super::scope::RepoScope;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::{
    AddedLearning, Content, Learning, LearningState, MemorySettings, ParsedQuery, TermMatch, take_in,
};
use crate::domain::loops::Estimate;
use crate::domain::model::ids::{RepoRef, Timestamp};
use crate::domain::model::similarity::words;
use crate::process::Masker;
use crate::store::sql::{Connection, OptionalExtension, Row, SqlResult, params, params_from_iter};

/// Number of similar learnings that are compared with a new learning.
const COMPARED: usize = 12;
/// Maximum number of learnings that one call of `decay` archives.
const DECAY_BATCH: usize = 500;

/// Result of storing a learning.
#[derive(Debug, Clone, PartialEq)]
pub enum LearnOutcome {
    /// Stored as a new learning.
    Stored(Learning),
    /// Merged into an existing learning, given in its new state.
    Merged(Learning),
    /// Already known from the same source; nothing was changed.
    Known(Learning),
}

/// Numbers of learnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct LearningCounts {
    /// Number of candidates.
    pub candidates: u64,
    /// Number of active learnings.
    pub active: u64,
    /// Number of archived learnings.
    pub archived: u64,
    /// Quarantined because of a wrong checksum.
    pub quarantined: u64,
}

/// Learning as read from its row, not yet verified.
struct StoredLearning {
    row: i64,
    id: String,
    data: String,
    checksum: String,
}

impl StoredLearning {
    const COLUMNS: &'static str = "l.id, l.learning, l.data, l.checksum";

    fn read(row: &Row<'_>) -> SqlResult<Self> {
        Ok(Self { row: row.get(0)?, id: row.get(1)?, data: row.get(2)?, checksum: row.get(3)? })
    }

    /// Verifies the row; returns its learning, or the problem.
    fn open(&self) -> Result<Learning, Failure> {
        let learning: Learning = serde_json::from_str(&self.data).map_err(Failure::of)?;
        if learning.checksum() != self.checksum || learning.id != self.id {
            return Err(Failure::new("its checksum is wrong"));
        }
        Ok(learning)
    }
}

/// Learning with a damaged row, and the problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedLearning {
    /// Id of the learning.
    pub id: String,
    row: i64,
    reason: String,
}

/// Stores a learning and masks its secrets. Merges it into an equal existing learning, or stores it as a new one. If it
/// contradicts an existing learning, lowers the confidence of both.
pub fn learn(
    c: &Connection,
    masker: &Masker,
    learning: Learning,
    settings: &MemorySettings,
    now: Timestamp,
) -> StoreResult<LearnOutcome> {
    let learning = learning.map_text(&|text| masker.mask(text).into_owned());
    let near = match get(c, &learning.id, now)? {
        Some(known) => vec![known],
        None => alike(c, &learning, now)?,
    };
    Ok(match take_in(learning, &near, settings, now) {
        AddedLearning::Known(known) => LearnOutcome::Known(known),
        AddedLearning::Merged(merged) => {
            save(c, &merged)?;
            LearnOutcome::Merged(merged)
        }
        AddedLearning::New { learning, lowered } => {
            lowered.iter().try_for_each(|known| save(c, known))?;
            save(c, &learning)?;
            LearnOutcome::Stored(learning)
        }
    })
}

/// Returns the existing learnings of the same repository and task type that share rare words with a new learning.
fn alike(c: &Connection, new: &Learning, now: Timestamp) -> StoreResult<Vec<Learning>> {
    // Nearly equal learnings share almost all words.
    let few = MemorySettings { query_terms: 4, query_postings: 1_000, ..MemorySettings::default() };
    let sql = format!(
        "SELECT {} FROM learnings l WHERE l.id = ?1 AND l.forge = ?2 AND l.repo_id = ?3 AND l.task_type = ?4",
        StoredLearning::COLUMNS
    );
    let mut statement = c.prepare_cached(&sql)?;
    let mut rows = Vec::new();
    for TermMatch { row, .. } in recall::by_words(c, new.content.gist(), &few)? {
        if rows.len() == COMPARED {
            break;
        }
        let bound = params![row, new.repository.forge.as_str(), new.repository.id.0, new.task_type.as_str()];
        rows.extend(statement.query_row(bound, StoredLearning::read).optional()?);
    }
    sound(c, rows, now)
}

/// Writes a learning, and its index entries if its words changed.
pub(super) fn save(c: &Connection, learning: &Learning) -> StoreResult<()> {
    let old = "SELECT id, data FROM learnings WHERE learning = ?1";
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
    let old = c.prepare_cached(old)?.query_row([&learning.id], read).optional()?;
    let (data, checksum) = (serde_json::to_string(learning)?, learning.checksum());
    let repo = &learning.repository;
    let idle_since = learning.last_used_at.unwrap_or(learning.created_at).max(learning.updated_at);
    let columns = params![
        learning.id,
        repo.forge.as_str(),
        repo.id.0,
        repo.owner,
        learning.kind().as_str(),
        learning.task_type.as_str(),
        learning.state.as_str(),
        learning.confidence,
        idle_since.0,
        data,
        checksum
    ];
    let sql = "INSERT INTO learnings
        (learning, forge, repo_id, owner, kind, task_type, state, confidence, idle_since, data, checksum)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
        ON CONFLICT (learning) DO UPDATE SET owner = excluded.owner, state = excluded.state,
            confidence = excluded.confidence, idle_since = excluded.idle_since, data = excluded.data,
            checksum = excluded.checksum
        RETURNING id";
    let row: i64 = c.prepare_cached(sql)?.query_row(columns, |row| row.get(0))?;
    let new = words(&learning.search_text());
    if let Some((_, before)) = old {
        let before = words_of(&before);
        if before == new {
            return Ok(());
        }
        unindex(c, row, &before)?;
        vectors::outdate(c, row)?;
    }
    index(c, row, &new)?;
    count(c, &new, 1)
}

/// Adds the words of a row to the full-text index.
fn index(c: &Connection, row: i64, words: &[String]) -> StoreResult<()> {
    let sql = "INSERT INTO learnings_words (rowid, words) VALUES (?1, ?2)";
    c.prepare_cached(sql)?.execute(params![row, words.join(" ")])?;
    Ok(())
}

/// Fills the empty full-text index of a copied database.
pub(super) fn index_all(c: &Connection) -> StoreResult<()> {
    for_each_row(c, "learnings", "id, data", |row| {
        let id: i64 = row.get(0)?;
        index(c, id, &words_of(&row.get::<_, String>(1)?))?;
        Ok(id)
    })
}

/// Removes a row from the full-text index.
fn unindex(c: &Connection, row: i64, words: &[String]) -> StoreResult<()> {
    c.prepare_cached("DELETE FROM learnings_words WHERE rowid = ?1")?.execute([row])?;
    count(c, words, -1)
}

/// Adds `by` to the counts of a learning's words.
fn count(c: &Connection, words: &[String], by: i64) -> StoreResult<()> {
    let different: BTreeSet<&String> = words.iter().collect();
    let sql = "INSERT INTO learnings_terms (term, learnings) VALUES (?1, max(?2, 0))
        ON CONFLICT (term) DO UPDATE SET learnings = max(learnings_terms.learnings + ?2, 0)";
    let mut statement = c.prepare_cached(sql)?;
    for word in different {
        statement.execute(params![word, by])?;
    }
    Ok(())
}

/// Returns the words of a stored learning; empty if it is damaged, so its words remain counted.
fn words_of(data: &str) -> Vec<String> {
    serde_json::from_str::<Learning>(data).map(|learning| words(&learning.search_text())).unwrap_or_default()
}

/// Returns a learning; `None` if it does not exist or is damaged. Quarantines a damaged learning.
pub fn get(c: &Connection, id: &str, now: Timestamp) -> StoreResult<Option<Learning>> {
    let sql = format!("SELECT {} FROM learnings l WHERE l.learning = ?1", StoredLearning::COLUMNS);
    let row = c.prepare_cached(&sql)?.query_row([id], StoredLearning::read).optional()?;
    Ok(sound(c, row.into_iter().collect(), now)?.pop())
}

/// Returns a page of learnings ordered by id, starting after the id `after` (empty for the first page), and the page's
/// damaged learnings.
pub fn list(c: &Connection, after: &str, limit: usize) -> StoreResult<(Vec<Learning>, Vec<DamagedLearning>)> {
    let sql = format!(
        "SELECT {} FROM learnings l WHERE l.learning > ?1 ORDER BY l.learning LIMIT ?2",
        StoredLearning::COLUMNS
    );
    let mut statement = c.prepare_cached(&sql)?;
    let rows =
        statement.query_map(params![after, limit as i64], StoredLearning::read)?.collect::<Result<Vec<_>, _>>()?;
    Ok(opened(rows))
}

/// Returns a repository's estimates by task type. If a type has several, returns the one based on the most loops.
pub fn estimates(c: &Connection, repo: &RepoRef) -> StoreResult<BTreeMap<TaskType, Estimate>> {
    let sql = format!(
        "SELECT {} FROM learnings l
         WHERE l.forge = ?1 AND l.repo_id = ?2 AND l.kind = 'estimate' AND l.state <> 'archived' ORDER BY l.learning",
        StoredLearning::COLUMNS
    );
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params![repo.forge.as_str(), repo.id.0], StoredLearning::read)?;
    let mut found: BTreeMap<TaskType, Estimate> = BTreeMap::new();
    for learning in opened(rows.collect::<Result<_, _>>()?).0 {
        let Content::Estimate { iterations, .. } = learning.content else { continue };
        let estimate = Estimate::of(iterations);
        let known = found.entry(learning.task_type).or_insert(estimate);
        if known.samples < estimate.samples {
            *known = estimate;
        }
    }
    Ok(found)
}

/// Returns the numbers of learnings by state.
pub fn counts(c: &Connection) -> StoreResult<LearningCounts> {
    let of = |state: LearningState| {
        let sql = "SELECT count(*) FROM learnings WHERE state = ?1";
        c.query_row(sql, [state.as_str()], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
    };
    Ok(LearningCounts {
        candidates: of(LearningState::Candidate)?,
        active: of(LearningState::Active)?,
        archived: of(LearningState::Archived)?,
        quarantined: quarantined(c)?,
    })
}

/// Returns the numbers of learnings of some repositories that are not archived, by kind and task type.
pub fn counts_by_kind(c: &Connection, scope: &RepoScope) -> StoreResult<Vec<(String, String, u64)>> {
    let mut values = Vec::new();
    let visible = scope.condition("l", &mut values);
    let sql = format!(
        "SELECT l.kind, l.task_type, count(*) FROM learnings l WHERE l.state <> 'archived' AND {visible}
         GROUP BY l.kind, l.task_type ORDER BY l.kind, l.task_type"
    );
    let mut statement = c.prepare_cached(&sql)?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?.unsigned_abs()));
    let rows = statement.query_map(params_from_iter(values), row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the number of quarantined learnings.
pub fn quarantined(c: &Connection) -> StoreResult<u64> {
    let sql = "SELECT count(*) FROM learnings_quarantine";
    Ok(c.query_row(sql, [], |row| row.get::<_, i64>(0))?.unsigned_abs())
}

/// Deletes learnings by id, and proposals of conventions by `p-` and their number; returns the number of deleted rows. Keeps
/// records of the prompts that used them.
pub fn forget(c: &Connection, ids: &[String]) -> StoreResult<usize> {
    let mut forgotten = 0;
    for id in ids {
        if let Some(number) = id.strip_prefix("p-").and_then(|number| number.parse().ok()) {
            forgotten += usize::from(proposals::forget_proposal(c, number)?);
            continue;
        }
        let sql = "SELECT id FROM learnings WHERE learning = ?1";
        let row: Option<i64> = c.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
        if let Some(row) = row {
            remove(c, row)?;
            forgotten += 1;
        }
    }
    Ok(forgotten)
}

/// Archives or reactivates a learning; returns `None` if it does not exist.
pub fn set_state(c: &Connection, id: &str, state: LearningState, now: Timestamp) -> StoreResult<Option<Learning>> {
    let Some(mut learning) = get(c, id, now)? else { return Ok(None) };
    learning.state = state;
    learning.updated_at = now;
    save(c, &learning)?;
    Ok(Some(learning))
}

/// Archives learnings whose confidence decayed because they were not used, at most `DECAY_BATCH` per call; returns
/// their number. Call again until the result is 0.
pub fn decay(c: &Connection, settings: &MemorySettings, now: Timestamp) -> StoreResult<usize> {
    // Confidence only decays after a half-life without use.
    let half_life = i64::from(settings.half_life_days) * 86_400_000;
    // Confidence after n halvings is below the bound if the original confidence is below the bound times 2^n. Up to 60
    // halvings fit into the integer.
    let sql = format!(
        "SELECT {} FROM learnings l WHERE l.state <> 'archived' AND l.idle_since <= ?1
         AND l.confidence < CAST(?2 AS DOUBLE PRECISION) * (CAST(1 AS BIGINT) << CAST(min((?3 - l.idle_since) / ?4, 60) AS INTEGER)) ORDER BY l.idle_since LIMIT ?5",
        StoredLearning::COLUMNS
    );
    let bound = params![now.0 - half_life, settings.archive_below, now.0, half_life, DECAY_BATCH as i64];
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(bound, StoredLearning::read)?.collect::<Result<Vec<_>, _>>()?;
    let found = rows.len();
    for mut learning in sound(c, rows, now)? {
        learning.confidence = learning.confidence_at(now, settings);
        learning.state = LearningState::Archived;
        learning.updated_at = now;
        save(c, &learning)?;
    }
    Ok(found)
}

/// Quarantines damaged learnings; returns their number.
pub fn set_aside(c: &Connection, damaged: &[DamagedLearning], now: Timestamp) -> StoreResult<usize> {
    let mut moved = 0;
    for DamagedLearning { row, reason, .. } in damaged {
        let sql = "INSERT INTO learnings_quarantine (learning, reason, data, checksum, found_at)
            SELECT learning, ?2, data, checksum, ?3 FROM learnings WHERE id = ?1";
        let found = c.prepare_cached(sql)?.execute(params![row, reason, now.0])?;
        if found > 0 {
            remove(c, *row)?;
            moved += 1;
        }
    }
    if moved > 0 {
        tracing::warn!(moved, "damaged learnings were quarantined; `ralph-bot memory show` counts them");
    }
    Ok(moved)
}

/// Returns all learnings in any state that contain all phrases of a query, or any of them with `OR`.
pub fn matching_all(c: &Connection, asked: &ParsedQuery) -> StoreResult<Vec<Learning>> {
    let Some(fts) = asked.to_fts() else { return Ok(Vec::new()) };
    Ok(recall::matches(c, &fts, None, usize::MAX >> 1)?.0)
}

fn remove(c: &Connection, row: i64) -> StoreResult<()> {
    let sql = "DELETE FROM learnings WHERE id = ?1 RETURNING data";
    let data: Option<String> = c.prepare_cached(sql)?.query_row([row], |row| row.get(0)).optional()?;
    vectors::remove(c, row)?;
    unindex(c, row, &words_of(&data.unwrap_or_default()))
}

/// Returns the rows' learnings and quarantines the damaged ones. Must run in a write transaction.
fn sound(c: &Connection, rows: Vec<StoredLearning>, now: Timestamp) -> StoreResult<Vec<Learning>> {
    let (learnings, damaged) = opened(rows);
    set_aside(c, &damaged, now)?;
    Ok(learnings)
}

/// Returns the rows' learnings and the damaged ones.
fn opened(rows: Vec<StoredLearning>) -> (Vec<Learning>, Vec<DamagedLearning>) {
    let (mut learnings, mut damaged) = (Vec::with_capacity(rows.len()), Vec::new());
    for stored in rows {
        match stored.open() {
            Ok(learning) => learnings.push(learning),
            Err(reason) => damaged.push(DamagedLearning { id: stored.id, row: stored.row, reason: reason.to_string() }),
        }
    }
    (learnings, damaged)
}
