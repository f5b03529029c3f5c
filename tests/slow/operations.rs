//! Work of an operator (`RUNBOOK.md`): backups and restores, upgrades, replaced secrets, and a service manager that watches.

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fake_forge::{Dialect, FakeAppKey};
use ralph_bot::domain::loops::{Loop, LoopState, LoopStep};
use ralph_bot::forge::github::{EVENTS, PERMISSIONS};
use ralph_bot::store::test_server::PostgresServer;
use ralph_bot::store::{self, Store, loops};
use rusqlite::{Connection, params};

use crate::harness::databases::{dump, migrations, restore_dump, schema_version};
use crate::harness::deliveries::{deliver, kept_back, post, signed_with};
use crate::harness::parts::{command, output, setting};
use crate::harness::{SECRET, Setup, UpdateMode, World, on_one_forge, prepared_story, story};

on_one_forge!(
    backup_under_load_is_restored_on_another_path_and_the_loop_continues,
    moved_service_continues_and_finds_missed_events,
    loop_resumes_on_another_engine_and_back,
    secret_is_replaced_without_losing_a_delivery,
    loop_ends_correctly_after_restoring_an_older_backup,
    replaced_token_is_used_after_a_restart,
);

/// Agent that needs a second iteration.
const SLOW: &str =
    "if [ \"$RALPH_ITERATION\" -ge 2 ]; then echo 42 >answer.txt; fi\necho \"$RALPH_ITERATION\" >>notes.txt\n";

/// Stops the service, puts a copy of the database into a folder that did not exist, and starts the service on it.
async fn restore(world: &mut World, copy: &Path, name: &str) {
    let folder = world.folder.path().join(name);
    world.stop().await;
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::copy(copy, folder.join("ralph.db")).expect("copied");
    world.setup.env.push(("RALPH_DATA_DIR", folder.display().to_string()));
    world.restart().await;
}

async fn loop_in(copy: &Path) -> Loop {
    let store = Store::open(copy).expect("the copy opens");
    assert_eq!(store.integrity().await.expect("looked over"), Vec::<String>::new());
    let all = store.read(|c| loops::list(c, false, 9)).await.expect("loops");
    store.close().await;
    assert_eq!(all.len(), 1);
    all.into_iter().next().expect("one")
}

/// Copies are made while deliveries arrive and are read. One of them is restored on another path, where only the database is. See
/// docs/research/faults.md#d4.
async fn backup_under_load_is_restored_on_another_path_and_the_loop_continues(dialect: Dialect) {
    story(Setup::new(dialect).agent(SLOW), async |world| {
        world.label().await;
        world.stop_at("the second iteration", |l| l.run.step == LoopStep::Agent && l.iterations.len() == 2).await;
        let database = world.folder.path().join("data/ralph.db");
        let copies = world.folder.path().join("copies");
        std::fs::create_dir(&copies).expect("a folder");
        let load = async {
            for number in 0..40 {
                world.comment(&format!("A remark, number {number}.")).await;
                world.forge.flush().await;
                world.engine().intake.intake_step().await.expect("intake");
            }
        };
        let backups = async {
            for number in 0..8 {
                let (from, to) = (database.clone(), copies.join(format!("{number}.db")));
                let made = tokio::task::spawn_blocking(move || store::backup_file(&from, &to)).await;
                made.expect("no panic").expect("a copy");
            }
        };
        tokio::join!(load, backups);
        for number in 0..8 {
            let found = loop_in(&copies.join(format!("{number}.db"))).await;
            assert_eq!((found.state, found.iterations.len()), (LoopState::Running, 2), "copy {number}");
        }
        restore(world, &copies.join("4.db"), "elsewhere").await;
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        let branch = done.branch.name.clone();
        assert_eq!(world.file(&branch, "answer.txt").await.as_deref(), Some("42\n"));
        assert_eq!(
            world.file(&branch, "notes.txt").await.as_deref(),
            Some("1\n2\n"),
            "no iteration is lost or repeated"
        );
    })
    .await;
}

/// The forge is ahead of the backup: the loop in the backup's second iteration has already ended.
async fn loop_ends_correctly_after_restoring_an_older_backup(dialect: Dialect) {
    story(Setup::new(dialect).agent(SLOW), async |world| {
        world.label().await;
        world.stop_at("the second iteration", |l| l.run.step == LoopStep::Agent && l.iterations.len() == 2).await;
        let copy = world.folder.path().join("copy.db");
        store::backup_file(&world.folder.path().join("data/ralph.db"), &copy).expect("a copy");
        world.settle().await;
        let before = world.the_loop().await;
        assert_eq!(before.state, LoopState::Review, "{}", before.why);
        let comments = world.bot_comments().len();
        world.clock.advance_ms(3_600_000);
        restore(world, &copy, "elsewhere").await;
        world.recover().await;
        // Nothing proves that the commits on the branch are the bot's own, so they count as commits of somebody else.
        let paused = world.the_loop().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        assert!(paused.why.starts_with("somebody else pushed"), "{}", paused.why);
        let iterations = |world: &World| {
            let all = world.bot_comments();
            all.iter().filter(|comment| comment.starts_with("### Iteration")).count()
        };
        assert_eq!((world.bot_comments().len(), iterations(world)), (comments, 2), "{:#?}", world.bot_comments());
        world.comment("/ralph resume").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
    })
    .await;
}

/// The steps of RUNBOOK.md: the service is stopped permanently, its last backup is the database on the new host, which has no other files, and
/// the webhook leads there afterwards. Events in between were not delivered.
async fn moved_service_continues_and_finds_missed_events(dialect: Dialect) {
    story(Setup::new(dialect).agent(SLOW), async |world| {
        world.label().await;
        world.stop_at("the second iteration", |l| l.run.step == LoopStep::Agent && l.iterations.len() == 2).await;
        world.stop().await;
        let (old, copy) = (world.folder.path().join("data"), world.folder.path().join("move.db"));
        store::backup_file(&old.join("ralph.db"), &copy).expect("a copy");
        world.forge.hooks().drop_next(1_000);
        let comment = world.comment("/ralph guide Add a note, please.").await;
        world.forge.flush().await;
        world.forge.hooks().drop_next(0);
        std::fs::rename(&old, world.folder.path().join("old-host")).expect("the old host is gone");
        restore(world, &copy, "new-host").await;
        world.reconcile().await;
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(world.reactions(comment).contains(&"rocket".to_owned()), "{:?}", world.reactions(comment));
        assert!(world.prompt(done.spent.iterations).await.contains("Add a note, please."));
        let notes: String = (1..=done.spent.iterations).map(|number| format!("{number}\n")).collect();
        assert_eq!(world.file(&done.branch.name, "notes.txt").await, Some(notes), "no iteration is lost or repeated");
        assert!(!old.exists(), "nothing is written where the old host had its data");
    })
    .await;
}

/// Runs `ralph-bot migrate` with the operator's file of the world, whose service is stopped.
async fn migrate(world: &World, to: &str) -> serde_json::Value {
    let file = world.folder.path().join("ralph-control.yaml");
    std::fs::write(&file, world.config_text("127.0.0.1:0", false)).expect("written");
    let mut migrate = command(env!("CARGO_BIN_EXE_ralph-bot"));
    migrate.arg("--json").arg("--config").arg(&file).args(["migrate", "--to", to]);
    migrate.current_dir(world.folder.path()).env_clear().envs(world.environment());
    serde_json::from_slice(&output(&mut migrate).await).expect("JSON")
}

/// The steps of docs/guides/postgresql.md and RUNBOOK.md: the second iteration runs on a server, the third on a file again.
async fn loop_resumes_on_another_engine_and_back(dialect: Dialect) {
    let Some(server) = PostgresServer::start() else { return };
    story(Setup::new(dialect).agent(SLOW), async |world| {
        world.label().await;
        world.stop_at("the second iteration", |l| l.run.step == LoopStep::Agent && l.iterations.len() == 2).await;
        world.stop().await;
        let data = world.folder.path().join("data");
        let there = migrate(world, &server.address()).await;
        std::fs::create_dir(data.join("moved")).expect("a folder");
        std::fs::rename(data.join("ralph.db"), data.join("moved/ralph.db")).expect("moved away");
        let before = world.setup.config.clone();
        world.setup.config.push_str(&format!("database: {}\n", server.address()));
        world.restart().await;
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert!(!data.join("ralph.db").exists(), "the service runs on the server");
        world.stop().await;
        let back = migrate(world, &data.display().to_string()).await;
        world.setup.config = before;
        world.restart().await;
        world.comment("/ralph guide Once more, please.").await;
        world.settle().await;
        let more = world.the_loop().await;
        assert_eq!((&more.id, more.state, more.spent.iterations), (&done.id, LoopState::Review, 3), "{}", more.why);
        let notes = world.file(&more.branch.name, "notes.txt").await;
        assert_eq!(notes.as_deref(), Some("1\n2\n3\n"), "no iteration is lost or repeated");
        for moved in [there, back] {
            let tables = moved["tables"].as_array().expect("tables");
            let loops = tables.iter().find(|table| table["name"] == "loops").expect("a table");
            assert_eq!(loops["rows"], 1, "{moved}");
        }
    })
    .await;
}

/// The steps of RUNBOOK.md: both secrets, the new one at the forge, the old one removed. Deliveries that are under way arrive with
/// either.
async fn secret_is_replaced_without_losing_a_delivery(dialect: Dialect) {
    const NEW: &str = "another-webhook-secret-of-the-stories-0123456789";
    let mut setup = Setup::new(dialect).agent(SLOW);
    setup.updates = UpdateMode::Webhooks;
    story(setup, async |world| {
        std::fs::write(world.folder.path().join("next-secret"), NEW).expect("written");
        world.setup.credential = "token_env: TOKEN, webhook_secret_file: next-secret".into();
        world.restart().await;
        let label = kept_back(world, async |world| world.label().await).await;
        assert!(!label.is_empty());
        for (number, one) in label.iter().enumerate() {
            let body = one.body.as_bytes();
            let status = deliver(world, &format!("old-{number}"), &one.event.0, body).await;
            assert_eq!(status, 202, "signed with the old secret");
        }
        world.forge.with(|state| {
            for hook in &mut state.repo_mut(world.repo).expect("the repository").hooks {
                hook.secret = NEW.to_owned();
            }
        });
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);

        // Now only the new token: the variable has it, and the file was deleted.
        world.setup.credential = "token_env: TOKEN".into();
        world.setup.env.push(("SECRET", NEW.to_owned()));
        world.restart().await;
        let again = kept_back(world, async |world| {
            world.comment("/ralph guide Once more, please.").await;
        })
        .await;
        for (number, one) in again.iter().enumerate() {
            let body = one.body.as_bytes().to_vec();
            let sign = |secret| signed_with(secret, dialect, &format!("new-{number}"), &one.event.0, &body);
            assert_eq!(
                post(world, "/webhooks/forge", &sign(SECRET), body.clone()).await,
                401,
                "the old secret is gone"
            );
            assert_eq!(post(world, "/webhooks/forge", &sign(NEW), body.clone()).await, 202);
        }
        world.settle().await;
        let more = world.the_loop().await;
        assert_eq!((more.state, more.spent.iterations), (LoopState::Review, done.spent.iterations + 1), "{}", more.why);
    })
    .await;
}

/// The account gets a new token in the middle of a loop, and the old one is revoked.
async fn replaced_token_is_used_after_a_restart(dialect: Dialect) {
    story(Setup::new(dialect).agent(SLOW), async |world| {
        world.label().await;
        world.stop_at("the second iteration", |l| l.run.step == LoopStep::Agent && l.iterations.len() == 2).await;
        let old = world.forge.token_for(&world.bot);
        world.stop().await;
        let new = world.forge.replace_token(&world.bot);
        assert_ne!(old, new);
        world.restart().await;
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
    })
    .await;
}

/// An App has two keys for a while; the old one is deleted at the forge in the middle of a loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_of_an_app_is_replaced_in_the_middle_of_a_loop() {
    let as_app = |world: &mut World| {
        let app = world.forge.add_app("Ralph Bot", PERMISSIONS, EVENTS, "", "");
        world.bot = app.bot;
        std::fs::write(world.folder.path().join("app.pem"), app.private_key_pem).expect("written");
        world.setup.credential = format!("app_id: {}, private_key_file: app.pem", app.app_id);
    };
    prepared_story(Setup::new(Dialect::GitHub).agent(SLOW), as_app, async |world| {
        world.label().await;
        world.stop_at("the second iteration", |l| l.run.step == LoopStep::Agent && l.iterations.len() == 2).await;
        world.forge.with(|state| state.app_keys = vec![FakeAppKey::First, FakeAppKey::Second]);
        std::fs::write(world.folder.path().join("app.pem"), FakeAppKey::Second.private_pem()).expect("written");
        world.restart().await;
        world.forge.with(|state| state.app_keys = vec![FakeAppKey::Second]);
        // Longer than the tokens last that were made until now.
        world.clock.advance_ms(3_700_000);
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        let rejected = world.receipts().await.into_iter().filter(|receipt| receipt.state == "rejected").count();
        assert_eq!(rejected, 0);
    })
    .await;
}

/// Folder of the dumps that builds of earlier versions wrote, `NNNN.sql` with the number of their migrations.
fn dumps() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/databases")
}

/// Values of the world that a dump was written in, by name: the lines of comment at its head.
fn facts(dump: &str) -> BTreeMap<&str, &str> {
    dump.lines().map_while(|line| line.strip_prefix("-- ")?.split_once(' ')).collect()
}

/// Values of this world, by the same names.
async fn facts_of(world: &World) -> BTreeMap<&'static str, String> {
    let current = world.the_loop().await;
    let sha = |name: &str| world.git(&["rev-parse", name]).trim().to_owned();
    BTreeMap::from([
        ("base", sha("main")),
        ("head", sha(&current.branch.name)),
        ("id", current.id.to_string()),
        ("url", world.forge.url().to_string()),
    ])
}

/// Loop in its second iteration, of which a dump is made. It is on one forge, as the dumps are.
fn dumped() -> Setup {
    Setup { updates: UpdateMode::Webhooks, ..Setup::new(Dialect::Gitea).agent(SLOW) }
}

/// The forge has the state of the dump; the service gets the database that an earlier build wrote. Objects that are created again
/// in each world (the loop's id, commits, comments, addresses, the key of markers) are replaced by this world's. See docs/research/faults.md#d11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_in_database_of_earlier_build_continues() {
    let mut files: Vec<_> = std::fs::read_dir(dumps()).expect("dumps").flatten().map(|entry| entry.path()).collect();
    files.sort();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        let name = file.display();
        story(dumped(), async |world| {
            world.label().await;
            world.stop_at("the second iteration", |l| l.run.step == LoopStep::Agent && l.iterations.len() == 2).await;
            let here = facts_of(world).await;
            let database = world.folder.path().join("data/ralph.db");
            world.stop().await;
            let key = "SELECT value FROM meta WHERE key = 'marker_key'";
            let marker_key = |at: &Path| -> String {
                Connection::open(at).expect("opened").query_row(key, [], |row| row.get(0)).expect("a key")
            };
            let new_key = marker_key(&database);
            let posted = "SELECT key, forge_id FROM posted WHERE subject = ?1 AND key NOT LIKE 'commit-status/%'";
            let ids: Vec<(String, i64)> = {
                let connection = Connection::open(&database).expect("opened");
                let mut rows = connection.prepare(posted).expect("prepared");
                let ids = rows.query_map([&here["id"]], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
                ids.collect::<Result<_, _>>().expect("ids")
            };
            let mut dump = std::fs::read_to_string(&file).expect("a dump");
            for (fact, there) in facts(&dump.clone()) {
                dump = dump.replace(there, &here[fact]);
            }
            restore_dump(&database, &dump);
            let theirs = marker_key(&database);
            restore_dump(&database, &dump.replace(&theirs, &new_key));
            for (key, id) in ids {
                let changed = Connection::open(&database)
                    .and_then(|c| c.execute("UPDATE posted SET forge_id = ?1 WHERE key = ?2", params![id, key]))
                    .expect("updated");
                assert_eq!(changed, 1, "{name}: {key}");
            }
            assert_eq!(
                format!("{:04}", schema_version(&database)),
                file.file_stem().expect("a name").display().to_string()
            );
            // The dump is from another installation.
            std::fs::remove_file(world.folder.path().join("data/installation")).expect("removed");
            let comments = world.bot_comments().len();
            world.restart().await;
            world.recover().await;
            let done = world.the_loop().await;
            assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{name}: {}", done.why);
            assert_eq!(world.file(&done.branch.name, "notes.txt").await.as_deref(), Some("1\n2\n"), "{name}");
            for number in 1..=2 {
                let heading = format!("Iteration {number} of ");
                // Rows of earlier iterations may be folded.
                let about = |text: &&String| text.lines().take(2).any(|line| line.contains(&heading));
                let posted = world.bot_comments().iter().filter(about).count();
                assert_eq!(posted, 1, "{name}: {comments} before: {:#?}", world.bot_comments());
            }
            let found = world.engine().store.integrity().await.expect("looked over");
            assert_eq!(found, Vec::<String>::new(), "{name}");
        })
        .await;
    }
}

/// Each migration has a dump by the build that introduced it. `UPDATE_FIXTURES=1` writes a missing dump and changes no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newest_schema_has_a_dump() {
    let file = dumps().join(format!("{:04}.sql", migrations().len()));
    if !file.exists() && setting("UPDATE_FIXTURES").is_some() {
        story(dumped(), async |world| {
            world.label().await;
            world.stop_at("the second iteration", |l| l.run.step == LoopStep::Agent && l.iterations.len() == 2).await;
            let head: String =
                facts_of(world).await.iter().map(|(name, value)| format!("-- {name} {value}\n")).collect();
            world.stop().await;
            let text = dump(&world.folder.path().join("data/ralph.db"));
            std::fs::write(&file, head + &text).expect("written");
        })
        .await;
    }
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        text.contains(&format!("PRAGMA user_version = {};", migrations().len())),
        "{} is missing; `UPDATE_FIXTURES=1 cargo test --test slow newest_schema` writes it once, with the JSON of this build",
        file.display()
    );
}

/// Datagrams of the service, as lines.
async fn message(manager: &UnixDatagram) -> String {
    let mut text = [0_u8; 4096];
    for _ in 0..3000 {
        if let Ok(length) = manager.recv(&mut text) {
            return String::from_utf8_lossy(&text[..length]).into_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the service told nothing");
}

/// systemd is notified of the start, the watchdog and the stop of the service.
#[tokio::test]
async fn service_manager_is_notified_of_start_watchdog_and_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
    manager.set_nonblocking(true).expect("set");
    let text = "forges: [{ name: work, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, updates: poll }]\n\
                server: { listen: '127.0.0.1:0' }\nsandbox: { required: none }\nrepositories: ['work:team/app']\n\
                backends: { mine: { type: script, command: [sh, -c, 'true'] } }\n";
    std::fs::write(folder.path().join("ralph-control.yaml"), text).expect("written");
    let mut service = command(env!("CARGO_BIN_EXE_ralph-bot"));
    service
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", folder.path());
    service.env("T", "token").env("NOTIFY_SOCKET", folder.path().join("notify")).env("WATCHDOG_USEC", "300000");
    let mut running = service.arg("serve").kill_on_drop(true).spawn().expect("started");

    let first = message(&manager).await;
    assert!(first.starts_with("READY=1\nSTATUS=listening on 127.0.0.1:"), "{first}");
    for _ in 0..2 {
        assert_eq!(message(&manager).await, "WATCHDOG=1\n");
    }
    let pid = running.id().expect("it runs").to_string();
    assert!(command("kill").arg(pid).status().await.expect("kill").success());
    let last = loop {
        let next = message(&manager).await;
        if next != "WATCHDOG=1\n" {
            break next;
        }
    };
    assert!(last.starts_with("STOPPING=1\n"), "{last}");
    assert!(running.wait().await.expect("it ends").success());
}
