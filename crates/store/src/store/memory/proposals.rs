//! Review comments, and proposals of conventions from recurring comments.

use ralph_types::failure::Failure;

use super::StoredLearning;
use crate::domain::knowledge::memory::{
    Content, Learning, MAX_ANSWERED_PROPOSALS, MAX_OPEN_PROPOSALS, MAX_REMARKS, MemorySettings, PROPOSAL_DAYS,
    Proposal, ProposalState, Remark, asks_for_the_same, is_proposed, sightings,
};
use crate::domain::loops::PublishedProposal;
use crate::domain::model::ids::{LoopId, RepoRef, Timestamp};
use crate::store::StoreResult;
use crate::store::sql::{Connection, OptionalExtension, Row, SqlError, SqlResult, params};

const COLUMNS: &str = "id, repository, text, state, loops, loop_id, told_at, decided_by, created_at";
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Stores a review comment of a loop, and a proposal if similar comments recur.
pub fn add_remark(
    c: &Connection,
    repo: &RepoRef,
    remark: &Remark,
    settings: &MemorySettings,
    now: Timestamp,
) -> StoreResult<()> {
    let key = (repo.forge.as_str(), repo.id.0);
    let sql = "SELECT id, loop_id, text FROM remarks WHERE forge = ?1 AND repo_id = ?2 ORDER BY id";
    let mut statement = c.prepare_cached(sql)?;
    let read = |row: &Row<'_>| {
        Ok((row.get::<_, i64>(0)?, Remark { loop_id: LoopId::new(row.get::<_, String>(1)?), text: row.get(2)? }))
    };
    let (ids, known): (Vec<i64>, Vec<Remark>) =
        statement.query_map(params![key.0, key.1], read)?.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let (same, loops) = sightings(remark, &known, settings);
    let proposal = same_proposal(c, repo, &remark.text, settings)?;
    let number = match proposal {
        Some(known) if known.state == ProposalState::Open => {
            let sql = "UPDATE proposals SET loops = max(loops, ?2), loop_id = ?3, updated_at = ?4 WHERE id = ?1";
            c.prepare_cached(sql)?.execute(params![known.number as i64, loops, remark.loop_id.as_str(), now.0])?;
            Some(known.number)
        }
        Some(known) => Some(known.number),
        None if is_proposed(loops, settings) && !is_convention(c, repo, &remark.text, settings)? => {
            propose(c, repo, (remark, loops), now)?
        }
        None => None,
    };
    let number = number.map(|number| number as i64);
    let sql = "INSERT INTO remarks (forge, repo_id, loop_id, text, at, proposal) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    c.prepare_cached(sql)?.execute(params![key.0, key.1, remark.loop_id.as_str(), remark.text, now.0, number])?;
    for at in same {
        let sql = "UPDATE remarks SET proposal = ?2 WHERE id = ?1 AND proposal IS NULL";
        c.prepare_cached(sql)?.execute(params![ids[at], number])?;
    }
    let sql = "DELETE FROM remarks WHERE forge = ?1 AND repo_id = ?2 AND id NOT IN
        (SELECT id FROM remarks WHERE forge = ?1 AND repo_id = ?2 ORDER BY id DESC LIMIT ?3)";
    c.prepare_cached(sql)?.execute(params![key.0, key.1, MAX_REMARKS as i64])?;
    Ok(())
}

/// Stores a new proposal, unless too many are open; returns its number.
fn propose(
    c: &Connection,
    repo: &RepoRef,
    (remark, loops): (&Remark, u32),
    now: Timestamp,
) -> StoreResult<Option<u64>> {
    let sql = "SELECT count(*) FROM proposals WHERE forge = ?1 AND repo_id = ?2 AND state = 'open'";
    let open: i64 = c.prepare_cached(sql)?.query_row(params![repo.forge.as_str(), repo.id.0], |row| row.get(0))?;
    if open >= MAX_OPEN_PROPOSALS as i64 {
        return Ok(None);
    }
    let sql = "INSERT INTO proposals (forge, repo_id, repository, text, state, loops, loop_id, created_at, updated_at)
        VALUES (?1, ?2, ?3, ?4, 'open', ?5, ?6, ?7, ?7) RETURNING id";
    let row = params![
        repo.forge.as_str(),
        repo.id.0,
        serde_json::to_string(repo)?,
        remark.text,
        loops,
        remark.loop_id.as_str(),
        now.0
    ];
    Ok(Some(c.prepare_cached(sql)?.query_row(row, |row| row.get::<_, i64>(0))?.unsigned_abs()))
}

/// Returns the repository's proposal with the same meaning as a text, in any state; `None` if there is none.
fn same_proposal(
    c: &Connection,
    repo: &RepoRef,
    text: &str,
    settings: &MemorySettings,
) -> StoreResult<Option<Proposal>> {
    let known = of_repository(c, repo)?;
    Ok(known.into_iter().find(|proposal| asks_for_the_same(&proposal.text, text, settings)))
}

/// Whether a repository has a convention with the same meaning as a text.
fn is_convention(c: &Connection, repo: &RepoRef, text: &str, settings: &MemorySettings) -> StoreResult<bool> {
    let sql = format!(
        "SELECT {} FROM learnings l WHERE l.forge = ?1 AND l.repo_id = ?2 AND l.kind = 'convention' AND l.state <> 'archived'",
        StoredLearning::COLUMNS
    );
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params![repo.forge.as_str(), repo.id.0], StoredLearning::read)?;
    let says = |learning: &Learning| match &learning.content {
        Content::Convention { rule, .. } => asks_for_the_same(rule, text, settings),
        _ => false,
    };
    Ok(super::opened(rows.collect::<Result<_, _>>()?).0.iter().any(says))
}

fn read(row: &Row<'_>) -> SqlResult<Proposal> {
    let repository: String = row.get(1)?;
    let state: String = row.get(3)?;
    Ok(Proposal {
        number: row.get::<_, i64>(0)?.unsigned_abs(),
        repository: serde_json::from_str(&repository)
            .map_err(|error| SqlError::Value { column: 1, detail: Failure::of(error) })?,
        text: row.get(2)?,
        state: ProposalState::parse(&state).unwrap_or(ProposalState::Rejected),
        loops: row.get(4)?,
        loop_id: LoopId::new(row.get::<_, String>(5)?),
        told_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        decided_by: row.get(7)?,
        created_at: Timestamp(row.get(8)?),
    })
}

fn of_repository(c: &Connection, repo: &RepoRef) -> StoreResult<Vec<Proposal>> {
    let sql = format!("SELECT {COLUMNS} FROM proposals WHERE forge = ?1 AND repo_id = ?2 ORDER BY id");
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params![repo.forge.as_str(), repo.id.0], read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the proposals of all repositories, oldest first. With `all`, includes answered ones.
pub fn proposals(c: &Connection, all: bool) -> StoreResult<Vec<Proposal>> {
    let sql = format!("SELECT {COLUMNS} FROM proposals WHERE ?1 OR state = 'open' ORDER BY id");
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map([all], read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns a proposal by its number.
pub fn proposal(c: &Connection, number: u64) -> StoreResult<Option<Proposal>> {
    let sql = format!("SELECT {COLUMNS} FROM proposals WHERE id = ?1");
    Ok(c.prepare_cached(&sql)?.query_row([i64::try_from(number).unwrap_or(-1)], read).optional()?)
}

/// Stores the answer to a proposal; returns `false` if the number is unknown. Deletes the repository's oldest answered
/// proposals.
pub fn answer(c: &Connection, number: u64, state: ProposalState, by: &str, now: Timestamp) -> StoreResult<bool> {
    let sql = "UPDATE proposals SET state = ?2, decided_by = ?3, updated_at = ?4 WHERE id = ?1";
    let number = i64::try_from(number).unwrap_or(-1);
    let found = c.prepare_cached(sql)?.execute(params![number, state.as_str(), by, now.0])? > 0;
    let sql = "DELETE FROM proposals WHERE id IN (
            SELECT p.id FROM proposals p JOIN proposals o ON o.id = ?1 AND p.forge = o.forge AND p.repo_id = o.repo_id
            WHERE p.state <> 'open' ORDER BY p.updated_at DESC, p.id DESC LIMIT 1000000 OFFSET ?2)";
    c.prepare_cached(sql)?.execute(params![number, MAX_ANSWERED_PROPOSALS as i64])?;
    Ok(found)
}

/// Accepts the open proposals of a repository that have the same meaning as a maintainer's rule.
pub(super) fn accept_same(
    c: &Connection,
    repo: &RepoRef,
    (rule, by): (&str, &str),
    settings: &MemorySettings,
    now: Timestamp,
) -> StoreResult<()> {
    for known in of_repository(c, repo)? {
        if known.state == ProposalState::Open && asks_for_the_same(&known.text, rule, settings) {
            answer(c, known.number, ProposalState::Accepted, by, now)?;
        }
    }
    Ok(())
}

/// Returns at most `limit` open, unpublished proposals of a repository and reserves them for a loop. The reservation ends if
/// the loop ends without publishing them.
pub fn reserve_untold(
    c: &Connection,
    repo: &RepoRef,
    id: &LoopId,
    limit: usize,
) -> StoreResult<Vec<PublishedProposal>> {
    let sql = "UPDATE proposals SET told_in = ?3 WHERE id IN (
            SELECT p.id FROM proposals p LEFT JOIN loops l ON l.id = p.told_in
            WHERE p.forge = ?1 AND p.repo_id = ?2 AND p.state = 'open' AND p.told_at IS NULL
              AND (p.told_in IS NULL OR p.told_in = ?3 OR l.open IS NULL OR l.open = 0)
            ORDER BY p.id LIMIT ?4)
        RETURNING id, text, loops";
    let mut statement = c.prepare_cached(sql)?;
    let row = params![repo.forge.as_str(), repo.id.0, id.as_str(), limit as i64];
    let rows = statement.query_map(row, |row| {
        Ok(PublishedProposal { number: row.get::<_, i64>(0)?.unsigned_abs(), text: row.get(1)?, loops: row.get(2)? })
    })?;
    let mut found = rows.collect::<Result<Vec<_>, _>>()?;
    found.sort_by_key(|proposal| proposal.number);
    Ok(found)
}

/// Marks proposals as published in a comment.
pub(super) fn told(c: &Connection, numbers: &[u64], now: Timestamp) -> StoreResult<()> {
    for number in numbers {
        let sql = "UPDATE proposals SET told_at = ?2 WHERE id = ?1 AND told_at IS NULL";
        c.prepare_cached(sql)?.execute(params![i64::try_from(*number).unwrap_or(-1), now.0])?;
    }
    Ok(())
}

/// Deletes a proposal with its review comments; new comments of this kind can lead to the same proposal again. Returns
/// `false` if it does not exist.
pub fn forget_proposal(c: &Connection, number: u64) -> StoreResult<bool> {
    let number = i64::try_from(number).unwrap_or(-1);
    c.prepare_cached("DELETE FROM remarks WHERE proposal = ?1")?.execute([number])?;
    Ok(c.prepare_cached("DELETE FROM proposals WHERE id = ?1")?.execute([number])? > 0)
}

/// Deletes old review comments and old unanswered proposals; returns the number of deleted rows.
pub fn drop_old_remarks(c: &Connection, now: Timestamp) -> StoreResult<usize> {
    let before = now.plus_ms(-PROPOSAL_DAYS * DAY_MS).0;
    let remarks = c.prepare_cached("DELETE FROM remarks WHERE at < ?1")?.execute([before])?;
    let sql = "DELETE FROM proposals WHERE state = 'open' AND updated_at < ?1";
    Ok(remarks + c.prepare_cached(sql)?.execute([before])?)
}
