//! Files of loops that another host needs to continue them: commits that the forge does not have, and agent sessions.

use super::StoreResult;
use super::leases::LeaseToken;
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::domain::model::saved_commits::SavedCommits;
use crate::store::sql::{Connection, OptionalExtension, params};

/// Commits of a loop, and the host that saved them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopCommits {
    /// Id of the host with the newest work tree.
    pub host: String,
    /// Commits.
    pub saved: SavedCommits,
}

/// Returns the saved commits of a loop; `None` before the first save.
pub fn commits(c: &Connection, id: &LoopId) -> StoreResult<Option<LoopCommits>> {
    let Some(LoopCommits { host, saved }) = known(c, id)? else { return Ok(None) };
    let sql = "SELECT pack FROM loop_files WHERE loop_id = ?1";
    let pack = c.query_row(sql, [id.as_str()], |row| row.get(0))?;
    Ok(Some(LoopCommits { host, saved: SavedCommits { pack, ..saved } }))
}

/// Returns the saved commits of a loop without the pack; `None` before the first save.
pub fn known(c: &Connection, id: &LoopId) -> StoreResult<Option<LoopCommits>> {
    let sql = "SELECT host, commits FROM loop_files WHERE loop_id = ?1";
    let found = c.query_row(sql, [id.as_str()], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let Some((host, commits)) = found.optional()? else { return Ok(None) };
    Ok(Some(LoopCommits { host, saved: serde_json::from_str(&commits)? }))
}

/// Returns the id of the host with a loop's newest work tree; `None` before the first save.
pub fn host(c: &Connection, id: &LoopId) -> StoreResult<Option<String>> {
    let sql = "SELECT host FROM loop_files WHERE loop_id = ?1";
    Ok(c.query_row(sql, [id.as_str()], |row| row.get(0)).optional()?)
}

/// Saves the commits of a loop in place of earlier ones.
///
/// # Errors
/// `Fenced` if another process has taken over the loop's work.
pub fn save_commits(c: &Connection, id: &LoopId, of: &LoopCommits, lease: &LeaseToken) -> StoreResult<()> {
    lease.check(c)?;
    let sql = "INSERT INTO loop_files (loop_id, host, commits, pack) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (loop_id) DO UPDATE SET host = excluded.host, commits = excluded.commits, pack = excluded.pack";
    let commits = serde_json::to_string(&of.saved)?;
    c.prepare_cached(sql)?.execute(params![id.as_str(), of.host, commits, of.saved.pack])?;
    Ok(())
}

/// Session files of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSession {
    /// Name of the session's folder.
    pub name: String,
    /// Archive of the folder.
    pub archive: Vec<u8>,
}

/// Returns the saved session of a loop.
pub fn session(c: &Connection, id: &LoopId) -> StoreResult<Option<SavedSession>> {
    let sql = "SELECT name, archive FROM loop_sessions WHERE loop_id = ?1";
    let found = c.query_row(sql, [id.as_str()], |row| Ok(SavedSession { name: row.get(0)?, archive: row.get(1)? }));
    Ok(found.optional()?)
}

/// Saves the session of a loop in place of an earlier one, then deletes the oldest sessions until all take at most `most` bytes.
///
/// # Errors
/// `Fenced` if another process has taken over the loop's work.
pub fn save_session(
    c: &Connection,
    id: &LoopId,
    saved: &SavedSession,
    lease: &LeaseToken,
    now: Timestamp,
    most: u64,
) -> StoreResult<()> {
    lease.check(c)?;
    let sql = "INSERT INTO loop_sessions (loop_id, name, saved_at, size, archive) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (loop_id) DO UPDATE SET name = excluded.name, saved_at = excluded.saved_at, size = excluded.size,
            archive = excluded.archive";
    let size = i64::try_from(saved.archive.len()).unwrap_or(i64::MAX);
    c.prepare_cached(sql)?.execute(params![id.as_str(), saved.name, now.0, size, saved.archive])?;
    let sql = "SELECT loop_id, size FROM loop_sessions ORDER BY saved_at DESC, loop_id DESC";
    let mut statement = c.prepare_cached(sql)?;
    let sizes = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    let mut sum = 0_u64;
    for (of, size) in sizes {
        sum += size.unsigned_abs();
        if sum > most {
            c.execute("DELETE FROM loop_sessions WHERE loop_id = ?1", [of])?;
        }
    }
    Ok(())
}

/// Deletes the session of a loop.
pub fn forget_session(c: &Connection, id: &LoopId) -> StoreResult<()> {
    c.execute("DELETE FROM loop_sessions WHERE loop_id = ?1", [id.as_str()])?;
    Ok(())
}

/// Deletes all files of a loop.
pub fn forget(c: &Connection, id: &LoopId) -> StoreResult<()> {
    forget_session(c, id)?;
    c.execute("DELETE FROM loop_files WHERE loop_id = ?1", [id.as_str()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::Sha;
    use crate::domain::model::saved_commits::SavedRef;
    use crate::store::tests::databases::database;
    use crate::store::{StoreError, leases};

    fn held(c: &Connection, id: &str) -> LeaseToken {
        let name = format!("{id}/work");
        let fence = leases::take(c, &name, "a", Timestamp(0), 0).unwrap().unwrap();
        LeaseToken { name, owner: "a".into(), fence }
    }

    #[test]
    fn newest_commits_of_the_current_holder_are_kept() {
        let c = database();
        let id = LoopId::new("x");
        let lease = held(&c, "x");
        let commit = Sha::parse(&"a".repeat(40)).unwrap();
        let refs = vec![SavedRef { name: "refs/ralph/trees/x".into(), commit: commit.clone() }];
        let saved = |host: &str, pack| LoopCommits {
            host: host.into(),
            saved: SavedCommits { refs: refs.clone(), have: vec![commit.clone()], pack },
        };
        assert_eq!(commits(&c, &id).unwrap(), None);
        save_commits(&c, &id, &saved("one", Some(vec![0, 255])), &lease).unwrap();
        assert_eq!(commits(&c, &id).unwrap(), Some(saved("one", Some(vec![0, 255]))));
        save_commits(&c, &id, &saved("two", None), &lease).unwrap();
        assert_eq!(commits(&c, &id).unwrap(), Some(saved("two", None)));
        assert_eq!(host(&c, &id).unwrap().as_deref(), Some("two"));
        held(&c, "x");
        let late = save_commits(&c, &id, &saved("one", None), &lease);
        assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
        forget(&c, &id).unwrap();
        assert_eq!(commits(&c, &id).unwrap(), None);
    }

    #[test]
    fn oldest_sessions_are_dropped_first() {
        let c = database();
        let save = |id: &str, at, size: usize| {
            let saved = SavedSession { name: "1".into(), archive: vec![7; size] };
            save_session(&c, &LoopId::new(id), &saved, &held(&c, id), Timestamp(at), 100).unwrap();
        };
        let size = |id: &str| session(&c, &LoopId::new(id)).unwrap().map(|saved| saved.archive.len());
        save("a", 1, 40);
        save("b", 2, 40);
        save("a", 3, 30);
        save("c", 4, 50);
        assert_eq!([size("a"), size("b"), size("c")], [Some(30), None, Some(50)]);
        forget_session(&c, &LoopId::new("a")).unwrap();
        assert_eq!(size("a"), None);
    }
}
