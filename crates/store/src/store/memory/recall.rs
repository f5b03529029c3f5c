//! Finds learnings: for a prompt by the rarest words of its task, and for people by a search query.

use std::collections::HashMap;
use std::time::Duration;

use super::{DamagedLearning, StoredLearning, opened, set_aside, vectors};
use crate::domain::knowledge::memory::{
    Learning, LearningCandidate, LearningQuery, MemorySettings, ParsedQuery, RankedLearning, TermMatch, best_first,
    rank, rare_terms,
};
use crate::domain::model::ids::{RepoRef, Timestamp};
use crate::store::sql::{Connection, OptionalExtension, Value, params};
use crate::store::{Store, StoreResult, within};

/// Maximum number of learnings found by words, before ranking.
const FOUND: usize = 40;
/// Maximum number of learnings found by vectors, before ranking.
const NEAR: usize = 20;
/// Maximum number of a repository's rules that become candidates regardless of their words.
const CONVENTIONS: usize = 8;

/// Returns the rows of learnings that contain any of a text's rarest words, best match first.
pub(super) fn by_words(c: &Connection, text: &str, settings: &MemorySettings) -> StoreResult<Vec<TermMatch>> {
    let mut frequency = c.prepare_cached("SELECT learnings FROM learnings_terms WHERE term = ?1")?;
    let terms = rare_terms(text, settings, |word| -> StoreResult<u64> {
        let learnings: Option<i64> = frequency.query_row([word], |row| row.get(0)).optional()?;
        Ok(learnings.unwrap_or(0).unsigned_abs())
    })?;
    // The highest row id approximates the number of rows, because few rows are deleted. Counting would read each row.
    let all: Option<i64> = c.prepare_cached("SELECT max(id) FROM learnings")?.query_row([], |row| row.get(0))?;
    // Search one term at a time, because ranking one row in FTS5 takes as long as listing ten.
    let mut holding =
        c.prepare_cached(&format!("SELECT rowid FROM learnings_words WHERE {}", c.matches("learnings_words", 1)))?;
    let mut postings = Vec::new();
    for term in terms {
        let weight = term.weight(all.unwrap_or(0).unsigned_abs());
        let asked = ParsedQuery { phrases: vec![term.word], ..ParsedQuery::default() }.to_fts();
        for row in holding.query_map([asked], |row| row.get(0))? {
            postings.push(TermMatch { row: row?, weight });
        }
    }
    Ok(best_first(postings))
}

/// Returns the learnings for a prompt, best first. Quarantines damaged ones.
pub async fn recall(
    store: &Store,
    query: LearningQuery,
    settings: MemorySettings,
    now: Timestamp,
) -> StoreResult<Vec<RankedLearning>> {
    if !settings.learns() || settings.limit == 0 {
        return Ok(Vec::new());
    }
    let lookup = move |c: &Connection| Lookup { query: &query, settings: &settings }.run(c, now);
    let (recalled, damaged) = store.read(move |c| within(c, MAX_TIME, lookup)).await?;
    if !damaged.is_empty() {
        store.write(move |c| set_aside(c, &damaged, now)).await?;
    }
    Ok(recalled)
}

/// Time limit of a search. It is necessary because agents choose the search words.
const MAX_TIME: Duration = Duration::from_secs(5);

/// A search for learnings on the caller's connection.
pub struct Lookup<'a> {
    /// Task to find learnings for.
    pub query: &'a LearningQuery,
    /// Limits of the search.
    pub settings: &'a MemorySettings,
}

impl Lookup<'_> {
    /// Returns the learnings for a prompt, best first, and the damaged learnings found.
    pub fn run(&self, c: &Connection, now: Timestamp) -> StoreResult<(Vec<RankedLearning>, Vec<DamagedLearning>)> {
        let (found, damaged) = self.candidates(c)?;
        Ok((rank(self.query, found, self.settings, now), damaged))
    }

    /// Returns the candidates before ranking, and the damaged learnings found.
    pub fn candidates(&self, c: &Connection) -> StoreResult<(Vec<LearningCandidate>, Vec<DamagedLearning>)> {
        let (mut rows, mut weights) = (Vec::new(), HashMap::new());
        for TermMatch { row, weight } in by_words(c, &self.query.text, self.settings)? {
            if rows.len() == FOUND {
                break;
            }
            if let Some(stored) = self.in_scope(c, row)? {
                weights.insert(stored.id.clone(), weight);
                rows.push(stored);
            }
        }
        let near = self.by_vector(c)?;
        let mut further = Vec::new();
        for row in &near {
            further.extend(by_row(c, *row)?);
        }
        further.extend(self.by_kind(c, "estimate", 1)?);
        further.extend(self.by_kind(c, "convention", CONVENTIONS)?);
        for row in further {
            if !rows.iter().any(|known: &StoredLearning| known.row == row.row) {
                rows.push(row);
            }
        }
        let place_near = |row: &StoredLearning| Some((row.id.clone(), near.iter().position(|near| *near == row.row)?));
        let places_near: HashMap<String, usize> = rows.iter().filter_map(place_near).collect();
        let (learnings, damaged) = opened(rows);
        let found = learnings.into_iter().map(|learning| LearningCandidate {
            by_words: weights.get(&learning.id).copied(),
            by_vector: places_near.get(&learning.id).copied(),
            learning,
        });
        Ok((found.collect(), damaged))
    }

    /// Returns the rows of the learnings with the nearest vectors, nearest first; empty without an embedding model.
    fn by_vector(&self, c: &Connection) -> StoreResult<Vec<i64>> {
        let Some(wanted) = &self.query.embedding else { return Ok(Vec::new()) };
        let repo = &self.query.repository;
        let scope = (repo.forge.as_str(), self.scope(), self.whose(repo));
        vectors::nearest(c, wanted, scope, self.settings.min_confidence, NEAR)
    }

    /// Returns the learning of a row; `None` if this repository's prompts must not use it.
    fn in_scope(&self, c: &Connection, row: i64) -> StoreResult<Option<StoredLearning>> {
        let sql = format!(
            "SELECT {} FROM learnings l
             WHERE l.id = ?1 AND l.forge = ?2 AND l.{} = ?3 AND l.state = 'active' AND l.confidence >= ?4",
            StoredLearning::COLUMNS,
            self.scope()
        );
        let repo = &self.query.repository;
        let bound = params![row, repo.forge.as_str(), self.whose(repo), self.settings.min_confidence];
        Ok(c.prepare_cached(&sql)?.query_row(bound, StoredLearning::read).optional()?)
    }

    /// Returns the learnings of a kind with the highest confidence. For estimates, returns only those for the task's type.
    fn by_kind(&self, c: &Connection, kind: &str, limit: usize) -> StoreResult<Vec<StoredLearning>> {
        // A bound limit would require preparing the statement each time.
        let sql = format!(
            "SELECT {} FROM learnings l WHERE l.forge = ?1 AND l.{} = ?2 AND l.kind = ?3 AND l.state = 'active'
                AND (l.kind <> 'estimate' OR l.task_type = ?4) ORDER BY l.confidence DESC LIMIT {limit}",
            StoredLearning::COLUMNS,
            self.scope()
        );
        let (repo, task_type) = (&self.query.repository, self.query.task_type.as_str());
        let mut statement = c.prepare_cached(&sql)?;
        let bound = params![repo.forge.as_str(), self.whose(repo), kind, task_type];
        Ok(statement.query_map(bound, StoredLearning::read)?.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns the name of the column that limits learnings to a repository or to its owner.
    fn scope(&self) -> &'static str {
        if self.settings.share_within_owner { "owner" } else { "repo_id" }
    }

    fn whose(&self, repo: &RepoRef) -> Value {
        if self.settings.share_within_owner { repo.owner.clone().into() } else { repo.id.0.into() }
    }
}

fn by_row(c: &Connection, row: i64) -> StoreResult<Option<StoredLearning>> {
    let sql = format!("SELECT {} FROM learnings l WHERE l.id = ?1", StoredLearning::COLUMNS);
    Ok(c.prepare_cached(&sql)?.query_row([row], StoredLearning::read).optional()?)
}

/// Learnings found by a search, and the damaged ones.
pub type LearningSearchResult = (Vec<Learning>, Vec<DamagedLearning>);

/// Returns learnings in any state for a search query, best first, from one repository or all. If no learning contains all
/// phrases, returns learnings with some of them.
pub fn search(
    c: &Connection,
    asked: &ParsedQuery,
    repo: Option<&RepoRef>,
    limit: usize,
) -> StoreResult<LearningSearchResult> {
    let Some(all) = asked.to_fts() else { return Ok(LearningSearchResult::default()) };
    let (learnings, damaged) = matches(c, &all, repo, limit)?;
    if !learnings.is_empty() || asked.any || asked.phrases.len() < 2 {
        return Ok((learnings, damaged));
    }
    let some = ParsedQuery { any: true, ..asked.clone() };
    matches(c, &some.to_fts().unwrap_or(all), repo, limit)
}

pub(super) fn matches(
    c: &Connection,
    asked: &str,
    repo: Option<&RepoRef>,
    limit: usize,
) -> StoreResult<LearningSearchResult> {
    let sql = format!(
        "SELECT {} FROM learnings_words JOIN learnings l ON l.id = learnings_words.rowid
         WHERE {} AND (CAST(?2 AS TEXT) IS NULL OR (l.forge = ?2 AND l.repo_id = ?3)) ORDER BY {} LIMIT ?4",
        StoredLearning::COLUMNS,
        c.matches("learnings_words", 1),
        c.rank("learnings_words", &[], 1)
    );
    let (forge, id) = (repo.map(|repo| repo.forge.as_str()), repo.map(|repo| repo.id.0));
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params![asked, forge, id, limit as i64], StoredLearning::read)?;
    Ok(opened(rows.collect::<Result<Vec<_>, _>>()?))
}
