//! Tests on a real server: the tests of the store's functions, and two writers.

mod connecting;

use std::process::Command;
use std::time::Duration;

use tokio::sync::oneshot;

use super::connection::PgConnection;
use crate::domain::knowledge::session::{EventKind, SessionEvent};
use crate::domain::lifecycle::effect::{Effect, WorkEffect};
use crate::domain::model::host::Host;
use crate::domain::model::ids::{ForgeName, IssueRef, LoopId, Number, RepoId, RepoRef, Timestamp};
use crate::store::leases::LeaseToken;
use crate::store::loop_files::{self, LoopCommits};
use crate::store::outbox::{self, Claimant};
use crate::store::session::{NewEvent, add_events};
use crate::store::sql::Connection;
use crate::store::sql::engine::DatabaseEngine;
use crate::store::test_server::{self, PostgresServer};
use crate::store::tests::databases::ENGINE;
use crate::store::{PgSettings, Store, StoreError, StoreResult, WriteGroup, feed, hosts, installation, leases};

/// Tests whose databases are files of SQLite, or that are about SQLite.
const OF_SQLITE: [&str; 4] = ["store::schema::", "store::tests::", "postgres::", "store::copy::"];

/// Runs the tests of the store's functions once more, in a process whose databases are on a server.
#[test]
fn functions_of_the_store_have_the_same_results_on_both_engines() {
    let Some(server) = PostgresServer::start() else { return };
    let program = std::env::current_exe().expect("this program");
    #[expect(clippy::disallowed_methods, reason = "a program of the tests, not of the service")]
    let mut again = Command::new(program);
    again.env(ENGINE, server.address()).args(["--quiet", "--test-threads=4"]);
    again.args(OF_SQLITE.iter().flat_map(|part| ["--skip", part]));
    let output = again.output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn loop_id() -> LoopId {
    LoopId::new("r-1-aaaaaa")
}

/// Stores the loop of the events.
fn add_loop(c: &Connection) -> StoreResult<()> {
    let sql = "INSERT INTO loops (id, forge, repo_id, issue, state, open, data, version, created_at, updated_at)
        VALUES (?1, 'gh', 1, 1, 'running', 1, '{}', 1, 0, 0)";
    c.execute(sql, [loop_id().as_str()])?;
    Ok(())
}

fn add_event(c: &Connection, text: &str) -> StoreResult<()> {
    let event = SessionEvent {
        iteration: 1,
        kind: EventKind::ToolCall,
        tool: None,
        path: None,
        text: text.to_owned(),
        failed: false,
        at: Timestamp(1),
    };
    add_events(c, &loop_id(), &[NewEvent::pack(event)])?;
    let sql = "INSERT INTO session_output (loop_id, iteration, text, at) VALUES (?1, 1, ?2, 1)";
    c.execute(sql, [loop_id().as_str(), text])?;
    Ok(())
}

/// Returns the events after a position, as a reader of the feed gets them.
fn events_after(c: &Connection, row: i64) -> StoreResult<Vec<(i64, String)>> {
    let mut statement = c.prepare_cached("SELECT id, text FROM session_events WHERE id > ?1 ORDER BY id")?;
    let rows = statement.query_map([row], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Two hosts write. The first starts earlier and commits later; meanwhile the second cannot take an id, so a reader never
/// passes an event that is still to come.
#[tokio::test]
async fn transaction_that_commits_late_never_has_the_smaller_id() {
    let Some(server) = PostgresServer::start() else { return };
    let settings = server.schema();
    let (one, two) = (Store::open(settings.clone()).expect("opened"), Store::open(settings.clone()).expect("opened"));
    one.write(add_loop).await.expect("stored");
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = oneshot::channel::<()>();
    let late = one.write(move |c| {
        add_event(c, "begun first")?;
        let _ = begun.send(());
        let _ = may_go_on.blocking_recv();
        Ok(())
    });
    let meanwhile = async {
        has_begun.await.expect("begun");
        let mut group = WriteGroup::default();
        let early = group.add(|c| add_event(c, "begun second"));
        two.submit(group).expect("submitted");
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        while two.read(move |c| Ok(c.query_row(waits, [], |row| row.get::<_, i64>(0))?)).await.expect("read") == 0 {
            tokio::task::yield_now().await;
        }
        let seen = two.read(|c| Ok((events_after(c, 0)?, feed::newest(c)?.output))).await.expect("read");
        assert_eq!(seen, (Vec::new(), 0), "neither event nor id is visible before the commit");
        go_on.send(()).expect("it waits");
        two.outcome(early).await.expect("stored");
    };
    let (late, ()) = tokio::join!(late, meanwhile);
    late.expect("stored");
    let (events, newest) = two.read(|c| Ok((events_after(c, 0)?, feed::newest(c)?))).await.expect("read");
    let texts: Vec<&str> = events.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["begun first", "begun second"]);
    assert_eq!((newest.activity, newest.output), (events[1].0, 2));
}

/// A reader that follows two busy writers gets each event once, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reader_of_two_writers_misses_no_event() {
    const EVENTS: usize = 60;
    let Some(server) = PostgresServer::start() else { return };
    let settings = server.schema();
    let stores = [Store::open(settings.clone()).expect("opened"), Store::open(settings.clone()).expect("opened")];
    stores[0].write(add_loop).await.expect("stored");
    let reader = Store::attach(settings.clone()).expect("attached");
    let mut writers = tokio::task::JoinSet::new();
    for (number, store) in stores.into_iter().enumerate() {
        for nth in 0..EVENTS {
            let store = store.clone();
            writers.spawn(async move { store.write(move |c| add_event(c, &format!("{number}/{nth}"))).await });
        }
    }
    let mut seen: Vec<(i64, String)> = Vec::new();
    while seen.len() < 2 * EVENTS {
        let after = seen.last().map_or(0, |(id, _)| *id);
        seen.extend(reader.read(move |c| events_after(c, after)).await.expect("read"));
        while let Some(ended) = writers.try_join_next() {
            ended.expect("no panic").expect("stored");
        }
    }
    let different: std::collections::BTreeSet<&String> = seen.iter().map(|(_, text)| text).collect();
    assert_eq!(different.len(), 2 * EVENTS);
}

/// Ends all connections of the stores, as a restart of the server does.
fn disconnect(server: &PostgresServer) {
    let sql = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let config = server.config();
    let ended =
        std::thread::spawn(move || config.connect(::postgres::NoTls).and_then(|mut client| client.query(sql, &[])));
    ended.join().expect("no panic").expect("ended");
}

#[tokio::test]
async fn lost_connection_is_reported_as_busy_and_reopened() {
    let Some(server) = PostgresServer::start() else { return };
    let store = Store::open(server.schema()).expect("opened");
    let set = |key: &'static str| store.write(move |c| installation::set(c, key, "yes"));
    let get = |key: &'static str| store.read(move |c| installation::get(c, key));
    set("first").await.expect("stored");
    assert_eq!(get("first").await.expect("read").as_deref(), Some("yes"));
    disconnect(&server);
    set("second").await.expect("stored over a new connection");
    assert_eq!(get("second").await.expect("read").as_deref(), Some("yes"));
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = oneshot::channel::<()>();
    let interrupted = store.write(move |c| {
        installation::set(c, "third", "yes")?;
        let _ = begun.send(());
        let _ = may_go_on.blocking_recv();
        installation::set(c, "fourth", "yes")
    });
    let cut = async {
        has_begun.await.expect("begun");
        disconnect(&server);
        go_on.send(()).expect("it waits");
    };
    let (interrupted, ()) = tokio::join!(interrupted, cut);
    assert!(matches!(interrupted, Err(StoreError::Busy)), "{interrupted:?}");
    assert!(store.healthy());
    assert_eq!(get("third").await.expect("read"), None, "the server rolled back");
    set("fifth").await.expect("stored");
    // An outcome that cannot be produced again is kept over a lost connection.
    let mut times = 0;
    let (begun, has_begun) = oneshot::channel();
    let mut begun = Some(begun);
    let (go_on, may_go_on) = oneshot::channel::<()>();
    let mut may_go_on = Some(may_go_on);
    let kept = store.write_kept(move |c| {
        times += 1;
        installation::set(c, "kept", &times.to_string())?;
        if let (Some(begun), Some(may_go_on)) = (begun.take(), may_go_on.take()) {
            let _ = begun.send(());
            let _ = may_go_on.blocking_recv();
        }
        installation::set(c, "sixth", "yes")
    });
    let cut = async {
        has_begun.await.expect("begun");
        disconnect(&server);
        go_on.send(()).expect("it waits");
    };
    let (kept, ()) = tokio::join!(kept, cut);
    kept.expect("stored at the second attempt");
    assert_eq!(get("kept").await.expect("read").as_deref(), Some("2"));
    store.close().await;
    assert!(store.write(|_| Ok(())).await.is_err(), "closed");
}

/// The server's clock decides, not the clocks of the hosts.
#[tokio::test]
async fn leases_expire_by_the_clock_of_the_server() {
    let Some(server) = PostgresServer::start() else { return };
    let settings = server.schema();
    let [here, there] = [(); 2].map(|()| Store::open(settings.clone()).expect("opened"));
    let real = crate::clock::Clock::System.now();
    let [ahead, behind] = [600_000, -600_000].map(|by| real.plus_ms(by));
    let take = |host: &Store, owner: &'static str, now: Timestamp, lease_ms: i64| {
        let host = host.clone();
        async move { host.write(move |c| leases::take(c, "l", owner, now, lease_ms)).await.expect("asked") }
    };
    assert_eq!(take(&here, "a", behind, 60_000).await, Some(1));
    assert_eq!(take(&there, "b", ahead, 60_000).await, None, "a fast clock takes nothing");
    assert_eq!(there.read(move |c| leases::owners(c, ahead)).await.expect("read"), ["a"]);
    let shifted = here.write(move |c| leases::shift(c, "a", -1_200_000, behind)).await;
    assert_eq!(shifted.expect("shifted"), 0, "a changed clock of a host does not end its leases");
    assert_eq!(take(&there, "b", ahead, 60_000).await, None);
    let renewed = here.write(move |c| leases::renew(c, "a", &[("l".to_owned(), 1)], ahead, 0)).await;
    assert!(renewed.expect("renewed").is_empty());
    assert_eq!(take(&there, "b", behind, 60_000).await, Some(2), "a slow clock takes an expired lease");
}

/// Neither a control process nor a runner with a wrong clock takes work from the host that has the loop's files.
#[tokio::test]
async fn work_is_reserved_by_the_clock_of_the_server() {
    const LEASE_MS: i64 = 30_000;
    let Some(server) = PostgresServer::start() else { return };
    let real = crate::clock::Clock::System.now();
    for (control_ms, runner_ms) in [(600_000, 0), (-600_000, 0), (0, 600_000), (0, -600_000), (600_000, -600_000)] {
        let store = Store::open(server.schema()).expect("opened");
        let work = move |c: &Connection| {
            for id in ["a", "b"] {
                hosts::start(c, &Host { id: id.into(), name: id.into(), ..Host::default() }, real)?;
            }
            leases::take(c, "l/work", "p", real, 0)?;
            let lease = LeaseToken { name: "l/work".into(), owner: "p".into(), fence: 1 };
            let saved = LoopCommits { host: "a".into(), saved: Default::default() };
            loop_files::save_commits(c, &loop_id(), &saved, &lease)?;
            let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(7), owner: "acme".into(), name: "app".into() };
            let place = IssueRef { repo, issue: Number(1) };
            let effect = Effect::Work(WorkEffect::Commit { ticket: 1, iteration: 1 });
            outbox::enqueue(c, "l", Some(&loop_id()), &place, &effect, real.plus_ms(control_ms))?;
            let claim = |host: &str, by_ms: i64| {
                let by = Claimant { host: host.into(), ..Claimant::without_host(&format!("{host}@m")) };
                outbox::claim(c, "work", |_, _| true, &by, real.plus_ms(by_ms), LEASE_MS)
            };
            let stolen = claim("b", runner_ms)?.is_some();
            Ok((stolen, claim("a", 0)?.is_some()))
        };
        let claimed = store.write(work).await.expect("claimed");
        assert_eq!(claimed, (false, true), "control {control_ms} ms, runner {runner_ms} ms");
    }
}

/// Query of the Helm chart by which KEDA starts runners.
const DUE_WORK: &str = include_str!("../../../../../../deploy/helm/ralph-bot/files/due_work.sql");

/// The chart's query counts the effects that a new runner with certain labels can claim.
#[tokio::test]
async fn query_of_the_chart_counts_claimable_work() {
    let Some(server) = PostgresServer::start() else { return };
    let store = Store::open(test_server::settings(&server.address())).expect("opened");
    let now = crate::clock::Clock::System.now();
    let due = |labels: &str| {
        let config = server.config();
        let sql = DUE_WORK.replace("{labels}", labels);
        let count = move || {
            let mut client = config.connect(::postgres::NoTls).expect("connected");
            client.query_one(&sql, &[]).expect("counted").get::<_, i64>(0)
        };
        std::thread::spawn(count).join().expect("no panic")
    };
    assert_eq!(due("[]"), 0, "an idle installation");
    let add = |id: &'static str, runs_on: Option<&'static str>, effect: WorkEffect| {
        let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(7), owner: "acme".into(), name: "app".into() };
        let place = IssueRef { repo, issue: Number(1) };
        let sql =
            "INSERT INTO loops (id, forge, repo_id, issue, state, open, data, version, created_at, updated_at, runs_on)
            VALUES (?1, 'f', 7, 1, 'running', 0, '{}', 1, 0, 0, ?2) ON CONFLICT DO NOTHING";
        store.write(move |c| {
            c.execute(sql, crate::store::sql::params![id, runs_on])?;
            outbox::enqueue(c, id, Some(&LoopId::new(id)), &place, &Effect::Work(effect), now)
        })
    };
    let agent = || WorkEffect::Agent { ticket: 1, iteration: 1, attempt: 1 };
    add("any", None, agent()).await.expect("added");
    add("any", None, WorkEffect::Commit { ticket: 2, iteration: 1 }).await.expect("added");
    add("gpu", Some("[\"gpu\"]"), agent()).await.expect("added");
    assert_eq!([due("[]"), due("[\"gpu\",\"large\"]")], [1, 2], "one effect of each loop, by labels");
    let claim = |labels: &[&str]| {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let by = Claimant { host: "new".into(), labels, ..Claimant::without_host("new@m/boot/1/x") };
        store.write(move |c| outbox::claim(c, "work", |_, _| true, &by, now, 30_000))
    };
    let any = claim(&[]).await.expect("claimed").expect("an effect");
    assert_eq!([due("[]"), due("[\"gpu\"]")], [0, 1], "claimed work is not counted");
    let done = move |c: &Connection| {
        let done = outbox::EffectOutcome::Done;
        outbox::finish(c, &any, "new@m/boot/1/x", done, "", now)?;
        hosts::start(c, &Host { id: "other".into(), name: "other".into(), ..Host::default() }, now)?;
        let sql = "INSERT INTO loop_files (loop_id, host, commits) VALUES ('any', 'other', '{}')";
        Ok(c.execute(sql, [])?)
    };
    store.write(done).await.expect("written");
    assert_eq!(due("[]"), 0, "the next effect is reserved for the host with the loop's files");
    assert!(claim(&[]).await.expect("asked").is_none());
    store.write(|c| hosts::leave(c, "other")).await.expect("written");
    assert_eq!(due("[]"), 1);
    assert!(claim(&[]).await.expect("asked").is_some());
    let put_off = "UPDATE outbox SET not_before = ?1 WHERE subject = 'gpu'";
    store.write(move |c| Ok(c.execute(put_off, [now.plus_ms(60_000).0])?)).await.expect("written");
    assert_eq!(due("[\"gpu\"]"), 0, "postponed work is not counted");
}

/// Runs work on a connection for writing, outside of any task.
fn on_connection<T: Send + 'static>(
    settings: &PgSettings,
    work: impl FnOnce(&PgConnection) -> T + Send + 'static,
) -> T {
    let settings = settings.clone();
    let opened = move || work(&super::open(&settings, crate::store::Mode::Own, Duration::ZERO).expect("opened"));
    std::thread::spawn(opened).join().expect("no panic")
}

#[test]
fn errors_of_the_server_are_classified() {
    let Some(server) = PostgresServer::start() else { return };
    let settings = server.schema();
    let raised = |code: &'static str| {
        on_connection(&settings, move |c| {
            c.batch(&format!("DO $$ BEGIN RAISE SQLSTATE '{code}'; END $$")).expect_err("raised")
        })
    };
    for code in ["40001", "40P01", "55P03", "25006", "53300", "57P03", "08006"] {
        assert!(matches!(raised(code), StoreError::Busy), "{code}: {:?}", raised(code));
    }
    for code in ["23505", "23514"] {
        assert!(matches!(raised(code), StoreError::Duplicate { .. }), "{code}: {:?}", raised(code));
    }
    assert!(matches!(raised("53100"), StoreError::Full { .. }));
    assert!(matches!(raised("57014"), StoreError::TooSlow));
    assert!(matches!(raised("58030"), StoreError::Failed { .. }));
    assert!(matches!(raised("42601"), StoreError::Bug { .. }));
}

#[test]
fn result_of_a_commit_is_determined_after_a_lost_connection() {
    let Some(server) = PostgresServer::start() else { return };
    on_connection(&server.schema(), |c| {
        for expected in [true, false] {
            c.begin_write().expect("begun");
            let id = c.set_transaction(None).expect("an id");
            c.batch(if expected { "COMMIT" } else { "ROLLBACK" }).expect("ended");
            assert_eq!(c.was_committed(id).expect("asked"), expected);
        }
    });
}

#[tokio::test]
async fn tables_of_other_versions_are_refused() {
    let Some(server) = PostgresServer::start() else { return };
    let settings = server.schema();
    let refusal = |opened: StoreResult<Store>| opened.map(drop).expect_err("refused").to_string();
    let missing = refusal(Store::attach(settings.clone()));
    assert!(missing.contains("`ralph-bot serve` creates them"), "{missing}");
    let store = Store::open(settings.clone()).expect("opened");
    store.write(|c| Ok(c.execute("UPDATE schema_version SET version = version + 1", [])?)).await.expect("changed");
    for opened in [Store::open(settings.clone()), Store::attach(settings.clone())] {
        let newer = refusal(opened);
        assert!(newer.contains("a newer version of ralph-bot has used it"), "{newer}");
    }
    // A new connection of the running process notices the change as well.
    disconnect(&server);
    let written = store.write(|c| installation::set(c, "key", "value")).await;
    assert!(matches!(&written, Err(StoreError::Failed { .. })), "{written:?}");
}

/// Processes that open an empty database at the same time create its tables once.
#[test]
fn several_processes_create_the_tables_once() {
    let Some(server) = PostgresServer::start() else { return };
    let settings = server.schema();
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..4).map(|_| scope.spawn(|| Store::open(settings.clone()).map(drop))).collect();
        opening.into_iter().for_each(|opened| opened.join().expect("no panic").expect("opened"));
    });
}

#[tokio::test]
async fn slow_query_ends_at_its_limit_and_the_connection_is_used_again() {
    let Some(server) = PostgresServer::start() else { return };
    let store = Store::open(server.schema()).expect("opened");
    let limited = store.read(|c| {
        let slow = crate::store::within(c, Duration::from_millis(50), |c| {
            Ok(c.query_row("SELECT count(*) FROM pg_sleep(60)", [], |row| row.get::<_, i64>(0))?)
        });
        Ok((slow, c.query_row("SELECT 7", [], |row| row.get::<_, i64>(0))?))
    });
    let (slow, next) = limited.await.expect("read");
    assert!(matches!(slow, Err(StoreError::TooSlow)), "{slow:?}");
    assert_eq!(next, 7);
    let (size, log) = store.sizes().await;
    assert!(size > 1_000_000 && log == 0, "{size}");
    assert!(store.backup("copy".into()).await.expect_err("refused").to_string().contains("pg_dump"));
}
