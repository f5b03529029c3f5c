//! Several processes on one database, graceful stops, and starts after failures.

use std::path::PathBuf;
use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::clock::{Clock, Stopwatch};
use ralph_bot::domain::loops::{LoopStart, LoopState, LoopTask, RunOptions, TaskText};
use ralph_bot::domain::model::ids::IssueRef;
use ralph_bot::domain::model::ids::{ForgeName, LoopId, Number, RepoRef};
use ralph_bot::domain::trust::policy::Policy;
use ralph_bot::process;
use ralph_bot::store::inbox::{self, Body, StoredDelivery};
use ralph_bot::store::{leases, loops};
use rustix::process::Signal;
use test_support::free_port;

use crate::harness::Setup;
use crate::harness::on_one_forge;
use crate::harness::service::{Service, WAIT_LIMIT, lasting_once, signal, stop, was_killed};

on_one_forge!(
    roles_in_three_processes_complete_a_loop,
    two_services_on_one_database_do_work_once,
    stop_during_a_run_is_graceful,
    failed_heartbeat_stops_the_agent,
    processes_of_killed_runner_are_ended,
    start_with_large_backlog_is_fast,
    failing_fsync_loses_no_delivery,
    full_disk_is_reported_and_loop_resumes,
    agent_out_of_memory_is_reported_and_service_survives,
);

/// The ingest, control and runner processes share nothing but the database. Each reports its own counts.
async fn roles_in_three_processes_complete_a_loop(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let ports = ["ingest", "control", "runner"].map(|role| (role, free_port()));
    // The first start creates the database; started together, the three processes race for it.
    let mut processes = ports.map(|(role, port)| {
        service.spawn_in(role, vec![("RALPH_SERVER__METRICS_LISTEN", format!("127.0.0.1:{port}"))])
    });
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    service.wait_until_idle().await;
    assert_eq!(service.world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
    assert_eq!(service.world.state_labels(), ["review"]);
    let page = async |port: u16, path: &str| {
        let client = ralph_bot::net::client().no_proxy().build().expect("a client");
        let answer = client.get(format!("http://127.0.0.1:{port}{path}")).send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("text"))
    };
    for (role, port) in ports {
        assert_eq!(page(port, "/healthz").await, (200, "ok\n".to_owned()), "{role}");
        assert_eq!(page(port, "/readyz").await.0, 200, "{role}");
        assert_eq!(page(port, "/webhooks/forge").await.0, 404, "{role}: only health and metrics");
        let (_, text) = page(port, "/metrics").await;
        assert!(text.contains("ralph_loops{state=\"review\"} 1\n"), "{role}: {text}");
        for (by, line) in [
            ("ingest", "ralph_deliveries_total{forge=\"forge\",outcome=\"accepted\"} "),
            ("control", "ralph_iterations_total{outcome=\"complete\"} 1\n"),
            ("runner", "ralph_agent_runs_total{backend=\"mine\",outcome="),
        ] {
            assert_eq!(text.contains(line), by == role, "{role}: {line}: {text}");
        }
    }
    for process in &mut processes {
        assert!(stop(process).await.success(), "{}", service.log());
    }
    service.finish().await;
}

/// Each agent run appends a line to a file, so that runs can be counted.
/// See docs/research/faults.md#d10.
async fn two_services_on_one_database_do_work_once(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let world = &service.world;
    let runs = world.folder.path().join("runs");
    world.write_agent(&format!("echo run >>{}\necho 42 >answer.txt\n", runs.display()));
    let mut issues = vec![world.issue];
    for n in 0..3 {
        let title = format!("Wrong again ({n})");
        let opened = world.forge.open_issue(&world.maintainer, world.repo, &title, "It should be 42.", &[]).await;
        issues.push(opened.expect("an issue"));
    }
    let mut one = service.spawn("all", None);
    let mut two = service.spawn_elsewhere(free_port());
    service.until("the service to listen", async || service.listens().await).await;
    for issue in &issues {
        world.forge.label(&world.maintainer, world.repo, *issue, "ralph:run").await.expect("labeled");
    }
    let store = service.store().await.expect("a database");
    let reviewed = async || store.read(|c| loops::in_state(c, LoopState::Review)).await.expect("loops").len();
    service.until("four reviews", async || reviewed().await == issues.len()).await;
    service.wait_until_idle().await;
    let all = store.read(|c| loops::list(c, false, 100)).await.expect("loops");
    assert_eq!(all.len(), issues.len());
    let iterations: u32 = all.iter().map(|l| l.spent.iterations).sum();
    let ran = std::fs::read_to_string(&runs).expect("runs").lines().count();
    assert_eq!(ran, iterations as usize, "an iteration was run twice");
    assert!(all.iter().all(|l| l.iterations.iter().all(|i| i.attempt == 1)), "an iteration was taken for lost");
    assert!(stop(&mut one).await.success(), "{}", service.log());
    assert!(stop(&mut two).await.success(), "{}", service.log());
    service.finish().await;
}

/// The database is locked for longer than a heartbeat waits. The agent ends while the service cannot ask for its lease yet, and
/// the lost run is repeated once.
async fn failed_heartbeat_stops_the_agent(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let folder = service.world.folder.path();
    let runs = folder.join("runs");
    service.world.write_agent(&lasting_once(&runs));
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    service.until("the agent's run", async || runs.exists()).await;
    let instance = service.instance().await;
    assert!(!process::survivors(&instance).is_empty(), "the agent runs");
    let lock = rusqlite::Connection::open(folder.join("data/ralph.db")).expect("opened");
    lock.execute_batch("BEGIN IMMEDIATE").expect("locked");
    service.until("the agent's end", async || process::survivors(&instance).is_empty()).await;
    lock.execute_batch("COMMIT").expect("released");
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    let attempts: Vec<u32> = done.iterations.iter().map(|iteration| iteration.attempt).collect();
    assert_eq!(attempts, [2], "{}", service.log());
    assert_eq!(std::fs::read_to_string(&runs).expect("runs").lines().count(), 2);
    assert!(service.has_logged("the lease is lost; the service stops the work"), "{}", service.log());
    service.redeliver_failed();
    service.wait_until_idle().await;
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}

/// Agent whose first run never ends, with a child process outside of its process group; reports its start in a file.
fn slow_agent(service: &Service) -> (PathBuf, PathBuf) {
    let folder = service.world.folder.path();
    let (slow, begun) = (folder.join("slow"), folder.join("begun"));
    std::fs::write(&slow, "").expect("written");
    service.world.write_agent(&format!(
        "if [ -e {slow} ]; then\n  setsid sleep 600 &\n  sleep 600 &\n  touch {begun}\n  sleep 600\nfi\necho 42 >answer.txt\n",
        slow = slow.display(),
        begun = begun.display(),
    ));
    (slow, begun)
}

async fn stop_during_a_run_is_graceful(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let (slow, begun) = slow_agent(&service);
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    service.until("the agent's run", async || begun.exists()).await;
    let instance = service.instance().await;
    assert!(!process::survivors(&instance).is_empty(), "the agent runs");
    std::fs::remove_file(&slow).expect("removed");
    let watch = Stopwatch::start();
    let status = stop(&mut child).await;
    assert!(status.success(), "{status}\n{}", service.log());
    println!("stopped during a run in {:?}", watch.elapsed());
    assert!(watch.elapsed() < Duration::from_secs(30), "the grace is ten seconds: {:?}", watch.elapsed());
    assert_eq!(process::survivors(&instance), Vec::new(), "processes are left");
    let store = service.store().await.expect("a database");
    let now = Clock::System.now();
    assert_eq!(store.read(move |c| leases::owners(c, now)).await.expect("owners"), Vec::<String>::new());
    let mut child = service.spawn("all", None);
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(done.iterations.first().expect("an iteration").attempt, 2, "the run that was cut off counts");
    service.wait_until_idle().await;
    assert!(stop(&mut child).await.success());
    service.finish().await;
}

/// See docs/research/threats.md#s11.
async fn processes_of_killed_runner_are_ended(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let (slow, begun) = slow_agent(&service);
    let mut others = ["ingest", "control"].map(|role| service.spawn(role, None));
    service.until("the service to listen", async || service.listens().await).await;
    let mut runner = service.spawn("runner", None);
    service.world.label().await;
    service.until("the agent's run", async || begun.exists()).await;
    let instance = service.instance().await;
    signal(&runner, Signal::KILL);
    assert!(was_killed(runner.wait().await.expect("our child")));
    std::fs::remove_file(&slow).expect("removed");
    let survivors = process::survivors(&instance);
    assert!(!survivors.is_empty(), "without a sandbox what an agent started outlives its runner");
    let mut runner = service.spawn("runner", None);
    service
        .until("what was left to be ended", async || {
            let now = process::survivors(&instance);
            survivors.iter().all(|survivor| !now.contains(survivor))
        })
        .await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(done.iterations.first().expect("an iteration").attempt, 2);
    service.wait_until_idle().await;
    for process in others.iter_mut().chain([&mut runner]) {
        assert!(stop(process).await.success(), "{}", service.log());
    }
    service.finish().await;
}

/// After the first failed sync nothing more is reported as stored, and the service exits to be restarted.
/// See docs/research/faults.md#d2.
async fn failing_fsync_loses_no_delivery(dialect: Dialect) {
    // Counted by thread; opening the database takes some dozen in a separate thread.
    for first in [30, 40, 55] {
        let service = Service::new(Setup::new(dialect), false).await;
        let inject = format!("fsync,fdatasync:error=EIO:when={first}+");
        let Some(mut child) = service.spawn_tampered(&inject) else { return };
        let ended = async {
            service.until("the service to listen", async || service.listens().await).await;
            service.world.label().await;
            // As often as it takes: each delivery that is taken is a sync.
            while child.try_wait().expect("our child").is_none() {
                service.world.comment("A word in between.").await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            child.wait().await.expect("our child")
        };
        let status = tokio::time::timeout(WAIT_LIMIT, ended).await.expect("it ends by itself");
        assert!(!status.success(), "{status}\n{}", service.log());
        assert!(service.has_logged("the database failed"), "{}", service.log());
        service.world.forge.flush().await;
        let taken: Vec<String> = {
            let log = service.world.forge.hooks().log();
            log.into_iter().filter(|delivery| delivery.status == Some(202)).map(|delivery| delivery.id).collect()
        };
        let mut child = service.spawn("all", None);
        service.until("the service to listen", async || service.listens().await).await;
        let store = service.store().await.expect("a database");
        for id in taken {
            let (forge, delivery) = (ForgeName::new("forge"), id.clone());
            let known = store.read(move |c| inbox::outcome(c, &forge, &delivery)).await.expect("read");
            assert!(known.is_some(), "from sync {first} on: {id} was answered with 202 and is not there");
        }
        service.redeliver_failed();
        let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
        assert_eq!(done.spent.iterations, 1, "{}", done.why);
        service.wait_until_idle().await;
        assert!(stop(&mut child).await.success(), "{}", service.log());
        service.finish().await;
    }
}

/// The disk fills up during a run, so that the agent's change cannot be stored.
/// See docs/research/faults.md#d1.
async fn full_disk_is_reported_and_loop_resumes(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let world = &service.world;
    // It fits into the tree, but not a second time into the loop's store.
    world.write_agent("for n in 1 2 3 4; do head -c 6000000 /dev/urandom >large$n.bin; done\necho 42 >answer.txt\n");
    let folders = ["mirrors", "loops", "trees", "pool", "tmp"];
    let Some(mut child) = service.spawn_with_disk("data", &folders, 40, Vec::new()).await else { return };
    service.until("the service to listen", async || service.listens().await).await;
    world.label().await;
    let stopped = service.until_loop("the failure", |l| l.state == LoopState::Failed).await;
    assert!(stopped.why.contains("no space left on the disk"), "{}", stopped.why);
    service.until("the escalation", async || world.escalations().len() == 1).await;
    let body = world.issue_of(world.escalations()[0]).body;
    assert!(body.contains("no space left") && body.contains("/ralph resume"), "{body}");
    assert_eq!(world.forge.branch_sha(world.repo, &stopped.branch.name).await, None);
    world.write_agent("rm -f large*.bin\necho 42 >answer.txt\n");
    world.comment("/ralph resume").await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
    assert_eq!(world.file(&done.branch.name, "large1.bin").await, None);
    service.until("the escalation's end", async || world.escalations().is_empty()).await;
    service.wait_until_idle().await;
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}

/// Control group with a memory limit in MiB, removed on drop; `None` from `new` if this machine does not allow one.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(mib: u32) -> Option<Self> {
        let name = format!("ralph-it-{}-{mib}", free_port());
        for (root, limit) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
            let group = Self(PathBuf::from(root).join(&name));
            let made = std::fs::create_dir(&group.0).is_ok();
            if made && std::fs::write(group.0.join(limit), (u64::from(mib) << 20).to_string()).is_ok() {
                return Some(group);
            }
        }
        skipped_tests::skip_in_ci_as_well("no control group can be made here; a limit of one process takes its place");
        None
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The kernel kills a process at the memory limit, if a control group can be made; otherwise a process limit denies it
/// memory.
/// See docs/research/faults.md#d7.
async fn agent_out_of_memory_is_reported_and_service_survives(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let world = &service.world;
    let group = MemoryGroup::new(48);
    let score = world.folder.path().join("score");
    // The service has the same as we have; its agents have more, a moment after they have started.
    let own: i32 =
        std::fs::read_to_string("/proc/self/oom_score_adj").expect("Linux").trim().parse().expect("a number");
    let wanted = (own + 500).min(1_000);
    let enter = group.as_ref().map_or("kill -KILL $$".to_owned(), |group| {
        format!(
            "echo $$ >{}/cgroup.procs\n  head -c 400000000 /dev/zero | tail -c 400000000 >/dev/null; exit $?",
            group.0.display()
        )
    });
    world.write_agent(&format!(
        "for try in 1 2 3 4 5 6 7 8 9; do cat /proc/$$/oom_score_adj >{score}; grep -qx {wanted} {score} && break; sleep 0.2; done
case $RALPH_ITERATION in
1)
  {enter} ;;
2)
  ulimit -v 100000
  head -c 400000000 /dev/zero | tail -c 400000000 >/dev/null || exit $? ;;
*)
  echo 42 >answer.txt ;;
esac
",
        score = score.display(),
    ));
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    world.label().await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(done.spent.iterations, 3, "{}", done.why);
    let problems: Vec<&str> = done.iterations.iter().map(|i| i.agent_problem.as_str()).collect();
    let killed = if group.is_some() { "memory ran out and the system killed it" } else { "killed by signal 9" };
    assert!(problems[0].contains(killed), "{problems:?}");
    assert!(problems[1].contains("memory exhausted"), "{problems:?}");
    assert_eq!(problems[2], "");
    let agents = std::fs::read_to_string(&score).expect("the agent's");
    assert_eq!(agents.trim(), wanted.to_string(), "the service has {own}");
    service.wait_until_idle().await;
    assert!(child.try_wait().expect("our child").is_none(), "the service goes on");
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}

/// Open loops that wait for a person, and unprocessed deliveries, do not delay the start.
const PARKED: u64 = 1_000;
const PENDING: usize = 10_000;

async fn start_with_large_backlog_is_fast(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let world = &service.world;
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    world.comment("Nothing to do with the bot.").await;
    world.forge.flush().await;
    let past = world.forge.hooks().log().pop().expect("a delivery");
    signal(&child, Signal::KILL);
    assert!(was_killed(child.wait().await.expect("our child")));
    park(&service, &past.sent.event.0, past.sent.body.as_bytes()).await;
    let answered = world.forge.hooks().log().len();
    let watch = Stopwatch::start();
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    world.forge.hooks().redeliver(&past);
    world.forge.flush().await;
    let took = watch.elapsed();
    let status = world.forge.hooks().log().get(answered).and_then(|delivery| delivery.status);
    assert_eq!(status, Some(202), "{}", service.log());
    println!("first 202 with {PARKED} open loops and {PENDING} deliveries waiting: {took:?} after the start");
    assert!(took < Duration::from_secs(10), "{took:?}");
    signal(&child, Signal::KILL);
    tokio::time::timeout(WAIT_LIMIT, child.wait()).await.expect("ended").expect("our child");
}

/// Fills the database with the rows of a long-running service.
async fn park(service: &Service, event: &str, body: &[u8]) {
    let store = service.store().await.expect("a database");
    let now = Clock::System.now();
    let repo =
        RepoRef { forge: ForgeName::new("forge"), id: service.world.repo, owner: "mira".into(), name: "app".into() };
    let by = service.world.maintainer.clone();
    let (event, body) = (event.to_owned(), body.to_vec());
    let filled = store.write(move |c| {
        for n in 0..PENDING {
            let (delivery, event) = (format!("pending-{n}"), event.clone());
            inbox::insert(
                c,
                &StoredDelivery { forge: repo.forge.clone(), delivery, event, body: Body::pack(&body) },
                now,
            )?;
        }
        for n in 0..PARKED {
            let issue = Number(1_000_000 + n);
            let start = LoopStart {
                request: String::new(),
                existing: None,
                id: LoopId::from_parts(issue, n as u32),
                place: IssueRef { repo: repo.clone(), issue },
                by: by.clone(),
                task: LoopTask {
                    hash: String::new(),
                    text: TaskText::new(format!("Parked {n}"), "It waits.", None),
                    url: "http://localhost/".into(),
                    author: Some(by.clone()),
                    author_trusted: true,
                    unconfirmed_editor: None,
                    edited_after: false,
                    labels: Vec::new(),
                },
                options: RunOptions::default(),
                policy: Policy::default(),
                plan: None,
                comment: None,
                hidden_removed: 0,
                round: 1,
            };
            assert!(loops::begin(c, start, &format!("parked/{n}"), now)?, "a loop starts");
        }
        c.execute_batch(
            "UPDATE loops SET state = 'paused', queued_at = NULL, data = json_set(data, '$.state', 'paused');
             DELETE FROM outbox; DELETE FROM timers; DELETE FROM inputs;",
        )?;
        Ok(())
    });
    filled.await.expect("filled");
    let parked = store.read(|c| loops::in_state(c, LoopState::Paused)).await.expect("loops");
    assert_eq!(parked.len(), PARKED as usize);
    assert!(parked.iter().all(|l| l.state == LoopState::Paused));
}
