//! Work of an operator (`RUNBOOK.md`): backups and restores, upgrades, replaced secrets, and a service manager that watches.

use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use fake_forge::Dialect;
use ralph_bot::cli::Cli;
use ralph_bot::domain::loops::{Loop, LoopState, LoopStep};
use ralph_bot::store::{self, Store, loops};
use rusqlite::Connection;

use crate::harness::deliveries::{deliver, kept_back, post, signed_with};
use crate::harness::parts::command;
use crate::harness::{SECRET, Setup, UpdateMode, World, on_both_forges, on_one_forge, story};

on_both_forges!(
    backup_under_load_is_restored_on_another_path_and_the_loop_goes_on,
    secret_is_replaced_without_losing_a_delivery,
);

on_one_forge!(
    loop_of_every_earlier_schema_goes_on,
    restored_backup_of_a_loop_that_has_gone_on_ends_well,
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
/// docs/faults.md#d4.
async fn backup_under_load_is_restored_on_another_path_and_the_loop_goes_on(dialect: Dialect) {
    story(Setup::new(dialect).agent(SLOW), async |world| {
        world.label().await;
        world.stop_at("the second iteration", |l| l.step == LoopStep::Agent && l.iterations.len() == 2).await;
        let database = world.folder.path().join("data/ralph.db");
        let copies = world.folder.path().join("copies");
        std::fs::create_dir(&copies).expect("a folder");
        let load = async {
            for number in 0..40 {
                world.comment(&format!("A remark, number {number}.")).await;
                world.forge.flush().await;
                world.engine().intake_step().await.expect("intake");
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
        let branch = done.branch.clone();
        assert_eq!(world.file(&branch, "answer.txt").await.as_deref(), Some("42\n"));
        assert_eq!(
            world.file(&branch, "notes.txt").await.as_deref(),
            Some("1\n2\n"),
            "no iteration is lost or repeated"
        );
    })
    .await;
}

/// The forge is ahead of the backup: the loop that it has in its second iteration has ended meanwhile.
async fn restored_backup_of_a_loop_that_has_gone_on_ends_well(dialect: Dialect) {
    story(Setup::new(dialect).agent(SLOW), async |world| {
        world.label().await;
        world.stop_at("the second iteration", |l| l.step == LoopStep::Agent && l.iterations.len() == 2).await;
        let copy = world.folder.path().join("copy.db");
        store::backup_file(&world.folder.path().join("data/ralph.db"), &copy).expect("a copy");
        world.settle().await;
        let before = world.the_loop().await;
        assert_eq!(before.state, LoopState::Review, "{}", before.why);
        let comments = world.bot_comments().len();
        world.clock.advance_ms(3_600_000);
        restore(world, &copy, "elsewhere").await;
        world.recover().await;
        // Nothing proves that the commits on the branch are the bot's own, so they are taken as those of somebody else.
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
        assert_eq!(world.file(&done.branch, "answer.txt").await.as_deref(), Some("42\n"));
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

        // Now only the new one: the variable has it, and the file is gone.
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
        world.stop_at("the second iteration", |l| l.step == LoopStep::Agent && l.iterations.len() == 2).await;
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

/// Migrations in order.
fn migrations() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("migrations").flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).expect("a migration")).collect()
}

fn names(connection: &Connection, sql: &str) -> BTreeSet<String> {
    let mut statement = connection.prepare(sql).expect("prepared");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|name| name.expect("a name")).collect()
}

/// Replaces a database by one with the schema of `version`, which has the rows and columns that this schema has a place for.
fn turn_back(path: &Path, version: usize) {
    let old = path.with_extension("old");
    let connection = Connection::open(&old).expect("made");
    for sql in &migrations()[..version] {
        connection.execute_batch(sql).expect("migrated");
    }
    connection.pragma_update(None, "user_version", version as u32).expect("set");
    connection.execute("ATTACH ?1 AS new", [path.display().to_string()]).expect("attached");
    // Tables of a search index are made by SQLite.
    let tables =
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%_words%'";
    connection.execute_batch("PRAGMA foreign_keys = OFF").expect("set");
    for table in names(&connection, tables) {
        let columns =
            |schema| names(&connection, &format!("SELECT name FROM pragma_table_info('{table}', '{schema}')"));
        let shared: Vec<String> = columns("main").intersection(&columns("new")).cloned().collect();
        assert!(!shared.is_empty(), "{table}");
        let list = shared.join(", ");
        connection
            .execute_batch(&format!("INSERT INTO main.{table} ({list}) SELECT {list} FROM new.{table}"))
            .unwrap_or_else(|error| panic!("{table}: {error}"));
    }
    connection.execute("DELETE FROM meta WHERE key = 'read_model'", []).expect("deleted");
    connection.execute_batch("DETACH new").expect("detached");
    drop(connection);
    for extension in ["db-wal", "db-shm"] {
        let _ = std::fs::remove_file(path.with_extension(extension));
    }
    std::fs::rename(old, path).expect("replaced");
}

/// A loop that is in its second iteration under the schema of an earlier version goes on under this one. See docs/faults.md#d11.
async fn loop_of_every_earlier_schema_goes_on(dialect: Dialect) {
    for version in 1..=migrations().len() {
        story(Setup::new(dialect).agent(SLOW), async |world| {
            world.label().await;
            world.stop_at("the second iteration", |l| l.step == LoopStep::Agent && l.iterations.len() == 2).await;
            world.stop().await;
            turn_back(&world.folder.path().join("data/ralph.db"), version);
            world.restart().await;
            world.recover().await;
            let done = world.the_loop().await;
            assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "schema {version}: {}", done.why);
            let found = world.engine().store.integrity().await.expect("looked over");
            assert_eq!(found, Vec::<String>::new(), "schema {version}");
        })
        .await;
    }
}

/// Datagrams of the service, as lines.
async fn told(manager: &UnixDatagram) -> String {
    let mut text = [0_u8; 4096];
    for _ in 0..3000 {
        if let Ok(length) = manager.recv(&mut text) {
            return String::from_utf8_lossy(&text[..length]).into_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the service told nothing");
}

/// systemd is told when the service listens, that it lives, and that it stops.
#[tokio::test]
async fn service_manager_is_told_about_start_life_and_stop() {
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

    let first = told(&manager).await;
    assert!(first.starts_with("READY=1\nSTATUS=listening on 127.0.0.1:"), "{first}");
    for _ in 0..2 {
        assert_eq!(told(&manager).await, "WATCHDOG=1\n");
    }
    let pid = running.id().expect("it runs").to_string();
    assert!(command("kill").arg(pid).status().await.expect("kill").success());
    let last = loop {
        let next = told(&manager).await;
        if next != "WATCHDOG=1\n" {
            break next;
        }
    };
    assert!(last.starts_with("STOPPING=1\n"), "{last}");
    assert!(running.wait().await.expect("it ends").success());
}

/// Arguments of `ralph-bot` in a line of shell, up to the end of its command; `None` if the line does not call it.
fn called(line: &str) -> Option<&str> {
    let command = line.split(" #").next()?;
    let after = command.strip_prefix("ralph-bot ").or_else(|| {
        let (before, after) = command.split_once(" ralph-bot ")?;
        // Others have the name as an argument: `systemctl restart ralph-bot`, `--user ralph-bot`.
        let last = before.split_whitespace().next_back()?;
        ["as_service", "sudo"].contains(&last).then_some(after)
    })?;
    after.split([';', '|', '>', '&']).next()
}

/// Every `ralph-bot …` in a block of commands of RUNBOOK.md is accepted by the command line.
#[test]
fn commands_of_the_runbook_exist() {
    let page = include_str!("../../RUNBOOK.md");
    let (mut in_block, mut checked) = (false, BTreeSet::new());
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block && line.trim_start().starts_with("```sh");
            continue;
        }
        let Some(command) = called(line).filter(|_| in_block) else { continue };
        let words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'', '`']));
        let words: Vec<&str> = std::iter::once("ralph-bot").chain(words).collect();
        if let Err(error) = Cli::try_parse_from(&words) {
            panic!("RUNBOOK.md has `{}`: {error}", words.join(" "));
        }
        checked.insert(words.join(" "));
    }
    assert!(checked.len() >= 10, "{checked:?}");
}

/// Alerts and the unit link to these headings of RUNBOOK.md.
#[test]
fn headings_that_alerts_link_to_exist() {
    let page = include_str!("../../RUNBOOK.md");
    let anchors: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|title| title.to_lowercase().replace(' ', "-").replace(',', ""))
        .collect();
    for needed in [
        "disk-full",
        "forge-down",
        "provider-down",
        "stuck-loop",
        "leaked-key",
        "backups",
        "service-down",
        "queue-behind",
        "no-sandbox",
        "install",
        "upgrade",
        "roll-back",
        "rotate-secrets",
        "move-to-another-host",
    ] {
        assert!(anchors.contains(needed), "RUNBOOK.md has no heading #{needed}: {anchors:?}");
    }
}
