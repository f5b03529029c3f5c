//! Daily costs by repository, backend and person. The end of a call updates the sums.

use schemars::JsonSchema;
use serde::Deserialize;

use super::StoreResult;
use super::scope::RepoScope;
use crate::domain::model::ids::Money;
use crate::store::sql::{Connection, Row, Value, params, params_from_iter};

/// Part of the SQL statement that adds ended calls to their daily sums.
const ADD: &str =
    "INSERT INTO daily_costs (day, forge, repo_id, backend, person_id, person, calls, cost, tokens_in, tokens_out)
    SELECT c.day, c.forge, c.repo_id, c.backend, coalesce(s.person_id, 0), coalesce(max(s.person), ''), count(*),
        coalesce(sum(c.cost), 0), sum(c.tokens_in + c.cache_read + c.cache_write), sum(c.tokens_out)
    FROM calls c LEFT JOIN loop_summaries s ON s.loop_id = c.loop_id";
const GROUPS: &str = "GROUP BY c.day, c.forge, c.repo_id, c.backend, coalesce(s.person_id, 0)
    ON CONFLICT (day, forge, repo_id, backend, person_id) DO UPDATE SET calls = daily_costs.calls + excluded.calls,
        cost = daily_costs.cost + excluded.cost, tokens_in = daily_costs.tokens_in + excluded.tokens_in,
        tokens_out = daily_costs.tokens_out + excluded.tokens_out, person = excluded.person";

/// Grouping of costs, in addition to the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostGroup {
    /// Repository.
    #[default]
    Repository,
    /// Backend.
    Backend,
    /// Person who requested the loop.
    Person,
}

impl CostGroup {
    /// All groupings.
    pub const ALL: [Self; 3] = [Self::Repository, Self::Backend, Self::Person];

    /// Returns the grouping's name in queries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Repository => "repository",
            Self::Backend => "backend",
            Self::Person => "person",
        }
    }
}

/// Costs of one day and one repository, backend or person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DailyCost {
    /// Days since 1970-01-01 in UTC.
    pub day: i64,
    /// `forge:owner/name`, backend name, or login; empty if the person is unknown.
    pub of: String,
    /// Number of calls that ended.
    pub calls: u64,
    /// Cost of the day.
    pub cost: Money,
    /// Input tokens, including cached ones.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
}

/// Returns the costs of the days `from..=to` in some repositories: newer days first, and the highest costs first within a
/// day. A call counts for the day of its start, and only after it has ended.
pub fn daily(c: &Connection, scope: &RepoScope, by: CostGroup, from: i64, to: i64) -> StoreResult<Vec<DailyCost>> {
    let mut values: Vec<Value> = vec![from.into(), to.into()];
    let visible = scope.condition("d", &mut values);
    let (name, group) = match by {
        CostGroup::Backend => ("d.backend", "d.backend"),
        CostGroup::Person => ("max(d.person)", "d.forge, d.person_id"),
        CostGroup::Repository => (
            "coalesce((SELECT s.forge || ':' || s.owner || '/' || s.name FROM loop_summaries s
                WHERE s.forge = d.forge AND s.repo_id = d.repo_id ORDER BY s.id DESC LIMIT 1), d.forge || ':' || d.repo_id)",
            "d.forge, d.repo_id",
        ),
    };
    let sql = format!(
        "SELECT d.day, {name}, sum(d.calls), sum(d.cost) AS total, sum(d.tokens_in), sum(d.tokens_out) FROM daily_costs d
         WHERE d.day BETWEEN ?1 AND ?2 AND {visible} GROUP BY d.day, {group} ORDER BY d.day DESC, total DESC, {name}"
    );
    let mut statement = c.prepare_cached(&sql)?;
    let count = |row: &Row<'_>, at: usize| row.get::<_, i64>(at).map(|count| count.max(0) as u64);
    let rows = statement.query_map(params_from_iter(values), |row| {
        Ok(DailyCost {
            day: row.get(0)?,
            of: row.get(1)?,
            calls: count(row, 2)?,
            cost: Money(row.get(3)?),
            tokens_in: count(row, 4)?,
            tokens_out: count(row, 5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Adds a call that has just ended to its daily sums.
pub(super) fn add(c: &Connection, key: &str) -> StoreResult<()> {
    c.prepare_cached(&format!("{ADD} WHERE c.key = ?1 AND c.ended_at IS NOT NULL {GROUPS}"))?.execute([key])?;
    Ok(())
}

/// Adds an amount to the daily sums of a call that has ended.
pub(super) fn raise(c: &Connection, key: &str, by: Money) -> StoreResult<()> {
    let sql = "UPDATE daily_costs SET cost = daily_costs.cost + ?2 FROM
        (SELECT c.day, c.forge, c.repo_id, c.backend, coalesce(s.person_id, 0) AS person_id
         FROM calls c LEFT JOIN loop_summaries s ON s.loop_id = c.loop_id WHERE c.key = ?1) k
        WHERE daily_costs.day = k.day AND daily_costs.forge = k.forge AND daily_costs.repo_id = k.repo_id
          AND daily_costs.backend = k.backend AND daily_costs.person_id = k.person_id";
    c.prepare_cached(sql)?.execute(params![key, by.0])?;
    Ok(())
}

/// Computes the sums from all ended calls, for a database without sums.
pub(super) fn fill(c: &Connection) -> StoreResult<()> {
    c.execute("DELETE FROM daily_costs", [])?;
    c.execute(&format!("{ADD} WHERE c.ended_at IS NOT NULL {GROUPS}"), [])?;
    Ok(())
}
