//! Tests of older and newer databases, and of processes with different versions on one database.

use std::time::Duration;

use super::super::{Store, StoreError, installation};
use super::*;

/// Creates a database as left by the version with `version` migrations.
fn database_of(path: &Path, version: usize) -> Connection {
    let connection = Connection::open(path).expect("made");
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).expect("set");
    for sql in &MIGRATIONS[..version] {
        connection.execute_batch(sql).expect("migrated");
    }
    connection.pragma_update(None, "user_version", version as u32).expect("set");
    connection
}

fn refusal(opened: Result<Store, StoreError>) -> String {
    opened.map(drop).expect_err("refused").to_string()
}

#[tokio::test]
async fn database_of_every_earlier_version_is_migrated() {
    for earlier in 0..=MIGRATIONS.len() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ralph.db");
        let connection = database_of(&path, earlier);
        if earlier > 0 {
            connection.execute("INSERT INTO meta (key, value) VALUES ('note', 'kept')", []).expect("written");
        }
        drop(connection);
        let store = Store::open(&path).unwrap_or_else(|error| panic!("version {earlier}: {error}"));
        let note = store.read(|c| installation::get(c, "note")).await.expect("read");
        assert_eq!(note.as_deref(), (earlier > 0).then_some("kept"), "version {earlier}");
        assert_eq!(store.integrity().await.expect("looked over"), Vec::<String>::new(), "version {earlier}");
        store.close().await;
        let current = Connection::open(&path).expect("opened");
        assert_eq!(version(&current).expect("read"), MIGRATIONS.len() as u32);
    }
}

/// See docs/research/faults.md#d11.
#[test]
fn newer_database_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    let newer = database_of(&path, MIGRATIONS.len());
    newer.execute_batch("CREATE TABLE of_the_future (x)").expect("made");
    newer.pragma_update(None, "user_version", MIGRATIONS.len() as u32 + 1).expect("set");
    for opened in [Store::open(&path), Store::attach(&path)] {
        let why = refusal(opened);
        assert!(why.contains("a newer version of ralph-bot has used it"), "{why}");
        assert!(why.contains("install that version again") && why.contains("restore the backup"), "{why}");
    }
    assert_eq!(version(&newer).expect("read"), MIGRATIONS.len() as u32 + 1);
}

#[tokio::test]
async fn processes_of_one_version_share_a_database() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    let (first, second) = (Store::open(&path).expect("opened"), Store::open(&path).expect("opened"));
    first.write(|c| installation::set(c, "note", "from the first")).await.expect("written");
    let note = second.read(|c| installation::get(c, "note")).await.expect("read");
    assert_eq!(note.as_deref(), Some("from the first"));
    drop(Store::attach(&path).expect("attached"));
}

/// A process of the previous version holds the lock on the schema while it runs.
#[test]
fn newer_version_waits_for_older_processes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    let before = MIGRATIONS.len() - 1;
    let connection = database_of(&path, before);
    let old = lock_of(&path).expect("the lock");
    old.lock_shared().expect("taken");

    let why = refusal(Store::open_within(&path, Duration::from_millis(200)));
    assert!(why.contains("processes of an older version of ralph-bot still use it; stop them"), "{why}");
    assert_eq!(version(&connection).expect("read"), before as u32, "the schema that they use stays");

    std::thread::scope(|scope| {
        let opening = scope.spawn(|| Store::open_within(&path, Duration::from_secs(30)).map(drop));
        drop(old);
        opening.join().expect("no panic").expect("opened once they have stopped");
    });
    assert_eq!(version(&connection).expect("read"), MIGRATIONS.len() as u32);
    // If a process of the previous version starts now, it finds a newer schema: `newer_database_is_refused_and_unchanged`.
}

#[test]
fn commands_do_not_use_a_schema_that_is_being_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    drop(database_of(&path, MIGRATIONS.len()));
    let changing = lock_of(&path).expect("the lock");
    changing.lock().expect("taken");
    let why = refusal(Store::attach(&path));
    assert!(why.contains("another process is changing its schema; try again"), "{why}");
    drop(changing);
    drop(Store::attach(&path).expect("attached"));
}
