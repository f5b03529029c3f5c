//! Hosts that execute work. A host is a data folder; its processes share a row.

use super::leases;
use super::outbox::STARTS;
use super::{StoreError, StoreResult};
use crate::domain::model::host::{Host, ListedHost, LoopWithoutHost, has_labels};
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::store::sql::{Connection, params};

/// Time without a heartbeat after which a host is removed from the list, in milliseconds.
const FORGOTTEN_AFTER_MS: i64 = 7 * 24 * 3_600_000;

/// Records a start of a process of the host, which ends draining, and forgets hosts that were silent for a week.
pub fn start(c: &Connection, host: &Host, now: Timestamp) -> StoreResult<()> {
    beat(c, host, now)?;
    c.execute("UPDATE hosts SET draining = 0 WHERE id = ?1", [host.id.as_str()])?;
    let before = leases::time(c, now)?.plus_ms(-FORGOTTEN_AFTER_MS);
    c.execute("DELETE FROM hosts WHERE seen_at < ?1", [before.0])?;
    Ok(())
}

/// Records a heartbeat of the host.
pub fn beat(c: &Connection, host: &Host, now: Timestamp) -> StoreResult<()> {
    let now = leases::time(c, now)?;
    let sql = "INSERT INTO hosts (id, name, version, slots, labels, seen_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version, slots = excluded.slots,
            labels = excluded.labels, seen_at = excluded.seen_at, stopped = 0";
    let labels = serde_json::to_string(&host.labels)?;
    c.prepare_cached(sql)?.execute(params![host.id, host.name, host.version, host.slots, labels, now.0])?;
    Ok(())
}

/// Records the stop of a host, so that other hosts continue its loops at once.
pub fn leave(c: &Connection, id: &str) -> StoreResult<()> {
    c.execute("UPDATE hosts SET stopped = 1 WHERE id = ?1", [id])?;
    Ok(())
}

/// Lets a host, given by its id, finish its work and accept no more, or ends that; returns `false` if the host is unknown.
pub fn set_draining(c: &Connection, id: &str, draining: bool) -> StoreResult<bool> {
    Ok(c.execute("UPDATE hosts SET draining = ?2 WHERE id = ?1", params![id, draining])? > 0)
}

/// Returns all hosts by name.
pub fn all(c: &Connection, now: Timestamp) -> StoreResult<Vec<ListedHost>> {
    let now = leases::time(c, now)?;
    let sql = "SELECT id, name, version, slots, labels, CASE WHEN stopped = 0 THEN ?1 - seen_at END, draining,
            (SELECT count(*) FROM leases l WHERE l.owner LIKE h.id || '@%' AND l.name LIKE '%/work' AND l.expires_at > ?1)
        FROM hosts h ORDER BY name, id";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([now.0], |row| {
        Ok((
            Host { id: row.get(0)?, name: row.get(1)?, version: row.get(2)?, slots: row.get(3)?, labels: Vec::new() },
            row.get::<_, String>(4)?,
            row.get::<_, Option<i64>>(5)?,
            row.get::<_, bool>(6)?,
            row.get::<_, i64>(7)?,
        ))
    })?;
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let listed = rows.into_iter().map(|(host, labels, silent_ms, is_draining, running)| {
        Ok::<_, StoreError>(ListedHost {
            host: Host { labels: serde_json::from_str(&labels)?, ..host },
            silent_ms,
            is_draining,
            running: running.unsigned_abs(),
        })
    });
    listed.collect()
}

/// Returns the loops with due work that no host may execute, because none that takes work has the labels.
pub fn loops_without_host(c: &Connection, now: Timestamp) -> StoreResult<Vec<LoopWithoutHost>> {
    let sql =
        "SELECT l.id, l.runs_on, min(max(o.created_at, o.not_before)) FROM outbox o JOIN loops l ON l.id = o.loop_id
        WHERE o.lane = 'work' AND o.state = 'ready' AND o.not_before <= ?1 AND o.key <> 'release'
            AND l.runs_on IS NOT NULL
        GROUP BY l.id, l.runs_on ORDER BY l.id";
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement
        .query_map([now.0], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?)))?;
    let mut waiting = Vec::new();
    for row in rows {
        let (id, labels, since) = row?;
        let labels = serde_json::from_str(&labels)?;
        let waiting_ms = leases::time(c, now)?.since(Timestamp(since));
        waiting.push(LoopWithoutHost { id: LoopId::new(id), labels, waiting_ms });
    }
    if waiting.is_empty() {
        return Ok(waiting);
    }
    let hosts: Vec<_> = all(c, now)?.into_iter().filter(ListedHost::takes_work).collect();
    waiting.retain(|one| !hosts.iter().any(|host| has_labels(&host.host.labels, &one.labels)));
    Ok(waiting)
}

/// Returns the number of work effects that a draining host executes or has to execute, and of steps that may request more.
pub fn unfinished(c: &Connection, host: &Host, now: Timestamp) -> StoreResult<u64> {
    let sql = "SELECT (SELECT count(*) FROM inputs i WHERE i.done = 0
                AND NOT EXISTS (SELECT 1 FROM loop_files f WHERE f.loop_id = i.loop_id AND f.host <> ?1))
            + (SELECT count(*) FROM leases l WHERE l.owner LIKE ?1 || '@%' AND l.name LIKE '%/work' AND l.expires_at > ?2)";
    let count: i64 = c.query_row(sql, params![host.id, leases::time(c, now)?.0], |row| row.get(0))?;
    let sql = format!(
        "SELECT (SELECT l.runs_on FROM loops l WHERE l.id = o.loop_id AND o.key <> 'release') FROM outbox o
        WHERE o.lane = 'work' AND o.state = 'ready' AND o.not_before <= ?2 AND NOT {STARTS}
            AND NOT EXISTS (SELECT 1 FROM loop_files f WHERE f.loop_id = o.loop_id AND f.host <> ?1)"
    );
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(params![host.id, now.0], |row| row.get::<_, Option<String>>(0))?;
    let mut count = count.unsigned_abs();
    for needed in rows {
        let needed: Vec<String> = needed?.map_or(Ok(Vec::new()), |needed| serde_json::from_str(&needed))?;
        count += u64::from(has_labels(&host.labels, &needed));
    }
    Ok(count)
}

/// Returns the name of a host; its id if the host is unknown.
pub fn name_of(c: &Connection, id: &str) -> StoreResult<String> {
    let sql = "SELECT coalesce((SELECT name FROM hosts WHERE id = ?1), ?1)";
    Ok(c.query_row(sql, [id], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::lifecycle::effect::{CheckPurpose, Effect, WorkEffect};
    use crate::domain::model::ids::{ForgeName, IssueRef, Number, RepoId, RepoRef, Sha};
    use crate::store::leases::LeaseToken;
    use crate::store::loop_files::{self, LoopCommits};
    use crate::store::outbox::{self, Claimant};
    use crate::store::tests::databases::database;

    /// Time at which the effects of a test become due.
    const DUE: i64 = 1_000_000;
    /// Duration of a lease, in milliseconds.
    const LEASE_MS: i64 = 30_000;

    /// Database with the hosts `a` and `b`, and the loop `x`, whose tree is on `a`.
    fn two_hosts() -> Connection {
        let c = database();
        for id in ["a", "b"] {
            start(&c, &host(id), Timestamp(DUE)).unwrap();
        }
        let saved = LoopCommits { host: "a".into(), saved: Default::default() };
        leases::take(&c, "x/work", "p", Timestamp(DUE), 0).unwrap();
        let lease = LeaseToken { name: "x/work".into(), owner: "p".into(), fence: 1 };
        loop_files::save_commits(&c, &LoopId::new("x"), &saved, &lease).unwrap();
        c
    }

    fn add(c: &Connection, effect: WorkEffect) {
        let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(7), owner: "acme".into(), name: "app".into() };
        let id = LoopId::new("x");
        let place = IssueRef { repo, issue: Number(1) };
        outbox::enqueue(c, "x", Some(&id), &place, &Effect::Work(effect), Timestamp(DUE)).unwrap();
    }

    /// Whether a process of the host can claim work at a time after the effects became due. The claim is given back.
    fn claims(c: &Connection, id: &str, after_ms: i64) -> bool {
        // The clock of a server cannot be set.
        let age = |by_ms: i64| {
            let sql = "UPDATE outbox SET created_at = created_at - ?1, not_before = not_before - ?1";
            c.execute(sql, [by_ms]).unwrap();
        };
        age(after_ms);
        let by = Claimant { owner: format!("{id}@m"), host: id.into(), labels: host(id).labels, continues: None };
        let claimed = outbox::claim(c, "work", |_, _| true, &by, Timestamp(DUE), LEASE_MS).unwrap();
        age(-after_ms);
        if let Some(claimed) = &claimed {
            outbox::reschedule(c, claimed, &by.owner, Timestamp(DUE), false, "").unwrap();
        }
        claimed.is_some()
    }

    #[test]
    fn previous_host_has_priority_while_it_lives() {
        let c = two_hosts();
        add(&c, WorkEffect::Agent { ticket: 1, iteration: 1, attempt: 1 });
        assert_eq!([claims(&c, "b", 0), claims(&c, "a", 0)], [false, true]);
        assert!(claims(&c, "b", 5_001), "another host takes a start after five seconds");
        leave(&c, "a").unwrap();
        assert!(claims(&c, "b", 0), "a dead host has no priority");

        let c = two_hosts();
        add(&c, WorkEffect::Push { ticket: 1, commit: Sha::parse(&"a".repeat(40)).unwrap() });
        assert!(!claims(&c, "b", 5_001), "the rest of an iteration stays with the files");
        assert!(claims(&c, "b", 60_001));
    }

    #[test]
    fn draining_host_finishes_its_iterations_and_starts_none() {
        let c = two_hosts();
        set_draining(&c, "a", true).unwrap();
        add(&c, WorkEffect::Commit { ticket: 1, iteration: 1 });
        assert_eq!([claims(&c, "b", 0), claims(&c, "a", 0)], [false, true]);
        assert_eq!(
            [unfinished(&c, &host("a"), Timestamp(DUE)).unwrap(), unfinished(&c, &host("b"), Timestamp(DUE)).unwrap()],
            [1, 0]
        );

        let c = two_hosts();
        set_draining(&c, "a", true).unwrap();
        add(&c, WorkEffect::Agent { ticket: 1, iteration: 1, attempt: 1 });
        assert_eq!(unfinished(&c, &host("a"), Timestamp(DUE)).unwrap(), 0, "a draining host does not wait for a start");
        assert_eq!([claims(&c, "a", 0), claims(&c, "b", 0)], [false, true], "another host starts it at once");
    }

    fn require(c: &Connection, labels: &str) {
        let sql =
            "INSERT INTO loops (id, forge, repo_id, issue, state, open, data, version, created_at, updated_at, runs_on)
            VALUES ('x', 'f', 7, 1, 'running', 1, '{}', 1, 1, 1, ?1)";
        c.execute(sql, [labels]).unwrap();
    }

    #[test]
    fn host_claims_only_work_with_its_labels() {
        for (labels, is_claimed) in [("[]", true), ("[\"gpu\"]", true), ("[\"gpu\",\"big\"]", false)] {
            let c = two_hosts();
            require(&c, labels);
            add(
                &c,
                WorkEffect::Check {
                    ticket: 1,
                    purpose: CheckPurpose::Baseline,
                    commit: Sha::parse(&"a".repeat(40)).unwrap(),
                },
            );
            assert_eq!(claims(&c, "a", 0), is_claimed, "{labels}");
            let waits: Vec<_> =
                loops_without_host(&c, Timestamp(DUE)).unwrap().iter().map(LoopWithoutHost::line).collect();
            let line = "loop x: no host has the labels gpu big".to_owned();
            assert_eq!(waits, if is_claimed { Vec::new() } else { vec![line] });
            let left = unfinished(&c, &host("a"), Timestamp(DUE)).unwrap();
            assert_eq!(left, u64::from(is_claimed), "a drain does not wait for work of other hosts");
            outbox::cancel_work(&c, &LoopId::new("x"), Timestamp(DUE)).unwrap();
            add(&c, WorkEffect::Release { delete_branch: false });
            assert!(claims(&c, "a", 0), "{labels}: any host releases its tree");
        }
    }

    #[test]
    fn draining_hosts_do_not_count_for_a_loop_with_labels() {
        let c = two_hosts();
        require(&c, "[\"gpu\"]");
        add(&c, WorkEffect::Agent { ticket: 1, iteration: 1, attempt: 1 });
        c.execute("UPDATE outbox SET created_at = created_at - 5000", []).unwrap();
        let waits = |c: &Connection| loops_without_host(c, Timestamp(DUE)).unwrap();
        assert_eq!(waits(&c), []);
        set_draining(&c, "a", true).unwrap();
        assert_eq!(waits(&c), []);
        leave(&c, "b").unwrap();
        let [LoopWithoutHost { id, labels, waiting_ms: 5_000..15_000 }] = &waits(&c)[..] else {
            panic!("{:?}", waits(&c))
        };
        assert_eq!((id.as_str(), &labels[..]), ("x", &["gpu".to_owned()][..]));
        start(&c, &host("b"), Timestamp(DUE)).unwrap();
        assert_eq!(waits(&c), []);
    }

    #[test]
    fn process_that_continues_an_iteration_claims_no_other_work() {
        let c = two_hosts();
        add(&c, WorkEffect::Agent { ticket: 1, iteration: 1, attempt: 1 });
        let claim = |c: &Connection, id: &str| {
            let continues = Some(LoopId::new(id));
            let by = Claimant { continues, ..Claimant { host: "a".into(), ..Claimant::without_host("p") } };
            outbox::claim(c, "work", |_, _| true, &by, Timestamp(DUE), LEASE_MS).unwrap().map(|claimed| claimed.key)
        };
        assert_eq!(claim(&c, "x"), None, "it starts no run");
        let c = two_hosts();
        add(&c, WorkEffect::Commit { ticket: 1, iteration: 1 });
        assert_eq!(claim(&c, "y"), None, "it takes no other loop");
        assert!(claim(&c, "x").is_some());
    }

    fn host(id: &str) -> Host {
        Host { id: id.into(), name: format!("machine-{id}"), version: "1".into(), slots: 2, labels: vec!["gpu".into()] }
    }

    #[test]
    fn hosts_are_listed_with_their_work_and_state() {
        let c = database();
        start(&c, &host("b"), Timestamp(1_000)).unwrap();
        start(&c, &host("a"), Timestamp(1_000)).unwrap();
        assert!(set_draining(&c, "a", true).unwrap() && !set_draining(&c, "c", true).unwrap());
        leases::take(&c, "loop/work", "a@machine/boot/1/x", Timestamp(1_000), 60_000).unwrap();
        leases::take(&c, "other/talk", "a@machine/boot/1/x", Timestamp(1_000), 60_000).unwrap();
        beat(&c, &host("a"), Timestamp(1_500)).unwrap();
        let listed = all(&c, Timestamp(1_600)).unwrap();
        assert_eq!(listed.iter().map(|one| one.host.clone()).collect::<Vec<_>>(), [host("a"), host("b")]);
        assert_eq!(listed.iter().map(|one| one.running).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(
            listed.iter().map(|one| one.is_draining).collect::<Vec<_>>(),
            [true, false],
            "a heartbeat changes nothing"
        );
        let line = listed[0].line();
        let state = line.split_once("ago, ").map(|(_, state)| state.to_owned());
        assert_eq!(state.as_deref(), Some("1 of 2 slots, version 1, labels gpu, draining"));
        start(&c, &host("a"), Timestamp(1_700)).unwrap();
        assert!(!all(&c, Timestamp(1_700)).unwrap()[0].is_draining, "a start ends draining");
        leave(&c, "b").unwrap();
        let stopped = all(&c, Timestamp(1_700)).unwrap()[1].line();
        assert_eq!(stopped, "host machine-b: stopped, 0 of 2 slots, version 1, labels gpu");
        assert_eq!((name_of(&c, "a").unwrap(), name_of(&c, "x").unwrap()), ("machine-a".into(), "x".into()));
    }
}
