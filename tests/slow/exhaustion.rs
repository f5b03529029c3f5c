//! A service that runs out of open files, connections, or room for output.

use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::loops::{LoopState, LoopStep};
use reqwest::Client;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::process::Child;

use crate::burst::{deliver, memory_mib, undelivered};
use crate::harness::Setup;
use crate::harness::on_one_forge;
use crate::harness::service::{Service, stop};

on_one_forge!(exhausted_file_descriptors_lose_nothing);

/// Number of idle connections that a service with the default limit of open files must sustain.
const IDLE: usize = 5_000;
/// Time limit of a request's head.
const HEAD: Duration = Duration::from_secs(5);

fn pid(child: &Child) -> u32 {
    child.id().expect("it runs")
}

fn open_files(child: &Child) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", pid(child))).expect("Linux").count()
}

/// Sets the maximum number of open files of a process, and returns the previous limit.
fn limit_files(child: &Child, most: u64) -> u64 {
    let pid = Pid::from_raw(i32::try_from(pid(child)).expect("a small number"));
    let new = Rlimit { current: Some(most), maximum: None };
    let maximum = getrlimit(Resource::Nofile).maximum;
    let before = prlimit(pid, Resource::Nofile, Rlimit { maximum, ..new }).expect("the limit is set");
    before.current.unwrap_or(1_024)
}

/// Processor time used so far.
fn used(child: &Child) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid(child))).expect("Linux");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number");
    // Linux reports a hundred ticks a second to programs, independently of its own frequency.
    Duration::from_millis(ticks * 10)
}

/// The service can neither accept connections nor start programs.
/// See docs/research/faults.md#d8.
async fn exhausted_file_descriptors_lose_nothing(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let world = &service.world;
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    let deliveries = undelivered(&service).await;
    let client = Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("a client");

    let before = limit_files(&child, open_files(&child) as u64 + 10);
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(("127.0.0.1", service.port)).await.expect("queued"));
    }
    service.until("the end of its files", async || service.has_logged("could not accept a connection")).await;
    let (watch, from) = (Stopwatch::start(), used(&child));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (busy, time) = (used(&child) - from, watch.elapsed());
    println!("{busy:?} of a processor in {time:?} without files to open");
    assert!(busy < time / 2, "the service is busy without work: {busy:?} in {time:?}");
    drop(idle);
    let (status, _) = deliver(&service, &client, &deliveries[1], "a-comment".into()).await;
    assert_eq!(status, 202, "it takes what comes once there is room: {}", service.log());

    // Enough for a connection or two, not for a program and its pipes.
    let (status, _) = deliver(&service, &client, &deliveries[0], "a-label".into()).await;
    assert_eq!(status, 202);
    limit_files(&child, open_files(&child) as u64 + 3);
    service.until("a program that is not started", async || service.has_logged("Too many open files")).await;
    limit_files(&child, before);
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    assert_eq!((done.run.step, done.spent.iterations), (LoopStep::Idle, 1), "{}", done.why);
    service.wait_until_idle().await;
    assert_eq!(world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}

/// Idle connections are closed; independent of the forge.
/// See docs/research/threats.md#w10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_idle_connections_are_closed_without_delay_to_others() {
    let files = getrlimit(Resource::Nofile);
    let wanted = IDLE as u64 + 1_000;
    if files.maximum.is_some_and(|most| most < wanted) {
        skipped_tests::skip(&format!(
            "the maximum of open files is {:?} here, the story needs {wanted}; raise it with `ulimit -Hn {wanted}`",
            files.maximum
        ));
        return;
    }
    if files.current.is_some_and(|now| now < wanted) {
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..files }).expect("raised");
    }
    let service = Service::new(Setup::new(Dialect::Gitea), false).await;
    let mut child = service.spawn("ingest", None);
    service.until("the service to listen", async || service.listens().await).await;
    let deliveries = undelivered(&service).await;
    let at_rest = memory_mib(&child, "VmRSS");
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(TcpStream::connect(("127.0.0.1", service.port)).await.expect("a connection"));
    }
    let client = Client::builder().no_proxy().build().expect("a client");
    let mut slowest = Duration::ZERO;
    for n in 0..20 {
        let (status, took) = deliver(&service, &client, &deliveries[0], format!("in-between-{n}")).await;
        assert_eq!(status, 202);
        slowest = slowest.max(took);
    }
    let grown = memory_mib(&child, "VmRSS").saturating_sub(at_rest);
    println!("{slowest:?} at most for a delivery beside {IDLE} idle connections, which take {grown} MiB");
    assert!(slowest < Duration::from_secs(2), "it took {slowest:?}");
    assert!(grown < 128, "{grown} MiB for {IDLE} connections");
    let watch = Stopwatch::start();
    let ends = idle.iter_mut().map(async |stream| stream.read(&mut [0; 256]).await.unwrap_or(0));
    let ends = tokio::time::timeout(HEAD * 4, futures::future::join_all(ends)).await;
    assert_eq!(ends.expect("they are sent away").len(), IDLE);
    println!("the last was sent away {:?} after the last came", watch.elapsed());
    service.until("room", async || open_files(&child) < 200).await;
    assert!(stop(&mut child).await.success(), "{}", service.log());
}

/// An agent and a check write a gigabyte in total; independent of the forge.
/// See docs/research/faults.md#a3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gigabyte_of_output_uses_little_memory() {
    let service = Service::new(Setup::new(Dialect::Gitea), false).await;
    let world = &service.world;
    world.write_agent(
        "echo FIRST\nyes 'a line that says nothing, and says it again and again' | head -c 20000000\nhead -c 980000000 /dev/zero | tr '\\0' x\necho\necho LAST\necho 42 >answer.txt\n",
    );
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    let at_rest = memory_mib(&child, "VmHWM");
    world.label().await;
    let watch = Stopwatch::start();
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    let (took, grown) = (watch.elapsed(), memory_mib(&child, "VmHWM").saturating_sub(at_rest));
    println!("a gigabyte in {took:?}, with {grown} MiB more than the {at_rest} before");
    // Far less than the output; the masker keeps some MiB at a time.
    assert!(grown < 160, "{grown} MiB");
    assert_eq!(done.spent.iterations, 1, "{}", done.why);
    service.wait_until_idle().await;
    let logs = world.folder.path().join("data/logs").join(done.id.as_str());
    let sizes = std::fs::read_dir(logs).expect("logs").flatten().map(|entry| entry.metadata().expect("a file").len());
    let total: u64 = sizes.sum();
    assert!(total < 5_000_000, "{total} bytes are kept");
    assert!(world.bot_comments().iter().all(|said| said.len() < 65_000));
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}
