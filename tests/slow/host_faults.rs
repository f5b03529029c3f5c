//! Hosts that must not work, or whose disk or database accepts no data: each case has a sentence and does no damage.

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use crate::harness::service::stop;
use crate::harness::{Setup, on_one_forge, story};
use crate::hosts::HostStory;

on_one_forge!(
    host_of_another_installation_is_refused,
    full_disk_of_a_host_is_reported_and_another_host_continues,
    service_waits_while_the_database_accepts_no_writes,
    work_without_a_host_is_shown_in_the_status,
);

async fn host_of_another_installation_is_refused(dialect: Dialect) {
    let Some(story) = HostStory::new(dialect, "").await else { return };
    let service = &story.service;
    let mut first = story.spawn("first", Vec::new());
    service.until("the database", async || service.store().await.is_some()).await;
    let data = service.world.folder.path().join("second");
    std::fs::create_dir(&data).expect("a folder");
    std::fs::write(data.join("installation"), "another\n").expect("written");
    for role in ["all", "runner", "runner --once"] {
        let ended = story.spawn_in(role, "second", Vec::new()).wait().await.expect("ended");
        assert_eq!(ended.code(), Some(1), "{role}: {}", service.log());
    }
    assert_eq!(service.full_log().matches("the database belongs to another installation").count(), 3);
    service.world.label().await;
    let done = story.until("the review", |l| l.state == LoopState::Review).await;
    story.finish(&done, "1\n2\n").await;
    assert!(stop(&mut first).await.success(), "{}", service.log());
}

/// The agent's files fit into the first host's tree, but not a second time into the loop's store.
async fn full_disk_of_a_host_is_reported_and_another_host_continues(dialect: Dialect) {
    let fill = "case $PWD in */first/*) for n in 1 2 3 4; do head -c 6000000 /dev/urandom >large$n.bin; done;; esac";
    let Some(story) = HostStory::new(dialect, fill).await else { return };
    let service = &story.service;
    let folders = ["mirrors", "loops", "trees", "pool", "tmp"];
    let started = service.spawn_with_disk("first", &folders, 40, story.environment("first").into()).await;
    let Some(mut first) = started else { return };
    service.until("the database", async || service.store().await.is_some()).await;
    service.world.label().await;
    let failed = story.until("the failure", |l| l.state == LoopState::Failed).await;
    assert!(failed.why.contains("no space left on the disk"), "{}", failed.why);
    service.until("the escalation", async || service.world.escalations().len() == 1).await;
    let body = service.world.issue_of(service.world.escalations()[0]).body;
    assert!(body.contains("the work failed on the host first"), "{body}");
    assert!(story.drain("first", &[]).await.ends_with("first has no work\n"));
    let mut second = story.spawn("second", Vec::new());
    service.world.comment("/ralph resume").await;
    let done = story.until("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(service.world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
    assert_eq!(service.world.file(&done.branch.name, "large1.bin").await, None);
    for process in [&mut first, &mut second] {
        assert!(stop(process).await.success(), "{}", service.log());
    }
}

/// The server becomes read-only during the second iteration, as after a failover to a standby that is not promoted.
async fn service_waits_while_the_database_accepts_no_writes(dialect: Dialect) {
    let wait = "if [ \"$(grep -c '^2' \"$runs\")\" = 1 ]; then sleep 600; fi";
    let Some(story) = HostStory::new(dialect, wait).await else { return };
    let service = &story.service;
    let mut first = story.spawn("first", Vec::new());
    service.until("the database", async || service.store().await.is_some()).await;
    service.world.label().await;
    service.until("the second iteration", async || story.runs().len() == 2).await;
    let set = |statement: &str| {
        story.server.run(statement);
        story.server.run("SELECT pg_reload_conf()");
    };
    set("ALTER SYSTEM SET default_transaction_read_only = on");
    service.until("a warning", async || service.has_logged("could not renew the leases")).await;
    service.until("the lost lease", async || service.has_logged("the lease is lost; the service stops the work")).await;
    let ended = story.spawn("second", Vec::new()).wait().await.expect("ended");
    assert_eq!(ended.code(), Some(1), "{}", service.log());
    assert!(service.has_logged("does not allow writes"), "{}", service.log());
    set("ALTER SYSTEM RESET default_transaction_read_only");
    let done = story.until("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(story.runs().iter().filter(|run| run.starts_with('1')).count(), 1, "{}", service.log());
    assert_eq!(done.spent.iterations, 2, "{}", done.why);
    story.finish(&done, "1\n2\n").await;
    assert!(stop(&mut first).await.success(), "{}", service.log());
}

/// The only host has no labels. A scheduler has two minutes to start another one.
async fn work_without_a_host_is_shown_in_the_status(dialect: Dialect) {
    let file = "checks:\n  - name: answer\n    run: sh check.sh\nruns_on: [gpu]\n";
    story(Setup::new(dialect).file(".ralph.yml", file), async |world| {
        let note = "The work waits: no host has the labels of `runs_on` in the repository's file (`gpu`).";
        world.label().await;
        world.settle().await;
        world.reconcile().await;
        assert!(!world.bot_commented(note), "{:#?}", world.bot_comments());
        world.clock.advance_ms(120_000);
        world.reconcile().await;
        assert!(world.bot_commented(note), "{:#?}", world.bot_comments());
        assert_eq!(world.the_loop().await.state, LoopState::Running);
        world.comment("/ralph abort").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Aborted);
    })
    .await;
}
