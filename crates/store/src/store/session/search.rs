//! Searches the memory of one loop. Every query returns a result, because the search relaxes queries without matches.

use regex::Regex;

use super::{event, packed, role, scope};
use crate::domain::knowledge::session::{
    Hit, Patterns, SearchResults, SessionQuery, SessionTier, excerpt, forms, terms, word_finder,
};
use crate::domain::model::ids::LoopId;
use crate::store::sql::{Connection, SqlError, Value, params_from_iter};
use crate::store::{StoreError, StoreResult};

/// Maximum number of examined matches per tier.
const MAX_SCANNED: u64 = 5_000;

/// Match whose text has not been read yet.
struct SessionMatch {
    tier: SessionTier,
    id: i64,
}

/// Matches of one tier.
#[derive(Default)]
struct TierScan {
    matches: Vec<SessionMatch>,
    more: u64,
    at_least: bool,
}

/// Reason why a query expression failed.
enum SearchFailure {
    /// The full-text index rejects the expression.
    Refused,
    /// The database failed.
    Store(StoreError),
}

impl From<SqlError> for SearchFailure {
    fn from(error: SqlError) -> Self {
        if error.is_refused_expression() { Self::Refused } else { Self::Store(error.into()) }
    }
}

/// Searches the memory of a loop. If the index rejects a query, the search uses the query's words. If a query has no matches, the
/// search accepts any of its words. A query without words returns the newest entries. The notes of the result describe such
/// changes.
///
/// # Errors
/// The database fails or contains values that are unreadable for this version.
pub fn search(c: &Connection, id: &LoopId, query: &SessionQuery) -> StoreResult<SearchResults> {
    let mut notes = Vec::new();
    let filter = Filter::new(id, query, &mut notes);
    let forms = forms(&query.query);
    if forms.is_empty() {
        if !query.query.trim().is_empty() {
            notes.push("the query contains no word; these are the newest entries".to_owned());
        }
        let scans = filter.tiers(c, None).map_err(|failed| failed.into_error("a list"))?;
        return found(c, scans, query, None, notes);
    }
    let finder = word_finder(&terms(&query.query));
    let mut last: Option<(Vec<TierScan>, Option<String>)> = None;
    for form in &forms {
        match filter.tiers(c, Some(&form.expression)) {
            Ok(scans) => {
                let any = scans.iter().any(|scan| !scan.matches.is_empty());
                // If no form has matches, report the first accepted form.
                if any || last.is_none() {
                    last = Some((scans, form.note.clone()));
                }
                if any {
                    break;
                }
            }
            Err(SearchFailure::Refused) => {}
            Err(failed) => return Err(failed.into_error(&form.expression)),
        }
    }
    let (scans, note) = last.unwrap_or_default();
    notes.extend(note);
    found(c, scans, query, finder.as_ref(), notes)
}

/// Returns the table of a tier. The name of its full-text index is the same with the suffix `_words`.
pub(super) fn table(tier: SessionTier) -> &'static str {
    match tier {
        SessionTier::Raw => "session_turns",
        SessionTier::Events => "session_events",
        SessionTier::Summaries => "session_summaries",
    }
}

/// Returns the searched columns of a tier's index.
pub(super) fn columns(tier: SessionTier) -> &'static str {
    match tier {
        SessionTier::Raw => "{prompt response}",
        SessionTier::Events | SessionTier::Summaries => "{text}",
    }
}

impl SearchFailure {
    fn into_error(self, what: &str) -> StoreError {
        match self {
            Self::Refused => {
                StoreError::Bug { detail: format!("the search of the session memory refused {what:?}").into() }
            }
            Self::Store(error) => error,
        }
    }
}

/// Filters of a query.
struct Filter<'a> {
    id: &'a LoopId,
    query: &'a SessionQuery,
    tools: Patterns,
    paths: Patterns,
    backends: Patterns,
}

impl<'a> Filter<'a> {
    fn new(id: &'a LoopId, query: &'a SessionQuery, notes: &mut Vec<String>) -> Self {
        let tools = Patterns::of_names(&query.tools, notes);
        let paths = Patterns::of_paths(&query.paths, notes);
        let backends = Patterns::of_names(&query.backends, notes);
        let searched = query.tiers();
        if !query.backends.is_empty() && searched == [SessionTier::Events] {
            notes.push("events do not name a backend, so `backends` was ignored".to_owned());
        }
        if query.tier.is_some_and(|tier| searched != [tier]) {
            notes.push(match searched[..] {
                [SessionTier::Raw] => "backends applies to turns, so only turns were searched".to_owned(),
                _ => "event_types, tools and paths apply to events, so only events were searched".to_owned(),
            });
        }
        Self { id, query, tools, paths, backends }
    }

    fn tiers(&self, c: &Connection, expression: Option<&str>) -> Result<Vec<TierScan>, SearchFailure> {
        self.query.tiers().into_iter().map(|tier| self.tier(c, tier, expression)).collect()
    }

    fn tier(&self, c: &Connection, tier: SessionTier, expression: Option<&str>) -> Result<TierScan, SearchFailure> {
        let (sql, values) = self.statement(c, tier, expression);
        let mut statement = c.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let (mut scan, mut scanned) = (TierScan::default(), 0);
        while let Some(row) = rows.next()? {
            scanned += 1;
            if scanned > MAX_SCANNED {
                scan.at_least = true;
                break;
            }
            let text = |at: usize| row.get_ref(at).ok().and_then(|value| value.as_str_or_null().ok().flatten());
            let of_backend = tier != SessionTier::Raw || self.backends.matches(text(3));
            if !(self.tools.matches(text(1)) && self.paths.matches(text(2)) && of_backend) {
                continue;
            }
            if scan.matches.len() < self.query.limit() {
                scan.matches.push(SessionMatch { tier, id: row.get(0)? });
            } else {
                scan.more += 1;
            }
        }
        Ok(scan)
    }

    /// Builds the SQL statement that selects id, tool, path and backend of matches, best first.
    fn statement(&self, c: &Connection, tier: SessionTier, expression: Option<&str>) -> (String, Vec<Value>) {
        let (table, columns) = (table(tier), columns(tier));
        let weights: &[f64] = if tier == SessionTier::Raw { &[0.0, 0.3, 1.0] } else { &[0.0, 1.0] };
        let (tool, path) = if tier == SessionTier::Events { ("t.tool", "t.path") } else { ("NULL", "NULL") };
        let backend = if tier == SessionTier::Raw { "t.backend" } else { "NULL" };
        let (first, last) = if tier == SessionTier::Summaries {
            ("t.from_iteration", "t.to_iteration")
        } else {
            ("t.iteration", "t.iteration")
        };
        let failed = if tier == SessionTier::Raw { "(t.error IS NOT NULL)" } else { "(t.failed = 1)" };
        let range = self.query.iterations;
        let mut values: Vec<Value> = vec![
            self.id.as_str().to_owned().into(),
            i64::from(range.from.unwrap_or(0)).into(),
            i64::from(range.to.unwrap_or(u32::MAX)).into(),
        ];
        let mut conditions = format!("t.loop_id = ?1 AND {last} >= ?2 AND {first} <= ?3");
        if let Some(wanted) = self.query.has_error {
            conditions.push_str(if wanted { " AND " } else { " AND NOT " });
            conditions.push_str(failed);
        }
        if tier == SessionTier::Events && !self.query.event_types.is_empty() {
            let kinds: Vec<String> = self.query.event_types.iter().map(|kind| format!("'{kind}'")).collect();
            conditions.push_str(&format!(" AND t.kind IN ({})", kinds.join(", ")));
        }
        if tier == SessionTier::Events {
            // An agent's search does not find the agent's calls of this run.
            conditions.push_str(
                " AND NOT EXISTS (SELECT 1 FROM running_turns r
                 WHERE r.loop_id = t.loop_id AND r.iteration = t.iteration AND t.at >= r.started_at)",
            );
        }
        let Some(expression) = expression else {
            let order = format!("ORDER BY {last} DESC, t.id DESC");
            return (
                format!("SELECT t.id, {tool}, {path}, {backend} FROM {table} t WHERE {conditions} {order}"),
                values,
            );
        };
        values.push(format!("scope : {} AND {columns} : ({expression})", scope(self.id)).into());
        let words = format!("{table}_words");
        let matches = c.matches(&words, 4);
        let rank = c.rank(&words, weights, 4);
        let sql = format!(
            "SELECT t.id, {tool}, {path}, {backend} FROM {words} JOIN {table} t ON t.id = {words}.rowid
             WHERE {matches} AND {conditions} ORDER BY {rank}, t.id DESC"
        );
        (sql, values)
    }
}

/// Reads the best matches of all tiers in alternation.
fn found(
    c: &Connection,
    scans: Vec<TierScan>,
    query: &SessionQuery,
    finder: Option<&Regex>,
    notes: Vec<String>,
) -> StoreResult<SearchResults> {
    let matched: u64 = scans.iter().map(|scan| scan.matches.len() as u64 + scan.more).sum();
    let at_least = scans.iter().any(|scan| scan.at_least);
    let longest = scans.iter().map(|scan| scan.matches.len()).max().unwrap_or_default();
    let in_turn = (0..longest).flat_map(|nth| scans.iter().filter_map(move |scan| scan.matches.get(nth)));
    let hits = in_turn.take(query.limit()).map(|found| hit(c, found, finder)).collect::<StoreResult<Vec<_>>>()?;
    let more = matched.saturating_sub(hits.len() as u64);
    Ok(SearchResults { hits, more, at_least, notes })
}

fn hit(c: &Connection, found: &SessionMatch, finder: Option<&Regex>) -> StoreResult<Hit> {
    let sql = match found.tier {
        SessionTier::Raw => {
            "SELECT iteration, attempt, role, backend, model, error, response, prompt FROM session_turns WHERE id = ?1"
        }
        SessionTier::Events => "SELECT iteration, kind, tool, path, text, failed, at FROM session_events WHERE id = ?1",
        SessionTier::Summaries => "SELECT data FROM session_summaries WHERE id = ?1",
    };
    let mut statement = c.prepare_cached(sql)?;
    let mut rows = statement.query([found.id])?;
    let Some(row) = rows.next()? else {
        return Err(StoreError::Bug { detail: "a search row of the session memory has no text".into() });
    };
    match found.tier {
        SessionTier::Raw => {
            let response = packed::text(row.get_ref(6)?)?;
            let prompt = packed::text(row.get_ref(7)?)?;
            let in_prompt = finder.is_some_and(|finder| !finder.is_match(&response) && finder.is_match(&prompt));
            Ok(Hit::Turn {
                iteration: row.get(0)?,
                attempt: row.get(1)?,
                role: role(&row.get::<_, String>(2)?)?,
                backend: row.get(3)?,
                model: row.get(4)?,
                error: row.get(5)?,
                excerpt: excerpt(if in_prompt { &prompt } else { &response }, finder),
            })
        }
        SessionTier::Events => {
            let mut event = event(&row)?;
            event.text = excerpt(&event.text, finder);
            Ok(Hit::Event(event))
        }
        SessionTier::Summaries => Ok(Hit::Summary(serde_json::from_str(&row.get::<_, String>(0)?)?)),
    }
}
