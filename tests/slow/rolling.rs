//! From one version to the next with two processes of the real binary on one database. See
//! `docs/decisions/03-database.md`.

use std::path::Path;

use fake_forge::Dialect;
use ralph_bot::domain::loops::{LoopState, LoopStep};
use test_support::free_port;
use tokio::process::Child;

use crate::harness::databases::{migrations, schema_version, turn_back};
use crate::harness::parts::{self, command};
use crate::harness::service::{Service, stop};
use crate::harness::{Setup, on_one_forge, story};

on_one_forge!(
    migrating_process_waits_for_a_process_of_the_older_version,
    second_process_takes_over_the_loop_of_a_stopping_process,
    loop_of_every_earlier_schema_continues,
);

/// Service with an agent whose second iteration waits as long as `slow` exists. It reports each run in `runs`.
async fn service(dialect: Dialect) -> Service {
    let service = Service::new(Setup::new(dialect), false).await;
    let folder = service.world.folder.path().display().to_string();
    service.world.write_agent(&format!(
        "echo \"$RALPH_ITERATION\" >>{folder}/runs\n\
         if [ \"$RALPH_ITERATION\" -ge 2 ] && [ -e {folder}/slow ]; then touch {folder}/begun; sleep 600; fi\n\
         echo \"$RALPH_ITERATION\" >>notes.txt\nif [ \"$RALPH_ITERATION\" -ge 2 ]; then echo 42 >answer.txt; fi\n"
    ));
    std::fs::write(service.world.folder.path().join("slow"), "").expect("written");
    service
}

/// Starts a service, and a loop that is in its second iteration then.
async fn started(service: &Service) -> Child {
    let child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    let begun = service.world.folder.path().join("begun");
    service.until("the second iteration", async || begun.exists()).await;
    std::fs::remove_file(service.world.folder.path().join("slow")).expect("removed");
    child
}

/// Iterations whose agent ran, in order.
fn runs(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("runs")).expect("runs");
    text.lines().map(str::to_owned).collect()
}

/// Number of the bot's comments on the issue about an iteration, which may be folded.
fn comments(service: &Service, iteration: usize) -> usize {
    let heading = format!("Iteration {iteration} of ");
    let about = |text: &&String| text.lines().take(2).any(|line| line.contains(&heading));
    service.world.bot_comments().iter().filter(about).count()
}

/// Asserts that a loop of two iterations, the second of which was interrupted once, creates everything on the forge once.
async fn assert_done_once(service: &Service) {
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    service.wait_until_idle().await;
    assert_eq!(done.spent.iterations, 2, "{}", done.why);
    assert_eq!(runs(service.world.folder.path()), ["1", "2", "2"], "only the run that was cut off is repeated");
    for (number, iteration) in done.iterations.iter().enumerate() {
        assert_eq!(comments(service, number + 1), 1, "{:#?}", service.world.bot_comments());
        assert_eq!(iteration.attempt, number as u32 + 1, "the first was run once, the second twice");
    }
    let pulls = service.world.forge.with(|state| {
        let repo = state.repo(service.world.repo).expect("the repository");
        repo.issues.values().filter(|issue| issue.pull.is_some()).count()
    });
    assert_eq!(pulls, 1);
    let notes = service.world.file(&done.branch.name, "notes.txt").await;
    assert_eq!(notes.as_deref(), Some("1\n2\n"));
    assert_eq!(service.world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
}

/// The lock is held as a process of any version holds it: shared, on the folder of the database.
async fn migrating_process_waits_for_a_process_of_the_older_version(dialect: Dialect) {
    let Some(flock) = parts::program(&["flock"], "install util-linux") else { return };
    let service = service(dialect).await;
    let mut child = started(&service).await;
    assert!(stop(&mut child).await.success(), "{}", service.log());
    let data = service.world.folder.path().join("data");
    let (database, newest) = (data.join("ralph.db"), migrations().len());
    turn_back(&database, newest - 1);
    let mut older = command(&flock);
    let mut older = older.args(["--shared", "--no-fork"]).arg(&data).args(["sleep", "600"]).spawn().expect("it starts");
    service
        .until("the older process to hold the lock", async || {
            command(&flock)
                .args(["--exclusive", "--nonblock"])
                .arg(&data)
                .arg("true")
                .status()
                .await
                .is_ok_and(|s| !s.success())
        })
        .await;

    let mut newer = service.spawn("all", None);
    let waiting = "waiting for processes of an older version to stop";
    service.until("the newer process to wait", async || service.has_logged(waiting)).await;
    assert_eq!(schema_version(&database), newest - 1, "the schema changed below the older process");
    assert!(newer.try_wait().expect("asked").is_none() && !service.listens().await, "{}", service.log());

    older.kill().await.expect("it ends");
    service.until("the newer process to listen", async || service.listens().await).await;
    assert_eq!(schema_version(&database), newest);
    assert_done_once(&service).await;
    assert!(stop(&mut newer).await.success(), "{}", service.log());
    service.finish().await;
}

/// Both know the schema, so they run at the same time: the second starts, the first stops, and the forge's deliveries go to
/// the second from then on.
async fn second_process_takes_over_the_loop_of_a_stopping_process(dialect: Dialect) {
    let service = service(dialect).await;
    let mut first = started(&service).await;
    let port = free_port();
    let mut second = service.spawn_elsewhere(port);
    service
        .until("the second process to listen", async || {
            tokio::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port)).await.is_ok()
        })
        .await;
    assert_eq!(runs(service.world.folder.path()), ["1", "2"], "the second process ran what the first was running");
    service.world.forge.with(|state| {
        for hook in &mut state.repo_mut(service.world.repo).expect("the repository").hooks {
            hook.url = format!("http://127.0.0.1:{port}/webhooks/forge");
        }
    });
    assert!(stop(&mut first).await.success(), "{}", service.log());
    assert_done_once(&service).await;

    let opened = service.world.forge.open_issue(
        &service.world.maintainer,
        service.world.repo,
        "Also wrong",
        "It should be 42.",
        &[],
    );
    let other = opened.await.expect("an issue");
    service
        .world
        .forge
        .label(&service.world.maintainer, service.world.repo, other, "ralph:run")
        .await
        .expect("labeled");
    service.until_loop("a second review", |l| l.state == LoopState::Review && l.issue.issue == other).await;
    service.wait_until_idle().await;
    assert!(stop(&mut second).await.success(), "{}", service.log());
    service.finish().await;
}

/// Solves the task in its second iteration.
const SECOND_TRY: &str =
    "if [ \"$RALPH_ITERATION\" -ge 2 ]; then echo 42 >answer.txt; fi\necho \"$RALPH_ITERATION\" >>notes.txt\n";

/// A loop that is in its second iteration under the schema of an earlier version continues under this one. See docs/research/faults.md#d11.
async fn loop_of_every_earlier_schema_continues(dialect: Dialect) {
    for version in 1..=migrations().len() {
        story(Setup::new(dialect).agent(SECOND_TRY), async |world| {
            world.label().await;
            world.stop_at("the second iteration", |l| l.run.step == LoopStep::Agent && l.iterations.len() == 2).await;
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
