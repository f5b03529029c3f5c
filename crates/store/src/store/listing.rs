//! Read model of loops for lists: one small row per loop. Saving a loop updates its row, so lists need not read whole loops.

use super::paging::for_each_row;
pub use super::scope::RepoScope;
use super::{StoreError, StoreResult, costs, installation};
use crate::domain::knowledge::session::terms;
use crate::domain::loops::{Loop, LoopState};
use crate::domain::model::ids::{
    AccountKind, ForgeName, LoopId, Money, Number, Ratio, RepoId, RepoRef, Timestamp, User, UserId,
};
use crate::domain::model::quantity::IterationLimit;
use crate::store::sql::{Connection, OptionalExtension, Row, SqlResult, Value, params, params_from_iter};

/// Number of loops per transaction when rows are created for an earlier version's loops.
const FILL_BATCH: usize = 100;
/// Key of the setting that records which rows of the read model are complete.
const FILLED: &str = "read_model";

/// Row of a loop in lists.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopRow {
    /// Id of the loop.
    pub id: LoopId,
    /// Owner and name of the repository.
    pub repo: RepoRef,
    /// Issue that the loop works on.
    pub issue: Number,
    /// Title of the issue.
    pub title: String,
    /// Address of the issue's page.
    pub url: String,
    /// State of the loop.
    pub state: LoopState,
    /// Whether the loop waits for a person.
    pub waits: bool,
    /// Person who requested the loop.
    pub person: User,
    /// Reason for the state, one sentence.
    pub reason: String,
    /// Number of started iterations.
    pub iterations: u32,
    /// Maximum number of iterations.
    pub max_iterations: IterationLimit,
    /// Completion at the last measurement.
    pub completion: Ratio,
    /// Total cost.
    pub cost: Money,
    /// Cost limit.
    pub cost_limit: Money,
    /// Branch that the loop pushes to.
    pub branch: String,
    /// Address of the pull request's page; `None` without a pull request.
    pub pull: Option<String>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last step.
    pub updated_at: Timestamp,
}

impl LoopRow {
    /// Returns the row of a loop.
    pub fn of(of: &Loop) -> Self {
        Self {
            id: of.id.clone(),
            repo: of.issue.repo.clone(),
            issue: of.issue.issue,
            title: of.task.text.title().to_owned(),
            url: of.task.url.clone(),
            state: of.state,
            waits: of.waits_for_person(),
            person: of.people.requested_by.clone(),
            reason: of.why.clone(),
            iterations: of.spent.iterations,
            max_iterations: of.limits.iterations,
            completion: of.completion(),
            cost: of.spent.cost,
            cost_limit: of.limits.cost,
            branch: of.branch.name.clone(),
            pull: of.pull.opened.as_ref().map(|pull| pull.url.clone()),
            created_at: of.created_at,
            updated_at: of.updated_at,
        }
    }

    const COLUMNS: &'static str =
        "s.id, s.loop_id, s.forge, s.repo_id, s.owner, s.name, s.issue, s.title, s.url, s.state,
        s.waits, s.person_id, s.person, s.reason, s.iterations, s.max_iterations, s.completion, s.cost, s.cost_limit,
        s.branch, s.pull, s.created_at, s.updated_at";

    fn read(row: &Row<'_>) -> SqlResult<Self> {
        let state: String = row.get(9)?;
        Ok(Self {
            id: LoopId::new(row.get::<_, String>(1)?),
            repo: repository(row, 2)?,
            issue: Number(row.get::<_, i64>(6)?.unsigned_abs()),
            title: row.get(7)?,
            url: row.get(8)?,
            state: LoopState::parse(&state).unwrap_or(LoopState::Failed),
            waits: row.get(10)?,
            person: User { id: UserId(row.get(11)?), login: row.get(12)?, kind: AccountKind::User },
            reason: row.get(13)?,
            iterations: row.get(14)?,
            max_iterations: IterationLimit::of(row.get(15)?),
            completion: Ratio::new(row.get(16)?),
            cost: Money(row.get(17)?),
            cost_limit: Money(row.get(18)?),
            branch: row.get(19)?,
            pull: row.get(20)?,
            created_at: Timestamp(row.get(21)?),
            updated_at: Timestamp(row.get(22)?),
        })
    }

    /// Returns the searched texts: title, reason, person, and repository with branch and issue.
    fn texts(&self) -> [String; 4] {
        let place = format!("{} {} {} {} {}", self.repo, self.issue, self.id, self.branch, self.state.words());
        [self.title.clone(), self.reason.clone(), self.person.login.clone(), place]
    }
}

/// Reads a repository from four columns: forge, id, owner, name.
pub(super) fn repository(row: &Row<'_>, at: usize) -> SqlResult<RepoRef> {
    Ok(RepoRef {
        forge: ForgeName::new(row.get::<_, String>(at)?),
        id: RepoId(row.get(at + 1)?),
        owner: row.get(at + 2)?,
        name: row.get(at + 3)?,
    })
}

/// Filter for loops. A loop must match all set fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopFilter {
    /// Visible repositories.
    pub scope: RepoScope,
    /// Name of a forge.
    pub forge: Option<String>,
    /// Owner and name of a repository; ignores letter case.
    pub repository: Option<(String, String)>,
    /// States to include; empty for all.
    pub states: Vec<LoopState>,
    /// Login of the person who requested the loop; ignores letter case.
    pub person: Option<String>,
    /// Whether the loop is open; `None` for both.
    pub open: Option<bool>,
    /// Whether the loop waits for a person; `None` for both.
    pub waits: Option<bool>,
    /// Words that the title, reason, person, repository, branch or issue must contain. The last word may be a prefix.
    pub text: Option<String>,
}

impl LoopFilter {
    /// Returns a filter that matches all loops of some repositories.
    pub fn of(scope: RepoScope) -> Self {
        Self {
            scope,
            forge: None,
            repository: None,
            states: Vec::new(),
            person: None,
            open: None,
            waits: None,
            text: None,
        }
    }

    /// Returns the SQL tables and conditions of the filter, and appends their values to `values`.
    fn selection(&self, c: &Connection, values: &mut Vec<Value>) -> String {
        let mut from = "loop_summaries s".to_owned();
        let mut conditions = vec![self.scope.condition("s", values)];
        if let Some(forge) = &self.forge {
            values.push(forge.clone().into());
            conditions.push(format!("s.forge = ?{}", values.len()));
        }
        let mut equals_in_any_case = |values: &mut Vec<Value>, column: &str, value: &str| {
            values.push(value.to_owned().into());
            conditions.push(format!("lower({column}) = lower(?{})", values.len()));
        };
        if let Some((owner, name)) = &self.repository {
            equals_in_any_case(values, "s.owner", owner);
            equals_in_any_case(values, "s.name", name);
        }
        if let Some(person) = &self.person {
            equals_in_any_case(values, "s.person", person);
        }
        if let Some(open) = self.open {
            values.push(i64::from(open).into());
            conditions.push(format!("s.open = ?{}", values.len()));
        }
        if let Some(waits) = self.waits {
            // A literal, so that SQLite uses the partial index.
            conditions.push(format!("s.waits = {}", u8::from(waits)));
        }
        if !self.states.is_empty() {
            let states: Vec<String> = self.states.iter().map(|state| format!("'{}'", state.as_str())).collect();
            conditions.push(format!("s.state IN ({})", states.join(", ")));
        }
        if let Some(expression) = self.text.as_deref().and_then(|text| words_expression(text, true)) {
            values.push(expression.into());
            from = "loop_summaries_words CROSS JOIN loop_summaries s".to_owned();
            conditions.push("s.id = loop_summaries_words.rowid".to_owned());
            conditions.push(c.matches("loop_summaries_words", values.len()));
        }
        format!("FROM {from} WHERE {}", conditions.join(" AND "))
    }
}

/// Returns the full-text search expression that requires all of a person's words; `None` without words. With `open_ended`,
/// the last word may be a prefix, which is only fast in small indexes.
pub fn words_expression(text: &str, open_ended: bool) -> Option<String> {
    let quoted: Vec<String> = terms(text).iter().map(|term| format!("\"{term}\"")).collect();
    let open_ended = open_ended && text.ends_with(char::is_alphanumeric);
    (!quoted.is_empty()).then(|| format!("{}{}", quoted.join(" "), if open_ended { "*" } else { "" }))
}

/// Page of loops.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopPage {
    /// Rows, newest first.
    pub rows: Vec<LoopRow>,
    /// Cursor of the next page; `None` if there is none.
    pub next: Option<i64>,
}

/// Returns at most `limit` loops that match a filter, newest first. `before` is the cursor of an earlier page. New loops
/// between two calls do not shift later pages.
pub fn page(c: &Connection, filter: &LoopFilter, before: Option<i64>, limit: usize) -> StoreResult<LoopPage> {
    let mut values = Vec::new();
    let selection = filter.selection(c, &mut values);
    let searched = selection.contains("loop_summaries_words");
    let key = if searched { "loop_summaries_words.rowid" } else { "s.id" };
    values.push(before.unwrap_or(i64::MAX).into());
    let bound = values.len();
    values.push(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1).into());
    let sql = format!(
        "SELECT {} {selection} AND {key} < ?{bound} ORDER BY {key} DESC LIMIT ?{}",
        LoopRow::COLUMNS,
        values.len()
    );
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| Ok((row.get::<_, i64>(0)?, LoopRow::read(row)?)))?;
    let mut found = rows.collect::<Result<Vec<_>, _>>()?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|(id, _)| *id);
    Ok(LoopPage { rows: found.into_iter().map(|(_, row)| row).collect(), next })
}

/// Returns at most `limit` loops that match a filter, newest first, after skipping `offset` of them.
pub fn slice(c: &Connection, filter: &LoopFilter, offset: usize, limit: usize) -> StoreResult<Vec<LoopRow>> {
    let mut values = Vec::new();
    let selection = filter.selection(c, &mut values);
    let number = |count: usize| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
    values.extend([number(limit), number(offset)]);
    let (limit, offset) = (values.len() - 1, values.len());
    // Read rows only for this page, not for earlier pages.
    let sql = format!(
        "SELECT {} FROM loop_summaries s WHERE s.id IN (SELECT s.id {selection} ORDER BY s.id DESC LIMIT ?{limit} OFFSET ?{offset})
         ORDER BY s.id DESC",
        LoopRow::COLUMNS
    );
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), LoopRow::read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the row of a loop.
pub fn row(c: &Connection, id: &LoopId) -> StoreResult<Option<LoopRow>> {
    let sql = format!("SELECT {} FROM loop_summaries s WHERE s.loop_id = ?1", LoopRow::COLUMNS);
    Ok(c.prepare_cached(&sql)?.query_row([id.as_str()], LoopRow::read).optional()?)
}

/// Returns the number of loops that match a filter, by state.
pub fn counts(c: &Connection, filter: &LoopFilter) -> StoreResult<Vec<(LoopState, u64)>> {
    let mut values = Vec::new();
    let sql = format!("SELECT s.state, count(*) {} GROUP BY s.state", filter.selection(c, &mut values));
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| {
        Ok((LoopState::parse(&row.get::<_, String>(0)?), row.get::<_, i64>(1)?.unsigned_abs()))
    })?;
    let known = rows.map(|row| row.map(|(state, count)| state.map(|state| (state, count))));
    Ok(known.filter_map(Result::transpose).collect::<Result<_, _>>()?)
}

/// Returns all repositories with loops, each with its name in the newest loop.
pub fn repositories(c: &Connection) -> StoreResult<Vec<RepoRef>> {
    // One index lookup per repository instead of one per loop.
    let sql = "WITH RECURSIVE places (forge, repo_id) AS (
            SELECT * FROM (SELECT forge, repo_id FROM loop_summaries ORDER BY forge, repo_id LIMIT 1) AS first
            UNION ALL
            SELECT n.forge, n.repo_id FROM places p CROSS JOIN loop_summaries n WHERE n.id = coalesce(
                (SELECT o.id FROM loop_summaries o WHERE o.forge = p.forge AND o.repo_id > p.repo_id ORDER BY o.repo_id LIMIT 1),
                (SELECT o.id FROM loop_summaries o WHERE o.forge > p.forge ORDER BY o.forge, o.repo_id LIMIT 1)))
        SELECT s.forge, s.repo_id, s.owner, s.name FROM places p CROSS JOIN loop_summaries s WHERE s.id =
            (SELECT max(o.id) FROM loop_summaries o WHERE o.forge = p.forge AND o.repo_id = p.repo_id)
        ORDER BY s.forge, s.owner, s.name";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| repository(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Saves the row of a loop, and its index entries if its texts changed.
pub(super) fn save(c: &Connection, new: &LoopRow) -> StoreResult<()> {
    let old = row(c, &new.id)?;
    let sql = "INSERT INTO loop_summaries (loop_id, forge, repo_id, owner, name, issue, title, url, state, open, waits, person_id,
            person, reason, iterations, max_iterations, completion, cost, cost_limit, branch, pull, created_at, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)
        ON CONFLICT (loop_id) DO UPDATE SET forge = excluded.forge, repo_id = excluded.repo_id, owner = excluded.owner,
            name = excluded.name, issue = excluded.issue, title = excluded.title, url = excluded.url, state = excluded.state,
            open = excluded.open, waits = excluded.waits, person_id = excluded.person_id, person = excluded.person,
            reason = excluded.reason, iterations = excluded.iterations, max_iterations = excluded.max_iterations,
            completion = excluded.completion, cost = excluded.cost, cost_limit = excluded.cost_limit,
            branch = excluded.branch, pull = excluded.pull, updated_at = excluded.updated_at
        RETURNING id";
    let id: i64 = c.prepare_cached(sql)?.query_row(
        params![
            new.id.as_str(),
            new.repo.forge.as_str(),
            new.repo.id.0,
            new.repo.owner,
            new.repo.name,
            i64::try_from(new.issue.0).unwrap_or(i64::MAX),
            new.title,
            new.url,
            new.state.as_str(),
            new.state.is_open(),
            new.waits,
            new.person.id.0,
            new.person.login,
            new.reason,
            new.iterations,
            // The largest number stands for no limit.
            new.max_iterations.count().unwrap_or(u32::MAX),
            new.completion.get(),
            new.cost.0,
            new.cost_limit.0,
            new.branch,
            new.pull,
            new.created_at.0,
            new.updated_at.0,
        ],
        |row| row.get(0),
    )?;
    let texts = new.texts();
    match old.map(|old| old.texts()) {
        Some(known) if known == texts => return Ok(()),
        Some(_) => {
            c.prepare_cached("DELETE FROM loop_summaries_words WHERE rowid = ?1")?.execute([id])?;
        }
        None => {}
    }
    index(c, id, texts)
}

/// Adds the texts of a row to the full-text index.
fn index(c: &Connection, id: i64, [title, reason, person, place]: [String; 4]) -> StoreResult<()> {
    let sql = "INSERT INTO loop_summaries_words (rowid, title, reason, person, place) VALUES (?1, ?2, ?3, ?4, ?5)";
    c.prepare_cached(sql)?.execute(params![id, title, reason, person, place])?;
    Ok(())
}

/// Fills the empty full-text index of a copied database.
pub(super) fn index_all(c: &Connection) -> StoreResult<()> {
    for_each_row(c, "loop_summaries s", LoopRow::COLUMNS, |row| {
        let id: i64 = row.get(0)?;
        index(c, id, LoopRow::read(row)?.texts())?;
        Ok(id)
    })
}

/// Creates the loops' rows and the daily costs that an earlier version did not store. Does nothing once they are complete.
pub(super) fn fill(c: &Connection) -> StoreResult<()> {
    if installation::get(c, FILLED)?.is_some() {
        return Ok(());
    }
    loop {
        c.engine().begin_write()?;
        let done = fill_batch(c);
        if done.is_err() {
            c.engine().roll_back()?;
        }
        let done = done?;
        c.engine().commit()?;
        if done {
            return Ok(());
        }
    }
}

/// Creates the rows of some loops; returns whether all exist.
fn fill_batch(c: &Connection) -> StoreResult<bool> {
    let missing = missing(c)?;
    for (id, data) in &missing {
        match Loop::read(data) {
            Ok(known) => save(c, &LoopRow::of(&known))?,
            Err(error) => save_unreadable(c, id, &error.to_string())?,
        }
    }
    let done = missing.len() < FILL_BATCH;
    if done && installation::get(c, FILLED)?.is_none() {
        costs::fill(c)?;
        installation::set(c, FILLED, "1")?;
    }
    Ok(done)
}

/// Returns the oldest loops without a row: id and data.
fn missing(c: &Connection) -> StoreResult<Vec<(String, String)>> {
    let sql =
        "SELECT l.id, l.data FROM loops l WHERE NOT EXISTS (SELECT 1 FROM loop_summaries s WHERE s.loop_id = l.id)
        ORDER BY l.created_at, l.id LIMIT ?1";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([FILL_BATCH as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Saves a row for a loop with unreadable data, from the columns of its table.
fn save_unreadable(c: &Connection, id: &str, why: &str) -> StoreResult<()> {
    tracing::warn!(loop_id = id, why, "cannot read a stored loop; lists show only its state");
    let sql = "INSERT INTO loop_summaries (loop_id, forge, repo_id, owner, name, issue, title, url, state, open, waits, person_id,
            person, reason, iterations, max_iterations, completion, cost, cost_limit, branch, created_at, updated_at)
        SELECT id, forge, repo_id, '', '', issue, '', '', state, open, 0, 0, '', 'Its stored data cannot be read.', 0, 0, 0, 0, 0,
            '', created_at, updated_at
        FROM loops WHERE id = ?1";
    let added = c.execute(sql, [id])?;
    if added == 0 { Err(StoreError::Bug { detail: format!("there is no loop {id}").into() }) } else { Ok(()) }
}

#[cfg(test)]
pub(super) mod tests;
