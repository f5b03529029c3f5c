//! Tests of the store on real files: commits, leases, queues, timers, a full disk, a copy.

pub(super) mod databases;
mod races;

use std::error::Error as _;

use super::inbox::StoredDelivery;
use super::*;
use crate::clock::Stopwatch;
use crate::domain::lifecycle::effect::{Effect, ForgeEffect, Mark, SEEN_QUEUE, WorkEffect};
use crate::domain::loops::LoopState;
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{CommentId, ForgeName, LoopId, Number, RepoId, RepoRef, Timestamp};
use crate::store::sql::{Connection, params};
use forge_posts::ForgePost;
use outbox::{Claimant, ClaimedEffect, EffectOutcome};

fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    (folder, path)
}

fn place() -> IssueRef {
    let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(7), owner: "acme".into(), name: "app".into() };
    IssueRef { repo, issue: Number(1) }
}

/// Returns incompressible bytes.
fn noise(count: u32) -> Vec<u8> {
    (0..count).map(|n| (n.wrapping_mul(2_654_435_761).rotate_left(n % 31) >> 13) as u8).collect()
}

#[test]
fn packed_body_is_unpacked_unchanged() {
    let text = br#"{"action":"opened","url":"https://git.example.org/acme/app/issues/1"}"#.repeat(100);
    for body in [Vec::new(), text.clone(), noise(100_000)] {
        assert_eq!(inbox::Body::pack(&body).unpack().expect("sound"), body);
    }
    assert!(inbox::Body::pack(&text).stored() < text.len() / 4);
}

/// A write that fails or panics does not affect its group, and later writes see earlier ones.
#[tokio::test]
async fn writes_of_a_group_run_in_order_and_roll_back_separately() {
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    let mut group = WriteGroup::default();
    let first = group.add(|c| installation::set(c, "first", "1"));
    let failing = group.add(|c| -> StoreResult<()> {
        installation::set(c, "failing", "1")?;
        Err(StoreError::Fenced { name: "x".into() })
    });
    let panicking = group.add(|c| -> StoreResult<()> {
        installation::set(c, "panicking", "1")?;
        panic!("as tests do")
    });
    let seen = group.add(|c| {
        let value = |key| installation::get(c, key);
        Ok((value("first")?, value("failing")?, value("panicking")?))
    });
    store.submit(group).expect("submitted");
    store.outcome(first).await.expect("written");
    assert!(matches!(store.outcome(failing).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.outcome(panicking).await, Err(StoreError::Bug { .. })));
    assert_eq!(store.outcome(seen).await.expect("read"), (Some("1".to_owned()), None, None));
    store.close().await;
    let mut late = WriteGroup::default();
    let refused = late.add(|c| installation::set(c, "late", "1"));
    assert!(store.submit(late).is_err());
    assert!(store.outcome(refused).await.is_err(), "nobody writes it");
}

#[tokio::test]
async fn damaged_body_is_reported_without_allocating() {
    let store = Store::in_memory().expect("opened");
    let damaged: [&[u8]; 3] = [b"", b"\xff\xff\xff\x7f\0", b"\x10\0\0\0\xff\x01"];
    for (n, bytes) in damaged.into_iter().enumerate() {
        let sql = "INSERT INTO inbox (forge, delivery, event, body, received_at) VALUES ('f', ?1, 'e', ?2, 1)";
        store.write(move |c| Ok(c.execute(sql, params![n as i64, bytes])?)).await.expect("stored");
    }
    for waiting in store.read(|c| inbox::waiting(c, &inbox::due(c, Timestamp(2), &[])?)).await.expect("read") {
        let refused = waiting.delivery.body.unpack();
        assert!(matches!(refused, Err(StoreError::Bug { .. })), "{refused:?}");
    }
}

fn delivery(id: &str) -> StoredDelivery {
    StoredDelivery {
        forge: ForgeName::new("f"),
        delivery: id.into(),
        event: "issues".into(),
        body: inbox::Body::pack(b"{}"),
    }
}

async fn push(store: &Store, effect: Effect) {
    store.write(move |c| outbox::enqueue(c, "s", None, &place(), &effect, Timestamp(1))).await.expect("pushed");
}

async fn claim(store: &Store, queue: &'static str, owner: &'static str, now: i64) -> Option<ClaimedEffect> {
    store
        .write(move |c| outbox::claim(c, queue, |_, _| true, &Claimant::without_host(owner), Timestamp(now), 100))
        .await
        .expect("claimed")
}

fn status() -> Effect {
    Effect::Forge(ForgeEffect::Status { fresh: false })
}

#[tokio::test]
async fn reopening_keeps_data() {
    let (_folder, path) = file();
    for (round, unclean) in [(1, false), (2, false)] {
        let store = Store::open(&path).expect("opened");
        assert_eq!(store.was_unclean(), unclean);
        let fresh = store.write(|c| inbox::insert(c, &delivery("d-1"), Timestamp(5))).await.expect("stored");
        assert_eq!(fresh, round == 1, "a delivery counts once, over restarts as well");
        assert!(store.integrity().await.expect("looked").is_empty());
        store.close().await;
        assert!(store.write(|_| Ok(())).await.is_err(), "closed");
    }
}

#[tokio::test]
async fn query_that_takes_too_long_is_ended_and_the_connection_used_again() {
    const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    let ask = |sql: &'static str, limit: Duration| {
        store.read(move |c| within(c, limit, |c| Ok(c.query_row(sql, [], |row| row.get::<_, i64>(0))?)))
    };
    let ended = ask(ENDLESS, Duration::from_millis(50)).await;
    assert!(matches!(ended, Err(StoreError::TooSlow)), "{ended:?}");
    assert_eq!(ask("SELECT 7", Duration::from_secs(60)).await.expect("read"), 7);
    let unlimited =
        store.read(|c| Ok(c.query_row("SELECT count(*) FROM (VALUES (1), (2))", [], |row| row.get::<_, i64>(0))?));
    assert_eq!(unlimited.await.expect("read"), 2);
}

#[tokio::test]
async fn failing_job_does_not_affect_others_of_its_commit() {
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    let good = |key: &'static str| store.write(move |c| installation::set(c, key, "yes"));
    let failing = store.write(|c| {
        installation::set(c, "failing", "yes")?;
        Err::<(), _>(StoreError::Bug { detail: "no".into() })
    });
    let panicking = store.write(|c| -> StoreResult<()> {
        installation::set(c, "panicking", "yes")?;
        panic!("on purpose")
    });
    let (a, b, c, d) = tokio::join!(good("a"), failing, panicking, good("d"));
    assert!(a.is_ok() && b.is_err() && c.is_err() && d.is_ok());
    let read = |key: &'static str| store.read(move |c| installation::get(c, key));
    assert_eq!(read("a").await.expect("read").as_deref(), Some("yes"));
    assert_eq!(read("d").await.expect("read").as_deref(), Some("yes"));
    assert_eq!(read("failing").await.expect("read"), None, "undone");
    assert_eq!(read("panicking").await.expect("read"), None, "undone");
    assert!(store.healthy());
}

/// See docs/research/faults.md#k38.
#[tokio::test]
async fn expired_lease_rejects_late_work() {
    let store = Store::in_memory().expect("opened");
    let take = |owner: &'static str, now: i64| store.write(move |c| leases::take(c, "l", owner, Timestamp(now), 10));
    assert_eq!(take("a", 0).await.expect("asked"), Some(1));
    assert_eq!(take("b", 9).await.expect("asked"), None, "it is held");
    assert_eq!(take("b", 10).await.expect("asked"), Some(2), "it has ended");
    let check = |owner: &'static str, fence: i64| store.write(move |c| leases::check(c, "l", owner, fence));
    assert!(matches!(check("a", 1).await, Err(StoreError::Fenced { .. })));
    check("b", 2).await.expect("held");
    for (owner, fence) in [("b", 2), ("a", 1)] {
        let token = leases::LeaseToken { name: "l".to_owned(), owner: owner.to_owned(), fence };
        let _ = store.write(token.guard(move |c| installation::set(c, "writer", owner))).await;
    }
    let writer = store.read(|c| installation::get(c, "writer")).await.expect("read");
    assert_eq!(writer.as_deref(), Some("b"), "the former holder writes no more");
    let renew = |owner: &'static str, fence: i64| {
        store.write(move |c| leases::renew(c, owner, &[("l".to_owned(), fence)], Timestamp(89), 10))
    };
    assert_eq!(renew("a", 1).await.expect("asked"), ["l"], "another owner has taken it");
    assert!(renew("b", 2).await.expect("asked").is_empty(), "nobody took it");
    assert_eq!(take("a", 98).await.expect("asked"), None, "it was extended");
    store.write(|c| leases::release(c, "l", "b", 2)).await.expect("released");
    assert_eq!(renew("b", 2).await.expect("asked"), ["l"], "a released lease stays released");
}

/// A full disk rolls back the other writes of its commit; an outcome is stored once there is space.
/// See docs/research/faults.md#d1.
#[tokio::test]
async fn full_disk_refuses_writes_and_keeps_outcomes() {
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    let limit = |c: &Connection, pages: i64| {
        let set = c.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0));
        set.map(drop).map_err(StoreError::from)
    };
    let large = "x".repeat(4_000_000);
    let outcome = large.clone();
    let attempt = std::sync::Arc::new(tokio::sync::Notify::new());
    store.write(move |c| limit(c, 1)).await.expect("the smallest possible limit");
    let mut kept = tokio::task::JoinSet::new();
    kept.spawn({
        let (store, attempt) = (store.clone(), attempt.clone());
        let write = move |c: &Connection| {
            attempt.notify_one();
            installation::set(c, "outcome", &outcome)
        };
        async move { store.write_kept(write).await }
    });
    let refused = store.write(move |c| installation::set(c, "other", &large)).await;
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    // The next write must not join the outcome's commit, which would roll it back.
    attempt.notified().await;
    assert!(store.healthy() && kept.try_join_next().is_none());
    store.write(move |c| limit(c, 1_000_000)).await.expect("a commit of its own that needs no space is made");
    kept.join_next().await.expect("a task").expect("it ends").expect("stored");
    let read = |key: &'static str| store.read(move |c| installation::get(c, key));
    assert_eq!(read("outcome").await.expect("read").map(|text| text.len()), Some(4_000_000));
    assert_eq!(read("other").await.expect("read"), None);
}

#[tokio::test]
async fn effects_are_claimed_in_order_and_reclaimed_after_owner_loss() {
    let store = Store::in_memory().expect("opened");
    let label = Effect::Forge(ForgeEffect::StateLabel { state: Some(LoopState::Queued) });
    for effect in [status(), label.clone(), status(), Effect::Work(WorkEffect::Prepare { ticket: 1 })] {
        push(&store, effect).await;
    }
    let work = claim(&store, "work", "a", 10).await.expect("work does not wait for talk");
    assert_eq!(work.key, "prepare/1");
    let first = claim(&store, "talk", "a", 10).await.expect("an effect");
    assert_eq!((first.effect.clone(), first.attempts), (label, 0), "the older status was replaced");
    assert_eq!(claim(&store, "talk", "b", 50).await, None, "one at a time");
    let again = claim(&store, "talk", "b", 110).await.expect("its lease ended");
    assert_eq!((again.id, again.attempts, again.abandoned), (first.id, 1, true));
    let late = first.clone();
    let late = store.write(move |c| outbox::finish(c, &late, "a", EffectOutcome::Done, "", Timestamp(111))).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    store.write(move |c| outbox::reschedule(c, &again, "b", Timestamp(200), false, "later")).await.expect("put back");
    assert_eq!(claim(&store, "talk", "b", 199).await, None, "not yet");
    let third = claim(&store, "talk", "b", 200).await.expect("due");
    assert_eq!((third.attempts, third.abandoned), (1, false), "the try that never began does not count");
    store
        .write(move |c| outbox::finish(c, &third, "b", EffectOutcome::Done, "", Timestamp(201)))
        .await
        .expect("finished");
    assert_eq!(claim(&store, "talk", "b", 201).await.expect("the next").effect, status());
}

#[tokio::test]
async fn reactions_are_claimed_independently_of_other_effects() {
    let store = Store::in_memory().expect("opened");
    let reaction = Effect::Forge(ForgeEffect::React { comment: CommentId(5), mark: Mark::Seen });
    let done = Effect::Forge(ForgeEffect::React { comment: CommentId(5), mark: Mark::Done });
    for effect in [status(), done.clone(), reaction.clone()] {
        push(&store, effect).await;
    }
    let first = claim(&store, SEEN_QUEUE, "a", 10).await.expect("an effect");
    assert_eq!(first.effect, reaction, "though it was asked for last");
    assert_eq!(claim(&store, "talk", "b", 10).await.expect("beside it").effect, status());
    assert_eq!(claim(&store, "talk", "c", 10).await, None, "the rest in order");
    store
        .write(move |c| outbox::finish(c, &first, "a", EffectOutcome::Done, "", Timestamp(11)))
        .await
        .expect("finished");
}

#[tokio::test]
async fn postponed_effect_does_not_block_the_next() {
    let store = Store::in_memory().expect("opened");
    let other = IssueRef { issue: Number(2), ..place() };
    push(&store, status()).await;
    let to = other.clone();
    store.write(move |c| outbox::enqueue(c, "t", None, &to, &status(), Timestamp(1))).await.expect("pushed");
    let claim = |only: IssueRef| {
        store.write(move |c| {
            outbox::claim(c, "talk", |_, place| *place == only, &Claimant::without_host("a"), Timestamp(10), 100)
        })
    };
    assert_eq!(claim(other.clone()).await.expect("claimed").expect("an effect").place, other);
    assert_eq!(claim(other).await.expect("claimed"), None);
    assert_eq!(claim(place()).await.expect("claimed").expect("an effect").place, place());
}

#[tokio::test]
async fn cancelling_work_keeps_the_release() {
    let store = Store::in_memory().expect("opened");
    for effect in [
        Effect::Work(WorkEffect::Prepare { ticket: 1 }),
        Effect::Work(WorkEffect::Push { ticket: 2, commit: crate::domain::model::ids::Sha::new("a") }),
        Effect::Work(WorkEffect::Release { delete_branch: false }),
    ] {
        push(&store, effect).await;
    }
    let running = claim(&store, "work", "a", 10).await.expect("work");
    store.write(|c| outbox::cancel_work(c, &LoopId::new("s"), Timestamp(11))).await.expect("taken back");
    assert_eq!(store.read(outbox::to_stop).await.expect("read"), [running.id]);
    store
        .write(move |c| outbox::finish(c, &running, "a", EffectOutcome::Cancelled, "", Timestamp(12)))
        .await
        .expect("ended");
    assert_eq!(claim(&store, "work", "a", 13).await.expect("what is left").key, "release");
}

#[tokio::test]
async fn comment_limit_counts_each_post_once() {
    let store = Store::in_memory().expect("opened");
    for (key, at) in [("a", 10), ("b", 20), ("a", 30)] {
        let posted = ForgePost { forge_id: at, digest: String::new() };
        store.write(move |c| forge_posts::put(c, "s", key, &posted, "i", Timestamp(at))).await.expect("noted");
    }
    let count = |since| store.read(move |c| forge_posts::count_since(c, "i", Timestamp(since)));
    assert_eq!((count(0).await.expect("read"), count(10).await.expect("read")), (2, 1), "an edit is no new comment");
    assert_eq!(store.read(|c| forge_posts::get(c, "s", "a")).await.expect("read").map(|p| p.forge_id), Some(30));
}

/// See docs/research/faults.md#d1.
#[tokio::test]
async fn full_disk_loses_no_data_and_recovers() {
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    store.write(|c| installation::set(c, "before", "kept")).await.expect("written");
    let limit = |pages: i64| {
        store.write(move |c| Ok(c.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |r| r.get::<_, i64>(0))?))
    };
    limit(1).await.expect("limited to what it has");
    let large = || StoredDelivery { body: inbox::Body::pack(&noise(1 << 20)), ..delivery("large") };
    let refused = store.write(move |c| inbox::insert(c, &large(), Timestamp(1))).await;
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    assert!(store.healthy(), "a full disk is no broken database");
    assert_eq!(store.read(|c| installation::get(c, "before")).await.expect("read").as_deref(), Some("kept"));
    limit(1_000_000).await.expect("space again");
    assert!(store.write(move |c| inbox::insert(c, &large(), Timestamp(1))).await.expect("stored"));
}

/// Another program locks the database for longer than the timeout.
/// See docs/research/faults.md#d5.
#[tokio::test]
async fn locked_database_is_busy_not_failed() {
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    let other = rusqlite::Connection::open(&path).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE; INSERT INTO meta (key, value) VALUES ('theirs', 'x')").expect("held");
    let refused = store.write(|c| inbox::insert(c, &delivery("d-1"), Timestamp(1))).await;
    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
    assert!(store.healthy());
    assert_eq!(store.read(inbox::counts).await.expect("reading goes on"), []);
    other.execute_batch("COMMIT").expect("let go");
    assert!(store.write(|c| inbox::insert(c, &delivery("d-1"), Timestamp(1))).await.expect("stored"));
}

/// A long read by another program makes the log grow, and the growth ends with the read. See docs/research/faults.md#d5.
#[tokio::test]
async fn write_ahead_log_grows_during_a_long_read() {
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    let other = rusqlite::Connection::open(&path).expect("opened");
    let checkpoint = || other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    let reader = rusqlite::Connection::open(&path).expect("opened");
    reader.execute_batch("BEGIN; SELECT count(*) FROM inbox").expect("reading");
    for n in 0..40 {
        let large = StoredDelivery { body: inbox::Body::pack(&noise(20_000)), ..delivery(&format!("d-{n}")) };
        store.write(move |c| inbox::insert(c, &large, Timestamp(1))).await.expect("stored");
    }
    other.busy_timeout(std::time::Duration::ZERO).expect("no wait");
    assert_eq!(checkpoint().expect("an answer"), 1, "the reader is in its way");
    let log_size = store.sizes().await.1;
    assert!(log_size > 500_000, "{log_size}");
    reader.execute_batch("COMMIT").expect("done");
    assert_eq!(checkpoint().expect("an answer"), 0);
    let (database, log) = store.sizes().await;
    assert!(log == 0 && database > 500_000, "{database} {log}");
}

/// Writes without a pause: the thread copies the log into the database, and the log restarts before it has 40 MiB.
#[tokio::test]
async fn write_ahead_log_stays_bounded_while_writes_never_pause() {
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    let mut longest = 0;
    for n in 0..300 {
        let large = StoredDelivery { body: inbox::Body::pack(&noise(200_000)), ..delivery(&format!("d-{n}")) };
        store.write(move |c| inbox::insert(c, &large, Timestamp(1))).await.expect("stored");
        longest = longest.max(store.sizes().await.1);
    }
    // The thread may copy the log more often: at 20 MB on a busy machine.
    assert!((200_000..40 << 20).contains(&longest), "{longest}: 60 MB were written");
    let other = rusqlite::Connection::open(&path).expect("opened");
    let noop = || other.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| Ok((row.get::<_, i64>(1)?, row.get(2)?)));
    for n in 300..360 {
        let large = StoredDelivery { body: inbox::Body::pack(&noise(200_000)), ..delivery(&format!("d-{n}")) };
        store.write(move |c| inbox::insert(c, &large, Timestamp(1))).await.expect("stored");
    }
    let watch = Stopwatch::start();
    let rest = loop {
        let (pages, copied): (i64, i64) = noop().expect("an answer");
        if pages - copied < 1_000 || watch.elapsed() > Duration::from_secs(60) {
            break pages - copied;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(rest < 1_000, "{rest} pages were left in the log, and nothing else copies them");
}

/// A damaged file is reported at the start or by the integrity check.
/// See docs/research/faults.md#d4.
#[tokio::test]
async fn damaged_file_is_reported() {
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    for n in 0..200 {
        let large = StoredDelivery { body: inbox::Body::pack(&noise(2_000)), ..delivery(&format!("d-{n}")) };
        store.write(move |c| inbox::insert(c, &large, Timestamp(1))).await.expect("stored");
    }
    store.close().await;
    let content = std::fs::read(&path).expect("read");
    assert!(content.len() > 100_000, "it has many pages");
    let mut reported = 0;
    // Damage in the header, the schema page and middle pages; then a truncated file.
    for at in [0, 20, 110, 4_200, content.len() / 3, content.len() / 2, content.len() - 5_000, content.len()] {
        let mut bytes = content.clone();
        if at == content.len() {
            bytes.truncate(content.len() / 2);
        } else {
            let end = (at + 4_096).min(bytes.len());
            bytes[at..end].fill(0x5a);
        }
        std::fs::write(&path, bytes).expect("written");
        let is_reported = match Store::open(&path) {
            Err(StoreError::Failed { path: named, detail }) => {
                assert_eq!((named, detail.to_string().is_empty()), (path.clone(), false));
                true
            }
            Err(other) => panic!("{at}: {other}"),
            Ok(store) => {
                let found = store.integrity().await;
                store.close().await;
                !matches!(found, Ok(findings) if findings.is_empty())
            }
        };
        reported += usize::from(is_reported);
        let _ = std::fs::remove_file(path.with_extension("db-wal"));
        let _ = std::fs::remove_file(path.with_extension("db-shm"));
    }
    assert_eq!(reported, 8, "a damage was not seen");
}

#[tokio::test]
async fn backup_contains_all_data() {
    let (folder, path) = file();
    let store = Store::open(&path).expect("opened");
    store.write(|c| installation::set(c, "note", "kept")).await.expect("written");
    let copy = folder.path().join("copy.db");
    store.backup(copy.clone()).await.expect("copied");
    assert!(matches!(store.backup(copy.clone()).await, Err(StoreError::Duplicate { .. })), "nothing is overwritten");
    let restored = Store::open(&copy).expect("opened");
    assert_eq!(restored.read(|c| installation::get(c, "note")).await.expect("read").as_deref(), Some("kept"));
}

#[tokio::test]
async fn attaching_does_not_change_the_marks_of_the_service() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    let store = Store::open(&path).expect("opened");
    let beside = Store::attach(&path).expect("attached");
    beside.write(|c| installation::set(c, "note", "from beside")).await.expect("written");
    assert_eq!(store.read(|c| installation::get(c, "note")).await.expect("read").as_deref(), Some("from beside"));
    beside.close().await;
    let mark = store.read(|c| installation::get(c, "stopped_cleanly")).await.expect("read");
    assert_eq!(mark.as_deref(), Some("no"), "the service still runs");
    store.close().await;
    Store::attach(&path).expect("attached").close().await;
    assert!(!Store::open(&path).expect("opened").was_unclean(), "the command did not count as a start");
}

/// See docs/research/faults.md#d4, docs/research/faults.md#d11.
#[tokio::test]
async fn database_of_another_version_is_not_attached() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    let attached = |path: &Path| Store::attach(path).map(drop).expect_err("refused").to_string();
    assert!(attached(&path).contains("the file does not exist; `ralph-bot serve` creates it"), "{}", attached(&path));
    assert!(!path.exists(), "looking makes nothing");
    std::fs::write(&path, "not a database, but long enough to be read as one by mistake").expect("written");
    assert!(attached(&path).contains("not a database"), "{}", attached(&path));
    std::fs::remove_file(&path).expect("removed");
    let connection = rusqlite::Connection::open(&path).expect("made");
    connection.execute_batch("CREATE TABLE x (y)").expect("made");
    assert!(attached(&path).contains("not a database of ralph-bot"), "{}", attached(&path));
    connection.execute_batch("PRAGMA user_version = 99").expect("set");
    assert!(attached(&path).contains("a newer version"), "{}", attached(&path));
}

#[test]
fn concurrent_creation_makes_one_database() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    let open = || Store::open(&path).map(drop);
    std::thread::scope(|scope| {
        let openings: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        for opening in openings {
            opening.join().expect("no panic").expect("opened");
        }
    });
}

/// The files next to the database were removed after an unclean stop.
/// See docs/research/faults.md#d4.
#[tokio::test]
async fn database_without_its_log_files_is_intact() {
    let (_folder, path) = file();
    let store = Store::open(&path).expect("opened");
    store.write(|c| installation::set(c, "note", "old")).await.expect("written");
    store.close().await;
    let store = Store::open(&path).expect("opened");
    store.write(|c| installation::set(c, "note", "new")).await.expect("written");
    for (kept, note) in [(vec![], "old"), (vec!["db-wal"], "new")] {
        let (_other, copy) = file();
        for extension in kept.into_iter().chain(["db"]) {
            std::fs::copy(path.with_extension(extension), copy.with_extension(extension)).expect("copied");
        }
        let reopened = Store::open(&copy).expect("opened");
        assert_eq!(reopened.integrity().await.expect("looked over"), Vec::<String>::new());
        assert_eq!(reopened.read(|c| installation::get(c, "note")).await.expect("read").as_deref(), Some(note));
    }
}

#[test]
fn database_errors_keep_their_causes() {
    let (_folder, path) = file();
    std::fs::write(&path, "not a database ".repeat(1_000)).expect("written");
    let error = Store::open(&path).map(drop).expect_err("a damaged file");
    let shown = path.display();
    let sentence = format!(
        "the database {shown} failed: file is not a database; stop the service, check the disk, and restore a backup if necessary"
    );
    assert_eq!(error.to_string(), sentence);
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    assert!(causes.any(|cause| cause.is::<SqliteError>()), "{error:?}");
    assert_eq!(format!("{:#}", Failure::new("cannot start").caused_by(error)), format!("cannot start: {sentence}"));
}
