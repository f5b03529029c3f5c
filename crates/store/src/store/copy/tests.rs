//! Tests of copies between files and a real server: all tables, searches, new ids, and refusals without damage.

use super::*;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::{Content, Learning, MemorySettings, Source, correct};
use crate::domain::knowledge::session::{EventKind, SessionEvent, SessionQuery, SessionSummary, SessionTurn, TurnRole};
use crate::domain::model::ids::{LoopId, Money, Number, Timestamp};
use crate::process::Masker;
use crate::store::listing::{LoopFilter, RepoScope};
use crate::store::session::{NewEvent, NewTurn};
use crate::store::test_server::{self, PostgresServer};
use crate::store::{PgSettings, Store, StoreError, loops};

/// Tables with rows of the service's own functions, whose texts are searched.
const SEARCHED: [&str; 6] =
    ["loops", "loop_summaries", "learnings", "session_turns", "session_events", "session_summaries"];
/// Number of rows of the other tables: more than two pages.
const ROWS: i64 = 130;

fn loop_id() -> LoopId {
    LoopId::from_parts(Number(1), 1)
}

fn turn(iteration: u32) -> SessionTurn {
    SessionTurn {
        iteration,
        attempt: 1,
        role: TurnRole::Agent,
        prompt: format!("Repair the zebra. {}", "A long prompt is stored compressed. ".repeat(200)),
        response: "The giraffe is repaired.".into(),
        backend: "claude".into(),
        model: None,
        tokens_in: 1,
        tokens_out: 2,
        tokens_cached: 3,
        cost: Money(4),
        estimated: false,
        error: Some("elephant".into()),
        learnings: Vec::new(),
        started: Timestamp(1),
        ended: Timestamp(2),
    }
}

/// Adds loops, learnings and session memory.
fn add_searched(c: &Connection) -> StoreResult<()> {
    for issue in 1..=2 {
        let start = listing::tests::start(listing::tests::repo(1, "app"), issue, "Feed the walrus", "alice");
        assert!(loops::begin(c, start, &format!("o{issue}"), Timestamp(1))?);
    }
    for iteration in 1..=70 {
        session::add_turn(c, &loop_id(), &NewTurn::pack(turn(iteration)))?;
    }
    let event = SessionEvent {
        iteration: 1,
        kind: EventKind::ToolCall,
        tool: Some("Bash".into()),
        path: None,
        text: "cargo test pelican\0".into(),
        failed: false,
        // Before the turn that runs, whose calls searches do not find.
        at: Timestamp(0),
    };
    session::add_events(c, &loop_id(), &[NewEvent::pack(event)])?;
    let summary = SessionSummary {
        from: 1,
        to: 1,
        text: "The ostrich was first.".into(),
        decisions: Vec::new(),
        files: Vec::new(),
        errors: Vec::new(),
        extractive: true,
        made_at: Timestamp(1),
    };
    session::add_summary(c, &loop_id(), &summary)?;
    let content = Content::Convention { rule: "Wash the hippopotamus".into(), seen_in: String::new() };
    let source = Source { loop_id: loop_id(), iteration: None };
    let repo = listing::tests::repo(1, "app");
    let learning = Learning::new(&repo, TaskType::TestFix, content, 0.9, source, Timestamp(1));
    memory::learn(c, &Masker::default(), learning, &MemorySettings::default(), Timestamp(1))?;
    Ok(())
}

/// Adds rows with values of all kinds to the other tables.
fn add_other(c: &rusqlite::Connection) -> rusqlite::Result<()> {
    for table in tables().expect("tables").iter().filter(|table| !SEARCHED.contains(&table.name.as_str())) {
        let sql = "SELECT i.type, i.\"notnull\" OR i.pk > 0, EXISTS (SELECT 1 FROM pragma_foreign_key_list(?1) f WHERE f.\"from\" = i.name)
            FROM pragma_table_info(?1) i WHERE i.name = ?2";
        let mut kinds: Vec<(String, bool, bool)> = Vec::new();
        for column in table.columns.iter().filter(|column| *column != "rowid") {
            kinds.push(c.query_row(sql, [&table.name, column], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?);
        }
        let columns = quoted(table.columns.iter().filter(|column| *column != "rowid"));
        let sql = format!("INSERT OR IGNORE INTO {} ({columns}) VALUES ({})", table.name, parameters(1, kinds.len()));
        for n in 1..=ROWS {
            let values = kinds.iter().enumerate().map(|(at, (kind, is_needed, is_of_loop))| match kind.as_str() {
                _ if *is_of_loop => Value::Text(loop_id().as_str().to_owned()),
                _ if !is_needed && n % 3 == 0 => Value::Null,
                "TEXT" => Value::Text(format!("{at} é\0 'x' {n}")),
                "BLOB" if n % 2 == 0 => Value::Text(format!("text {at} {n}")),
                "BLOB" => Value::Blob(vec![n as u8, 0, at as u8, 255]),
                "REAL" => Value::Real(n as f64 / 3.0),
                _ => Value::Integer(n),
            });
            c.execute(&sql, rusqlite::params_from_iter(values))?;
        }
    }
    // Their numbers are never used again.
    c.execute("DELETE FROM session_output WHERE id > 120", [])?;
    c.execute("DELETE FROM tokens", [])?;
    c.execute("INSERT INTO tokens SELECT 7, x'00', '', '', NULL, NULL, '', '', 0, '', 0, 0, NULL, NULL", [])?;
    Ok(())
}

/// Creates a file with rows in all tables.
fn filled(folder: &Path) -> DatabaseAddress {
    let path = folder.join("ralph.db");
    let (connection, _lock) = sqlite::open(&path, Mode::Own, Duration::ZERO).expect("created");
    let connection = Connection(Database::Sqlite(connection));
    add_searched(&connection).expect("added");
    add_other(connection.as_sqlite().expect("SQLite")).expect("added");
    (&path).into()
}

/// Returns the rows and digests of a database's tables.
fn state(address: &DatabaseAddress) -> Vec<CopiedTable> {
    let database = LockedDatabase::source(address, PATIENCE).expect("opened");
    tables().expect("tables").iter().map(|table| table.scan(&database, |_| Ok(())).expect("read")).collect()
}

/// Searches each full-text index, and adds rows.
fn assert_usable(address: &DatabaseAddress) {
    let database = LockedDatabase::source(address, PATIENCE).expect("opened");
    let c = &database.connection;
    c.engine().begin_write().expect("begun");
    for word in ["zebra", "giraffe", "elephant", "pelican", "ostrich"] {
        let query = SessionQuery { query: word.into(), ..SessionQuery::default() };
        let found = session::search(c, &loop_id(), &query).expect("searched");
        assert!(!found.hits.is_empty(), "{word}: {found:?}");
    }
    let filter = LoopFilter { text: Some("walrus".into()), ..LoopFilter::of(RepoScope::All) };
    assert_eq!(listing::page(c, &filter, None, 9).expect("searched").rows.len(), 2);
    assert_eq!(memory::matching_all(c, &correct("hippopotamus")).expect("searched").len(), 1);
    let next = |sql: &str| c.prepare(sql).expect("prepared").insert([loop_id().as_str()]).expect("added");
    let sql = "INSERT INTO session_output (loop_id, iteration, text, at) VALUES (?1, 1, 'x', 1)";
    assert_eq!(next(sql), Some(ROWS + 1), "the numbers of deleted rows are not used again");
    let sql = "INSERT INTO inputs (loop_id, origin, at, input) VALUES ('x', ?1, 1, '{}')";
    let largest: i64 = c.query_row("SELECT max(id) FROM inputs", [], |row| row.get(0)).expect("read");
    assert_eq!(next(sql), Some(largest + 1));
    let token = c.query_row(&format!("SELECT {}", c.last_id("tokens")), [], |row| row.get::<_, i64>(0));
    assert_eq!(token.expect("read"), ROWS);
    let sql = "INSERT INTO loops (id, forge, repo_id, issue, state, open, data, version, created_at, updated_at)
        SELECT ?1 || 'x', forge, repo_id, 99, state, open, data, version, created_at, updated_at FROM loops WHERE id = ?1";
    c.execute(sql, [loop_id().as_str()]).expect("added");
    let newest = "SELECT issue FROM loops ORDER BY rowid DESC LIMIT 1";
    assert_eq!(c.query_row(newest, [], |row| row.get::<_, i64>(0)).expect("read"), 99);
    c.engine().roll_back().expect("rolled back");
}

#[test]
fn database_is_equal_after_a_move_to_a_server_and_back() {
    let Some(server) = PostgresServer::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let from = filled(folder.path());
    let to: DatabaseAddress = server.schema().into();
    let there = copy_database(&from, &to).expect("copied");
    let empty: Vec<&CopiedTable> = there.iter().filter(|table| table.rows == 0).collect();
    assert!(empty.is_empty(), "{empty:?}");
    assert_eq!(there, state(&from));
    assert_usable(&to);
    let back: DatabaseAddress = (&folder.path().join("back.db")).into();
    assert_eq!(copy_database(&to, &back).expect("copied back"), there);
    assert_usable(&back);
    let DatabaseAddress::File(path) = &back else { unreachable!() };
    let store = Store::open(path).expect("opened");
    assert!(!store.was_unclean());
    let names =
        |folder: &Path| std::fs::read_dir(folder).expect("read").flatten().map(|entry| entry.file_name()).collect();
    let left: Vec<std::ffi::OsString> = names(folder.path());
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".ralph-copy-")), "{left:?}");
}

fn refusal(from: &DatabaseAddress, to: &DatabaseAddress) -> String {
    copy_within(from, to, Duration::from_millis(100)).expect_err("refused").to_string()
}

/// Runs work on a locked server's database.
fn on_server(settings: &PgSettings, sql: &str) {
    let connection = postgres::open_alone(settings, true, PATIENCE).expect("opened");
    connection.batch(sql).expect("ran");
}

#[test]
fn target_with_rows_or_of_another_version_is_refused_and_unchanged() {
    let Some(server) = PostgresServer::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let from = filled(folder.path());
    let before = state(&from);
    let settings = server.schema();
    let to: DatabaseAddress = settings.clone().into();
    on_server(&settings, "INSERT INTO heard (key, at) VALUES ('kept', 1)");
    let occupied = state(&to);
    let not_empty = refusal(&from, &to);
    assert!(not_empty.ends_with("it is not empty, its table heard has rows; use an empty database"), "{not_empty}");
    assert_eq!(state(&to), occupied);
    for (change, expected) in [
        ("version + 1", "a newer version of ralph-bot has used it"),
        ("version - 1", "an older version of ralph-bot made it"),
    ] {
        let settings = server.schema();
        on_server(&settings, &format!("UPDATE schema_version SET version = {change}"));
        for refused in
            [refusal(&from, &settings.clone().into()), refusal(&settings.into(), &(&folder.path().join("b.db")).into())]
        {
            assert!(refused.contains(expected), "{refused}");
        }
    }
    assert!(!folder.path().join("b.db").exists());
    assert_eq!(state(&from), before);
}

#[test]
fn unusable_addresses_are_refused() {
    let Some(server) = PostgresServer::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let from = filled(folder.path());
    let missing = refusal(&(&folder.path().join("missing.db")).into(), &server.schema().into());
    assert!(missing.contains("the file does not exist"), "{missing}");
    let no_tables = refusal(&server.schema().into(), &(&folder.path().join("b.db")).into());
    assert!(no_tables.contains("has no tables of ralph-bot yet"), "{no_tables}");
    let wrong = test_server::settings("postgres://ralph@127.0.0.1:1/ralph?connect_timeout=1");
    let wrong = refusal(&from, &wrong.into());
    assert!(wrong.contains("could not use the server 127.0.0.1:1"), "{wrong}");
    let both = refusal(&from, &(&folder.path().join("b.db")).into());
    assert!(both.contains("`ralph-bot backup` copies a file"), "{both}");
    let to: DatabaseAddress = server.schema().into();
    copy_database(&from, &to).expect("copied");
    let precious = folder.path().join("precious.db");
    std::fs::write(folder.path().join("other.db-wal"), "a log").expect("written");
    std::fs::write(&precious, "precious").expect("written");
    for name in ["precious.db", "other.db"] {
        let existing = refusal(&to, &(&folder.path().join(name)).into());
        assert!(existing.contains("already exists; choose another file"), "{existing}");
    }
    assert_eq!(std::fs::read_to_string(&precious).expect("read"), "precious");
    let no_folder = refusal(&to, &(&folder.path().join("no/such/ralph.db")).into());
    assert!(no_folder.contains("No such file or directory"), "{no_folder}");
}

#[tokio::test(flavor = "multi_thread")]
async fn database_of_a_running_process_is_refused() {
    let Some(server) = PostgresServer::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let settings = server.schema();
    let file = folder.path().join("ralph.db");
    let on_file = Store::open(&file).expect("opened");
    let copied = |from: DatabaseAddress, to: DatabaseAddress| async move {
        tokio::task::spawn_blocking(move || refusal(&from, &to)).await.expect("no panic")
    };
    let held = copied((&file).into(), settings.clone().into()).await;
    assert!(held.contains("a process of ralph-bot uses it; stop the service first"), "{held}");
    on_file.close().await;
    drop(on_file);
    let on_server = Store::open(settings.clone()).expect("opened");
    let held = copied((&file).into(), settings.into()).await;
    assert!(held.contains("a process of ralph-bot uses it; stop the service first"), "{held}");
    assert!(matches!(on_server.write(|_| Ok(())).await, Ok(())));
}

#[test]
fn changed_target_row_rolls_back_the_copy() {
    let Some(server) = PostgresServer::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let from = filled(folder.path());
    let settings = server.schema();
    on_server(
        &settings,
        "CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.at = NEW.at + 1; RETURN NEW; END $$;
         CREATE TRIGGER change BEFORE INSERT ON heard FOR EACH ROW WHEN (NEW.at = 100) EXECUTE FUNCTION change()",
    );
    let to: DatabaseAddress = settings.into();
    let differs = copy_database(&from, &to).expect_err("refused");
    assert!(matches!(&differs, StoreError::Failed { .. }), "{differs:?}");
    assert!(differs.to_string().contains("the copy of the table heard differs: 130 rows"), "{differs}");
    assert!(state(&to).iter().all(|table| table.rows == 0));
}
