//! Records the learnings in prompts, and credits them with the results of the iterations and loops.

use super::{get, save};
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::{Credit, Learning, MemorySettings, Tally, Uplift, credit, credit_of_iteration};
use crate::domain::model::ids::{LoopId, RepoRef, Timestamp};
use crate::store::StoreResult;
use crate::store::sql::{Connection, Params, params};

/// Result of a loop, used to credit the learnings in its prompts.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopCredit {
    /// The loop.
    pub loop_id: LoopId,
    /// Repository of the loop.
    pub repository: RepoRef,
    /// Type of its task.
    pub task_type: TaskType,
    /// Whether a person accepted the loop's result.
    pub succeeded: bool,
}

/// Records the learnings in an iteration's prompt. Idempotent.
pub fn carried(c: &Connection, id: &LoopId, iteration: u32, ids: &[String], now: Timestamp) -> StoreResult<()> {
    let sql = "INSERT INTO prompt_learnings (loop_id, iteration, learning, at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO NOTHING";
    for learning in ids {
        let new = c.prepare_cached(sql)?.execute(params![id.as_str(), iteration, learning, now.0])?;
        if new == 1
            && let Some(mut learning) = get(c, learning, now)?
        {
            learning.uses = learning.uses.saturating_add(1);
            learning.last_used_at = Some(now);
            save(c, &learning)?;
        }
    }
    Ok(())
}

/// Credits the learnings in an iteration's prompt with its result: the approach, and whether it made progress. Idempotent.
pub fn credit_iteration(
    c: &Connection,
    id: &LoopId,
    iteration: u32,
    (approach, gained): (&str, bool),
    settings: &MemorySettings,
    now: Timestamp,
) -> StoreResult<()> {
    let sql = "UPDATE prompt_learnings SET credited = 1 WHERE loop_id = ?1 AND iteration = ?2 AND credited = 0
        RETURNING learning";
    for mut learning in selected(c, sql, params![id.as_str(), iteration], now)? {
        if let Some(result) = credit_of_iteration(&learning, approach, gained) {
            credit(&mut learning, result, settings, now);
            save(c, &learning)?;
        }
    }
    Ok(())
}

/// Credits the learnings in a loop's prompts with the loop's result, and stores the result for [`uplift`]. Idempotent. If a
/// loop continues after a limit and ends with another result, credits the second result as well.
pub fn credit_loop(c: &Connection, outcome: &LoopCredit, settings: &MemorySettings, now: Timestamp) -> StoreResult<()> {
    let LoopCredit { loop_id, repository, task_type, succeeded } = outcome;
    let sql = "INSERT INTO learnings_outcomes (loop_id, forge, repo_id, task_type, succeeded, at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (loop_id) DO UPDATE SET succeeded = excluded.succeeded, at = excluded.at
            WHERE learnings_outcomes.succeeded <> excluded.succeeded";
    let (forge, repo_id) = (repository.forge.as_str(), repository.id.0);
    let row = params![loop_id.as_str(), forge, repo_id, task_type.as_str(), succeeded, now.0];
    if c.prepare_cached(sql)?.execute(row)? == 0 {
        return Ok(());
    }
    let result = if *succeeded { Credit::LoopSucceeded } else { Credit::LoopFailed };
    let sql = "SELECT DISTINCT learning FROM prompt_learnings WHERE loop_id = ?1";
    for mut learning in selected(c, sql, params![loop_id.as_str()], now)? {
        credit(&mut learning, result, settings, now);
        save(c, &learning)?;
    }
    Ok(())
}

/// Compares finished loops with the learning in a prompt to loops of the same repository and task type without it. For a
/// learning about all task types, compares loops of all types.
pub fn uplift(c: &Connection, learning: &Learning) -> StoreResult<Uplift> {
    let sql = "SELECT carried, count(*), coalesce(sum(succeeded), 0) FROM (
            SELECT o.succeeded, EXISTS (SELECT 1 FROM prompt_learnings p WHERE p.loop_id = o.loop_id AND p.learning = ?1)
                AS carried
            FROM learnings_outcomes o WHERE o.forge = ?2 AND o.repo_id = ?3 AND (?4 = 'other' OR o.task_type = ?4)) AS outcomes
        GROUP BY carried";
    let repo = &learning.repository;
    let mut statement = c.prepare_cached(sql)?;
    let bound = params![learning.id, repo.forge.as_str(), repo.id.0, learning.task_type.as_str()];
    let rows = statement.query_map(bound, |row| Ok((row.get::<_, bool>(0)?, row.get::<_, i64>(1)?, row.get(2)?)))?;
    let mut uplift = Uplift::default();
    for row in rows {
        let (carried, loops, succeeded): (bool, i64, i64) = row?;
        let tally = Tally { succeeded: succeeded.unsigned_abs(), loops: loops.unsigned_abs() };
        *(if carried { &mut uplift.with } else { &mut uplift.without }) = tally;
    }
    Ok(uplift)
}

/// Returns the learnings whose ids an SQL statement selects. Skips deleted learnings.
fn selected(c: &Connection, sql: &str, bound: impl Params, now: Timestamp) -> StoreResult<Vec<Learning>> {
    let ids: Vec<String> = c.prepare_cached(sql)?.query_map(bound, |row| row.get(0))?.collect::<Result<_, _>>()?;
    let found = ids.iter().map(|id| get(c, id, now)).collect::<StoreResult<Vec<_>>>()?;
    Ok(found.into_iter().flatten().collect())
}
